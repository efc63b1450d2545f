"""A release of moments, and what was made of it, as files that anybody may have written: what is read is checked.

As in :mod:`mpmtl_prob.releases.files`, whose signatures and recomputed guarantees these are.
"""

from __future__ import annotations

import json
import os
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import positive, whole
from mpmtl_prob._util.files import read_tree, write_netcdf
from mpmtl_prob.privacy.mechanisms import Gaussian, read_mechanism
from mpmtl_prob.privacy.units import Unit
from mpmtl_prob.releases import files, signatures

if TYPE_CHECKING:
    import xarray as xr

_FOREIGN = (KeyError, TypeError, AttributeError, OverflowError)


def release_fields(data: xr.Dataset, *, weight: float, longest: float) -> dict[str, Any]:
    """The fields of the release that :meth:`MomentRelease.to_xarray` turned into data.

    Args:
        data: what a file holds.
        weight: b, the largest |rho| / u.
        longest: of the vectors v, which the noise has to cover.

    Raises:
        ValueError: other data.
    """
    try:
        meta = json.loads(data.attrs["release"])
        if meta["kind"] != "moments":
            raise ValueError(f"release: expected one of moments, got {meta['kind']!r}")
        sigma, centre = _numbers(data, "sigma"), _numbers(data, "centre")
        law, lattice = read_mechanism(meta["mechanism"]), positive("lattice", meta["lattice"])
        features = files.names(meta["features"])
        if centre.shape != (len(features),):
            raise ValueError(f"centre: expected {len(features)} weights, one per feature, got shape {centre.shape}")
        if not isinstance(law, Gaussian) or (law.num_features, law.clip) != (len(features) + 1, longest):
            expected = f"expected Gaussian noise on {len(features) + 1} numbers, for vectors up to {longest:g} long"
            raise ValueError(f"mechanism: {expected}, got {law}")
        bound, unit = (positive(name, meta[name]) for name in ("residual_bound", "residual_unit"))
        if unit != bound / weight:
            raise ValueError(
                f"residual_unit: expected the residual bound over {weight:g}, {bound / weight!r}, got {unit!r}"
            )
        num_records = whole("num_records", meta["num_records"], 0)
        return {
            "sigma": sigma,
            "mechanism": law,
            "num_records": num_records,
            "centre": centre,
            "residual_bound": bound,
            "residual_unit": unit,
            "row_bound": positive("row_bound", meta["row_bound"]),
            "features": features,
            "guarantee": files.guarantee(
                meta["guarantee"], (law,),
                unit=Unit.TARGET_RECORD, vectors=max(num_records, 1), sigma=sigma, lattice=lattice,
            ),
            "lattice": lattice,
        }  # fmt: skip
    except _FOREIGN as error:
        raise ValueError(f"release: expected the fields that to_xarray writes: {error!r}") from error


def write(data: xr.Dataset, path: str | os.PathLike[str], key: bytes | None, *, private: bool) -> None:
    """Write a NetCDF file, signed if there is a key, and for its owner alone if what is in it is private."""
    write_netcdf(data if key is None else signatures.sign(data, key), path, private=private)


def read(path: str | os.PathLike[str], key: bytes | None) -> xr.Dataset:
    """What :func:`write` wrote. Raises ValueError for another signature than the key's."""
    data = files.read(path)
    if key is not None:
        signatures.check(data, key, path)
    return data


def arrays(values: Mapping[str, FloatArray], names: Sequence[Hashable] = ()) -> xr.Dataset:
    """Arrays by name, and the names of domains."""
    import xarray as xr

    held = {name: ([f"{name}_{k}" for k in range(np.ndim(value))], value) for name, value in values.items()}
    return xr.Dataset(held, attrs={"names": json.dumps(list(names))})


def from_arrays(data: xr.Dataset, wanted: Sequence[str]) -> tuple[dict[str, FloatArray], tuple[Hashable, ...]]:
    """What :func:`arrays` turned into data. Raises ValueError for other data."""
    try:
        return {name: _numbers(data, name) for name in wanted}, _names(json.loads(data.attrs["names"]))
    except _FOREIGN as error:
        raise ValueError(f"model: expected the arrays {', '.join(wanted)}: {error!r}") from error


def tree(path: str | os.PathLike[str]) -> xr.DataTree:
    """The groups of a file. Raises ValueError for one that is no NetCDF."""
    from mpmtl_prob._util.files import holding

    with holding("model", path, foreign=(Exception,)):
        return read_tree(path)


@contextmanager
def named(what: str, path: str | os.PathLike[str]) -> Iterator[None]:
    """A ValueError says which file it is about."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"path: {os.fspath(path)!r} holds no {what} of mpmtl_prob: {error}") from error


def _numbers(data: xr.Dataset, name: str) -> FloatArray:
    found = np.asarray(data[name].values)
    if found.dtype.kind not in "fi" or not np.all(np.isfinite(found)):
        raise ValueError(f"{name}: expected finite numbers, got {found.dtype}")
    return found


def _names(values: Any) -> tuple[Hashable, ...]:
    if not isinstance(values, list) or not all(isinstance(each, str | int | float | bool) for each in values):
        raise ValueError("names: expected a list of words and numbers")
    return tuple(values)
