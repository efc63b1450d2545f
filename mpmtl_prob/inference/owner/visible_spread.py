"""Shape of the spread between tasks that a release of messages of effects shows above its noise, as a prior for owners.

Where effects vary along a few strong directions, few draws of the public posterior are near all of them at once, because its
prior spreads over all shapes. The principal axes of the released second moment about its mean are near these directions where
they exceed the noise (Baik, Ben Arous and Peche, 2005, Ann. Probab. 33). An owner's prior is partly that shape, and the
evidence of its own rows decides.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob.models.effects_release import EffectsRelease

#: An axis counts if its eigenvalue exceeds the median one by this share of the largest eigenvalue of noise.
_CUT = 0.3
#: Share of the shape that is isotropic. It and the odds were set after nine data sets of the panel had been looked at, two of
#: them with few strong directions.
_EVEN = 0.3
#: The log odds of the shape are a linear function of the largest axis, in units of the largest eigenvalue of noise: their
#: slope, where they are zero, and their maximum.
_SLOPE, _MIDDLE, _MOST = 8.0, 1.25, 0.0
#: Smallest number of effects for which a shape is used.
_FEWEST = 6
#: Lower bound of the sums of tasks' ones and covariates, as a share of m, before they divide.
_LEAST = 0.1
#: Lower bound of p, how far an effect is determined, before it divides.
_LEAST_DETERMINED = 0.05


class VisibleShape(NamedTuple):
    """Shape of the spread between tasks.

    Attributes:
        shape: (d, d), of trace one.
        share: prior probability of the shape, for an owner.
    """

    shape: FloatArray
    share: float


def visible_shape(
    seen: EffectsRelease, determined: FloatArray, own_message: FloatArray | None = None
) -> VisibleShape | None:
    """Return the principal axes of effects about their mean, weighted by how far each exceeds the noise.

    Args:
        seen: the release.
        determined: how far rows determine effects, on average, (d,).
        own_message: the owner's message, which is taken out of the release, (D,).

    Returns:
        The shape; None for fewer than six effects, and where no axis exceeds the noise.
    """
    d = len(determined)
    m = float(np.asarray(seen.num_tasks))
    sigma = np.asarray(seen.sigma)
    if d < _FEWEST:
        return None
    if own_message is not None:
        sigma = sigma - np.outer(own_message, own_message)
        m = m - 1
    number = len(sigma) - d - len(np.asarray(seen.averages))  # of ones and covariates
    values, U = np.linalg.eigh(sigma[-number:, -number:])
    cross = sigma[:d, -number:] @ U
    values, U = np.linalg.eigh(sigma[:d, :d] - cross / np.maximum(values, _LEAST * m) @ cross.T)
    level = max(float(np.median(values)), 0.0)
    # the largest eigenvalue by chance: of the noise, and of m tasks with an isotropic spread
    noise_edge = 2 * np.sqrt(float(np.asarray(seen.noise_variance)) * d)
    edge = np.hypot(noise_edge, level * (2 * np.sqrt(d / m) + d / m))
    above = np.maximum(values - level - _CUT * edge, 0.0)
    if above[-1] == 0:
        return None
    p = np.maximum(determined, _LEAST_DETERMINED)
    shape = (U * above) @ U.T / np.outer(p, p)
    shape = (1 - _EVEN) * shape / np.trace(shape) + _EVEN * np.eye(d) / d
    odds = np.exp(min(_SLOPE * ((values[-1] - level) / edge - _MIDDLE), _MOST))
    return VisibleShape(shape, float(odds / (1 + odds)))
