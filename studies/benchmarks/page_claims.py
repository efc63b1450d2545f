"""One claim and one number for every section of the benchmarks pages, for their overview."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import mean, median

import page_pooled
from tables import Report

Claim = tuple[str, str]


def speed(report: Report) -> Claim:
    cell = report["cells"]["School, eps 1"]
    then, now = (cell[when]["400 effective draws"] / cell[when]["unit"] for when in ("before", "now"))
    return (
        f"Effective draws of the public posterior (School, eps = 1) cost less CPU time than at commit {report['before']}",
        (f"{then / now:.1f} times less"),
    )


def first_answer(report: Report) -> Claim:
    return "One hospital gets its coefficients from a CSV file and a release, in a new process", (
        f"{report['cells']['cold']['now']['CPU seconds']:.0f} CPU seconds"
    )


def estimators(report: Report) -> Claim:
    warm = [problem["ratios"]["warm"] for problem in report["problems"].values() if problem["ratios"]]
    return "Multi-task estimators need less CPU time than other packages (second call)", (
        f"{min(warm):.1f} to {max(warm):.0f} times less; median {median(warm):.0f}"
    )


def samplers(report: Report) -> Claim:
    ratios = report["ratios"].values()
    return "The curator's default sampler has more effective draws a second than others", (
        f"{min(ratios):.1f} to {max(ratios):.0f} times more"
    )


def public(report: Report) -> Claim:
    return "Integrating tasks' weights out gives more effective draws a CPU second than sampling them", (
        f"at least {report['ratios']['W latent']:.0f} times more"
    )


def scaling(report: Report) -> Claim:
    return "The cost of a release grows no faster than the number of tasks", (
        f"power {report['sweeps']['m']['exponents']['release']:.2f}"
    )


def streamed(report: Report) -> Claim:
    largest = max(report["lines"], key=lambda line: line["size"])
    return (
        f"A release of {_spaced(largest['size'])} tasks, {largest['GB of files']:.1f} GB of files, fits in memory",
        (f"{largest['peak GB']:.1f} GB"),
    )


def memory(report: Report) -> Claim:
    lines = {(line["m"], line["longer"]): line["times the data"] for line in report["cells"]["release"]["now"]["lines"]}
    return "A release needs little more memory than the data, though one task is 1000 times larger than the others", (
        f"{lines[max(lines)]:.1f} times the data"
    )


def federated(report: Report) -> Claim:
    return "Without a curator, a release is cheap for a data owner", (
        f"at most {max(row['CPU milliseconds an owner'] for row in report['rows']):.0f} ms and "
        f"{max(row['kB an owner'] for row in report['rows']):.0f} kB"
    )


def nodes(report: Report) -> Claim:
    lines = report["lines"]
    return f"{_spaced(report['sizes']['m'])} tasks over several nodes give bit for bit the release of one process", (
        f"{sum(line['same release'] for line in lines)} of {len(lines)} runs"
    )


def adaptation(report: Report) -> Claim:
    private = lambda arms: {
        name: arm["mean"] for name, arm in arms.items() if not name.endswith((", oracle", "private"))
    }
    errors = [private(cell["arms"]) for cell in report["cells"]]
    best = sum(min(arms, key=arms.__getitem__).startswith("one release") for arms in errors)
    return (
        "One noisy release of the private table has the least error of all private methods",
        f"in {best} of {len(errors)} settings",
    )


def covered_by_adaptation(report: Report) -> Claim:
    covered = {
        name: _range(cell[name]["mean"] for cell in report["cells"] if cell["data sets"] == "all")
        for name in ("weights", "targets")
    }
    return "Its 90 % intervals cover: weights; targets", "; ".join(covered.values())


def coverage(report: Report) -> Claim:
    distances = [
        abs(share - level)
        for cell in report["cells"]
        for name in ("weights", "targets")
        for share, level in zip(cell[name]["coverage"], report["levels"], strict=True)
    ]
    return "Intervals of 50, 80 and 95 % cover what they say, on data from the model", (
        f"within {100 * max(distances):.1f} points"
    )


def own_message(report: Report) -> Claim:
    return "90 % intervals of an owner whose message is in the release cover, by default", (
        _range([cell["arms"]["default"]["coverage"] for cell in report["cells"]])
    )


def misfit(report: Report) -> Claim:
    covered = (
        _range(cell["mean"][f"normal errors, {name} covered"] for cell in report["cells"])
        for name in ("weights", "targets")
    )
    return "On data that the model does not describe, 90 % intervals cover: weights; targets", "; ".join(covered)


def calibration(report: Report) -> Claim:
    p = [cell["p"] for cell in report["cells"]]
    what = "the shared covariance" if "structure" in report["cells"][0] else "the curator's models"
    if any(cell["functional"] == "mu" for cell in report["cells"]):
        what = "average effects"
    return f"Posteriors of {what} are calibrated: p-values below .01", (
        f"{sum(x < 0.01 for x in p)} of {len(p)}, {0.01 * len(p):.1f} expected"
    )


def defaults(report: Report) -> Claim:
    fits = [fit for group in report["groups"] for fit in group["now"]]
    return "`NoiseAware(epsilon)` passes its own diagnosis", f"in {mean(fit['passed'] for fit in fits):.0%} of fits"


def gap(report: Report) -> Claim:
    school = report["school"]
    return "Error on School at eps = 1, beside ridge alone, and the trace norm without privacy", (
        f"{mean(school['1']['error']):.3f}; {school['ridge']:.3f}; {school['trace norm']:.3f}"
    )


def alone(report: Report) -> Claim:
    excess = []
    for data in report["data"].values():
        local = [data["arms"][arm] for arm in report["local"]]
        excess.append(100 * min(local, key=lambda arm: arm["mean"])["excess"])
    return (
        "At eps = .001, error relative to the best that an owner can do alone",
        f"{min(excess):+.1f} to {max(excess):+.1f} %",
    )


def told(report: Report) -> Claim:
    arms = report["data"]["synthetic_low_rank"]
    shares = (mean(arms[f"1, as it comes, {known}"]["share"]) for known in report["known"])
    return "Share of the possible gain at eps = 1, low rank; and if owners knew how much features explain", (
        "; ".join(f"{share:.2f}" for share in shares)
    )


def several(report: Report) -> Claim:
    errors = {row["arm"]: row["average effects"] for row in report["cells"]}
    return "Squared error of average effects from one release, and from two of half its budget", (
        f"{errors['one release of the whole budget']:.3f}; {errors['two releases of half of it']:.3f}"
    )


def newcomers(report: Report) -> Claim:
    cell = next(cell for cell in report["cells"] if cell["epsilon"] == 1)
    return "A school that reads the release gains about as much as one that took part (loss, eps = 1)", (
        f"{cell['newcomers gain']:.3f}; {cell['participants gain']:.3f}"
    )


def shapes(report: Report) -> Claim:
    ours, rival, *_ = report["arms"]
    ratios = [cell["errors"][ours] / cell["errors"][rival] for cell in report["cells"]["1"]]
    return "Over data of many shapes, error at eps = 1 relative to each task's own ridge", (
        f"{_geometric(ratios):.2f}; worst {max(ratios):.2f}"
    )


def choices(report: Report) -> Claim:
    arms = report["arms"]
    ratios = [
        cell["errors"][arms.index(cell["chosen"])] / cell["errors"][0]
        for cells in report["cells"].values()
        for cell in cells
        if cell["chosen"] != arms[0]
    ]
    return "Where a second round or a low rank is chosen, error relative to neither", (
        f"{_geometric(ratios):.2f}; worst {max(ratios):.2f}"
    )


def panel(report: Report) -> Claim:
    ratios = [
        cell["ratios"]["alone, evidence"]["value"] for cell in report["cells"] if "alone, evidence" in cell["ratios"]
    ]
    return f"Mixed models of {len(ratios)} made-up studies: error with a release relative to alone", (
        f"median {median(ratios):.2f}; worst {max(ratios):.2f}"
    )


def pooled(report: Report) -> Claim:
    m, arm = 300, "ours, eps = 3"
    means = page_pooled.means([fit for fit in report["fits"] if fit["m"] == m])
    others = [mean for name, mean in means.items() if name not in (*page_pooled.OURS, page_pooled.REFERENCE)]
    fastest, nearest = (min(each[name] for each in others) for name in ("CPU seconds", "coefficients, error"))
    return (
        f"{m} hospitals at eps = 3, delta = 1 / (m log m), beside the fastest and the most exact tool that pools all rows: "
        "CPU time; error",
        (f"{means[arm]['CPU seconds'] / fastest:.1f} times; {means[arm]['coefficients, error'] / nearest:.2f} times"),
    )


def plans(report: Report) -> Claim:
    rows = report["cells"] + report["tables"]
    return "A plan made before the study expects the error within 15 %", (
        f"in {sum(abs(row['expected'] / row['realised'] - 1) < 0.15 for row in rows)} of {len(rows)} studies"
    )


def outcomes(report: Report) -> Claim:
    gains = [
        mean(seed["eps = 3"]["log score"] - seed["alone"]["log score"] for seed in seeds)
        for seeds in report["cells"].values()
    ]
    return "Binary outcomes and counts: a release at eps = 3 predicts better than being alone", (
        f"in {sum(gain > 0 for gain in gains)} of {len(gains)} settings"
    )


def _spaced(number: int) -> str:
    return f"{number:,}".replace(",", " ")


def _range(shares: Iterable[float]) -> str:
    shares = list(shares)
    return f"{min(shares):.0%} to {max(shares):.0%}"


def _geometric(ratios: list[float]) -> float:
    return math.exp(mean(map(math.log, ratios)))
