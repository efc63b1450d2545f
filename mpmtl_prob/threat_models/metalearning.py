"""Newcomers: what t people put on a billboard serves somebody who was not there, and how much worse is known.

A billboard algorithm learns h from everybody and lets everybody personalise it with its own data. The same two steps serve a
newcomer. If the h of t people is (eps, delta)-private per person, losses lie in [0, 1] and people are exchangeable, then

    error of newcomers <= e^eps error of those who took part + delta.

Source: Aliakbarpour et al. (2024), Theorem 3.2: with a fresh person in i's place h would have been nearly the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import fraction, in_range, normalise_fields, positive, whole
from mpmtl_prob._util.protocols import implements
from mpmtl_prob.data.prediction import Prediction
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.inference import OwnerPosteriors, SharedPosterior, shared_covariance, task_posteriors
from mpmtl_prob.privacy.audit.found import Interval
from mpmtl_prob.releases import release
from mpmtl_prob.threat_models.means import NoisyMeans
from mpmtl_prob.threat_models.problems import People, questions


class Billboard(Protocol):
    """An algorithm with one public result: anything with these two methods."""

    def learn(self, data: Any, seed: int) -> Any:
        """h, from everybody's data."""
        ...

    def personalise(self, h: Any, own: Any) -> Any:
        """What somebody makes of h and of data of its own, which nobody else sees."""
        ...


@dataclass(frozen=True)
class Metalearner:
    """A billboard algorithm for newcomers: :func:`to_metalearner`."""

    algorithm: Billboard

    def learn(self, data: Any, seed: int = 0) -> Any:
        """h, from the data of those who take part. What is promised to them is the algorithm's own promise."""
        return self.algorithm.learn(data, seed)

    def adapt(self, h: Any, newcomer: Any) -> Any:
        """What a newcomer makes of h. It shows nobody anything, and nothing is promised or needed."""
        return self.algorithm.personalise(h, newcomer)


def to_metalearner(algorithm: Billboard) -> Metalearner:
    """Let newcomers read a billboard (Theorem 3.2). Raises ValueError for what has no ``learn`` and ``personalise``."""
    implements("algorithm", algorithm, Billboard)
    return Metalearner(algorithm)


@dataclass(frozen=True)
class BillboardMeans:
    """Noisy means on a billboard, as an algorithm; in doubles, for simulations. Own data is a question, or several.

    Attributes:
        mechanism: for the billboard's view, or without noise.

    Raises:
        ValueError: a mechanism that sends numbers to people one by one.
    """

    mechanism: NoisyMeans

    def __post_init__(self) -> None:
        if not self.mechanism.on_billboard:
            raise ValueError("mechanism: expected one for a billboard, got one that sends numbers one by one")

    def learn(self, data: People, seed: int) -> FloatArray:
        """The noisy mean of every feature, (d,). Raises ValueError for other people than the mechanism is for."""
        self.mechanism.check(data)
        return self.mechanism.board(np.random.default_rng(seed), data.totals)

    def personalise(self, h: FloatArray, own: ArrayLike) -> FloatArray:
        """The estimates of the questions in ``own``. Raises ValueError for questions that were not asked."""
        j = questions(own, np.size(own), self.mechanism.num_features)
        return self.mechanism.estimate(h[..., j.reshape(np.shape(own))])


@dataclass(frozen=True)
class BillboardRelease:
    """Model-protected multi-task learning as a billboard: one release, its public posterior, and what owners make of it.

    Attributes:
        epsilon: of the release, per task.
        delta: beside it; default the release's.
        chains: of the public posterior.
        warmup: iterations of adaptation per chain.
        draws: kept per chain.

    Raises:
        ValueError: an argument outside its range; before there is a release that it could be too late for.
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
        """What everybody may read. The release's noise is the operating system's; the seed is of the chains."""
        published = release(data, self.epsilon, self.delta)
        shared = shared_covariance(
            published, chains=self.chains, warmup=self.warmup, draws=self.draws, seed=seed, progress_bar=False
        )
        assert isinstance(shared, SharedPosterior)  # of directions
        return shared

    def personalise(self, h: SharedPosterior, own: TaskData) -> OwnerPosteriors:
        """Weights and predictions of tasks, new or in the release: a message of their own that is in it stays in it."""
        return task_posteriors(own, h, leave_one_out="not_in_release")


def newcomers_error(participants_error: float, epsilon: float, delta: float) -> float:
    """At most e^eps alpha + delta, by Theorem 3.2.

    Args:
        participants_error: alpha, expected loss of those who took part, in [0, 1].
        epsilon: of the billboard, per person.
        delta: beside it.
    """
    alpha = in_range("participants_error", participants_error, 0, 1 + 1e-12, left_closed=True)
    delta = in_range("delta", delta, 0, 1, left_closed=True)
    return float(
        min(np.exp(min(in_range("epsilon", epsilon, 0, np.inf, left_closed=True), 700.0)) * alpha + delta, 1.0)
    )


def generalisation_gap(
    newcomers: ArrayLike, participants: ArrayLike, delta: float, confidence: float = 0.99
) -> Interval:
    """What eps Theorem 3.2 says there must be: log((alpha_new - delta) / alpha), from losses that were measured.

    Args:
        newcomers: losses in [0, 1] of people who did not take part, one from each independent run, (n,).
        participants: of people who did, one from each run, (m,).
        delta: of the claim.
        confidence: of the limits (Hoeffding's, which hold for any n), both sides together.

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
        participants: the mean over those who took part, in each run, (runs,).
        newcomers: over those who did not, (runs,).
    """

    participants: FloatArray
    newcomers: FloatArray

    def allowed(self, epsilon: float, delta: float) -> float:
        """What Theorem 3.2 makes of the participants' mean loss."""
        return newcomers_error(float(self.participants.mean()), epsilon, delta)

    def gap(self, delta: float, confidence: float = 0.99) -> Interval:
        """What eps there must be: :func:`generalisation_gap`."""
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
    """Leave tasks out at random, learn from the others, and let both read what was learnt.

    Which tasks take part is drawn anew in every run, so that they are exchangeable, whatever they are.

    Args:
        learner: what is learnt and read.
        train: rows of all tasks.
        test: rows of the same tasks, unseen.
        loss: of what the reader made of it on unseen rows of its tasks, in [0, 1], (tasks,).
        share: of the tasks that are left out, in (0, 1); at least one is, and one is not.
        runs: so many times.
        seed: of who is left out, and of what the learner seeds.

    Raises:
        ValueError: an argument outside its range, different tasks, or losses outside [0, 1].
    """
    m = train.num_tasks
    if train.tasks != test.tasks or m < 2:
        raise ValueError(
            f"test: expected the {m} tasks of train, at least two, got {test.num_tasks}, or in another order"
        )
    out = int(np.clip(round(in_range("share", share, 0, 1) * m), 1, m - 1))
    rng, found = np.random.default_rng(whole("seed", seed, 0)), np.empty((2, whole("runs", runs)))
    for run in range(runs):
        order = rng.permutation(m)
        h = learner.learn(_some(train, order[out:]), seed + run)
        for kind, chosen in enumerate((order[out:], order[:out])):
            losses = _loss("loss", loss(learner.adapt(h, _some(train, chosen)), _some(test, chosen)))
            if len(losses) != len(chosen):
                raise ValueError(f"loss: expected one for each of {len(chosen)} tasks, got {len(losses)}")
            found[kind, run] = losses.mean()
    return LeftOut(*found)


def clipped_loss(prediction: Prediction, test: TaskData, unit: float) -> FloatArray:
    """The mean over a task's rows of ((y - mean) / unit)^2, at most 1 each, (tasks,).

    Args:
        prediction: of the rows.
        test: the rows.
        unit: an error so large, or larger, is a loss of 1; chosen without looking at the data.
    """
    square = np.minimum(((test.targets - prediction.means) / positive("unit", unit)) ** 2, 1.0)
    return np.add.reduceat(square, test.offsets[:-1]) / test.row_counts


def _some(tasks: TaskData, chosen: ArrayLike) -> TaskData:
    return tasks.take(np.sort(np.asarray(chosen)))


def _loss(name: str, values: ArrayLike) -> FloatArray:
    found = np.atleast_1d(np.asarray(values, dtype=np.float64))
    if found.ndim != 1 or not len(found) or not ((found >= 0) & (found <= 1)).all():
        raise ValueError(f"{name}: expected losses in [0, 1], at least one, got shape {found.shape}")
    return found
