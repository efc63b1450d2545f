"""Stand-ins for claims of the adaptation paper whose data cannot be shipped: Figure 3, Tables 2 and 5, and Table 3.

``python -m studies.papers.stand_ins`` writes stand_ins.json beside this file, in a few minutes, from which
``python -m studies.papers.contents`` makes a table. Noise is drawn from seeds, so that nothing is guaranteed. Nothing is
tuned: all constants are the estimators' defaults, and the bound of weights is public.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.files import write_text
from mpmtl_prob.adaptation import (
    CnvxAdap,
    DiscrepancyMinimisation,
    NCnvxAdap,
    NetworkAdap,
    PrivateDiscrepancyMinimisation,
)
from mpmtl_prob.adaptation.data import problems, real
from mpmtl_prob.adaptation.data.problems import Pair
from mpmtl_prob.adaptation.paper.losses import Logistic
from mpmtl_prob.adaptation.paper.ncnvx import public_fit

RESULTS = Path(__file__).with_name("stand_ins.json")
SEEDS = 10
DELTA = 0.01


class Data(NamedTuple):
    """A stand-in for a data set.

    Attributes:
        text: what it is.
        load: the data from a seed.
        weight_bound: Lambda.
    """

    text: str
    load: Callable[[int], Pair]
    weight_bound: float = 1.0


class Claim(NamedTuple):
    """A claim about two arms.

    Attributes:
        item: where the paper has it.
        text: the claim in words.
        first: the arm that is said to be better, or not worse.
        second: the other one.
        strictly: whether it must be better, or only not worse.
        arms: errors of both by name, from data, their bound of weights and a seed.
        data: on which it is tried.
    """

    item: str
    text: str
    first: str
    second: str
    strictly: bool
    arms: Callable[[Pair, float, int], Mapping[str, float]]
    data: tuple[Data, ...]


def _squared(model: Any, data: Pair) -> float:
    return float(np.mean((data.test.y - model.predict(data.test.X)) ** 2) / np.var(data.test.y))


def _figure_3(data: Pair, bound: float, seed: int) -> dict[str, float]:
    paid: dict[str, Any] = {"epsilon": 15.0, "delta": DELTA, "unsafe_seed": seed}
    ours = CnvxAdap(source_weight=1.0, weight_bound=bound, **paid).fit(data.source, data.target)
    theirs = PrivateDiscrepancyMinimisation(**paid).fit(data.source, data.target)
    return {"CnvxAdap, alpha = 1": _squared(ours, data), "private DM": _squared(theirs, data)}


def _table_2(data: Pair, bound: float, seed: int) -> dict[str, float]:
    ours = CnvxAdap(epsilon=4.0, delta=DELTA, weight_bound=bound, unsafe_seed=seed).fit(data.source, data.target)
    theirs = DiscrepancyMinimisation().fit(data.source, data.target)
    return {"CnvxAdap, eps = 4": _squared(ours, data), "DM, not private": _squared(theirs, data)}


def _wrong(labels: FloatArray, data: Pair) -> float:
    return float(np.mean(labels != data.test.y))


def _table_3(data: Pair, bound: float, seed: int) -> dict[str, float]:
    del bound  # that of the classifiers is a default
    loss = Logistic(1.0, NCnvxAdap().weight_bound)
    alone = public_fit(loss, data.target.bounded(1.0, 1.0))
    paid: dict[str, Any] = {"epsilon": 4.0, "delta": DELTA, "unsafe_seed": seed, "seed": seed}
    free: dict[str, Any] = {"epsilon": None, "discrepancy": 0.0, "seed": seed}
    fits = {
        "source only": NCnvxAdap(source_weight=1.0, **free),
        "network, source only": NetworkAdap(source_weight=1.0, **free),
        "NCnvxAdap, not private": NCnvxAdap(**free),
        "network, not private": NetworkAdap(**free),
        "NCnvxAdap, eps = 4": NCnvxAdap(**paid),
        "network, eps = 4": NetworkAdap(**paid),
    }
    errors = {"target only": _wrong(np.where(data.test.X @ alone > 0, 1.0, -1.0), data)}
    return errors | {
        name: _wrong(model.fit(data.source, data.target).predict(data.test.X), data) for name, model in fits.items()
    }


MADE = tuple(
    Data(f"made-up, m = 2000, n = {n}", lambda seed, n=n: problems.two_sources((2000, n), seed=seed), 1.5)  # type: ignore[misc]
    for n in (60, 500, 2000)
)
SCHOOL = tuple(
    Data(f"School, {kind}, m = 1500, n = 500", lambda seed, k=kind: real.school(k, records=(1500, 500), seed=seed), 3.0)  # type: ignore[misc]
    for kind in ("mixed", "boys")
)
DIGITS = (Data("digits, m = 900, n = 150", lambda seed: real.digits(seed=seed)),)
CLAIMS = (
    Claim("Figure 3", "Private DM is not better than CnvxAdap at alpha = 1, eps = 15.", "CnvxAdap, alpha = 1", "private DM",
          False, _figure_3, (*MADE, *SCHOOL)),
    Claim("Tables 2 and 5", "CnvxAdap at eps = 4 errs less than DM without privacy.", "CnvxAdap, eps = 4", "DM, not private",
          True, _table_2, (*MADE, *SCHOOL)),
    Claim("Table 3", "Without privacy NCnvxAdap is more accurate than training on the target.", "NCnvxAdap, not private",
          "target only", True, _table_3, DIGITS),
)  # fmt: skip


def holds(claim: Claim, errors: Mapping[str, list[float]]) -> bool:
    """Return whether the claim holds: a paired difference beyond, or not beyond, two standard errors."""
    off = np.array(errors[claim.first]) - np.array(errors[claim.second])
    spread = off.std(ddof=1) / np.sqrt(len(off))
    return bool(off.mean() < -2 * spread if claim.strictly else off.mean() < 2 * spread)


def run(seeds: int = SEEDS) -> list[dict[str, Any]]:
    """Run all claims; return a row for each with its data."""
    rows = []
    for claim in CLAIMS:
        for data in claim.data:
            each = [claim.arms(data.load(seed), data.weight_bound, seed) for seed in range(seeds)]
            errors = {name: [one[name] for one in each] for name in each[0]}
            means = {name: float(np.mean(values)) for name, values in errors.items()}
            rows.append({"item": claim.item, "claim": claim.text, "data": data.text, "seeds": seeds, "errors": means,
                         "holds": holds(claim, errors)})  # fmt: skip
            print(rows[-1], flush=True)
    return rows


if __name__ == "__main__":
    write_text(RESULTS, json.dumps(run(), indent=1) + "\n")
