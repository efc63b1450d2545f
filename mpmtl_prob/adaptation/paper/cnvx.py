"""CnvxAdap: private adaptation of linear regression with weights of all records (Algorithm 1), in four variants.

With the printed step sizes the weights do not move, and the predictor's steps are those of a worst-case subgradient method.
In effect the algorithm is then noisy gradient descent with fixed weights. The variants differ in how the weights move.

Source: Bassily, Cortes, Mao and Mohri (2023), section 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import as_float_array, moderate, one_of, optional, whole
from mpmtl_prob.adaptation.data.domain import Domain, tell_of_cuts
from mpmtl_prob.adaptation.estimator import Adaptation
from mpmtl_prob.adaptation.paper import descent
from mpmtl_prob.adaptation.paper.descent import PrivateSums, StepSizes
from mpmtl_prob.adaptation.paper.discrepancy import Ball
from mpmtl_prob.adaptation.paper.losses import Squared
from mpmtl_prob.adaptation.paper.objective import Convex, Sizes, variant, with_weight
from mpmtl_prob.adaptation.paper.private import Budget, Drawn, draw
from mpmtl_prob.adaptation.paper.solver import Problem, minimise
from mpmtl_prob.adaptation.public_fit import robust
from mpmtl_prob.privacy.ledger import Ledger


@dataclass(repr=False, eq=False)
class CnvxAdap(Adaptation):
    """Regression with a weight for every record: minimises F of (6) by noisy projected gradient descent.

    Attributes:
        epsilon: the budget, discrepancy included; None solves for the optimum of F without privacy.
        delta: default 1 / n^1.1. The paper has .01, far above 1 / n.
        variant: "printed" is Algorithm 1 to the letter; "rescaled" has steps of the weights in units in which they move;
            "frozen" gives private records no weights of their own; "profiled" inserts the best weights for every
            predictor, which needs the least noise and has the same minimiser.
        source_weight: alpha, in (0, 1], the total weight of the public records. At 1 private records enter through the
            discrepancy alone, which then has the whole budget; with a number in its place nothing is paid.
        kappa_1: > 0, penalty on ||q - p0||_1. A record whose loss is above kappa_1 has a smaller weight.
        kappa_2: penalty on ||q||_2, at least 0; must be 0 with "profiled".
        kappa_inf: penalty on the largest weight, at least 0; must be 0 with "profiled".
        steps: T.
        step_size: step size of the predictor; default as printed, and 1 / (2 r^2) by smoothness with "profiled".
        start: first predictor, public, (d,), or "source": a robust fit to the source; default zero.
        discrepancy: "local", noisy, over a ball round a public fit to the source; "global", over all predictors, as
            printed; or a public number in its place, which costs no privacy.
        radius: R of the local ball.
        discrepancy_share: share of epsilon for the discrepancy.
        accounting: "exact", or "printed": the paper's noise and claim; ``guarantee_`` has the privacy that holds too.
        row_bound: r, public: longer rows are clipped.
        target_bound: public: targets are clipped to it.
        weight_bound: Lambda.
        ledger: of unit "target record", pays, on disk, before noise is drawn.
        unsafe_seed: draws the noise from this seed, for demonstrations: nothing is then guaranteed.

    "printed" and "rescaled" draw exact noise for every private record in every step, which takes about 16 microseconds each.

    A fit has ``coef_``, ``guarantee_``, ``discrepancy_`` (d_DP), ``path_`` (w_1..w_T) and ``source_weights_`` (q of public
    records, (m,)). Weights of private records belong to one record each, and are never published.

    >>> from mpmtl_prob.adaptation import CnvxAdap
    >>> from mpmtl_prob.adaptation.data import problems
    >>> data = problems.two_sources(records=(300, 200), seed=0)
    >>> model = CnvxAdap(epsilon=1.0, variant="profiled", kappa_1=0.02, discrepancy=0.0).fit(data.source, data.target)
    >>> print(model.guarantee_.proved)
    eps = 1, delta = 0.00294 (replace, one target record)
    """

    epsilon: float | None = 1.0
    delta: float | None = None
    variant: str = "profiled"
    source_weight: float = 0.5
    kappa_1: float = 0.05
    kappa_2: float = 0.0
    kappa_inf: float = 0.0
    steps: int = 300
    step_size: float | None = None
    start: ArrayLike | str | None = None
    discrepancy: float | str = "local"
    radius: float = 0.25
    discrepancy_share: float = 0.5
    accounting: str = "exact"
    row_bound: float = 1.0
    target_bound: float = 1.0
    weight_bound: float = 1.0
    ledger: Ledger | None = None
    unsafe_seed: int | None = None

    def fit(self, source: Any, target: Any) -> Self:
        """Fit to a public source and a private target, each a Domain or a pair (X, y).

        Raises:
            BudgetExceeded: the ledger's total does not cover it.
            ValueError: an argument outside its range, or data that do not match. Nothing was charged.
        """
        public, private, loss, penalties, sizes = self._settled(source, target)
        d, T = public.num_features, whole("steps", self.steps)
        first, both = self._first(public), self.variant in ("printed", "rescaled")
        where = discrepancy_over(self.discrepancy, public, loss, self.radius)
        budget = Budget(self.epsilon, self.delta, self.accounting, self.discrepancy_share)
        drawn = draw(
            budget, public, private, where,
            steps=T, size=d + private.num_records * both, queries=(1 + both) if sizes.each_private else 0,
            ledger=self.ledger, unsafe_seed=self.unsafe_seed,
        )  # fmt: skip
        self.discrepancy_, self.guarantee_ = drawn.discrepancy, drawn.guarantee
        private, sizes = with_weight(private, sizes)
        if self.epsilon is None:
            best = minimise(Problem(public, private, loss, sizes, drawn.discrepancy), penalties, first)
            self.path_, weights = best.w[None], best.weights[: sizes.public]
        else:
            self.path_, weights = self._descend(public, private, loss, penalties, sizes, drawn, first)
        self.coef_ = self.path_[len(self.path_) // 2 :].mean(0) if self.variant == "profiled" else self.path_.mean(0)
        self.source_weights_ = sizes.each_public / weights
        return self

    def _settled(self, source: Any, target: Any) -> tuple[Domain, Domain, Squared, Convex, Sizes]:
        public, private = self._pair(source, target)
        variant(self.variant)
        loss = Squared(self.row_bound, self.weight_bound, self.target_bound)
        optional(moderate, "step_size", self.step_size)
        moderate("kappa_1", self.kappa_1)
        penalties = Convex(self.kappa_1, self.kappa_2, self.kappa_inf)
        if self.variant == "profiled" and (penalties.kappa_2 or penalties.kappa_inf) and self.epsilon is not None:
            raise ValueError(
                "variant: expected another than 'profiled' with kappa_2 or kappa_inf, which tie all weights"
            )
        tell_of_cuts({"source": public}, self.row_bound, self.target_bound, self.weight_bound)
        public, private = (part.bounded(self.row_bound, self.target_bound) for part in (public, private))
        return public, private, loss, penalties, Sizes(public.num_records, private.num_records, self.source_weight)

    def _first(self, public: Domain) -> FloatArray:
        d, radius = public.num_features, moderate("weight_bound", self.weight_bound)
        if isinstance(self.start, str):
            one_of("start", self.start, ("source",))
            return descent.project(robust(public).w, radius)
        start = np.zeros(d) if self.start is None else as_float_array("start", self.start)
        if start.shape != (d,) or not np.all(np.isfinite(start)):
            raise ValueError(f"start: expected {d} numbers, got shape {start.shape}")
        return descent.project(start, radius)

    def step_sizes(self, sizes: Sizes, loss: Squared, ratio: float, num_features: int) -> StepSizes:
        """Return the step sizes of Algorithm 1, line 4, for sigma_j = s_j ``ratio``.

        The variant "rescaled" moves u~ by the step printed for u / sqrt n.
        """
        m, n, T, step = sizes.public, max(sizes.private, 1), whole("steps", self.steps), self.step_size
        a, b = sizes.source_weight, 1 - sizes.source_weight
        B, G, wide = loss.bound, loss.lipschitz, loss.bound + Convex(self.kappa_1, self.kappa_2, self.kappa_inf).total
        sigma_1, sigma_2 = 2 * b * G / n * ratio, b**2 * B / n**2 * ratio  # lines 2 and 3
        w = loss.weight_bound / np.sqrt(T * (G**2 + num_features * sigma_1**2))
        public = m**1.5 / (np.sqrt(T) * a**2 * (B + wide))
        private = n**1.5 / np.sqrt(T * (b**4 * wide**2 + n**4 * sigma_2**2)) if b else 0.0
        if self.variant != "printed":
            public, private = public * np.sqrt(m) * m / a, private * np.sqrt(n) * n / b if b else 0.0
        return StepSizes(float(w) if step is None else moderate("step_size", step), float(public), float(private))

    def _descend(
        self,
        public: Domain,
        private: Domain,
        loss: Squared,
        penalties: Convex,
        sizes: Sizes,
        drawn: Drawn,
        first: FloatArray,
    ) -> tuple[FloatArray, FloatArray]:
        d, T, step = len(first), whole("steps", self.steps), optional(moderate, "step_size", self.step_size)
        if self.variant == "profiled":
            # A gradient is psi'(L) 2 (w.x - y) x, of length at most 2 r min(Lambda r + t, sqrt kappa_1).
            longest = min(loss.lipschitz, 2 * loss.row_bound * float(np.sqrt(penalties.kappa_1)))
            sums = PrivateSums(private, loss, longest, drawn.noise, drawn.lattice)
            slope, step = penalties.profile_slope, 1 / loss.smoothness if step is None else step
            path = descent.profiled(public, sums, slope, sizes, drawn.discrepancy, step, T, first).w[1:]
            best = penalties.best_weights(loss.values(path[-1], public.X, public.y) + drawn.discrepancy)
            return path, best
        sums = PrivateSums(private, loss, loss.lipschitz, drawn.noise, drawn.lattice)
        end = descent.descend_with_weights(
            public, sums, penalties, sizes, drawn.discrepancy, self.step_sizes(sizes, loss, drawn.ratio, d), T, first,
            move_private=self.variant != "frozen",
        )  # fmt: skip
        return end.w, end.public


def discrepancy_over(setting: float | str, public: Domain, loss: Squared, radius: float) -> float | Ball:
    """Return the ball of predictors over which the discrepancy is taken, or the public number in its place."""
    if not isinstance(setting, str):
        return setting
    if one_of("discrepancy", setting, ("local", "global")) == "global":
        return Ball(None, loss.weight_bound, loss.target_bound, loss.row_bound)
    fit = robust(public)
    return Ball(tuple(fit.w.tolist()), radius, fit.residual_bound(public), loss.row_bound)
