"""Views of adversaries: the part of a release that they see, and how far it determines the release.

In the papers' low-rank algorithm, owners never see Sigma. Owner j sends w_j and receives M w_j, M = U diag(1 - c/sqrt(x)) U'
with (x, U) the eigenvalues and eigenvectors of Sigma, truncated at zero. Owners who combine their vectors know M on the span
of these, V'MV. With d independent vectors they know M, and so Sigma.

Source: Aliakbarpour et al. (2024), Definitions 2.7 and 2.8 (joint and 1-out-of-t privacy); TPAMI 2022, Algorithm 2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import whole

#: c in units of the square root of the noise's mean eigenvalue. A small value is the adversary's best case.
SHRINKAGE = 1e-3
_FLOOR = -1e3  # least value of 1 - c/sqrt(x), which would be infinite at x = 0


@dataclass(frozen=True)
class View:
    """View of an adversary: the release itself, or the numbers that some owners receive.

    Attributes:
        name: the view in words.
        owners: number of other owners who combine what they receive; -1 for all; None for the release itself.
        first: position of the first of them among the other owners, from 0.
    """

    name: str
    owners: int | None
    first: int = 0

    def columns(self, others: int) -> slice:
        """Return the positions of these owners among the others. Raises ValueError if there are fewer."""
        if self.owners is None or self.owners == -1:
            return slice(0, others)
        if self.first + self.owners > others:
            raise ValueError(f"view: expected at most {others} other owners, got {self.first + self.owners}")
        return slice(self.first, self.first + self.owners)


def billboard() -> View:
    """Return the view of everybody who sees Sigma: the strongest view, and the one that guarantees are proved for."""
    return View("the release itself", None)


def others() -> View:
    """Return the view of all other tasks' owners together: joint differential privacy, which the papers promise."""
    return View("all other owners", -1)


def coalition(k: int) -> View:
    """Return the view of k other owners together."""
    return View(f"{whole('k', k)} other owners", k)


def single(j: int = 1) -> View:
    """Return the view of one other owner, the j-th of them, from 1: 1-out-of-m privacy."""
    return View("one other owner", 1, whole("j", j) - 1)


def received(sigma: FloatArray, V: FloatArray, c: float) -> FloatArray:
    """Compute what the owners of the columns of V (d, k) receive, M V, for releases sigma (n, d, d): (n, d, k)."""
    x, U = np.linalg.eigh(sigma)
    shrunk = np.maximum(1 - c / np.sqrt(np.maximum(x, 1e-300)), 0.0)
    return (U * shrunk[:, None, :]) @ (np.swapaxes(U, 1, 2) @ V)


def recovered(answers: FloatArray, V: FloatArray, c: float) -> FloatArray:
    """Reconstruct Sigma, (n, d, d), from M V with V of rank d.

    Eigenvalues that the shrinkage truncated are set to c^2, their largest possible value.
    """
    M = answers @ np.linalg.pinv(V)
    s, U = np.linalg.eigh((M + np.swapaxes(M, 1, 2)) / 2)
    x = (c / np.maximum(1 - np.maximum(s, 0.0), 1e-15)) ** 2
    return (U * x[:, None, :]) @ np.swapaxes(U, 1, 2)


def seen_through(answers: FloatArray, V: FloatArray) -> FloatArray:
    """Compute V'MV, (n, k, k): M on the owners' span."""
    return V.T @ answers


def shrunk_on_span(A: FloatArray, V: FloatArray, c: float) -> FloatArray:
    """Compute V'f(A)V with f(x) = 1 - c/sqrt(x), which is operator monotone: Sigma >= A implies V'MV >= V'f(A)V."""
    x, U = np.linalg.eigh(A)
    with np.errstate(divide="ignore"):
        f = np.where(x > 1e-12 * x.max(), np.maximum(1 - c / np.sqrt(np.maximum(x, 0.0)), _FLOOR), _FLOOR)
    return (U.T @ V).T @ (f[:, None] * (U.T @ V))
