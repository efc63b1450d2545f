"""A first look at a release, at once: what its moments say before anything is sampled."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob.inference.public.init import observed, suggested
from mpmtl_prob.releases.release import Release


@dataclass(frozen=True, eq=False, repr=False)
class FirstLook:
    """An estimate without a model: :func:`first_look`.

    Attributes:
        omega: a guess of Omega's shape, scaled to mean variance 1, (d, d).
        spectrum: its eigenvalues as shares of their sum, descending, (d,).
        visible: how many directions of the release stand clear of its noise.
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
    """Return what the moments of a release say, in milliseconds: Sigma less the noise's mean, where it stands clear of it.

    Hidden directions share what is left, equally. It has no intervals, and where little stands clear it is nearly the
    identity; :func:`shared_covariance` is the posterior.

    Raises:
        ValueError: no release, or noise without a known density.

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
