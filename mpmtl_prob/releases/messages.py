"""Messages of tasks: one vector per task, of bounded length, before noise is added.

The bound K (clip norm) is public. Directions have K = 1 and contain nothing about a task's norm. Otherwise K is chosen
without looking at the messages, or is a private quantile of their norms that the budget pays for.
"""

from __future__ import annotations

import secrets
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import as_float_array, in_range, one_of, positive
from mpmtl_prob._util.former import former_names, former_value
from mpmtl_prob.data.estimates import Estimate, Estimates
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.privacy import lattice
from mpmtl_prob.privacy.ledger import Ledger, check_ledger
from mpmtl_prob.privacy.mechanisms import Quantile, exact
from mpmtl_prob.single_task import conjugate
from mpmtl_prob.single_task.posterior_means import posterior_means

MESSAGES = ("direction", "clip", "effects")
#: Kinds of messages of length exactly 1.
OF_LENGTH_ONE = ("direction", "effects")
SCALINGS = tuple(conjugate.SCALINGS)


@dataclass(frozen=True)
class PrivateClipNorm:
    """Clip norm K chosen privately, as a noisy quantile of the messages' norms.

    Attributes:
        clip: K, a point of a public grid.
        law: the mechanism that chose it, which has a price.
        id: identifier by which a ledger recognises the purchase, so that it is paid once.
        ledger: id of the ledger that paid; empty if none has, and then the first ledger that sees it pays.
    """

    clip: float
    law: Quantile
    id: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)
    ledger: str = field(default="", repr=False)


def private_clip_norm(
    source: TaskData | ArrayLike,
    epsilon: float,
    *,
    low: float,
    high: float,
    quantile: float = 0.5,
    scaling: str | None = None,
    ledger: Ledger | None = None,
) -> PrivateClipNorm:
    """Choose a quantile of the messages' norms by the exponential mechanism, on a logarithmic grid of 100 points.

    Args:
        source: as in :func:`release`.
        epsilon: budget for it, > 0; small compared with the release's own.
        low: smallest K of the grid, > 0, chosen without looking at the messages.
        high: largest K of the grid, > low.
        quantile: in (0, 1).
        scaling: as in :func:`release`.
        ledger: pays for it, on disk, before anything is drawn. Without one, the ledger of the release pays for it.

    Raises:
        BudgetExceeded: the price exceeds what is left in the ledger.
        ValueError: an argument outside its range. Nothing was charged.
    """
    scaling = scaling_of(source, scaling)
    law = Quantile(positive("epsilon", epsilon))
    low = positive("low", low)
    high = positive("high", high)
    quantile = in_range("quantile", quantile, 0, 1)
    if high <= low:
        raise ValueError(f"high: expected more than low = {low!r}, got {high!r}")
    W, _, _ = messages(source, scaling)
    check_ledger(ledger, None)
    paid = {} if ledger is None else {"id": ledger.charge(law, data=source).id, "ledger": ledger.id}
    return PrivateClipNorm(
        law.draw(lattice.lengths(W), np.geomspace(low, high, 100), quantile, exact.system), law, **paid
    )


def scaling_of(source: Any, scaling: str | None) -> str:
    """Return the requested scaling, or by default that of the tasks: "unit_variance" for tables, "pareto" for arrays.

    Raises ValueError for an unknown scaling.
    """
    return scaling_named(getattr(source, "scaling", "pareto") if scaling is None else scaling)


def scaling_named(scaling: str) -> str:
    """Return the scaling of this name, which may be that of 0.3.0. Raises ValueError for an unknown name."""
    if scaling == "unit":
        former_value("scaling", "unit", "unit_variance")
        return "unit_variance"
    return one_of("scaling", scaling, SCALINGS)


def purchases_of(clip: float | PrivateClipNorm | None) -> tuple[PrivateClipNorm, ...]:
    """Return the purchases of a release with this clip norm: one if the norm was chosen privately, else none."""
    return (clip,) if isinstance(clip, PrivateClipNorm) else ()


def messages(source: TaskData | Estimates | ArrayLike, scaling: str) -> tuple[FloatArray, tuple[Hashable, ...], str]:
    """Return one finite vector per task, (d, m), the names of the features, and the scaling that applies to them."""
    if isinstance(source, TaskData):
        slopes = source.slopes  # an intercept stays with its data owner
        sent = posterior_means(slopes, scaling=scaling, prior=conjugate.SENT)
        return sent.scaled, slopes.features, scaling
    if isinstance(source, Estimate | Estimates):
        raise ValueError(
            f"source: expected TaskData, got {type(source).__name__}: estimates make messages of effects alone, by "
            "mp.release(mp.Estimates(...), epsilon, reference=...)"
        )
    if isinstance(source, tuple) or hasattr(source, "columns"):  # probably rows and targets, or a data frame
        raise ValueError(
            f"source: expected TaskData, or one message per task as a d x m matrix, got {type(source).__name__}; make tasks "
            "with TaskData.from_lists, from_rows or from_pandas"
        )
    W = as_float_array("source", source)
    if W.ndim != 2 or W.size == 0:
        raise ValueError(f"source: expected TaskData or one message per task as a d x m matrix, got shape {W.shape}")
    if not np.all(np.isfinite(W)):  # the values are private: count them, do not show them
        raise ValueError(f"source: expected finite messages, got {int(np.sum(~np.isfinite(W)))} entries that are not")
    return W, tuple(range(W.shape[0])), "none"


def clip_norm(message: str, clip: float | PrivateClipNorm | None) -> tuple[float, tuple[PrivateClipNorm, ...]]:
    """Return K, and the purchase behind it if there is one."""
    if message in OF_LENGTH_ONE:
        if clip is not None:
            raise ValueError(f"clip: messages of {message!r} have unit length; give clip only with message='clip'")
        return 1.0, ()
    if isinstance(clip, PrivateClipNorm):
        return clip.clip, (clip,)
    if clip is None or isinstance(clip, str):
        raise ValueError(
            "clip: expected a number K chosen without looking at the messages, with message='clip'; "
            f"got {clip!r}. A K read off the tasks' norms would leak them; private_clip_norm buys one."
        )
    if not isinstance(clip, int | float | np.number):  # these may be norms, so the error shows no value
        raise ValueError(f"clip: expected a number, got {type(clip).__name__}")
    return positive("clip", clip), ()


__getattr__ = former_names(__name__, {"BoughtClip": "PrivateClipNorm", "buy_clip": "private_clip_norm"})
