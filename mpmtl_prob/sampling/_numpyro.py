"""Internals of NumPyro's kernels that this package relies on: fields of states, and private names.

No other file of the package uses them. They are those of the version in :data:`WRITTEN_FOR`.
``tests/sampling/test_internals.py`` compares them with the NumPyro that is installed, and says what to look at where a later
version has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.infer import NUTS
from numpyro.infer.hmc import HMCState, hmc
from numpyro.infer.hmc_util import warmup_adapter
from numpyro.infer.util import (
    ParamInfo,
    _unconstrain_params,
    constrain_fn,
    initialize_model,
    log_density,
    potential_energy,
    transform_fn,
)
from numpyro.util import is_prng_key

from mpmtl_prob.sampling._threefry import split

__all__ = [
    "STATISTICS",
    "WRITTEN_FOR",
    "HMCState",
    "ParamInfo",
    "constrain_fn",
    "energy_and_sites",
    "first_state",
    "hmc",
    "initialize_model",
    "inverse_mass",
    "is_prng_key",
    "potential_energy",
    "transform_fn",
    "tree_depth",
    "warmup_adapter",
    "with_gradient",
    "with_huge_energy",
    "without_gradient",
]

#: The version of NumPyro whose source was read.
WRITTEN_FOR = "0.22.0"

#: Sampler statistics that are stored with the draws where a kernel has them: ArviZ's name, and the field of NumPyro's state.
STATISTICS = {
    "diverging": "diverging",
    "n_steps": "num_steps",
    "acceptance_rate": "accept_prob",
    "energy": "energy",
    "lp": "potential_energy",
}


def energy_and_sites(
    model: Callable[..., None], args: tuple[Any, ...], values: Mapping[str, Array], keep: Sequence[str]
) -> tuple[Array, dict[str, Array]]:
    """Return the potential energy at unconstrained values, and the values of the sites ``keep``, from one trace."""
    log_joint, trace = log_density(_unconstrain_params(model, dict(values)), args, {}, {})
    return -log_joint, {name: trace[name]["value"] for name in keep if name in trace}


def tree_depth(kernel: NUTS) -> int:
    """Return the depth of the largest tree after warm-up. NumPyro has it only under a private name."""
    depth = kernel._max_tree_depth
    return int(depth[1] if isinstance(depth, tuple) else depth)


def first_state(shaped: HMCState, vector: np.ndarray[Any, Any], key: Array) -> HMCState:
    """Return the state in which NUTS starts, without potential energy and gradient, as NumPy arrays.

    Args:
        shaped: shapes and types of the state, as ``jax.eval_shape`` returns them; ``z`` is a dataclass with a field
            ``vector``.
        vector: unconstrained values, (n,).
        key: the chain's key, which is split as ``hmc`` splits it.
    """
    adapt = shaped.adapt_state
    without_keys = shaped._replace(rng_key=None, adapt_state=adapt._replace(rng_key=None))
    state = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), without_keys)
    chain_key, adaptation, _ = split(key, 3)
    ones = {
        name: np.ones_like(getattr(state.adapt_state, name))
        for name in ("step_size", "inverse_mass_matrix", "mass_matrix_sqrt", "mass_matrix_sqrt_inv")
    }
    # dual averaging shrinks the logarithm of the step size towards that of ten times the first one, which is 1
    *averages, prox_center = state.adapt_state.ss_state
    prox_center = prox_center + np.log(10, dtype=prox_center.dtype)
    adapt = state.adapt_state._replace(rng_key=split(adaptation, 2)[0], ss_state=(*averages, prox_center), **ones)
    z = replace(state.z, vector=vector.astype(state.z.vector.dtype))
    return state._replace(rng_key=chain_key, z=z, adapt_state=adapt)


def without_gradient(state: HMCState) -> HMCState:
    """Return the state with a gradient of zero."""
    return state._replace(z_grad=jax.tree.map(jnp.zeros_like, state.z))


def with_huge_energy(state: HMCState) -> HMCState:
    """Set the energy to 1e30, so that the next proposal is accepted."""
    high = state.potential_energy.__array_namespace__().full_like(state.potential_energy, 1e30)
    return state._replace(potential_energy=high, energy=high)


def with_gradient(state: HMCState, step: Callable[[HMCState], HMCState]) -> HMCState:
    """Return the state with its potential energy and gradient, which a step of infinite mass computes without moving it."""
    no_inverse_mass = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), state.adapt_state.inverse_mass_matrix)
    stepped = step(state._replace(adapt_state=state.adapt_state._replace(inverse_mass_matrix=no_inverse_mass)))
    return state._replace(**{name: getattr(stepped, name) for name in ("z", "z_grad", "potential_energy", "energy")})


def inverse_mass(adapt_state: Any) -> Array:
    """Return the diagonal of the inverse mass matrix as one vector, also where NumPyro has one for each block of sites."""
    D: Array | Mapping[str, Array] = adapt_state.inverse_mass_matrix
    return jnp.concatenate([jnp.ravel(block) for block in D.values()]) if isinstance(D, Mapping) else D
