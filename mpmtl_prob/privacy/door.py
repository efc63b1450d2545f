"""The other door: noise for vectors that are let out one by one, where the curator is not trusted with them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from mpmtl_prob._check import one_of, positive, whole
from mpmtl_prob.privacy.guarantee import Bound, Guarantee, of_release
from mpmtl_prob.privacy.laws import exact
from mpmtl_prob.privacy.laws.vectors import VectorLaplace
from mpmtl_prob.privacy.ledger import UNITS, Ledger, Purchase, check_ledger
from mpmtl_prob.tasks import FloatArray, TaskData


def draw_vectors(
    mechanisms: Sequence[VectorLaplace],
    vectors: int,
    *,
    epsilon: float,
    lattice: float,
    unit: str = "row",
    claimed: Bound | None = None,
    unproved: str = "",
    unsafe_seed: int | None = None,
    ledger: Ledger | None = None,
    data: TaskData | ArrayLike | None = None,
    besides: Sequence[Purchase] = (),
) -> tuple[FloatArray, Guarantee]:
    """The door: pay for T rounds, then draw fresh noise for every vector in each of them.

    A change of one unit may move one vector, by at most the mechanism's sensitivity, in every round; the other vectors of
    the round then cost nothing more. The caller bounds the vectors, cuts them to the lattice, adds the noise to them, and
    does not keep it.

    Args:
        mechanisms: the noise law of each round, all of one dimension d.
        vectors: how many are let out per round: m, or one for an average.
        epsilon: at which the guarantee is stated, > 0.
        lattice: h, of which the vectors and the noise are whole multiples.
        unit: what the sensitivity is about: a "row" of a task, or a whole "task". Adjacency is replacement.
        claimed: what the source of the method says, if anything.
        unproved: why the sensitivity does not bound the change, if it does not: nothing is then proved, and no ledger pays.
        unsafe_seed: draws the noise from this seed, for demonstrations: nothing is then guaranteed.
        ledger: pays for all rounds, on disk, before any noise is drawn.
        data: what the release is about, for the ledger's fingerprint.
        besides: what was bought for this release, such as the norm that bounds the vectors; it is part of the guarantee,
            and what the ledger has not paid for yet is charged with the rounds.

    Returns:
        The noise, (T, d, vectors), and the guarantee of all rounds together.

    Raises:
        BudgetExceeded: the ledger's total does not cover it.
        ValueError: an argument outside its range, or a ledger for what is not proved. Nothing was charged, nothing drawn.
    """
    rounds = tuple(mechanisms)
    whole("vectors", vectors)
    positive("epsilon", epsilon)
    positive("lattice", lattice)
    one_of("unit", unit, UNITS)
    if not rounds:
        raise ValueError("mechanisms: expected one per round, at least one, got none")
    if wrong := next((law for law in rounds if not isinstance(law, VectorLaplace)), None):
        raise ValueError(f"mechanisms: expected noise on vectors, got {type(wrong).__name__}")
    if len({law.num_features for law in rounds}) > 1:
        raise ValueError(f"mechanisms: expected one dimension, got {sorted({law.num_features for law in rounds})}")
    check_ledger(ledger, unsafe_seed)
    if unproved and ledger is not None:
        raise ValueError(f"ledger: expected none, as nothing is proved of this release. {unproved}")
    guarantee = of_release(
        (*rounds, *(purchase.law for purchase in besides)),
        epsilon=epsilon,
        adjacency="replace",
        claimed=claimed,
        seeded=unsafe_seed is not None,
        unit=unit,
    )
    if unproved and guarantee.proved:
        guarantee = Guarantee(claimed, None, unproved, guarantee.arithmetic)
    held = 2.0**52 * lattice  # above, sums on the lattice are rounded, and show what was added
    largest = max((64 + 2 * law.num_features) * law.scale for law in rounds)  # passed with next to no probability
    if guarantee.proved and largest >= held:
        raise ValueError(f"lattice: expected at least {largest / 2.0**52:.3g} for noise of this size, got {lattice!r}")
    if ledger is not None:
        ledger.charge(rounds, data=data, unit=unit, adjacency="replace", bought=besides)
    drawn = [
        [law.draw(lattice, exact.source(unsafe_seed, t, i)) for i in range(vectors)] for t, law in enumerate(rounds)
    ]
    noise = np.swapaxes(np.array(drawn), 1, 2)
    if guarantee.proved and np.abs(noise).max() >= held:
        raise OverflowError("the noise left the lattice's range; nothing was published")
    return noise, guarantee
