"""A release as a file that anybody may have written: what is read is checked, and its guarantee worked out anew.

Whoever can edit a file can make it say anything. What a reader can find out alone is whether the file's own numbers give what
it states, and this is done on every reading: who is protected follows from the kind of release, delta from the noise laws,
the lattice from the clip norm, the sizes and the laws. Whether Sigma is what those laws made of somebody's data no reader can
see; a signature says that it is what the holder of a key wrote: :mod:`mpmtl_prob.releases.signatures`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import in_range, one_of, positive, whole
from mpmtl_prob._util.files import holding, read_tree
from mpmtl_prob.privacy.guarantee import DISCRETE, DOUBLES, EXACT, Bound, Guarantee, of_release
from mpmtl_prob.privacy.lattice import step
from mpmtl_prob.privacy.mechanisms import GaussianShares, MatrixMechanism, Mechanism, read_mechanism
from mpmtl_prob.privacy.units import Adjacency, Unit
from mpmtl_prob.releases.effects import EffectsLayout
from mpmtl_prob.releases.messages import MESSAGES, SCALINGS
from mpmtl_prob.releases.spec import check_laws

if TYPE_CHECKING:
    import xarray as xr

#: A recomputed delta may exceed the stated one by this much of it: another processor rounds in another way.
_SLACK = 1e-6
#: Names that files keep from 0.3.0, so that either version reads what the other wrote.
SCALING_IN_FILES = {"unit_variance": "unit"}
_SCALING_OF_FILES = {name: today for today, name in SCALING_IN_FILES.items()}


def fields(data: xr.Dataset) -> dict[str, Any]:
    """The fields of the release that :meth:`Release.to_xarray` turned into data. Raises ValueError for other data."""
    try:
        meta, sigma = json.loads(data.attrs["release"]), data["sigma"].values
        if sigma.dtype.kind != "f":
            raise ValueError(f"sigma: expected floating-point numbers, got {sigma.dtype}")
        read, composed_with = _laws(meta["mechanisms"]), _laws(meta.get("besides", ()))
        laws = tuple(law for law in read if isinstance(law, MatrixMechanism))
        if not laws or laws != read:
            raise ValueError("mechanisms: expected the noise of every round")
        features = names(meta["features"])
        message = one_of("message", meta["message"], MESSAGES)
        check_laws(laws, len(features), message)  # now, as the guarantee is worked out from matrices of this size
        lattice = None if meta.get("lattice") is None else positive("lattice", meta["lattice"])
        num_tasks = whole("num_tasks", meta["num_tasks"])
        return {
            "sigma": sigma,
            "mechanisms": laws,
            "num_tasks": num_tasks,
            "features": features,
            "guarantee": guarantee(
                meta["guarantee"], laws, composed_with,
                unit=Unit.TASK, vectors=num_tasks, sigma=sigma, lattice=lattice,
            ),
            "message": message,
            "scaling": one_of("scaling", _SCALING_OF_FILES.get(meta["scaling"], meta["scaling"]), SCALINGS),
            "library_version": _text("library_version", meta["library_version"]),
            "composed_with": composed_with,
            "lattice": lattice,
            "effects": None if "effects" not in meta else EffectsLayout.from_dict(meta["effects"]),
            "study": None if "study" not in meta else _text("study", meta["study"]),
        }  # fmt: skip
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"release: expected the fields that to_xarray writes: {error!r}") from error


def read(path: str | os.PathLike[str]) -> xr.Dataset:
    """The data in a file. Raises ValueError for one that is no NetCDF, or holds more than one release."""
    with holding("release", path, foreign=(Exception,)):
        tree = read_tree(path)
    if tree.children:  # no signature is under them
        groups = ", ".join(map(repr, tree.children))
        raise ValueError(
            f"path: expected a release and nothing beside it in {os.fspath(path)!r}, got the groups {groups}"
        )
    return tree.to_dataset()


def guarantee(
    meta: Mapping[str, Any],
    laws: Sequence[MatrixMechanism],
    composed_with: Sequence[Mechanism] = (),
    *,
    unit: Unit,
    vectors: int,
    sigma: FloatArray,
    lattice: float | None,
) -> Guarantee:
    """What the numbers of a file give, at the eps that it states as proved.

    Args:
        meta: what the file states.
        laws: of the noise, one per round.
        composed_with: of what was bought for the release.
        unit: that such a release protects.
        vectors: how many are in a second moment, each no longer than the laws' clip norm.
        sigma: the noisy second moments.
        lattice: h of the vectors, if any.

    Raises:
        ValueError: a statement that is none; KeyError and TypeError likewise.
    """
    said = one_of("arithmetic", meta.get("arithmetic", DOUBLES), (EXACT, DISCRETE, DOUBLES))
    stated = Guarantee(
        _bound("claimed", meta["claimed"], unit),
        _bound("proved", meta["proved"], unit),
        _text("reason", meta["reason"]),
        shared_subjects=meta.get("shared_subjects", False) is True,
    )
    doubt = "" if said == DOUBLES else _doubt(laws, vectors, sigma, lattice)
    exact = DISCRETE if any(isinstance(law, GaussianShares) for law in laws) else EXACT
    arithmetic = DOUBLES if said == DOUBLES or doubt else exact
    found = _recomputed(replace(stated, arithmetic=arithmetic), (*laws, *composed_with), unit)
    return replace(found, reason=f"{found.reason} {doubt}".strip(), shared_subjects=stated.shared_subjects)


def _doubt(laws: Sequence[MatrixMechanism], vectors: int, sigma: FloatArray, lattice: float | None) -> str:
    """Why a file cannot say that its arithmetic was exact; empty if it can."""
    if lattice is None:
        return "The file says that arithmetic was exact, and names no lattice that it was exact on."
    try:
        with np.errstate(all="ignore"):
            expected = step(laws[0].clip, laws[0].num_features, vectors, laws)
    except (ValueError, OverflowError, ArithmeticError) as error:
        return f"The file says that arithmetic was exact, and no lattice follows from its numbers: {error}."
    if lattice != expected:
        return (
            f"The file says that arithmetic was exact on a lattice of {lattice:.3g}; from its clip norm, sizes and noise one "
            f"of {expected:.3g} follows."
        )
    if any(isinstance(law, GaussianShares) and law.step != lattice**2 for law in laws):
        return (
            "The file says that arithmetic was exact, and its noise is in shares on another lattice than its messages."
        )
    # a double of another size is on any lattice, and whatever was added to it is lost
    if not np.all((np.mod(sigma, lattice**2) == 0) & (np.abs(sigma) <= 2.0**53 * lattice**2)):
        return "The file says that arithmetic was exact, and Sigma is not on its lattice."
    return ""


def _recomputed(stated: Guarantee, laws: Sequence[Mechanism], unit: Unit) -> Guarantee:
    """What the laws give at the eps that is stated as proved; nothing where that is less than what is stated."""
    said = stated.proved
    if said is None:
        return stated
    if not unit.protects(Unit.of(said.unit)):
        reason = f"The file says {said}, which no release of its kind gives: what it protects is one {unit}."
        return replace(stated, proved=None, reason=reason)
    reason = f"The file says {said}, which its noise laws do not give: "
    try:
        found = of_release(
            laws,
            epsilon=said.epsilon,
            adjacency=said.adjacency,
            claimed=stated.claimed,
            seeded=False,
            unit=unit,
            arithmetic=stated.arithmetic,
        )
    except Exception:  # laws beyond all bounds fail in more ways than the accountant names
        return replace(stated, proved=None, reason=reason + "nothing could be computed from them.")
    if found.proved is None or found.proved.delta <= said.delta * (1 + _SLACK):
        return found
    return replace(stated, proved=None, reason=f"{reason}at that eps their delta is {found.proved.delta:.3g}.")


def _bound(name: str, meta: Mapping[str, Any] | None, unit: Unit) -> Bound | None:
    if meta is None:
        return None
    delta = meta["delta"]
    return Bound(
        positive(f"{name}: epsilon", meta["epsilon"]),
        1.0 if delta == 1 else in_range(f"{name}: delta", delta, 0, 1, left_closed=True),
        Adjacency.of(meta["adjacency"], f"{name}: adjacency"),
        Unit.of(meta.get("unit", unit), f"{name}: unit"),
    )


def names(values: Any) -> tuple[Hashable, ...]:
    """Names of features, as a file has them. Raises ValueError for others, or one that is there twice."""
    found = tuple(_each("features", values, str | int | float | bool))
    if len(set(found)) < len(found):
        raise ValueError("features: expected distinct names, got a name twice")
    return found


def _laws(meta: Any) -> tuple[Mechanism, ...]:
    return tuple(read_mechanism(law) for law in _each("mechanisms", meta, dict))


def _each(name: str, values: Any, kind: Any) -> list[Any]:
    if not isinstance(values, list | tuple) or not all(isinstance(value, kind) for value in values):
        raise ValueError(f"{name}: expected a list, each of {kind}")
    return list(values)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name}: expected text, got {value!r}")
    return value


@cache  # read from files, which would take a third of a release
def library_version() -> str:
    """Return the version of the code that makes a release."""
    try:
        return version("mpmtl-prob")
    except PackageNotFoundError:  # imported from a source tree that is not installed
        return "unknown"
