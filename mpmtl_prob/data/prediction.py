"""What a fit says of every row: predicted targets, with intervals where the predictor knows its uncertainty."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.former import FormerName

if TYPE_CHECKING:
    import pandas as pd

    from mpmtl_prob.data.tasks import TaskData


@dataclass(frozen=True, eq=False, repr=False)
class Prediction:
    """Predicted targets of every row, with intervals where the predictor knows its uncertainty.

    Attributes:
        mean: (m, n_max), zero on padding.
        mask: as in the TaskData predicted on.
        tasks: task names.
        centered_draws: posterior predictive draws less ``around``, in units of ``unit`` (S, m, n_max), or None for a point
            predictor. In single precision they lose a part of how far they vary, and no more.
        quantity: what mean and draws are of: "target", or "probability" of the target 1 where targets are -1 and 1.
        around: (m, n_max), or one number.
        unit: of every row, (m, n_max), or one number: a power of two, so that single precision reaches any target.
    """

    mean: FloatArray
    mask: NDArray[np.bool_]
    tasks: tuple[Hashable, ...]
    centered_draws: NDArray[np.floating[Any]] | None = None
    quantity: str = "target"
    around: FloatArray | float = 0.0
    unit: FloatArray | float = 1.0

    away = FormerName("centered_draws")

    @property
    def draws(self) -> NDArray[np.floating[Any]] | None:
        """Posterior predictive draws (S, m, n_max), or None for a point predictor."""
        return None if self.centered_draws is None else self.centered_draws * self.unit + self.around

    def interval(self, probability: float = 0.9) -> tuple[FloatArray, FloatArray]:
        """Central interval of the given probability, a pair of (m, n_max) arrays.

        Raises:
            ValueError: probability outside (0, 1), or a predictor that gives no distribution.
        """
        if not 0 < probability < 1:
            raise ValueError(f"probability: expected a number strictly between 0 and 1, got {probability!r}")
        if self.centered_draws is None:
            raise ValueError("interval: this predictor gives points, no distribution; fit a posterior for intervals")
        tail = (1 - probability) / 2
        lower, upper = np.quantile(self.centered_draws, [tail, 1 - tail], axis=0)
        return lower * self.unit + self.around, upper * self.unit + self.around

    def to_pandas(self, probability: float = 0.9) -> pd.DataFrame:
        """One row per observation: task, row within the task, mean and, where there is one, the interval."""
        import pandas as pd

        task, row = np.nonzero(self.mask)
        columns = {"task": np.asarray(self.tasks, dtype=object)[task], "row": row, "mean": self.mean[self.mask]}
        if self.centered_draws is not None:
            lower, upper = self.interval(probability)
            columns |= {"lower": lower[self.mask], "upper": upper[self.mask]}
        return pd.DataFrame(columns)

    def __repr__(self) -> str:
        kind = "points" if self.centered_draws is None else f"{len(self.centered_draws)} draws"
        return f"Prediction({len(self.tasks)} tasks, {int(self.mask.sum())} rows, {kind})"


def in_single(away: FloatArray) -> tuple[NDArray[np.float32], FloatArray]:
    """Return draws (S, ...) in single precision, and the unit that they are in, (...), a power of two above the largest.

    Nothing overflows, and what is lost beside the largest draw of a row does not show in an interval.
    """
    unit = power_above(np.abs(away).max(axis=0, initial=0.0))
    return (away / unit).astype(np.float32), unit


def power_above(size: FloatArray) -> FloatArray:
    """Return the powers of two above sizes, as far as they and their reciprocals are doubles."""
    return np.ldexp(1.0, np.clip(np.frexp(size)[1], -1000, 1000))


def linear_prediction(W: FloatArray, data: TaskData) -> Prediction:
    """X_i w_i of every task, for weights W (d, m).

    Raises:
        ValueError: data whose tasks or features are not those of W.
    """
    check_weights(W, data)
    return Prediction((data.X @ W.T[..., None])[..., 0], data.mask, data.tasks)


def check_weights(W: NDArray[Any], data: TaskData) -> None:
    """Raise ValueError unless W is (d, m) for the d features and m tasks of data."""
    if W.shape != (data.num_features, data.num_tasks):
        raise ValueError(
            f"tasks: expected {W.shape[0]} features and {W.shape[1]} tasks as in the fit, "
            f"got {data.num_features} and {data.num_tasks}"
        )
