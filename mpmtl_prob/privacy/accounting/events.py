"""Conversion of mechanisms to events of dp-accounting, for composition with the spending of other programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from mpmtl_prob.privacy.accounting.composition import as_rounds, profile
from mpmtl_prob.privacy.mechanisms.mechanism import Mechanism
from mpmtl_prob.privacy.units import Adjacency


def dp_event(mechanisms: Sequence[Mechanism], adjacency: str, epsilon: float, delta: float) -> Any:
    """Return the dp-accounting event of all mechanisms together, one per round.

    A Gaussian mechanism, whose neighbours differ like N(0, 1) and N(mu, 1), becomes ``GaussianDpEvent(1 / mu)``, and several
    are composed. If any mechanism is not Gaussian, the result is one ``EpsilonDeltaDpEvent(epsilon, delta)``.

    Args:
        mechanisms: one per round.
        adjacency: neighbouring relation of the event.
        epsilon: eps of all mechanisms together at this delta.
        delta: delta of all mechanisms together.

    Raises:
        ValueError: noise that is not Gaussian, where the installed dp-accounting has no (eps, delta) event.
    """
    import dp_accounting  # a second to import

    mus = [profile((law,), Adjacency.of(adjacency)).mu for law in as_rounds(mechanisms)]
    gaussian = [mu for mu in mus if mu is not None]
    if len(gaussian) < len(mus):
        kind = getattr(dp_accounting.dp_event, "EpsilonDeltaDpEvent", None)
        if kind is None:
            others = ", ".join(dict.fromkeys(law.kind for law, mu in zip(mechanisms, mus, strict=True) if mu is None))
            raise ValueError(
                f"mechanisms: expected Gaussian noise, of which dp-accounting has an event, got {others}, and the installed "
                "dp-accounting has no event for (eps, delta). Compose privacy losses instead, which is tighter: every "
                "mechanism has loss_distribution(adjacency).to_dp_accounting(), a PrivacyLossDistribution"
            )
        return kind(epsilon, delta)
    rounds = [
        event if times == 1 else dp_accounting.SelfComposedDpEvent(event, times)
        for event, times in Counter(dp_accounting.GaussianDpEvent(1 / mu) for mu in gaussian).items()
    ]
    return rounds[0] if len(rounds) == 1 else dp_accounting.ComposedDpEvent(rounds)
