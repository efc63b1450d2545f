"""Likelihoods of owners' targets: numbers, labels, counts, or a user's own :class:`Likelihood`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from mpmtl_prob._util import protocols
from mpmtl_prob._util.arrays import Draws, FloatArray
from mpmtl_prob._util.checks import positive
from mpmtl_prob._util.former import FormerName, accept_former_methods, former_names
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
    """Posteriors of all tasks given one Omega: exact, or approximate with density ratios that correct them."""

    @property
    def mean(self) -> FloatArray:
        """Mean of W, (d, m)."""
        ...

    @property
    def log_evidence(self) -> FloatArray:
        """log p(y_i | Omega) up to a constant of the task, (m,)."""
        ...

    def sample(self, rng: np.random.Generator, num_samples: int) -> Draws:
        """Return independent draws by name, (S, ..., m), among them ``W`` (S, d, m), and ``log_ratio`` if approximate.

        ``log_ratio`` and ``centre`` are defined in :func:`mpmtl_prob.sampling.importance.resampled`. With many tasks, a few
        of them are sampled at a time. Streams that are spawned from ``rng``, one for every task, are then the same as if all
        tasks were sampled at once.
        """
        ...


class Jointly(NamedTuple):
    """Model of one owner and the release together, for method "joint".

    Attributes:
        model: a NumPyro model of an Observed release, X (n, d), y (n,), mask (n,) and scale (d,), with the sites of
            :func:`mpmtl_prob.models.shared_covariance.full` and the deterministic ``w`` (d,).
        start: unconstrained values of its other sites.
        kept: names of the sites that are stored in addition to ``w``.
        unit: unit of targets that are numbers: the model gets targets in it, and its w and sigma are multiplied by it.
    """

    model: Callable[..., None]
    start: Mapping[str, Any]
    kept: tuple[str, ...]
    unit: float = 1.0


class Likelihood(ABC):
    """Distribution of a task's targets given its weights, with priors of its scales.

    A subclass needs ``name``, :meth:`posteriors` and :meth:`predict`.

    Attributes:
        name: its name in tables and files.
        exact: whether :meth:`posteriors` draws from the exact posterior. Otherwise draws are corrected by ``log_ratio``.
        intercept: whether tasks may have an intercept; omega and scale are then of the other features.
        nodes: number of nodes of the grid over the power of Omega, for each of which :meth:`posteriors` is called.
        families: distributions of targets given their linear predictors, for labels and counts in a mixed model.
    """

    name: ClassVar[str]
    exact: ClassVar[bool] = True
    intercept: ClassVar[bool] = False
    nodes: ClassVar[int] = 7
    families: ClassVar[Families | None] = None

    given = FormerName("posteriors")

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        accept_former_methods(cls, given="posteriors")

    def check(self, tasks: TaskData) -> None:
        """Check that the likelihood suits the targets, and an intercept if there is one.

        Raises:
            ValueError: it does not.
        """
        if tasks.intercept and not self.intercept:
            raise ValueError(f"likelihood: {self.name!r} knows no intercept; take tasks without")

    @abstractmethod
    def posteriors(self, tasks: TaskData, omega: FloatArray | None, scale: FloatArray | None) -> Posteriors:
        """Return all tasks' posteriors given the shape of the shared covariance.

        A task's posterior must depend on its own rows alone, in every bit.

        Args:
            tasks: the rows.
            omega: covariance of ``v = w / scale``, up to a factor, (d, d); default: the identity.
            scale: by task, (m, d); default: 1.
        """

    @abstractmethod
    def predict(
        self, tasks: TaskData, W: FloatArray, draws: Mapping[str, FloatArray], pick: NDArray[np.int64], seed: int
    ) -> Prediction:
        """Return the posterior predictive distribution of rows.

        Args:
            tasks: the rows.
            W: posterior mean of the weights, (d, m).
            draws: all draws by name, (S, ..., m).
            pick: indices of the draws from which intervals are computed.
            seed: seed of the targets' random errors.
        """

    def jointly(self, X: FloatArray, y: FloatArray) -> Jointly | None:
        """Return the model of method "joint" for an owner with rows (n, d) and targets (n,); None where there is none."""
        return None

    def pointwise(
        self,
        tasks: TaskData,
        own: slice,
        predictor: FloatArray,
        draws: Mapping[str, FloatArray],
        rng: np.random.Generator,
    ) -> tuple[FloatArray, FloatArray] | None:
        """Return log densities of one task's targets under every draw, and new targets, (S, n) each; None if unknown.

        ArviZ compares models by the densities, and checks them by the new targets.

        Args:
            tasks: the rows.
            own: places of some of the task's rows, n.
            predictor: x'w of every draw and row, (S, n).
            draws: draws of the task's other quantities by name, such as ``sigma``, (S,).
            rng: generator of the new targets.
        """
        return None

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class NormalErrors(Likelihood):
    """Normal errors: ``y ~ N(X w, sigma^2)`` with an unknown sigma, in closed form (:mod:`mpmtl_prob.single_task.conjugate`).

    Attributes:
        snr: public prior of a task's signal-to-noise ratio, the variance of X w over sigma^2 (with an intercept, that of its
            slopes' part). If features explain a share R^2 of the variance, it is R^2 / (1 - R^2). Default: a very wide prior.
            A prior that is estimated from the rows of all tasks would reveal something about them to every owner.

    Raises:
        ValueError: an argument that is not a :class:`SnrPrior`, or one with a median or sd that is not positive.
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
        if self.snr is not None:
            return None
        from mpmtl_prob.models import task as model  # imported here, as no other way of an owner needs NumPyro

        return _jointly(model.joint, X, y)

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
    """Student's t errors, for outliers: ``y = X w + sigma e``, e of Student's t with four degrees of freedom.

    The posterior is nearly normal given weights of the rows (:mod:`mpmtl_prob.single_task.student`).
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
        from mpmtl_prob.models import task as model

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
        density = np.log(3 / 8) - 2.5 * np.log1p(z**2 / 4) - np.log(size)  # Student's t with four degrees of freedom
        return density, predictor + size * _student_errors(rng, predictor.shape)


class BernoulliLabels(Likelihood):
    """Labels -1 and 1: ``P(y = 1) = 1 / (1 + exp(-X w))``.

    The posterior is approximated by a normal one (:mod:`mpmtl_prob.single_task.laplace`).
    """

    name = "bernoulli"
    exact = False
    intercept = True
    families = BERNOULLI
    nodes = 3  # a hundred times the cost of normal errors

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
            for rows in row_blocks(tasks.offsets, i, len(w)):
                means[rows] = expit(w @ tasks.rows[rows].T).mean(axis=0)
        drawn = _Probabilities(tasks, draws["W"], pick)
        return Prediction(
            means=means, offsets=tasks.offsets, tasks=tasks.tasks, quantity="probability", row_draws=drawn
        )

    def jointly(self, X: FloatArray, y: FloatArray) -> Jointly:
        from mpmtl_prob.models import task as model

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
        events = np.where(tasks.targets[own] > 0, 1.0, 0.0)
        density = BERNOULLI.laws[0].log_density(events, predictor) * _of_rows(tasks.weights, own)
        no_event = 0.0 if (tasks.targets == 0).any() else -1.0  # labels of mixed models may be 0 and 1 too
        return density, np.where(rng.random(predictor.shape) < expit(predictor), 1.0, no_event)


@dataclass(frozen=True, eq=False, repr=False)
class _Probabilities:
    """Draws of every row's probability, from some of the draws W (S, d, m)."""

    tasks: TaskData
    W: FloatArray
    pick: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.pick)

    def blocks(self, i: int) -> Iterator[Block]:
        w = self.W[self.pick, :, i]
        for rows in row_blocks(self.tasks.offsets, i, len(w)):
            probabilities = expit(w @ self.tasks.rows[rows].T).astype(np.float32)
            n = probabilities.shape[1]
            yield Block(probabilities, np.zeros(n), np.ones(n))


@dataclass(frozen=True, eq=False, repr=False)
class _InUnits:
    """Posteriors of targets whose squares exceed double precision, from posteriors of targets in other units, (m,)."""

    ordinary: Posteriors
    units: FloatArray

    @property
    def mean(self) -> FloatArray:
        with np.errstate(all="ignore"):  # a warning would tell about one task
            return self.ordinary.mean * self.units

    @property
    def log_evidence(self) -> FloatArray:
        return self.ordinary.log_evidence

    def sample(self, rng: np.random.Generator, num_samples: int) -> Draws:
        drawn = self.ordinary.sample(rng, num_samples)
        with np.errstate(all="ignore"):
            return {name: value * self.units if name in OF_TARGETS else value for name, value in drawn.items()}


#: Names of draws in the targets' units; "w" are the weights of one task.
OF_TARGETS = ("w", "W", "sigma", "centre")


def _in_units(tasks: TaskData, posteriors: Callable[[TaskData], Posteriors]) -> Posteriors:
    """Return posteriors of numbers of any size, in other units where a task's targets are extreme."""
    units = np.array([unit(tasks.rows_of(i)[1]) for i in range(tasks.num_tasks)])
    if (units == 1).all():
        return posteriors(tasks)
    return _InUnits(posteriors(replace(tasks, targets=tasks.targets / np.repeat(units, tasks.row_counts))), units)


def _jointly(model: Callable[..., None], X: FloatArray, y: FloatArray) -> Jointly:
    """Return the joint model of numbers, in a unit in which they are about 1 and squares do not exceed single precision."""
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
    """Predict X w + sigma e, with errors e of a shape. Draws for a task do not depend on the rows of others."""
    means = linear(W, tasks)
    drawn = DrawnNumbers(tasks, means, draws["W"], W, draws["sigma"], pick, seed, errors)
    return Prediction(means=means, offsets=tasks.offsets, tasks=tasks.tasks, row_draws=drawn)


def _error_size(tasks: TaskData, own: slice, draws: Mapping[str, FloatArray]) -> FloatArray:
    """Return the sd of every row's error under every draw, (S, n), whose square is sigma^2 / weight."""
    size: FloatArray = draws["sigma"][:, None] / np.sqrt(_of_rows(tasks.weights, own))
    return size


def _of_rows(values: FloatArray | None, own: slice) -> FloatArray:
    """Return exposures or weights of some rows, (n,), which are 1 by default."""
    return np.ones(own.stop - own.start) if values is None else values[own]


def _student_errors(rng: np.random.Generator, shape: tuple[int, ...]) -> FloatArray:
    return rng.standard_t(student.FREEDOM, shape)


class _Counts(Likelihood):
    """Counts whose mean is the exposure times exp(X w), in mixed models."""

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
            for rows in row_blocks(tasks.offsets, i, len(w)):
                means[rows] = exposure[rows] * np.exp(w @ tasks.rows[rows].T).mean(axis=0)
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
        eta = predictor + np.log(_of_rows(tasks.exposure, own))
        possible = np.array(DISPERSIONS)
        # draws from files are in single precision, so that they are replaced by the nearest value of the prior
        dispersion = possible[np.abs(draws["dispersion"][:, None] - possible).argmin(axis=1)]
        density = np.empty_like(eta)
        for value in possible:
            of_value = dispersion == value
            density[of_value] = NegativeBinomial(float(value)).log_density(tasks.targets[own], eta[of_value])
        return density * _of_rows(tasks.weights, own), _counts(rng, np.exp(eta), dispersion[:, None])


class NegativeBinomialCounts(_Counts):
    """Overdispersed counts with variance mean + a mean^2; a, which may be 0, is the task's own."""

    name = "negative_binomial"
    families = NEGATIVE_BINOMIAL


class PoissonCounts(_Counts):
    """Counts of independent events, whose variance is their mean."""

    name = "poisson"
    families = POISSON


@dataclass(frozen=True, eq=False, repr=False)
class _DrawnCounts:
    """Draws of counts, which are made when they are used. Draws for a task do not depend on the rows of others.

    Attributes:
        tasks: the rows.
        exposure: (N,).
        W: draws of the weights, (S, d, m), of which ``pick`` are taken.
        dispersion: draws, (S, m).
        pick: indices of draws.
        seed: seed of the counts.
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
        w = self.W[self.pick, :, i]
        a = np.asarray(self.dispersion[self.pick, i], dtype=np.float64)[:, None]
        rng = stream(self.seed, i)
        for rows in row_blocks(self.tasks.offsets, i, len(w)):
            rate = self.exposure[rows] * np.exp(w @ self.tasks.rows[rows].T)
            counts = _counts(rng, rate, a).astype(np.float32)
            yield Block(counts, np.zeros(counts.shape[1]), np.ones(counts.shape[1]))


#: Avoids a division by a dispersion of zero, whose counts do not use the result.
_NO_DISPERSION = 1e-6
#: Largest rate that NumPy's Poisson generator gets.
_LARGEST_RATE = 1e15


def _counts(rng: np.random.Generator, rate: FloatArray, a: FloatArray) -> FloatArray:
    """Draw counts with means (S, n) and dispersions (S, 1): Poisson counts of rates that vary by a Gamma distribution."""
    varied = rate * np.where(a > 0, rng.gamma(1 / np.maximum(a, _NO_DISPERSION), size=rate.shape) * a, 1.0)
    return rng.poisson(np.minimum(varied, _LARGEST_RATE)).astype(np.float64)


NO_TARGETS = (
    "tasks: expected none, as posteriors of estimates know neither a link from effects to targets nor a residual variance; "
    "X @ W[:, i] is the linear predictor of task i, and to_arviz() has draws of W"
)


class OfEstimates(Likelihood):
    """Estimates b with known covariances instead of rows: N(b | beta, V), from which targets cannot be predicted."""

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
    likelihood.name: likelihood
    for likelihood in (GAUSSIAN, StudentTErrors(), BernoulliLabels(), NegativeBinomialCounts(), PoissonCounts())
}


def posteriors_given(
    likelihood: Likelihood, tasks: TaskData, omega: FloatArray | None, scale: FloatArray | None
) -> Posteriors:
    """Return a likelihood's posteriors. Raises ValueError unless a user's likelihood returns :class:`Posteriors`."""
    posteriors = likelihood.posteriors(tasks, omega, scale)
    protocols.implements("likelihood.posteriors(...)", posteriors, Posteriors)
    return posteriors


def likelihood_of(likelihood: str | Likelihood | None, tasks: TaskData) -> Likelihood:
    """Return the likelihood of tasks' targets; None is "gaussian", unless every target is -1 or 1.

    Raises:
        ValueError: an unknown name, "bernoulli" with other targets than -1 and 1, None with these; tasks with an intercept
            for a likelihood without.
    """
    if likelihood is None and are_labels(tasks):
        raise ValueError(
            "likelihood: all targets are -1 or 1; give likelihood='bernoulli' if these are two labels, 'gaussian' if "
            "they are numbers (--likelihood on the command line)"
        )
    chosen = GAUSSIAN if likelihood is None else named(likelihood)
    chosen.check(tasks)
    return chosen


def named(likelihood: str | Likelihood) -> Likelihood:
    """Return the likelihood with a name, or a user's own. Raises ValueError for neither."""
    chosen: Likelihood = protocols.named("likelihood", likelihood, LIKELIHOODS, Likelihood)
    return chosen


def stored(name: str) -> Likelihood:
    """Return the likelihood with a name from a file, which may be that of estimates. Raises ValueError for another name."""
    return OF_ESTIMATES if name == OF_ESTIMATES.name else named(name)


def are_labels(tasks: TaskData) -> bool:
    """Return whether all targets are -1 or 1."""
    y = tasks.targets
    return bool(np.all((y == 1) | (y == -1)))


__getattr__ = former_names(__name__, {"HeavyTails": "StudentTErrors", "TwoLabels": "BernoulliLabels"})
