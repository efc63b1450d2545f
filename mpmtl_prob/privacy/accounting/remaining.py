"""Remaining budget: the largest release that would be accepted after others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from mpmtl_prob.privacy.accounting.calibration import calibrate, calibrate_gaussian
from mpmtl_prob.privacy.accounting.composition import compute_epsilon
from mpmtl_prob.privacy.mechanisms import Gaussian, Mechanism, VectorGaussian, Wishart

#: Totals above it promise nothing, and next to what little noise they pay for composition may take minutes.
MOST_EPSILON = 100.0
#: By how much more noise a release may be louder than one that costs the whole total, before nothing is left; as a log.
_LOUDEST = 12.0
#: A share of the total below which nothing is said to be left.
_LITTLE = 0.01
#: Relative accuracy of the noise, and so of what is left.
_ACCURACY = 1e-3


def largest_epsilon(
    accepts: Callable[[Mechanism], bool], epsilon: float, delta: float, adjacency: str, last: Mechanism | None = None
) -> float | None:
    """Return the largest eps, of three digits, at which a release is accepted.

    None where that is less than a hundredth of the total, or the total too large.

    Args:
        accepts: whether a law can still be paid for; one with more noise can be wherever one with less can.
        epsilon: the total, above which nothing is accepted; none is looked for where it is above ``MOST_EPSILON``.
        delta: of the release.
        adjacency: "replace" or "zero_out".
        last: what was charged last. Is it Gaussian, the next is taken to be Gaussian too, and else Wishart noise.
    """
    if epsilon > MOST_EPSILON:
        return None
    d = getattr(last, "num_features", 2)

    def law(at: float) -> Wishart | Gaussian:
        gaussian = isinstance(last, Gaussian | VectorGaussian)
        return (calibrate_gaussian if gaussian else calibrate)(at, delta, d, adjacency=adjacency)

    try:
        most = law(epsilon)
    except ValueError:  # so small a delta that no noise reaches it
        return None
    if accepts(most):
        return epsilon
    # the same law with more noise, in which no shape is looked for at every step
    quiet, loud = 0.0, 0.1
    while not accepts(_louder(most, loud)):
        quiet, loud = loud, 2 * loud
        if loud > _LOUDEST:
            return None
    while loud - quiet > _ACCURACY:
        middle = (quiet + loud) / 2
        quiet, loud = (quiet, middle) if accepts(_louder(most, middle)) else (middle, loud)
    reached = compute_epsilon(delta, _louder(most, loud), adjacency)
    if not reached > _LITTLE * epsilon:
        return None
    digit = 10.0 ** (np.floor(np.log10(reached)) - 2)
    for steps in range(10):  # a release of less may have another shape, and cost a little more
        rounded = float(f"{(np.floor(reached / digit) + 1 - steps) * digit:.3g}")
        if accepts(law(rounded)):
            return rounded
    return None


def _louder(law: Wishart | Gaussian, log_times: float) -> Wishart | Gaussian:
    times = float(np.exp(log_times))
    return replace(law, sd=law.sd * times) if isinstance(law, Gaussian) else replace(law, scale=law.scale * times)
