"""Who is looking: what of a release an adversary sees, and how much of it that gives back.

Owners never see Sigma in the papers' low-rank algorithm. Owner j sends w_j and receives M w_j, M = U diag(1 - c/sqrt(x)) U'
with (x, U) the eigenvalues and eigenvectors of Sigma, cut at zero. Owners who put their vectors together know M on their
span, V'MV; with d independent vectors they know M, and with it Sigma.

Source: Aliakbarpour et al. (2024), Definitions 2.7 and 2.8 (joint and 1-out-of-t privacy); TPAMI 2022, Algorithm 2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import whole

#: c in units of the square root of the mean eigenvalue of the noise: a weak shrinkage, which is the adversary's best case.
SHRINKAGE = 1e-3
_FLOOR = -1e3  # of 1 - c/sqrt(x), where x = 0


@dataclass(frozen=True)
class View:
    """What the adversary sees.

    Attributes:
        name: in words.
        owners: how many other owners put together what they receive; None for whoever sees Sigma itself, -1 for all.
        first: where among the other owners they stand, from 0.
    """

    name: str
    owners: int | None
    first: int = 0

    def columns(self, others: int) -> slice:
        """Which of the other owners these are. Raises ValueError if there are fewer."""
        if self.owners is None or self.owners == -1:
            return slice(0, others)
        if self.first + self.owners > others:
            raise ValueError(f"view: expected at most {others} other owners, got {self.first + self.owners}")
        return slice(self.first, self.first + self.owners)


def billboard() -> View:
    """Everybody who sees Sigma: the strongest view, and the one that is proved."""
    return View("the release itself", None)


def others() -> View:
    """All other tasks' owners together: joint privacy, what the papers promise."""
    return View("all other owners", -1)


def coalition(k: int) -> View:
    """k other owners together."""
    return View(f"{whole('k', k)} other owners", k)


def single(j: int = 1) -> View:
    """One other owner, the j-th of them, from 1: 1-out-of-m privacy."""
    return View("one other owner", 1, whole("j", j) - 1)


def received(sigma: FloatArray, V: FloatArray, c: float) -> FloatArray:
    """What the owners of the columns of V (d, k) receive, M V, for releases sigma (n, d, d): (n, d, k)."""
    x, U = np.linalg.eigh(sigma)
    shrunk = np.maximum(1 - c / np.sqrt(np.maximum(x, 1e-300)), 0.0)
    return (U * shrunk[:, None, :]) @ (np.swapaxes(U, 1, 2) @ V)


def recovered(answers: FloatArray, V: FloatArray, c: float) -> FloatArray:
    """Sigma from M V, (n, d, d), V of rank d; eigenvalues that the shrinkage cut are put at c^2, the largest they can be."""
    M = answers @ np.linalg.pinv(V)
    s, U = np.linalg.eigh((M + np.swapaxes(M, 1, 2)) / 2)
    x = (c / np.maximum(1 - np.maximum(s, 0.0), 1e-15)) ** 2
    return (U * x[:, None, :]) @ np.swapaxes(U, 1, 2)


def seen_through(answers: FloatArray, V: FloatArray) -> FloatArray:
    """V'MV, (n, k, k): M on the owners' span."""
    return V.T @ answers


def shrunk_on_span(A: FloatArray, V: FloatArray, c: float) -> FloatArray:
    """V'f(A)V with f(x) = 1 - c/sqrt(x), which is operator monotone: Sigma >= A implies V'MV >= V'f(A)V."""
    x, U = np.linalg.eigh(A)
    with np.errstate(divide="ignore"):
        f = np.where(x > 1e-12 * x.max(), np.maximum(1 - c / np.sqrt(np.maximum(x, 0.0)), _FLOOR), _FLOOR)
    return (U.T @ V).T @ (f[:, None] * (U.T @ V))
