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

from mpmtl_prob._check import positive, whole
from mpmtl_prob._files import read_tree, write_netcdf
from mpmtl_prob.privacy.laws import Gaussian, read_law, write_law
from mpmtl_prob.releases import files
from mpmtl_prob.tasks import FloatArray

if TYPE_CHECKING:
    import xarray as xr

    from mpmtl_prob.adaptation.moments import MomentRelease

_FOREIGN = (KeyError, TypeError, AttributeError, OverflowError)


def of_release(release: MomentRelease) -> xr.Dataset:
    """As :meth:`MomentRelease.to_xarray`."""
    import xarray as xr  # with pandas, nearly a second to import

    meta = {
        "kind": "moments",
        "mechanism": write_law(release.mechanism),
        "num_records": release.num_records,
        "residual_bound": release.residual_bound,
        "residual_unit": release.residual_unit,
        "row_bound": release.row_bound,
        "features": list(release.features),
        "guarantee": release.guarantee.to_dict(),
        "lattice": release.lattice,
    }
    return xr.Dataset(
        {"sigma": (("entry", "entry_other"), release.sigma), "centre": ("feature", release.centre)},
        attrs={"release": json.dumps(meta)},
    )


def release_fields(data: xr.Dataset) -> dict[str, Any]:
    """The fields of the release that :func:`of_release` turned into data. Raises ValueError for other data."""
    try:
        meta = json.loads(data.attrs["release"])
        if meta["kind"] != "moments":
            raise ValueError(f"release: expected one of moments, got {meta['kind']!r}")
        sigma, centre = _numbers(data, "sigma"), _numbers(data, "centre")
        law, lattice = read_law(meta["mechanism"]), positive("lattice", meta["lattice"])
        if not isinstance(law, Gaussian):
            raise ValueError(f"mechanism: expected a Gaussian, got {type(law).__name__}")
        features = _names(meta["features"])
        if len(features) != len(centre):
            raise ValueError(f"features: expected {len(centre)} names, got {len(features)}")
        return {
            "sigma": sigma,
            "mechanism": law,
            "num_records": whole("num_records", meta["num_records"], 0),
            "centre": centre,
            "residual_bound": positive("residual_bound", meta["residual_bound"]),
            "residual_unit": positive("residual_unit", meta["residual_unit"]),
            "row_bound": positive("row_bound", meta["row_bound"]),
            "features": features,
            "guarantee": files.guarantee(meta["guarantee"], lattice, sigma, (law,)),
            "lattice": lattice,
        }
    except _FOREIGN as error:
        raise ValueError(f"release: expected the fields that to_xarray writes: {error!r}") from error


def write(data: xr.Dataset, path: str | os.PathLike[str], key: bytes | None) -> None:
    """A NetCDF file, signed if there is a key."""
    write_netcdf(data if key is None else files.signed(data, key), path)


def read(path: str | os.PathLike[str], key: bytes | None) -> xr.Dataset:
    """What :func:`write` wrote. Raises ValueError for another signature than the key's."""
    data = files.read(path)
    if key is not None:
        files.check_signature(data, key, path)
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
    from mpmtl_prob._files import holding

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
