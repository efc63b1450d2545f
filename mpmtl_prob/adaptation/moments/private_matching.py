"""Private discrepancy minimisation: source weights that match a noisy second moment of the target's features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from mpmtl_prob._util.checks import in_range, moderate
from mpmtl_prob.adaptation.data.domain import tell_of_cuts
from mpmtl_prob.adaptation.estimator import Adaptation
from mpmtl_prob.adaptation.moments.release import release_moments
from mpmtl_prob.adaptation.paper.matching import discrepancy_weights, weighted
from mpmtl_prob.privacy.ledger import Ledger


@dataclass(repr=False, eq=False)
class PrivateDiscrepancyMinimisation(Adaptation):
    """Discrepancy minimisation from one private release of the target's second moment, then weighted ridge on the source.

    It stands in for the private algorithm of Figure 3 (Bassily, Mohri and Suresh, 2022), whose formulas the paper does not
    give: that one, too, sees features of the target, and labels of the source alone.

    Attributes:
        epsilon: the budget.
        delta: default 1 / n^1.1.
        ridge: at least 0.
        row_bound: r, public.
        ledger: of unit "target record", pays, on disk, before noise is drawn.
        unsafe_seed: draws the noise from this seed, for demonstrations: nothing is then guaranteed.

    A fit has ``source_weights_``, (m,), with sum 1, and ``release_``, which is public.

    Source: Cortes and Mohri (2014), for the weights.
    """

    epsilon: float = 1.0
    delta: float | None = None
    ridge: float = 1e-4
    row_bound: float = 1.0
    ledger: Ledger | None = None
    unsafe_seed: int | None = None

    def fit(self, source: Any, target: Any) -> Self:
        """Fit to a public source and a private target, whose labels are not used. Raises those of :func:`release_moments`."""
        public, private = self._pair(source, target)
        r = moderate("row_bound", self.row_bound)
        in_range("ridge", self.ridge, 0, np.inf, left_closed=True)
        tell_of_cuts({"source": public}, r, None)
        rows = public.bounded(r, max(float(np.abs(public.y).max()), 1.0))  # public labels stay as they are
        self.release_ = release_moments(
            private, centre=np.zeros(public.num_features), residual_bound=1.0, epsilon=self.epsilon, delta=self.delta,
            row_bound=r, ledger=self.ledger, unsafe_seed=self.unsafe_seed,
        )  # fmt: skip
        a, Q = np.linalg.eigh(self.release_.xx / max(private.num_records, 1))
        moment = (Q * np.clip(a, 0.0, None)) @ Q.T  # a second moment has no negative eigenvalue
        self.source_weights_ = discrepancy_weights(rows.X, moment)
        self.coef_, self.guarantee_ = weighted(rows, self.source_weights_, self.ridge), self.release_.guarantee
        return self
