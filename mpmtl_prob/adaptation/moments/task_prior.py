"""Prior of a target's weights from other private tasks: the release of their covariance (partial pooling).

    w | tau, p ~ N(0, tau^2 S Omega^p S / d)

Omega has a public posterior, that of the tasks' shared covariance, and is known up to a factor. So tau is learnt, with the
prior of a target that resembles no public domain. S is the scaling of the tasks' messages. Where every data owner scales by
its own rows, S follows from the target's features, which its release tells. The power p is unknown, as for owners
(:func:`mpmtl_prob.inference.task_posteriors`), and every value on its grid is a domain; all have the same name.

There are two privacy guarantees with different units: that of the covariance protects the other tasks, and that of the
moments protects the records of the target.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob.adaptation.data.domain import Domain
from mpmtl_prob.adaptation.moments.feature_moment import shape
from mpmtl_prob.adaptation.moments.grid_posterior import NONE_BEFORE, Prior
from mpmtl_prob.adaptation.moments.release import MomentRelease
from mpmtl_prob.data.matching import by_position, tell_of_positions
from mpmtl_prob.single_task.conjugate import SCALINGS

if TYPE_CHECKING:
    from mpmtl_prob.inference.public.shared import SharedPosterior

#: name of other tasks that have no name
OTHERS = "other tasks"


def apart(source: Any) -> tuple[Any, dict[Hashable, SharedPosterior]]:
    """Separate public domains, None if there are none, from posteriors of other tasks' covariance by name.

    Raises:
        ValueError: more than one such posterior.
    """
    named = dict(source) if isinstance(source, Mapping) else {OTHERS: source}
    others = {name: value for name, value in named.items() if _is_shared(value)}
    if len(others) > 1:
        raise ValueError(f"source: expected at most one posterior of other tasks' covariance, got {len(others)}")
    if not others:
        return source, {}
    return {name: value for name, value in named.items() if name not in others} or None, others


def check(others: Mapping[Hashable, SharedPosterior], features: tuple[Hashable, ...]) -> None:
    """Raise ValueError if a posterior's features are not the target's without its intercept."""
    for name, shared in others.items():
        names = shared.release.features
        if len(names) != len(features):
            raise ValueError(f"source {name!r}: expected a release of {len(features)} features, got {len(names)}")
        if by_position(features, names):
            tell_of_positions(features, names, of=f"source {name!r}")
        elif names != features:
            # The target's names are not shown: in a table without a header they are its first record.
            raise ValueError(
                f"source {name!r}: expected a release of the target's features in their order, got {list(names)}"
            )


def beside(
    prior: Prior,
    shared: SharedPosterior,
    release: MomentRelease,
    *,
    power: float | None,
    intercept: bool,
    target_bound: float,
) -> tuple[Prior, int]:
    """Insert other tasks into the prior before its last domain, "none"; return it with the number of new domains.

    Args:
        prior: the prior from public records, or without any.
        shared: the public posterior of the other tasks' covariance.
        release: the target's release, which tells the sizes of its features.
        power: p; None learns it.
        intercept: True if the last weight is an intercept, on which other tasks have no information; it is N(0, t^2).
        target_bound: t.
    """
    from mpmtl_prob.inference.owner.methods import raised_shapes  # imports JAX and NumPyro, which only this needs

    d = len(release.centre)
    moment = shape(release.xx, release.sd * release.row_bound**2, release.num_records, prior.second_moment).mean
    omegas, weights = raised_shapes(shared, power)
    power = SCALINGS[shared.release.scaling]
    shapes = np.stack([covariance(omega, moment / max(release.num_records, 1), power) for omega in omegas])
    free = np.zeros((d, d))
    if intercept:
        free[-1, -1] = target_bound**2
    K, known = len(omegas), len(prior.means) - 1
    equal_share = (1 - NONE_BEFORE) / (known + 1)  # for every public domain, and for the other tasks together
    odds = np.concatenate([np.full(known, equal_share), equal_share * weights / weights.sum(), [NONE_BEFORE]])

    def between(values: FloatArray, rows: FloatArray) -> FloatArray:
        return np.concatenate([values[:-1], rows, values[-1:]])

    return prior._replace(
        means=between(prior.means, np.zeros((K, d))),
        covariances=between(prior.covariances, np.broadcast_to(free, (K, d, d))),
        shapes=between(prior.shapes, shapes),
        scales=between(prior.scales, np.full(K, prior.scales[-1])),
        log_odds=np.log(odds),
        same=between(prior.same, np.zeros(K)),
        slopes=between(prior.slopes, np.zeros((K, d))),
    ), K


def covariance(omega: FloatArray, moment: FloatArray, power: float) -> FloatArray:
    """Return S Omega S, (d, d), scaled so that scores have the same variance as with the identity.

    Args:
        omega: covariance of the slopes, up to a factor, (p, p).
        moment: second moment of the features, (d, d), d = p, or p + 1 with an intercept, whose row is zero.
        power: p of S = diag(moment)^p.
    """
    p = len(omega)
    inside = moment[:p, :p]
    S = np.diag(inside) ** power
    T = omega * np.outer(S, S)
    scaled = np.zeros_like(moment)
    scaled[:p, :p] = T * np.trace(inside) / np.sum(T * inside)
    return scaled


def _is_shared(value: Any) -> bool:
    if value is None or isinstance(value, Domain | tuple | list | Mapping):
        return False
    from mpmtl_prob.inference.public.shared import SharedPosterior

    return isinstance(value, SharedPosterior)
