"""Units of columns: conversion of rows to common units, and of coefficients back to those of the table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpmtl_prob._util.arrays import FloatArray


@dataclass(frozen=True, eq=False)
class Units:
    """Centre and scale of d columns and of a target, and guesses of effects from which messages deviate.

    In these units x' = (x - centre) / scale and y' = (y - target_centre) / target_scale. An intercept is the last column,
    with centre 0 and scale 1.

    Attributes:
        centre: (d,).
        scale: (d,), positive.
        target_centre: a number.
        target_scale: a positive number.
        guess: effects in these units, (d,).
        intercept: True if the last column is the constant one.
    """

    centre: FloatArray
    scale: FloatArray
    target_centre: float
    target_scale: float
    guess: FloatArray
    intercept: bool = False

    def rows(self, X: FloatArray) -> FloatArray:
        """Convert rows (n, d) to these units."""
        return (X - self.centre) / self.scale

    def targets(self, y: FloatArray) -> FloatArray:
        """Convert targets (n,) to these units."""
        return (y - self.target_centre) / self.target_scale

    def to_table(self, effects: FloatArray) -> FloatArray:
        """Convert effects (..., d) to the units of the table: the change of the target for one unit of a column.

        An intercept becomes the target at 0 in all columns of the table. Without an intercept, :meth:`offset` returns the
        contribution of the centres.
        """
        out = np.asarray(effects) * (self.target_scale / self.scale)
        if self.intercept:
            shift = self.target_centre - out[..., :-1] @ self.centre[:-1]
            out = np.concatenate([out[..., :-1], (out[..., -1] + shift)[..., None]], axis=-1)
        return out

    def from_table(self, effects: FloatArray, covariance: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Convert effects (d,) of the table and their covariance (d, d) to these units: the inverse of :meth:`to_table`."""
        change = np.diag(self.scale / self.target_scale)
        effects = np.array(effects, dtype=np.float64)
        if self.intercept:
            change[-1, :-1] = self.centre[:-1] / self.target_scale
            effects[-1] -= self.target_centre
        return change @ effects, change @ covariance @ change.T

    def offset(self, effects: FloatArray) -> FloatArray:
        """Return the constant that predictions of the table's targets need beside their columns, for effects (..., d)."""
        if self.intercept:
            return np.zeros(np.shape(effects)[:-1])
        return self.target_centre - self.to_table(effects) @ self.centre


def own_units(X: FloatArray, y: FloatArray) -> Units:
    """Return units from a task's own rows (n, d) and targets (n,), for studies without reference values: root mean squares.

    Constant columns of zeros, and such targets, have scale 1, so that they stay zero.
    """
    with np.errstate(all="ignore"):  # a warning would reveal something of one task
        scale = _size(X)
        target_scale = float(_size(y))
    return Units(np.zeros(len(scale)), scale, 0.0, target_scale, np.zeros(len(scale)))


def _size(values: FloatArray) -> FloatArray:
    """Return the root mean square of every column, without overflow; 1 where that is zero or not finite."""
    largest = np.abs(values).max(axis=0, initial=0.0)
    size = largest * np.sqrt(np.mean((values / np.where(largest > 0, largest, 1.0)) ** 2, axis=0))
    return np.where((size > 0) & np.isfinite(size), size, 1.0)
