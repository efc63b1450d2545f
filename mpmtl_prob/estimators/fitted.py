"""Result of a deterministic estimator, and scaling of features before a fit."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import wraps
from types import MappingProxyType
from typing import Any

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.former import former_names
from mpmtl_prob._util.html import card
from mpmtl_prob.convex.losses import LeastSquares, Loss
from mpmtl_prob.data.intercepts import completed
from mpmtl_prob.data.matching import match_positions, task_data
from mpmtl_prob.data.prediction import Prediction, linear_prediction
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.privacy.guarantee import Guarantee
from mpmtl_prob.releases.release import Release
from mpmtl_prob.single_task import conjugate


@dataclass(frozen=True, eq=False, repr=False)
class Fitted:
    """Immutable result of a deterministic estimator.

    Attributes:
        W: weights, (d, m); column i belongs to the owner of task i.
        guarantee: privacy guarantee for one task against the owners of the others.
        history: recorded arrays by name, whose first axis is the iteration.
        release: the release that the curator published, if any.
        seconds: wall-clock time of the fit.
        name: name of the estimator, for tables.
        row_guarantee: privacy guarantee for one row against the curator, if any; the two guarantees do not add up.
        tasks: names of W's columns, by which :meth:`predict` matches them; None if only their positions are known.
        features: names of W's rows, likewise.
    """

    W: FloatArray
    guarantee: Guarantee
    history: Mapping[str, FloatArray] = field(default_factory=dict)
    release: Release | None = None
    seconds: float = 0.0
    name: str = "estimator"
    row_guarantee: Guarantee | None = None
    tasks: tuple[Hashable, ...] | None = None
    features: tuple[Hashable, ...] | None = None

    def __post_init__(self) -> None:
        W = np.array(self.W, dtype=np.float64)
        W.setflags(write=False)
        object.__setattr__(self, "W", W)
        object.__setattr__(self, "history", MappingProxyType({k: np.asarray(v) for k, v in self.history.items()}))

    def __reduce__(self) -> tuple[Any, ...]:  # a mapping proxy cannot be pickled
        values = (getattr(self, field.name) for field in fields(self))
        return type(self), tuple(dict(v) if isinstance(v, MappingProxyType) else v for v in values)

    def predict(self, tasks: TaskData) -> Prediction:
        """Predict X_i w_i for every row. Tasks and features are matched by name, and tasks may be a part of the fit's.

        Raises:
            ValueError: the data have tasks or features that were not in the fit.
        """
        if self.tasks is None or self.features is None:
            return linear_prediction(self.W, task_data(tasks, targets=False))
        feature, task = match_positions(tasks, self.tasks, self.features)
        return linear_prediction(self.W[feature][:, task], tasks)

    def __repr__(self) -> str:  # without the weights, which are private to their owners
        d, m = self.W.shape
        lines = [f"{self.name}: {m} tasks, {d} features, fitted in {self.seconds:.2g} s", str(self.guarantee)]
        if self.row_guarantee is not None:
            lines.append(f"one row, from the curator: {self.row_guarantee}")
        return "\n  ".join(lines)

    def _repr_html_(self) -> str:
        d, m = self.W.shape
        facts: dict[str, object] = {"tasks": m, "features": d, "fitted in": f"{self.seconds:.2g} s"}
        facts |= self.guarantee.facts()
        if self.row_guarantee is not None:
            facts |= {f"one row, from the curator: {name}": value for name, value in self.row_guarantee.facts().items()}
        return card(self.name, facts, self.guarantee.reason)


def slopes(tasks: TaskData, loss: Loss | None = None) -> TaskData:
    """Return the data to fit: for least squares the slopes, with the intercept left out; other losses fit it as a feature."""
    return tasks.slopes if loss is None or isinstance(loss, LeastSquares) else tasks


def in_unit_variance(tasks: TaskData) -> tuple[TaskData, FloatArray | None]:
    """Scale the features of tasks that come from a table to unit variance, each task's by its own rows.

    Returns:
        The scaled tasks, and the scale S, (m, d): weights in the table's units are ``S.T * W``. Tasks that come from
        arrays are not scaled, and S is None. An intercept is not scaled.
    """
    scale = unit_variance(tasks)
    return (tasks, None) if scale is None else (tasks.scaled(scale), scale)


def unit_variance(tasks: TaskData) -> FloatArray | None:
    """Return the scale of :func:`in_unit_variance`."""
    if tasks.scaling != "unit_variance":
        return None
    rows = tasks.slopes
    scale = conjugate.scales_of(rows.squares, rows.row_counts, "unit_variance")
    return np.column_stack([scale, np.ones(len(scale))]) if tasks.intercept else scale


def in_own_units(fitted: Fitted, scale: FloatArray | None) -> Fitted:
    """Return a fit of :func:`in_unit_variance` tasks with weights in the units of the table."""
    if scale is None:
        return fitted
    release = None if fitted.release is None else replace(fitted.release, scaling="unit_variance")
    history = {name: scale.T * values if name == "W" else values for name, values in fitted.history.items()}
    return replace(fitted, W=scale.T * fitted.W, release=release, history=history)


def fit_slopes_then_intercept[**P](fit: Callable[P, Fitted]) -> Callable[P, Fitted]:
    """Decorate a method ``fit(self, tasks)`` to fit slopes only; every task then gets its intercept from its own rows.

    Features of tasks that come from a table are scaled to unit variance first, unless the estimator's attribute
    ``scales_tables`` is False. Penalties, clip norms and step sizes are in these units.
    """

    @wraps(fit)
    def aside(self: Any, tasks: TaskData, *arguments: Any, **options: Any) -> Fitted:
        slope_rows = slopes(tasks, getattr(self, "loss", None))
        estimator, rows, scale = in_units_of_fit(self, slope_rows)
        return of_tasks(fit(estimator, rows, *arguments, **options), tasks, slope_rows, scale)  # type: ignore[arg-type]

    return by_name(aside)  # type: ignore[arg-type]


def in_units_of_fit[E](estimator: E, slope_rows: TaskData) -> tuple[E, TaskData, FloatArray | None]:
    """Return the estimator and the rows in the units of the fit, and the scale of :func:`in_unit_variance`."""
    if not getattr(estimator, "scales_tables", True):
        return estimator, slope_rows, None
    rows, scale = in_unit_variance(slope_rows)
    if scale is not None and isinstance(start := getattr(estimator, "start", None), np.ndarray):
        estimator = replace(estimator, start=start / scale.T)  # type: ignore[type-var]
    return estimator, rows, scale


def of_tasks(scaled_fit: Fitted, tasks: TaskData, slope_rows: TaskData, scale: FloatArray | None) -> Fitted:
    """Convert a fit of the slopes from the units of :func:`in_units_of_fit` to the tasks' units, with intercepts."""
    fitted = in_own_units(scaled_fit, scale)
    return fitted if slope_rows is tasks else replace(fitted, W=completed(fitted.W, tasks))


def by_name[**P](fit: Callable[P, Fitted]) -> Callable[P, Fitted]:
    """Decorate a method ``fit(self, tasks)`` so that its result has the names of tasks and features."""

    @wraps(fit)
    def checked(self: Any, tasks: TaskData, *arguments: Any, **options: Any) -> Fitted:
        return named(fit(self, task_data(tasks), *arguments, **options), tasks)  # type: ignore[arg-type]

    return checked  # type: ignore[return-value]


def named(fitted: Fitted, tasks: TaskData) -> Fitted:
    """Return the fit with the names of tasks and features."""
    return replace(fitted, tasks=tasks.tasks, features=tasks.features)


__getattr__ = former_names(__name__, {"intercept_aside": "fit_slopes_then_intercept"})
