"""Likelihoods of owners' targets: numbers with normal errors, two labels, or a user's own :class:`Likelihood`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from mpmtl_prob._util import protocols
from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import positive
from mpmtl_prob._util.former import accept_former_methods, former_names
from mpmtl_prob.data.gram import unit
from mpmtl_prob.data.prediction import (
    Block,
    DrawnNumbers,
    Prediction,
    linear,
    normal_errors,
    power_above,
    row_blocks,
    stream,
)
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.models import task as model
from mpmtl_prob.sampling.chains import Draws
from mpmtl_prob.single_task import conjugate, intercepts, laplace, student
from mpmtl_prob.single_task.families import (
    BERNOULLI,
    DISPERSIONS,
    NEGATIVE_BINOMIAL,
    POISSON,
    Families,
    NegativeBinomial,
)


class Posteriors(Protocol):
    """All tasks' posteriors given one Omega: exact, or with the ratios that make them so."""

    @property
    def mean(self) -> FloatArray:
        """Mean of W, (d, m)."""
        ...

    @property
    def log_evidence(self) -> FloatArray:
        """log p(y_i | Omega) up to a constant of the task, (m,)."""
        ...

    def sample(self, rng: np.random.Generator, num_samples: int) -> Draws:
        """Independent draws by name, (S, ..., m), ``W`` (S, d, m) among them; ``log_ratio`` where they are approximate.

        ``log_ratio`` and ``centre`` are as :func:`mpmtl_prob.sampling.importance.resampled` has them. Of many tasks a few are
        asked for at a time: streams that are spawned from ``rng``, one for every task, are then as among all of them.
        """
        ...


class Jointly(NamedTuple):
    """One owner's model together with the public one, for method "joint".

    Attributes:
        model: a NumPyro model of an Observed release, X (n, d), y (n,), mask (n,) and scale (d,), with the sites of
            :func:`mpmtl_prob.models.shared_covariance.full` and the deterministic ``w`` (d,).
        start: unconstrained values of its other sites.
        kept: names of what is kept beside ``w``.
        unit: of targets that are numbers: the model meets targets in it, and w and sigma are multiplied by it afterwards.
    """

    model: Callable[..., None]
    start: Mapping[str, Any]
    kept: tuple[str, ...]
    unit: float = 1.0


class Likelihood(ABC):
    """The law of a task's targets given its weights, with the priors of its own scales.

    ``name``, :meth:`posteriors` and :meth:`predict` are enough.

    Attributes:
        name: in tables and files.
        exact: the draws of :meth:`posteriors` are the posterior's own. If not, their ``log_ratio`` makes them so.
        intercept: tasks may have one; omega and scale are then of the other features.
        nodes: of the grid over the power of Omega, for each of which :meth:`posteriors` is called.
        families: laws of targets given their linear predictors, by which a mixed model takes those that are no numbers.
    """

    name: ClassVar[str]
    exact: ClassVar[bool] = True
    intercept: ClassVar[bool] = False
    nodes: ClassVar[int] = 7
    families: ClassVar[Families | None] = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        accept_former_methods(cls, given="posteriors")

    def check(self, tasks: TaskData) -> None:
        """Raises ValueError for tasks whose targets cannot be meant, or with an intercept that it does not know."""
        if tasks.intercept and not self.intercept:
            raise ValueError(f"likelihood: {self.name!r} knows no intercept; take tasks without")

    @abstractmethod
    def posteriors(self, tasks: TaskData, omega: FloatArray | None, scale: FloatArray | None) -> Posteriors:
        """All tasks' posteriors given the shape of the shared covariance.

        Each may depend on its own rows alone, in every bit.

        Args:
            tasks: the rows.
            omega: of ``v = w / scale``, up to a factor, (d, d); default the identity.
            scale: by task, (m, d); default 1.
        """

    @abstractmethod
    def predict(
        self, tasks: TaskData, W: FloatArray, draws: Mapping[str, FloatArray], pick: NDArray[np.int64], seed: int
    ) -> Prediction:
        """The posterior predictive of rows.

        Args:
            tasks: the rows.
            W: posterior mean of the weights, (d, m).
            draws: all of them by name, (S, ..., m).
            pick: which of them intervals come from.
            seed: of what is drawn beside.
        """

    def jointly(self, X: FloatArray, y: FloatArray) -> Jointly | None:
        """The model of method "joint" for an owner with these rows (n, d) and targets; None where there is none."""
        return None

    def pointwise(
        self,
        tasks: TaskData,
        own: slice,
        predictor: FloatArray,
        draws: Mapping[str, FloatArray],
        rng: np.random.Generator,
    ) -> tuple[FloatArray, FloatArray] | None:
        """Return log densities of one task's targets under every draw, and targets drawn anew, (S, n) each.

        ArviZ compares models by the one and checks them by the other. None where it is not known.

        Args:
            tasks: the rows.
            own: which of them, n.
            predictor: x'w of every draw and row, (S, n).
            draws: of the task's other quantities by name, such as ``sigma``, (S,).
            rng: of what is drawn.
        """
        return None

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class NormalErrors(Likelihood):
    """Numbers: ``y ~ N(X w, sigma^2)``, sigma unknown. In closed form: :mod:`mpmtl_prob.single_task.conjugate`.

    Attributes:
        snr: what is publicly known of a task's signal-to-noise ratio, the variance of X w over sigma^2 (with an intercept, of
            its slopes' part): where features explain a share R^2 of the variance, R^2 / (1 - R^2). Default: next to nothing.
            Who reads it off the rows of all tasks tells every owner something of the others.

    Raises:
        ValueError: what is no :class:`SnrPrior`, or has a median or a sd that is not positive.
    """

    snr: conjugate.SnrPrior | None = None

    name = "gaussian"
    intercept = True

    def __post_init__(self) -> None:
        if self.snr is None:
            return
        if not isinstance(self.snr, conjugate.SnrPrior):
            raise ValueError(f"snr: expected a SnrPrior, got {type(self.snr).__name__}")
        for what, value in self.snr._asdict().items():
            positive(f"snr: {what}", value)

    def __str__(self) -> str:
        return self.name if self.snr is None else f"{self.name} with snr"

    def posteriors(self, tasks: TaskData, omega: FloatArray | None, scale: FloatArray | None) -> Posteriors:
        def of_numbers(ordinary: TaskData) -> Posteriors:
            if tasks.intercept:
                return intercepts.gaussian(ordinary, omega, scale, self.snr or conjugate.SLOPES)
            return conjugate.gaussian_posteriors(ordinary.gram, omega, scale, self.snr or conjugate.SnrPrior())

        return _in_units(tasks, of_numbers)

    def predict(
        self, tasks: TaskData, W: FloatArray, draws: Mapping[str, FloatArray], pick: NDArray[np.int64], seed: int
    ) -> Prediction:
        return _numbers(tasks, W, draws, pick, seed, normal_errors)

    def jointly(self, X: FloatArray, y: FloatArray) -> Jointly | None:
        return None if self.snr is not None else _jointly(model.joint, X, y)

    def pointwise(
        self,
        tasks: TaskData,
        own: slice,
        predictor: FloatArray,
        draws: Mapping[str, FloatArray],
        rng: np.random.Generator,
    ) -> tuple[FloatArray, FloatArray]:
        size = _error_size(tasks, own, draws)
        z = (tasks.targets[own] - predictor) / size
        density = -(z**2) / 2 - np.log(size) - np.log(2 * np.pi) / 2
        return density, predictor + size * rng.standard_normal(predictor.shape)


class StudentTErrors(Likelihood):
    """Numbers, some of which are far off: ``y = X w + sigma e``, e of Student's t with four degrees of freedom.

    Nearly normal given what every row counts: :mod:`mpmtl_prob.single_task.student`.
    """

    name = "student_t"
    exact = False
    nodes = 3  # ten to thirty times the cost of normal errors

    def posteriors(self, tasks: TaskData, omega: FloatArray | None, scale: FloatArray | None) -> Posteriors:
        return _in_units(tasks, lambda ordinary: student.student_posteriors(ordinary, omega, scale))

    def predict(
        self, tasks: TaskData, W: FloatArray, draws: Mapping[str, FloatArray], pick: NDArray[np.int64], seed: int
    ) -> Prediction:
        return _numbers(tasks, W, draws, pick, seed, _student_errors)

    def jointly(self, X: FloatArray, y: FloatArray) -> Jointly:
        return _jointly(model.joint_student_t, X, y)

    def pointwise(
        self,
        tasks: TaskData,
        own: slice,
        predictor: FloatArray,
        draws: Mapping[str, FloatArray],
        rng: np.random.Generator,
    ) -> tuple[FloatArray, FloatArray]:
        size = _error_size(tasks, own, draws)
        z = (tasks.targets[own] - predictor) / size
        density = np.log(3 / 8) - 2.5 * np.log1p(z**2 / 4) - np.log(size)  # of four degrees of freedom
        return density, predictor + size * _student_errors(rng, predictor.shape)


class BernoulliLabels(Likelihood):
    """Labels -1 and 1: ``P(y = 1) = 1 / (1 + exp(-X w))``. Nearly normal: :mod:`mpmtl_prob.single_task.laplace`."""

    name = "bernoulli"
    exact = False
    intercept = True
    families = BERNOULLI
    nodes = 3  # a binary task costs a hundred times one with a closed form

    def check(self, tasks: TaskData) -> None:
        super().check(tasks)
        if not are_labels(tasks):
            raise ValueError("tasks: expected targets -1 and 1 for likelihood='bernoulli', got others")

    def posteriors(self, tasks: TaskData, omega: FloatArray | None, scale: FloatArray | None) -> Posteriors:
        return (intercepts.bernoulli if tasks.intercept else laplace.logistic_posteriors)(tasks, omega, scale)

    def predict(
        self, tasks: TaskData, W: FloatArray, draws: Mapping[str, FloatArray], pick: NDArray[np.int64], seed: int
    ) -> Prediction:
        means = np.empty(tasks.num_rows)
        for i in range(tasks.num_tasks):
            w = draws["W"][:, :, i]
            for own in row_blocks(tasks.offsets, i, len(w)):
                means[own] = expit(w @ tasks.rows[own].T).mean(axis=0)
        drawn = _Probabilities(tasks, draws["W"], pick)
        return Prediction(
            means=means, offsets=tasks.offsets, tasks=tasks.tasks, quantity="probability", row_draws=drawn
        )

    def jointly(self, X: FloatArray, y: FloatArray) -> Jointly:
        start = {"log_snr": np.log(laplace.SNR_MEDIAN), "u": np.zeros(X.shape[1])}
        return Jointly(model.joint_bernoulli, start, ("log_snr",))

    def pointwise(
        self,
        tasks: TaskData,
        own: slice,
        predictor: FloatArray,
        draws: Mapping[str, FloatArray],
        rng: np.random.Generator,
    ) -> tuple[FloatArray, FloatArray]:
        happened, law = np.where(tasks.targets[own] > 0, 1.0, 0.0), BERNOULLI.laws[0]
        density = law.log_density(happened, predictor) * _of_rows(tasks.weights, own)
        other = 0.0 if (tasks.targets == 0).any() else -1.0  # mixed models take 0 and 1 as well
        return density, np.where(rng.random(predictor.shape) < expit(predictor), 1.0, other)


@dataclass(frozen=True, eq=False, repr=False)
class _Probabilities:
    """Draws of every row's probability, by some of the draws W (S, d, m)."""

    tasks: TaskData
    W: FloatArray
    pick: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.pick)

    def blocks(self, i: int) -> Iterator[Block]:
        w = self.W[self.pick, :, i]
        for own in row_blocks(self.tasks.offsets, i, len(w)):
            found = expit(w @ self.tasks.rows[own].T).astype(np.float32)
            yield Block(found, np.zeros(found.shape[1]), np.ones(found.shape[1]))


@dataclass(frozen=True, eq=False, repr=False)
class _InUnits:
    """Posteriors of targets whose squares are no good doubles, by those of the targets in units of their own, (m,)."""

    ordinary: Posteriors
    units: FloatArray

    @property
    def mean(self) -> FloatArray:
        with np.errstate(all="ignore"):  # a warning would tell of one task
            return self.ordinary.mean * self.units

    @property
    def log_evidence(self) -> FloatArray:
        return self.ordinary.log_evidence

    def sample(self, rng: np.random.Generator, num_samples: int) -> Draws:
        drawn = self.ordinary.sample(rng, num_samples)
        with np.errstate(all="ignore"):
            return {name: value * self.units if name in OF_TARGETS else value for name, value in drawn.items()}


#: Draws that are in the targets' units, "w" those of one task.
OF_TARGETS = ("w", "W", "sigma", "centre")


def _in_units(tasks: TaskData, given: Callable[[TaskData], Posteriors]) -> Posteriors:
    """Return posteriors of numbers of any size: where a task's targets are extreme, by those of targets that are not."""
    units = np.array([unit(tasks.rows_of(i)[1]) for i in range(tasks.num_tasks)])
    if (units == 1).all():
        return given(tasks)
    return _InUnits(given(replace(tasks, targets=tasks.targets / np.repeat(units, tasks.row_counts))), units)


def _jointly(model: Callable[..., None], X: FloatArray, y: FloatArray) -> Jointly:
    """Sample numbers of any size, scaled to about 1, as squares of others may leave single precision."""
    unit = float(power_above(np.abs(y).max()))
    sigma = np.log((y / unit).std() + 1e-3)
    start = {"log_snr": np.log(conjugate.SNR_MEDIAN), "u": np.zeros(X.shape[1]), "log_sigma": sigma}
    return Jointly(model, start, ("sigma", "log_snr"), unit)


def _numbers(
    tasks: TaskData,
    W: FloatArray,
    draws: Mapping[str, FloatArray],
    pick: NDArray[np.int64],
    seed: int,
    errors: Callable[[np.random.Generator, tuple[int, ...]], NDArray[np.floating[Any]]],
) -> Prediction:
    """X w + sigma e, with errors e of a shape. What is drawn for a task does not depend on the rows of others."""
    means = linear(W, tasks)
    drawn = DrawnNumbers(tasks, means, draws["W"], W, draws["sigma"], pick, seed, errors)
    return Prediction(means=means, offsets=tasks.offsets, tasks=tasks.tasks, row_draws=drawn)


def _error_size(tasks: TaskData, own: slice, draws: Mapping[str, FloatArray]) -> FloatArray:
    """sigma of every draw and row, (S, n): a row's error has variance sigma^2 / weight."""
    size: FloatArray = draws["sigma"][:, None] / np.sqrt(_of_rows(tasks.weights, own))
    return size


def _of_rows(given: FloatArray | None, own: slice) -> FloatArray:
    """Return an exposure or a weight for some rows, (n,), 1 where none was given."""
    return np.ones(own.stop - own.start) if given is None else given[own]


def _student_errors(rng: np.random.Generator, shape: tuple[int, ...]) -> FloatArray:
    return rng.standard_t(student.FREEDOM, shape)


class _Counts(Likelihood):
    """Counts, whose mean is the exposure times exp(X w), in mixed models."""

    exact = False

    def posteriors(self, tasks: TaskData, omega: FloatArray | None, scale: FloatArray | None) -> Posteriors:
        raise ValueError(
            f"likelihood: expected one that messages of directions know, got {self.name!r}; counts go with messages of "
            "effects, mp.Reference(..., outcome='count', baseline=rate)"
        )

    def check(self, tasks: TaskData) -> None:
        self.posteriors(tasks, None, None)

    def predict(
        self, tasks: TaskData, W: FloatArray, draws: Mapping[str, FloatArray], pick: NDArray[np.int64], seed: int
    ) -> Prediction:
        exposure = np.ones(tasks.num_rows) if tasks.exposure is None else tasks.exposure
        means = np.empty(tasks.num_rows)
        for i in range(tasks.num_tasks):
            w = draws["W"][:, :, i]
            for own in row_blocks(tasks.offsets, i, len(w)):
                means[own] = exposure[own] * np.exp(w @ tasks.rows[own].T).mean(axis=0)
        drawn = _DrawnCounts(tasks, exposure, draws["W"], draws["dispersion"], pick, seed)
        return Prediction(means=means, offsets=tasks.offsets, tasks=tasks.tasks, row_draws=drawn)

    def pointwise(
        self,
        tasks: TaskData,
        own: slice,
        predictor: FloatArray,
        draws: Mapping[str, FloatArray],
        rng: np.random.Generator,
    ) -> tuple[FloatArray, FloatArray]:
        eta, known = predictor + np.log(_of_rows(tasks.exposure, own)), np.array(DISPERSIONS)
        # those of the prior: files keep them in single precision, in which a 0 may be less
        dispersion = known[np.abs(draws["dispersion"][:, None] - known).argmin(axis=1)]
        density = np.empty_like(eta)
        for value in known:
            these = dispersion == value
            density[these] = NegativeBinomial(float(value)).log_density(tasks.targets[own], eta[these])
        return density * _of_rows(tasks.weights, own), _counts(rng, np.exp(eta), dispersion[:, None])


class NegativeBinomialCounts(_Counts):
    """Counts, whose variance is at least their mean: mean + a mean^2, a the task's own, which may be 0."""

    name = "negative_binomial"
    families = NEGATIVE_BINOMIAL


class PoissonCounts(_Counts):
    """Counts of events that have nothing to do with each other, whose variance is their mean."""

    name = "poisson"
    families = POISSON


@dataclass(frozen=True, eq=False, repr=False)
class _DrawnCounts:
    """Draws of counts, made when they are asked for. A task's own do not depend on the rows of others.

    Attributes:
        tasks: the rows.
        exposure: (N,).
        W: draws of the weights, (S, d, m), of which ``pick`` are taken.
        dispersion: draws, (S, m).
        pick: places of draws.
        seed: of the counts.
    """

    tasks: TaskData
    exposure: FloatArray
    W: FloatArray
    dispersion: FloatArray
    pick: NDArray[np.int64]
    seed: int

    def __len__(self) -> int:
        return len(self.pick)

    def blocks(self, i: int) -> Iterator[Block]:
        w, a = self.W[self.pick, :, i], np.asarray(self.dispersion[self.pick, i], dtype=np.float64)[:, None]
        rng = stream(self.seed, i)
        for own in row_blocks(self.tasks.offsets, i, len(w)):
            rate = self.exposure[own] * np.exp(w @ self.tasks.rows[own].T)
            counts = _counts(rng, rate, a).astype(np.float32)
            yield Block(counts, np.zeros(counts.shape[1]), np.ones(counts.shape[1]))


_NO_DISPERSION, _LARGEST_RATE = 1e-6, 1e15


def _counts(rng: np.random.Generator, rate: FloatArray, a: FloatArray) -> FloatArray:
    """Counts with these means (S, n) and dispersions (S, 1): Poisson's of rates that vary by Gamma's law."""
    varied = rate * np.where(a > 0, rng.gamma(1 / np.maximum(a, _NO_DISPERSION), size=rate.shape) * a, 1.0)
    return rng.poisson(np.minimum(varied, _LARGEST_RATE)).astype(np.float64)


NO_TARGETS = (
    "tasks: expected none, as posteriors of estimates know neither a link from effects to targets nor a residual variance; "
    "X @ W[:, i] is the linear predictor of task i, and to_arviz() has draws of W"
)


class OfEstimates(Likelihood):
    """Estimates with known covariances in the place of rows: N(b | beta, V), of which nothing follows about targets."""

    name = "estimate"

    def check(self, tasks: TaskData) -> None:
        raise ValueError("likelihood: expected one of rows, got 'estimate', which is that of mp.Estimates alone")

    def posteriors(self, tasks: TaskData, omega: FloatArray | None, scale: FloatArray | None) -> Posteriors:
        raise ValueError("likelihood: expected one of rows, got 'estimate', which is that of mp.Estimates alone")

    def predict(
        self, tasks: TaskData, W: FloatArray, draws: Mapping[str, FloatArray], pick: NDArray[np.int64], seed: int
    ) -> Prediction:
        raise ValueError(NO_TARGETS)


OF_ESTIMATES = OfEstimates()
GAUSSIAN = NormalErrors()
LIKELIHOODS: dict[str, Likelihood] = {
    each.name: each
    for each in (GAUSSIAN, StudentTErrors(), BernoulliLabels(), NegativeBinomialCounts(), PoissonCounts())
}


def posteriors_given(
    likelihood: Likelihood, tasks: TaskData, omega: FloatArray | None, scale: FloatArray | None
) -> Posteriors:
    """Return what a likelihood gives. Raises ValueError for a user's that gives something else than :class:`Posteriors`."""
    found = likelihood.posteriors(tasks, omega, scale)
    protocols.implements("likelihood.posteriors(...)", found, Posteriors)
    return found


def likelihood_of(likelihood: str | Likelihood | None, tasks: TaskData) -> Likelihood:
    """The likelihood that a user means. None means "gaussian", but where every target is -1 or 1 it has to be said.

    Raises:
        ValueError: an unknown name, "bernoulli" with other targets than -1 and 1, or none with these; tasks with an
            intercept that it does not know.
    """
    if likelihood is None and are_labels(tasks):
        raise ValueError(
            "likelihood: all targets are -1 or 1; give likelihood='bernoulli' if these are two labels, 'gaussian' if "
            "they are numbers (--likelihood on the command line)"
        )
    found = GAUSSIAN if likelihood is None else named(likelihood)
    found.check(tasks)
    return found


def named(likelihood: str | Likelihood) -> Likelihood:
    """The likelihood of a name, or a user's own. Raises ValueError for what is neither."""
    found: Likelihood = protocols.named("likelihood", likelihood, LIKELIHOODS, Likelihood)
    return found


def stored(name: str) -> Likelihood:
    """The likelihood that a file names, also of estimates, which nobody can ask for. Raises ValueError for no name."""
    return OF_ESTIMATES if name == OF_ESTIMATES.name else named(name)


def are_labels(tasks: TaskData) -> bool:
    y = tasks.targets
    return bool(np.all((y == 1) | (y == -1)))


__getattr__ = former_names(__name__, {"HeavyTails": "StudentTErrors", "TwoLabels": "BernoulliLabels"})
