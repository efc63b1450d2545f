"""The door: pay first, then draw the noise. Nothing else draws noise that is published.

Noise on a second moment protects whoever gave a vector from all who see the sum; noise on vectors that are let out one by
one, also from the curator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import MANY, positive, whole
from mpmtl_prob._util.former import former_arguments
from mpmtl_prob.privacy.guarantee import Bound, Guarantee, of_release
from mpmtl_prob.privacy.ledger import InParts, Ledger, PaddedTasks, Purchase, check_ledger
from mpmtl_prob.privacy.mechanisms import GaussianShares, exact
from mpmtl_prob.privacy.mechanisms.mechanism import MatrixMechanism, Mechanism, VectorMechanism
from mpmtl_prob.privacy.units import Unit


def draw_matrices(
    mechanisms: Sequence[MatrixMechanism],
    *,
    epsilon: float,
    adjacency: str,
    lattice: float,
    unit: str = "task",
    claimed: Bound | None = None,
    unsafe_seed: int | None = None,
    ledger: Ledger | None = None,
    data: InParts | PaddedTasks | ArrayLike | None = None,
    purchases: Sequence[Purchase] = (),
) -> tuple[FloatArray, Guarantee]:
    """Pay for T rounds, then draw the noise of each.

    Args:
        mechanisms: the noise law of each round, all of one dimension d.
        epsilon: at which the guarantee is stated, > 0.
        adjacency: "replace" or "zero_out".
        lattice: h, of which the vectors' entries are whole multiples, as the noise is of its square.
        unit: whose the vectors are that the second moment sums: one of every "task", or one of every record.
        claimed: what the papers say, if anything.
        unsafe_seed: draws the noise from this seed, for demonstrations: nothing is then guaranteed.
        ledger: pays for all rounds, on disk, before any noise is drawn.
        data: what the release is about, for the ledger's fingerprint.
        purchases: what was bought for this release, such as the norm that bounds the vectors; it is part of the guarantee,
            and what the ledger has not paid for yet is charged with the rounds.

    Returns:
        The noise, (T, d, d), which the caller adds and does not keep, and the guarantee of all rounds together.

    Raises:
        BudgetExceeded: the ledger's total does not cover it.
        ValueError: an argument outside its range. Nothing was charged, nothing drawn.
    """
    rounds = _of_one_dimension(mechanisms, MatrixMechanism, "second moments")
    step = positive("lattice", positive("lattice", lattice) ** 2)
    largest = max(float(np.max(np.abs(law.mean))) + 64 * law.operator_norm for law in rounds)
    if largest > 2.0**53 * step:
        raise ValueError(
            f"lattice: expected at least {np.sqrt(largest / 2.0**53):.3g} for noise of this size, got {lattice!r}"
        )
    _check_room(sum(law.num_features**2 for law in rounds))
    guarantee = _pay(rounds, epsilon, adjacency, unit, claimed, unsafe_seed, ledger, data, purchases)
    return np.stack([law.draw(step, exact.source(unsafe_seed, t)) for t, law in enumerate(rounds)]), guarantee


@former_arguments(besides="purchases")
def draw_vectors(
    mechanisms: Sequence[VectorMechanism],
    vectors: int,
    *,
    epsilon: float,
    lattice: float,
    unit: str = "row",
    claimed: Bound | None = None,
    unproved: str = "",
    unsafe_seed: int | None = None,
    ledger: Ledger | None = None,
    data: InParts | PaddedTasks | ArrayLike | None = None,
    purchases: Sequence[Purchase] = (),
) -> tuple[FloatArray, Guarantee]:
    """Pay for T rounds, then draw fresh noise for every vector in each of them.

    A change of one unit may move one vector, by at most the mechanism's sensitivity, in every round; the other vectors of
    the round then cost nothing more. The caller bounds the vectors, cuts them to the lattice, adds the noise to them, and
    does not keep it.

    Args:
        mechanisms: the noise law of each round, all of one dimension d.
        vectors: how many are let out per round: m, or one for an average.
        epsilon: at which the guarantee is stated, > 0.
        lattice: h, of which the vectors and the noise are whole multiples.
        unit: what the sensitivity is about, such as a "row" of a task, or a whole "task". Adjacency is replacement.
        claimed: what the source of the method says, if anything.
        unproved: why the sensitivity does not bound the change, if it does not: nothing is then proved, and no ledger pays.
        unsafe_seed: draws the noise from this seed, for demonstrations: nothing is then guaranteed.
        ledger: pays for all rounds, on disk, before any noise is drawn.
        data: what the release is about, for the ledger's fingerprint.
        purchases: what was bought for this release, such as the norm that bounds the vectors; it is part of the guarantee,
            and what the ledger has not paid for yet is charged with the rounds.

    Returns:
        The noise, (T, d, vectors), and the guarantee of all rounds together.

    Raises:
        BudgetExceeded: the ledger's total does not cover it.
        ValueError: an argument outside its range, or a ledger for what is not proved. Nothing was charged, nothing drawn.
    """
    rounds = _of_one_dimension(mechanisms, VectorMechanism, "vectors")
    vectors, lattice = whole("vectors", vectors), positive("lattice", lattice)
    _check_room(vectors * sum(law.num_features for law in rounds))
    if unproved and ledger is not None:
        raise ValueError(f"ledger: expected none, as nothing is proved of this release. {unproved}")
    held = 2.0**52 * lattice  # above, sums on the lattice are rounded, and show what was added
    largest = max((64 + 2 * law.num_features) * law.scale for law in rounds)  # passed with next to no probability
    if not unproved and largest >= held:
        raise ValueError(f"lattice: expected at least {largest / 2.0**52:.3g} for noise of this size, got {lattice!r}")
    guarantee = _pay(rounds, epsilon, "replace", unit, claimed, unsafe_seed, ledger, data, purchases)
    if unproved and guarantee.proved:
        guarantee = Guarantee(claimed, None, unproved, guarantee.arithmetic)
    drawn = [
        [law.draw(lattice, exact.source(unsafe_seed, t, i)) for i in range(vectors)] for t, law in enumerate(rounds)
    ]
    noise = np.swapaxes(np.array(drawn), 1, 2)
    if guarantee.proved and np.abs(noise).max() >= held:
        raise OverflowError("the noise left the lattice's range; nothing was published")
    return noise, guarantee


def draw_each(
    mechanisms: Sequence[VectorMechanism],
    *,
    lattices: Sequence[float],
    epsilon: float,
    unit: str,
    claimed: Bound | None = None,
    unsafe_seed: int | None = None,
    ledger: Ledger | None = None,
    data: InParts | PaddedTasks | ArrayLike | None = None,
) -> tuple[list[FloatArray], Guarantee]:
    """Pay for several vectors, of any lengths, in one charge; then draw the noise of each.

    Later vectors may answer what was let out of the earlier ones. Arguments, errors and what the caller has to do as in
    :func:`draw_vectors`, with a lattice for every law.

    Returns:
        The noise on every vector, (d,), and the guarantee of all together.
    """
    laws = tuple(mechanisms)
    if not laws or not all(isinstance(law, VectorMechanism) for law in laws) or len(lattices) != len(laws):
        raise ValueError("mechanisms: expected noise on vectors, at least one, and a lattice for each")
    lattices = [positive("lattice", lattice) for lattice in lattices]
    _check_room(sum(law.num_features for law in laws))
    for law, lattice in zip(laws, lattices, strict=True):
        held = 2.0**52 * lattice  # as in draw_vectors
        if (64 + 2 * law.num_features) * law.scale >= held:
            raise ValueError(f"lattice: expected a coarser one for noise of this size, got {lattice!r}")
    guarantee = _pay(laws, epsilon, "replace", unit, claimed, unsafe_seed, ledger, data, ())
    noise = [law.draw(h, exact.source(unsafe_seed, t)) for t, (law, h) in enumerate(zip(laws, lattices, strict=True))]
    if guarantee.proved and any(np.abs(b).max() >= 2.0**52 * h for b, h in zip(noise, lattices, strict=True)):
        raise OverflowError("the noise left the lattice's range; nothing was published")
    return noise, guarantee


def draw_share(
    law: GaussianShares,
    *,
    adjacency: str,
    ledger: Ledger | None = None,
    data: InParts | PaddedTasks | ArrayLike | None = None,
    unsafe_seed: int | None = None,
    which: int = 0,
) -> FloatArray:
    """One owner's step: pay for a sum that holds at least the law's shares, then draw its own, (d, d).

    The owner adds it to what it sends, and does not keep it. What is promised of the sum: :func:`of_release`.

    Args:
        law: of the sum, if as few stay in it as may.
        adjacency: "replace" or "zero_out".
        ledger: of this owner; pays, on disk, before anything is drawn.
        data: what the release is about, for the ledger's fingerprint.
        unsafe_seed: draws the share from this seed, for demonstrations.
        which: of the owners, to tell shares of one seed apart.

    Raises:
        BudgetExceeded: the ledger's total does not cover it. Nothing was drawn.
    """
    check_ledger(ledger, unsafe_seed)
    if ledger is not None:
        ledger.charge(law, data=data, adjacency=adjacency)
    return law.draw_share(exact.source(unsafe_seed, which))


def _pay(
    rounds: Sequence[Mechanism],
    epsilon: float,
    adjacency: str,
    unit: str,
    claimed: Bound | None,
    unsafe_seed: int | None,
    ledger: Ledger | None,
    data: InParts | PaddedTasks | ArrayLike | None,
    purchases: Sequence[Purchase],
) -> Guarantee:
    """What holds of all rounds together, once they are paid for."""
    epsilon = positive("epsilon", epsilon)
    check_ledger(ledger, unsafe_seed)
    guarantee = of_release(
        (*rounds, *(purchase.law for purchase in purchases)),
        epsilon=epsilon,
        adjacency=adjacency,
        claimed=claimed,
        seeded=unsafe_seed is not None,
        unit=Unit.of(unit),
    )
    if ledger is not None:
        ledger.charge(rounds, data=data, unit=unit, adjacency=adjacency, purchases=purchases)
    return replace(guarantee, shared_subjects=getattr(data, "subjects", None) is not None)


def _check_room(numbers: int) -> None:
    """Raise ValueError for more noise than there is memory for, before it is paid for."""
    if numbers > MANY:
        raise ValueError(f"mechanisms: expected noise of at most {MANY} numbers in all, got {numbers}")


def _of_one_dimension[L: MatrixMechanism | VectorMechanism](laws: Sequence[L], kind: type, what: str) -> tuple[L, ...]:
    rounds = tuple(laws)
    if not rounds:
        raise ValueError("mechanisms: expected one per round, at least one, got none")
    if wrong := next((law for law in rounds if not isinstance(law, kind)), None):
        raise ValueError(f"mechanisms: expected noise on {what}, got {type(wrong).__name__}")
    if len({law.num_features for law in rounds}) > 1:
        raise ValueError(f"mechanisms: expected one dimension, got {sorted({law.num_features for law in rounds})}")
    return rounds
