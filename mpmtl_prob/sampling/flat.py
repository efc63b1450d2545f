"""NumPyro's NUTS on a model whose sites are one vector to it."""

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


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Sites:
    """Unconstrained values of a model's sites, end to end.

    Attributes:
        vector: all values, (n,).
        shapes: every site's name and shape, in the order of the vector.
    """

    vector: Array
    shapes: tuple[tuple[str, tuple[int, ...]], ...] = field(metadata={"static": True})

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Sites:
        shapes = tuple((name, jnp.shape(value)) for name, value in values.items())
        return cls(jnp.concatenate([jnp.ravel(value) for value in values.values()]), shapes)

    def by_name(self) -> dict[str, Array]:
        each = jax.lax.split(self.vector, [prod(shape) for _, shape in self.shapes])  # its gradient is laid end to end
        return {name: values.reshape(shape) for (name, shape), values in zip(self.shapes, each, strict=True)}


class FlatNUTS(MCMCKernel):
    """NUTS from starts that are given.

    NumPyro's kernel moves, compares and keeps every site by operations of its own, and traces the model several times to find
    a start. Here the sites are one vector, and the start is given: less to trace, to compile and to run.

    Args:
        model: the NumPyro model, of continuous sites; all of them are given when it starts.
        acceptance: that the step size aims at.
        depth: of the largest tree; a trajectory has at most 2^depth - 1 steps.
    """

    sample_field = "z"

    def __init__(self, model: Callable[..., None], *, acceptance: float = 0.8, depth: int = 8) -> None:
        self.model, self.acceptance, self.depth = model, acceptance, depth
        self._first, self._next = hmc(potential_fn_gen=self._potential, algo="NUTS")

    def _potential(self, *args: Any) -> Callable[[Sites], Array]:
        def potential(sites: Sites) -> Array:
            with numpyro.validation_enabled(False):  # of every number, at every step
                return potential_energy(self.model, args, {}, sites.by_name())

        return potential

    def init(self, rng_key: Any, num_warmup: int, init_params: Any, model_args: Any, model_kwargs: Any) -> HMCState:
        """The first state but for its potential energy and gradient, which are zero."""
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
        """The state of :meth:`init`, of NumPy's numbers: nothing is compiled for it."""
        shaped = jax.eval_shape(lambda key: self.init(key, num_warmup, params, args, {}), key)
        vector = np.concatenate([np.ravel(value) for value in params.values()])
        return _numpyro.first_state(shaped, vector, key)

    def sample(self, state: HMCState, model_args: Any, model_kwargs: Any) -> HMCState:
        return self._next(state, model_args, {})

    def postprocess_fn(self, model_args: Any, model_kwargs: Any) -> Any:
        return lambda sites: constrain_fn(self.model, model_args, {}, sites.by_name(), return_deterministic=True)

    def get_diagnostics_str(self, state: HMCState) -> str:
        return f"{state.num_steps} steps of size {state.adapt_state.step_size:.2e}, acceptance {state.mean_accept_prob:.2f}"
