"""Limits of accuracy: the paper's bounds for the hard priors, with constants that the proofs bear out.

They differ from what is achieved by factors of a thousand and more: what to read off them are slopes, and ratios of views.
Against all other people (Theorem 4.6, Lemma B.4) the printed constants are not proved, as the own term is missing from the
sums (:mod:`mpmtl_prob.threat_models.scores`), nor are two powers; those here are. All need eps <= 1.

Theorem 4.7 is proved here with 121 / 16 in place of the 11 / 64 that is printed:

- its last line prints 11 where the line before it has 11^2, and Corollary 4.8 carries the 11 on;
- the variance of a score is bounded in the proof by E sum_j (p^'_j - p_j)^2 (x_j - p_j)^2 <= 4 E sum_j (p^'_j - p_j)^2.
  As x is independent of p^' given p, E (x_j - p_j)^2 = 1 - p_j^2 <= 1 may take the place of the 4, so that the variance is at
  most 4 d alpha, not 16 d alpha, and 8 eps t sqrt(alpha d) becomes 4 eps t sqrt(alpha d). The 1 / 16 that follows stands in
  one line of the printed proof, and 1 / 64 in the next.

A billboard's error alpha gives newcomers at most e^eps alpha + delta (Theorem 3.2), so that
alpha >= e^-eps (bound of 4.7 - delta) >= bound of 4.7 / 6 where delta is at most half of that bound.

Source: Aliakbarpour et al. (2024), Table 1, Theorems 4.6 to 4.8 and 5.9 to 5.11.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mpmtl_prob._util.checks import in_range, one_of, positive, whole

LOSSES = ("mean", "sign")
OTHERS, NEWCOMERS, BILLBOARD = "all others", "newcomers", "billboard"


@dataclass(frozen=True)
class LowerBound:
    """No algorithm that keeps (eps, delta) has a smaller worst-case error.

    Attributes:
        loss: "mean" for (p^ - p)^2 / 4, "sign" for signs and classifiers.
        against: who sees its outputs: "all others"; "newcomers" and "billboard" are before everybody.
        value: the bound.
        unmet: conditions that are not met; the bound holds if there are none.
    """

    loss: str
    against: str
    value: float
    unmet: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """True if all conditions are met."""
        return not self.unmet


def lower_bounds(num_people: int, num_features: int, epsilon: float, delta: float) -> tuple[LowerBound, ...]:
    """All of them.

    Args:
        num_people: t.
        num_features: d.
        epsilon: > 0.
        delta: in [0, 1).

    Raises:
        ValueError: an argument outside its range.
    """
    t, d = whole("num_people", num_people), whole("num_features", num_features)
    eps, delta = positive("epsilon", epsilon), in_range("delta", delta, 0, 1, left_closed=True)
    small = {"eps <= 1": eps <= 1}

    def below(share: int) -> dict[str, bool]:
        return small | {f"delta < 1 / ({share} t)": delta < 1 / (share * t)}

    apart = {"d >= t^2": d >= t**2}  # then all questions differ with probability 1/2 or more
    many = {"d >= (576 / 121) eps^2 t": d >= 4 * 144 / 121 * eps**2 * t}  # then delta is at most half of 4.7's bound
    some = {"d >= eps^2 t / 4": d >= eps**2 * t / 4}
    bounds = (
        ("mean", OTHERS, min(1 / 288, 1 / (4320 * eps**2 * t)), below(96) | apart),  # Theorem 4.6
        ("mean", NEWCOMERS, min(1 / 576, 121 * d / (16 * 144**2 * (eps * t) ** 2)), below(96)),  # 4.7
        ("mean", BILLBOARD, min(1 / 3456, 121 * d / (6 * 16 * 144**2 * (eps * t) ** 2)), below(1152) | many),  # 4.8
        ("sign", OTHERS, min(1 / 342, 1 / (512 * eps * np.sqrt(t))), below(2) | apart),  # 5.9
        ("sign", NEWCOMERS, min(1 / 256, np.sqrt(d) / (256 * eps * t)), below(2)),  # 5.10
        ("sign", BILLBOARD, min(1 / 1024, np.sqrt(d) / (1536 * eps * t)), below(1024) | some),  # 5.11
    )
    return tuple(
        LowerBound(loss, against, float(value), tuple(what for what, met in conditions.items() if not met))
        for loss, against, value, conditions in bounds
    )


def upper_bound(loss: str, numbers: int, num_people: int, rho: float) -> float:
    """The error that Gaussian noise has at most, at the worst p, as the paper writes it.

    k / (2 rho t^2) + 1 / (4 t) for means (Theorems 4.2 to 4.4), sqrt(2 k) / (t sqrt(rho)) + 1 / sqrt(t) for signs (Lemmas 5.3
    to 5.6), which is about six times too much (:func:`mpmtl_prob.threat_models.signs.sign_error`).

    Args:
        loss: "mean" or "sign".
        numbers: k, how many a view shows: 0 without privacy, 1 for one other person, t - 1 for all, d on a billboard.
        num_people: t.
        rho: of zero-concentrated privacy, > 0.

    Raises:
        ValueError: an argument outside its range.
    """
    t, k, rho = whole("num_people", num_people), whole("numbers", numbers, 0), positive("rho", rho)
    if one_of("loss", loss, LOSSES) == "mean":
        return k / (2 * rho * t**2) + 1 / (4 * t)
    return float(np.sqrt(2 * k / rho) / t + 1 / np.sqrt(t))
