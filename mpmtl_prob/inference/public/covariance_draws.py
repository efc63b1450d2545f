"""Draws of the shape of Omega: their means and powers, which are what owners need of the public posterior."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import positive
from mpmtl_prob._util.hidden_arrays import HidesArrays

#: A message is taken out of so many draws: of more where matrices are so small that they cost little, r^3 operations each, of
#: fewer where they are large, but not of less than the least. Owners hardly notice how many they are.
_DRAWS, _LEAST, _LITTLE, _MUCH = 32, 8, 1e6, 2e8


@dataclass(frozen=True, eq=False, repr=False)
class CovarianceDraws(HidesArrays):
    """Draws of a covariance matrix up to its scale.

    Attributes:
        eigenvalues: of every draw, ascending, (S, r).
        vectors: eigenvectors, in columns, (S, d, r), in the basis of ``axes``.
        axes: the basis (d, d) in which the mean is known to be diagonal, with eigenvalues that do not fall; None where none
            is known, and vectors have the coordinates of the features.
        floor: below which no eigenvalue can be, and that of the d - r other directions, (S,); None where it is not known,
            and r = d.
    """

    eigenvalues: FloatArray
    vectors: FloatArray
    axes: FloatArray | None = None
    floor: FloatArray | None = None

    def shape(self, power: float = 1.0) -> FloatArray:
        """The mean of their power, each scaled to trace d, (d, d): :meth:`SharedPosterior.shape`."""
        from scipy.optimize import isotonic_regression  # a quarter of a second to import

        positive("power", power)
        if self.axes is None:
            return self._raised(power).mean(axis=0)
        above, rest = self._spectra(power)
        diagonal = np.mean((self.vectors**2 @ above[..., None])[..., 0] + rest, axis=0)
        return len(diagonal) * (self.axes * isotonic_regression(diagonal).x) @ self.axes.T

    def shapes(self, power: ArrayLike) -> FloatArray:
        """Return as many draws, evenly spaced, as power has entries, each to its power: (S, d, d)."""
        p = np.atleast_1d(np.asarray(power, dtype=np.float64))
        draws = self._some(len(p))._raised(p[:, None])
        return draws if self.axes is None else self.axes @ draws @ self.axes.T

    def leave_one_out(self, w: FloatArray, share: float, axes: FloatArray) -> CovarianceDraws:
        """Some of the draws less this share of w w', w (d,), not below their floor, in other axes.

        Raises:
            ValueError: draws whose axes and floor are not known.
        """
        if self.axes is None or self.floor is None:
            raise ValueError("less: expected draws with known axes and floor")
        r = self.vectors.shape[-1]
        count = max(_LEAST, min(max(_DRAWS, _LITTLE // r**3), _MUCH // r**3))
        some = self._some(min(len(self.vectors), int(count)))
        U, eigenvalues, floor, here = some.vectors, some.eigenvalues, np.asarray(some.floor)[:, None], self.axes.T @ w
        if r < len(w):  # and w's own direction, as far as it is another
            both = np.concatenate([U, np.broadcast_to(here[:, None], (*U.shape[:2], 1))], axis=-1)
            U = np.concatenate([np.linalg.qr(both)[0][..., -1:], U], axis=-1)
            eigenvalues = np.concatenate([floor, eigenvalues], axis=-1)
        z = here @ U
        found, T = np.linalg.eigh(eigenvalues[..., None] * np.eye(U.shape[-1]) - share * z[..., None] * z[:, None, :])
        return CovarianceDraws(np.maximum(found, floor), (axes.T @ self.axes) @ (U @ T), axes, floor[:, 0])

    def _some(self, count: int) -> CovarianceDraws:
        pick = np.linspace(0, len(self.vectors) - 1, count).astype(int)
        floor = None if self.floor is None else self.floor[pick]
        return CovarianceDraws(self.eigenvalues[pick], self.vectors[pick], self.axes, floor)

    def _raised(self, power: float | FloatArray) -> FloatArray:
        """Powers, scaled to trace d, (S, d, d), in the basis of the axes."""
        (above, rest), U = self._spectra(power), self.vectors
        d = U.shape[-2]
        return d * ((U * above[:, None, :]) @ np.swapaxes(U, -1, -2) + rest[..., None] * np.eye(d))

    def _spectra(self, power: float | FloatArray) -> tuple[FloatArray, FloatArray]:
        """Split eigenvalues of every power, scaled to trace 1: what they are above the others, (S, r), and these, (S, 1)."""
        top, besides = self.eigenvalues[:, -1:], self.vectors.shape[-2] - self.vectors.shape[-1]
        raised = lambda values: np.maximum(values / top, 1e-9) ** power
        spectra = raised(self.eigenvalues)
        rest = np.zeros_like(top) if self.floor is None else raised(self.floor[:, None])
        trace = spectra.sum(axis=-1, keepdims=True) + besides * rest
        return (spectra - rest) / trace, rest / trace
