"""JAX's random numbers, bit for bit, from a program that compiles faster.

A step of NUTS draws random numbers in many places. At each of them JAX writes out the rounds of its generator (threefry,
Salmon et al. 2011, SC11), of which XLA compiles several kernels. Here the rounds are one loop.

The numbers are those of the version of JAX in :data:`WRITTEN_FOR`. ``tests/sampling/test_internals.py`` compares them with
the JAX that is installed, and says what to look at where a later version draws other numbers.
"""

from __future__ import annotations

from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.random import define_prng_impl
from numpy.typing import NDArray

#: The version of JAX whose source was read.
WRITTEN_FOR = "0.12.0"

_WORD = 0xFFFFFFFF
_PARITY = np.uint32(0x1BD11BDA)
_ROTATIONS = np.array([[13, 15, 26, 6], [17, 29, 16, 24]], np.uint32)
_JAX = "threefry2x32"
_BITS = {8: jnp.uint8, 16: jnp.uint16, 32: jnp.uint32, 64: jnp.uint64}


def keys(seed: int, count: int) -> list[Array]:
    """Return keys that draw the numbers of ``jax.random.split(jax.random.key(seed), count)``, without compiling anything."""
    high = (seed >> 32) & _WORD if jax.config.jax_enable_x64 else 0
    return _split_by_numpy(np.array([high, seed & _WORD], np.uint32), count)


def split(key: Array, count: int) -> list[Array]:
    """Return the keys of ``jax.random.split(key, count)``, without compiling anything."""
    return _split_by_numpy(np.asarray(jax.random.key_data(key)), count)


def _split_by_numpy(pair: NDArray[np.uint32], count: int) -> list[Array]:
    """Return ``count`` keys from the two words of one, (2,)."""
    words = _counts(count) + pair[:, None]
    for i in np.arange(5):
        words, pair = _rounds(i, words, pair, np)
    return [jax.random.wrap_key_data(key_words, impl=_IMPLEMENTATION) for key_words in words.T]


def _counts(number: int) -> NDArray[np.uint32]:
    """Return 0, 1, ..., number - 1 as pairs of words, (2, number)."""
    counts = np.arange(number, dtype=np.uint64)
    return np.stack([counts >> np.uint64(32), counts & np.uint64(_WORD)]).astype(np.uint32)


def _rounds(i: Any, words: Any, pair: Any, xp: Any) -> Any:
    """Compute the i-th four rounds of threefry, and rotate the key's three words.

    Args:
        i: counts the calls, from 0; an unsigned array without dimensions, or traced.
        words: to be hashed, (2, n).
        pair: two of the key's three words, (2,); the third is the parity of these.
        xp: NumPy or jax.numpy.

    Returns:
        The words, and the pair of the next call.
    """
    left, right = words
    for bits in xp.asarray(_ROTATIONS)[i & 1]:
        left = left + right
        right = ((right << bits) | (right >> (np.uint32(32) - bits))) ^ left
    second = pair[1]
    third = pair[0] ^ pair[1] ^ _PARITY
    return xp.stack([left + second, right + third + (i + 1).astype(np.uint32)]), xp.stack([second, third])


def _hash(pair: Array, shape: tuple[int, ...]) -> Array:
    """Return the hashes of 0, 1, ... under a key, (2, n)."""
    rounds = lambda i, carry: _rounds(i, carry[0], carry[1], jnp)
    return jax.lax.fori_loop(0, 5, rounds, (_counts(prod(shape)) + pair[:, None], pair))[0]


def _split(pair: Array, shape: tuple[int, ...]) -> Array:
    return _hash(pair, shape).T.reshape(*shape, 2)


def _random_bits(pair: Array, width: int, shape: tuple[int, ...]) -> Array:
    high, low = (word.astype(_BITS[max(width, 32)]) for word in _hash(pair, shape))
    mixed = (high << np.uint64(32)) | low if width == 64 else high ^ low
    return mixed.astype(_BITS[width]).reshape(shape)


def _seed(seed: Array) -> Array:
    return jax.random.key_data(jax.random.key(seed, impl=_JAX))


def _fold_in(pair: Array, number: int) -> Array:
    return jax.random.key_data(jax.random.fold_in(jax.random.wrap_key_data(pair, impl=_JAX), number))


_IMPLEMENTATION = define_prng_impl(
    key_shape=(2,),
    seed=_seed,
    split=_split,
    random_bits=_random_bits,
    fold_in=_fold_in,
    name="whole_threefry",
    tag="wt",
)
