"""Hyper-parameter selection by cross-validation over training rows, with the same effort for every estimator.

The choice uses all tasks' rows and, as in the papers, is not charged to any budget. Every fit made through a
:class:`Selection` says so in its guarantee.
"""

from __future__ import annotations

import os
import warnings
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import jax
import numpy as np
from numpy.typing import NDArray
from tqdm.auto import tqdm

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import one_of
from mpmtl_prob._util.devices import without_copies
from mpmtl_prob._util.forks import check_not_forked
from mpmtl_prob._util.hidden_arrays import public, shown
from mpmtl_prob._util.protocols import implements
from mpmtl_prob.convex.losses import Smooth
from mpmtl_prob.data.intercepts import completed
from mpmtl_prob.data.prediction import Prediction, linear_prediction
from mpmtl_prob.data.splits import fold_of_rows
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.estimators import (
    MPMTL,
    ConvergenceWarning,
    Fitted,
    MultiTask,
    Noise,
    Ridge,
    Run,
    SharingRule,
    framework,
)
from mpmtl_prob.estimators.fitted import in_unit_variance, slopes
from mpmtl_prob.estimators.plan import Plan, Rows
from mpmtl_prob.evaluation.metrics import auc, log_score, nmse, nmse_within
from mpmtl_prob.privacy.guarantee import NOTHING_SHARED, Guarantee

if TYPE_CHECKING:
    import pandas as pd

#: Metrics by name, each with True if larger is better.
METRICS: dict[str, tuple[Callable[[Prediction, TaskData], float], bool]] = {
    "nmse": (nmse, False),
    "nmse_within": (nmse_within, False),
    "auc": (auc, True),
    "log_score": (log_score, True),
}

NOT_CHARGED = "Hyper-parameters were chosen by cross-validation over all tasks' rows, which no budget was charged for."

#: Size of rows in bytes up to which folds are processed in parallel; larger ones are processed one at a time.
_TOGETHER = 2**24
_CHUNK = 8  # candidates per compiled call: few enough that the progress bar moves


class Estimator(Protocol):
    """Interface of an estimator: hyper-parameters in its constructor, and a method ``fit``."""

    def fit(self, tasks: TaskData) -> Fitted: ...


@dataclass(frozen=True, eq=False, repr=False)
class Selection[E: Estimator]:
    """Result of cross-validation: scores of all candidates, and the best one.

    Attributes:
        candidates: the estimators compared.
        scores: score of every candidate on every fold, (len(candidates), folds); nan where a fit failed numerically.
        metric: name of the scores.
        best: the candidate with the best mean score.
    """

    candidates: tuple[E, ...]
    scores: FloatArray
    metric: str
    best: E

    @property
    def mean(self) -> FloatArray:
        """Mean score of every candidate, (len(candidates),)."""
        return self.scores.mean(axis=1)

    def fit(self, tasks: TaskData) -> Fitted:
        """Fit the best candidate, solved accurately and with fresh noise; the guarantee mentions the selection."""
        best: Any = self.best
        if getattr(best, "unsafe_seed", None) is not None:
            best = replace(best, unsafe_seed=None)
        if getattr(best, "max_iterations", None) is not None:  # candidates were solved roughly
            best = replace(best, tolerance=min(best.tolerance, 1e-5), max_iterations=max(best.max_iterations, 50_000))
        fitted = best.fit(tasks)
        return replace(fitted, guarantee=_not_charged(fitted.guarantee))

    def to_pandas(self) -> pd.DataFrame:
        """Return one row per candidate, best first: hyper-parameters that differ, mean and sd of the score."""
        import pandas as pd

        fields = [vars(candidate) for candidate in self.candidates]
        differ = [key for key in fields[0] if len({shown(row.get(key)) for row in fields}) > 1]
        frame = pd.DataFrame([{key: public(row.get(key)) for key in differ} for row in fields])
        frame[self.metric], frame["sd"] = self.mean, self.scores.std(axis=1)
        return frame.sort_values(self.metric, ascending=not METRICS[self.metric][1]).reset_index(drop=True)

    def __repr__(self) -> str:
        best = int(np.flatnonzero([candidate is self.best for candidate in self.candidates])[0])
        return (
            f"Selection(best {self.metric} {self.mean[best]:.4f} of {len(self.candidates)} candidates on "
            f"{self.scores.shape[1]} folds)\n  {NOT_CHARGED}"
        )


def _not_charged(guarantee: Guarantee) -> Guarantee:
    if guarantee.proved == NOTHING_SHARED.proved:
        return replace(guarantee, reason=f"Every task's weights come from its own rows. {NOT_CHARGED}")
    return replace(guarantee, reason=f"{guarantee.reason} {NOT_CHARGED}")


def cross_validate[E: Estimator](
    candidates: Sequence[E],
    tasks: TaskData,
    *,
    folds: int | Sequence[tuple[TaskData, TaskData]] = 5,
    metric: str = "nmse",
    seed: int = 0,
    progress_bar: bool = True,
) -> Selection[E]:
    """Score every candidate on held-out rows.

    Rounds of Algorithms 1 to 5 run for several candidates in one compiled call. A penalty path is followed from the largest
    penalty down, each solution starting from the one before. Folds run in parallel on the machine's cores, or one after
    another if their rows are large.

    Args:
        candidates: estimators to choose from.
        tasks: the training rows.
        folds: number of folds, cut in every task separately, at most the rows of the smallest task; or the folds themselves,
            pairs of training and validation rows.
        metric: "nmse" or "nmse_within"; for labels -1 and 1 "auc", or "log_score" if probabilities matter.
        seed: seed of the folds, and of the candidates' noise: all candidates have the same draws on a fold.
        progress_bar: show one.

    Raises:
        ValueError: no candidates, an unknown metric, tasks too small for two folds, or no candidate with a score on every
            fold.
    """
    if len(candidates) == 0:
        raise ValueError("candidates: expected at least one estimator, got none")
    for candidate in candidates:
        implements("candidates", candidate, Estimator)
    one_of("metric", metric, tuple(METRICS))
    rows = _rows_of_folds(tasks, folds, seed)
    score, more_is_better = METRICS[metric]
    scores = np.full((len(candidates), len(rows)), np.nan)
    workers = os.cpu_count() or 1
    at_once = min(workers, max(1, _TOGETHER // max(tasks.rows.nbytes, 1)))
    with (
        warnings.catch_warnings(),
        ThreadPoolExecutor(workers) as pool,
        tqdm(total=scores.size, desc="cross-validation", leave=False, disable=not progress_bar) as bar,
    ):
        # A candidate that has not converged is judged by its predictions like any other.
        warnings.simplefilter("ignore", ConvergenceWarning)
        for fold, fitted in _done(pool, _opened(candidates, rows, seed), at_once):
            validation = fold.validation()
            for index, W in fitted:
                of_features = W if fold.scale is None else fold.scale.T * W
                scores[index, fold.number] = score(linear_prediction(of_features, validation), validation)
                bar.update()
            del fold, fitted, validation  # frees their memory before the next fold
    mean = scores.mean(axis=1)
    if np.isnan(mean).all():
        raise ValueError(
            f"candidates: expected at least one with a finite {metric} on every fold, got none; a fit may have failed, or a "
            "fold may lack rows of both labels"
        )
    best = np.nanargmax(mean) if more_is_better else np.nanargmin(mean)
    return Selection(tuple(candidates), scores, metric, candidates[int(best)])


Job = Callable[[], list[tuple[int, FloatArray]]]
Part = Callable[[], TaskData]


class _Fold(NamedTuple):
    """Validation rows of one fold, and the scale of features in which weights were fitted, if any."""

    number: int
    validation: Part
    scale: FloatArray | None


def _rows_of_folds(
    tasks: TaskData, folds: int | Sequence[tuple[TaskData, TaskData]], seed: int
) -> list[tuple[Part, Part]]:
    """Return functions for the training and the validation rows of every fold, as all rows may not fit in memory."""
    if not isinstance(folds, int):
        return [(partial(_same, train), partial(_same, validation)) for train, validation in folds]
    k = min(folds, int(tasks.row_counts.min()))
    fold = fold_of_rows(tasks.row_counts, tasks.subjects, k, seed)
    return [(partial(_where, tasks, fold, j, False), partial(_where, tasks, fold, j, True)) for j in range(k)]


def _same(tasks: TaskData) -> TaskData:
    return tasks


def _where(tasks: TaskData, fold: NDArray[np.int64], j: int, held: bool) -> TaskData:
    """Return the validation rows of fold j (``held``), or its training rows."""
    return tasks.where((fold == j) == held)


def _opened(
    candidates: Sequence[Any], folds: Sequence[tuple[Part, Part]], seed: int
) -> Iterator[tuple[_Fold, list[Job]]]:
    """Yield every fold with its jobs, which hold its training rows, scaled to unit variance if they come from a table."""
    in_one_unit = all(getattr(candidate, "scales_tables", True) for candidate in candidates)
    for j, (training, validation) in enumerate(folds):
        train, scale = in_unit_variance(training()) if in_one_unit else (training(), None)
        yield _Fold(j, validation, scale), list(_jobs(candidates, train, seed + j))
        del train  # frees its memory before the next fold


def _done(
    pool: ThreadPoolExecutor, folds: Iterator[tuple[_Fold, list[Job]]], at_once: int
) -> Iterator[tuple[_Fold, list[tuple[int, FloatArray]]]]:
    """Yield the results of all folds' jobs as they finish, with at most ``at_once`` folds open at a time."""
    running: dict[Future[Any], _Fold] = {}
    try:
        while True:
            while len({fold.number for fold in running.values()}) < at_once and (opened := next(folds, None)):
                running |= {pool.submit(job): opened[0] for job in opened[1]}
                del opened
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(future), future.result()
                del future
    finally:  # after an interrupt too: cancels jobs that have not begun
        for future in running:
            future.cancel()


def _jobs(candidates: Sequence[Any], train: TaskData, seed: int) -> Iterator[Job]:
    """Yield the jobs of one fold, each of which fits some candidates and returns their indices and weights."""
    together: dict[Any, list[int]] = defaultdict(list)
    bound = _Bound(train)
    for index, candidate in enumerate(candidates):
        if type(candidate).fit is MPMTL.fit:
            kind = (candidate.sharing, candidate.rounds, *_begun(candidate), candidate.rows is None)
            together[MPMTL, *kind].append(index)
        elif (problem := _penalised(candidate)) is not None:
            together[_penalised, replace(problem, penalty=1.0)].append(index)
        else:
            yield partial(_alone, index, candidate, train)
    for (kind, *_), members in together.items():
        if kind is _penalised:
            yield partial(_path, members, candidates, train)
        else:
            for start in range(0, len(members), _CHUNK):
                yield partial(_rounds, members[start : start + _CHUNK], candidates, train, seed, bound)


def _penalised(candidate: Any) -> Any:
    """Return the candidate's penalised problem, for a path of penalties; None if it is not one."""
    if isinstance(getattr(candidate, "penalty", None), str):
        return None
    problem = getattr(candidate, "problem", candidate)
    return problem if isinstance(problem, MultiTask | Ridge) else None


def _begun(candidate: MPMTL) -> tuple[Any, ...]:
    """Return everything but the rows on which a candidate's first step depends."""
    start = candidate.start if isinstance(candidate.start, Hashable) else id(candidate.start)
    return candidate.loss, start, type(candidate).bind


class _Bound:
    """Cache of quantities that all runs on a fold need, computed once by the first thread."""

    def __init__(self, train: TaskData) -> None:
        self._train, self._lock, self._cache = train, Lock(), dict[Any, Rows]()

    def __call__(self, candidate: MPMTL) -> Rows:
        with self._lock:
            if (begun := _begun(candidate)) not in self._cache:
                train = slopes(self._train, candidate.loss)
                # Nothing is released here, so sums may run over all tasks together.
                self._cache[begun] = candidate.bind(train)._replace(loss=candidate.loss.of(train))
            return self._cache[begun]


def _alone(index: int, candidate: Estimator, train: TaskData) -> list[tuple[int, FloatArray]]:
    return [(index, candidate.fit(train).W)]


def _path(members: list[int], candidates: Sequence[Any], train: TaskData) -> list[tuple[int, FloatArray]]:
    problems = {index: _penalised(candidates[index]) for index in members}
    down = sorted(members, key=lambda index: -problems[index].penalty)
    fits = problems[down[0]].path(train, [problems[index].penalty for index in down])
    return [(index, fit.W) for index, fit in zip(down, fits, strict=True)]


def _rounds(
    members: list[int], candidates: Sequence[MPMTL], train: TaskData, seed: int, bound: _Bound
) -> list[tuple[int, FloatArray]]:
    padded = members + members[-1:] * (_CHUNK - len(members))  # equal shapes need only one compilation
    first = candidates[members[0]]
    tasks, train, rows = train, slopes(train, first.loss), bound(first)
    runs, noises = [], []
    for index in padded:
        plan = candidates[index].plan(train, rows)
        noises.append(_seeded(plan, first.rounds, seed))
        runs.append(plan.run._replace(loss=()))  # type: ignore[arg-type] # all runs share one loss
    check_not_forked()
    with jax.enable_x64(True):
        together = [jax.tree.map(lambda *leaves: np.stack(leaves), *parts) for parts in (runs, noises)]
        arguments = without_copies((rows.loss, together[0], rows.W0, together[1]))
        W = np.asarray(_many_runs(first.sharing, *arguments))
    W = W if train is tasks else completed(W, tasks)
    return list(zip(members, W[: len(members)], strict=True))


def _seeded(plan: Plan, rounds: int, seed: int) -> Noise:
    """Draw seeded noise for a run that is not published."""
    rng, zero = np.random.default_rng(seed), np.zeros((plan.size, plan.size))
    moment = [law.sample(rng, zero) for law in plan.mechanisms] or np.zeros((rounds, *zero.shape))
    nothing = np.zeros(plan.W0.T.shape)
    models = [law.sample(rng, nothing).T for law in plan.row_mechanisms]
    return Noise(np.asarray(moment), np.asarray(models) if models else None)


@partial(jax.jit, static_argnums=0)
def _many_runs(sharing: SharingRule, loss: Smooth, runs: Run, W0: Any, noises: Any) -> jax.Array:
    """Compute W^^(T) of every run, (candidates, d, m); all runs share the rows and the start."""

    def one(run: Run, noise: Noise) -> jax.Array:
        return framework(sharing, run._replace(loss=loss), W0, noise, record=False)[1][0]

    return jax.vmap(one)(runs, noises)
