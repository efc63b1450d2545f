"""Files of releases: what is read is checked, and the guarantee is computed anew, as anybody may have written the file.

Whoever can edit a file can make it state anything. A reader can check alone whether a file's own numbers support its
statements, and this is done on every reading: the protected unit follows from the kind of release, delta from the noise laws,
and the lattice from the clip norm, the sizes and the laws. No reader can check whether Sigma came from those laws and
somebody's data. A signature shows that the holder of a key wrote the file: :mod:`mpmtl_prob.releases.signatures`.
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

#: Relative amount by which a recomputed delta may exceed the stated one, as processors round differently.
_SLACK = 1e-6
#: Names of scalings in files, unchanged since 0.3.0, so that either version can read the other's files.
SCALING_IN_FILES = {"unit_variance": "unit"}
_SCALING_OF_FILES = {name: today for today, name in SCALING_IN_FILES.items()}


def fields(data: xr.Dataset) -> dict[str, Any]:
    """Read the fields of a release from what :meth:`Release.to_xarray` returns. Raises ValueError for other data."""
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
        check_laws(laws, len(features), message)  # first, as the guarantee is computed for matrices of this size
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
    """Read the data of a file. Raises ValueError if it is not NetCDF, or holds more than one release."""
    with holding("release", path, foreign=(Exception,)):
        tree = read_tree(path)
    if tree.children:  # signatures do not cover groups
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
    """Compute the guarantee that a file's numbers support, at the eps that it states as proved.

    Args:
        meta: the guarantee that the file states.
        laws: noise laws, one per round.
        composed_with: laws of purchases for the release, such as a clip norm.
        unit: the unit that this kind of release protects.
        vectors: number of vectors in a second moment, each no longer than the laws' clip norm.
        sigma: the noisy second moments.
        lattice: step h of the lattice of the vectors, if any.

    Raises:
        ValueError: an invalid statement; KeyError and TypeError likewise.
    """
    stated_arithmetic = one_of("arithmetic", meta.get("arithmetic", DOUBLES), (EXACT, DISCRETE, DOUBLES))
    stated = Guarantee(
        _bound("claimed", meta["claimed"], unit),
        _bound("proved", meta["proved"], unit),
        _text("reason", meta["reason"]),
        shared_subjects=meta.get("shared_subjects", False) is True,
    )
    doubt = "" if stated_arithmetic == DOUBLES else _doubt(laws, vectors, sigma, lattice)
    exact = DISCRETE if any(isinstance(law, GaussianShares) for law in laws) else EXACT
    arithmetic = DOUBLES if stated_arithmetic == DOUBLES or doubt else exact
    recomputed = _recomputed(replace(stated, arithmetic=arithmetic), (*laws, *composed_with), unit)
    return replace(recomputed, reason=f"{recomputed.reason} {doubt}".strip(), shared_subjects=stated.shared_subjects)


def _doubt(laws: Sequence[MatrixMechanism], vectors: int, sigma: FloatArray, lattice: float | None) -> str:
    """Return the reason why the file's arithmetic cannot have been exact; an empty text if it can."""
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
    # Larger doubles lie on any lattice: the last bits of such a sum are lost, and its arithmetic was not exact.
    if not np.all((np.mod(sigma, lattice**2) == 0) & (np.abs(sigma) <= 2.0**53 * lattice**2)):
        return "The file says that arithmetic was exact, and Sigma is not on its lattice."
    return ""


def _recomputed(stated: Guarantee, laws: Sequence[Mechanism], unit: Unit) -> Guarantee:
    """Compute the guarantee of the laws at the eps stated as proved; nothing is proved if it is weaker than stated."""
    claim = stated.proved
    if claim is None:
        return stated
    if not unit.protects(Unit.of(claim.unit)):
        reason = f"The file says {claim}, which no release of its kind gives: what it protects is one {unit}."
        return replace(stated, proved=None, reason=reason)
    reason = f"The file says {claim}, which its noise laws do not give: "
    try:
        recomputed = of_release(
            laws,
            epsilon=claim.epsilon,
            adjacency=claim.adjacency,
            claimed=stated.claimed,
            seeded=False,
            unit=unit,
            arithmetic=stated.arithmetic,
        )
    except Exception:  # extreme laws can fail in ways that the accountant does not foresee
        return replace(stated, proved=None, reason=reason + "nothing could be computed from them.")
    if recomputed.proved is None or recomputed.proved.delta <= claim.delta * (1 + _SLACK):
        return recomputed
    return replace(stated, proved=None, reason=f"{reason}at that eps their delta is {recomputed.proved.delta:.3g}.")


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
    """Return names of features as a file has them. Raises ValueError for other types, or a repeated name."""
    features = tuple(_each("features", values, str | int | float | bool))
    if len(set(features)) < len(features):
        raise ValueError("features: expected distinct names, got a name twice")
    return features


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


@cache  # cached: reading it from files would take a third of a release's time
def library_version() -> str:
    """Return the version of this library, which a release records."""
    try:
        return version("mpmtl-prob")
    except PackageNotFoundError:  # imported from a source tree that is not installed
        return "unknown"
