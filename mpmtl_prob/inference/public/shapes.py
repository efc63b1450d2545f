"""Draws of the shape of Omega: their means and powers, which are what owners need of the public posterior."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from mpmtl_prob._check import positive
from mpmtl_prob._discreet import Discreet
from mpmtl_prob.tasks import FloatArray

#: Draws of which a message is taken are so many at least, and of small matrices, d^3 operations each, as many as cost little.
_FEWEST, _LITTLE = 32, 1_000_000


@dataclass(frozen=True, eq=False, repr=False)
class Shapes(Discreet):
    """Draws of a covariance matrix up to its scale.

    Attributes:
        eigenvalues: of every draw, ascending, (S, r).
        vectors: eigenvectors, in columns, (S, d, r).
        axes: the basis (d, d) in which the mean is known to be diagonal, with eigenvalues that do not fall; or None.
        floor: below which no eigenvalue can be, and that of the d - r other directions, (S,); None where r = d.
    """

    eigenvalues: FloatArray
    vectors: FloatArray
    axes: FloatArray | None = None
    floor: FloatArray | None = None

    def shape(self, sharpness: float = 1.0) -> FloatArray:
        """The mean of their power, each scaled to trace d, (d, d): :meth:`SharedPosterior.shape`."""
        from scipy.optimize import isotonic_regression  # a quarter of a second to import

        positive("sharpness", sharpness)
        if self.axes is None:
            return self._raised(sharpness).mean(axis=0)
        V, (above, rest) = self.axes, self._spectra(sharpness)
        diagonal = np.mean(((V.T @ self.vectors) ** 2 @ above[..., None])[..., 0] + rest, axis=0)
        return len(V) * (V * isotonic_regression(diagonal).x) @ V.T

    def shapes(self, sharpness: ArrayLike) -> FloatArray:
        """As many draws, evenly spaced, as sharpness has entries, each to its power: (S, d, d)."""
        p = np.atleast_1d(np.asarray(sharpness, dtype=np.float64))
        pick = np.linspace(0, len(self.vectors) - 1, len(p)).astype(int)
        floor = None if self.floor is None else self.floor[pick]
        return Shapes(self.eigenvalues[pick], self.vectors[pick], None, floor)._raised(p[:, None])

    def less(self, w: FloatArray, share: float, axes: FloatArray) -> Shapes:
        """Draws less this share of w w', w (d,), not below their floor, with other axes."""
        S, d, r = self.vectors.shape
        pick = np.linspace(0, S - 1, min(S, max(_FEWEST, _LITTLE // d**3))).astype(int)
        U, eigenvalues, floor = self.vectors[pick], self.eigenvalues[pick], np.asarray(self.floor)[pick, None]
        if r < d:  # w's own part besides, wherever there is one
            both = np.concatenate([U, np.broadcast_to(w[:, None], (len(pick), d, 1))], axis=-1)
            U = np.concatenate([np.linalg.qr(both)[0][..., -1:], U], axis=-1)
            eigenvalues = np.concatenate([floor, eigenvalues], axis=-1)
        z = w @ U
        found, T = np.linalg.eigh(eigenvalues[..., None] * np.eye(U.shape[-1]) - share * z[..., None] * z[:, None, :])
        return Shapes(np.maximum(found, floor), U @ T, axes, floor[:, 0])

    def _raised(self, sharpness: float | FloatArray) -> FloatArray:
        (above, rest), U = self._spectra(sharpness), self.vectors
        d = U.shape[-2]
        return d * ((U * above[:, None, :]) @ np.swapaxes(U, -1, -2) + rest[..., None] * np.eye(d))

    def _spectra(self, sharpness: float | FloatArray) -> tuple[FloatArray, FloatArray]:
        """Of every power, scaled to trace 1: what eigenvalues are above the others, (S, r), and these, (S, 1)."""
        top, besides = self.eigenvalues[:, -1:], self.vectors.shape[-2] - self.vectors.shape[-1]
        raised = lambda values: np.maximum(values / top, 1e-9) ** sharpness
        power = raised(self.eigenvalues)
        rest = np.zeros_like(top) if self.floor is None else raised(self.floor[:, None])
        trace = power.sum(axis=-1, keepdims=True) + besides * rest
        return (power - rest) / trace, rest / trace
