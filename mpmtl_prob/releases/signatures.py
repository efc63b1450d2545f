"""Signatures of release files: HMAC-SHA256 over everything that a reader can see in the file.

The second format covers every variable and coordinate, with its name, dims, type, attributes and bytes, and every attribute.
The first, of version 0.3.0, covers Sigma and the attribute ``release``. That is enough for a :class:`mpmtl_prob.Release`,
which reads nothing else from its file, and not for other releases.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import xarray as xr

_KEY_BYTES = 16
_SECOND = "2:"  # prefix of a signature of the second format


def sign(data: xr.Dataset, key: bytes) -> xr.Dataset:
    """Return the data with the attribute ``signature``. Raises ValueError for a key of fewer than 16 bytes."""
    return data.assign_attrs(signature=_second(data, key))


def check(data: xr.Dataset, key: bytes, path: str | os.PathLike[str]) -> None:
    """Raise ValueError unless the holder of the key signed all of these data."""
    name = os.fspath(path)
    stated = data.attrs.get("signature")
    expected = _second(data, key)  # first, as this checks the key
    if not isinstance(stated, str):
        raise ValueError(f"key: expected a signed release, got none in {name!r}")
    by_the_first = not stated.startswith(_SECOND)
    if not hmac.compare_digest((_first(data, key) if by_the_first else expected).encode(), stated.encode()):
        raise ValueError(f"key: {name!r} was signed with another key, or changed after it was signed")
    if by_the_first and (beyond := _beyond_the_first(data)):
        raise ValueError(
            f"key: the signature in {name!r} is of version 0.3.0, which did not cover {', '.join(beyond)}: anybody may have "
            "changed that. The file must be signed anew by whoever knows what it should hold, with save(path, key=key)"
        )


def _second(data: xr.Dataset, key: bytes) -> str:
    variables = [
        [str(name), name in data.coords, list(map(str, variable.dims)), *_plain(variable.values), _attributes(variable)]
        for name, variable in sorted(data.variables.items(), key=lambda item: str(item[0]))
    ]
    return _SECOND + _digest(key, ["mpmtl_prob release, format 2", variables, _attributes(data)])


def _attributes(of: Any) -> list[Any]:
    return [[str(name), *_plain(value)] for name, value in sorted(of.attrs.items()) if name != "signature"]


def _plain(value: Any) -> list[Any]:
    """Return type, shape and content of an array or a number for JSON; equal before and after writing to a file."""
    array = np.asarray(value)
    if array.dtype.kind in "OUT":  # text in any container
        return ["text", array.shape, [[type(item).__name__, str(item)] for item in array.ravel().tolist()]]
    ordered = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return [ordered.dtype.str, array.shape, hashlib.sha256(ordered.tobytes()).hexdigest()]


def _first(data: xr.Dataset, key: bytes) -> str:
    sigma = np.ascontiguousarray(data["sigma"].values, dtype="<f8") if "sigma" in data else np.zeros(0)
    return _digest(key, ["mpmtl_prob release", str(data.attrs.get("release")), sigma.shape], sigma.tobytes())


def _beyond_the_first(data: xr.Dataset) -> list[str]:
    """List what a file holds beyond the first format's coverage and what follows from it."""
    features = [str(name) for name in json.loads(data.attrs["release"])["features"]]
    follow = {"round": list(range(1, len(data["sigma"]) + 1)), "feature": features, "feature_other": features}
    covered = {
        "sigma",
        *(name for name, values in follow.items() if name in data.coords and data[name].values.tolist() == values),
    }
    beyond = [str(name) for name, variable in data.variables.items() if name not in covered or variable.attrs]
    return sorted(beyond) + sorted(str(name) for name in set(data.attrs) - {"release", "signature"})


def _digest(key: bytes, header: Any, content: bytes = b"") -> str:
    if not isinstance(key, bytes) or len(key) < _KEY_BYTES:
        got = f"{len(key)} bytes" if isinstance(key, bytes) else type(key).__name__
        raise ValueError(f"key: expected at least {_KEY_BYTES} bytes, got {got}")
    return hmac.new(key, json.dumps(header).encode() + content, hashlib.sha256).hexdigest()
