"""JAX's own random numbers, bit for bit, in fewer and larger pieces of program.

A step of NUTS asks for random numbers in many places, and of what JAX writes for each (threefry, Salmon et al. 2011, SC11)
XLA compiles several kernels. Here a loop over the rounds holds all but its start.

It was written for the version of JAX in :data:`WRITTEN_FOR`. ``tests/sampling/test_internals.py`` compares it with the JAX
that is installed, and says what to look at where a later version draws other numbers.
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
    """Keys that draw what those of ``jax.random.split(jax.random.key(seed), count)`` draw; nothing is compiled for them."""
    high = (seed >> 32) & _WORD if jax.config.jax_enable_x64 else 0
    return _apart(np.array([high, seed & _WORD], np.uint32), count)


def split(key: Array, count: int) -> list[Array]:
    """The keys of ``jax.random.split(key, count)``, likewise."""
    return _apart(np.asarray(jax.random.key_data(key)), count)


def _apart(pair: NDArray[np.uint32], count: int) -> list[Array]:
    words = _counts(count) + pair[:, None]
    for i in np.arange(5):
        words, pair = _rounds(i, words, pair, np)
    return [jax.random.wrap_key_data(each, impl=_IMPLEMENTATION) for each in words.T]


def _counts(number: int) -> NDArray[np.uint32]:
    """0, 1, ... as pairs of words, (2, n)."""
    counts = np.arange(number, dtype=np.uint64)
    return np.stack([counts >> np.uint64(32), counts & np.uint64(_WORD)]).astype(np.uint32)


def _rounds(i: Any, words: Any, pair: Any, xp: Any) -> Any:
    """Four rounds, the i-th time, and the next two of the key's three words in their turn, by NumPy or by jax.numpy."""
    left, right = words
    for by in xp.asarray(_ROTATIONS)[i & 1]:
        left = left + right
        right = ((right << by) | (right >> (np.uint32(32) - by))) ^ left
    one, other = pair[1], pair[0] ^ pair[1] ^ _PARITY
    return xp.stack([left + one, right + other + (i + 1).astype(np.uint32)]), xp.stack([one, other])


def _hash(pair: Array, shape: tuple[int, ...]) -> Array:
    """The hashes of 0, 1, ... under a key, (2, n)."""
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
