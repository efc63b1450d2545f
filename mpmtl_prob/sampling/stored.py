"""Draws as they are kept in files: in single precision where they vary, chunked and compressed.

    draw = away * unit + around,   away in single precision, unit a power of two, both by entry

``around`` is the median of an entry's draws, or nothing where all of them are positive: what is lost is at most 2^-24 of how
far a draw is from the median, or of a positive one itself. That is far below what chance moves, whatever the size and the
origin of the numbers. Of symmetric matrices the lower triangle is kept. What resumes a run needs every bit:
:mod:`mpmtl_prob.sampling.checkpoint` keeps doubles.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob.data.prediction import power_above

if TYPE_CHECKING:
    import xarray as xr

_DRAWS = ("chain", "draw")
_AROUND, _UNIT, _TRIANGLE, _PLACE = "{}_around", "{}_unit", "{}_triangle", "stored_of"
_CHUNK = 2**18  # numbers


def packed(group: xr.Dataset) -> xr.Dataset:
    """Return a group whose draws are as above, to be written to a file; other variables as they are, compressed."""
    out = group.drop_vars(list(group.data_vars))
    for part in packed_parts(group):
        out = out.assign(part.variables)
    return out


def packed_parts(group: xr.Dataset) -> Iterator[xr.Dataset]:
    """Return :func:`packed` without the coordinates, a variable after another: of all draws it is half as much again."""
    import xarray as xr  # with pandas, nearly a second to import

    for name, variable in group.data_vars.items():
        out, values = {name: variable.variable.copy(deep=False)}, variable.values
        if variable.dims[:2] == _DRAWS and values.dtype == np.float64 and np.isfinite(values).all():
            rest = variable.dims[2:]
            if _symmetric(values, rest):
                values, rest = values[..., *np.tril_indices(values.shape[-1])], (_TRIANGLE.format(name),)
            away, around, unit = _in_single(values)
            attributes = dict(variable.attrs) | {_PLACE: json.dumps(variable.dims)}
            out[name] = xr.Variable((*_DRAWS, *rest), away, attributes)
            out[_AROUND.format(name)], out[_UNIT.format(name)] = (xr.Variable(rest, each) for each in (around, unit))
        out[name].encoding = _compressed(out[name].shape)
        yield xr.Dataset(out)


def unpacked(group: xr.Dataset) -> xr.Dataset:
    """Return the group that :func:`packed` was given, up to what is lost; one of an earlier version as it is.

    The one that it is given is written over: of a variable there are never more than one in both forms.
    """
    for name in list(group.data_vars):
        if name not in group or _PLACE not in group[name].attrs:
            continue
        around, unit = (group[kind.format(name)].values for kind in (_AROUND, _UNIT))
        values = group[name].values.astype(np.float64)
        dims, attributes = group[name].dims, dict(group[name].attrs)
        for each in (name, _AROUND.format(name), _UNIT.format(name)):
            del group[each]
        values *= unit
        values += around
        if dims[2:] == (_TRIANGLE.format(name),):
            values = _squares(values)
        group[name] = (tuple(json.loads(attributes.pop(_PLACE))), values, attributes)
    return group


def _symmetric(values: FloatArray, dims: Sequence[Hashable]) -> bool:
    """Whether draws (chain, draw, ...) are of symmetric matrices, over a dimension and its other, up to rounding."""
    if len(dims) != 2 or dims[1] != f"{dims[0]}_other":
        return False
    largest = np.abs(values).max(axis=(-2, -1), keepdims=True, initial=0.0)
    return bool((np.abs(values - np.swapaxes(values, -2, -1)) <= 1e-9 * largest).all())


def _in_single(values: FloatArray) -> tuple[NDArray[np.float32], FloatArray, FloatArray]:
    """Of draws (chain, draw, ...)."""
    flat = values.reshape(values.shape[0] * values.shape[1], -1)
    away = np.empty(flat.shape, dtype=np.float32)
    around, unit = np.zeros(flat.shape[1]), np.ones(flat.shape[1])
    step = max(1, _CHUNK // max(len(flat), 1))
    for at in range(0, flat.shape[1], step):  # a few entries at a time: memory
        now = slice(at, at + step)
        each = np.array(flat[:, now])
        if each.size and not (each > 0).all():
            around[now] = np.where((each > 0).all(axis=0), 0.0, np.median(each, axis=0))
        each -= around[now]
        unit[now] = power_above(np.abs(each).max(axis=0, initial=0.0))
        away[:, now] = each / unit[now]
    rest = values.shape[2:]
    return away.reshape(values.shape), around.reshape(rest), unit.reshape(rest)


def _squares(triangles: FloatArray) -> FloatArray:
    """Symmetric matrices (..., d, d) of their lower triangles (..., d (d + 1) / 2)."""
    d = int(np.sqrt(2 * triangles.shape[-1]))
    row, column = np.tril_indices(d)
    out = np.empty((*triangles.shape[:-1], d, d))
    out[..., row, column] = out[..., column, row] = triangles
    return out


def _compressed(shape: tuple[int, ...]) -> dict[str, Any]:
    """How a variable is written: in chunks of at most a megabyte or two, each with its bytes sorted and compressed."""
    if not shape or 0 in shape:
        return {}
    chunks, left = [], _CHUNK
    for size in reversed(shape):
        chunks.append(max(1, min(size, left)))
        left //= chunks[-1]
    return {"zlib": True, "complevel": 1, "shuffle": True, "chunksizes": tuple(reversed(chunks))}
