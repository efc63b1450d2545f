"""The papers' rounds as a sampler: Algorithms 2 to 4 with a temperature.

A round of Algorithm 1 is a proximal gradient step whose prox is read off a perturbed second moment. Add sqrt(2 eta tau) times
normal noise to the owners' models after their gradient step and it is a step of proximal Langevin dynamics on
``exp(-(sum_i L_i + lambda g) / tau)``: with tau = 0 the algorithm itself, with tau the residual variance (1 where y is scaled
to unit noise) a sampler of the posterior, biased by the step, by the clip and by the noise of the releases. Every step
spends budget, so the single chain is as long as the budget allows.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.infer.mcmc import MCMCKernel

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import not_negative, whole
from mpmtl_prob._util.hidden_arrays import HidesArrays, shown
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.estimators.framework import (
    Carry,
    Noise,
    Proximal,
    ProximalSum,
    Run,
    SharingRule,
    check_sharing,
    first_round,
    one_round,
)
from mpmtl_prob.estimators.mp_mtl import MPMTL, Plan
from mpmtl_prob.inference.curator.posterior import Posterior
from mpmtl_prob.sampling.chains import advance, init, join, program


class Rounds(NamedTuple):
    """Data and settings of a run of the kernel; leaves are traced arrays.

    Attributes:
        run: the numbers of Algorithm 1.
        W0: initial models, (d, m).
        noise: E^(1:T), drawn beforehand by the door through which releases leave.
        temperature: tau >= 0, in units of the loss.
    """

    run: Run
    W0: Any
    noise: Noise
    temperature: Any

    def __repr__(self) -> str:
        return shown(self)


class RoundState(NamedTuple):
    """State of a chain."""

    i: Any  #: rounds done
    z: Any  #: {"W": the output W^^ of the last round, (d, m)}
    carry: Carry
    rounds: Rounds
    rng_key: Any

    def __repr__(self) -> str:
        return shown(self)


@dataclass(frozen=True, eq=False, repr=False)
class MPMTLKernel(HidesArrays, MCMCKernel):
    """Algorithms 2 to 4 as a NumPyro kernel: clip, perturb, project, extrapolate, gradient step, and Langevin noise.

    The kernel draws no noise of its own for the releases: it uses what :class:`Rounds` brings, one matrix a round, and stays
    where it is when they are used up. :func:`private_langevin` is the way to run it with a guarantee.

    Attributes:
        sharing: :class:`Proximal` (Algorithms 2 and 3) or :class:`ProximalSum` (Algorithm 4).
        rounds: bound to the kernel, as a block of ``Gibbs`` needs it; else it is the model's first argument.
    """

    sharing: SharingRule
    rounds: Rounds | None = field(default=None, repr=False)

    sample_field = "z"

    def __post_init__(self) -> None:
        check_sharing(self.sharing)

    @property
    def default_fields(self) -> tuple[str, ...]:
        return ("z",)

    def get_diagnostics_str(self, state: RoundState) -> str:
        """Rounds done, for a progress bar."""
        return f"round {int(state.i)} of {len(state.carry.history)}"

    def init(
        self, rng_key: Array, num_warmup: int, init_params: Any, model_args: tuple[Any, ...], model_kwargs: Any
    ) -> RoundState:
        """Before the first round. There is no warm-up: every round costs budget, and all are kept."""
        rounds = jax.tree.map(jnp.asarray, self.rounds if self.rounds is not None else model_args[0])
        carry = first_round(self.sharing, rounds.run, rounds.W0, rounds.noise)
        return RoundState(jnp.array(0), {"W": rounds.W0}, carry, rounds, rng_key)

    def sample(self, state: RoundState, model_args: tuple[Any, ...], model_kwargs: Any) -> RoundState:
        """One round."""
        rounds, T = state.rounds, len(state.carry.history)
        t = jnp.minimum(state.i, T - 1)
        now = jax.tree.map(lambda noise: noise[t], rounds.noise)
        carry, output = one_round(self.sharing, rounds.run, state.carry, t, now)
        rng_key, *keys = jax.random.split(state.rng_key, 3)
        # the Langevin noise of owner i, sqrt(2 eta_i tau): after the release, so that it owes nothing to it
        size = jnp.sqrt(2 * rounds.run.step_size * rounds.temperature)
        hot = [size * jax.random.normal(key, output.shape, output.dtype) for key in keys]
        carry = carry._replace(W=carry.W + hot[0])
        if isinstance(self.sharing, ProximalSum):  # Q is a variable of its own
            Q, *rest = carry.state
            carry = carry._replace(state=(Q + hot[1], *rest))
        fresh = (state.i + 1, {"W": output}, carry)
        spent = state.i >= T  # nothing is left to publish with
        i, z, carry = jax.tree.map(lambda a, b: jnp.where(spent, b, a), fresh, (state.i, state.z, state.carry))
        return RoundState(i, z, carry, rounds, rng_key)

    def postprocess_fn(self, model_args: tuple[Any, ...], model_kwargs: Any) -> Any:
        """The identity: W is not constrained."""
        return lambda z: z

    def refresh(self, state: RoundState, model_args: tuple[Any, ...], model_kwargs: Any) -> RoundState:
        """The state as it is: nothing in it depends on a model."""
        return state

    def wrap_model(self, wrapper: Any) -> MPMTLKernel:
        """The kernel as it is: it holds no model."""
        return self


def private_langevin(
    estimator: MPMTL,
    tasks: TaskData,
    *,
    temperature: float = 1.0,
    skip: int = 0,
    seed: int = 0,
    progress_bar: bool = True,
) -> Posterior:
    """Run an estimator's rounds as a sampler. Pays for all rounds, like the estimator's own fit.

    Args:
        estimator: :class:`LowRank`, :class:`GroupSparse` or :class:`LowRankSparse`, with its budget, clip and ledger.
        tasks: the rows.
        temperature: tau >= 0, in squared units of y: the residual variance for a posterior, 0 for the algorithm itself.
        skip: rounds before the first draw.
        seed: of the Langevin noise. That of the releases is not drawn from it.
        progress_bar: show one.

    Returns:
        One chain of ``rounds - skip`` draws of W^^, with the release and its guarantee. They are correlated; its
        :meth:`~Posterior.diagnose` says how much.

    Raises:
        BudgetExceeded: the ledger's total does not cover it.
        ValueError: an argument outside its range. Nothing was charged.
    """
    temperature, skip = not_negative("temperature", temperature), whole("skip", skip, 0)
    whole("seed", seed, 0)
    if not isinstance(estimator, MPMTL):
        raise ValueError(f"estimator: expected Algorithm 2, 3 or 4, got {type(estimator).__name__}")
    if skip >= estimator.rounds:
        raise ValueError(f"skip: expected fewer than the {estimator.rounds} rounds, got {skip}")
    if not isinstance(estimator.sharing, Proximal | ProximalSum):
        raise ValueError("estimator: expected Algorithm 2, 3 or 4, whose rounds are proximal steps")
    if estimator.rows is not None:
        raise ValueError("estimator: expected rows=None; the noise of Algorithm 5 is not that of a Langevin step")
    start = time.perf_counter()
    settled = estimator.plan(tasks)
    plan = _HotPlan(**vars(settled), temperature=temperature, seed=seed, progress_bar=progress_bar)
    release, draws, guarantee = estimator.publish(tasks, plan)  # the estimator's own door and ledger
    return Posterior(
        name=f"{estimator.name}, temperature {temperature:g}",
        tasks=tasks,
        draws={"W": draws[None, skip:]},
        statistics={},
        guarantee=guarantee,
        release=release,
        seconds=time.perf_counter() - start,
        exact=False,
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _HotPlan(Plan):
    """A plan whose rounds are the kernel's steps."""

    temperature: float
    seed: int
    progress_bar: bool

    def execute(self, noise: Noise, sharing: SharingRule, record: bool = True) -> tuple[FloatArray, FloatArray]:
        kernel = MPMTLKernel(sharing)
        with jax.enable_x64(True):  # what is published is computed in double precision
            args = (Rounds(self.run, self.W0, noise, np.float64(self.temperature)),)
            compiled = program(kernel, 0)
            reached = init(compiled, args, chains=1, seed=self.seed)
            kept = []
            steps = advance(
                compiled, kernel, (), reached, warmup=0, draws=len(noise.moment), thin=1, progress_bar=self.progress_bar
            )
            for now, found, _ in steps:
                reached = now
                kept.append(found or {})
            return np.asarray(reached.state[0].carry.history), join(kept)["W"][0]
