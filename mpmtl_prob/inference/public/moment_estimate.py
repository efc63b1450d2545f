"""Moment estimate of the covariance that tasks share, in milliseconds and before anything is sampled."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob.inference.public.init import observed, suggested
from mpmtl_prob.releases.release import Release


@dataclass(frozen=True, eq=False, repr=False)
class FirstLook:
    """Moment estimate of :func:`first_look`.

    Attributes:
        omega: an estimate of Omega's shape, scaled to mean variance 1, (d, d).
        spectrum: its eigenvalues as shares of their sum, descending, (d,).
        visible: number of directions of the release that are clearly larger than its noise.
    """

    omega: FloatArray
    spectrum: FloatArray
    visible: int

    def __str__(self) -> str:
        d = len(self.spectrum)
        largest = ", ".join(f"{share:.2f}" for share in self.spectrum[:3])
        return (
            f"First look, from moments, not the posterior: {self.visible} of {d} directions stand clear of the noise; "
            f"largest shares of the weights' variance {largest}"
        )

    __repr__ = __str__


def first_look(release: Release) -> FirstLook:
    """Estimate Omega's shape from the moments of a release, in milliseconds.

    It is Sigma less the noise's mean in directions that are clearly larger than the noise; the other directions share the
    rest equally. It has no intervals, and is nearly the identity where the noise is large. :func:`shared_covariance` samples
    the posterior.

    Raises:
        ValueError: an argument that is not a release, or noise without a known density.

    >>> train, _, _ = mp.datasets.synthetic_low_rank(num_tasks=40, num_features=3, rows=10)
    >>> mp.inference.first_look(mp.release(train, epsilon=10.0)).omega.shape
    (3, 3)
    """
    if not isinstance(release, Release):
        raise ValueError(f"release: expected a Release, got {type(release).__name__}; make one with mpmtl_prob.release")
    public = observed(release)
    omega = suggested(public)
    omega = omega * len(omega) / np.trace(omega)
    eigenvalues = np.linalg.eigvalsh(omega)[::-1]
    return FirstLook(omega, eigenvalues / eigenvalues.sum(), int(np.sum(np.asarray(public.noise_dominance) < 0.5)))
