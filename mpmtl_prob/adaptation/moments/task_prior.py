"""Other tasks as a prior: what a release of their covariance says of a target's weights before its records are looked at.

    w | tau, p ~ N(0, tau^2 S Omega^p S / d)

Omega is known by a posterior of the shared covariance, which is public, and up to a factor: tau is learnt, with the prior of
a target that resembles no public domain. S is the scaling of the tasks' messages. Where every owner scales by its own rows,
the target's are known by its release, and so is S. The power p is unknown, as for owners
(:func:`mpmtl_prob.inference.task_posteriors`), and its nodes are domains of one name.

Two promises are made, and each is in its own unit: that of the covariance is to the other tasks, that of the moments to the
records of the target.
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

#: the name of other tasks where they have none
OTHERS = "other tasks"


def apart(source: Any) -> tuple[Any, dict[Hashable, SharedPosterior]]:
    """Public domains, None if there are none, and posteriors of other tasks' covariance by name.

    Raises:
        ValueError: more than one such posterior.
    """
    named = dict(source) if isinstance(source, Mapping) else {OTHERS: source}
    others = {name: each for name, each in named.items() if _is_shared(each)}
    if len(others) > 1:
        raise ValueError(f"source: expected at most one posterior of other tasks' covariance, got {len(others)}")
    if not others:
        return source, {}
    return {name: each for name, each in named.items() if name not in others} or None, others


def check(others: Mapping[Hashable, SharedPosterior], features: tuple[Hashable, ...]) -> None:
    """Raises ValueError for a posterior of other features than the target's, its intercept aside."""
    for name, shared in others.items():
        held = shared.release.features
        if len(held) != len(features):
            raise ValueError(f"source {name!r}: expected a release of {len(features)} features, got {len(held)}")
        if by_position(features, held):
            tell_of_positions(features, held, of=f"source {name!r}")
        elif held != features:
            # not which the target has: of a table without a head they are the first record
            raise ValueError(
                f"source {name!r}: expected a release of the target's features in their order, got {list(held)}"
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
    """The prior with other tasks before its last domain, "none", and how many domains they are.

    Args:
        prior: of public records, or of none.
        shared: public.
        release: of the target, by which its features' sizes are known.
        power: p, or None: learnt.
        intercept: whether the last weight is one: other tasks say nothing of it, and it is N(0, t^2).
        target_bound: t.
    """
    from mpmtl_prob.inference.owner.methods import raised_shapes  # JAX and NumPyro, which nothing else here needs

    d = len(release.centre)
    moment = shape(release.xx, release.sd * release.row_bound**2, release.num_records, prior.second_moment).mean
    omegas, weights = raised_shapes(shared, power)
    power = SCALINGS[shared.release.scaling]
    shapes = np.stack([covariance(omega, moment / max(release.num_records, 1), power) for omega in omegas])
    free = np.zeros((d, d))
    if intercept:
        free[-1, -1] = target_bound**2
    K, known = len(omegas), len(prior.means) - 1
    each = (1 - NONE_BEFORE) / (known + 1)  # of a public domain, and of the other tasks together
    odds = np.concatenate([np.full(known, each), each * weights / weights.sum(), [NONE_BEFORE]])

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
    """S Omega S, (d, d), in units in which scores have the variance that the identity would give them.

    Args:
        omega: of the slopes, up to a factor, (p, p).
        moment: second moment of the features, (d, d), d = p, or p + 1 with an intercept, whose row is zero.
        power: p of S = diag(moment)^p.
    """
    p = len(omega)
    inside = moment[:p, :p]
    S = np.diag(inside) ** power
    T = omega * np.outer(S, S)
    found = np.zeros_like(moment)
    found[:p, :p] = T * np.trace(inside) / np.sum(T * inside)
    return found


def _is_shared(value: Any) -> bool:
    if value is None or isinstance(value, Domain | tuple | list | Mapping):
        return False
    from mpmtl_prob.inference.public.shared import SharedPosterior

    return isinstance(value, SharedPosterior)
