"""Keys of the chains: JAX's own random numbers, bit for bit."""

import jax
import pytest
from conftest import as_written
from numpy.testing import assert_array_equal

from mpmtl_prob.inference.sampling.keys import keys

pytestmark = as_written
DATA = jax.random.key_data
SEED = 2**31 - 5


def pair(seed):
    """A key of ours, and JAX's of the same numbers."""
    return keys(seed, 2)[1], jax.random.split(jax.random.key(seed), 2)[1]


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("seed", [0, 7, 2**32 - 1, 2**33 + 5])
def test_keys_of_a_seed_are_jaxs(seed, double):
    with jax.enable_x64(double):
        expected = jax.random.split(jax.random.key(seed), 5)
        assert_array_equal([DATA(key) for key in keys(seed, 5)], DATA(expected))


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        *(((3, 5), dtype) for dtype in ("uint8", "uint16", "uint32", "uint64")),
        *((shape, "uint32") for shape in ((), (1,), (0,), (2, 0))),
    ],
)
def test_bits_are_jaxs(shape, dtype):
    with jax.enable_x64(dtype == "uint64"):
        found, expected = (jax.random.bits(key, shape, dtype) for key in pair(SEED))
        assert_array_equal(found, expected)


@pytest.mark.parametrize("number", [2, (3, 2), 0])
def test_keys_split_as_jaxs_do(number):
    found, expected = (
        jax.random.split(jax.vmap(jax.random.fold_in, (None, 0))(k, jax.numpy.arange(4))[3], number) for k in pair(SEED)
    )
    assert_array_equal(DATA(found), DATA(expected))


def test_many_keys_at_once_draw_what_each_draws():
    found, expected = (jax.vmap(lambda k: jax.random.normal(k, (3,)))(jax.random.split(k, 5)) for k in pair(7))
    assert_array_equal(found, expected)
