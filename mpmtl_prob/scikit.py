"""The estimators of this library inside scikit-learn's pipelines and searches. Needs scikit-learn (extra ``data``)."""

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
_SURE = 1e-15  # no probability is nearer to 0 or 1, whose log odds are no numbers


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


class _Table(NamedTuple):
    """A table of rows: the task of each (n,), features (n, d) and their names, None of a matrix."""

    task: NDArray[Any]
    features: FloatArray
    names: list[Hashable] | None

    def __repr__(self) -> str:
        return shown(self)


class _OfTasks(BaseEstimator):
    """What both have in common: the table, whose rows say which task is theirs, and the inner estimator's parameters."""

    _default: type
    fitted_: Any
    tasks_: NDArray[Any]

    def __init__(self, estimator: Any = None, task: int | str | None = None, fit_intercept: bool = True) -> None:
        self.estimator = estimator
        self.task = task
        self.fit_intercept = fit_intercept

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters, and with ``deep`` those of the estimator, as ``estimator__penalty``."""
        found: dict[str, Any] = super().get_params(deep=deep)
        inner = self._inner()
        if deep and not hasattr(inner, "get_params"):
            found |= {_INNER + name: value for name, value in _parameters(inner).items()}
        return found

    def set_params(self, **params: Any) -> Self:
        """Set parameters, those of the estimator as ``estimator__penalty``. Raises ValueError for one that there is not."""
        own = {name: value for name, value in params.items() if not name.startswith(_INNER)}
        super().set_params(**own)
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
        own = self.task is not None  # without it the features are the user's array
        tasks = TaskData._of_places(table.features, target, self.tasks_.tolist(), place, table.names, own)
        del table, place
        self.fitted_ = self._inner().fit(tasks.with_intercept() if self.fit_intercept else tasks)

    def _read(self, X: Any, y: Any = None) -> tuple[_Table, Any]:
        """The table and targets of a fit, (n,), or the table alone of rows to predict."""
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
        """The columns of a data frame."""
        columns = frame_columns(X)
        names = [name for name, _ in columns]
        place = self._place(names)
        labels = np.zeros(len(X)) if place is None else task_labels(columns.pop(place)[1])
        kept = [name for name, _ in columns]
        return _Table(labels, numeric_columns("X", dict(columns), kept, labels), kept)

    def _split(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The task of every row of a matrix, and its features."""
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
        """Where the column of tasks is among columns with these names. Raises ValueError for one that is not there."""
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
        """Where the tasks of rows are among those of the fit, (n,), by name. Raises ValueError for others."""
        known = {label_text(label): i for i, label in enumerate(self.tasks_.tolist())}
        labels, code = np.unique(task, return_inverse=True)
        places = np.array([known.get(label_text(label), -1) for label in labels.tolist()], dtype=np.int64)
        if unknown := labels[places < 0].tolist():
            raise ValueError(f"X: expected tasks of the fit in column {self.task}, got {unknown[:5]} as well")
        return places[code]


def _parameters(inner: Any) -> dict[str, Any]:
    """What a frozen estimator is made of, by name; nothing of one that says it in no way."""
    known = fields(inner) if is_dataclass(inner) and not isinstance(inner, type) else ()
    return {field.name: getattr(inner, field.name) for field in known if field.init}


def _with_parameters(inner: Any, params: Mapping[str, Any]) -> Any:
    """The same with other parameters, those of a part as ``part__name``. Raises ValueError for one that it does not have."""
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
    """Any estimator of this library as a scikit-learn regressor of one long table, whose rows say which task is theirs.

    Predictions are b + x'w of the row's task: of posteriors the mean, for binary tasks the score to rank by.

    A data frame, of pandas, polars or Arrow, has tasks of any kind, text or large numbers, in a column by its name, and tasks
    and features keep their names. A matrix holds numbers alone, tasks too. The same numbers give the same fit in both: unlike
    in :meth:`TaskData.from_pandas`, nothing is scaled, so columns in different units go through a scaler first, or to an
    estimator with ``scaling="unit_variance"``.

    Searches reach the estimator's own parameters, ``{"estimator__penalty": [0.1, 1.0]}``. Clones share its ledger, which is
    one account: every fold of a cross-validation, every candidate of a search and the refit are releases of their own, and
    pay.

    Args:
        estimator: with ``fit(tasks)`` and a result that predicts, such as :class:`LowRank`; default :class:`Ridge`. Reference
            values of a mixed model are its own, ``NoiseAware(1, reference=mp.Reference({"age": (60, 15)}, target=(7, 5)))``,
            by the names of a data frame's columns, or the positions of a matrix's where the task column is left out.
        task: the column of X that holds the task, by its name in a data frame or its position; None takes all rows for one
            task.
        fit_intercept: give every task an intercept of its own, :meth:`TaskData.with_intercept`, which nothing shrinks where
            least squares are fitted; else b is 0.

    Attributes:
        fitted_: what the estimator's fit returned, with its guarantee.
        tasks_: the tasks seen, sorted.
    """

    _default = Ridge
    _targets: Mapping[str, Any] = {"y_numeric": True}

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit all tasks. Raises ValueError for a task column that is not there, and as the estimator."""
        self._fit(*self._read(X, _given(y)))
        self._offset = np.zeros(len(self.tasks_))
        if isinstance(
            self.fitted_, OwnerEffects
        ):  # whose reference's centres stand for an intercept where there is none
            constants = self.fitted_.to_arviz(pointwise=False)["constant_data"].to_dataset()
            self._offset = constants["offset_mean"].values
        return self

    def predict(self, X: ArrayLike) -> FloatArray:
        """Predicted targets, one per row. Raises ValueError for a task that was not in the fit."""
        check_is_fitted(self)
        table, _ = self._read(X)
        place, d = self._places(table.task), table.features.shape[1]  # an intercept stands behind them
        out = self._offset[place]
        for now in in_turns(len(out), d):  # weights of all rows would take as much as these do
            W = self.fitted_.W[:, place[now]]
            out[now] = np.einsum("nd,dn->n", table.features[now], W[:d]) + W[d:].sum(axis=0) + out[now]
        return out


class MultiTaskClassifier(ClassifierMixin, _OfTasks):
    """Any estimator of this library as a scikit-learn classifier of two classes, of a table as :class:`MultiTaskRegressor`'s.

    Of posteriors the probability is their own, averaged over draws: ``NoiseAware(1.0, likelihood="bernoulli")``. Of others it
    is that of the log odds x'w, as the logistic loss has them; with least squares only the order of rows means something.

    Args:
        estimator: of targets -1 and 1; default :class:`RidgeLogistic`.
        task: as of :class:`MultiTaskRegressor`.
        fit_intercept: give every task an intercept of its own.

    Attributes:
        classes_: the two classes, sorted; the second one is that of target 1.
        fitted_: what the estimator's fit returned, with its guarantee.
        tasks_: the tasks seen, sorted.
    """

    _default = RidgeLogistic

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit all tasks. Raises ValueError for other than two classes, and as :meth:`MultiTaskRegressor.fit`."""
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
        """The log odds of the second class, one per row. Raises ValueError for a task that was not in the fit."""
        check_is_fitted(self)
        table, _ = self._read(X)
        present, place = np.unique(self._places(table.task), return_inverse=True)
        names = self.tasks_[present].tolist()
        tasks = TaskData._of_places(table.features, None, names, place, table.names)
        found = self.fitted_.predict(tasks.with_intercept() if self.fit_intercept else tasks)
        out = np.empty(len(place))
        odds = logit(found.means.clip(_SURE, 1 - _SURE)) if found.quantity == "probability" else found.means
        out[np.argsort(place, kind="stable")] = odds  # rows of a task stand together there
        return out

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """The probabilities of both classes, (n, 2). Raises as :meth:`decision_function`."""
        second = expit(self.decision_function(X))
        return np.column_stack([1 - second, second])

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The likelier class of every row. Raises as :meth:`decision_function`."""
        odds = self.decision_function(X)
        likelier: NDArray[Any] = self.classes_[(odds > 0).astype(int)]
        return likelier

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


def _given(y: Any) -> Any:
    """Targets of a fit, which there are to be. Raises ValueError in scikit-learn's words."""
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None")
    return y
