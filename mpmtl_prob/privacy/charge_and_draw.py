"""Payment from the ledger followed by drawing of noise: the only code that draws noise which is published.

Noise on a second moment protects the owner of a vector from everybody who sees the sum. Noise on single published vectors
protects it from the curator too.
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
    """Pay for T rounds of releases of second moments, then draw the noise of each.

    Args:
        mechanisms: the noise law of each round, all of one dimension d.
        epsilon: where the guarantee is stated, > 0.
        adjacency: "replace" or "zero_out".
        lattice: h. The entries of the vectors are whole multiples of h, and the noise of h^2.
        unit: the owner of each vector in the second moment, such as a "task" or a record.
        claimed: the papers' claim, if there is one.
        unsafe_seed: draws the noise from this seed, for demonstrations. Nothing is then guaranteed.
        ledger: pays for all rounds, on disk, before any noise is drawn.
        data: the data behind the release, for the ledger's fingerprint.
        purchases: earlier private choices for this release, such as a clip norm. They are part of the guarantee. A purchase
            that the ledger has not paid for yet is charged together with the rounds.

    Returns:
        The noise, (T, d, d), and the guarantee of all rounds together. The caller adds the noise and must not keep it.

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
    """Pay for T rounds of releases of vectors, then draw fresh noise for every vector in each of them.

    In every round a change of one unit may move one vector, by at most the mechanism's sensitivity. The other vectors of the
    round then cost nothing more. The caller must bound the vectors, truncate them to the lattice, add the noise to them, and
    forget the noise.

    Args:
        mechanisms: the noise law of each round, all of one dimension d.
        vectors: number of vectors per round: m, or one for an average.
        epsilon: where the guarantee is stated, > 0.
        lattice: h. The vectors and the noise are whole multiples of it.
        unit: the unit of the sensitivity, such as a "row" of a task, or a whole "task". The adjacency is replacement.
        claimed: the claim of the method's authors, if there is one.
        unproved: why the sensitivity does not bound the change, where that is so. Nothing is then proved, and no ledger pays.
        unsafe_seed: draws the noise from this seed, for demonstrations. Nothing is then guaranteed.
        ledger: pays for all rounds, on disk, before any noise is drawn.
        data: the data behind the release, for the ledger's fingerprint.
        purchases: earlier private choices for this release, such as a clip norm. They are part of the guarantee. A purchase
            that the ledger has not paid for yet is charged together with the rounds.

    Returns:
        The noise, (T, d, vectors), and the guarantee of all rounds together.

    Raises:
        BudgetExceeded: the ledger's total does not cover it.
        ValueError: an argument outside its range, or a ledger for an unproved release. Nothing was charged, nothing drawn.
    """
    rounds = _of_one_dimension(mechanisms, VectorMechanism, "vectors")
    vectors, lattice = whole("vectors", vectors), positive("lattice", lattice)
    _check_room(vectors * sum(law.num_features for law in rounds))
    if unproved and ledger is not None:
        raise ValueError(f"ledger: expected none, as nothing is proved of this release. {unproved}")
    limit = 2.0**52 * lattice  # sums above this are rounded to doubles, and their last bits may reveal the vector
    # The probability of larger noise than this is negligible.
    largest = max((64 + 2 * law.num_features) * law.scale for law in rounds)
    if not unproved and largest >= limit:
        raise ValueError(f"lattice: expected at least {largest / 2.0**52:.3g} for noise of this size, got {lattice!r}")
    guarantee = _pay(rounds, epsilon, "replace", unit, claimed, unsafe_seed, ledger, data, purchases)
    if unproved and guarantee.proved:
        guarantee = Guarantee(claimed, None, unproved, guarantee.arithmetic)
    drawn = [
        [law.draw(lattice, exact.source(unsafe_seed, t, i)) for i in range(vectors)] for t, law in enumerate(rounds)
    ]
    noise = np.swapaxes(np.array(drawn), 1, 2)
    if guarantee.proved and np.abs(noise).max() >= limit:
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
    """Pay for several vectors of any lengths in one charge, then draw the noise of each.

    Later vectors may depend on the published earlier ones. Arguments, errors and the caller's duties are those of
    :func:`draw_vectors`, with a lattice for every law.

    Returns:
        The noise on every vector, (d,) each, and the guarantee of all together.
    """
    laws = tuple(mechanisms)
    if not laws or not all(isinstance(law, VectorMechanism) for law in laws) or len(lattices) != len(laws):
        raise ValueError("mechanisms: expected noise on vectors, at least one, and a lattice for each")
    lattices = [positive("lattice", lattice) for lattice in lattices]
    _check_room(sum(law.num_features for law in laws))
    for law, lattice in zip(laws, lattices, strict=True):
        limit = 2.0**52 * lattice  # as in draw_vectors
        if (64 + 2 * law.num_features) * law.scale >= limit:
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
    """Pay, from one owner's ledger, for a sum with at least the law's number of shares; then draw this owner's share, (d, d).

    The owner adds the share to its message, and must not keep it. The guarantee of the sum comes from :func:`of_release`.

    Args:
        law: noise of the sum, with the smallest number of owners that may remain in it.
        adjacency: "replace" or "zero_out".
        ledger: of this owner. It pays, on disk, before anything is drawn.
        data: the data behind the release, for the ledger's fingerprint.
        unsafe_seed: draws the share from this seed, for demonstrations.
        which: number of the owner, so that owners with the same seed draw different shares.

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
    """Pay for all rounds, and return the guarantee of all of them together."""
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
    """Raise ValueError for more noise than memory can hold, before anything is paid."""
    if numbers > MANY:
        raise ValueError(f"mechanisms: expected noise of at most {MANY} numbers in all, got {numbers}")


def _of_one_dimension[L: MatrixMechanism | VectorMechanism](laws: Sequence[L], kind: type, what: str) -> tuple[L, ...]:
    """Return the laws as a tuple. Raises ValueError for none, for another kind of noise, and for several dimensions."""
    rounds = tuple(laws)
    if not rounds:
        raise ValueError("mechanisms: expected one per round, at least one, got none")
    if wrong := next((law for law in rounds if not isinstance(law, kind)), None):
        raise ValueError(f"mechanisms: expected noise on {what}, got {type(wrong).__name__}")
    if len({law.num_features for law in rounds}) > 1:
        raise ValueError(f"mechanisms: expected one dimension, got {sorted({law.num_features for law in rounds})}")
    return rounds
