"""Error bounds of Algorithms 2 and 3: rates, up to constants, and the T that achieves them.

With M the size of the noise and mu = 0, the error is O(K^2 L (M / c)^phi); a mu-strongly convex loss has O(K (M / c)^p). The
budgets grow as eps_t ~ t^alpha or Q^{-t}. Three settings say how they add up to eps:

    delta = 0                        eps = sum eps_t                                    Theorems 7 to 11
    delta > 0, composition "plain"   the second term of CB, with log(1/delta)           Theorems 12 to 16
    delta > 0, composition "best"    its third, with log(e + sqrt(sum eps_t^2)/delta)   Theorems 2 to 6

Where the printed versions disagree, this is what the proofs give:

- the noise of a low-rank round has a factor K and that of a group-sparse one none (TPAMI, arXiv); the supplement of January
  2018 has none and 1/K;
- in M the logarithm is log(e + eps / (sqrt(2) delta)), as sqrt(sum eps_t^2) <= eps / sqrt(2); TPAMI's Assumption 1 prints
  sqrt(2 delta);
- T is ((alpha/2 - 1)^2 / M)^phi without acceleration (arXiv); TPAMI's Theorems 2 and 3 lack the 1 / M;
- with acceleration the second argument of psi is Q_0' = 1 - sqrt(mu/L) (Theorem 5, supplement), not Q_0^2 (TPAMI's
  Theorem 4): only then is the power 1, as Theorem 6 has it.

Source: TPAMI 2022, section 4.4, Theorems 2 to 6 and Table 2; supplement, appendix E, Theorems 7 to 16.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mpmtl_prob._util.checks import in_range, one_of, positive, whole
from mpmtl_prob.privacy.accounting.budgets import best_alpha, best_q


def phi(alpha: float, *, accelerated: bool, pure: bool = False) -> float:
    """The power of the rate for a convex loss and eps_t ~ t^alpha.

    Args:
        alpha: any number.
        accelerated: with beta_t = (t-1)/(t+2) rather than 0.
        pure: with delta = 0.

    Source: equations (12) and (14); with delta = 0, equations (26) and (28) of the supplement.
    """
    a = 2 if accelerated else 1
    edge = -1.0 if pure else -0.5  # below, the budgets of all rounds together stay finite
    if alpha < edge:
        return a / (2 * a - alpha)  # 1 / (2 - alpha); 2 / (4 - alpha)
    above = max(alpha, 2 * a)  # on the plateau phi is what it is at its right end, alpha = 2 or 4
    return a / (above + 1) if pure else 2 * a / (2 * above + 1)


def psi(q: float, other: float) -> float:
    """psi(Q, Q~) of equation (18): Q below Q~, Q~ from there to 1, Q~ / Q above 1.

    Args:
        q: Q > 0.
        other: Q~ in (0, 1).
    """
    positive("q", q)
    in_range("other", other, 0, 1)
    return min(q, other) if q <= 1 else other / q


@dataclass(frozen=True)
class UtilityBound:
    """The rates for one problem. They mean something where ``noise`` is far below 1.

    There m is far above ``tasks_needed``: that is the papers' Assumption 1.

    Attributes:
        num_tasks: m.
        num_features: d >= 2.
        epsilon: the budget claimed for all rounds together.
        delta: in [0, 1); 0 adds the rounds' budgets up.
        norm: "low rank" (Algorithm 2) or "group sparse" (Algorithm 3).
        accelerated: beta_t = (t-1)/(t+2), or (1 - sqrt(mu/L))/(1 + sqrt(mu/L)), rather than 0.
        curvature: L.
        strong_convexity: mu in [0, L); above 0 the loss is mu-strongly convex.
        clip: K.
        index: k, how many singular values or rows survive the threshold.
        composition: "best" or "plain", with delta > 0.

    Raises:
        ValueError: an argument outside its range.
    """

    num_tasks: int
    num_features: int
    epsilon: float
    delta: float = 0.0
    norm: str = "low rank"
    accelerated: bool = True
    curvature: float = 1.0
    strong_convexity: float = 0.0
    clip: float = 1.0
    index: int = 1
    composition: str = "best"

    def __post_init__(self) -> None:
        whole("num_tasks", self.num_tasks)
        whole("num_features", self.num_features, 2)
        whole("index", self.index)
        positive("epsilon", self.epsilon)
        positive("clip", self.clip)
        in_range("delta", self.delta, 0, 1, left_closed=True)
        in_range("strong_convexity", self.strong_convexity, 0, positive("curvature", self.curvature), left_closed=True)
        one_of("norm", self.norm, ("low rank", "group sparse"))
        one_of("composition", self.composition, ("best", "plain"))

    @property
    def tasks_needed(self) -> float:
        """The m of Assumption 1 with its constant C = 1, which the rates need to be exceeded by far; C is not known.

        K^2 d^2 log^2(d) (log(e + eps / (sqrt(2) delta)) + 2 eps) / eps^2 for low rank, and
        log(d) sqrt(log(e + eps / (sqrt(2) delta)) + 2 eps) / eps for group sparsity. With "plain" composition, or delta = 0,
        the term of delta is that of the rate.
        """
        ratio = self._confidence * np.log(self.num_features) / self.epsilon
        return float((self.clip * self.num_features * ratio) ** 2 if self.norm == "low rank" else ratio)

    def enough_tasks(self, constant: float = 1.0) -> bool:
        """Check Assumption 1: whether m is at least C times ``tasks_needed``, below which the rates say nothing.

        Args:
            constant: C > 0, which the papers only call sufficiently large. Fewer tasks than with C = 1 are too few by any
                reading; more with C = 1 need not be enough.

        Raises:
            ValueError: an argument outside its range.
        """
        return self.num_tasks >= positive("constant", constant) * self.tasks_needed

    @property
    def best_growth(self) -> float:
        """The alpha, or with a strongly convex loss the Q, of the smallest rate: Theorems 6, 11 and 16."""
        pure = self.delta == 0
        if self.strong_convexity == 0:
            return best_alpha(accelerated=self.accelerated, pure=pure)
        return best_q(self.strong_convexity / self.curvature, accelerated=self.accelerated, pure=pure)

    def power(self, growth: float | None = None) -> float:
        """phi(alpha), or log_psi(Q, Q~) Q_0, in which Q~ is Q_0^2 without and Q_0' with acceleration.

        Args:
            growth: alpha, or Q with a strongly convex loss; default the best.
        """
        growth = self.best_growth if growth is None else growth
        if self.strong_convexity == 0:
            return phi(growth, accelerated=self.accelerated, pure=self.delta == 0)
        return float(np.log(self._contraction) / np.log(psi(growth, self._reach)))

    def noise(self, growth: float | None = None) -> float:
        """M: with M_0, K k d log(d) / sqrt(m) for low rank, and k log(d) / m for group sparsity. Argument as ``power``."""
        growth = self.best_growth if growth is None else growth
        m, d, eps = self.num_tasks, self.num_features, self.epsilon
        if self.strong_convexity == 0:
            spread = abs(growth + 1) if self.delta == 0 else np.sqrt(abs(2 * growth + 1))
        else:
            spread = abs(1 - growth) if self.delta == 0 else np.sqrt(abs(1 - growth**2))
        scale = self.clip * d / float(m) ** 0.5 if self.norm == "low rank" else 1 / m
        with np.errstate(divide="ignore"):  # where the rate has a pole the papers say nothing: infinite
            return float(np.divide(self._confidence, spread * eps) * self.index * np.log(d) * scale)

    def rounds(self, growth: float | None = None) -> float:
        """T, up to a constant: (c / M)^phi, half that power with acceleration; log_{1/psi}(c / M) if strongly convex.

        Argument as ``power``. At least 1.
        """
        growth = self.best_growth if growth is None else growth
        with np.errstate(divide="ignore"):
            room = np.divide(self._gap(growth), self.noise(growth))
        if self.strong_convexity == 0:
            return float(max(1.0, room ** (self.power(growth) / (2 if self.accelerated else 1))))
        with np.errstate(divide="ignore"):
            return float(max(1.0, np.log(room) / -np.log(psi(growth, self._reach))))

    @property
    def rounds_saved(self) -> float:
        """T without acceleration over T with it, each at its best growth, up to constants.

        Claim 2 says that it is above 1 where M is small, and with a strongly convex loss mu/L < 0.3819.
        """
        without, with_it = (replace(self, accelerated=accelerated).rounds() for accelerated in (False, True))
        return without / with_it

    def rate(self, growth: float | None = None) -> float:
        """The error after so many rounds, up to a constant; with high probability. Argument as ``power``.

        f(W^) - f(W*) for a convex loss, f the average over tasks; ||W^ - W*||_F / sqrt(m) for a strongly convex one without
        and f(W^) - f(W*) with acceleration. Equations (11) to (21), (25) to (34) and (35) to (44).
        """
        growth = self.best_growth if growth is None else growth
        with np.errstate(divide="ignore"):
            ratio = np.divide(self.noise(growth), self._gap(growth))
        front = self.clip**2 * self.curvature if self.strong_convexity == 0 else self.clip
        return float(front * ratio ** self.power(growth))

    @property
    def _confidence(self) -> float:
        """The part of M that depends on delta, and on how rounds are composed."""
        if self.delta == 0:
            return 1.0
        eps = self.epsilon
        if self.composition == "plain":
            return float(np.sqrt(np.log(1 / self.delta) + 2 * eps))
        return float(np.sqrt(np.log(np.e + eps / (np.sqrt(2) * self.delta)) + 2 * eps))

    def _gap(self, growth: float) -> float:
        """c: (alpha/2 - 1)^2, (alpha/2 - 2)^2; (Q_0 / sqrt(Q) - 1)^2, (sqrt(Q_0') / sqrt(Q) - 1)^2."""
        if self.strong_convexity == 0:
            return (growth / 2 - (2 if self.accelerated else 1)) ** 2
        return float((np.sqrt(self._reach / positive("growth", growth)) - 1) ** 2)

    @property
    def _contraction(self) -> float:
        """Q_0 = 1 - mu/L, or Q_0' = 1 - sqrt(mu/L): what a round without noise leaves of the error."""
        ratio = self.strong_convexity / self.curvature
        return float(1 - np.sqrt(ratio) if self.accelerated else 1 - ratio)

    @property
    def _reach(self) -> float:
        """Q~, the second argument of psi."""
        return self._contraction if self.accelerated else self._contraction**2
