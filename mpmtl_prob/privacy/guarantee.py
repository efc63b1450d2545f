"""A guarantee in numbers and in words: what the papers claim, and what is proved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mpmtl_prob.privacy.accounting import delta
from mpmtl_prob.privacy.mechanisms import Wishart


@dataclass(frozen=True)
class Bound:
    """(eps, delta)-privacy of one task under an adjacency."""

    epsilon: float
    delta: float
    adjacency: str

    def __str__(self) -> str:
        return f"eps = {self.epsilon:.3g}, delta = {self.delta:.3g} ({self.adjacency.replace('_', '-')})"


@dataclass(frozen=True)
class Guarantee:
    """What protects one task's model, as claimed and as proved; they are never mixed.

    Attributes:
        claimed: what the papers' theorem says, or None where they say nothing.
        proved: what holds, or None where nothing is proved.
        reason: why, in words.
    """

    claimed: Bound | None
    proved: Bound | None
    reason: str

    def __str__(self) -> str:
        proved = str(self.proved) if self.proved else "nothing"
        claimed = f"; the papers claim {self.claimed}" if self.claimed and self.claimed != self.proved else ""
        return f"proved: {proved}{claimed}. {self.reason}"


NOTHING_SHARED = Guarantee(
    Bound(0.0, 0.0, "replace"), Bound(0.0, 0.0, "replace"), "Every task learns alone: nothing is shared."
)
NOT_PRIVATE = Guarantee(None, None, "Every task's model depends on the rows of all others without any noise.")


def of_release(
    mechanisms: Sequence[Wishart], *, epsilon: float, adjacency: str, claimed: Bound | None, seeded: bool
) -> Guarantee:
    """The guarantee of the mechanisms composed, at the given eps.

    Args:
        mechanisms: one per round.
        epsilon: at which the true delta is computed.
        adjacency: "replace" or "zero_out".
        claimed: what the papers say of it.
        seeded: the noise came from a seed, which whoever knows it can subtract.
    """
    if seeded:
        return Guarantee(claimed, None, "The noise was drawn from a fixed seed: whoever knows the seed removes it.")
    true_delta = delta(epsilon, mechanisms, adjacency)
    if all(mechanism.shape == 1 for mechanism in mechanisms):
        reason = (
            "The support of the papers' noise moves with the data, so no finite eps holds with a smaller delta than "
            "1 - exp(-sum of the rounds' eps), whatever the papers' (eps, 0) says."
        )
    else:
        reason = "The release is exactly as private as one-sided Gamma noise on a number in [0, clip^2]."
    if true_delta >= 1:
        return Guarantee(claimed, Bound(epsilon, 1.0, adjacency), reason + " delta = 1 guarantees nothing.")
    return Guarantee(claimed, Bound(epsilon, true_delta, adjacency), reason)
