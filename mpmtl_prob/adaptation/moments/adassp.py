"""AdaSSP: least squares from noisy second moments, of the target itself or of its residuals from a public fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from mpmtl_prob._util.checks import flag, moderate
from mpmtl_prob.adaptation.data.domain import tell_of_cuts
from mpmtl_prob.adaptation.estimator import Adaptation
from mpmtl_prob.adaptation.moments.release import release_moments
from mpmtl_prob.adaptation.public_fit import robust
from mpmtl_prob.privacy.ledger import Ledger


@dataclass(repr=False, eq=False)
class AdaSSP(Adaptation):
    """Ridge regression from one noisy second moment, with the smallest ridge that outweighs the noise.

    Attributes:
        epsilon: the budget.
        delta: default 1 / n^1.1.
        residuals: True regresses the residuals of a robust public fit, and adds the result to it. False regresses the
            targets, and does not use the source.
        row_bound: r, public.
        target_bound: public bound on the absolute targets.
        ledger: of unit "target record", pays, on disk, before noise is drawn.
        unsafe_seed: draws the noise from this seed, for demonstrations: nothing is then guaranteed.

    A fit has ``release_``, which is public; further results can be computed from it.

    Source: Wang (2018), Algorithm 2; with Gaussian noise on one matrix in place of a budget in three parts.
    """

    epsilon: float = 1.0
    delta: float | None = None
    residuals: bool = True
    row_bound: float = 1.0
    target_bound: float = 1.0
    ledger: Ledger | None = None
    unsafe_seed: int | None = None

    def fit(self, source: Any, target: Any) -> Self:
        """Fit to a public source and a private target. Raises the errors of :func:`release_moments`."""
        public, private = self._pair(source, target)
        r, t = moderate("row_bound", self.row_bound), moderate("target_bound", self.target_bound)
        tell_of_cuts({"source": public}, r, t)
        public = public.bounded(r, t)
        centre, c = np.zeros(public.num_features), t
        if flag("residuals", self.residuals):
            fit = robust(public)
            centre, c = fit.w, fit.residual_bound(public)
        self.release_ = release_moments(
            private, centre=centre, residual_bound=c, epsilon=self.epsilon, delta=self.delta,
            row_bound=r, ledger=self.ledger, unsafe_seed=self.unsafe_seed,
        )  # fmt: skip
        self.coef_, self.guarantee_ = self.release_.ridge(), self.release_.guarantee
        return self
