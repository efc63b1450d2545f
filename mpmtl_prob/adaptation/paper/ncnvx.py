"""NCnvxAdap: private adaptation with any smooth loss (Algorithm 2), here logistic and softmax.

Source: Bassily, Cortes, Mao and Mohri (2023), section 5 and appendix D.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import moderate, one_of, optional, whole
from mpmtl_prob.adaptation.data.domain import Domain, tell_of_cuts
from mpmtl_prob.adaptation.estimator import Adaptation
from mpmtl_prob.adaptation.paper import descent
from mpmtl_prob.adaptation.paper.descent import PrivateSums, StepSizes
from mpmtl_prob.adaptation.paper.losses import Logistic, Loss, Softmax
from mpmtl_prob.adaptation.paper.objective import Sizes, Smoothed, smoothness, with_weight
from mpmtl_prob.adaptation.paper.private import Budget, Drawn, draw
from mpmtl_prob.adaptation.paper.solver import Problem, accelerated, minimise
from mpmtl_prob.privacy import lattice
from mpmtl_prob.privacy.ledger import Ledger

_GRID = 2.0**-30  # lattice step of a loss relative to its bound


@dataclass(repr=False, eq=False)
class NCnvxAdap(Adaptation):
    """Classification with a weight for every record: minimises J of (7) by noisy projected gradient descent.

    Two classes have the logistic loss, more classes softmax; the labels are those of the source.

    Attributes:
        epsilon: the budget, discrepancy included; None solves without privacy.
        delta: default 1 / n^1.1.
        variant: "printed" is Algorithm 2 to the letter, whose weights hardly move; "profiled" inserts the best weights.
        source_weight: alpha, in (0, 1], the total weight of the public records; at 1 as for :class:`CnvxAdap`.
        lambda_1: > 0, penalty on ||q - p0||_1. Records whose loss is larger are dropped, unlike with F.
        lambda_2: penalty on ||q||_2, at least 0; must be 0 with "profiled".
        lambda_inf: penalty on the largest weight, by a soft maximum, at least 0; must be 0 with "profiled".
        inverse_temperature: mu_s of the soft maximum; the default (m + n)^(2/3) is the printed one, and too small for a
            close approximation of the maximum.
        steps: T.
        step_size: default 1 / betabar as printed (20); with "profiled" 1 / beta.
        discrepancy: "candidates", noisy, over predictors chosen without private records; or a public number in its place.
        discrepancy_share: share of epsilon for the discrepancy.
        accounting: "exact" or "printed".
        row_bound: r, public.
        weight_bound: Lambda, public.
        ledger: of unit "target record", pays, on disk, before noise is drawn.
        unsafe_seed: draws the noise from this seed, for demonstrations: nothing is then guaranteed.
        seed: of the candidates, and of the random step t*, uniform on 1..T, whose predictor is returned.

    A fit has ``coef_``, (d,) or (d, classes), ``classes_``, ``guarantee_``, ``discrepancy_``, ``path_`` and ``loss_``;
    "profiled" adds ``answers_``, the noisy sums that were published in every step, with noise of sd ``noise_sd_``.

    >>> from mpmtl_prob.adaptation import NCnvxAdap
    >>> from mpmtl_prob.adaptation.data import problems
    >>> data = problems.two_sources(records=(300, 200), seed=0)
    >>> source, target = ((part.X, part.y > 0) for part in (data.source, data.target))
    >>> model = NCnvxAdap(epsilon=2.0, discrepancy=0.0).fit(source, target)
    >>> model.predict(data.test.X[:3]).shape
    (3,)
    """

    epsilon: float | None = 1.0
    delta: float | None = None
    variant: str = "profiled"
    source_weight: float = 0.5
    lambda_1: float = 2.0
    lambda_2: float = 0.0
    lambda_inf: float = 0.0
    inverse_temperature: float | None = None
    steps: int = 300
    step_size: float | None = None
    discrepancy: float | str = "candidates"
    discrepancy_share: float = 0.5
    accounting: str = "exact"
    row_bound: float = 1.0
    weight_bound: float = 5.0
    ledger: Ledger | None = None
    unsafe_seed: int | None = None
    seed: int = 0

    def fit(self, source: Any, target: Any) -> Self:
        """Fit to a public source and a private target with labels.

        Raises:
            BudgetExceeded: the ledger's total does not cover it.
            ValueError: an argument outside its range, or data that do not match. Nothing was charged.
        """
        public, private, loss, penalties, sizes = self._settled(source, target)
        self.answers_: descent.Answers | None = None
        size, T, both = loss.size(public.num_features), whole("steps", self.steps), self.variant == "printed"
        first, where = self._first(loss, public), self.discrepancy  # type: tuple[FloatArray, Any]
        if isinstance(where, str):
            one_of("discrepancy", where, ("candidates",))
            search = candidate_search(loss, public, whole("seed", self.seed, 0), self._public_fit(loss, public))
            where = (search, loss.bound)
        drawn = draw(
            Budget(self.epsilon, self.delta, self.accounting, self.discrepancy_share), public, private, where,
            steps=T, size=size + private.num_records * both, queries=(1 + both) if sizes.each_private else 0,
            ledger=self.ledger, unsafe_seed=self.unsafe_seed,
        )  # fmt: skip
        self.discrepancy_, self.guarantee_, self.loss_ = drawn.discrepancy, drawn.guarantee, loss
        self.num_records_ = private.num_records
        private, sizes = with_weight(private, sizes)
        self.coef_ = self._shaped(self._found(public, private, loss, penalties, sizes, drawn, first), loss)
        return self

    def _loss(self, classes: int) -> Loss:
        two = classes == 2
        return Logistic(*self._bounds) if two else Softmax(*self._bounds, classes)

    @property
    def _bounds(self) -> tuple[float, float]:
        return self.row_bound, self.weight_bound

    def _shaped(self, w: FloatArray, loss: Loss) -> FloatArray:
        return w if loss.outputs == 1 else w.reshape(-1, loss.outputs)

    def _public_fit(self, loss: Loss, public: Domain) -> FloatArray:
        return public_fit(loss, public)

    def _first(self, loss: Loss, public: Domain) -> FloatArray:
        return np.zeros(loss.size(public.num_features))

    def _settled(self, source: Any, target: Any) -> tuple[Domain, Domain, Loss, Smoothed, Sizes]:
        public, private = self._pair(source, target)
        one_of("variant", self.variant, ("printed", "profiled"))
        moderate("lambda_1", self.lambda_1)
        optional(moderate, "step_size", self.step_size)
        whole("seed", self.seed, 0)
        self.classes_ = np.unique(public.y)
        if len(self.classes_) < 2:
            raise ValueError(f"source: expected labels of at least two classes, got {len(self.classes_)}")
        loss = self._loss(len(self.classes_))
        tell_of_cuts({"source": public}, self.row_bound, None)
        m, n = public.num_records, private.num_records
        inverse_temperature = optional(moderate, "inverse_temperature", self.inverse_temperature)
        inverse_temperature = (m + n) ** (2 / 3) if inverse_temperature is None else inverse_temperature
        penalties = Smoothed(self.lambda_1, self.lambda_2, self.lambda_inf, inverse_temperature)
        if self.variant == "profiled" and (penalties.lambda_2 or penalties.lambda_inf) and self.epsilon is not None:
            raise ValueError(
                "variant: expected 'printed' with lambda_2 or lambda_inf, which tie all weights, got 'profiled'"
            )
        public, private = (self._coded(part, loss) for part in (public, private))
        return public, private, loss, penalties, Sizes(m, n, self.source_weight)

    def _coded(self, records: Domain, loss: Loss) -> Domain:
        """Code the labels for the loss. A record with a label that the source does not have becomes a record of zeros."""
        assert self.classes_ is not None
        index = np.searchsorted(self.classes_, records.y).clip(max=len(self.classes_) - 1)
        known = self.classes_[index] == records.y
        X = Domain(np.where(known[:, None], records.X, 0.0), np.zeros(len(index)), records.features)
        code = np.where(known, index, 0)
        return Domain(X.bounded(self.row_bound, 1.0).X, 2.0 * code - 1 if loss.outputs == 1 else code, records.features)

    def _found(
        self,
        public: Domain,
        private: Domain,
        loss: Loss,
        penalties: Smoothed,
        sizes: Sizes,
        drawn: Drawn,
        start: FloatArray,
    ) -> FloatArray:
        T, step = whole("steps", self.steps), optional(moderate, "step_size", self.step_size)
        if self.epsilon is None and loss.convex:
            problem = Problem(public, private, loss, sizes, drawn.discrepancy)
            best = min(
                (minimise(problem, penalties, first) for first in (start, self._public_fit(loss, public))),
                key=lambda optimum: optimum.objective,
            )
            self.path_ = best.w[None]
            return best.w
        sums = PrivateSums(private, loss, loss.lipschitz, drawn.noise, drawn.lattice)
        if self.variant == "profiled":
            slope, step = penalties.profile_slope, 1 / loss.smoothness if step is None else step
            path = descent.profiled(public, sums, slope, sizes, drawn.discrepancy, step, T, start)
            self.path_ = path.w[1:]
            self.answers_ = None if drawn.noise is None else path  # without noise they are private
            self.noise_sd_ = 2 * loss.lipschitz * drawn.ratio
            return self.path_[T // 2 :].mean(axis=0)
        eta = 1 / smoothness(loss, penalties, sizes) if step is None else step
        self.path_ = descent.descend_with_weights(
            public, sums, penalties, sizes, drawn.discrepancy, StepSizes(eta, eta, eta), T, start, move_private=True
        ).w
        t = int(np.random.default_rng(self.seed).integers(T))  # t* uniform on 1..T (Algorithm 2)
        return self.path_[t]


def public_fit(loss: Loss, source: Domain) -> FloatArray:
    """Minimise the source's mean loss over the ball of weights; return the flat weights."""
    n, X, y = source.num_records, source.X, source.y

    def value(w: FloatArray) -> float:
        return float(loss.values(w, X, y).mean())

    def gradient(w: FloatArray) -> FloatArray:
        slope: FloatArray = (X.T @ loss.slopes(w, X, y)).ravel() / n
        return slope

    curvature = loss.smoothness * float(np.linalg.eigvalsh(X.T @ X)[-1]) / n / loss.row_bound**2
    start = np.zeros(source.num_features * loss.outputs)
    return accelerated(value, gradient, start, loss.weight_bound, curvature, 1e-6 * loss.lipschitz, 20_000)


def candidate_search(
    loss: Loss, source: Domain, seed: int, best: FloatArray | None = None, *, number: int = 200
) -> Any:
    """Return a function for d = max |mean_priv l - mean_pub l| over candidate predictors, chosen from public records.

    A replaced record changes a mean of losses in [0, B] by at most B / n, and so the maximum over finitely many predictors.
    Losses are rounded to a lattice, so that their sums are exact. The candidates are the ``best`` fit to the source, and
    random points around it in the ball.
    """
    rng = np.random.default_rng(seed)
    best = public_fit(loss, source) if best is None else best
    steps = rng.standard_normal((number, best.size))
    steps *= loss.weight_bound * rng.random((number, 1)) ** 3 / np.linalg.norm(steps, axis=1)[:, None]
    candidates = [best, *(descent.project(best + step, loss.weight_bound) for step in steps)]

    def mean(w: FloatArray, records: Domain) -> float:
        bounded = np.clip(loss.values(w, records.X, records.y) / loss.bound, 0, 1)
        return float(lattice.cut(bounded, _GRID).sum()) / max(records.num_records, 1)

    def search(public: Domain, private: Domain) -> float:
        return loss.bound * max(abs(mean(w, private) - mean(w, public)) for w in candidates)

    return search
