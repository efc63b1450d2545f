"""How much Gaussian noise a promise costs, and how many numbers somebody sees.

All mechanisms of this room are one Gaussian, so a promise is a number mu, and (eps, delta) follows exactly. The accounting by
zero-concentrated privacy, as in the paper, stands beside it for comparison; it asks for up to twice the error.
"""

from __future__ import annotations

import numpy as np

from mpmtl_prob._util.checks import in_range, one_of, positive, whole
from mpmtl_prob.privacy.accounting.calibration import crossing
from mpmtl_prob.privacy.audit.views import View
from mpmtl_prob.privacy.mechanisms.profile import PrivacyProfile

ACCOUNTING = ("exact", "zcdp")


def mu_within(epsilon: float, delta: float, accounting: str = "exact") -> float:
    """The largest mu whose Gaussian privacy keeps (eps, delta).

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
    """The largest rho of zero-concentrated privacy that gives (eps, delta) by eps = rho + 2 sqrt(rho log(1 / delta)).

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
    """How many other people's outputs somebody sees who is not on the billboard.

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
    """k, the numbers with noise that the view shows: all d on the billboard, else one for each of the others, at most d.

    Where the others are more than the features, one noise per feature serves them all. The number of *different* questions
    would tell of what is protected, and does not count.
    """
    d = whole("num_features", num_features)
    return d if view.owners is None else min(others_seen(view, num_people), d)
