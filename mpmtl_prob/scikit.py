"""The estimators of this library inside scikit-learn's pipelines and searches. Needs scikit-learn (extra ``data``)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.hidden_arrays import shown
from mpmtl_prob._util.protocols import implements
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.estimators import Ridge
from mpmtl_prob.evaluation.selection import Estimator
from mpmtl_prob.inference import OwnerEffects
from mpmtl_prob.single_task.conjugate import in_turns

__all__ = ["MultiTaskRegressor"]

_WHOLE = 2.0**53


@contextmanager
def _no_value_shown() -> Iterator[None]:
    """Replace scikit-learn's error about text in a cell, which shows the cell: it may be somebody's."""
    try:
        yield
    except OverflowError:
        raise ValueError("X and y: expected numbers, got some beyond double precision") from None
    except ValueError as error:
        if "could not convert string" not in str(error):
            raise
        raise ValueError("X and y: expected numbers, got text in some cells; encode it as numbers first") from None


class MultiTaskRegressor(RegressorMixin, BaseEstimator):
    """Any estimator of this library as a scikit-learn regressor of one long table, whose rows say which task is theirs.

    Predictions are b + x'w of the row's task: of posteriors the mean, for binary tasks the score to rank by.

    Clones share the estimator's ledger, which is one account: every fold of a cross-validation, every candidate of a search
    and the refit are releases of their own, and pay.

    Args:
        estimator: with ``fit(tasks)`` and a result that predicts, such as :class:`LowRank`; default :class:`Ridge`. Reference
            values of a mixed model are its own, ``NoiseAware(1.0, reference=mp.Reference({0: (60, 15)}, target=(7, 5)))``, by
            the positions of columns where the task column is left out.
        task: the position of the column of X that holds the task, as a number; None takes all rows for one task.
        fit_intercept: give every task an intercept of its own, :meth:`TaskData.with_intercept`, which nothing shrinks where
            least squares are fitted; else b is 0.

    Attributes:
        fitted_: what the estimator's fit returned, with its guarantee.
        tasks_: the task codes seen, sorted.
    """

    def __init__(self, estimator: Any = None, task: int | None = None, fit_intercept: bool = True) -> None:
        self.estimator = estimator
        self.task = task
        self.fit_intercept = fit_intercept

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit all tasks. Raises ValueError for a task column that is not there, and as the estimator."""
        if self.estimator is not None:
            implements("estimator", self.estimator, Estimator)
        with _no_value_shown():
            table, target = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        code, features = self._split(table)
        self.tasks_, index = np.unique(code, return_inverse=True)
        own = self.task is not None  # without it the features are the user's array
        tasks = TaskData._of_places(features, target, self.tasks_.tolist(), index, None, own)
        del table, features, code, index
        tasks = tasks.with_intercept() if self.fit_intercept else tasks
        self.fitted_ = (Ridge() if self.estimator is None else self.estimator).fit(tasks)
        self._offset = np.zeros(len(self.tasks_))
        if isinstance(
            self.fitted_, OwnerEffects
        ):  # whose reference's centres stand for an intercept where there is none
            self._offset = self.fitted_.to_arviz()["constant_data"].to_dataset()["offset_mean"].values
        return self

    def predict(self, X: ArrayLike) -> FloatArray:
        """Predicted targets, one per row. Raises ValueError for a task that was not in the fit."""
        check_is_fitted(self)
        with _no_value_shown():
            rows = validate_data(self, X, dtype=np.float64, reset=False)
        code, features = self._split(rows)
        index = np.searchsorted(self.tasks_, code).clip(max=len(self.tasks_) - 1)
        if unknown := sorted(set(code[self.tasks_[index] != code].tolist())):
            raise ValueError(f"X: expected tasks of the fit in column {self.task}, got {unknown[:5]} as well")
        d, out = features.shape[1], self._offset[index]  # an intercept stands behind the features
        for now in in_turns(len(out), d):  # weights of all rows would take as much as these do
            W = self.fitted_.W[:, index[now]]
            out[now] = np.einsum("nd,dn->n", features[now], W[:d]) + W[d:].sum(axis=0) + out[now]
        return out

    def _split(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The task of every row, and its features."""
        if self.task is None:
            return np.zeros(len(X)), X
        if isinstance(self.task, bool) or not isinstance(self.task, int | np.integer):
            raise ValueError(
                f"task: expected the position of a column of X, a whole number, or None, got {shown(self.task)}"
            )
        if not -X.shape[1] <= self.task < X.shape[1]:
            raise ValueError(f"task: expected a column of X, which has {X.shape[1]}, got {self.task!r}")
        if np.abs(X[:, self.task]).max() >= _WHOLE:
            raise ValueError(
                f"X: expected task numbers below 2^53 in column {self.task}, which doubles tell apart, got larger ones; "
                "number the tasks anew"
            )
        if X.shape[1] == 1:
            raise ValueError("X: expected features beside the task column, got the task column alone")
        return X[:, self.task], np.delete(X, self.task, axis=1)
