"""Compared methods (arms) of domain adaptation, each with the whole budget, and the tuning of their constants.

*Tuned*: some public records stand in for the target, and the candidate that is best on others is used. *Oracle*: the best
candidate on the test rows. It is a lower bound on the error of any tuning, and not a method.
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

#: suffix of an arm's name if its constants were chosen with the test rows
ORACLE = ", oracle"
#: bounds of rows and targets, which are scaled to them; the same for all arms
BALL: dict[str, Any] = {"row_bound": 1.0, "target_bound": 1.0}
#: delta of the guarantee, and the bound on weights of the descents, by data set
DELTAS = {"two_sources": 0.01, "shifted": 0.01, "school": 1e-3}
WEIGHT_BOUNDS = {"two_sources": 1.5, "shifted": 1.5, "school": 3.0}


def _grid(**values: Sequence[Any]) -> tuple[Mapping[str, Any], ...]:
    return tuple(dict(zip(values, combination, strict=True)) for combination in product(*values.values()))


_PROFILED = _grid(source_weight=(0.2, 0.5), kappa_1=(0.02, 0.1), steps=(20, 300))
#: candidates by arm; arms without an entry have no constants to choose
CANDIDATES: dict[str, tuple[Mapping[str, Any], ...]] = {
    "frozen": _grid(source_weight=(0.2, 0.5), steps=(20, 100), step_size=(None, 0.1, 0.5)),
    "noisy gradient": _grid(steps=(20, 100), step_size=(None, 0.1, 0.5)),
    "profiled": _PROFILED,
    "warm": _PROFILED,
}
_TRIED = CANDIDATES | {"CnvxAdap, not private": _grid(source_weight=(0.2, 0.5, 0.8), kappa_1=(0.02, 0.1))}


class Cell(NamedTuple):
    """Experimental condition: data set, sizes, shift and budget.

    Attributes:
        data: "two_sources", "shifted" or "school".
        records: (m, n).
        shift: distance of the weights ("shifted"), or the target ("school").
        epsilon: the budget.
    """

    data: str
    records: tuple[int, int]
    shift: float | str | None
    epsilon: float

    @property
    def delta(self) -> float:
        """delta of the guarantee."""
        return DELTAS[self.data]

    def pair(self, seed: int) -> Pair:
        """Return the data for a seed. Raises FileNotFoundError if School is missing."""
        if self.data == "two_sources":
            return problems.two_sources(self.records, seed=seed)
        if self.data == "shifted":
            return problems.shifted(self.records, float(self.shift or 0.0), seed=seed)
        return real.school(str(self.shift), records=self.records, seed=seed)

    @property
    def label(self) -> str:
        """Description in words."""
        m, n = self.records
        where = "" if self.shift is None else f" {self.shift}"
        return f"{self.data}{where} ({m}, {n}), eps {self.epsilon:g}"

    def to_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return self._asdict() | {"records": list(self.records), "delta": self.delta}


class Arm(NamedTuple):
    """Method in the comparison.

    Attributes:
        name: name of the arm; its candidates are in :data:`CANDIDATES`.
        make: returns the estimator, given constants.
        apart: True if it gets the public records separated by domain.
    """

    name: str
    make: Callable[..., Adaptation]
    apart: bool = False


def arms(cell: Cell, seed: int) -> Iterator[Arm]:
    """Yield all arms. The paper's are not charged for the discrepancy, which favours them."""
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


#: non-private arms, those of the paper's Table 1
PLAIN = ("target, not private", "KMM", "DM", "CnvxAdap, not private")
#: names of the arms, in the order of tables
NAMES = tuple(arm.name for arm in arms(Cell("school", (1, 1), None, 1.0), 0) if arm.name not in PLAIN[1:])


def unit(
    cell: Cell, seed: int, folder: Path, names: Sequence[str] = NAMES, again: Sequence[str] = ()
) -> dict[str, float]:
    """Return the result of :func:`measure`, from the seed's file where it has it; arms in ``again`` are rerun."""
    path = folder / f"{digest({'candidates': CANDIDATES, **cell.to_dict()})}-{seed}.json"
    results: dict[str, float] = json.loads(path.read_text()) if path.is_file() else {}
    if missing := [name for name in names if name not in results or name in again]:
        results |= measure(cell, seed, missing)
        write_text(path, json.dumps(results))
    keep = {*names, *(name + ORACLE for name in names), "coverage"}
    return {name: value for name, value in results.items() if name in keep}


def measure(cell: Cell, seed: int, names: Sequence[str] = NAMES) -> dict[str, float]:
    """Compute mean squared test errors of one seed by arm, in units of the test targets' variance on School.

    The result also has "coverage", the share of the target's weights in the 90 % intervals from one release, if they are
    known.
    """
    data, results = cell.pair(seed), {}
    scale = float(np.var(data.test.y)) if cell.data == "school" else 1.0
    for arm in arms(cell, seed):
        if arm.name not in names:
            continue
        source = data.sources if arm.apart else data.source
        tried = _TRIED.get(arm.name, ({},))
        models = [arm.make(**chosen).fit(source, data.target) for chosen in tried]
        errors = [error(model, data.test) / scale for model in models]
        results[arm.name] = errors[0]
        if len(tried) > 1:
            results[arm.name] = errors[tune(arm, data.source, data.target.num_records, seed)]
            if arm.name not in PLAIN:
                results[arm.name + ORACLE] = min(errors)
        if arm.name == "one release, domains" and data.w is not None:
            low, high = models[0].posterior_.interval(0.9)  # type: ignore[attr-defined]
            results["coverage"] = float(np.mean((low < data.w) & (data.w < high)))
    return results


def tune(arm: Arm, public: Domain, records: int, seed: int) -> int:
    """Return the index of the best candidate on public records.

    As many public records as there are private ones stand in for the target, but at most two fifths.
    """
    m = public.num_records
    order = np.random.default_rng(seed).permutation(m)
    some = min(records, 2 * m // 5)
    parts = np.split(order, [m // 5, m // 5 + some])
    test, target, source = (Domain(public.X[part], public.y[part]) for part in parts)
    errors = [error(arm.make(**chosen).fit(source, target), test) for chosen in _TRIED[arm.name]]
    return int(np.argmin(errors))


def error(model: Adaptation, test: Domain) -> float:
    """Compute the mean squared test error."""
    return float(np.mean((test.y - model.predict(test.X)) ** 2))
