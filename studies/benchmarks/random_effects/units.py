"""Units of the panel: one arm on one data set. A finished unit is a file, and is not run again."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from random_effects import arms, cells, limits, mixed, owners, real

FORMAT = 1  #: of a unit's record, and of what the panel's own arms do: another number starts afresh


@dataclass(frozen=True)
class Unit:
    """An arm on a data set.

    Attributes:
        problem: name of a cell or of a real table.
        epsilon: of the release; None for an arm that no budget touches.
        seed: of a cell's data and release, or number of a table's split.
        release: which release of a table's split; 0 in a cell.
        arm: which arm.
        version: of the code that the arm is of.
    """

    problem: str
    epsilon: float | None
    seed: int
    release: int
    arm: str
    version: str


def of_cell(cell: cells.Cell, arm: str, version: str, seeds: int) -> list[Unit]:
    """Return the units of an arm in a cell."""
    return [Unit(cell.name, cell.epsilon, seed, 0, arm, version) for seed in range(seeds)]


def of_table(name: str, arm: str, version: str, epsilon: float, splits: int, releases: int) -> list[Unit]:
    """Return the units of an arm on a real table; an arm without noise has one release, without epsilon."""
    if arm not in arms.PRIVATE:
        return [Unit(name, None, number, 0, arm, version) for number in range(splits)]
    return [Unit(name, epsilon, number, k, arm, version) for number in range(splits) for k in range(releases)]


def path(folder: Path, unit: Unit) -> Path:
    """Return the file of a unit."""
    if unit.problem in real.TABLES:
        settings: Any = asdict(real.TABLES[unit.problem])
        epsilon = "" if unit.epsilon is None else f" eps {unit.epsilon:g}"
    else:
        settings, epsilon = asdict(cells.cells(names=[unit.problem])[0]), ""
        del settings["fast"]
    words = f"{unit.problem}{epsilon} {unit.arm} {unit.version}".replace(",", "").replace(" ", "_")
    return folder / f"{words}-{_digest([FORMAT, settings])}" / f"{unit.seed}-{unit.release}.json"


def _digest(settings: Any) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]


def read(folder: Path, unit: Unit) -> dict[str, Any] | None:
    """Return a finished unit's record, or None."""
    file = path(folder, unit)
    return json.loads(file.read_text()) if file.is_file() else None


def run(unit: Unit, data: Path | None = None) -> dict[str, Any]:
    """Run an arm, and measure it with what it does not see."""
    if unit.problem in real.TABLES:
        return _on_table(unit, data)
    cell = cells.cells(names=[unit.problem])[0]
    draw, begin = cells.draw(cell, unit.seed), time.process_time()
    if unit.arm == arms.TOLD:
        fit = arms.normal(*owners.told(mixed.statistics(draw.X, draw.y), draw.mu, draw.Omega, draw.sigma2))
    else:
        fit = _arm(unit.arm)(arms.Train(draw.X, draw.y), limits.public(cell), unit.seed)
    seconds = time.process_time() - begin
    extra = {"noise of mu adds": limits.added(cell, draw)} if unit.arm == arms.TOLD else {}
    return measured(cell, draw, fit) | {"seconds": seconds} | extra


def measured(cell: cells.Cell, draw: cells.Draw, fit: arms.Fit) -> dict[str, Any]:
    """Return errors of a fit, and the share of tasks that its 90 % intervals cover, by coefficient."""
    measures: dict[str, Any] = {"error": cells.error(cell, fit.beta, draw.beta)}
    if fit.low is not None and fit.high is not None:
        inside = (fit.low <= draw.beta) & (draw.beta <= fit.high)
        measures["covered"] = inside.mean(axis=1).tolist()
    if fit.mu is not None:
        measures["error of mu"] = float(((fit.mu - draw.mu) ** 2).sum())
    if fit.mu_low is not None and fit.mu_high is not None:
        measures["mu covered"] = float(((fit.mu_low <= draw.mu) & (draw.mu <= fit.mu_high)).mean())
    if fit.tau_low is not None and fit.tau_high is not None:
        tau = np.sqrt(np.diag(draw.Omega))
        measures["tau covered"] = float(((fit.tau_low <= tau) & (tau <= fit.tau_high)).mean())
    if fit.sound is not None:
        measures["sound"] = bool(fit.sound)
    return measures


def _on_table(unit: Unit, data: Path | None) -> dict[str, Any]:
    given = real.split(unit.problem, unit.seed, 1.0 if unit.epsilon is None else unit.epsilon, data)
    begin = time.process_time()
    fit = _arm(unit.arm)(given.train, given.public, 100 * unit.seed + unit.release)
    return {"error": real.nmse(fit.beta, given.test), "seconds": time.process_time() - begin}


def _arm(name: str) -> arms.Arm:
    return arms.library if name in (arms.NOW, arms.BEFORE) else arms.ARMS[name]


def side(units: Sequence[Unit]) -> Iterator[list[Unit]]:
    """Yield units in groups of one arm and problem, for each of which a process of the library compiles once."""
    groups: dict[tuple[str, str, float | None], list[Unit]] = {}
    for unit in units:
        groups.setdefault((unit.arm, unit.problem, unit.epsilon), []).append(unit)
    yield from groups.values()
