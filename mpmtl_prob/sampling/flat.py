"""NumPyro's NUTS on a model whose sites are joined in one vector, which compiles and runs faster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax import Array
from numpyro.infer.mcmc import MCMCKernel

from mpmtl_prob.sampling import _numpyro
from mpmtl_prob.sampling._numpyro import HMCState, ParamInfo, constrain_fn, hmc, potential_energy

#: Depth of the largest tree. A kernel with a smaller one was given it for its model, whose trajectories then always reach it.
DEPTH = 8


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Sites:
    """Unconstrained values of all of a model's sites in one vector.

    Attributes:
        vector: all values, one site after another, (n,).
        shapes: every site's name and shape, in the order of the vector.
    """

    vector: Array
    shapes: tuple[tuple[str, tuple[int, ...]], ...] = field(metadata={"static": True})

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Sites:
        """Join the values of sites."""
        shapes = tuple((name, jnp.shape(value)) for name, value in values.items())
        return cls(jnp.concatenate([jnp.ravel(value) for value in values.values()]), shapes)

    def by_name(self) -> dict[str, Array]:
        """Return every site's values in their shape."""
        # the gradient of `split` is one concatenation; that of slices would be a sum of padded vectors
        of_sites = jax.lax.split(self.vector, [prod(shape) for _, shape in self.shapes])
        return {name: values.reshape(shape) for (name, shape), values in zip(self.shapes, of_sites, strict=True)}


class FlatNUTS(MCMCKernel):
    """NUTS from given starts, with all sites in one vector.

    NumPyro's kernel has separate operations for every site, and traces the model several times to find a start. With one
    vector and a given start there is less to trace, to compile and to run.

    Args:
        model: the NumPyro model, all of whose latent sites are continuous; its start has a value for each of them.
        acceptance: the acceptance probability that adaptation of the step size aims at.
        depth: depth of the largest tree; a trajectory has at most 2^depth - 1 steps.
    """

    sample_field = "z"

    def __init__(self, model: Callable[..., None], *, acceptance: float = 0.8, depth: int = DEPTH) -> None:
        self.model, self.acceptance, self.depth = model, acceptance, depth
        self._first, self._next = hmc(potential_fn_gen=self._potential, algo="NUTS")

    def _potential(self, *args: Any) -> Callable[[Sites], Array]:
        def potential(sites: Sites) -> Array:
            # NumPyro would otherwise check every number at every step
            with numpyro.validation_enabled(False):
                return potential_energy(self.model, args, {}, sites.by_name())

        return potential

    def init(self, rng_key: Any, num_warmup: int, init_params: Any, model_args: Any, model_kwargs: Any) -> HMCState:
        """Return the first state, except that its potential energy and gradient are zero."""
        z = Sites.of(init_params)
        return self._first(
            ParamInfo(z, jnp.zeros((), z.vector.dtype), jax.tree.map(jnp.zeros_like, z)),
            num_warmup,
            target_accept_prob=self.acceptance,
            max_tree_depth=self.depth,
            model_args=model_args,
            rng_key=rng_key,
        )

    def first(self, key: Array, num_warmup: int, params: Mapping[str, Any], args: Any) -> HMCState:
        """Return the state of :meth:`init` as NumPy arrays, for which nothing is compiled."""
        shaped = jax.eval_shape(lambda key: self.init(key, num_warmup, params, args, {}), key)
        vector = np.concatenate([np.ravel(value) for value in params.values()])
        return _numpyro.first_state(shaped, vector, key)

    def sample(self, state: HMCState, model_args: Any, model_kwargs: Any) -> HMCState:
        return self._next(state, model_args, {})

    def postprocess_fn(self, model_args: Any, model_kwargs: Any) -> Any:
        return lambda sites: constrain_fn(self.model, model_args, {}, sites.by_name(), return_deterministic=True)

    def get_diagnostics_str(self, state: HMCState) -> str:
        return f"{state.num_steps} steps of size {state.adapt_state.step_size:.2e}, acceptance {state.mean_accept_prob:.2f}"
