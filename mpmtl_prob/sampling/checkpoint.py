"""A run of chains on disk, so that what was drawn survives an interruption.

The file holds draws of models that depend on rows, so that it is for its owner alone (mode 0600). Whether it is of the same
rows is told by a mark that is keyed with a salt of the file's own: marks of two files say nothing of each other, and a mark
without its file cannot be compared with that of guessed rows. Whoever has the file can compare, and has its draws as well.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mpmtl_prob._util.files import atomic_write, holding
from mpmtl_prob.sampling.chains import ChainStates, Draws

_FORMAT = 2  # of version 0.3.0: 1, in which the mark is the fingerprint itself
_SALT_BYTES = 32


def fingerprint(settings: Mapping[str, Any], args: Any) -> str:
    """A hash of what must be the same for a run to go on: the settings and the numbers of the model's arguments.

    It tells right guesses of the rows from wrong ones, and is not to be written down.
    """
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode())
    for leaf in jax.tree.leaves(args, is_leaf=_in_parts):
        for shape, kind, chunks in leaf.fingerprint_parts() if _in_parts(leaf) else [_whole(leaf)]:
            digest.update(str((shape, kind)).encode())
            for chunk in chunks:
                digest.update(chunk)
    return digest.hexdigest()


def _in_parts(value: Any) -> bool:
    """Return whether data are read part by part, as rows of tasks are (:class:`mpmtl_prob.privacy.ledger.InParts`)."""
    return hasattr(value, "fingerprint_parts")


def _whole(leaf: Any) -> tuple[tuple[int, ...], Any, list[bytes]]:
    array = np.asarray(leaf)
    return array.shape, array.dtype, [array.tobytes()]


def write(path: str | os.PathLike[str], run: str, reached: ChainStates, draws: Draws, statistics: Draws) -> None:
    """Write a run of this fingerprint; a file that was there stays until the new one is whole."""
    leaves = [_plain(leaf) for leaf in jax.tree.leaves(reached.state)]
    arrays: dict[str, Any] = {f"state/{i:03d}": leaf for i, leaf in enumerate(leaves)}
    arrays |= {f"draws/{k}": v for k, v in draws.items()} | {f"statistics/{k}": v for k, v in statistics.items()}
    salt = secrets.token_bytes(_SALT_BYTES)
    arrays |= {"salt": np.frombuffer(salt, dtype=np.uint8), "mark": _mark(salt, run)}
    with atomic_write(path, private=True) as unfinished, open(unfinished, "wb") as file:
        np.savez(file, format=_FORMAT, reached=[reached.warmed, reached.drawn], **arrays)


def read(path: str | os.PathLike[str], run: str, like: ChainStates) -> tuple[ChainStates, Draws, Draws]:
    """Read a run that :func:`write` wrote, or version 0.3.0, into a state of the same structure.

    Raises:
        ValueError: a file of another run, or none at all.
    """
    with holding("run", path, name="checkpoint", foreign=(OSError, KeyError, ValueError)):
        with np.load(path, allow_pickle=False) as file:
            found = {name: file[name] for name in file.files}
        mark = _mark(found["salt"].tobytes(), run) if "salt" in found else run
        same = hmac.compare_digest(str(found["mark"]), mark)
    if not same:
        raise ValueError(
            f"checkpoint: {os.fspath(path)!r} holds another run; expected the same model, data, kernel, chains, warm-up, "
            "thinning and seed. Give another file, or delete this one"
        )
    leaves, structure = jax.tree.flatten(like.state)
    state = [_restored(found[f"state/{i:03d}"], leaf) for i, leaf in enumerate(leaves)]
    warmed, drawn = (int(n) for n in found["reached"])
    parts = [{k.split("/", 1)[1]: v for k, v in found.items() if k.startswith(p)} for p in ("draws/", "statistics/")]
    return ChainStates(jax.tree.unflatten(structure, state), warmed, drawn), parts[0], parts[1]


def _mark(salt: bytes, run: str) -> str:
    return hmac.new(salt, run.encode(), hashlib.sha256).hexdigest()


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _plain(leaf: Any) -> Any:
    return np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)


def _restored(array: Any, like: Any) -> Any:
    found = jnp.asarray(array)
    return jax.random.wrap_key_data(found, impl=jax.random.key_impl(like)) if _is_key(like) else found
