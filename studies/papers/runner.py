"""Runner of a study's units: each finished unit is written to a file, and a rerun computes only the missing ones."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from tqdm.auto import tqdm

from mpmtl_prob._util.files import write_text
from mpmtl_prob.releases.files import library_version as library_version
from mpmtl_prob.sampling.extent import raise_on_interrupt
from studies.papers import arms
from studies.papers.measures import DIMS, MEASURES, TUNED
from studies.papers.settings import WITHOUT_EPSILON, Study, Unit
from studies.papers.workers import Workers

_FORMAT = 1  # version of a unit's record; a new number invalidates old records


class Store:
    """Store of finished units in a folder, with one file each. The names depend on the settings.

    Args:
        folder: folder of all studies' units.
        study: the study.
    """

    def __init__(self, folder: Path, study: Study) -> None:
        self.folder, self.study = folder, study

    def path(self, unit: Unit, what: str = "") -> Path:
        """Return the file of a unit. Studies that compute the same unit share it."""
        settings = {
            "format": _FORMAT,
            "version": library_version(),
            "measure": self.study.measure,
            "scored": self.study.scored,
            "effort": asdict(self.study.effort),
            **{key: value for key, value in asdict(unit).items() if key != "replication"},
        }
        words = "-".join(f"{unit.data.name} {unit.arm}".replace(",", "").replace("%", "percent").split())
        return self.folder / f"{words}-{digest(settings)}" / f"{what or unit.replication}.json"

    def read(self, unit: Unit, what: str = "") -> dict[str, Any] | None:
        """Return a unit's record, or None."""
        path = self.path(unit, what)
        return json.loads(path.read_text()) if path.is_file() else None

    def write(self, unit: Unit, record: Mapping[str, Any], what: str = "") -> None:
        """Write a unit's record atomically, so that an interrupt leaves no partial file."""
        path = self.path(unit, what)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(plain(record)))


def digest(settings: Any) -> str:
    """Return a hash of settings, eight hexadecimal digits."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]


def settings_hash(study: Study) -> str:
    """Return a hash of a study's settings and the library's version."""
    return digest({"version": library_version(), "format": _FORMAT, **asdict(study)})


def run(study: Study, folder: Path, *, workers: Workers | None = None, progress_bar: bool = True) -> xr.Dataset:
    """Compute the missing units of a study and return all results.

    Args:
        study: the study.
        folder: folder of finished units, which studies may share.
        workers: processes that compute the units in parallel; default this process.
        progress_bar: show one.

    Returns:
        A data set with the dims data, arm, epsilon (and tasks, exponent where they vary), replication, and those of
        ``measures.DIMS``. An arm without a budget is repeated at every epsilon. Missing results are nan (or "" for
        words), with the reason in the attribute ``missing``.
    """
    store, units = Store(folder, study), study.units()
    missing = [unit for unit in units if not store.path(unit).is_file()]
    with tqdm(total=len(units), initial=len(units) - len(missing), desc=study.name, disable=not progress_bar) as bar:
        if workers is None:
            _one_by_one(store, missing, bar)
        else:
            _side_by_side(store, missing, bar, workers)
    return assemble(study, {unit: store.read(unit) or {} for unit in units})


def _one_by_one(store: Store, missing: Sequence[Unit], bar: Any) -> None:
    for unit in missing:
        bar.set_postfix_str(f"{unit.data.name}, {unit.arm}")
        _compute(store, unit)
        bar.update()


class _Job(NamedTuple):
    work: Callable[[Store, Unit], None]
    unit: Unit


def _side_by_side(store: Store, missing: Sequence[Unit], bar: Any, workers: Workers) -> None:
    """Compute units in parallel, after the choices of hyper-parameters that several units wait for."""
    unchosen = {
        first: None
        for first in (_first(store.study, unit) for unit in missing)
        if _is_tuned(store.study, first) and not store.path(first, _selection(store.study, first)).is_file()
    }
    jobs = [_Job(_choose, first) for first in unchosen] + [_Job(_compute, unit) for unit in missing]
    running: dict[Future[None], _Job] = {}
    while jobs or running:
        free = [job for job in jobs if job.work is _choose or _first(store.study, job.unit) not in unchosen]
        for job in free[: workers.count - len(running)]:
            jobs.remove(job)
            running[workers.submit(job.work, store, job.unit)] = job
            tuning = ", tuning" if job.work is _choose else ""
            bar.set_postfix_str(f"{job.unit.data.name}, {job.unit.arm}{tuning}")
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            job = running.pop(future)
            future.result()
            if job.work is _choose:
                del unchosen[job.unit]
            else:
                bar.update()


def _compute(store: Store, unit: Unit) -> None:
    """Compute one unit and write its file. An interrupted unit is not stored."""
    with raise_on_interrupt():
        try:
            record = MEASURES[store.study.measure](store.study, unit, _choice(store, unit))
        except arms.Missing as reason:
            record = {"missing": str(reason)}
    store.write(unit, record)


def _choose(store: Store, unit: Unit) -> None:
    _choice(store, unit)


def _first(study: Study, unit: Unit) -> Unit:
    """Return the unit on whose training rows hyper-parameters are chosen: that of the first replication, or its own."""
    return unit if study.effort.each else replace(unit, replication=0)


def _selection(study: Study, unit: Unit) -> str:
    """Return the name of the file with the chosen hyper-parameters."""
    return f"selection-{unit.replication}" if study.effort.each else "selection"


def _is_tuned(study: Study, unit: Unit) -> bool:
    return study.measure in TUNED and arms.ARMS[unit.arm].grid is not None


def _choice(store: Store, unit: Unit) -> arms.Choice | None:
    """Return the hyper-parameters of the unit's arm, which are chosen once and stored like a unit."""
    if not _is_tuned(store.study, unit):
        return None
    first, effort, file = _first(store.study, unit), store.study.effort, _selection(store.study, unit)
    record_of_choice = store.read(first, file)
    if record_of_choice is not None:
        return arms.choose(first, effort, record_of_choice["index"], record_of_choice.get("strategy"))
    choice = arms.choose(first, effort)
    record = {name: getattr(choice, name) for name in ("index", "score", "candidates", "strategy")}
    store.write(first, record | {"chosen": repr(choice.estimator)}, file)
    return choice


def assemble(study: Study, records: Mapping[Unit, Mapping[str, Any]]) -> xr.Dataset:
    """Combine the units' records in one data set; see :func:`run`."""
    coords = _coords(study)
    place = {name: {value: i for i, value in enumerate(values)} for name, values in coords.items()}
    shape = tuple(len(values) for values in coords.values())
    arrays: dict[str, np.ndarray] = {}
    missing: dict[str, str] = {}
    for unit, record in records.items():
        if "missing" in record:
            missing[f"{unit.arm}, {unit.data.name}"] = record["missing"]
            continue
        where = tuple(_index(name, unit, place) for name in coords)
        for name, value in _numbers(record).items():
            words = isinstance(value, str)
            values = np.asarray(value, dtype=object if words else np.float64)
            if name not in arrays:
                arrays[name] = np.full(shape + values.shape, "" if words else np.nan, dtype=values.dtype)
            arrays[name] = _room(arrays[name], len(shape), values.shape)
            arrays[name][where + tuple(map(slice, values.shape))] = values[()]
    variables = {name: ((*coords, *DIMS.get(name, ())), values) for name, values in arrays.items()}
    kinds = {data.name: data.kind for data in study.data}
    metrics = {data.name: data.metric for data in study.data}
    as_json = {"kinds": kinds, "metrics": metrics, "missing": missing}
    attrs = {"study": study.name} | {name: json.dumps(value) for name, value in as_json.items()}
    return xr.Dataset(variables, coords={k: list(v) for k, v in coords.items()}, attrs=attrs)


def _coords(study: Study) -> dict[str, tuple[Any, ...]]:
    epsilons = sorted({*study.epsilons, *study.posterior_epsilons, *study.replacement_epsilons})
    return {
        "data": tuple(data.name for data in study.data),
        "arm": study.arms,
        "epsilon": tuple(epsilons),
        **({"tasks": study.tasks} if study.tasks else {}),
        **({"exponent": study.exponents} if study.exponents else {}),
        "replication": tuple(range(study.replications)),
    }


def _index(name: str, unit: Unit, place: Mapping[str, Mapping[Any, int]]) -> int | slice:
    if name == "epsilon" and unit.arm in WITHOUT_EPSILON:
        return slice(None)
    value = unit.data.name if name == "data" else getattr(unit, name)
    return place[name][value]


def _numbers(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record's numbers, with both bounds as numbers and an adjacency, and without other texts."""
    numbers = {k: v for k, v in record.items() if isinstance(v, int | float | list)}
    for kind in ("claimed", "proved"):
        if bound := record.get(kind):
            numbers |= {f"{kind}_{part}": bound[part] for part in ("epsilon", "delta", "adjacency")}
    return numbers


def _room(array: np.ndarray, lead: int, shape: tuple[int, ...]) -> np.ndarray:
    """Pad an array for values of this shape, as arms differ in their number of rounds."""
    grow = [(0, 0)] * lead + [(0, max(0, new - old)) for new, old in zip(shape, array.shape[lead:], strict=True)]
    return np.pad(array, grow, constant_values=np.nan) if any(after for _, after in grow) else array


def plain(value: Any) -> Any:
    """Convert a value for JSON: NumPy types to Python's, and non-finite numbers to None."""
    if isinstance(value, Mapping):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
