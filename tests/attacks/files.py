"""Files are edited, so that what is read from them says more than what was written.

The attacker has the file and not the key, and changes whatever it likes. What noise laws a release was drawn from no reader
can find out without a key, so that the sizes of noise are left as they are here, but in signed files.
"""

from __future__ import annotations

import copy
import json
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import h5netcdf
import numpy as np
import xarray as xr

import mpmtl_prob as mp
from attacks import Case
from mpmtl_prob.adaptation import MomentRelease
from mpmtl_prob.adaptation.moments.release import release_moments
from mpmtl_prob.inference import OwnerPosteriors, Posterior
from mpmtl_prob.privacy import NOTHING_SHARED, Gaussian, Wishart, compute_delta
from mpmtl_prob.privacy.guarantee import DOUBLES
from mpmtl_prob.privacy.mechanisms import GaussianShares
from mpmtl_prob.privacy.units import Unit
from mpmtl_prob.releases import Release, release, terms
from mpmtl_prob.releases.publish import from_noisy_sum, publish_rounds
from mpmtl_prob.releases.spec import Terms
from mpmtl_prob.sampling import checkpoint
from mpmtl_prob.sampling.chains import ChainStates

FIELDS = "a field of a release's file, by itself or with others"
MOMENT_FIELDS = "a field of a moment release's file, by itself or with others"
DOUBLE = "Sigma drawn in doubles, in a file that names a lattice"
CONTENT = "variables, coordinates and attributes of a release's file"
SIGNED = "anything in a signed release's file"
SIGNED_MOMENTS = "anything in a signed moment release's file"
SWAPPED = "signatures of other files, formats and kinds of release"
BYTES = "bytes of a signed file, at random"
POSTERIOR = "the guarantee in the file of a curator's posterior"
TERMS = "rounds with clip norms of their own, and lattices finer than sums in doubles"
MODES = "modes of files that hold rows, models or draws, while they are written and after"
MARKS = "a checkpoint's mark, compared with those of guessed rows"
WAYS = (
    FIELDS, MOMENT_FIELDS, DOUBLE, CONTENT, SIGNED, SIGNED_MOMENTS, SWAPPED, BYTES, POSTERIOR, TERMS, MODES, MARKS,
)  # fmt: skip

KEY = b"a key of more than sixteen bytes"
#: what stands in place of a field, whatever the field
ANYTHING: list[Any] = [
    None, True, -1, 0, 1, 1e-300, 1e300, float("nan"), float("inf"), 10**30, 10**400, "", "wrong", [], [None], {}, [[1]],
    {"kind": "Wishart"}, {"kind": "Spell"},
]  # fmt: skip
#: what stands in place of certain fields, by the last part of their names
TEMPTING: dict[str, list[Any]] = {
    "unit": ["person", "target record", "row", "task", "Task", "everybody"],
    "adjacency": ["zero_out", "replace"],
    "epsilon": [0.1, 0.01, 1e-9],
    "delta": [0.0, 1e-12, 1e-6],
    "clip": [0.1, 0.5, 0.999, 1.0000001, 2.0, 10.0, 0.125, 1.2499999],
    "num_features": [1, 2, 3, 4, 100],
    "lattice": [2.0**-k for k in (3, 11, 12, 14, 20, 26, 52, 100, 500)] + [1e-5, None],
    "num_tasks": [1, 2, 10**6, 10**15, 10**18],
    "num_records": [0, 1, 10**6, 10**15, 10**18],
    "message": ["clip", "direction"],
    "arithmetic": ["exact on a lattice (total variation 0)", "exact on a lattice, with discrete noise", DOUBLES],
    "residual_unit": [1e-6, 0.5, 1e6],
    "residual_bound": [1e-6, 1e6],
    "features": [["a", "a", "a"], ["a"], [1, True, 1.0], list("abcd")],
    "proved": [{"epsilon": 0.1, "delta": 0.0, "adjacency": "replace"}],
}
#: what no file can vouch for alone: the law and its size, what was bought, and what no guarantee rests on
BEYOND = {"scale", "df", "sd", "share", "owners", "step", "colluders", "kind", "besides"}


class Honest(NamedTuple):
    """A release as it was made.

    Attributes:
        made: the release.
        laws: of all that is in its guarantee.
        exact: whether arithmetic was.
    """

    made: Any
    laws: tuple[Any, ...]
    exact: bool = True


def cases(rng: np.random.Generator, effort: float) -> Iterator[Case]:
    """Try every way; see :mod:`attacks`."""
    some = lambda full: max(1, round(full * effort))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield from _fields(rng, FIELDS, Release, _releases(rng, some(30)), some(3000))
        yield from _fields(rng, MOMENT_FIELDS, MomentRelease, _moments(rng, some(15)), some(3000))
        for honest in _releases(rng, some(60)):
            yield from _doubles(rng, honest)
        for honest in _releases(rng, some(30)):
            yield from _content(rng, honest)
        with tempfile.TemporaryDirectory() as folder:
            for honest in _releases(rng, some(12)):
                yield from _signed(rng, SIGNED, honest.made, Path(folder) / "release.nc", some(40))
            for honest in _moments(rng, some(12)):
                yield from _signed(rng, SIGNED_MOMENTS, honest.made, Path(folder) / "moments.nc", some(40))
            for _ in range(some(12)):
                yield from _swapped(rng, Path(folder))
            yield from _bytes(rng, Path(folder), some(300))
            yield from _posteriors(rng, Path(folder), some(10))
            for _ in range(some(40)):
                yield from _terms(rng)
            for umask in (0o000, 0o002, 0o022, 0o077, 0o177)[: some(5)]:
                yield from _modes(Path(folder), umask)
            for _ in range(some(20)):
                yield _marks(rng, Path(folder))


# Honest releases


def _releases(rng: np.random.Generator, count: int) -> Iterator[Honest]:
    """Releases of every kind; the first, of directions with eps = 8, is the one whose clip norm is worth editing."""
    yield _honest(release(rng.standard_normal((3, 8)), 8.0, 1e-3))
    for _ in range(count - 1):
        d, m = int(rng.integers(2, 5)), int(rng.integers(2, 12))
        W = rng.standard_normal((d, m))
        if rng.random() < 0.2:
            settled = terms(1.0, m, d, mechanism=Gaussian(d, 3.0))
            law = GaussianShares(d, float(rng.uniform(1, 4)), int(rng.integers(2, 9)), settled.lattice**2)
            sums = np.tril(rng.integers(1, 2**20, (d, d))) * settled.lattice**2
            made = from_noisy_sum(sums + np.tril(sums, -1).T, replace(settled, mechanisms=(law,)))
        else:
            options: dict[str, Any] = (
                {} if rng.random() < 0.7 else {"message": "clip", "clip": float(rng.uniform(0.2, 9))}
            )
            options |= {"adjacency": str(rng.choice(["replace", "zero_out"])), "rounds": int(rng.integers(1, 3))}
            options |= {"mechanism": str(rng.choice(["wishart", "gaussian", "gaussian", "paper"]))}
            if options["rounds"] > 1:
                options["respond"] = lambda so_far, W=W: W
            made = release(W, float(rng.choice([0.3, 1.0, 8.0])), 1e-3, **options)
        yield _honest(made)


def _honest(made: Release) -> Honest:
    return Honest(made, (*made.mechanisms, *made.composed_with))


def _moments(rng: np.random.Generator, count: int) -> Iterator[Honest]:
    for _ in range(count):
        d, n = int(rng.integers(1, 5)), int(rng.integers(3, 40))
        made = release_moments(
            (rng.uniform(-0.5, 0.5, (n, d)), rng.standard_normal(n)), centre=rng.standard_normal(d),
            residual_bound=float(rng.uniform(0.1, 3)), epsilon=float(rng.choice([0.3, 1.0, 8.0])), delta=1e-3,
        )  # fmt: skip
        yield Honest(made, (made.mechanism,))


# What is said


@cache
def _true(epsilon: float, laws: tuple[Any, ...], adjacency: str) -> float:
    return compute_delta(epsilon, laws, adjacency)


def _more(honest: Honest, read: Any) -> str:
    """Name the claims that a file makes once it is read and did not make when it was written; empty if none."""
    proved, unit = read.guarantee.proved, Unit.of(honest.made.guarantee.unit)
    if not honest.exact and read.guarantee.arithmetic != DOUBLES:
        return f"arithmetic {read.guarantee.arithmetic!r} of sums in doubles"
    if proved is None:
        return ""
    if not unit.protects(Unit.of(proved.unit)):
        return f"{proved} of what protects a {unit}"
    if read.guarantee.adversary != honest.made.guarantee.adversary:
        return f"against {read.guarantee.adversary}"
    known = read.guarantee.mechanisms
    for epsilon, said in (
        (proved.epsilon, proved.delta),
        (2.0, compute_delta(2.0, known, proved.adjacency) if known else 1.0),
    ):
        if said < _true(epsilon, honest.laws, proved.adjacency) * (1 - 1e-6):
            return f"delta = {said:.3g} at eps = {epsilon:.3g}, true is {_true(epsilon, honest.laws, proved.adjacency):.3g}"
    return ""


def _tried(way: str, honest: Honest, what: str, load: Callable[[], Any]) -> Case:
    """Check that a file claims no more when it is read; a ValueError counts as a refusal."""
    try:
        more = _more(honest, load())
    except ValueError:
        more = ""
    except Exception as error:  # a traceback for whoever reads the file
        more = f"{type(error).__name__}: {error}"
    return Case(way, not more, f"{what}: {more}"[:300])


# Fields


def _paths(meta: Any, beginning: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = meta.items() if isinstance(meta, dict) else enumerate(meta) if isinstance(meta, list) else ()
    for name, value in items:
        if name not in BEYOND:
            yield (*beginning, name)
            yield from _paths(value, (*beginning, name))


def _put(meta: Any, path: tuple[Any, ...], value: Any) -> None:
    for name in path[:-1]:
        meta = meta[name]
    meta[path[-1]] = value


def _fields(rng: np.random.Generator, way: str, kind: Any, originals: Iterator[Honest], several: int) -> Iterator[Case]:
    everything = list(originals)
    for honest in everything:
        data = honest.made.to_xarray()
        meta = json.loads(data.attrs["release"])
        attempts = list(_single(meta, honest))
        tempting = [(path, value) for path, value in attempts if value in TEMPTING.get(path[-1], [])]
        first = honest is everything[0]  # of the others a few of each
        number = min(len(attempts), several if first else 60)
        once = [attempts[i] for i in rng.choice(len(attempts), number, replace=False)]
        for path, value in [*(tempting if first else ()), *once]:
            yield _edited(way, kind, honest, data, meta, [(path, value)])
        for _ in range(max(1, several // len(everything))):
            chosen = [attempts[i] for i in rng.choice(len(attempts), int(rng.integers(2, 5)))]
            if len({"clip", "message"} & {path[-1] for path, _ in chosen}) < 2:  # both: another law, another message
                yield _edited(way, kind, honest, data, meta, chosen)
        yield from _tempted(way, kind, honest, data, meta)


def _single(meta: Any, honest: Honest) -> Iterator[tuple[tuple[Any, ...], Any]]:
    free = getattr(honest.made, "message", "") == "clip"  # K is then a number of the file's, as the size of noise is
    for path in _paths(meta):
        last = path[-1]
        if free and last == "clip":
            continue
        yield path, KeyError
        for value in ANYTHING + TEMPTING.get(last, []):
            yield path, value


def _tempted(way: str, kind: Any, honest: Honest, data: xr.Dataset, meta: Any) -> Iterator[Case]:
    """A better promise, and the one other edit that might make it look true."""
    laws = ("mechanisms", 0) if "mechanisms" in meta else ("mechanism",)
    direction = getattr(honest.made, "message", "direction") == "direction"
    for eps in (0.01, 0.1, 0.5):
        promise = [(("guarantee", "proved"), {"epsilon": eps, "delta": 1e-3, "adjacency": "replace", "unit": u}) for u in
                   ("task", "person", "target record")]  # fmt: skip
        for better in promise:
            for clip in (0.01, 0.1, 0.5) if direction else ():
                yield _edited(way, kind, honest, data, meta, [better, ((*laws, "clip"), clip)])
            yield _edited(way, kind, honest, data, meta, [better, ((*laws, "num_features"), 1)])
            yield _edited(
                way, kind, honest, data, meta, [better, (("message",), "direction" if not direction else "clip")]
            )


def _edited(way: str, kind: Any, honest: Honest, data: xr.Dataset, meta: Any, edits: list[Any]) -> Case:
    changed = copy.deepcopy(meta)
    for path, value in edits:
        try:
            if value is KeyError:
                inner = changed
                for name in path[:-1]:
                    inner = inner[name]
                del inner[path[-1]]
            else:
                _put(changed, path, copy.deepcopy(value))
        except (KeyError, TypeError, IndexError, AttributeError):  # an edit before has taken the place away
            continue
    what = ", ".join(f"{'.'.join(map(str, path))} = {str(value)[:60]}" for path, value in edits)
    text = json.dumps(changed)
    return _tried(way, honest, what, lambda: kind.from_xarray(data.assign_attrs(release=text)))


# Arithmetic and content


def _doubles(rng: np.random.Generator, honest: Honest) -> Iterator[Case]:
    """The same release, had its noise been drawn and added in doubles."""
    made, noise = honest.made, rng.standard_normal(honest.made.sigma.shape)
    drawn = replace(
        made, sigma=made.sigma * (1 + 1e-9 * (noise + np.swapaxes(noise, 1, 2))) + 1e-9 * np.eye(made.num_features)
    )
    in_doubles, data = honest._replace(made=drawn, exact=False), drawn.to_xarray()
    meta = json.loads(data.attrs["release"])
    for k in (*range(0, 60, 4), 100, 300, 500, 520, 1000):
        edits = [(("lattice",), made.lattice * 2.0**-k)]
        yield _edited(DOUBLE, Release, in_doubles, data, meta, edits)
        yield _edited(DOUBLE, Release, in_doubles, data, meta, [*edits, (("num_tasks",), int(rng.integers(1, 100)))])
    for h in (1e-200, 3e-10, None, float("nan")):
        yield _edited(DOUBLE, Release, in_doubles, data, meta, [(("lattice",), h)])


def _content(rng: np.random.Generator, honest: Honest) -> Iterator[Case]:
    """Sigma of other types and shapes, and other things beside it, in a file that is not signed."""
    data, d = honest.made.to_xarray(), honest.made.num_features
    sigma = data["sigma"]
    changes: dict[str, Callable[[], xr.Dataset]] = {
        f"Sigma as {dtype}": lambda dtype=dtype: data.assign(sigma=sigma.astype(dtype))
        for dtype in ("float32", "float16", "longdouble", "int64", "complex128", "bool", "U16", "O")
    } | {f"Sigma times {factor}": lambda factor=factor: data.assign(sigma=sigma * factor)
         for factor in (0, -1, np.nan, np.inf, 1e-320, 1e308, 1 + 1e-9, 3.0)}  # fmt: skip
    changes |= {
        "no Sigma": lambda: data.drop_vars("sigma"),
        "no attributes": lambda: data.drop_attrs(),
        "a vector": lambda: data.drop_vars("sigma").assign(sigma=("row", np.ones(d))),
        "a round more": lambda: xr.concat([data, data], "round", data_vars="minimal").assign_attrs(data.attrs),
        "one feature": lambda: data.isel(feature=[0], feature_other=[0]),
        "other names": lambda: data.assign_coords(feature=[f"{i}!" for i in range(d)]),
        "names in lists": lambda: data.assign_attrs(release=[data.attrs["release"]] * 2),
        "numbers for metadata": lambda: data.assign_attrs(release=np.ones(3)),
        "bytes for metadata": lambda: data.assign_attrs(release=data.attrs["release"].encode()),
        "something beside it": lambda: data.assign(more=("feature", rng.standard_normal(d))),
        "a signature": lambda: data.assign_attrs(signature="2:" + "0" * 64),
    }
    for what, change in changes.items():
        off = honest._replace(exact="Sigma" not in what or "float32" in what)
        if what.startswith("Sigma times"):  # zero, and three times what was on the lattice, are on it
            off = honest._replace(exact=what.endswith((" 0", " 3.0", " -1")))
        if what in ("Sigma as longdouble", "Sigma as float16"):
            off = honest
        yield _tried(CONTENT, off, what, lambda change=change: Release.from_xarray(change()))


# Signatures


def _read(path: Path) -> xr.Dataset:
    with xr.open_dataset(path, engine="h5netcdf") as data:
        return data.load()


def _signed(rng: np.random.Generator, way: str, made: Any, path: Path, random: int) -> Iterator[Case]:
    """Every kind of edit of a signed file, through xarray and below it; each must be noticed."""
    made.save(path, key=KEY)
    data, kind = _read(path), type(made)
    for what, changed in _edits(rng, data, random):
        path.unlink()
        changed.to_netcdf(path, engine="h5netcdf")
        yield _noticed(way, kind, path, what)
    for what, change in _below(data).items():
        made.save(path, key=KEY)
        with h5netcdf.File(path, "a") as file:
            change(file)
        yield _noticed(way, kind, path, what)


def _noticed(way: str, kind: Any, path: Path, what: str) -> Case:
    try:
        kind.load(path, key=KEY)
    except ValueError:
        return Case(way, True)
    except Exception as error:
        return Case(way, False, f"{what}: {type(error).__name__}: {error}"[:300])
    return Case(way, False, f"{what}: read as signed")


def _edits(rng: np.random.Generator, data: xr.Dataset, random: int) -> Iterator[tuple[str, xr.Dataset]]:
    meta = json.loads(data.attrs["release"])
    for path in _paths(meta):  # what stays as it is says the same
        changed = copy.deepcopy(meta)
        _put(changed, path, "edited")
        yield f"{path} = 'edited'", data.assign_attrs(release=json.dumps(changed))
    yield "another order of fields", data.assign_attrs(release=json.dumps(dict(reversed(meta.items()))))
    for name in ("sigma", "centre", *data.coords):
        if name not in data.variables:
            continue
        values, dims = data[name].values, data[name].dims
        yield f"no {name}", data.drop_vars(name)
        yield f"{name} with an attribute", data.assign({name: data[name].assign_attrs(units="m")})
        if values.dtype.kind in "fi":
            yield f"{name} + 1", data.assign({name: (dims, values + 1)})
            yield (
                f"{name} as other numbers",
                data.assign({name: (dims, values.astype("f8" if values.dtype.kind == "i" else "f4"))}),
            )
            for _ in range(random // 4):  # one bit
                raw = bytearray(np.ascontiguousarray(values).tobytes())
                raw[int(rng.integers(len(raw)))] ^= 1 << int(rng.integers(8))
                flipped = np.frombuffer(bytes(raw), dtype=values.dtype).reshape(values.shape)
                yield f"one bit of {name}", data.assign({name: (dims, flipped)})
        else:
            yield f"other {name}", data.assign({name: (dims, [f"{value}'" for value in values])})
        if name not in data.dims:
            yield f"{name} under another name", data.rename({name: "renamed"})
    for dim in data.dims:
        yield f"{dim} under another name", data.rename({dim: "renamed"})
    yield "a variable more", data.assign(more=1.0)
    yield "a coordinate more", data.assign_coords(more=1.0)
    yield "an attribute more", data.assign_attrs(more="me")


def _below(data: xr.Dataset) -> dict[str, Callable[[Any], Any]]:
    def scaled(file: Any) -> None:
        file["sigma"].attrs["scale_factor"] = 2.0

    def filled(file: Any) -> None:
        file["sigma"].attrs["missing_value"] = float(data["sigma"].values.flat[0])

    def grouped(file: Any) -> None:
        file.create_group("appendix").attrs["release"] = "more"

    def timed(file: Any) -> None:
        file["sigma"].attrs["units"] = "days since 2000-01-01"

    return {"a factor": scaled, "a missing value": filled, "a group": grouped, "a date": timed}


def _swapped(rng: np.random.Generator, folder: Path) -> Iterator[Case]:
    """A signature of one file under another."""
    (one,), (moments,) = (list(make(rng, 1)) for make in (_releases, _moments))
    other = release(rng.standard_normal((3, 8)), 1.0, 1e-3)
    paths = {name: folder / f"{name}.nc" for name in ("one", "other", "moments")}
    for name, made in zip(paths, (one.made, other, moments.made), strict=True):
        made.save(paths[name], key=KEY)
    read = {name: _read(path) for name, path in paths.items()}
    kinds = {"one": Release, "other": Release, "moments": MomentRelease}
    for name, data in read.items():
        signatures = {other: read[other].attrs["signature"] for other in read if other != name}
        mine = data.attrs["signature"]
        digits = mine.removeprefix("2:")
        changed = data.assign_attrs(release=data.attrs["release"].replace('"epsilon": ', '"epsilon": 0.0000'))
        lies = {
            "its own": (changed, mine),
            "as the first format": (changed, digits),
            "empty": (changed, ""),
            "as the second format": (changed, "2:" + digits),
            "another format": (changed, "3:" + digits),
            "a text with more": (changed, mine + " "),
            "another key's": (changed, _by(kinds[name], folder, name)),
        }
        lies |= {f"that of {other}": (data, signature) for other, signature in signatures.items()}
        for what, (lie, signature) in lies.items():
            path = folder / "lie.nc"
            lie.assign_attrs(signature=signature).to_netcdf(path, engine="h5netcdf")
            yield _noticed(SWAPPED, kinds[name], path, f"{name} with the signature {what}")
        wrong = MomentRelease if kinds[name] is Release else Release
        yield _noticed(SWAPPED, wrong, paths[name], f"{name} as another kind")


def _by(kind: Any, folder: Path, name: str) -> str:
    path = folder / "again.nc"
    kind.load(folder / f"{name}.nc").save(path, key=KEY + b"!")
    return str(_read(path).attrs["signature"])


def _bytes(rng: np.random.Generator, folder: Path, count: int) -> Iterator[Case]:
    """A few bytes of a signed file: refused, or what is read is what was signed."""
    made, path = release(rng.standard_normal((3, 8)), 1.0, 1e-3), folder / "bytes.nc"
    made.save(path, key=KEY)
    content = path.read_bytes()
    for _ in range(count):
        broken = bytearray(content)
        for place in rng.integers(len(broken), size=int(rng.integers(1, 12))):
            broken[place] = int(rng.integers(256))
        path.write_bytes(broken)
        try:
            read = Release.load(path, key=KEY)
            same = read.to_xarray().identical(made.to_xarray())
            yield Case(BYTES, same, "bytes at random: read as signed, and other than it was")
        except ValueError:
            yield Case(BYTES, True)
        except Exception as error:
            yield Case(BYTES, False, f"{type(error).__name__}: {error}"[:300])


# Other files


def _curators(rng: np.random.Generator, guarantee: Any) -> Posterior:
    d, m = int(rng.integers(1, 4)), int(rng.integers(2, 5))
    tasks = mp.TaskData.from_lists([rng.standard_normal((4, d)) for _ in range(m)], [rng.standard_normal(4)] * m)
    draws = {"W": rng.standard_normal((2, 5, d, m)), "sigma": np.ones((2, 5))}
    return Posterior("made up", tasks, draws, {"lp": np.zeros((2, 5))}, **guarantee)


def _posteriors(rng: np.random.Generator, folder: Path, count: int) -> Iterator[Case]:
    """The posterior conditions on everybody's rows; whatever is proved of it must follow from a release in the file."""
    path = folder / "curator.nc"
    proved = release(rng.standard_normal((3, 8)), 1.0, 1e-3).guarantee
    person = replace(proved, proved=replace(proved.proved, unit="person"))
    for stated in [NOTHING_SHARED, proved, person] * count:
        _curators(rng, {"guarantee": stated}).save(path)
        read = Posterior.load(path).guarantee
        yield Case(POSTERIOR, read.proved is None, f"a file without a release says {read.proved}")


def _terms(rng: np.random.Generator) -> Iterator[Case]:
    """Terms that somebody made by hand: what comes out of them must say no more than is true."""
    d, K = int(rng.integers(1, 4)), float(rng.uniform(1, 20))
    kinds: list[Any] = [
        lambda clip: Gaussian(d, 30.0 * K**2, clip),
        lambda clip: Wishart(d, d + 30.0, 3.0 * K**2, clip),
    ]
    make = kinds[int(rng.integers(2))]
    small = K * float(rng.uniform(0.01, 0.9))
    h = 2.0**-9
    named: dict[str, Any] = {
        "epsilon": 1.0,
        "adjacency": "replace",
        "num_tasks": 3,
        "features": tuple(range(d)),
        "lattice": h,
    }

    def run(noise: Any) -> Any:
        return np.zeros((len(noise), d, d)) + noise, None

    def different() -> Any:
        return publish_rounds(run, Terms((make(K), make(small)), **named))[0]

    bounded = Honest(publish_rounds(run, Terms((make(K), make(K)), **named))[0], (make(K), make(K)))
    yield _tried(TERMS, bounded, f"clip norms {K:.3g} and {small:.3g}", different)
    fine = float(2.0 ** -int(rng.integers(50, 200)))

    def added(noise: Any) -> Any:
        return rng.standard_normal() * np.eye(d) * K**2 / 30 + noise, None

    yield _tried(TERMS, bounded._replace(exact=False), f"a lattice of {fine:.3g}",
                 lambda: publish_rounds(added, Terms((make(K), make(K)), **(named | {"lattice": fine})))[0])  # fmt: skip


def _private_files(folder: Path) -> Iterator[tuple[str, Callable[[Path], Any]]]:
    rng = np.random.default_rng(0)
    posterior = _curators(rng, {})
    yield "a curator's posterior", posterior.save
    owners = OwnerPosteriors.load(Path(__file__).parents[1] / "files_of_0_3_0" / "owners_plug_in.nc")
    yield "owners' posteriors", owners.save
    seeded = release(rng.standard_normal((2, 4)), 1.0, 1e-3, unsafe_seed=1)
    yield "a release of which nothing is proved", seeded.save
    reached = ChainStates((np.zeros(2),), 1, 2)
    yield "a checkpoint", lambda path: checkpoint.write(path, "mark", reached, {"W": np.ones((1, 2))}, {})


def _modes(folder: Path, umask: int) -> Iterator[Case]:
    """Others may look while a file is written, and when it is there; an older file in its place may have been open to all."""
    modes: list[int] = []
    replaced = os.replace

    def watched(old: Any, new: Any) -> None:
        modes.append(os.stat(old).st_mode & 0o077)
        replaced(old, new)

    for what, save in _private_files(folder):
        path = folder / "private"
        path.write_bytes(b"")
        path.chmod(0o666)
        before, os.replace = os.umask(umask), watched
        try:
            save(path)
        finally:
            os.umask(before)
            os.replace = replaced
        mode = path.stat().st_mode & 0o777
        yield Case(MODES, not mode & 0o077 and not any(modes), f"{what}: mode {mode:o} under the umask {umask:03o}")
        modes.clear()


def _marks(rng: np.random.Generator, folder: Path) -> Case:
    """Whoever saw a mark guesses a row's last number, or compares two marks."""
    rows = rng.integers(0, 100, 4).astype(float)
    guesses = [np.append(rows[:3], last) for last in range(100)]
    path, reached = folder / "run.npz", ChainStates((np.zeros(2),), 1, 2)
    marks = []
    for _ in range(2):
        checkpoint.write(path, checkpoint.fingerprint({"seed": 0}, [rows]), reached, {"W": np.ones((1, 2))}, {})
        with np.load(path) as file:
            marks.append(str(file["mark"]))
    told = [guess[-1] for guess in guesses if checkpoint.fingerprint({"seed": 0}, [guess]) in marks]
    return Case(MARKS, not told and len(set(marks)) == 2, f"the mark says that the row's last number is {told}")
