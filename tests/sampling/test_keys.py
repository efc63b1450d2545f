"""Keys of the chains: JAX's own random numbers, bit for bit."""

import jax
import numpy as np
import pytest
from conftest import as_written
from helpers.quickly import quickly
from numpy.testing import assert_array_equal

from mpmtl_prob.sampling._threefry import keys

pytestmark = as_written
DATA = jax.random.key_data
SEED = 2**31 - 5


def pair(seed):
    """A key of ours, and JAX's of the same numbers."""
    ours = keys(seed, 2)[1]
    return ours, jax.random.wrap_key_data(np.asarray(DATA(ours)), impl="threefry2x32")


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("seed", [0, 7, 2**32 - 1, 2**33 + 5])
def test_keys_of_a_seed_are_jaxs(seed, double):
    with jax.enable_x64(double):
        expected = jax.random.split(jax.random.key(seed), 5)
        assert_array_equal([DATA(key) for key in keys(seed, 5)], DATA(expected))


@pytest.mark.parametrize("double", [False, True])
def test_bits_are_jaxs(double):
    cases = [((3, 5), f"uint{width}") for width in (8, 16, 32, 64)[: 3 + double]]
    cases += [(shape, "uint32") for shape in ((), (1,), (0,), (2, 0)) if double]
    draw = quickly(lambda key: [jax.random.bits(key, *case) for case in cases])
    with jax.enable_x64(double):
        for case, bits, expected in zip(cases, *map(draw, pair(SEED)), strict=True):
            assert bits.dtype == case[1]
            assert_array_equal(bits, expected)


def test_keys_split_as_jaxs_do():
    @quickly
    def splits(key):
        one = jax.vmap(jax.random.fold_in, (None, 0))(key, jax.numpy.arange(4))[3]
        return [DATA(jax.random.split(one, number)) for number in (2, (3, 2), 0)]

    for children, expected in zip(*map(splits, pair(SEED)), strict=True):
        assert_array_equal(children, expected)


def test_many_keys_at_once_draw_what_each_draws():
    draw = quickly(lambda key: jax.vmap(lambda k: jax.random.normal(k, (3,)))(jax.random.split(key, 5)))
    numbers, expected = map(draw, pair(7))
    assert_array_equal(numbers, expected)
