"""Every task for itself: the arms that sharing has to beat."""

from __future__ import annotations

import time
from dataclasses import dataclass

from mpmtl_prob import conjugate
from mpmtl_prob._check import one_of
from mpmtl_prob.estimators.fitted import Fitted
from mpmtl_prob.privacy.guarantee import NOTHING_SHARED
from mpmtl_prob.tasks import TaskData


@dataclass(frozen=True)
class Ridge:
    """Ridge regression of every task on its own rows.

    Attributes:
        penalty: of argmin 0.5 ||y - X w||^2 + (penalty/2) ||w||^2, >= 0, in squared units of X; or "evidence", the
            posterior mean with the penalty averaged over each task's own evidence, on Pareto-scaled features.
    """

    penalty: float | str = "evidence"

    def fit(self, tasks: TaskData) -> Fitted:
        """Raises ValueError for a negative penalty."""
        start = time.perf_counter()
        if isinstance(self.penalty, str):
            one_of("penalty", self.penalty, ("evidence",))
            W = conjugate.task_posteriors(tasks.gram, scale=conjugate.pareto_scale(tasks.gram)).mean
        else:
            if not self.penalty >= 0:
                raise ValueError(f"penalty: expected a number >= 0 or 'evidence', got {self.penalty!r}")
            W = conjugate.ridge(tasks.gram, self.penalty)
        return Fitted(W, NOTHING_SHARED, seconds=time.perf_counter() - start, name="STL ridge")
