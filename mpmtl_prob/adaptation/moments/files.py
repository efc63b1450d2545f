"""Files of moment releases and of the results from them, which are checked when read, as anybody may have written them.

Signatures and recomputed guarantees are those of :mod:`mpmtl_prob.releases.files`.
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
    """Parse and check the fields of a release that :meth:`MomentRelease.to_xarray` turned into data.

    Args:
        data: the content of a file.
        weight: b, the largest |rho| / u.
        longest: the largest length of the vectors v, which the noise must cover.

    Raises:
        ValueError: the data are not those of a moment release.
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
    """Write a NetCDF file. It is signed if there is a key, and readable by its owner only if ``private``."""
    write_netcdf(data if key is None else signatures.sign(data, key), path, private=private)


def read(path: str | os.PathLike[str], key: bytes | None) -> xr.Dataset:
    """Read a file that :func:`write` wrote. Raises ValueError if the signature is not the key's."""
    data = files.read(path)
    if key is not None:
        signatures.check(data, key, path)
    return data


def arrays(values: Mapping[str, FloatArray], names: Sequence[Hashable] = ()) -> xr.Dataset:
    """Return arrays by name, and names of domains, as one Dataset."""
    import xarray as xr

    variables = {name: ([f"{name}_{k}" for k in range(np.ndim(value))], value) for name, value in values.items()}
    return xr.Dataset(variables, attrs={"names": json.dumps(list(names))})


def from_arrays(data: xr.Dataset, array_names: Sequence[str]) -> tuple[dict[str, FloatArray], tuple[Hashable, ...]]:
    """Return the arrays and names of a Dataset that :func:`arrays` made. Raises ValueError for other data."""
    try:
        return {name: _numbers(data, name) for name in array_names}, _names(json.loads(data.attrs["names"]))
    except _FOREIGN as error:
        raise ValueError(f"model: expected the arrays {', '.join(array_names)}: {error!r}") from error


def tree(path: str | os.PathLike[str]) -> xr.DataTree:
    """Read the groups of a file. Raises ValueError for a file that is not NetCDF."""
    from mpmtl_prob._util.files import holding

    with holding("model", path, foreign=(Exception,)):
        return read_tree(path)


@contextmanager
def named(what: str, path: str | os.PathLike[str]) -> Iterator[None]:
    """Prefix ValueErrors with the file that they are about."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"path: {os.fspath(path)!r} holds no {what} of mpmtl_prob: {error}") from error


def _numbers(data: xr.Dataset, name: str) -> FloatArray:
    numbers = np.asarray(data[name].values)
    if numbers.dtype.kind not in "fi" or not np.all(np.isfinite(numbers)):
        raise ValueError(f"{name}: expected finite numbers, got {numbers.dtype}")
    return numbers


def _names(values: Any) -> tuple[Hashable, ...]:
    if not isinstance(values, list) or not all(isinstance(name, str | int | float | bool) for name in values):
        raise ValueError("names: expected a list of words and numbers")
    return tuple(values)
