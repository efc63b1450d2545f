"""Model-protected multi-task learning: the papers' Algorithms 1, 2 and 3.

Source: Liang et al., TPAMI 2022. Every round the curator sees the owners' clipped models, publishes their perturbed
second moment, and sends back a mapping of it; every owner goes on alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from mpmtl_prob._check import in_range, one_of, positive, whole
from mpmtl_prob.estimators.fitted import Fitted
from mpmtl_prob.estimators.multi_task import gradient, lipschitz
from mpmtl_prob.estimators.single_task import Ridge
from mpmtl_prob.privacy.accounting import ADJACENCIES
from mpmtl_prob.privacy.budget import schedule
from mpmtl_prob.privacy.guarantee import NOT_PRIVATE, NOTHING_SHARED, Bound
from mpmtl_prob.privacy.ledger import Ledger
from mpmtl_prob.privacy.mechanisms import paper_wishart
from mpmtl_prob.privacy.release import Release, default_delta, perturb
from mpmtl_prob.proximal import GroupLasso, NoPenalty, Penalty, TraceNorm
from mpmtl_prob.tasks import FloatArray, Gram, TaskData, check_weights

#: f: the history of releases (T, d, d), of which rounds 0..t are known, and t -> M^(t).
Mapping = Callable[[Array, Array], Array]
#: A_i for all tasks at once: M^(t), the clipped models W~ (d, m), the owners' state, t -> W^(t), output, new state.
Update = Callable[[Array, Array, Any, Array], tuple[Array, Array, Any]]


def framework(
    mapping: Mapping, update: Update, state: Any, W0: Array, noise: Array, clip: Array | float
) -> tuple[Array, Array, Array]:
    """Algorithm 1. Pure and traceable: a scan over the rounds, with all noise drawn beforehand.

    Args:
        mapping: f, what the curator computes from the releases so far.
        update: what the owners do with it.
        state: the owners' state before the first round, any pytree.
        W0: initial models, (d, m).
        noise: E^(1:T), (T, d, d).
        clip: K.

    Returns:
        Sigma^(1:T) (T, d, d), the outputs of every round (T, d, m), and W^(T) (d, m).
    """
    rounds = noise.shape[0]

    def one_round(carry: tuple[Array, Any, Array], t: Array) -> tuple[tuple[Array, Any, Array], Array]:
        W, state, history = carry
        W = clip_columns(W, clip)  # step 3
        history = history.at[t].set(W @ W.T + noise[t])  # steps 4 and 5
        M = mapping(history, t)  # step 6
        W, output, state = update(M, W, state, t)  # step 7
        return (W, state, history), output

    first = (W0, state, jnp.zeros_like(noise))
    (W, _, sigma), outputs = jax.lax.scan(one_round, first, jnp.arange(rounds))
    return sigma, outputs, W


def clip_columns(W: Array, clip: Array | float) -> Array:
    """w_i / max(1, ||w_i|| / K)."""
    return W / jnp.maximum(1.0, jnp.linalg.norm(W, axis=0) / clip)


class _Step(NamedTuple):
    """The traced numbers of one run of Algorithm 2 or 3: changing them does not recompile."""

    gram: Gram
    W0: Any  # (d, m)
    noise: Any  # (T, d, d)
    clip: Any
    step_size: Any
    penalty: Any
    beta: Any  # (T,)


@partial(jax.jit, static_argnums=0)
def _proximal_rounds(norm: Penalty, step: _Step) -> tuple[Array, Array]:
    """Algorithms 2 (trace norm) and 3 (l2,1) as instances of Algorithm 1: returns Sigma^(1:T) and W^^(1:T)."""
    threshold = step.step_size * step.penalty

    def mapping(history: Array, t: Array) -> Array:
        return norm.projection(history[t], threshold)

    def update(M: Array, W: Array, previous: Array, t: Array) -> tuple[Array, Array, Array]:
        projected = M @ W  # Algorithm 2, step 9; Algorithm 3, step 8
        Z = projected + step.beta[t] * (projected - previous)  # step 10
        return Z - step.step_size * gradient(step.gram, Z), projected, projected  # step 11

    start = clip_columns(step.W0, step.clip)  # W^^(0) = W~(0)
    sigma, outputs, _ = framework(mapping, update, start, step.W0, step.noise, step.clip)
    return sigma, outputs


@dataclass(frozen=True)
class MPMTL:
    """Algorithm 2 (trace norm), Algorithm 3 (l2,1) or, without a penalty, the same descent with M = I.

    Attributes:
        norm: g.
        penalty: lambda >= 0, how strongly tasks are tied.
        epsilon: the budget that the papers claim for all rounds together; None runs without noise and without privacy.
        rounds: T.
        clip: K, the norm to which models are clipped each round; infinite only without noise.
        delta: of the papers' claim; default 1 / (m log m).
        acceleration: beta_t = (t-1)/(t+2) rather than 0.
        alpha: eps_t = eps_0 t^alpha; default the papers' best, 2/5 with and 0 without acceleration.
        q: eps_t = eps_0 q^{-t} instead.
        step_size: eta; default 1/L, L the largest curvature of any task.
        start: W^(0), by any single-task method: an estimator such as :class:`Ridge`, "zero", or a matrix (d, m).
        adjacency: under which the true guarantee is computed: "replace" or "zero_out".
        unsafe_seed: draws the noise from this seed, for demonstrations: the fit then guarantees nothing.
        ledger: pays for all T rounds, on disk, before any noise is drawn.
    """

    norm: Penalty
    penalty: float
    epsilon: float | None = 1.0
    rounds: int = 30
    clip: float = float("inf")
    delta: float | None = None
    acceleration: bool = True
    alpha: float | None = None
    q: float | None = None
    step_size: float | None = None
    start: Ridge | str | FloatArray = field(default_factory=Ridge)
    adjacency: str = "replace"
    unsafe_seed: int | None = None
    ledger: Ledger | None = None

    def fit(self, tasks: TaskData) -> Fitted:
        """Run T rounds; the result's W is W^^(T), before the last gradient step, as in the papers.

        ``history["W"]`` holds W^^(1:T), (T, d, m).

        Raises:
            BudgetExceeded: the ledger's total does not cover it.
            ValueError: an argument outside its range. Nothing was charged.
        """
        begin = time.perf_counter()
        whole("rounds", self.rounds)
        one_of("adjacency", self.adjacency, ADJACENCIES)
        if not (np.isfinite(self.penalty) and self.penalty >= 0):
            raise ValueError(f"penalty: expected a number >= 0, got {self.penalty!r}")
        if not self.clip > 0:
            raise ValueError(f"clip: expected a positive number, got {self.clip!r}")
        t = np.arange(1, self.rounds + 1)
        run = partial(
            self._run,
            tasks.gram,
            self._initial(tasks),
            positive("step_size", 1 / lipschitz(tasks.gram) if self.step_size is None else self.step_size),
            (t - 1) / (t + 2) if self.acceleration else np.zeros(self.rounds),
        )
        name = {TraceNorm(): "Algorithm 2", GroupLasso(): "Algorithm 3"}.get(self.norm, "Algorithm 1")
        if isinstance(self.norm, NoPenalty) or self.epsilon is None:
            outputs = run(np.zeros((self.rounds, tasks.num_features, tasks.num_features)))[1]
            alone = isinstance(self.norm, NoPenalty)  # M = I reads nothing off Sigma: there is nothing to publish
            guarantee = NOTHING_SHARED if alone else NOT_PRIVATE
            name = "Algorithm 2, M = I" if alone else name
            release: Release | None = None
        else:
            release, outputs = self._private(tasks, run)
            guarantee = release.guarantee
        seconds = time.perf_counter() - begin
        return Fitted(outputs[-1], guarantee, {"W": outputs}, release, seconds, name)

    def _private(
        self, tasks: TaskData, run: Callable[[FloatArray], tuple[FloatArray, FloatArray]]
    ) -> tuple[Release, FloatArray]:
        epsilon = positive("epsilon", self.epsilon)  # type: ignore[arg-type]
        if not np.isfinite(self.clip):
            raise ValueError(
                "clip: expected a finite norm K chosen without looking at the models; noise is scaled to it"
            )
        m, d = tasks.num_tasks, tasks.num_features
        delta = default_delta(m) if self.delta is None else in_range("delta", self.delta, 0, 1, left_closed=True)
        alpha = (0.4 if self.acceleration else 0.0) if self.alpha is None else self.alpha
        budgets = schedule(epsilon, delta, self.rounds, alpha=alpha, q=self.q)  # Algorithm 1, step 1
        return perturb(
            run,
            [paper_wishart(d, eps, self.clip) for eps in budgets],
            epsilon=epsilon,
            adjacency=self.adjacency,
            claimed=Bound(epsilon, delta, self.adjacency),
            num_tasks=m,
            features=tasks.features,
            message="clip",
            scaling="none",
            unsafe_seed=self.unsafe_seed,
            ledger=self.ledger,
            data=tasks,
        )

    def _initial(self, tasks: TaskData) -> FloatArray:
        if isinstance(self.start, Ridge):
            return self.start.fit(tasks).W
        if isinstance(self.start, str):
            one_of("start", self.start, ("zero",))
            return np.zeros((tasks.num_features, tasks.num_tasks))
        W0 = np.asarray(self.start, dtype=np.float64)
        check_weights(W0, tasks)
        return W0

    def _run(
        self, gram: Gram, W0: FloatArray, step_size: float, beta: FloatArray, noise: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        # What is published is computed in double precision, whatever the user's JAX setting.
        with jax.enable_x64(True):
            step = _Step(gram, W0, noise, np.float64(self.clip), step_size, self.penalty, beta)
            sigma, outputs = _proximal_rounds(self.norm, jax.tree.map(jnp.asarray, step))
            return np.asarray(sigma), np.asarray(outputs)


@dataclass(frozen=True)
class LowRank(MPMTL):
    """Algorithm 2: :class:`MPMTL` with the trace norm."""

    norm: Penalty = field(default=TraceNorm(), init=False)


@dataclass(frozen=True)
class GroupSparse(MPMTL):
    """Algorithm 3: :class:`MPMTL` with the l2,1 norm."""

    norm: Penalty = field(default=GroupLasso(), init=False)
