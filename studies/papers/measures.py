"""Measures of one unit of an experiment: plain numbers, and lists of numbers for the figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob.data.prediction import linear_prediction
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.estimators import DPMTRL, MPMTL, LeastSquares, LowRank, Noise
from mpmtl_prob.evaluation import cross_validate, grids, nmse
from mpmtl_prob.privacy import Bound
from mpmtl_prob.privacy.guarantee import of_release
from mpmtl_prob.releases import default_delta
from studies.papers import arms
from studies.papers.settings import ALLOCATIONS, Study, Unit, groups

#: dims of results that are arrays
DIMS = {
    "W": ("feature", "task"),
    "W0": ("feature", "task"),
    "ratio": ("iteration",),
    "moved": ("iteration",),
}

Measure = Callable[[Study, Unit, arms.Choice | None], dict[str, Any]]


def score(study: Study, unit: Unit, choice: arms.Choice | None) -> dict[str, Any]:
    """Compute the test error and the guarantees of an arm."""
    return arms.scores(unit, arms.fit(unit, study.effort, choice), study.scored)


def running_example(study: Study, unit: Unit, choice: arms.Choice | None) -> dict[str, Any]:
    """Compute median cosines of the nine tasks with the odd one, before and after one round of Algorithm 2.

    W^(0) is uniform on (0, 1), its last column times 100; T = 1, eta = 1, lambda = 50, K = 100 sqrt(5), delta = 0.
    """
    d, m = unit.data.num_features, unit.data.num_tasks
    W0 = np.random.default_rng(unit.replication).uniform(size=(d, m))
    W0[:, -1] *= 100
    # The output of the first round does not depend on rows.
    placeholder = TaskData.from_lists([np.eye(d)] * m, [np.ones(d)] * m)
    algorithm = LowRank(
        penalty=50.0,
        epsilon=unit.epsilon,
        rounds=1,
        clip=100 * np.sqrt(d),
        delta=0.0,
        step_size=1.0,
        start=W0,
        adjacency=arms.ADJACENCY,
    )
    fitted = algorithm.fit(placeholder)
    result = {"cosine": _likeness(fitted.W), "cosine_before": _likeness(W0), **arms.bounds(fitted.guarantee)}
    return result | {"W0": _short(W0), "W": _short(fitted.W)}


def _likeness(W: FloatArray) -> float:
    """Return the median cosine with the last task; nan if a column is zero."""
    norm = np.linalg.norm(W, axis=0)
    if not norm.all():
        return float("nan")
    profile = W / norm
    return float(np.median(profile[:, :-1].T @ profile[:, -1]))


def relations(study: Study, unit: Unit, choice: arms.Choice | None) -> dict[str, Any]:
    """Compute mean cosines of fitted models within groups of tasks and across, for the same tasks in every replication.

    ``truth`` is the correlation of the entries of W^ with those of W.
    """
    fixed = replace(unit, replication=0)  # the figures average W^ over runs on the same tasks
    fitted = arms.fit(fixed, study.effort, choice)
    W, true = fitted.W, arms.load(unit.data, 0).W
    assert true is not None
    result = alike(W, groups(unit.data)) | {"truth": float(np.corrcoef(W.ravel(), true.ravel())[0, 1])}
    test = arms.load(unit.data, 0).test
    result["error"] = nmse(linear_prediction(W, test), test)
    return result | {"W": _short(W), "W0": _short(true)} | arms.bounds(fitted.guarantee)


def alike(W: FloatArray, group: NDArray[np.int64]) -> dict[str, float]:
    """Return the mean cosines of two tasks in the same group, and in different groups."""
    profile = W / np.maximum(np.linalg.norm(W, axis=0), 1e-300)
    cosine, same = profile.T @ profile, group[:, None] == group
    pairs = ~np.eye(len(group), dtype=bool)
    within, across = cosine[same & pairs], cosine[~same]
    return {"within": float(within.mean()), "across": float(across.mean()) if across.size else float("nan")}


def allocation(study: Study, unit: Unit, choice: arms.Choice | None) -> dict[str, Any]:
    """Compute the least cross-validation error on the training rows if eps_t grows as t^alpha, or as Q^-t.

    Fig 4 (a): convex loss, exponent alpha. Fig 4 (b): mu = 1e-3, Q = Q_0^exponent with Q_0 = 1 - sqrt(mu), as printed.
    """
    train = arms.load(unit.data, unit.replication).train
    (strongly, accelerated), mu = ALLOCATIONS[unit.arm], 1e-3
    assert unit.exponent is not None
    options: dict[str, Any] = {"alpha": unit.exponent}
    if strongly:
        options = {"q": (1 - np.sqrt(mu)) ** unit.exponent, "loss": LeastSquares(strong_convexity=mu)}
    grid = grids.rounds(
        LowRank, train, epsilon=unit.epsilon, acceleration=accelerated, adjacency=arms.ADJACENCY, **options
    )[:: study.effort.stride]
    grid = [candidate for candidate in grid if _can_be_drawn(candidate, train)]
    selection = cross_validate(grid, train, folds=study.effort.folds, seed=unit.replication, progress_bar=False)
    return {"error": float(selection.mean.min()), "rounds": selection.best.rounds, **_claims(selection.best, train)}


def _can_be_drawn(candidate: MPMTL, train: TaskData) -> bool:
    """Return False for many rounds whose budgets differ so much that no double holds both the largest and the least noise."""
    try:
        candidate.plan(train)
    except ValueError as error:
        if "budgets that differ less" in str(error):
            return False
        raise
    return True


def noise_to_signal(study: Study, unit: Unit, choice: arms.Choice | None) -> dict[str, Any]:
    """Compute noise-to-signal ratios of the release, and how far the noise moves the models.

    The ratios are log10 ||E||_F / ||Sigma~||_F of every round, and ||W^ - W^_0||_F / ||W^_0||_F, where W^_0 is the output
    with E = 0. ``between_draws`` compares the last outputs of two draws of the noise in the same way; ``error`` and
    ``error_without_noise`` are those of W^ and W^_0. For DP-MTRL, whose noise is in the models, E = W^'W^ - W'W in the first
    round.
    """
    assert choice is not None
    train, test, _ = arms.load(unit.data, unit.replication)
    if isinstance(choice.estimator, LowRank):
        runs, guarantee = _of_releases(choice.estimator, train, unit.replication), _claims(choice.estimator, train)
    else:
        runs, guarantee = _of_models(choice.estimator, train, unit.replication), {"claimed": None, "proved": None}
    W, other, W_0, ratio, moved = runs
    error, without = (nmse(linear_prediction(w, test), test) for w in (W, W_0))
    return {
        "error": error,
        "error_without_noise": without,
        "between_draws": _distance(W, other),
        "log10_ratio_of_round_1": float(ratio[0]),
        "ratio": _short(ratio),
        "moved": _short(moved),
        **guarantee,
    }


def _distance(W: FloatArray, reference: FloatArray) -> float:
    return float(np.linalg.norm(W - reference) / np.linalg.norm(reference))


def _claims(algorithm: MPMTL, train: TaskData) -> dict[str, Any]:
    """Return both bounds of the release of a run of Algorithm 2."""
    epsilon, delta = algorithm.epsilon, default_delta(train.num_tasks)
    assert isinstance(epsilon, float)
    claimed = Bound(epsilon, delta, arms.ADJACENCY)
    laws = algorithm.plan(train).mechanisms
    return arms.bounds(of_release(laws, epsilon=epsilon, adjacency=arms.ADJACENCY, claimed=claimed, seeded=False))


def _of_releases(algorithm: LowRank, train: TaskData, seed: int) -> tuple[FloatArray, ...]:
    """Run Algorithm 2 with the curator's knowledge of its noise. These runs are not published."""
    plan = algorithm.plan(train)
    rng, zero = np.random.default_rng(seed), np.zeros((plan.size, plan.size))
    E, again = (np.stack([law.sample(rng, zero) for law in plan.mechanisms]) for _ in range(2))
    (sigma, W), (_, other), (_, W_0) = (plan.execute(Noise(e), algorithm.sharing) for e in (E, again, 0 * E))

    def norm(A: FloatArray) -> FloatArray:
        sizes: FloatArray = np.linalg.norm(A, axis=(1, 2))
        return sizes

    return W[-1], other[-1], W_0[-1], np.log10(norm(E) / norm(sigma - E)), norm(W - W_0) / norm(W_0)


def _of_models(algorithm: DPMTRL, train: TaskData, seed: int) -> tuple[FloatArray, ...]:
    W, other = (replace(algorithm, unsafe_seed=s).fit(train) for s in (2 * seed, 2 * seed + 1))
    W_0 = replace(algorithm, epsilon=None, unsafe_seed=None).fit(train)
    first, clean = W.history["W"][0], W_0.history["W"][0]
    signal = clean.T @ clean
    ratio = np.log10(np.linalg.norm(first.T @ first - signal) / np.linalg.norm(signal))
    return W.W, other.W, W_0.W, np.array([ratio]), np.array([_distance(first, clean)])


def _short(values: FloatArray) -> Any:
    """Round to six digits and return nested lists, which is enough for figures and medians."""
    return np.vectorize(lambda x: float(f"{x:.6g}"))(values).tolist()


MEASURES: dict[str, Measure] = {
    "score": score,
    "running_example": running_example,
    "relations": relations,
    "allocation": allocation,
    "noise_to_signal": noise_to_signal,
}

#: measures whose arms are tuned beforehand
TUNED = ("score", "relations", "noise_to_signal")
