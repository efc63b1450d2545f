"""Units of a task's columns: rows are taken to them, and coefficients back to those of the table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpmtl_prob._util.arrays import FloatArray


@dataclass(frozen=True, eq=False)
class Units:
    """Centre and scale of d columns and of a target, and the effects round which messages are taken.

    In these units x' = (x - centre) / scale and y' = (y - target_centre) / target_scale. Where there is an intercept it is
    the last column, with centre 0 and scale 1.

    Attributes:
        centre: (d,).
        scale: (d,), positive.
        target_centre: a number.
        target_scale: a positive number.
        guess: effects in these units, (d,).
        intercept: whether the last column is the constant one.
    """

    centre: FloatArray
    scale: FloatArray
    target_centre: float
    target_scale: float
    guess: FloatArray
    intercept: bool = False

    def rows(self, X: FloatArray) -> FloatArray:
        """Rows (n, d) in these units."""
        return (X - self.centre) / self.scale

    def targets(self, y: FloatArray) -> FloatArray:
        """Targets (n,) in these units."""
        return (y - self.target_centre) / self.target_scale

    def to_table(self, effects: FloatArray) -> FloatArray:
        """Effects (..., d) in the units of the table: the target's change for one unit of a column.

        An intercept is the target where all columns are 0 in the table; without one, what the centres stand for is
        :meth:`offset`.
        """
        out = np.asarray(effects) * (self.target_scale / self.scale)
        if self.intercept:
            shift = self.target_centre - out[..., :-1] @ self.centre[:-1]
            out = np.concatenate([out[..., :-1], (out[..., -1] + shift)[..., None]], axis=-1)
        return out

    def from_table(self, effects: FloatArray, covariance: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Effects (d,) of the table, and their covariance (d, d), in these units: the way back from :meth:`to_table`."""
        change = np.diag(self.scale / self.target_scale)
        effects = np.array(effects, dtype=np.float64)
        if self.intercept:
            change[-1, :-1] = self.centre[:-1] / self.target_scale
            effects[-1] -= self.target_centre
        return change @ effects, change @ covariance @ change.T

    def offset(self, effects: FloatArray) -> FloatArray:
        """What predictions of the table's targets have beside the sum over columns, for effects (..., d) in these units."""
        if self.intercept:
            return np.zeros(np.shape(effects)[:-1])
        return self.target_centre - self.to_table(effects) @ self.centre


def own_units(X: FloatArray, y: FloatArray) -> Units:
    """Return units by a task's own rows (n, d) and targets (n,), for studies that declare none: root mean squares.

    Columns and targets without any variation have scale 1, so that a column of zeros stays one.
    """
    with np.errstate(all="ignore"):  # a warning would tell of one task
        scale, of_target = _size(X), float(_size(y))
    return Units(np.zeros(len(scale)), scale, 0.0, of_target, np.zeros(len(scale)))


def _size(values: FloatArray) -> FloatArray:
    """Root mean square of every column, without overflow; 1 where that is zero or no number."""
    largest = np.abs(values).max(axis=0, initial=0.0)
    size = largest * np.sqrt(np.mean((values / np.where(largest > 0, largest, 1.0)) ** 2, axis=0))
    return np.where((size > 0) & np.isfinite(size), size, 1.0)
