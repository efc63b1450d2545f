"""Arms of adaptation on one data set, every one at the whole budget, and how those with constants come by them.

*Tuned*: some public records play the target, and the candidate that is best on others is taken. *Oracle*: the best candidate
on the test rows, which nobody has: a lower limit of what tuning could reach, and no method.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mpmtl_prob._util.files import write_text
from mpmtl_prob.adaptation import (
    KMM,
    AdaSSP,
    CnvxAdap,
    DiscrepancyMinimisation,
    Domain,
    MomentAdaptation,
    NoisyGradient,
    SourceOnly,
    Unprotected,
    WarmDescent,
)
from mpmtl_prob.adaptation.data import problems, real
from mpmtl_prob.adaptation.data.problems import Pair
from mpmtl_prob.adaptation.estimator import Adaptation
from studies.papers.runner import digest

#: appended to the name of an arm whose constants were chosen with the test rows
ORACLE = ", oracle"
#: of rows and targets, which are scaled to it; as of all other arms
BALL: dict[str, Any] = {"row_bound": 1.0, "target_bound": 1.0}
#: of the guarantee and the descents' ball, by generator
DELTAS = {"two_sources": 0.01, "shifted": 0.01, "school": 1e-3}
WEIGHT_BOUNDS = {"two_sources": 1.5, "shifted": 1.5, "school": 3.0}


def _grid(**values: Sequence[Any]) -> tuple[Mapping[str, Any], ...]:
    return tuple(dict(zip(values, each, strict=True)) for each in product(*values.values()))


_PROFILED = _grid(source_weight=(0.2, 0.5), kappa_1=(0.02, 0.1), steps=(20, 300))
#: by arm; arms without an entry have nothing to choose
CANDIDATES: dict[str, tuple[Mapping[str, Any], ...]] = {
    "frozen": _grid(source_weight=(0.2, 0.5), steps=(20, 100), step_size=(None, 0.1, 0.5)),
    "noisy gradient": _grid(steps=(20, 100), step_size=(None, 0.1, 0.5)),
    "profiled": _PROFILED,
    "warm": _PROFILED,
}
_TRIED = CANDIDATES | {"CnvxAdap, not private": _grid(source_weight=(0.2, 0.5, 0.8), kappa_1=(0.02, 0.1))}


class Cell(NamedTuple):
    """What is the same for all seeds.

    Attributes:
        data: "two_sources", "shifted" or "school".
        records: (m, n).
        shift: how far weights are apart ("shifted"), or the target ("school").
        epsilon: the budget.
    """

    data: str
    records: tuple[int, int]
    shift: float | str | None
    epsilon: float

    @property
    def delta(self) -> float:
        """Beside epsilon."""
        return DELTAS[self.data]

    def pair(self, seed: int) -> Pair:
        """The data of a seed. Raises FileNotFoundError where School is not there."""
        if self.data == "two_sources":
            return problems.two_sources(self.records, seed=seed)
        if self.data == "shifted":
            return problems.shifted(self.records, float(self.shift or 0.0), seed=seed)
        return real.school(str(self.shift), records=self.records, seed=seed)

    @property
    def label(self) -> str:
        """In words."""
        m, n = self.records
        where = "" if self.shift is None else f" {self.shift}"
        return f"{self.data}{where} ({m}, {n}), eps {self.epsilon:g}"

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return self._asdict() | {"records": list(self.records), "delta": self.delta}


class Arm(NamedTuple):
    """One way to a model.

    Attributes:
        name: of the arm; an entry of :data:`CANDIDATES` under it is tried.
        make: the estimator, of chosen constants.
        apart: whether it is told which public record is of which source.
    """

    name: str
    make: Callable[..., Adaptation]
    apart: bool = False


def arms(cell: Cell, seed: int) -> Iterator[Arm]:
    """All arms. The paper's are not charged for the discrepancy, which favours them."""
    paid: dict[str, Any] = {"epsilon": cell.epsilon, "delta": cell.delta, "unsafe_seed": seed}
    ball: dict[str, Any] = {"weight_bound": WEIGHT_BOUNDS[cell.data]} | paid
    descent: dict[str, Any] = {"discrepancy": 0.0} | ball
    yield Arm("target, not private", Unprotected)
    yield Arm("pooled, not private", lambda: Unprotected("pooled"))
    yield Arm("source, Huber", SourceOnly)
    yield Arm("source, absolute", lambda: SourceOnly("absolute"))
    yield Arm("printed", lambda: CnvxAdap(variant="printed", kappa_1=0.02, **descent))
    yield Arm("frozen", lambda **chosen: CnvxAdap(variant="frozen", **descent, **chosen))
    yield Arm("noisy gradient", lambda **chosen: NoisyGradient(**ball, **chosen))
    yield Arm("profiled", lambda **chosen: CnvxAdap(**descent, **chosen))
    yield Arm("warm", lambda **chosen: WarmDescent(**descent, **chosen))
    yield Arm("AdaSSP", lambda: AdaSSP(residuals=False, **paid))
    yield Arm("AdaSSP, residuals", lambda: AdaSSP(**paid))
    yield Arm("one release", lambda: MomentAdaptation(**paid, **BALL))
    yield Arm("one release, domains", lambda: MomentAdaptation(**paid, **BALL), True)
    free: dict[str, Any] = {"epsilon": None, "discrepancy": 0.0, "weight_bound": WEIGHT_BOUNDS[cell.data]}
    yield Arm("KMM", KMM)
    yield Arm("DM", DiscrepancyMinimisation)
    yield Arm("CnvxAdap, not private", lambda **chosen: CnvxAdap(**free, **chosen))


#: arms that look at private records as they are, those of the paper's Table 1
PLAIN = ("target, not private", "KMM", "DM", "CnvxAdap, not private")
#: in the order of tables
NAMES = tuple(arm.name for arm in arms(Cell("school", (1, 1), None, 1.0), 0) if arm.name not in PLAIN[1:])


def unit(
    cell: Cell, seed: int, folder: Path, wanted: Sequence[str] = NAMES, again: Sequence[str] = ()
) -> dict[str, float]:
    """What :func:`measure` finds, of the seed's file in a folder as far as it is there, but for the arms of ``again``."""
    path = folder / f"{digest({'candidates': CANDIDATES, **cell.to_dict()})}-{seed}.json"
    found: dict[str, float] = json.loads(path.read_text()) if path.is_file() else {}
    if missing := [name for name in wanted if name not in found or name in again]:
        found |= measure(cell, seed, missing)
        write_text(path, json.dumps(found))
    keep = {*wanted, *(name + ORACLE for name in wanted), "coverage"}
    return {name: value for name, value in found.items() if name in keep}


def measure(cell: Cell, seed: int, wanted: Sequence[str] = NAMES) -> dict[str, float]:
    """Mean squared test errors of one seed by arm, in units of the test targets' variance on School.

    Beside them "coverage", the share of the target's weights in the one release's 90 % intervals, where they are known.
    """
    data, found = cell.pair(seed), {}
    scale = float(np.var(data.test.y)) if cell.data == "school" else 1.0
    for arm in arms(cell, seed):
        if arm.name not in wanted:
            continue
        source = data.sources if arm.apart else data.source
        tried = _TRIED.get(arm.name, ({},))
        models = [arm.make(**chosen).fit(source, data.target) for chosen in tried]
        errors = [error(model, data.test) / scale for model in models]
        found[arm.name] = errors[0]
        if len(tried) > 1:
            found[arm.name] = errors[tune(arm, data.source, data.target.num_records, seed)]
            if arm.name not in PLAIN:
                found[arm.name + ORACLE] = min(errors)
        if arm.name == "one release, domains" and data.w is not None:
            low, high = models[0].posterior_.interval(0.9)  # type: ignore[attr-defined]
            found["coverage"] = float(np.mean((low < data.w) & (data.w < high)))
    return found


def tune(arm: Arm, public: Domain, records: int, seed: int) -> int:
    """The best candidate on public records, of which as many as there are private ones play the target, or two fifths."""
    m = public.num_records
    order = np.random.default_rng(seed).permutation(m)
    some = min(records, 2 * m // 5)
    parts = np.split(order, [m // 5, m // 5 + some])
    test, target, source = (Domain(public.X[part], public.y[part]) for part in parts)
    errors = [error(arm.make(**chosen).fit(source, target), test) for chosen in _TRIED[arm.name]]
    return int(np.argmin(errors))


def error(model: Adaptation, test: Domain) -> float:
    """Mean squared."""
    return float(np.mean((test.y - model.predict(test.X)) ** 2))
