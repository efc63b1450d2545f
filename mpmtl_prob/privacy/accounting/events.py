"""Mechanisms as dp-accounting's events, by which its accountants add them to what other programs have spent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from mpmtl_prob.privacy.accounting.composition import as_rounds, profile
from mpmtl_prob.privacy.mechanisms.mechanism import Mechanism
from mpmtl_prob.privacy.units import Adjacency


def dp_event(mechanisms: Sequence[Mechanism], adjacency: str, epsilon: float, delta: float) -> Any:
    """Return the event of all mechanisms together, one per round.

    A Gaussian one, which tells neighbours apart as N(0, 1) and N(mu, 1), is ``GaussianDpEvent(1 / mu)``, and several are
    composed. With any other among them it is one ``EpsilonDeltaDpEvent(epsilon, delta)``.

    Args:
        mechanisms: one per round.
        adjacency: which neighbours the event is about.
        epsilon: at which the mechanisms together have this delta.
        delta: beside it.

    Raises:
        ValueError: other than Gaussian noise, of which the installed dp-accounting has no event.
    """
    import dp_accounting  # a second to import

    each = [profile((law,), Adjacency.of(adjacency)).mu for law in as_rounds(mechanisms)]
    known = [mu for mu in each if mu is not None]
    if len(known) < len(each):
        kind = getattr(dp_accounting.dp_event, "EpsilonDeltaDpEvent", None)
        if kind is None:
            others = ", ".join(dict.fromkeys(law.kind for law, mu in zip(mechanisms, each, strict=True) if mu is None))
            raise ValueError(
                f"mechanisms: expected Gaussian noise, of which dp-accounting has an event, got {others}, and the installed "
                "dp-accounting has none of (eps, delta). Compose the losses instead, which is tighter: every mechanism has "
                "its loss_distribution(adjacency), a PrivacyLossDistribution of dp-accounting's"
            )
        return kind(epsilon, delta)
    rounds = [
        event if times == 1 else dp_accounting.SelfComposedDpEvent(event, times)
        for event, times in Counter(dp_accounting.GaussianDpEvent(1 / mu) for mu in known).items()
    ]
    return rounds[0] if len(rounds) == 1 else dp_accounting.ComposedDpEvent(rounds)
