"""DP-MTRL: multi-task relationship learning in which every task's model is published with noise in every round.

This is a reconstruction from the description in the MP-MTL papers, as the original paper was not available.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import in_range, one_of, positive, whole
from mpmtl_prob._util.hidden_arrays import shown
from mpmtl_prob.data.prediction import linear
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.estimators.fitted import Fitted, by_name
from mpmtl_prob.privacy.accounting.budgets import schedule
from mpmtl_prob.privacy.charge_and_draw import draw_vectors
from mpmtl_prob.privacy.guarantee import NOT_PRIVATE, Bound, Guarantee
from mpmtl_prob.privacy.mechanisms import VectorLaplace
from mpmtl_prob.releases.spec import default_delta

ESTIMATED = (
    "The noise is scaled to the largest residual of the private rows. This scale depends on the rows, so that it reveals "
    "something itself, and it does not bound the sensitivity to one row: no guarantee is proved, not even for one row."
)


@dataclass(frozen=True)
class DPMTRL:
    """DP-MTRL, in T rounds: tasks fit their models given the others' noisy models and Omega, add noise, and update Omega.

    With P = Omega^{-1} and W^ the models of the round before,

        w_i = [X_i'X_i/n_i + (l1 + l2 P_ii) I]^{-1} [X_i'y_i/n_i - l2 sum_{j != i} P_ij w^_j],    w^_i = w_i + b_i,
        ||b_i|| ~ Gamma(d, Delta_i / eps_t),  Delta_i = 2 L_i / (n_i (l1 + l2 P_ii)),  L_i = max_j |x_ij'w_i - y_ij|,

    rows of unit length, Omega = (W^'W^)^{1/2} / tr (W^'W^)^{1/2}. It starts from Omega = I / m, which does not couple tasks.
    Binary targets are -1 and 1, and the loss is least squares for them too.

    All tasks' noisy models are public. L_i depends on the private rows, so that nothing is proved, and no ledger is charged.

    Attributes:
        ridge: l1 >= 0.
        relation: l2 > 0.
        epsilon: the budget that is claimed for all rounds together; None runs without noise and without privacy.
        rounds: T.
        delta: the claimed delta; default 1 / (m log m).
        level: the unit of the claimed epsilon and delta: a "row", or a whole "task" by group privacy, at eps / n and
            delta / (n e^eps) per row, n = max n_i.
        floor: the share of I / m in Omega, in (0, 1): with more tasks than features (W'W)^{1/2} has no inverse.
        unsafe_seed: draws the noise from this seed, for demonstrations.

    Source: Gupta, Rana and Venkatesh (2016), as described in TPAMI 2022, section 5.1 and Proposition 3.
    """

    ridge: float
    relation: float
    epsilon: float | None = 1.0
    rounds: int = 1
    delta: float | None = None
    level: str = "task"
    floor: float = 0.01
    unsafe_seed: int | None = None

    name = "DP-MTRL, reconstructed"

    scales_tables = False  # rows have length one in the units of the table

    @by_name
    def fit(self, tasks: TaskData) -> Fitted:
        """Fit all tasks. The result's W is W^ of the last round; ``history`` has ``W`` (T, d, m) and ``sensitivity`` (T, m).

        Raises:
            ValueError: an argument outside its range.
        """
        begin = time.perf_counter()
        if not (np.isfinite(self.ridge) and self.ridge >= 0):
            raise ValueError(f"ridge: expected a number >= 0, got {self.ridge!r}")
        positive("relation", self.relation)
        whole("rounds", self.rounds)
        one_of("level", self.level, ("task", "row"))
        in_range("floor", self.floor, 0, 1)
        d, m = tasks.num_features, tasks.num_tasks
        noise, guarantee = np.zeros((self.rounds, d, m)), NOT_PRIVATE
        if self.epsilon is not None:
            noise, guarantee = self._noise(tasks, positive("epsilon", self.epsilon))
        W, relations = np.zeros((d, m)), Relations.apart(m)
        Ws, sensitivities = np.empty((self.rounds, d, m)), np.empty((self.rounds, m))
        local = Local.of(tasks)
        for t in range(self.rounds):
            W = local.solve(relations, W, self.ridge, self.relation)
            residual = np.abs(linear(W, tasks) - tasks.targets)
            curvature = self.ridge + self.relation * relations.diagonal
            sensitivities[t] = 2 * np.maximum.reduceat(residual, tasks.offsets[:-1]) / (local.n * curvature)
            W = W + sensitivities[t] * noise[t]
            relations = Relations.of(W, self.floor)
            Ws[t] = W
        seconds = time.perf_counter() - begin
        return Fitted(W, guarantee, {"W": Ws, "sensitivity": sensitivities}, seconds=seconds, name=self.name)

    def budgets(self, tasks: TaskData) -> FloatArray:
        """Return eps_1..eps_T per row of the claim, (T,), the largest with CB({eps_t}, delta) <= eps."""
        epsilon, m = positive("epsilon", self.epsilon), tasks.num_tasks  # type: ignore[arg-type]
        delta = default_delta(m) if self.delta is None else in_range("delta", self.delta, 0, 1, left_closed=True)
        if self.level == "task":  # Proposition 3
            n = int(tasks.row_counts.max())
            epsilon, delta = epsilon / n, delta / n * np.exp(-epsilon)
        return schedule(epsilon, delta, self.rounds)

    def _noise(self, tasks: TaskData, epsilon: float) -> tuple[FloatArray, Guarantee]:
        """Draw noise in units of the sensitivity, (T, d, m)."""
        m = tasks.num_tasks
        delta = default_delta(m) if self.delta is None else self.delta
        return draw_vectors(
            [VectorLaplace(tasks.num_features, float(budget), 1.0) for budget in self.budgets(tasks)],
            m,
            epsilon=epsilon,
            lattice=2.0**-40,  # for noise in units of the sensitivity; scaled noise is on no lattice
            unit=self.level,
            claimed=Bound(epsilon, delta, "replace", self.level),
            unproved=ESTIMATED,
            unsafe_seed=self.unsafe_seed,
            data=tasks,
        )


class Relations(NamedTuple):
    """Inverse task relations P = Omega^{-1} = base I + vectors diag(rest) vectors', stored without its m x m entries.

    Attributes:
        base: the eigenvalue of P outside the span of the vectors.
        vectors: orthonormal, (m, k).
        rest: (k,).
    """

    base: float
    vectors: FloatArray
    rest: FloatArray

    def __repr__(self) -> str:
        return shown(self)

    @classmethod
    def apart(cls, m: int) -> Relations:
        """Return the relations Omega = I / m, which do not couple tasks."""
        return cls(float(m), np.zeros((m, 0)), np.zeros(0))

    @classmethod
    def of(cls, W: FloatArray, floor: float) -> Relations:
        """Compute Omega = (1 - floor) (W'W)^{1/2} / tr (W'W)^{1/2} + floor I / m."""
        m = W.shape[1]
        _, s, Vt = np.linalg.svd(W, full_matrices=False)
        if not s.any():
            return cls.apart(m)
        base = m / floor
        return cls(base, Vt.T, 1 / ((1 - floor) * s / s.sum() + floor / m) - base)

    @property
    def diagonal(self) -> FloatArray:
        """Diagonal entries P_ii, (m,)."""
        return self.base + self.vectors**2 @ self.rest

    def others(self, W: FloatArray) -> FloatArray:
        """Return sum_{j != i} P_ij w_j of every task i, (d, m)."""
        low_rank = (W @ self.vectors * self.rest) @ self.vectors.T
        return low_rank + W * (self.base - self.diagonal)


class Local(NamedTuple):
    """Least-squares problems of all tasks, in the eigenvectors of X_i'X_i / n_i.

    Attributes:
        values: (m, d).
        vectors: (m, d, d).
        xy: X_i'y_i / n_i, (m, d).
        n: numbers of rows, (m,).
    """

    values: FloatArray
    vectors: FloatArray
    xy: FloatArray
    n: FloatArray

    def __repr__(self) -> str:
        return shown(self)

    @classmethod
    def of(cls, tasks: TaskData) -> Local:
        gram = tasks.gram
        values, vectors = np.linalg.eigh(gram.xx / gram.n[:, None, None])
        return cls(values, vectors, gram.xy / gram.n[:, None], gram.n.astype(np.float64))

    def solve(self, relations: Relations, W: FloatArray, ridge: float, relation: float) -> FloatArray:
        """Compute w_i of all tasks given the others' models W, (d, m)."""
        target = self.xy - relation * relations.others(W).T
        turned = (np.swapaxes(self.vectors, 1, 2) @ target[..., None])[..., 0]
        turned /= self.values + (ridge + relation * relations.diagonal)[:, None]
        return (self.vectors @ turned[..., None])[..., 0].T
