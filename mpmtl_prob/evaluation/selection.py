"""Hyper-parameters by cross-validation over training rows, the same for every estimator.

The choice looks at all tasks' rows and, as in the papers, is not charged to any budget.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from tqdm.auto import tqdm

from mpmtl_prob.estimators import ConvergenceWarning, Fitted
from mpmtl_prob.evaluation.metrics import nmse
from mpmtl_prob.tasks import TaskData


class Estimator(Protocol):
    """Anything with hyper-parameters in its constructor and a fit."""

    def fit(self, tasks: TaskData) -> Fitted: ...


def cross_validate[E: Estimator](
    candidates: Sequence[E], tasks: TaskData, *, folds: int = 3, seed: int = 0, progress_bar: bool = True
) -> tuple[E, np.ndarray]:
    """The candidate with the least pooled nMSE on held-out rows, and the score of every candidate, (len(candidates),).

    Args:
        candidates: estimators to choose from.
        tasks: the training rows.
        folds: cut in every task separately; at most the rows of the smallest task.
        seed: of the folds.
        progress_bar: show one.

    Raises:
        ValueError: no candidates, or tasks too small for two folds.
    """
    if len(candidates) == 0:
        raise ValueError("candidates: expected at least one estimator, got none")
    parts = tasks.folds(min(folds, int(tasks.mask.sum(axis=1).min())), seed)
    scores = np.zeros(len(candidates))
    with warnings.catch_warnings():
        # a candidate that has not converged is judged by its predictions like any other
        warnings.simplefilter("ignore", ConvergenceWarning)
        for j in tqdm(range(len(candidates)), desc="cross-validation", leave=False, disable=not progress_bar):
            scores[j] = np.mean([nmse(candidates[j].fit(train).predict(held), held) for train, held in parts])
    return candidates[int(np.nanargmin(scores))], scores
