"""Internals of NumPyro and JAX that the package uses: they are there, and used in the two files made for it alone."""

import ast
import inspect
from pathlib import Path

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.extend.random import define_prng_impl
from numpyro.infer import NUTS
from numpyro.infer.hmc import HMCState, hmc
from numpyro.infer.hmc_util import HMCAdaptState, warmup_adapter

from mpmtl_prob.sampling import _numpyro, _threefry
from mpmtl_prob.sampling.flat import FlatNUTS

PACKAGE = Path(__file__).parents[2] / "mpmtl_prob"
#: What only one file of the package may import: the beginning of a module's name, and the file.
INSIDE = {
    "numpyro.infer.hmc": {"sampling/_numpyro.py"},
    "numpyro.infer.hmc_util": {"sampling/_numpyro.py"},
    "numpyro.infer.util": {"sampling/_numpyro.py"},
    "numpyro.util": {"sampling/_numpyro.py"},
    "jax.extend": {"sampling/_threefry.py"},
    "jax._src": set(),
    "jax.interpreters": set(),
}
NUMPYRO = (
    f"NumPyro {numpyro.__version__} is not as in {_numpyro.WRITTEN_FOR}, for which mpmtl_prob/sampling/_numpyro.py was "
    "written. Compare the functions of that file with numpyro/infer/hmc.py and hmc_util.py, then change WRITTEN_FOR."
)
JAX = (
    f"JAX {jax.__version__} is not as in {_threefry.WRITTEN_FOR}, for which mpmtl_prob/sampling/_threefry.py was written. "
    "Compare that file with jax/_src/prng.py and jax/_src/random.py, then change WRITTEN_FOR."
)


def test_states_of_numpyros_kernels_have_the_fields_that_are_set():
    fields = {"z", "z_grad", "potential_energy", "energy", "adapt_state", "rng_key", *_numpyro.STATISTICS.values()}
    assert fields <= set(HMCState._fields), NUMPYRO
    assert HMCAdaptState._fields == (
        "step_size", "inverse_mass_matrix", "mass_matrix_sqrt", "mass_matrix_sqrt_inv", "ss_state", "mm_state",
        "window_idx", "rng_key",
    ), NUMPYRO  # fmt: skip


def test_numpyros_functions_take_what_they_are_given():
    assert "potential_fn_gen" in inspect.signature(hmc).parameters, NUMPYRO
    adapts = inspect.signature(warmup_adapter).parameters
    assert {"num_adapt_steps", "adapt_step_size", "adapt_mass_matrix", "target_accept_prob"} <= set(adapts), NUMPYRO


@pytest.mark.parametrize("depth", [4, (2, 4)])
def test_the_depth_of_numpyros_trees_is_under_its_private_name(depth):
    assert hasattr(NUTS(_normal), "_max_tree_depth"), NUMPYRO
    assert _numpyro.tree_depth(NUTS(_normal, max_tree_depth=depth)) == 4, NUMPYRO


def test_a_first_state_is_the_one_that_numpyro_makes():
    kernel, start = FlatNUTS(_normal), {"x": np.array([0.3, -1.0])}
    key = jax.random.key(5)
    theirs, ours = kernel.init(key, 20, start, (), {}), kernel.first(key, 20, start, ())
    assert jax.tree.structure(theirs) == jax.tree.structure(ours), NUMPYRO
    jax.tree.map(np.testing.assert_array_equal, theirs.z, ours.z)
    for name in HMCAdaptState._fields:
        mine, other = getattr(ours.adapt_state, name), getattr(theirs.adapt_state, name)
        if name == "rng_key":
            mine, other = jax.random.key_data(mine), jax.random.key_data(other)
        message = f"{NUMPYRO} It differs in adapt_state.{name}."
        jax.tree.map(lambda a, b, said=message: np.testing.assert_allclose(a, b, rtol=1e-6, err_msg=said), other, mine)
    same = np.array_equal(jax.random.key_data(theirs.rng_key), jax.random.key_data(ours.rng_key))
    assert same, NUMPYRO


def test_jax_makes_generators_of_the_parts_that_it_is_given():
    parts = {"key_shape", "seed", "split", "random_bits", "fold_in", "name", "tag"}
    assert parts <= set(inspect.signature(define_prng_impl).parameters), JAX


def test_jax_splits_keys_and_draws_bits_as_computed_here():
    """JAX splits keys and draws bits in the way that is computed here."""
    (ours,), theirs = _threefry.keys(3, 1), jax.random.split(jax.random.key(3, impl="threefry2x32"), 1)[0]
    assert jax.config.jax_default_prng_impl == "threefry2x32", JAX
    assert jax.config.jax_threefry_partitionable, JAX
    assert np.array_equal(jax.random.key_data(ours), jax.random.key_data(theirs)), JAX
    assert np.array_equal(jax.random.bits(ours, (5,)), jax.random.bits(theirs, (5,))), JAX


def test_the_inside_of_other_packages_is_used_in_two_files_alone():
    used = {inside: set() for inside in INSIDE}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for inside in INSIDE:
                if any(f"{module}.".startswith(f"{inside}.") for module in modules):
                    used[inside].add(path.relative_to(PACKAGE).as_posix())
    assert used == INSIDE


def _normal():
    numpyro.sample("x", dist.Normal(0, 1).expand([2]).to_event(1))
