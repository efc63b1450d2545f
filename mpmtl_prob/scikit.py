"""Wrappers of this library's estimators for scikit-learn's pipelines and searches. Needs scikit-learn (extra ``data``)."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_array, check_X_y
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.hidden_arrays import shown
from mpmtl_prob._util.protocols import implements
from mpmtl_prob.data.cells import frame_columns, is_frame, label_text
from mpmtl_prob.data.columns import numeric_columns, task_labels
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.estimators import Ridge, RidgeLogistic
from mpmtl_prob.evaluation.selection import Estimator
from mpmtl_prob.inference import OwnerEffects
from mpmtl_prob.single_task.conjugate import in_turns

__all__ = ["MultiTaskClassifier", "MultiTaskRegressor"]

_WHOLE = 2.0**53
_INNER = "estimator__"
_SURE = 1e-15  # probabilities are kept this far from 0 and 1, so that log odds are finite


@contextmanager
def _no_value_shown() -> Iterator[None]:
    """Replace scikit-learn's error about text in a cell, as it shows the cell, which may be private."""
    try:
        yield
    except OverflowError:
        raise ValueError("X and y: expected numbers, got some beyond double precision") from None
    except ValueError as error:
        if "could not convert string" not in str(error):
            raise
        raise ValueError("X and y: expected numbers, got text in some cells; encode it as numbers first") from None


class _Table(NamedTuple):
    """Table of rows: the task of each (n,), features (n, d), and the features' names, or None for a matrix."""

    task: NDArray[Any]
    features: FloatArray
    names: list[Hashable] | None

    def __repr__(self) -> str:
        return shown(self)


class _OfTasks(BaseEstimator):
    """Base class of both wrappers: it reads the table with its task column, and exposes the estimator's parameters."""

    _default: type
    fitted_: Any
    tasks_: NDArray[Any]

    def __init__(self, estimator: Any = None, task: int | str | None = None, fit_intercept: bool = True) -> None:
        self.estimator = estimator
        self.task = task
        self.fit_intercept = fit_intercept

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters, and with ``deep`` those of the estimator, such as ``estimator__penalty``."""
        params: dict[str, Any] = super().get_params(deep=deep)
        inner = self._inner()
        if deep and not hasattr(inner, "get_params"):
            params |= {_INNER + name: value for name, value in _parameters(inner).items()}
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters, also the estimator's, such as ``estimator__penalty``. Raises ValueError for an unknown one."""
        outer = {name: value for name, value in params.items() if not name.startswith(_INNER)}
        super().set_params(**outer)
        inner = {name.removeprefix(_INNER): value for name, value in params.items() if name.startswith(_INNER)}
        if inner and hasattr(self.estimator, "set_params"):
            self.estimator.set_params(**inner)
        elif inner:
            self.estimator = _with_parameters(self._inner(), inner)
        return self

    def _inner(self) -> Any:
        return self._default() if self.estimator is None else self.estimator

    def _fit(self, table: _Table, target: FloatArray) -> None:
        """Fit all tasks of a table to targets (n,)."""
        self.tasks_, place = np.unique(table.task, return_inverse=True)
        copied = self.task is not None  # without a task column the features are the user's array itself
        tasks = TaskData._of_places(table.features, target, self.tasks_.tolist(), place, table.names, copied)
        del table, place
        self.fitted_ = self._inner().fit(tasks.with_intercept() if self.fit_intercept else tasks)

    def _read(self, X: Any, y: Any = None) -> tuple[_Table, Any]:
        """Return the table and the targets of a fit, (n,), or the table and None for rows to predict."""
        if self.estimator is not None:
            implements("estimator", self.estimator, Estimator)
        fitting = y is not None
        with _no_value_shown():
            if not is_frame(X):
                checked = validate_data(
                    self, X, **({"y": y, **self._targets} if fitting else {"reset": False}), dtype=np.float64
                )
                rows, target = checked if fitting else (checked, None)
                return _Table(*self._split(rows), None), target
            validate_data(self, X, skip_check_array=True, reset=fitting)
            table = self._of_frame(X)
            if not fitting:
                return table._replace(features=check_array(table.features)), None
            features, target = check_X_y(table.features, y, **self._targets)
            return table._replace(features=features), target

    _targets: Mapping[str, Any] = {}

    def _of_frame(self, X: Any) -> _Table:
        """Split a data frame into the tasks of its rows and the features."""
        columns = frame_columns(X)
        names = [name for name, _ in columns]
        place = self._place(names)
        labels = np.zeros(len(X)) if place is None else task_labels(columns.pop(place)[1])
        feature_names = [name for name, _ in columns]
        return _Table(labels, numeric_columns("X", dict(columns), feature_names, labels), feature_names)

    def _split(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Split a matrix into the tasks of its rows and the features."""
        place = self._place([None] * X.shape[1])
        if place is None:
            return np.zeros(len(X)), X
        if np.abs(X[:, place]).max() >= _WHOLE:
            raise ValueError(
                f"X: expected task numbers below 2^53 in column {self.task}, which doubles tell apart, got larger ones; "
                "number the tasks anew, or hand over a data frame, whose columns keep their types"
            )
        return X[:, place], np.delete(X, place, axis=1)

    def _place(self, names: list[Any]) -> int | None:
        """Return the position of the task column among columns with these names. Raises ValueError if it is missing."""
        task = self.task
        if task is None:
            return None
        if isinstance(task, str) and any(name is not None for name in names):
            if names.count(task) != 1:
                raise ValueError(f"task: expected one column of X of this name, got {task!r} {names.count(task)} times")
            place = names.index(task)
        elif isinstance(task, bool) or not isinstance(task, int | np.integer):
            raise ValueError(
                f"task: expected the position of a column of X, a whole number, or None, got {shown(task)}; a name where X "
                "is a data frame"
            )
        elif not -len(names) <= task < len(names):
            raise ValueError(f"task: expected a column of X, which has {len(names)}, got {task!r}")
        else:
            place = int(task) % len(names)
        if len(names) == 1:
            raise ValueError("X: expected features beside the task column, got the task column alone")
        return place

    def _places(self, task: NDArray[Any]) -> NDArray[np.int64]:
        """Return the positions of the rows' tasks among those of the fit, (n,), by name. Raises ValueError for others."""
        known = {label_text(label): i for i, label in enumerate(self.tasks_.tolist())}
        labels, code = np.unique(task, return_inverse=True)
        places = np.array([known.get(label_text(label), -1) for label in labels.tolist()], dtype=np.int64)
        if unknown := labels[places < 0].tolist():
            raise ValueError(f"X: expected tasks of the fit in column {self.task}, got {unknown[:5]} as well")
        return places[code]


def _parameters(inner: Any) -> dict[str, Any]:
    """Return the parameters of a dataclass estimator by name; empty for other objects."""
    known = fields(inner) if is_dataclass(inner) and not isinstance(inner, type) else ()
    return {field.name: getattr(inner, field.name) for field in known if field.init}


def _with_parameters(inner: Any, params: Mapping[str, Any]) -> Any:
    """Return the estimator with other parameters, nested ones as ``part__name``. Raises ValueError for an unknown one."""
    known, new = _parameters(inner), dict[str, Any]()
    for name in dict.fromkeys(key.partition("__")[0] for key in params):
        if name not in known:
            raise ValueError(
                f"estimator: expected one of {type(inner).__name__}'s parameters, {', '.join(known)}, got {name!r}"
            )
        parts = {key.partition("__")[2]: value for key, value in params.items() if key.startswith(f"{name}__")}
        whole = params.get(name, known[name])
        new[name] = _with_parameters(whole, parts) if parts else whole
    return replace(inner, **new)


class MultiTaskRegressor(RegressorMixin, _OfTasks):
    """Scikit-learn regressor around any estimator of this library, for one long table with a task column.

    Predictions are b + x'w with the weights of the row's task. For posteriors they are means, and for binary tasks scores for
    ranking.

    A data frame of pandas, polars or Arrow has the tasks in a named column, as text or numbers of any size, and tasks and
    features keep their names. A matrix has numbers only, for tasks too. The same numbers give the same fit in both. Unlike in
    :meth:`TaskData.from_pandas`, nothing is scaled. Scale columns in different units first, or use an estimator with
    ``scaling="unit_variance"``.

    Searches can set the estimator's own parameters, ``{"estimator__penalty": [0.1, 1.0]}``. Clones share its ledger. Every
    fold of a cross-validation, every candidate of a search and the refit are separate releases, and are all charged to it.

    Args:
        estimator: with ``fit(tasks)`` and a result that predicts, such as :class:`LowRank`; default :class:`Ridge`. Reference
            values of a mixed model belong to it, ``NoiseAware(1, reference=mp.Reference({"age": (60, 15)}, target=(7, 5)))``,
            by the names of a data frame's columns, or by the positions of a matrix's columns without the task column.
        task: the task column of X, by name in a data frame or by position; None treats all rows as one task.
        fit_intercept: give every task its own intercept, :meth:`TaskData.with_intercept`, which least squares do not shrink;
            else b is 0.

    Attributes:
        fitted_: the result of the estimator's fit, with its guarantee.
        tasks_: the tasks of the fit, sorted.
    """

    _default = Ridge
    _targets: Mapping[str, Any] = {"y_numeric": True}

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit all tasks. Raises ValueError for a missing task column, and the estimator's errors."""
        self._fit(*self._read(X, _given(y)))
        self._offset = np.zeros(len(self.tasks_))
        # Without an intercept the centres of the reference give every task an offset.
        if isinstance(self.fitted_, OwnerEffects):
            constants = self.fitted_.to_arviz(pointwise=False)["constant_data"].to_dataset()
            self._offset = constants["offset_mean"].values
        return self

    def predict(self, X: ArrayLike) -> FloatArray:
        """Predict targets, one per row. Raises ValueError for a task that was not in the fit."""
        check_is_fitted(self)
        table, _ = self._read(X)
        place, d = self._places(table.task), table.features.shape[1]  # an intercept follows the features
        out = self._offset[place]
        for now in in_turns(len(out), d):  # in parts, as the weights of all rows would need as much memory as X
            W = self.fitted_.W[:, place[now]]
            out[now] = np.einsum("nd,dn->n", table.features[now], W[:d]) + W[d:].sum(axis=0) + out[now]
        return out


class MultiTaskClassifier(ClassifierMixin, _OfTasks):
    """Scikit-learn classifier of two classes around any estimator, for a table like that of :class:`MultiTaskRegressor`.

    Posteriors have their own probabilities, averaged over draws: ``NoiseAware(1.0, likelihood="bernoulli")``. For other
    estimators the probability is that of the log odds x'w, as for the logistic loss. With least squares only the order of the
    rows is meaningful.

    Args:
        estimator: an estimator for targets -1 and 1; default :class:`RidgeLogistic`.
        task: as for :class:`MultiTaskRegressor`.
        fit_intercept: give every task its own intercept.

    Attributes:
        classes_: the two classes, sorted; the second one has target 1.
        fitted_: the result of the estimator's fit, with its guarantee.
        tasks_: the tasks of the fit, sorted.
    """

    _default = RidgeLogistic

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit all tasks. Raises ValueError unless there are two classes, and as :meth:`MultiTaskRegressor.fit` does."""
        table, target = self._read(X, _given(y))
        check_classification_targets(target)
        self.classes_, which = np.unique(target, return_inverse=True)
        if len(self.classes_) > 2:
            raise ValueError(
                f"Only binary classification is supported. The type of the target is {type_of_target(target)}. y: expected "
                f"two classes, got {len(self.classes_)}"
            )
        if len(self.classes_) < 2:
            raise ValueError("y: expected two classes, got one class")
        self._fit(table, np.where(which == 1, 1.0, -1.0))
        return self

    def decision_function(self, X: ArrayLike) -> FloatArray:
        """Return the log odds of the second class, one per row. Raises ValueError for a task that was not in the fit."""
        check_is_fitted(self)
        table, _ = self._read(X)
        present, place = np.unique(self._places(table.task), return_inverse=True)
        names = self.tasks_[present].tolist()
        tasks = TaskData._of_places(table.features, None, names, place, table.names)
        prediction = self.fitted_.predict(tasks.with_intercept() if self.fit_intercept else tasks)
        out = np.empty(len(place))
        odds = (
            logit(prediction.means.clip(_SURE, 1 - _SURE)) if prediction.quantity == "probability" else prediction.means
        )
        out[np.argsort(place, kind="stable")] = odds  # the prediction has rows sorted by task
        return out

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Return the probabilities of both classes, (n, 2). Raises as :meth:`decision_function` does."""
        second = expit(self.decision_function(X))
        return np.column_stack([1 - second, second])

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Predict the more probable class of every row. Raises as :meth:`decision_function` does."""
        odds = self.decision_function(X)
        likelier: NDArray[Any] = self.classes_[(odds > 0).astype(int)]
        return likelier

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


def _given(y: Any) -> Any:
    """Return the targets of a fit. Raises scikit-learn's ValueError if they are missing."""
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None")
    return y
