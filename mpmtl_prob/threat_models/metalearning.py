"""Metalearning from a billboard: newcomers use the published result of t people, with a bound on their error.

A billboard algorithm learns h from everybody's data, and everybody personalises h with their own data. Newcomers can do the
second step too. If h is (eps, delta)-private per person, losses lie in [0, 1] and people are exchangeable, then

    error of newcomers <= e^eps error of those who took part + delta.

Source: Aliakbarpour et al. (2024), Theorem 3.2: h would be nearly the same with a new person in the place of a participant.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import fraction, in_range, normalise_fields, one_of, positive, whole
from mpmtl_prob._util.protocols import implements
from mpmtl_prob.data.prediction import Prediction
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.inference import OwnerPosteriors, SharedPosterior, shared_covariance, task_posteriors
from mpmtl_prob.privacy.audit import views
from mpmtl_prob.privacy.audit.found import Interval
from mpmtl_prob.releases import release
from mpmtl_prob.theory.people import LOSSES, upper_bound
from mpmtl_prob.threat_models.calibration import rho_within
from mpmtl_prob.threat_models.means import NoisyMeans
from mpmtl_prob.threat_models.problems import People, questions
from mpmtl_prob.threat_models.signs import sign_error


class Billboard(Protocol):
    """Protocol of an algorithm with one public result."""

    def learn(self, data: Any, seed: int) -> Any:
        """Compute the public result h from everybody's data."""
        ...

    def personalise(self, h: Any, own: Any) -> Any:
        """Combine h with a person's own data, which nobody else sees."""
        ...


@dataclass(frozen=True)
class Metalearner:
    """Metalearner: a billboard algorithm that newcomers can use, from :func:`to_metalearner`."""

    algorithm: Billboard

    def learn(self, data: Any, seed: int = 0) -> Any:
        """Compute h from the participants' data, with the algorithm's own privacy guarantee for them."""
        return self.algorithm.learn(data, seed)

    def adapt(self, h: Any, newcomer: Any) -> Any:
        """Combine h with a newcomer's own data. The newcomer publishes nothing, so no guarantee is needed."""
        return self.algorithm.personalise(h, newcomer)


def to_metalearner(algorithm: Billboard) -> Metalearner:
    """Return a metalearner for a billboard algorithm (Theorem 3.2).

    Raises ValueError for an object without ``learn`` and ``personalise``.
    """
    implements("algorithm", algorithm, Billboard)
    return Metalearner(algorithm)


@dataclass(frozen=True)
class BillboardMeans:
    """Billboard algorithm of noisy means, in doubles, for simulations. A person's own data is one or several questions.

    Attributes:
        mechanism: one for the billboard's view, or without noise.

    Raises:
        ValueError: a mechanism that sends numbers to people one by one.
    """

    mechanism: NoisyMeans

    def __post_init__(self) -> None:
        if not self.mechanism.on_billboard:
            raise ValueError("mechanism: expected one for a billboard, got one that sends numbers one by one")

    def learn(self, data: People, seed: int) -> FloatArray:
        """Compute the noisy mean of every feature, (d,). Raises ValueError for people who do not fit the mechanism."""
        self.mechanism.check(data)
        return self.mechanism.board(np.random.default_rng(seed), data.totals)

    def personalise(self, h: FloatArray, own: ArrayLike) -> FloatArray:
        """Return the estimates for the questions in ``own``. Raises ValueError for unknown questions."""
        j = questions(own, np.size(own), self.mechanism.num_features)
        return self.mechanism.estimate(h[..., j.reshape(np.shape(own))])


@dataclass(frozen=True)
class BillboardRelease:
    """Billboard algorithm of model-protected multi-task learning: one release, its public posterior, and owners' posteriors.

    Attributes:
        epsilon: of the release, per task.
        delta: of the release; default that of :func:`mpmtl_prob.release`.
        chains: of the public posterior.
        warmup: iterations of adaptation per chain.
        draws: number of draws per chain.

    Raises:
        ValueError: an argument outside its range. It is checked here, before a release is paid for.
    """

    epsilon: float
    delta: float | None = None
    chains: int = 4
    warmup: int = 300
    draws: int = 300

    def __post_init__(self) -> None:
        normalise_fields(self, positive, "epsilon")
        if self.delta is not None:
            normalise_fields(self, fraction, "delta")
        normalise_fields(self, whole, "chains", "warmup", "draws")

    def learn(self, data: TaskData, seed: int) -> SharedPosterior:
        """Compute the public posterior. The release's noise comes from the operating system; the seed is for the chains."""
        published = release(data, self.epsilon, self.delta)
        shared = shared_covariance(
            published, chains=self.chains, warmup=self.warmup, draws=self.draws, seed=seed, progress_bar=False
        )
        assert isinstance(shared, SharedPosterior)  # of directions
        return shared

    def personalise(self, h: SharedPosterior, own: TaskData) -> OwnerPosteriors:
        """Return the posteriors of tasks, new ones or participants; a participant's own message stays in the release."""
        return task_posteriors(own, h, leave_one_out="not_in_release")


def newcomers_error(participants_error: float, epsilon: float, delta: float) -> float:
    """Return the bound e^eps alpha + delta on newcomers' expected loss, by Theorem 3.2.

    Args:
        participants_error: alpha, the expected loss of participants, in [0, 1].
        epsilon: of the billboard, per person.
        delta: of the billboard, per person.
    """
    alpha = in_range("participants_error", participants_error, 0, 1 + 1e-12, left_closed=True)
    delta = in_range("delta", delta, 0, 1, left_closed=True)
    return float(
        min(np.exp(min(in_range("epsilon", epsilon, 0, np.inf, left_closed=True), 700.0)) * alpha + delta, 1.0)
    )


class MetalearningError(NamedTuple):
    """Errors of a billboard of noisy means or signs, before participants and newcomers.

    Attributes:
        mechanism: the billboard's Gaussian mechanism.
        participants: alpha, the largest expected loss of a participant over all means.
        newcomers: e^eps alpha + delta, the bound on newcomers' expected loss (Corollaries 4.5 and 5.7).
        printed: the same from the paper's upper bound in the place of alpha (Theorems 4.4 and 5.6), with its rho.
    """

    mechanism: NoisyMeans
    participants: float
    newcomers: float
    printed: float


def metalearning_error(
    loss: str, num_people: int, num_features: int, epsilon: float, delta: float
) -> MetalearningError:
    """Compute the error of metalearning from an (eps, delta)-private billboard: Corollaries 4.5 (means) and 5.7 (signs).

    The mechanism is the billboard with the least Gaussian noise for (eps, delta). Its newcomers do as well as its
    participants, as all read the same board; the corollaries' bound holds for any personalisation. The largest error over
    means is taken from a fine grid of them.

    Args:
        loss: "mean" for (p^ - p)^2 / 4, "sign" for signs and classifiers.
        num_people: t, who take part with one sample each.
        num_features: d.
        epsilon: > 0.
        delta: in (0, 1).

    Raises:
        ValueError: an argument outside its range.

    Source: Aliakbarpour et al. (2024), Corollaries 4.5 and 5.7, by Theorem 3.2.
    """
    one_of("loss", loss, LOSSES)
    mechanism = NoisyMeans.within(epsilon, delta, num_people, num_features, view=views.billboard())
    error = mechanism.error if loss == "mean" else partial(sign_error, mechanism)
    near = np.sqrt(mechanism.sd**2 + 1 / num_people) * np.linspace(0.0, 4.0, 41)  # where signs are in doubt
    worst = [float(error(np.array([p]))[0]) for p in (*np.linspace(0.0, 1.0, 51), *near[near <= 1])]  # the same at -p
    participants = min(max(worst), 1.0)
    printed = min(upper_bound(loss, num_features, num_people, rho_within(epsilon, delta)), 1.0)
    return MetalearningError(
        mechanism,
        participants,
        newcomers_error(participants, epsilon, delta),
        newcomers_error(printed, epsilon, delta),
    )


def generalisation_gap(
    newcomers: ArrayLike, participants: ArrayLike, delta: float, confidence: float = 0.99
) -> Interval:
    """Estimate the least eps that Theorem 3.2 allows for measured losses: log((alpha_new - delta) / alpha).

    Args:
        newcomers: losses in [0, 1] of people who did not take part, one from each independent run, (n,).
        participants: losses of people who did, one from each run, (m,).
        delta: of the claim.
        confidence: of both limits together (Hoeffding's, which hold for any n).

    Returns:
        The estimate with its limits, each at least 0. A lower limit above the claimed eps refutes the claim.
    """
    delta, confidence = in_range("delta", delta, 0, 1, left_closed=True), fraction("confidence", confidence)
    new, old = _loss("newcomers", newcomers), _loss("participants", participants)
    width = lambda losses: np.sqrt(np.log(4 / (1 - confidence)) / (2 * len(losses)))

    def eps(above: float, below: float) -> float:
        if above <= delta:
            return 0.0
        return float(max(np.log(above - delta) - np.log(below), 0.0)) if below > 0 else np.inf

    a, b, wa, wb = new.mean(), old.mean(), width(new), width(old)
    return Interval(eps(a, b), eps(a - wa, min(b + wb, 1.0)), eps(min(a + wa, 1.0), max(b - wb, 0.0)))


@dataclass(frozen=True)
class LeftOut:
    """Losses of tasks that took part and of tasks that did not, from independent runs.

    Attributes:
        participants: mean loss of the tasks that took part, in each run, (runs,).
        newcomers: mean loss of those that did not, (runs,).
    """

    participants: FloatArray
    newcomers: FloatArray

    def allowed(self, epsilon: float, delta: float) -> float:
        """Return the bound of Theorem 3.2 on newcomers' loss, from the participants' mean loss."""
        return newcomers_error(float(self.participants.mean()), epsilon, delta)

    def gap(self, delta: float, confidence: float = 0.99) -> Interval:
        """Estimate the least eps that these losses allow, by :func:`generalisation_gap`."""
        return generalisation_gap(self.newcomers, self.participants, delta, confidence)


def leave_out(
    learner: Metalearner,
    train: TaskData,
    test: TaskData,
    loss: Callable[[Any, TaskData], ArrayLike],
    *,
    share: float = 0.2,
    runs: int = 20,
    seed: int = 0,
) -> LeftOut:
    """Measure losses of participants and newcomers: leave tasks out at random, learn from the others, and adapt to both.

    The tasks that are left out are drawn anew in every run. This makes participants and newcomers exchangeable.

    Args:
        learner: the metalearner.
        train: rows of all tasks.
        test: unseen rows of the same tasks.
        loss: function of an adapted result and unseen rows that returns losses in [0, 1], (tasks,).
        share: of the tasks that are left out, in (0, 1); at least one task is left out, and at least one is not.
        runs: number of runs.
        seed: of the choice of tasks, and of the learner.

    Raises:
        ValueError: an argument outside its range, different tasks, or losses outside [0, 1].
    """
    m = train.num_tasks
    if train.tasks != test.tasks or m < 2:
        raise ValueError(
            f"test: expected the {m} tasks of train, at least two, got {test.num_tasks}, or in another order"
        )
    out = int(np.clip(round(in_range("share", share, 0, 1) * m), 1, m - 1))
    rng = np.random.default_rng(whole("seed", seed, 0))
    mean_losses = np.empty((2, whole("runs", runs)))
    for run in range(runs):
        order = rng.permutation(m)
        h = learner.learn(_some(train, order[out:]), seed + run)
        for kind, chosen in enumerate((order[out:], order[:out])):
            losses = _loss("loss", loss(learner.adapt(h, _some(train, chosen)), _some(test, chosen)))
            if len(losses) != len(chosen):
                raise ValueError(f"loss: expected one for each of {len(chosen)} tasks, got {len(losses)}")
            mean_losses[kind, run] = losses.mean()
    return LeftOut(*mean_losses)


def clipped_loss(prediction: Prediction, test: TaskData, unit: float) -> FloatArray:
    """Compute every task's mean of ((y - prediction) / unit)^2 over its rows, with at most 1 per row, (tasks,).

    Args:
        prediction: of the rows.
        test: the rows.
        unit: the error whose loss is 1, as is that of any larger error; chosen without looking at the data.
    """
    square = np.minimum(((test.targets - prediction.means) / positive("unit", unit)) ** 2, 1.0)
    return np.add.reduceat(square, test.offsets[:-1]) / test.row_counts


def _some(tasks: TaskData, chosen: ArrayLike) -> TaskData:
    return tasks.take(np.sort(np.asarray(chosen)))


def _loss(name: str, values: ArrayLike) -> FloatArray:
    """Return losses as an array. Raises ValueError for none, for several dimensions, and for losses outside [0, 1]."""
    losses = np.atleast_1d(np.asarray(values, dtype=np.float64))
    if losses.ndim != 1 or not len(losses) or not ((losses >= 0) & (losses <= 1)).all():
        raise ValueError(f"{name}: expected losses in [0, 1], at least one, got shape {losses.shape}")
    return losses
