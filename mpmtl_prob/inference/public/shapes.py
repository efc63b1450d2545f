"""Draws of the shape of Omega: their means and powers, which are what owners need of the public posterior."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from mpmtl_prob._check import positive
from mpmtl_prob._discreet import Discreet
from mpmtl_prob.tasks import FloatArray


@dataclass(frozen=True, eq=False, repr=False)
class Shapes(Discreet):
    """Draws of a covariance matrix up to its scale.

    Attributes:
        eigenvalues: of every draw, ascending, (S, d).
        vectors: eigenvectors, in columns, (S, d, d).
        axes: the basis (d, d) in which the mean is known to be diagonal, with eigenvalues that do not fall; or None.
    """

    eigenvalues: FloatArray
    vectors: FloatArray
    axes: FloatArray | None = None

    def shape(self, sharpness: float = 1.0) -> FloatArray:
        """The mean of their power, each scaled to trace d, (d, d): :meth:`SharedPosterior.shape`."""
        from scipy.optimize import isotonic_regression  # a quarter of a second to import

        positive("sharpness", sharpness)
        U, power = self.vectors, _powers(self.eigenvalues, sharpness)
        d = U.shape[-1]
        if self.axes is None:
            return d * ((U * power[:, None, :]) @ np.swapaxes(U, -1, -2)).mean(axis=0)
        V = self.axes
        diagonal = np.mean((V.T @ U) ** 2 @ power[..., None], axis=0)[:, 0]
        return d * (V * isotonic_regression(diagonal).x) @ V.T

    def shapes(self, sharpness: ArrayLike) -> FloatArray:
        """As many draws, evenly spaced, as sharpness has entries, each to its power: (S, d, d)."""
        p = np.atleast_1d(np.asarray(sharpness, dtype=np.float64))
        pick = np.linspace(0, len(self.vectors) - 1, len(p)).astype(int)
        U, power = self.vectors[pick], _powers(self.eigenvalues[pick], p[:, None])
        return U.shape[-1] * (U * power[:, None, :]) @ np.swapaxes(U, -1, -2)


def _powers(eigenvalues: FloatArray, sharpness: float | FloatArray) -> FloatArray:
    """Eigenvalues of a shape to this power, summing to 1."""
    power = np.maximum(eigenvalues / eigenvalues[..., -1:], 1e-9) ** sharpness
    return power / power.sum(axis=-1, keepdims=True)
