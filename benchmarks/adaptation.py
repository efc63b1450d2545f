"""Public source, private target: every arm at the same budget, on the two generators of the room.

    python benchmarks/adaptation.py [--seeds 10] [--data two_sources shifted] [--json OUT]

Test errors of a cell (generator, sizes, shift, budget) are means over seeds, each with data and noise of its own. Descents
are tuned for every data set on its public records alone: some of them play the target, at the same budget, and the candidate
that is best on others is taken. With --json a cell that is there with as many seeds is not run again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import record

from mpmtl_prob.adaptation import (
    AdaSSP,
    CnvxAdap,
    Domain,
    NoisyGradient,
    OneRelease,
    SourceOnly,
    Unprotected,
    WarmDescent,
    problems,
)
from mpmtl_prob.adaptation.estimator import Adaptation
from mpmtl_prob.adaptation.problems import Pair

DELTA, WEIGHT_BOUND = 0.01, 1.5
#: of "profiled" and "warm", tuned on public records
CANDIDATES = tuple(
    {"source_weight": a, "kappa_1": k, "steps": T} for a in (0.2, 0.5) for k in (0.02, 0.1) for T in (20, 300)
)
SMALL, LARGE = (300, 60), (2000, 500)


class Cell(NamedTuple):
    """What is the same for all seeds."""

    data: str
    records: tuple[int, int]
    shift: float | None
    epsilon: float

    def pair(self, seed: int) -> Pair:
        """The data of a seed."""
        if self.shift is None:
            return problems.two_sources(self.records, seed=seed)
        return problems.shifted(self.records, self.shift, seed=seed)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return self._asdict() | {"records": list(self.records)}


CELLS = (
    *(Cell("two_sources", SMALL, None, e) for e in (0.5, 1.0)),
    *(Cell("two_sources", LARGE, None, e) for e in (0.5, 1.0)),
    Cell("two_sources", (2000, 2000), None, 0.5),
    *(Cell("shifted", SMALL, shift, e) for shift in (0.0, 0.5, 1.2) for e in (1.0, 10.0)),
    *(Cell("shifted", LARGE, shift, e) for shift in (0.0, 0.5, 1.2) for e in (0.5, 1.0, 10.0)),
)


def arms(epsilon: float, seed: int) -> Iterator[tuple[str, Callable[..., Adaptation], bool]]:
    """Name, how it is made, and whether it is tuned. The paper's are not charged for the discrepancy, which favours them."""
    paid = {"epsilon": epsilon, "delta": DELTA, "unsafe_seed": seed}
    descent = {"weight_bound": WEIGHT_BOUND, "discrepancy": 0.0} | paid
    yield "target, not private", Unprotected, False
    yield "source, Huber", SourceOnly, False
    yield "source, absolute", lambda: SourceOnly("absolute"), False
    yield "printed", lambda: CnvxAdap(variant="printed", kappa_1=0.02, **descent), False
    yield "noisy gradient", lambda: NoisyGradient(weight_bound=WEIGHT_BOUND, **paid), False
    yield "profiled", lambda **chosen: CnvxAdap(**descent, **chosen), True
    yield "warm", lambda **chosen: WarmDescent(**descent, **chosen), True
    yield "AdaSSP", lambda: AdaSSP(residuals=False, **paid), False
    yield "AdaSSP, residuals", lambda: AdaSSP(**paid), False
    yield "one release", lambda: OneRelease(**paid), False


def measure(cell: Cell, seed: int) -> dict[str, float]:
    """Test errors of one seed, and the coverage of the one release's 90 % intervals of the weights."""
    data, found = cell.pair(seed), {}
    for name, make, tuned in arms(cell.epsilon, seed):
        model = make(**tune(make, data.source, cell.records[1], seed)) if tuned else make()
        one = isinstance(model, OneRelease) and len(data.sources) > 1
        model.fit(data.sources if one else data.source, data.target)
        found[name] = error(model, data.test)
        if isinstance(model, OneRelease):
            low, high = model.posterior_.interval(0.9)
            found["coverage"] = float(np.mean((low < data.w) & (data.w < high)))
    return found


def tune(make: Callable[..., Adaptation], public: Domain, records: int, seed: int) -> Mapping[str, Any]:
    """The best candidate on public records, of which as many as there are private ones play the target, or two fifths."""
    m = public.num_records
    order = np.random.default_rng(seed).permutation(m)
    some = min(records, 2 * m // 5)
    parts = np.split(order, [m // 5, m // 5 + some])
    test, target, source = (Domain(public.X[part], public.y[part]) for part in parts)
    return min(CANDIDATES, key=lambda chosen: error(make(**chosen).fit(source, target), test))


def error(model: Adaptation, test: Domain) -> float:
    """Mean squared."""
    return float(np.mean((test.y - model.predict(test.X)) ** 2))


def summary(cell: Cell, seeds: int) -> dict[str, Any]:
    """Means over seeds, with standard errors."""
    runs = [measure(cell, seed) for seed in range(seeds)]
    every = {name: np.array([run[name] for run in runs]) for name in runs[0]}
    spread = lambda values: float(values.std(ddof=1) / np.sqrt(seeds)) if seeds > 1 else None
    means = {name: {"mean": float(v.mean()), "standard error": spread(v)} for name, v in every.items()}
    return cell.to_dict() | {"seeds": seeds, "coverage": means.pop("coverage")["mean"], "arms": means}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--data", nargs="+", default=["two_sources", "shifted"], help="which generators")
    record.option(parser)
    options = parser.parse_args()
    path: Path | None = options.json
    there = json.loads(path.read_text())["cells"] if path and path.is_file() else []
    key = lambda cell: json.dumps({k: cell[k] for k in Cell._fields})
    done = {key(cell): cell for cell in there if cell["seeds"] >= options.seeds}
    for cell in CELLS:
        if cell.data in options.data and (name := key(cell.to_dict())) not in done:
            done[name] = summary(cell, options.seeds)
            errors = ", ".join(f"{arm} {found['mean']:.4f}" for arm, found in done[name]["arms"].items())
            print(f"{cell.data} {cell.records} {cell.shift} eps {cell.epsilon:g}: {errors}", flush=True)
            ordered = [done[k] for each in CELLS if (k := key(each.to_dict())) in done]
            record.write(path, {"delta": DELTA, "candidates": len(CANDIDATES), "cells": ordered})


if __name__ == "__main__":
    main()
