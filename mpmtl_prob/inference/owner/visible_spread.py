"""The shape of the spread that a release of messages of effects shows above its noise, as a prior for owners.

Of a spread along a few strong directions, draws of the public posterior are seldom near all of them at once: their prior
spreads its weight over all shapes. The principal axes of the released second moment about its mean are near them where they
stand above the noise (Baik, Ben Arous and Peche, 2005, Ann. Probab. 33). Owners take them for a part of their prior, and
their own evidence decides.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob.models.effects import EffectsRelease

#: How far above the level an axis stands to be seen, as a share of the largest eigenvalue of noise, and what share of the
#: spread is alike in all directions. The second, and the odds, were set after a look at nine data sets of the panel, two of
#: them with few strong directions.
_CUT, _EVEN = 0.3, 0.3
#: Log odds of the shape: how fast they rise with how many edges the largest axis stands above the level, where they are
#: even, and the most they are. The largest axis of noise alone stands one edge above it.
_SLOPE, _MIDDLE, _MOST = 8.0, 1.25, 0.0
#: With fewer effects there are no few directions among many.
_FEWEST = 6
#: Nothing is divided by less: a share of m, of the sum of tasks' ones and covariates; and of how far an effect is determined.
_LEAST, _LEAST_DETERMINED = 0.1, 0.05


class VisibleShape(NamedTuple):
    """A shape of the spread.

    Attributes:
        shape: (d, d), of trace one.
        share: how much of an owner's prior has it.
    """

    shape: FloatArray
    share: float


def visible_shape(
    seen: EffectsRelease, determined: FloatArray, own_message: FloatArray | None = None
) -> VisibleShape | None:
    """Return the principal axes of effects about their mean, in proportion to how far each stands above the noise.

    Args:
        seen: the release.
        determined: how far rows determine effects, on average, (d,).
        own_message: what is left out of the release, (D,).

    Returns:
        The shape; None of few effects, which have no few directions among many, and where no axis stands out.
    """
    d, m, sigma = len(determined), float(np.asarray(seen.num_tasks)), np.asarray(seen.sigma)
    if d < _FEWEST:
        return None
    if own_message is not None:
        sigma, m = sigma - np.outer(own_message, own_message), m - 1
    number = len(sigma) - d - len(np.asarray(seen.averages))  # of ones and covariates
    values, U = np.linalg.eigh(sigma[-number:, -number:])
    cross = sigma[:d, -number:] @ U
    values, U = np.linalg.eigh(sigma[:d, :d] - cross / np.maximum(values, _LEAST * m) @ cross.T)
    level = max(float(np.median(values)), 0.0)
    # the largest eigenvalue of noise, and of what tasks that are alike in all directions add by chance
    of_noise = 2 * np.sqrt(float(np.asarray(seen.noise_variance)) * d)
    edge = np.hypot(of_noise, level * (2 * np.sqrt(d / m) + d / m))
    above = np.maximum(values - level - _CUT * edge, 0.0)
    if above[-1] == 0:
        return None
    p = np.maximum(determined, _LEAST_DETERMINED)
    shape = (U * above) @ U.T / np.outer(p, p)
    shape = (1 - _EVEN) * shape / np.trace(shape) + _EVEN * np.eye(d) / d
    odds = np.exp(min(_SLOPE * ((values[-1] - level) / edge - _MIDDLE), _MOST))
    return VisibleShape(shape, float(odds / (1 + odds)))
