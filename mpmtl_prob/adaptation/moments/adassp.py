"""Least squares of noisy second moments: AdaSSP on the target itself, or on its residuals of a public fit."""

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
    """Ridge regression of one noisy second moment, with the least ridge that outweighs its noise.

    Attributes:
        epsilon: the budget.
        delta: default 1 / n^1.1.
        residuals: of a robust public fit, to which the result is added: simple, and strong. False takes the targets, and of
            the source nothing.
        row_bound: r, public.
        target_bound: of the targets' sizes, public.
        ledger: of unit "target record", pays, on disk, before noise is drawn.
        unsafe_seed: draws the noise from this seed, for demonstrations: nothing is then guaranteed.

    A fit has ``release_``, public, with all that can be made of it.

    Source: Wang (2018), Algorithm 2; one matrix with Gaussian noise in place of three parts of the budget.
    """

    epsilon: float = 1.0
    delta: float | None = None
    residuals: bool = True
    row_bound: float = 1.0
    target_bound: float = 1.0
    ledger: Ledger | None = None
    unsafe_seed: int | None = None

    def fit(self, source: Any, target: Any) -> Self:
        """Fit; raises as :func:`release_moments`."""
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
