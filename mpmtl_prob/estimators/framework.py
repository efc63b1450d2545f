"""Algorithm 1 (model-protected multi-task learning) as a pure function, with the sharing rules of Algorithms 2 to 4.

Every round the curator sees the data owners' clipped models, publishes their perturbed second moment, and sends back a
mapping f of all that was published. Every owner then updates its model alone, by A_i. The choice of the moment, f and A_i are
one object, a :class:`SharingRule`. A rule of your own runs in the same loop, under the same guarantee.

Source: TPAMI 2022, Algorithms 1 to 3; supplement, Algorithms 4 and 5.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import Array

from mpmtl_prob._util.former import former_names
from mpmtl_prob._util.hidden_arrays import shown
from mpmtl_prob._util.protocols import implements
from mpmtl_prob.convex.losses import Smooth
from mpmtl_prob.convex.penalties import L1, NoPenalty, Penalty, SharedPenalty, TraceNorm
from mpmtl_prob.privacy.lattice import cut


class Run(NamedTuple):
    """Numbers of one run, all traced, so that others of the same shape need no new compilation.

    Attributes:
        loss: the owners' losses, bound to their rows.
        step_size: eta of every owner, (m,).
        threshold: eta * lambda, with the curator's eta; a pair for two penalties.
        beta: acceleration of every round, (T,).
        clip: K, the clip norm.
        offset: number that f subtracts from the diagonal of each release, (T,): 0, or the mean of its noise.
        lattice: h, of which the entries of messages are multiples; None sends models unrounded, without noise.
        unclipped: True if owners go on from their models as they were before the clip; messages are clipped all the same.
    """

    loss: Smooth
    step_size: Any
    threshold: Any
    beta: Any
    clip: Any
    offset: Any
    lattice: Any = None
    unclipped: Any = False

    def __repr__(self) -> str:
        return shown(self)


class SharingRule(Protocol):
    """Protocol class for a sharing rule: the open parts of Algorithm 1. It must be hashable, as it is static under jit."""

    #: "features": W W' is published, (d, d); "tasks": W'W, (m, m)
    moment: ClassVar[str]

    def start(self, W0: Array) -> Any:
        """Return the owners' state before the first round, any pytree, from their clipped initial models."""
        ...

    def mapping(self, history: Array, t: Array, run: Run) -> Array:
        """Compute f: M^(t) from the releases (T, k, k), of which rounds 0..t are known."""
        ...

    def update(self, M: Array, W: Array, state: Any, t: Array, run: Run) -> tuple[Array, Array, Any]:
        """Update all owners (A_i) from M^(t) and the clipped models W~^(t-1); return W^(t), the output and the new state.

        In a run that is ``unclipped`` the models are W^(t-1), as they were before the clip.

        Column i may depend on M, on column i of W, and on owner i's part of the state and of ``run.loss`` only.
        """
        ...


class Carry(NamedTuple):
    """State between rounds: the models W^(t) (d, m), the owners' state, and the releases so far (T, k, k)."""

    W: Any
    state: Any
    history: Any

    def __repr__(self) -> str:
        return shown(self)


class Noise(NamedTuple):
    """Noise of all rounds, drawn beforehand.

    Attributes:
        moment: E^(1:T), (T, k, k).
        models: b^(1:T), (T, d, m), which owners who do not trust the curator add to their models (Algorithm 5); else
            None.
    """

    moment: Any
    models: Any = None

    def __repr__(self) -> str:
        return shown(self)


def check_sharing(sharing: SharingRule) -> None:
    """Raise ValueError if an object lacks a method of :class:`SharingRule`, or its penalties lack one."""
    if not isinstance(sharing, type):  # a class with static methods is a valid rule
        implements("sharing", sharing, SharingRule)
    if isinstance(sharing, Proximal | ProximalSum):
        implements("sharing.norm", sharing.norm, SharedPenalty, needs=("projection",))
    if isinstance(sharing, ProximalSum):
        implements("sharing.own", sharing.own, Penalty, needs=("prox",))


def first_round(sharing: SharingRule, run: Run, W0: Array, noise: Noise) -> Carry:
    """Return the state before the first round; W^^(0) = W~(0), and Q^(0) = W^(0) where Algorithm 4 starts as printed."""
    clipped = clip_columns(W0, run.clip)
    # Algorithm 4, step 2, sets Q^(0) before the first clip, which is step 4.
    state = sharing.start(clipped, W0) if isinstance(sharing, ProximalSum) else sharing.start(clipped)
    return Carry(W0, state, jnp.zeros_like(noise.moment))


def one_round(sharing: SharingRule, run: Run, carry: Carry, t: Array, noise: Noise) -> tuple[Carry, Array]:
    """Run round t (from 0) of Algorithm 1 with its noise; return the new state and the output W^^(t)."""
    W = clip_columns(carry.W, run.clip)  # Algorithm 1, step 3
    own = jnp.where(run.unclipped, carry.W, W)  # never leaves its owner
    if noise.models is not None:
        # Algorithm 5, step 5. The noisy models are clipped again, so that K holds for them too.
        own = W = clip_columns(_sent(W, run) + noise.models, run.clip)
    sent = _sent(W, run)
    second_moment = sent @ sent.T if sharing.moment == "features" else sent.T @ sent  # step 4
    history = carry.history.at[t].set(second_moment + noise.moment)  # step 5
    k = history.shape[-1]
    known = history - run.offset[:, None, None] * jnp.eye(k, dtype=history.dtype)
    M = sharing.mapping(known, t, run)  # step 6
    W, output, state = sharing.update(M, own, carry.state, t, run)  # step 7
    return Carry(W, state, history), output


def framework(
    sharing: SharingRule, run: Run, W0: Array, noise: Noise, *, record: bool = True
) -> tuple[Array, Array, Array]:
    """Run Algorithm 1, as a pure and traceable scan over the rounds, with all noise drawn beforehand.

    Args:
        sharing: the sharing rule: the published moment, f and A_i.
        run: the numbers of the run.
        W0: initial models, (d, m).
        noise: noise of all rounds.
        record: keep the outputs of every round.

    Returns:
        Sigma^(1:T) (T, k, k); the outputs W^^(1:T) (T, d, m), or (1, d, m) without ``record``; and W^(T) (d, m).
    """

    check_sharing(sharing)

    def body(carry: tuple[Carry, Array], inputs: tuple[Array, Noise]) -> tuple[tuple[Carry, Array], Array | None]:
        t, now = inputs
        rounds, output = one_round(sharing, run, carry[0], t, now)
        return (rounds, output), output if record else None

    T = noise.moment.shape[0]
    start = (first_round(sharing, run, W0, noise), W0)
    (last, output), outputs = jax.lax.scan(body, start, (jnp.arange(T), noise))
    return last.history, output[None] if outputs is None else outputs, last.W


#: compiled once for each kind of sharing and each shape
run_rounds = partial(jax.jit, static_argnames=("sharing", "record"))(framework)


def _sent(W: Array, run: Run) -> Array:
    # A model that is not finite is sent as zeros, as an error would reveal it to other owners.
    return W if run.lattice is None else cut(jnp.where(jnp.isfinite(W).all(axis=0), W, 0.0), run.lattice, jnp)


def clip_columns(W: Array, clip: Array | float) -> Array:
    """Clip every model to length K: w_i / max(1, ||w_i|| / K)."""
    return W / jnp.maximum(1.0, jnp.linalg.norm(W, axis=0) / clip)


@dataclass(frozen=True)
class Proximal:
    """Sharing rule of Algorithms 2 (trace norm) and 3 (l2,1): M acts as the prox of a penalty, before an accelerated step.

    Attributes:
        norm: g. With :class:`NoPenalty`, M = I, and the release is not used.
    """

    norm: SharedPenalty

    moment: ClassVar[str] = "features"

    def start(self, W0: Array) -> Array:
        return W0

    def mapping(self, history: Array, t: Array, run: Run) -> Array:
        return self.norm.projection(history[t], run.threshold)  # Algorithm 2, steps 6 to 8; Algorithm 3, steps 6 and 7

    def update(self, M: Array, W: Array, state: Array, t: Array, run: Run) -> tuple[Array, Array, Array]:
        projected = W if isinstance(self.norm, NoPenalty) else M @ W  # Algorithm 2, step 9; Algorithm 3, step 8
        Z = projected + run.beta[t] * (projected - state)  # step 10
        return Z - run.step_size * run.loss.gradient(Z), projected, projected  # step 11


@dataclass(frozen=True)
class ProximalSum:
    """Sharing rule of Algorithm 4, W = P + Q: P is shared as in Algorithm 2 or 3, and Q stays private with its own penalty.

    Attributes:
        norm: g_1 of P, :class:`TraceNorm` or :class:`GroupLasso`.
        own: g_2 of Q, separable: :class:`L1`, :class:`ColumnGroupLasso` or :class:`SquaredFrobenius`.
        doubled: start from P = Q = W^(0), as printed, so that the sum is twice W^(0); else from Q = 0. Q^(0) and Q^^(0) are
            W^(0) as it is, and P^^(0) is clipped.
    """

    norm: SharedPenalty = field(default_factory=TraceNorm)
    own: Penalty = field(default_factory=L1)
    doubled: bool = False

    moment: ClassVar[str] = "features"

    def start(self, W0: Array, before_clip: Array | None = None) -> tuple[Array, Array, Array]:
        """Return q^(0), p^^(0) and q^^(0) from the clipped initial models, and Q from those before the clip if given."""
        Q = (W0 if before_clip is None else before_clip) if self.doubled else jnp.zeros_like(W0)
        return Q, W0, Q

    def mapping(self, history: Array, t: Array, run: Run) -> Array:
        return self.norm.projection(history[t], run.threshold[0])  # Algorithm 4, steps 8 and 9

    def update(
        self, M: Array, W: Array, state: tuple[Array, Array, Array], t: Array, run: Run
    ) -> tuple[Array, Array, tuple[Array, Array, Array]]:
        Q, P_before, Q_before = state
        P_hat, Q_hat = M @ W, self.own.prox(Q, run.threshold[1])  # steps 10 and 11
        Z_p = P_hat + run.beta[t] * (P_hat - P_before)  # step 13
        Z_q = Q_hat + run.beta[t] * (Q_hat - Q_before)  # step 14
        step = run.step_size * run.loss.gradient(Z_p + Z_q)
        return Z_p - step, P_hat + Q_hat, (Z_q - step, P_hat, Q_hat)  # steps 12, 15 and 16


@dataclass(frozen=True)
class TaskRelations:
    """Sharing rule from W'W: every task is shrunk the more, the less it resembles the others.

    Omega = (Sigma^(t))^{1/2} / tr is the task relation of Zhang and Yeung (2010), and [Omega^{-1}]_ii is the prior
    precision of task i given all others. An owner cannot see the other models. So of the coupling
    (lambda/2) tr(W Omega^{-1} W') it uses its own term, (lambda/2) [Omega^{-1}]_ii ||w_i||^2, by its prox. The diagonal of
    M^(t) has these precisions, scaled to mean 1.

    No guarantee is proved for W'W plus noise: see :class:`mpmtl_prob.privacy.PaperTaskWishart`.
    """

    moment: ClassVar[str] = "tasks"

    def start(self, W0: Array) -> Array:
        return W0

    def mapping(self, history: Array, t: Array, run: Run) -> Array:
        eigenvalues, U = jnp.linalg.eigh(history[t])
        floor = jnp.finfo(eigenvalues.dtype).eps ** 0.5 * jnp.abs(eigenvalues[-1])
        precision = jnp.sum(U**2 / jnp.sqrt(jnp.maximum(eigenvalues, floor)), axis=1)  # [Omega^{-1}]_ii, up to a factor
        return jnp.diag(precision / jnp.mean(precision))

    def update(self, M: Array, W: Array, state: Array, t: Array, run: Run) -> tuple[Array, Array, Array]:
        shrunk = W / (1 + run.threshold * jnp.diagonal(M))
        Z = shrunk + run.beta[t] * (shrunk - state)
        return Z - run.step_size * run.loss.gradient(Z), shrunk, shrunk


@dataclass(frozen=True)
class ConditionalGradient:
    """Sharing rule of the Frank-Wolfe method for sum_i L_i(w_i) with ||W||_* <= r, whose messages are gradients.

    Column i of G^(t) is the gradient of L_i at the owner's model x_i^(t). Of all matrices of trace norm r, the one with the
    least inner product with G is -r u v', of the leading singular vectors of G. As u is the leading eigenvector of G G', and
    v = G'u / ||G'u|| with ||G'u||^2 the eigenvalue, the release is enough: M = r u u' / sqrt(eigenvalue), and owner i moves
    towards -M g_i by gamma_t = 2 / (t + 1). The threshold of the run is r.

    With noise that is positive definite (Wishart) an eigenvalue is never too small, so that models stay in the ball, but for
    the rounding of messages: ||M G||_* = r ||G'u|| / sqrt(u'(G G' + E) u) <= r. With enormous noise they end at zero, not at
    models of tasks alone.

    Source: TPAMI 2022, section 4.1, names the method as an instance of Algorithm 1; Jaggi (2013), Algorithm 1.
    """

    moment: ClassVar[str] = "features"

    def start(self, W0: Array) -> Array:
        return jnp.zeros_like(W0)  # x^(0), of which gamma_1 = 1 leaves nothing but its gradient

    def mapping(self, history: Array, t: Array, run: Run) -> Array:
        eigenvalues, U = jnp.linalg.eigh(history[t])
        top, u = eigenvalues[-1], U[:, -1]
        # Where no eigenvalue is positive (gradients of zero, or noise below zero) there is no direction.
        return jnp.where(top > 0, run.threshold / jnp.sqrt(jnp.where(top > 0, top, 1.0)), 0.0) * jnp.outer(u, u)

    def update(self, M: Array, W: Array, state: Array, t: Array, run: Run) -> tuple[Array, Array, Array]:
        gamma = 2.0 / (t + 2.0)  # t is from 0
        x = (1 - gamma) * state - gamma * (M @ W)
        return run.loss.gradient(x), x, x


__getattr__ = former_names(__name__, {"Sharing": "SharingRule"})
