"""Sampler made of the papers' rounds: Algorithms 2 to 4 with a temperature (proximal Langevin dynamics).

A round of Algorithm 1 is a proximal gradient step whose prox is computed from a perturbed second moment. If sqrt(2 eta tau)
times normal noise is added to the owners' models after their gradient step, it is a step of proximal Langevin dynamics on
``exp(-(sum_i L_i + lambda g) / tau)``. With tau = 0 it is the algorithm itself. With tau the residual variance (1 where y is
scaled to unit noise) it samples from the posterior, with a bias from the step, the clip and the noise of the releases. Every
step spends budget, so that there is one chain, as long as the budget allows.
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
    """Data and settings of a run of the kernel. Leaves are traced arrays.

    Attributes:
        run: data and settings of Algorithm 1.
        W0: initial models, (d, m).
        noise: E^(1:T), drawn beforehand by :mod:`mpmtl_prob.privacy.charge_and_draw`.
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

    i: Any  #: number of rounds done
    z: Any  #: {"W": the output W^^ of the last round, (d, m)}
    carry: Carry
    rounds: Rounds
    rng_key: Any

    def __repr__(self) -> str:
        return shown(self)


@dataclass(frozen=True, eq=False, repr=False)
class MPMTLKernel(HidesArrays, MCMCKernel):
    """NumPyro kernel of Algorithms 2 to 4: clip, perturb, project, extrapolate, gradient step, and Langevin noise.

    The kernel does not draw the noise of the releases. It uses the matrices of :class:`Rounds`, one in every round, and does
    not move after the last one. :func:`private_langevin` runs it with a guarantee.

    Attributes:
        sharing: :class:`Proximal` (Algorithms 2 and 3) or :class:`ProximalSum` (Algorithm 4).
        rounds: data and settings, if they are bound to the kernel, as a block of ``Gibbs`` needs it; otherwise they are the
            model's first argument.
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
        """Return the number of rounds done, for a progress bar."""
        return f"round {int(state.i)} of {len(state.carry.history)}"

    def init(
        self, rng_key: Array, num_warmup: int, init_params: Any, model_args: tuple[Any, ...], model_kwargs: Any
    ) -> RoundState:
        """Return the state before the first round. There is no warm-up, because every round costs budget."""
        rounds = jax.tree.map(jnp.asarray, self.rounds if self.rounds is not None else model_args[0])
        carry = first_round(self.sharing, rounds.run, rounds.W0, rounds.noise)
        return RoundState(jnp.array(0), {"W": rounds.W0}, carry, rounds, rng_key)

    def sample(self, state: RoundState, model_args: tuple[Any, ...], model_kwargs: Any) -> RoundState:
        """Run one round."""
        rounds = state.rounds
        T = len(state.carry.history)
        t = jnp.minimum(state.i, T - 1)
        now = jax.tree.map(lambda noise: noise[t], rounds.noise)
        carry, output = one_round(self.sharing, rounds.run, state.carry, t, now)
        rng_key, *keys = jax.random.split(state.rng_key, 3)
        # the Langevin noise of owner i has the sd sqrt(2 eta_i tau); it is added after the release, which so depends on the
        # noise of earlier rounds only
        size = jnp.sqrt(2 * rounds.run.step_size * rounds.temperature)
        langevin_noise = [size * jax.random.normal(key, output.shape, output.dtype) for key in keys]
        carry = carry._replace(W=carry.W + langevin_noise[0])
        if isinstance(self.sharing, ProximalSum):  # Q is sampled too
            Q, *others = carry.state
            carry = carry._replace(state=(Q + langevin_noise[1], *others))
        after_round = (state.i + 1, {"W": output}, carry)
        before_round = (state.i, state.z, state.carry)
        spent = state.i >= T  # there is no noise for another release
        i, z, carry = jax.tree.map(lambda a, b: jnp.where(spent, b, a), after_round, before_round)
        return RoundState(i, z, carry, rounds, rng_key)

    def postprocess_fn(self, model_args: tuple[Any, ...], model_kwargs: Any) -> Any:
        """Return the identity, because W is not constrained."""
        return lambda z: z

    def refresh(self, state: RoundState, model_args: tuple[Any, ...], model_kwargs: Any) -> RoundState:
        """Return the state itself, because it does not depend on a model."""
        return state

    def wrap_model(self, wrapper: Any) -> MPMTLKernel:
        """Return the kernel itself, because it has no model."""
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
    """Run an estimator's rounds as a sampler, which pays for all rounds, as the estimator's fit does.

    Args:
        estimator: :class:`LowRank`, :class:`GroupSparse` or :class:`LowRankSparse`, with its budget, clip and ledger.
        tasks: the rows.
        temperature: tau >= 0, in squared units of y: the residual variance for a posterior, 0 for the algorithm itself.
        skip: number of rounds before the first draw.
        seed: seed of the Langevin noise. The noise of the releases does not come from it.
        progress_bar: show one.

    Returns:
        One chain of ``rounds - skip`` draws of W^^, with the release and its guarantee. Draws are correlated;
        :meth:`~Posterior.diagnose` says how much.

    Raises:
        BudgetExceeded: the ledger's total does not cover it.
        ValueError: an argument outside its range. Nothing was charged.
    """
    temperature = not_negative("temperature", temperature)
    skip = whole("skip", skip, 0)
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
    plan = _LangevinPlan(**vars(estimator.plan(tasks)), temperature=temperature, seed=seed, progress_bar=progress_bar)
    release, draws, guarantee = estimator.publish(tasks, plan)  # charges the estimator's ledger
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
class _LangevinPlan(Plan):
    """Plan whose rounds are the kernel's steps."""

    temperature: float
    seed: int
    progress_bar: bool

    def execute(self, noise: Noise, sharing: SharingRule, record: bool = True) -> tuple[FloatArray, FloatArray]:
        kernel = MPMTLKernel(sharing)
        """Run all rounds; return the releases and the draws."""
        with jax.enable_x64(True):  # releases are computed in double precision
            args = (Rounds(self.run, self.W0, noise, np.float64(self.temperature)),)
            compiled = program(kernel, 0)
            reached = init(compiled, args, chains=1, seed=self.seed)
            chunks = []
            steps = advance(
                compiled, kernel, (), reached, warmup=0, draws=len(noise.moment), thin=1, progress_bar=self.progress_bar
            )
            for now, samples, _ in steps:
                reached = now
                chunks.append(samples or {})
            return np.asarray(reached.state[0].carry.history), join(chunks)["W"][0]
