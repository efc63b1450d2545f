"""A release as a file that anybody may have written: what is read is checked, and its guarantee worked out anew.

Whoever can edit a file can make it say anything. What a reader can find out alone is whether the noise laws that the file
names give the guarantee that it states, and this is done on every reading. Whether Sigma is what those laws made of
somebody's data no reader can see; a signature says that it is what the holder of a key wrote.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mpmtl_prob._check import in_range, one_of, positive, whole
from mpmtl_prob._files import check_there, holding
from mpmtl_prob.privacy.guarantee import DISCRETE, DOUBLES, EXACT, Bound, Guarantee, of_release
from mpmtl_prob.privacy.laws import Law, MatrixNoise, read_law, write_law
from mpmtl_prob.privacy.units import Adjacency, Unit
from mpmtl_prob.releases.messages import MESSAGES, SCALINGS
from mpmtl_prob.tasks import FloatArray

if TYPE_CHECKING:
    import xarray as xr

    from mpmtl_prob.releases.release import Release

#: A recomputed delta may exceed the stated one by this much of it: another processor rounds in another way.
_SLACK = 1e-6
_KEY_BYTES = 16


def to_dataset(release: Release) -> xr.Dataset:
    """Sigma with dims (round, feature, feature_other); all else as JSON in the attribute ``release``."""
    meta = {
        "mechanisms": [write_law(mechanism) for mechanism in release.mechanisms],
        "besides": [write_law(mechanism) for mechanism in release.besides],
        "num_tasks": release.num_tasks,
        "features": list(release.features),
        "guarantee": release.guarantee.to_dict(),
        "message": release.message,
        "scaling": release.scaling,
        "library_version": release.library_version,
        "lattice": release.lattice,
    }
    import xarray as xr  # with pandas, nearly a second to import

    names = [str(feature) for feature in release.features]
    return xr.Dataset(
        {"sigma": (("round", "feature", "feature_other"), release.sigma)},
        coords={"round": np.arange(1, release.rounds + 1), "feature": names, "feature_other": names},
        attrs={"release": json.dumps(meta)},
    )


def fields(data: xr.Dataset) -> dict[str, Any]:
    """The fields of the release that :func:`to_dataset` turned into data. Raises ValueError for other data."""
    try:
        meta, sigma = json.loads(data.attrs["release"]), data["sigma"].values
        if sigma.dtype.kind != "f":
            raise ValueError(f"sigma: expected floating-point numbers, got {sigma.dtype}")
        laws, besides = _laws(meta["mechanisms"]), _laws(meta.get("besides", ()))
        if not laws or not all(isinstance(law, MatrixNoise) for law in laws):
            raise ValueError("mechanisms: expected the noise of every round")
        lattice = None if meta.get("lattice") is None else positive("lattice", meta["lattice"])
        return {
            "sigma": sigma,
            "mechanisms": laws,
            "num_tasks": whole("num_tasks", meta["num_tasks"]),
            "features": tuple(_each("features", meta["features"], str | int | float | bool)),
            "guarantee": guarantee(meta["guarantee"], lattice, sigma, (*laws, *besides)),
            "message": one_of("message", meta["message"], MESSAGES),
            "scaling": one_of("scaling", meta["scaling"], SCALINGS),
            "library_version": _text("library_version", meta["library_version"]),
            "besides": besides,
            "lattice": lattice,
        }
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"release: expected the fields that to_xarray writes: {error!r}") from error


def read(path: str | os.PathLike[str]) -> xr.Dataset:
    """The data in a file. Raises ValueError for one that is no NetCDF."""
    import xarray as xr  # with pandas, nearly a second to import

    check_there(path)
    with holding("release", path, foreign=(Exception,)), xr.open_dataset(path, engine="h5netcdf") as data:
        return data.load()


def signed(data: xr.Dataset, key: bytes) -> xr.Dataset:
    """The data with the attribute ``signature``. Raises ValueError for a key that is not at least 16 bytes."""
    return data.assign_attrs(signature=_signature(data, key))


def check_signature(data: xr.Dataset, key: bytes, path: str | os.PathLike[str]) -> None:
    """Raise ValueError unless the holder of the key signed these data."""
    expected, found = _signature(data, key), data.attrs.get("signature")
    if not isinstance(found, str):
        raise ValueError(f"key: expected a signed release, got none in {os.fspath(path)!r}")
    if not hmac.compare_digest(expected.encode(), found.encode()):
        raise ValueError(f"key: {os.fspath(path)!r} was signed with another key, or changed after it was signed")


def _signature(data: xr.Dataset, key: bytes) -> str:
    if not isinstance(key, bytes) or len(key) < _KEY_BYTES:
        got = f"{len(key)} bytes" if isinstance(key, bytes) else type(key).__name__
        raise ValueError(f"key: expected at least {_KEY_BYTES} bytes, got {got}")
    digest = hmac.new(key, digestmod=hashlib.sha256)
    sigma = np.ascontiguousarray(data["sigma"].values, dtype="<f8") if "sigma" in data else np.zeros(0)
    digest.update(json.dumps(["mpmtl_prob release", str(data.attrs.get("release")), sigma.shape]).encode())
    digest.update(sigma.tobytes())
    return digest.hexdigest()


def guarantee(meta: Mapping[str, Any], lattice: float | None, sigma: FloatArray, laws: Sequence[Law]) -> Guarantee:
    """What noise laws give, of the eps that a file states as proved.

    Args:
        meta: what the file states.
        lattice: h of messages, if any.
        sigma: their noisy second moments; arithmetic is exact only if they lie on the lattice.
        laws: of the noise.

    Raises:
        ValueError: a statement that is none; KeyError and TypeError likewise.
    """
    return _recomputed(_guarantee(meta, lattice, sigma), laws)


def _recomputed(stated: Guarantee, laws: Sequence[Law]) -> Guarantee:
    """What the laws give at the eps that is stated as proved; nothing where that is less than what is stated."""
    said = stated.proved
    if said is None:
        return stated
    reason = f"The file says {said}, which its noise laws do not give: "
    try:
        found = of_release(
            laws,
            epsilon=said.epsilon,
            adjacency=said.adjacency,
            claimed=stated.claimed,
            seeded=False,
            unit=said.unit,
            arithmetic=stated.arithmetic,
        )
    except Exception:  # laws beyond all bounds fail in more ways than the accountant names
        return Guarantee(stated.claimed, None, reason + "nothing could be computed from them.", stated.arithmetic)
    if found.proved is None or found.proved.delta <= said.delta * (1 + _SLACK):
        return found
    reason += f"at that eps their delta is {found.proved.delta:.3g}."
    return Guarantee(stated.claimed, None, reason, stated.arithmetic)


def _guarantee(meta: Mapping[str, Any], lattice: float | None, sigma: FloatArray) -> Guarantee:
    """What the file states; that arithmetic is exact only if Sigma lies on the lattice."""
    on_lattice = lattice is not None and bool(np.all(np.mod(sigma, lattice**2) == 0))
    stated = one_of("arithmetic", meta.get("arithmetic", DOUBLES), (EXACT, DISCRETE, DOUBLES))
    return Guarantee(
        _bound("claimed", meta["claimed"]),
        _bound("proved", meta["proved"]),
        _text("reason", meta["reason"]),
        stated if on_lattice else DOUBLES,
    )


def _bound(name: str, meta: Mapping[str, Any] | None) -> Bound | None:
    if meta is None:
        return None
    delta = meta["delta"]
    return Bound(
        positive(f"{name}: epsilon", meta["epsilon"]),
        1.0 if delta == 1 else in_range(f"{name}: delta", delta, 0, 1, left_closed=True),
        Adjacency.of(meta["adjacency"], f"{name}: adjacency"),
        Unit.of(meta.get("unit", "task"), f"{name}: unit"),
    )


def _laws(meta: Any) -> tuple[Law, ...]:
    return tuple(read_law(law) for law in _each("mechanisms", meta, dict))


def _each(name: str, values: Any, kind: Any) -> list[Any]:
    if not isinstance(values, list | tuple) or not all(isinstance(value, kind) for value in values):
        raise ValueError(f"{name}: expected a list, each of {kind}")
    return list(values)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name}: expected text, got {value!r}")
    return value
