"""Privacy budget of a descent: one charge for a noisy discrepancy and all noisy gradients."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import fraction, in_range, moderate, normalise_fields, one_of, whole
from mpmtl_prob.adaptation.data.domain import Domain
from mpmtl_prob.adaptation.paper import accounting, descent
from mpmtl_prob.adaptation.paper.discrepancy import Ball, discrepancy, grid, noisy, price
from mpmtl_prob.privacy.charge_and_draw import draw_each
from mpmtl_prob.privacy.guarantee import NOT_PRIVATE, Bound, Guarantee
from mpmtl_prob.privacy.ledger import Ledger
from mpmtl_prob.privacy.mechanisms import VectorGaussian, VectorLaplace
from mpmtl_prob.privacy.units import Unit

ADAPTIVE = (
    "Every step may answer the steps before: Gaussian noises of known size compose exactly, whatever is asked next."
)
ACCOUNTING = ("exact", "printed")


@dataclass(frozen=True)
class Budget:
    """Privacy budget of a descent.

    Attributes:
        epsilon: > 0; None is without noise and without privacy.
        delta: in (0, 1); None is 1 / n^1.1.
        accounting: "exact", or "printed": the paper's noise, whose true privacy differs from its claim.
        discrepancy_share: share of epsilon for the discrepancy.
    """

    epsilon: float | None
    delta: float | None
    accounting: str
    discrepancy_share: float

    def __post_init__(self) -> None:
        if self.epsilon is not None:
            normalise_fields(self, moderate, "epsilon")
        if self.delta is not None:
            normalise_fields(self, fraction, "delta")
        one_of("accounting", self.accounting, ACCOUNTING)
        normalise_fields(self, fraction, "discrepancy_share")

    def at(self, num_records: int) -> float:
        """Return delta for this number of records."""
        return accounting.default_delta(num_records) if self.delta is None else self.delta

    def ratio(self, epsilon: float, delta: float, steps: int, queries: int, first: VectorLaplace | None) -> float:
        """Return sigma_j / s_j: as printed in Algorithm 1, lines 2 and 3, or the least noise that meets the whole budget."""
        if self.accounting == "printed":
            optimiser_epsilon = epsilon - (0.0 if first is None else epsilon * self.discrepancy_share)
            return accounting.printed_noise(optimiser_epsilon, delta, steps)
        return float(np.sqrt(queries * steps) / accounting.calibrated_mu(epsilon, delta, (first,) if first else ()))


class Drawn(NamedTuple):
    """Noise of a descent, paid for and drawn.

    Attributes:
        discrepancy: d_DP.
        noise: noise of every step, (T, size), in units of the sensitivities; None without privacy.
        lattice: h, the lattice step.
        ratio: sigma_j / s_j.
        guarantee: the guarantee of discrepancy and descent together.
    """

    discrepancy: float
    noise: FloatArray | None
    lattice: float
    ratio: float
    guarantee: Guarantee


def draw(
    budget: Budget,
    source: Domain,
    target: Domain,
    discrepancy_choice: Any,
    *,
    steps: int,
    size: int,
    queries: int,
    ledger: Ledger | None,
    unsafe_seed: int | None,
) -> Drawn:
    """Pay for the discrepancy and all steps at once, and draw their noise.

    Args:
        budget: the privacy budget.
        source: public.
        target: private, bounded.
        discrepancy_choice: a public number instead of the discrepancy, a :class:`Ball` of predictors over which it is taken,
            or a pair (function of source and target, range of the loss).
        steps: T.
        size: noisy numbers per step.
        queries: k, per step.
        ledger: of unit "target record".
        unsafe_seed: draws the noise from this seed, for demonstrations: nothing is then guaranteed.

    Raises:
        BudgetExceeded: the ledger's total does not cover it.
        ValueError: an argument outside its range. Nothing was charged.
    """
    steps, size, queries = whole("steps", steps), whole("size", size), whole("queries", queries)
    n = target.num_records
    search = _search(discrepancy_choice, source, target)
    if budget.epsilon is None:
        if ledger is not None:
            raise ValueError("ledger: expected none without epsilon, as there is no noise to pay for")
        return Drawn(search[0]() if search else float(discrepancy_choice), None, 0.0, 0.0, NOT_PRIVATE)
    epsilon, delta = budget.epsilon, budget.at(n)
    first = price(search[1], n, epsilon * budget.discrepancy_share) if search else None
    ratio = budget.ratio(epsilon, delta, steps, queries, first)
    gaussian: VectorGaussian = descent.law(steps, size, queries, ratio)
    laws, lattices = [gaussian], [descent.grid(gaussian)]
    claimed = Bound(epsilon, delta, "replace", Unit.TARGET_RECORD) if budget.accounting == "printed" else None
    noise, guarantee = draw_each(
        [first, *laws] if first else laws,
        lattices=[grid(first), *lattices] if first else lattices,
        epsilon=epsilon,
        unit=Unit.TARGET_RECORD,
        claimed=claimed,
        unsafe_seed=unsafe_seed,
        ledger=ledger,
        data=np.column_stack([target.X, target.y]),
    )
    if guarantee.proved:
        guarantee = replace(guarantee, reason=f"{guarantee.reason} {ADAPTIVE}")
    if search is not None and first is not None:
        discrepancy = noisy(search[0](), float(noise[0][0]), first, search[1])
    else:
        discrepancy = float(discrepancy_choice)
    return Drawn(discrepancy, noise[-1].reshape(steps, size), lattices[0], ratio, guarantee)


def _search(discrepancy_choice: Any, source: Domain, target: Domain) -> tuple[Any, float] | None:
    if isinstance(discrepancy_choice, Ball):
        return (
            lambda: discrepancy(discrepancy_choice.difference(source, target), discrepancy_choice.radius).value
        ), discrepancy_choice.loss_range
    if isinstance(discrepancy_choice, tuple) and len(discrepancy_choice) == 2 and callable(discrepancy_choice[0]):
        return (lambda: discrepancy_choice[0](source, target)), discrepancy_choice[1]
    in_range("discrepancy", discrepancy_choice, 0, np.inf, left_closed=True)
    return None
