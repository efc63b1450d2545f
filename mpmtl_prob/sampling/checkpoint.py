"""Files of unfinished runs of chains, from which an interrupted run goes on.

The draws depend on private rows, so that only the file's owner may read it (mode 0600). A mark shows whether the file belongs
to the same rows: a hash that is keyed with a random salt of the file. Therefore the marks of two files cannot be compared
with each other, nor a mark without its file with that of guessed rows. Whoever has the file can test a guess, but they also
have the draws.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mpmtl_prob._util.arrays import Draws
from mpmtl_prob._util.files import atomic_write, holding
from mpmtl_prob.sampling.chains import ChainStates

#: In format 1, that of version 0.3.0, the mark is the fingerprint itself.
_FORMAT = 2
_SALT_BYTES = 32


def fingerprint(settings: Mapping[str, Any], args: Any) -> str:
    """Return a hash of what must be the same for a run to go on: the settings and the numbers of the model's arguments.

    Whoever knows it can test guesses of the rows, so that it must not be stored.
    """
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode())
    for leaf in jax.tree.leaves(args, is_leaf=_in_parts):
        for shape, kind, chunks in leaf.fingerprint_parts() if _in_parts(leaf) else [_whole(leaf)]:
            digest.update(str((shape, kind)).encode())
            for chunk in chunks:
                digest.update(chunk)
    return digest.hexdigest()


def settings_of(value: Any, depth: int = 5) -> Any:
    """Return what can be written of the settings of a kernel or of another object, in the same order in every process.

    Numbers, texts and arrays stand for themselves, functions for their names, and objects for their kind and attributes, down
    to a depth that no kernel of kernels exceeds.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        return _plain(value).tolist()
    if isinstance(value, Mapping):
        return {str(key): settings_of(part, depth) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [settings_of(part, depth) for part in value]
    if isinstance(value, partial):
        return [settings_of(part, depth) for part in (value.func, value.args, value.keywords)]
    if hasattr(value, "__qualname__"):
        return value.__qualname__
    kind = type(value).__qualname__
    return [kind, settings_of(getattr(value, "__dict__", {}), depth - 1)] if depth else kind


def _in_parts(value: Any) -> bool:
    """Return whether a value gives its parts one by one, as tasks do (:class:`mpmtl_prob.privacy.ledger.InParts`)."""
    return hasattr(value, "fingerprint_parts")


def _whole(leaf: Any) -> tuple[tuple[int, ...], Any, list[bytes]]:
    array = np.asarray(leaf)
    return array.shape, array.dtype, [array.tobytes()]


def write(path: str | os.PathLike[str], run: str, reached: ChainStates, draws: Draws, statistics: Draws) -> None:
    """Write a run with this fingerprint; an earlier file stays until the new one is complete."""
    leaves = [_plain(leaf) for leaf in jax.tree.leaves(reached.state)]
    arrays: dict[str, Any] = {f"state/{i:03d}": leaf for i, leaf in enumerate(leaves)}
    arrays |= {f"draws/{k}": v for k, v in draws.items()} | {f"statistics/{k}": v for k, v in statistics.items()}
    salt = secrets.token_bytes(_SALT_BYTES)
    arrays |= {"salt": np.frombuffer(salt, dtype=np.uint8), "mark": _mark(salt, run)}
    with atomic_write(path, private=True) as unfinished, open(unfinished, "wb") as file:
        np.savez(file, format=_FORMAT, reached=[reached.warmed, reached.drawn], **arrays)


def read(path: str | os.PathLike[str], run: str, like: ChainStates) -> tuple[ChainStates, Draws, Draws]:
    """Read a run that :func:`write` or version 0.3.0 wrote, into a state of the same structure.

    Args:
        path: the file.
        run: the run's fingerprint.
        like: states of the same kernel, model and number of chains.

    Raises:
        ValueError: a file of another run, or one that holds no run.
    """
    with holding("run", path, name="checkpoint", foreign=(OSError, KeyError, ValueError)):
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        mark = _mark(arrays["salt"].tobytes(), run) if "salt" in arrays else run
        is_same_run = hmac.compare_digest(str(arrays["mark"]), mark)
    if not is_same_run:
        raise ValueError(
            f"checkpoint: {os.fspath(path)!r} holds another run; expected the same model, data, kernel, chains, warm-up, "
            "thinning and seed. Give another file, or delete this one"
        )
    leaves, structure = jax.tree.flatten(like.state)
    state = [_restored(arrays[f"state/{i:03d}"], leaf) for i, leaf in enumerate(leaves)]
    warmed, drawn = (int(n) for n in arrays["reached"])
    draws = {name.removeprefix("draws/"): v for name, v in arrays.items() if name.startswith("draws/")}
    statistics = {name.removeprefix("statistics/"): v for name, v in arrays.items() if name.startswith("statistics/")}
    return ChainStates(jax.tree.unflatten(structure, state), warmed, drawn), draws, statistics


def _mark(salt: bytes, run: str) -> str:
    return hmac.new(salt, run.encode(), hashlib.sha256).hexdigest()


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _plain(leaf: Any) -> Any:
    """Return a leaf of a state as a NumPy array; of a random key its words."""
    return np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)


def _restored(array: Any, like: Any) -> Any:
    """Return the leaf that :func:`_plain` was given, of the kind of another."""
    leaf = jnp.asarray(array)
    return jax.random.wrap_key_data(leaf, impl=jax.random.key_impl(like)) if _is_key(like) else leaf
