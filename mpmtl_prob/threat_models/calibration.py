"""Calibration of Gaussian noise to an (eps, delta), and the number of noisy means in a view.

All mechanisms of this package are Gaussian, so a guarantee is a number mu, and (eps, delta) follows exactly. Accounting by
zero-concentrated privacy, as in the paper, is here for comparison; it leads to errors that are up to twice as large.
"""

from __future__ import annotations

import numpy as np

from mpmtl_prob._util.checks import in_range, one_of, positive, whole
from mpmtl_prob.privacy.accounting.calibration import crossing
from mpmtl_prob.privacy.audit.views import View
from mpmtl_prob.privacy.mechanisms.profile import PrivacyProfile

ACCOUNTING = ("exact", "zcdp")


def mu_within(epsilon: float, delta: float, accounting: str = "exact") -> float:
    """Return the largest mu for which mu-Gaussian differential privacy implies (eps, delta).

    Args:
        epsilon: > 0.
        delta: in (0, 1).
        accounting: "exact", or "zcdp": mu = sqrt(2 rho), rho as :func:`rho_within`.

    Raises:
        ValueError: an argument outside its range.

    >>> from mpmtl_prob.threat_models import mu_within
    >>> exact, paper = mu_within(1.0, 1e-6), mu_within(1.0, 1e-6, "zcdp")
    >>> print(f"{exact:.3f} {paper:.3f}: errors differ by a factor {(exact / paper) ** 2:.2f}")
    0.237 0.187: errors differ by a factor 1.60
    """
    if one_of("accounting", accounting, ACCOUNTING) == "zcdp":
        return float(np.sqrt(2 * rho_within(epsilon, delta)))
    epsilon, delta = positive("epsilon", epsilon), in_range("delta", delta, 0, 1)

    def excess(log_noise: float) -> float:
        return float(np.log(max(PrivacyProfile.gaussian(np.exp(-log_noise)).delta(epsilon), 1e-300)) - np.log(delta))

    return float(np.exp(-crossing(excess, 0.0, 1e-12)))


def rho_within(epsilon: float, delta: float) -> float:
    """Return the largest rho of zero-concentrated privacy with eps = rho + 2 sqrt(rho log(1 / delta)).

    Source: Bun and Steinke (2016), Proposition 1.3, solved for rho.
    """
    epsilon, L = positive("epsilon", epsilon), -np.log(in_range("delta", delta, 0, 1))
    return float((epsilon / (np.sqrt(L + epsilon) + np.sqrt(L))) ** 2)


def epsilon_of(rho: float, delta: float) -> float:
    """Return the eps of rho-zero-concentrated privacy at this delta: rho + 2 sqrt(rho log(1 / delta)).

    Source: Aliakbarpour et al. (2024), Fact 2.3, from Bun and Steinke (2016), Proposition 1.3.
    """
    rho = positive("rho", rho)
    return float(rho + 2 * np.sqrt(rho * -np.log(in_range("delta", delta, 0, 1))))


def others_seen(view: View, num_people: int) -> int:
    """Return the number of other people's outputs that an adversary sees who is not on the billboard.

    Raises:
        ValueError: the billboard's view, or a coalition of more people than there are others.
    """
    if view.owners is None:
        raise ValueError("view: expected what other people receive, got the billboard")
    k = view.columns(whole("num_people", num_people) - 1)
    if k.stop <= k.start:
        raise ValueError("num_people: expected at least 2, as there are no others, got 1")
    return k.stop - k.start


def numbers_seen(view: View, num_people: int, num_features: int) -> int:
    """Return k, the number of noisy means in a view: all d on the billboard, otherwise one per other person, at most d.

    Where there are more other people than features, each feature has one noise for all of them. The number of *different*
    questions is not used, as it depends on protected data.
    """
    d = whole("num_features", num_features)
    return d if view.owners is None else min(others_seen(view, num_people), d)
