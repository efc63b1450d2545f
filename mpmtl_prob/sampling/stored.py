"""Draws in files: deviations in single precision, chunked and compressed.

    draw = deviation * unit + around,   the deviation in single precision, the unit a power of two, by entry

``around`` is the median of an entry's draws, or zero where all of them are positive. The rounding error is at most 2^-24 of a
draw's distance from the median, or of a positive draw itself. That is far below the Monte Carlo error, whatever the size and
the origin of the numbers. Of symmetric matrices only the lower triangle is stored. Checkpoints store doubles
(:mod:`mpmtl_prob.sampling.checkpoint`), because a run that goes on needs every bit.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.files import Slabs
from mpmtl_prob.data.prediction import power_above

if TYPE_CHECKING:
    import xarray as xr

_DRAWS = ("chain", "draw")
_AROUND = "{}_around"
_UNIT = "{}_unit"
_TRIANGLE = "{}_triangle"
#: The attribute of a stored variable that has its original dimensions.
_PLACE = "stored_of"
_CHUNK = 2**18  # numbers in a chunk, at most


def packed(group: xr.Dataset) -> xr.Dataset:
    """Return a group to be written to a file: draws as this module stores them, other variables compressed."""
    import xarray as xr  # imported here because it takes nearly a second, with pandas

    out = group.drop_vars(list(group.data_vars))
    for part, draws in packed_parts(group):
        for variable in draws:
            values = np.empty(variable.shape, dtype=variable.dtype)
            for at, slab in variable.slabs:
                values[at] = slab
            out[variable.name] = xr.Variable(variable.dims, values, variable.attributes, _compressed(variable.chunks))
        out = out.assign(part.variables)
    return out


def packed_parts(group: xr.Dataset) -> Iterator[tuple[xr.Dataset, list[Slabs]]]:
    """Yield :func:`packed` one variable after another, without coordinates.

    Of every variable of draws it yields a data set with medians and units, and the draws, a few at a time; any other variable
    is a data set without draws.
    """
    import xarray as xr  # imported here because it takes nearly a second, with pandas

    for name, variable in group.data_vars.items():
        values = variable.values
        entry_dims = variable.dims[2:]
        if variable.dims[:2] == _DRAWS and values.dtype == np.float64 and _finite(values):
            if _symmetric(values, entry_dims):
                values = values[..., *np.tril_indices(values.shape[-1])]
                entry_dims = (_TRIANGLE.format(name),)
            around, unit = _medians_and_units(values)
            attributes = dict(variable.attrs) | {_PLACE: json.dumps(variable.dims)}
            dims = (*map(str, _DRAWS), *map(str, entry_dims))
            yield (
                xr.Dataset({_AROUND.format(name): (entry_dims, around), _UNIT.format(name): (entry_dims, unit)}),
                [_in_single(str(name), dims, values, around, unit, attributes)],
            )
        else:
            out = variable.variable.copy(deep=False)
            out.encoding = _compressed(_chunks(out.shape))
            yield xr.Dataset({name: out}), []


def unpacked(group: xr.Dataset) -> xr.Dataset:
    """Return the group that :func:`packed` was given, up to rounding; a group of an earlier version as it is.

    The variables of the given group are replaced one after another, and those that are still in a file are read a few draws
    at a time, so that no more than one variable is in memory twice.
    """
    for name in list(group.data_vars):
        if name not in group or _PLACE not in group[name].attrs:
            continue
        around, unit = (group[kind.format(name)].values for kind in (_AROUND, _UNIT))
        dims = group[name].dims
        attributes = dict(group[name].attrs)
        stored = group[name].variable
        values = np.empty(stored.shape)
        for at in _blocks(stored.shape):
            np.multiply(stored[at].values, unit, out=values[at])
            values[at] += around
        for replaced in (name, _AROUND.format(name), _UNIT.format(name)):
            del group[replaced]
        if dims[2:] == (_TRIANGLE.format(name),):
            values = _squares(values)
        group[name] = (tuple(json.loads(attributes.pop(_PLACE))), values, attributes)
    return group


def _symmetric(values: FloatArray, dims: Sequence[Hashable]) -> bool:
    """Return whether draws (chain, draw, ...) are symmetric matrices up to rounding.

    The dimensions of their rows and columns are then called NAME and NAME_other.
    """
    if len(dims) != 2 or dims[1] != f"{dims[0]}_other":
        return False
    largest = np.abs(values).max(axis=(-2, -1), keepdims=True, initial=0.0)
    return bool((np.abs(values - np.swapaxes(values, -2, -1)) <= 1e-9 * largest).all())


def _medians_and_units(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the medians of draws (chain, draw, ...), zero of positive entries, and the units of deviations, (...) each."""
    flat = values.reshape(values.shape[0] * values.shape[1], -1)
    around = np.zeros(flat.shape[1])
    unit = np.ones(flat.shape[1])
    step = max(1, _CHUNK // max(len(flat), 1))
    # only a few entries at a time are copied, to save memory
    for at in range(0, flat.shape[1], step):
        now = slice(at, at + step)
        draws = np.array(flat[:, now])
        if draws.size and not (draws > 0).all():
            around[now] = np.where((draws > 0).all(axis=0), 0.0, np.median(draws, axis=0))
        draws -= around[now]
        unit[now] = power_above(np.abs(draws).max(axis=0, initial=0.0))
    entry_shape = values.shape[2:]
    return around.reshape(entry_shape), unit.reshape(entry_shape)


def _in_single(
    name: str,
    dims: tuple[str, ...],
    values: FloatArray,
    around: FloatArray,
    unit: FloatArray,
    attributes: dict[str, Any],
) -> Slabs:
    """Return the deviations of draws (chain, draw, ...) in single precision, a few draws at a time."""
    slabs = ((at, ((values[at] - around) / unit).astype(np.float32)) for at in _blocks(values.shape))
    return Slabs(name, dims, values.shape, np.dtype(np.float32), attributes, _chunks(values.shape), slabs)


def _finite(values: FloatArray) -> bool:
    """Return whether all draws (chain, draw, ...) are finite, from a few draws at a time."""
    return all(bool(np.isfinite(values[at]).all()) for at in _blocks(values.shape))


def _blocks(shape: tuple[int, ...]) -> Iterator[tuple[slice, slice]]:
    """Yield the places of a few draws after another in an array (chain, draw, ...), by the chunks of its file."""
    chains, draws = _chunks(shape)[:2] or (1, 1)
    for c in range(0, shape[0], chains):
        for at in range(0, shape[1], draws):
            yield slice(c, c + chains), slice(at, at + draws)


def _squares(triangles: FloatArray) -> FloatArray:
    """Return the symmetric matrices (..., d, d) that have these lower triangles (..., d (d + 1) / 2)."""
    d = int(np.sqrt(2 * triangles.shape[-1]))
    row, column = np.tril_indices(d)
    out = np.empty((*triangles.shape[:-1], d, d))
    out[..., row, column] = out[..., column, row] = triangles
    return out


def _chunks(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of the chunks in which an array is written, of at most two megabytes; () for an empty array."""
    if not shape or 0 in shape:
        return ()
    chunks, left = [], _CHUNK
    for size in reversed(shape):
        chunks.append(max(1, min(size, left)))
        left //= chunks[-1]
    return tuple(reversed(chunks))


def _compressed(chunks: tuple[int, ...]) -> dict[str, Any]:
    """Return xarray's encoding of a variable with these chunks, whose bytes are shuffled and compressed."""
    return {"zlib": True, "complevel": 1, "shuffle": True, "chunksizes": chunks} if chunks else {}
