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

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.files import Slabs
from mpmtl_prob.data.prediction import power_above

if TYPE_CHECKING:
    import xarray as xr

_DRAWS = ("chain", "draw")
_AROUND, _UNIT, _TRIANGLE, _PLACE = "{}_around", "{}_unit", "{}_triangle", "stored_of"
_CHUNK = 2**18  # numbers


def packed(group: xr.Dataset) -> xr.Dataset:
    """Return a group whose draws are as above, to be written to a file; other variables as they are, compressed."""
    import xarray as xr  # with pandas, nearly a second to import

    out = group.drop_vars(list(group.data_vars))
    for part, draws in packed_parts(group):
        for each in draws:
            values = np.empty(each.shape, dtype=each.dtype)
            for at, slab in each.slabs:
                values[at] = slab
            out[each.name] = xr.Variable(each.dims, values, each.attributes, _compressed(each.chunks))
        out = out.assign(part.variables)
    return out


def packed_parts(group: xr.Dataset) -> Iterator[tuple[xr.Dataset, list[Slabs]]]:
    """Return :func:`packed` without the coordinates, a variable after another; its draws a few at a time."""
    import xarray as xr  # with pandas, nearly a second to import

    for name, variable in group.data_vars.items():
        values, rest = variable.values, variable.dims[2:]
        if variable.dims[:2] == _DRAWS and values.dtype == np.float64 and _finite(values):
            if _symmetric(values, rest):
                values, rest = values[..., *np.tril_indices(values.shape[-1])], (_TRIANGLE.format(name),)
            around, unit = _place(values)
            attributes = dict(variable.attrs) | {_PLACE: json.dumps(variable.dims)}
            yield (
                xr.Dataset({_AROUND.format(name): (rest, around), _UNIT.format(name): (rest, unit)}),
                [_in_single(str(name), (*map(str, _DRAWS), *map(str, rest)), values, around, unit, attributes)],
            )
        else:
            out = variable.variable.copy(deep=False)
            out.encoding = _compressed(_chunks(out.shape))
            yield xr.Dataset({name: out}), []


def unpacked(group: xr.Dataset) -> xr.Dataset:
    """Return the group that :func:`packed` was given, up to what is lost; one of an earlier version as it is.

    The one that it is given is written over: of a variable there are never more than one in both forms, and where it is still
    in a file a few of its draws.
    """
    for name in list(group.data_vars):
        if name not in group or _PLACE not in group[name].attrs:
            continue
        around, unit = (group[kind.format(name)].values for kind in (_AROUND, _UNIT))
        dims, attributes, kept = group[name].dims, dict(group[name].attrs), group[name].variable
        values = np.empty(kept.shape)
        for at in _few(kept.shape):
            np.multiply(kept[at].values, unit, out=values[at])
            values[at] += around
        for each in (name, _AROUND.format(name), _UNIT.format(name)):
            del group[each]
        if dims[2:] == (_TRIANGLE.format(name),):
            values = _squares(values)
        group[name] = (tuple(json.loads(attributes.pop(_PLACE))), values, attributes)
    return group


def _symmetric(values: FloatArray, dims: Sequence[Hashable]) -> bool:
    """Return whether draws (chain, draw, ...) are of symmetric matrices, over a dimension and its other, up to rounding."""
    if len(dims) != 2 or dims[1] != f"{dims[0]}_other":
        return False
    largest = np.abs(values).max(axis=(-2, -1), keepdims=True, initial=0.0)
    return bool((np.abs(values - np.swapaxes(values, -2, -1)) <= 1e-9 * largest).all())


def _place(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return what draws (chain, draw, ...) are around, and their units, (...) each."""
    flat = values.reshape(values.shape[0] * values.shape[1], -1)
    around, unit = np.zeros(flat.shape[1]), np.ones(flat.shape[1])
    step = max(1, _CHUNK // max(len(flat), 1))
    for at in range(0, flat.shape[1], step):  # a few entries at a time: memory
        now = slice(at, at + step)
        each = np.array(flat[:, now])
        if each.size and not (each > 0).all():
            around[now] = np.where((each > 0).all(axis=0), 0.0, np.median(each, axis=0))
        each -= around[now]
        unit[now] = power_above(np.abs(each).max(axis=0, initial=0.0))
    rest = values.shape[2:]
    return around.reshape(rest), unit.reshape(rest)


def _in_single(
    name: str,
    dims: tuple[str, ...],
    values: FloatArray,
    around: FloatArray,
    unit: FloatArray,
    attributes: dict[str, Any],
) -> Slabs:
    """Return draws (chain, draw, ...) in single precision, a few at a time."""
    slabs = ((at, ((values[at] - around) / unit).astype(np.float32)) for at in _few(values.shape))
    return Slabs(name, dims, values.shape, np.dtype(np.float32), attributes, _chunks(values.shape), slabs)


def _finite(values: FloatArray) -> bool:
    """Return whether all draws (chain, draw, ...) are finite, a few at a time."""
    return all(bool(np.isfinite(values[at]).all()) for at in _few(values.shape))


def _few(shape: tuple[int, ...]) -> Iterator[tuple[slice, slice]]:
    """Return where a few draws after another are, of an array (chain, draw, ...): those of the chunks of a file."""
    chains, draws = _chunks(shape)[:2] or (1, 1)
    for c in range(0, shape[0], chains):
        for at in range(0, shape[1], draws):
            yield slice(c, c + chains), slice(at, at + draws)


def _squares(triangles: FloatArray) -> FloatArray:
    """Symmetric matrices (..., d, d) of their lower triangles (..., d (d + 1) / 2)."""
    d = int(np.sqrt(2 * triangles.shape[-1]))
    row, column = np.tril_indices(d)
    out = np.empty((*triangles.shape[:-1], d, d))
    out[..., row, column] = out[..., column, row] = triangles
    return out


def _chunks(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return how large the chunks are in which an array is written: a megabyte or two at most. None of an empty one."""
    if not shape or 0 in shape:
        return ()
    chunks, left = [], _CHUNK
    for size in reversed(shape):
        chunks.append(max(1, min(size, left)))
        left //= chunks[-1]
    return tuple(reversed(chunks))


def _compressed(chunks: tuple[int, ...]) -> dict[str, Any]:
    """Return how xarray writes a variable in such chunks, each with its bytes sorted and compressed."""
    return {"zlib": True, "complevel": 1, "shuffle": True, "chunksizes": chunks} if chunks else {}
