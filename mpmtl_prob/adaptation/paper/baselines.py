"""Baselines for domain adaptation: source only, target only, pooled, and private descents without weights of records.

The fit to the source alone costs no privacy, and for small n it is better than every descent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import in_range, moderate, one_of, optional, whole
from mpmtl_prob.adaptation.data.domain import Domain, numbers, tell_of_cuts
from mpmtl_prob.adaptation.estimator import Adaptation
from mpmtl_prob.adaptation.paper import descent
from mpmtl_prob.adaptation.paper.cnvx import CnvxAdap
from mpmtl_prob.adaptation.paper.descent import PrivateSums
from mpmtl_prob.adaptation.paper.losses import Squared
from mpmtl_prob.adaptation.paper.private import UNTOUCHED, Budget, draw
from mpmtl_prob.adaptation.public_fit import huber, least_squares, robust
from mpmtl_prob.privacy.guarantee import NOT_PRIVATE
from mpmtl_prob.privacy.ledger import Ledger


@dataclass(repr=False, eq=False)
class SourceOnly(Adaptation):
    """A fit to the public source; eps = 0.

    Attributes:
        loss: "huber", robust, with threshold 1.345 times the scale; "absolute", or "squared".
    """

    loss: str = "huber"

    def fit(self, source: Any, target: Any = None) -> Self:
        """Fit to the source. The target is not looked at."""
        one_of("loss", self.loss, ("huber", "absolute", "squared"))
        public, _ = self._pair(source, source)
        if self.loss == "squared":
            self.coef_ = least_squares(public)
        else:
            scale = robust(public).scale
            self.coef_ = robust(public).w if self.loss == "huber" else huber(public, 1e-3 * scale)
        self.guarantee_ = UNTOUCHED
        return self


@dataclass(repr=False, eq=False)
class Unprotected(Adaptation):
    """Ridge regression without privacy, as a yardstick.

    Attributes:
        records: "target" alone, or "pooled" with the source.
        ridge: at least 0, on the mean squared error.
    """

    records: str = "target"
    ridge: float = 1e-4

    def fit(self, source: Any, target: Any) -> Self:
        """Fit by ridge regression. Raises ValueError for records that are not numbers, as no privacy is promised."""
        one_of("records", self.records, ("target", "pooled"))
        in_range("ridge", self.ridge, 0, np.inf, left_closed=True)
        public, private = self._pair(source, target)
        numbers("target", private)
        domains = [private] if self.records == "target" else [public, private]
        every = Domain(np.concatenate([part.X for part in domains]), np.concatenate([part.y for part in domains]))
        self.coef_, self.guarantee_ = least_squares(every, self.ridge), NOT_PRIVATE
        return self


@dataclass(repr=False, eq=False)
class NoisyGradient(Adaptation):
    """Noisy projected gradient descent on the target alone; replaces the noisy minibatches of the paper's Fig. 2.

    Attributes are those of :class:`CnvxAdap` of the same name; ``step_size`` default as printed there.

    Source: Bassily, Feldman, Talwar and Thakurta (2019), for the method that it replaces.
    """

    epsilon: float | None = 1.0
    delta: float | None = None
    steps: int = 300
    step_size: float | None = None
    start: ArrayLike | str | None = None
    row_bound: float = 1.0
    target_bound: float = 1.0
    weight_bound: float = 1.0
    ledger: Ledger | None = None
    unsafe_seed: int | None = None

    def fit(self, source: Any, target: Any) -> Self:
        """Fit to the private target. The source is used for the starting point at most."""
        public, private = self._pair(source, target)
        tell_of_cuts({"source": public}, self.row_bound, self.target_bound, self.weight_bound)
        public, private = (part.bounded(self.row_bound, self.target_bound) for part in (public, private))
        loss = Squared(self.row_bound, self.weight_bound, self.target_bound)
        d = public.num_features
        T = whole("steps", self.steps)
        step = optional(moderate, "step_size", self.step_size)
        first = CnvxAdap(start=self.start, weight_bound=self.weight_bound)._first(public)
        budget = Budget(self.epsilon, self.delta, "exact", 0.5)
        drawn = draw(
            budget, public, private, 0.0,
            steps=T, size=d, queries=1, ledger=self.ledger, unsafe_seed=self.unsafe_seed,
        )  # fmt: skip
        n = max(private.num_records, 1)
        sigma = 2 * loss.lipschitz / n * drawn.ratio
        printed = loss.weight_bound / np.sqrt(T * (loss.lipschitz**2 + d * sigma**2))
        sums = PrivateSums(private, loss, loss.lipschitz, drawn.noise, drawn.lattice)
        step, w, total = float(printed if step is None else step), first, np.zeros(d)
        for t in range(T):
            w = descent.project(w - step * sums.gradient(t, w, np.ones(private.num_records)) / n, loss.weight_bound)
            total += w
        self.coef_, self.guarantee_ = total / T, drawn.guarantee
        return self


@dataclass(repr=False, eq=False)
class WarmDescent(CnvxAdap):
    """Profiled descent that starts from a robust fit to the source, without a charge for the discrepancy: a strong baseline.

    Attributes are those of :class:`CnvxAdap`; ``start`` defaults to the robust fit.
    """

    discrepancy: float | str = 0.0

    def _first(self, public: Domain) -> FloatArray:
        if self.start is None:
            return descent.project(robust(public).w, moderate("weight_bound", self.weight_bound))
        return super()._first(public)
