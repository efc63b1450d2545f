"""Langevin steps with proximal gradients, as a NumPyro kernel.

Models with ``smoothing=gamma`` have the potential U = f + g, and return grad f + (W - prox_{gamma g}(W)) / gamma as its
gradient. One step of ``ProximalLangevin`` on it is one step of MYULA. With the Metropolis adjustment it is exact for U
itself.

It is meant for teaching and for Gibbs blocks. NUTS with the same gradients mixes many times faster.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree
from numpyro.distributions import biject_to
from numpyro.infer import init_to_uniform
from numpyro.infer.mcmc import MCMCKernel

from mpmtl_prob._util.checks import in_range, positive
from mpmtl_prob._util.hidden_arrays import shown
from mpmtl_prob.sampling._numpyro import (
    ParamInfo,
    initialize_model,
    inverse_mass,
    is_prng_key,
    transform_fn,
    warmup_adapter,
)


class LangevinState(NamedTuple):
    """State of a chain; fields are named as in NumPyro's HMC."""

    i: Any  #: iterations done
    z: Any  #: unconstrained values by site
    z_grad: Any  #: gradient of the potential
    potential_energy: Any
    accept_prob: Any  #: Metropolis probability of the last proposal, also where all proposals are accepted
    mean_accept_prob: Any
    diverging: Any  #: whether the last proposal had no finite potential
    adapt_state: Any
    rng_key: Any

    def __repr__(self) -> str:
        return shown(self)


class ProximalLangevin(MCMCKernel):
    """MYULA, or its Metropolis-adjusted form.

        z' = z - (h/2) D grad U(z) + sqrt(h D) xi,   xi ~ N(0, I), D diagonal

    Args:
        model: a NumPyro model, all of whose latent sites are continuous.
        adjusted: accept with the Metropolis probability, which makes the sampler exact. Otherwise accept all proposals, as
            MYULA does, with a bias that vanishes with h and with the model's smoothing. Then the potential must have bounded
            curvature: fix the scales of a model that could learn them, or a chain may diverge.
        step_size: sqrt(h), in units of z; with adaptation, its first value.
        adapt_step_size: adapt it during warm-up, so that the Metropolis probability is ``target_accept_prob`` on average.
        adapt_mass_matrix: adapt D to the variances during warm-up; default: only where adjusted. Without the adjustment, a
            chain that has not yet reached the typical set would adapt D to its path.
        target_accept_prob: default: .574 with the adjustment, which is optimal; .95 without it, where it bounds the bias.
        init_strategy: NumPyro's strategy for the first values.

    Raises:
        ValueError: a step size or target outside its range.

    Source: Durmus, Moulines and Pereyra (2018), SIAM J. Imaging Sciences 11, algorithm 1; Pereyra (2016) for the adjustment.
    """

    sample_field = "z"

    def __init__(
        self,
        model: Callable[..., Any],
        *,
        adjusted: bool = True,
        step_size: float = 0.1,
        adapt_step_size: bool = True,
        adapt_mass_matrix: bool | None = None,
        target_accept_prob: float | None = None,
        init_strategy: Callable[..., Any] = init_to_uniform,
    ) -> None:
        target = (0.574 if adjusted else 0.95) if target_accept_prob is None else target_accept_prob
        self._model = model
        self._adjusted = adjusted
        self._step_size = positive("step_size", step_size)
        self._adapt_step_size = adapt_step_size
        self._adapt_mass_matrix = adjusted if adapt_mass_matrix is None else adapt_mass_matrix
        self._target = in_range("target_accept_prob", target, 0, 1)
        self._init_strategy = init_strategy
        self._forget()

    def _forget(self) -> None:
        """Unset what `init` sets for a model and a length of warm-up."""
        self._potential_fn_gen: Callable[..., Any] | None = None
        self._postprocess_fn: Callable[..., Any] | None = None
        self._inv_transforms: Any = None
        self._adapt: Callable[..., Any] | None = None
        self._num_warmup = 0

    @property
    def model(self) -> Callable[..., Any]:
        """The NumPyro model."""
        return self._model

    @property
    def exact(self) -> bool:
        """True if the stationary law is the posterior itself."""
        return self._adjusted

    @property
    def default_fields(self) -> tuple[str, ...]:
        """Fields of the state that NumPyro's ``MCMC`` collects."""
        return ("z", "diverging")

    def get_diagnostics_str(self, state: LangevinState) -> str:
        """Return step size and acceptance, for a progress bar."""
        return f"step size {float(state.adapt_state.step_size):.2e}. acc. prob={float(state.mean_accept_prob):.2f}"

    def init(
        self, rng_key: Array, num_warmup: int, init_params: Any, model_args: tuple[Any, ...], model_kwargs: Any
    ) -> LangevinState:
        """Return the first state; a batch of keys gives a batch of states."""
        if not is_prng_key(rng_key):
            start = partial(self.init, num_warmup=num_warmup, model_args=model_args, model_kwargs=model_kwargs)
            return jax.vmap(lambda key, params: start(key, init_params=params))(rng_key, init_params)
        rng_key, key_init = jax.random.split(rng_key)
        info = initialize_model(
            key_init,
            self._model,
            init_strategy=self._init_strategy,
            dynamic_args=True,
            model_args=model_args,
            model_kwargs=model_kwargs or {},
        )
        self._potential_fn_gen, self._postprocess_fn = info.potential_fn, info.postprocess_fn
        self._inv_transforms = _bijections(info.model_trace)
        start_values = info.param_info.z if init_params is None else init_params
        z = start_values.z if isinstance(start_values, ParamInfo) else start_values
        z = jax.tree.map(jnp.asarray, z)
        energy, gradient = jax.value_and_grad(self._potential(model_args, model_kwargs))(z)
        self._num_warmup = num_warmup
        adapt_init, self._adapt = warmup_adapter(
            num_warmup,
            adapt_step_size=self._adapt_step_size,
            adapt_mass_matrix=self._adapt_mass_matrix,
            target_accept_prob=self._target,
        )
        flat = ravel_pytree(z)[0]
        step_size = jnp.asarray(self._step_size, flat.dtype)
        adapt_state = adapt_init((z,), key_init, step_size, mass_matrix_size=flat.size)._replace(rng_key=None)
        zero = jnp.zeros((), flat.dtype)
        return LangevinState(jnp.array(0), z, gradient, energy, zero, zero, jnp.array(False), adapt_state, rng_key)

    def sample(self, state: LangevinState, model_args: tuple[Any, ...], model_kwargs: Any) -> LangevinState:
        """Make one step."""
        if not is_prng_key(state.rng_key):
            return jax.vmap(lambda s: self.sample(s, model_args, model_kwargs))(state)
        rng_key, key_noise, key_accept = jax.random.split(state.rng_key, 3)
        z, unravel = ravel_pytree(state.z)
        gradient = ravel_pytree(state.z_grad)[0]
        h = state.adapt_state.step_size**2
        D = inverse_mass(state.adapt_state)

        # z' = z - (h/2) D grad U(z) + sqrt(h D) xi
        mean = z - 0.5 * h * D * gradient
        proposal = mean + jnp.sqrt(h * D) * jax.random.normal(key_noise, z.shape, z.dtype)
        energy, proposal_gradient = jax.value_and_grad(self._potential(model_args, model_kwargs))(unravel(proposal))
        mean_back = proposal - 0.5 * h * D * ravel_pytree(proposal_gradient)[0]
        # log q(z | z') - log q(z' | z)
        asymmetry = jnp.sum(((proposal - mean) ** 2 - (z - mean_back) ** 2) / D) / (2 * h)
        log_ratio = state.potential_energy - energy + asymmetry
        finite = jnp.isfinite(log_ratio)
        accept_prob = jnp.where(finite, jnp.minimum(1.0, jnp.exp(log_ratio)), 0.0).astype(z.dtype)
        # without the adjustment only proposals are refused where potential or gradient are not finite
        accept = (jax.random.uniform(key_accept) < accept_prob) if self._adjusted else finite
        if_accepted = (unravel(proposal), proposal_gradient, energy)
        if_refused = (state.z, state.z_grad, state.potential_energy)
        z_new, gradient_new, energy_new = jax.tree.map(lambda a, b: jnp.where(accept, a, b), if_accepted, if_refused)

        warming = state.i < self._num_warmup
        adapt = self._adapt
        assert adapt is not None, "`init` must be called before `sample`."
        adapt_state = jax.lax.cond(
            warming, lambda s: adapt(state.i, accept_prob, (z_new,), s), lambda s: s, state.adapt_state
        )
        i = state.i + 1
        count = jnp.where(warming, i, i - self._num_warmup)
        mean_accept = state.mean_accept_prob + (accept_prob - state.mean_accept_prob) / count
        mean_accept = mean_accept.astype(z.dtype)
        return LangevinState(
            i, z_new, gradient_new, energy_new, accept_prob, mean_accept, ~finite, adapt_state, rng_key
        )

    def postprocess_fn(self, model_args: tuple[Any, ...], model_kwargs: Any) -> Callable[..., Any]:
        """Return the function from unconstrained values to those of all sites, deterministic ones included."""
        if self._postprocess_fn is None:
            return lambda z: z
        return self._postprocess_fn(*model_args, **(model_kwargs or {}))

    def get_constrain_fn(self, model_args: tuple[Any, ...], model_kwargs: Any) -> Callable[..., Any]:
        """Return the function from unconstrained to constrained values, which does not run the model.

        Raises:
            RuntimeError: before ``init``.
        """
        if self._inv_transforms is None:
            raise RuntimeError("`get_constrain_fn` requires the kernel to be initialized; run `init` first.")
        return partial(transform_fn, self._inv_transforms)

    def refresh(self, state: LangevinState, model_args: tuple[Any, ...], model_kwargs: Any) -> LangevinState:
        """Return the state with potential and gradient for new arguments of the model, as a block of Gibbs sampling needs."""
        energy, gradient = jax.value_and_grad(self._potential(model_args, model_kwargs))(state.z)
        return state._replace(potential_energy=energy, z_grad=gradient)

    def wrap_model(self, wrapper: Callable[..., Any]) -> ProximalLangevin:
        """Return a copy of the kernel for the model ``wrapper(model)``."""
        kernel = copy.copy(self)
        kernel._model = wrapper(self._model)
        kernel._forget()
        return kernel

    def _potential(self, model_args: tuple[Any, ...], model_kwargs: Any) -> Callable[[Any], Array]:
        assert self._potential_fn_gen is not None, "`init` must be called before `sample`."
        return self._potential_fn_gen(*model_args, **(model_kwargs or {}))

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        # these are closures, which cannot be pickled; `init` makes them again
        for name in ("_potential_fn_gen", "_postprocess_fn", "_inv_transforms", "_adapt"):
            state[name] = None
        return state


def _bijections(model_trace: Any) -> dict[str, Any]:
    """Return the transforms from unconstrained to constrained values, by latent site."""
    latent = {k: site for k, site in model_trace.items() if site["type"] == "sample" and not site["is_observed"]}
    return {k: biject_to(site["fn"].support) for k, site in latent.items()}
