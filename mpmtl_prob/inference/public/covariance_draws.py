"""Draws of the shape of Omega, their means and powers, as owners need them from the public posterior."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import positive
from mpmtl_prob._util.hidden_arrays import HidesArrays

#: Number of draws from which an owner's message is taken out; owners' errors hardly depend on it.
_DRAWS = 32
#: Smallest number of these draws.
_LEAST = 8
#: More draws are used where they cost fewer operations in all than this, at r^3 operations each.
_CHEAP = 1e6
#: Fewer draws are used where they would cost more operations than this.
_EXPENSIVE = 2e8
#: Smallest eigenvalue of a power, as a share of the largest one: with less, rounding errors can make a power indefinite.
_SMALLEST = 1e-10


@dataclass(frozen=True, eq=False, repr=False)
class CovarianceDraws(HidesArrays):
    """Draws of a covariance matrix up to its scale.

    Attributes:
        eigenvalues: of every draw, ascending, (S, r).
        vectors: eigenvectors, in columns, (S, d, r), in the basis of ``axes``.
        axes: the basis (d, d) in which the mean is known to be diagonal, with ascending eigenvalues; None where no such basis
            is known, and vectors have the coordinates of the features.
        floor: lower bound of the eigenvalues, which is the eigenvalue of the d - r other directions, (S,); None where it is
            not known, and r = d.
    """

    eigenvalues: FloatArray
    vectors: FloatArray
    axes: FloatArray | None = None
    floor: FloatArray | None = None

    def shape(self, power: float = 1.0) -> FloatArray:
        """Return the mean of the draws' power, each scaled to trace d, (d, d): :meth:`SharedPosterior.shape`."""
        from scipy.optimize import isotonic_regression  # imported here because it takes a quarter of a second

        positive("power", power)
        if self.axes is None:
            return self._powers(power).mean(axis=0)
        above, floor = self._spectra(power)
        diagonal = np.mean((self.vectors**2 @ above[..., None])[..., 0] + floor, axis=0)
        # the true mean ascends along the axes, so that a fall is a Monte Carlo error
        return len(diagonal) * (self.axes * isotonic_regression(diagonal).x) @ self.axes.T

    def shapes(self, power: ArrayLike) -> FloatArray:
        """Return as many draws, evenly spaced, as ``power`` has entries, each raised to its power, (S, d, d)."""
        p = np.atleast_1d(np.asarray(power, dtype=np.float64))
        draws = self._some(len(p))._powers(p[:, None])
        return draws if self.axes is None else self.axes @ draws @ self.axes.T

    def leave_one_out(self, w: FloatArray, share: float, axes: FloatArray) -> CovarianceDraws:
        """Return some of the draws less a share of w w', with eigenvalues not below their floor.

        Args:
            w: a message, (d,).
            share: between 0 and 1.
            axes: of the result, (d, d).

        Raises:
            ValueError: draws whose axes and floor are not known.
        """
        if self.axes is None or self.floor is None:
            raise ValueError("leave_one_out: expected draws with known axes and floor")
        r = self.vectors.shape[-1]
        count = max(_LEAST, min(max(_DRAWS, _CHEAP // r**3), _EXPENSIVE // r**3))
        some = self._some(min(len(self.vectors), int(count)))
        U = some.vectors
        eigenvalues = some.eigenvalues
        floor = np.asarray(some.floor)[:, None]
        along_axes = self.axes.T @ w
        if r < len(w):
            # the part of w outside the r directions needs a direction of its own
            with_w = np.concatenate([U, np.broadcast_to(along_axes[:, None], (*U.shape[:2], 1))], axis=-1)
            U = np.concatenate([np.linalg.qr(with_w)[0][..., -1:], U], axis=-1)
            eigenvalues = np.concatenate([floor, eigenvalues], axis=-1)
        z = along_axes @ U
        reduced = eigenvalues[..., None] * np.eye(U.shape[-1]) - share * z[..., None] * z[:, None, :]
        eigenvalues, T = np.linalg.eigh(reduced)
        return CovarianceDraws(np.maximum(eigenvalues, floor), (axes.T @ self.axes) @ (U @ T), axes, floor[:, 0])

    def _some(self, count: int) -> CovarianceDraws:
        """Return a number of draws, evenly spaced."""
        pick = np.linspace(0, len(self.vectors) - 1, count).astype(int)
        floor = None if self.floor is None else self.floor[pick]
        return CovarianceDraws(self.eigenvalues[pick], self.vectors[pick], self.axes, floor)

    def _powers(self, power: float | FloatArray) -> FloatArray:
        """Return the draws' powers, scaled to trace d, (S, d, d), in the basis of the axes."""
        above, floor = self._spectra(power)
        U = self.vectors
        d = U.shape[-2]
        return d * ((U * above[:, None, :]) @ np.swapaxes(U, -1, -2) + floor[..., None] * np.eye(d))

    def _spectra(self, power: float | FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the draws' powers, scaled to trace 1: eigenvalues' excess over their floor (S, r), and the floor (S, 1)."""
        top = self.eigenvalues[:, -1:]
        num_others = self.vectors.shape[-2] - self.vectors.shape[-1]

        def raised(values: FloatArray) -> FloatArray:
            return np.maximum(np.maximum(values / top, 0.0) ** power, _SMALLEST)

        spectra = raised(self.eigenvalues)
        floor = np.zeros_like(top) if self.floor is None else raised(self.floor[:, None])
        trace = spectra.sum(axis=-1, keepdims=True) + num_others * floor
        return (spectra - floor) / trace, floor / trace
