"""Results page, generated from the experiments' JSON files with all its numbers."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mpmtl_prob._util.files import write_text
from studies.papers import adaptations, left_out, noises, paper, threats
from studies.papers.settings import STUDIES, Data
from studies.papers.verdicts import FAILS, HOLDS, HOLDS_2018, UNTESTED, once

Report = Mapping[str, Any]

_ORDER = (*STUDIES, threats.NAME, adaptations.NAME)
#: suffix of a column of standard errors, which is merged into its column's cells
ERROR = ", s.e."
#: largest number of columns of a table before it is transposed
MOST_COLUMNS = 10
_METRICS = {"nmse": "nMSE", "nmse_within": "nMSE within tasks", "auc": "average AUC"}

#: notes for readers on each figure
_READINGS = {
    "fig2": "The output of the first round does not depend on the rows. What protects the odd task is in the last columns.",
    "fig3": (
        "DP-MTRL protects a task by group privacy, at eps / n per row. Its noise is then far above its models, whatever the "
        "penalties: both shrink alike."
    ),
    "fig4": "The journal's caption gives this eps, the preprint's a tenth of it. Q_0 = 1 - sqrt(mu), as printed.",
    "fig5": (
        "The penalty was chosen under noise. Without noise it shrinks the models more: that, and not which noise was drawn, "
        f"is most of how far they move. Of DP-MTRL at this eps the papers state a log10 ratio of {paper.DP_MTRL_RATIO}; "
        "noise as they describe it, at eps / n per row, gives that of the table."
    ),
    "fig6": (
        "The papers give neither the scale of the weights nor how similar the tasks of a group are; both are ours. With "
        "tasks of a group all the same (similarity 1) the non-private gap is nearly theirs, with .95 two thirds of it. "
        "Hyper-parameters are searched as for Fig 9; noise-2018-synthetic searches all that the papers name."
    ),
    "fig7": "DP-MTRL is a reconstruction from the papers' description, with group privacy at eps / n per row.",
    "fig8": (
        "In the papers' data 75 tasks are similar, and then other groups begin: beyond that, more tasks are other tasks. "
        "Where all tasks are alike they go on being similar."
    ),
    "fig9": (
        "The papers name what they searched at every eps (lambda, T, acceleration, strong convexity, alpha and Q), and "
        "not the values that they tried, nor K, nor their splits. Here lambda, T and K were searched; noise-2018 "
        "searches all. What is not better than M = I was not shared. DP-MTRL is a reconstruction, with group privacy at "
        "eps / n per row; the papers' stays below the error of predicting zero at the smallest eps, which noise of the "
        "size that they describe does not allow."
    ),
    "fig10": (
        "People, not rows, are split: 30 % of the people with all their outcomes. The papers split every task apart, so that "
        "outcomes of one person fall on both sides. DP-MTRL is a reconstruction. Of DP-AGGR nothing is proved here, as its "
        "noise is scaled by counted rows."
    ),
    **dict.fromkeys(noises.NAMES, noises.SEARCHED),
    "training": "DP-MTRL is a reconstruction, with group privacy at eps / n per row.",
    "training-lsoa2": "As for Fig 10: people are split, and DP-MTRL is a reconstruction.",
}


def load(folder: Path) -> list[dict[str, Any]]:
    """Load the reports in a folder, in the order of the experiments. Raises FileNotFoundError if there are none."""
    paths = [folder / f"{name}.json" for name in _ORDER]
    reports = [json.loads(path.read_text()) for path in paths if path.is_file()]
    if not reports:
        raise FileNotFoundError(f"folder: no results of an experiment in {folder}; run mpmtl-prob reproduce NAME first")
    return reports


def write(folder: Path, path: Path) -> str:
    """Write the page for the reports in a folder, and return it. Raises FileNotFoundError as :func:`load` does."""
    text = page(load(folder), figures=os.path.relpath(folder, path.parent))
    write_text(path, text)
    return text


def page(reports: Sequence[Report], figures: str = "results") -> str:
    """Return the page as Markdown.

    Args:
        reports: reports of any of the experiments.
        figures: folder of their figures, relative to the page.
    """
    parts = [
        "# What reproduces, and what does not",
        _headline(reports, figures),
        "## The papers' claims",
        _claims(reports),
        "## Targets of the noise-aware posterior",
        _targets(reports),
        *(_section(report, figures) for report in reports),
        "## What is not reproduced",
        _left_out(),
        "## How it was made",
        _made(reports),
    ]
    return "\n\n".join(part for part in parts if part).rstrip() + "\n"


def brief(report: Report) -> str:
    """Summarise the verdicts and targets of one experiment in a few lines, for a terminal."""
    lines = [f"{report['name']} ({report['figure']}): {report['title']}"]
    lines += [f"  {v['verdict']}: claim {v['claim']}, {v['data']}: {v['why']}" for v in report["verdicts"]]
    lines += [
        f"  {'met' if t['met'] else 'not met'}: {t['data']}, {t['what']} at proved eps = {t['epsilon']:g}, "
        f"delta = 1/(m log m): {t['found']:.3f} ({t['goal']}){_beside(t, '; under replacement {}')}"
        for t in report["targets"]
    ]
    return "\n".join(lines)


_PRIORS = (
    "Its priors are the library's. That of owners' signal-to-noise ratios was set on made-up data of many other shapes; the "
    "constants of messages, the power and kappa by the test errors on School and the two synthetic sets."
)


def _headline(reports: Sequence[Report], figures: str) -> str:
    """Return the introduction: how many claims hold, and what privacy costs on real data."""
    verdicts = [verdict["verdict"] for _, verdict in once(reports)]
    targets = [target["met"] for report in reports for target in report["targets"]]
    lines = [
        "The experiments of the papers, run again with this library. An eps that is *claimed* is what the papers say; "
        f"*proved* is what holds. Of {len(verdicts)} verdicts on claims {verdicts.count(HOLDS)} say that they hold.",
        f"Another {verdicts.count(HOLDS_2018)} say that a claim {HOLDS_2018}." if HOLDS_2018 in verdicts else "",
        f"The noise-aware posterior meets {sum(targets)} of {len(targets)} goals." if targets else "",
        _fast(reports),
    ]
    introduction = " ".join(line for line in lines if line)
    return "\n\n".join(
        [introduction, *filter(None, (_real(report, figures) for report in reports if report["name"] == "fig9"))]
    )


def _real(report: Report, figures: str) -> str:
    """Return the figure of real data, and a table of it at eps = 1."""
    at = {entry["arm"]: entry for entry in report["curves"] if entry["epsilon"] in (None, 1.0)}
    if not {"noise-aware posterior", "Algorithm 2", "STL ridge", "MTL trace norm"} <= at.keys():
        return ""
    promises = {
        "STL ridge": "every school alone: nothing is shared",
        "Algorithm 2": f"tuned; true delta {_delta(at['Algorithm 2'], 'proved')}",
        "noise-aware posterior": f"nothing tuned; proved delta {_delta(at['noise-aware posterior'], 'proved')}",
        "MTL trace norm": "multi-task learning without any privacy",
    }
    rows = ((f"**{arm}**", _mean(at[arm]), promise) for arm, promise in promises.items())
    table = _table(("School, eps = 1", "error within schools", ""), rows)
    return f"![{report['title']}]({figures}/{report['name']}.png)\n\n{table}\n\nIn brackets: {report['interval']}."


def _fast(reports: Sequence[Report]) -> str:
    fast = [report["name"] for report in reports if report["fast"]]
    if not fast:
        return ""
    return (
        f"**Fast version** ({', '.join(fast)}): few candidates for every arm alike, few folds, fewer "
        "replications (every section says how many). Where they are few, intervals are wide and tests have little power: a "
        "claim that *holds* there was not contradicted."
    )


def _made(reports: Sequence[Report]) -> str:
    absent = [name for name in _ORDER if name not in {report["name"] for report in reports}]
    lines = [
        "`mpmtl-prob reproduce page` writes this page from the JSON files of the experiments, with every number in it."
    ]
    if absent:
        lines.append(f"Not run for this page: {', '.join(absent)}.")
    lines += next(([r["selection"], _PRIORS, r["noise"]] for r in reports if "selection" in r), [])
    made = _table(
        ("experiment", "command", "version of the library", "settings"),
        ((r["name"], f"`{r['command']}`", r["library_version"], r["settings_hash"]) for r in reports),
    )
    return " ".join(lines) + "\n\n" + made


def _claims(reports: Sequence[Report]) -> str:
    claims = once(reports)
    claims.sort(key=lambda pair: (not pair[1]["claim"].isdigit(), pair[1]["claim"]))
    counts = {
        word: sum(verdict["verdict"] == word for _, verdict in claims) for word in (HOLDS, HOLDS_2018, FAILS, UNTESTED)
    }
    head = ", ".join(f"{word}: {count}" for word, count in counts.items() if count or word != HOLDS_2018)
    rows = (
        (v["claim"], v["statement"], v["data"], f"**{v['verdict']}**", v["why"], _anchor(report))
        for report, v in claims
    )
    return f"Of {len(claims)} verdicts, {head}.\n\n" + _table(("no.", "claim", "data", "verdict", "why", "from"), rows)


def _targets(reports: Sequence[Report]) -> str:
    rows = [
        (
            t["data"],
            t["what"],
            f"{t['epsilon']:g}",
            t["goal"],
            f"{t['found']:.3f}",
            "met" if t["met"] else "**not met**",
            _beside(t, "{}", "-"),
        )
        for report in reports
        for t in report["targets"]
    ]
    if not rows:
        return "None of the experiments with targets was run."
    met = sum(row[5] == "met" for row in rows)
    head = (
        f"{met} of {len(rows)} are met. The guarantee is proved at the eps of the line with delta = 1/(m log m), zero-out. "
        "Beside it, where it was run, what is found at the same eps and delta proved under replacement. The "
        "shares of the gap were set as goals after a trial on one draw of the data, which was told the "
        "variance of the noise and the size of the weights: `python studies/benchmarks/told.py` shows what "
        "such knowledge is worth. The single-task arms choose one penalty on all tasks' rows, which no owner "
        "could: `python studies/benchmarks/alone.py` has those that an owner can run."
    )
    return f"{head}\n\n" + _table(("data", "measure", "eps", "target", "found", "", "found, replacement"), rows)


def _beside(target: Report, form: str, nothing: str = "") -> str:
    """Return the result under replacement adjacency in words, or ``nothing`` if there is none."""
    number = target.get("replacement")
    return nothing if number is None else form.format(f"{number:.3f}")


def _section(report: Report, figures: str) -> str:
    if "parts" in report:
        return _in_parts(report, figures)
    parts = [
        f"## {report['name']}: {report['title']}",
        f"{report['figure'][:1].upper()}{report['figure'][1:]} of the papers. {_READINGS.get(report['name'], '')}",
        _sizes(report),
        _noises(report),
        f"![{report['title']}]({figures}/{report['name']}.png)",
        *(_curves(report, data, tasks) for data in report["metrics"] for tasks in _values(report["curves"], "tasks")),
        _measures(report),
        *(f"Missing: {where}: {why}." for where, why in report["missing"].items()),
    ]
    return "\n\n".join(part for part in parts if part)


def _in_parts(report: Report, figures: str) -> str:
    """Return the section of a report in parts (threat models, adaptation), with the tables of every part."""
    sizes = ", ".join(f"{name} {value}" for name, value in report["settings"].items() if not isinstance(value, list))
    blocks = [
        f"## {report['name']}: {report['title']}",
        f"{report['figure']}. Settings: {sizes}. Noise is drawn in doubles from seeds: a rerun finds the same.",
        f"![{report['title']}]({figures}/{report['name']}.png)",
    ]
    for part in report["parts"].values():
        has_errors = any(key.endswith(ERROR) for rows in part["tables"] for key in rows[0])
        note = f"{part['note']} In brackets: standard errors." if has_errors else part["note"]
        blocks += [f"### {part['title']}", note, *(_upright(list(map(_cells, rows))) for rows in part["tables"])]
    return "\n\n".join(blocks)


def _cells(row: Report) -> dict[str, str]:
    """Return a table's row in words, with standard errors merged into the cells that they belong to."""
    return {
        key: _word(value) if row.get(key + ERROR) is None else _with_error(value, row[key + ERROR])
        for key, value in row.items()
        if not key.endswith(ERROR)
    }


def _upright(rows: Sequence[dict[str, str]]) -> str:
    """Return a table, transposed if it has more columns than rows and than fit on a page."""
    columns = [[key, *(row[key] for row in rows)] for key in rows[0]]
    if len(columns) > max(len(rows), MOST_COLUMNS):
        return _table(columns[0], columns[1:])
    return _table(tuple(rows[0]), [list(row.values()) for row in rows])


def _with_error(value: float, error: float) -> str:
    """Return a number with its error, both to the second digit of the error."""
    digits = max(0, 1 - math.floor(math.log10(error))) if error else 4
    return f"{value:.{digits}f} ({error:.{digits}f})"


def _word(value: Any) -> str:
    """Return a cell's text: four digits for numbers, and other values unchanged."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.0f}" if 1e4 <= abs(value) < 1e7 else f"{value:.4g}"
    return str(value)


def _sizes(report: Report) -> str:
    settings = report["settings"]
    effort = settings["effort"]
    shown = {Data(**data).name for data in settings["data"]}
    absent = [data.name for data in STUDIES[report["name"]].data if data.name not in shown]
    # Reports that do not say how similar the tasks of a group are were made when it was always .95.
    alike = {data.get("similarity", 0.95) for data in settings["data"] if data["kind"] in ("low rank", "alike")}
    similar = (
        f" Similarity of the tasks of a group: {', '.join(f'{value:g}' for value in sorted(alike))}." if alike else ""
    )
    return (
        f"{settings['replications']} replications; every {_ordinal(effort['stride'])} candidate of the grids, "
        f"{effort['folds']} folds; {effort['chains']} chains of {effort['draws']} draws. "
        f"Intervals: {report['interval']}.{similar}{f' Left out: {", ".join(absent)}.' if absent else ''}"
    )


def _shared(entry: Report | None) -> str:
    """Return a note on the guarantee of an arm without a budget."""
    if entry is None:
        return ""
    return ", not private" if entry["proved"] is None else ", nothing shared: eps = 0, delta = 0 proved"


def _ordinal(stride: int) -> str:
    return "single" if stride == 1 else {2: "2nd", 3: "3rd"}.get(stride, f"{stride}th")


def _curves(report: Report, data: str, tasks: int | None) -> str:
    """Return a table of arms by budgets, with the claimed and the proved delta below every private arm."""
    entries = [e for e in report["curves"] if e["data"] == data and e.get("tasks") == tasks]
    if not entries:
        return ""
    if any("exponent" in entry for entry in entries):
        return _by(entries, "exponent", "arm \\ exponent")
    epsilons = sorted({e["epsilon"] for e in entries if e["epsilon"] is not None})
    metric = _METRICS[report["metrics"][data]]
    rows: list[list[str]] = []
    for arm in _values(entries, "arm"):
        here = {entry["epsilon"]: entry for entry in entries if entry["arm"] == arm}
        across = [here.get(eps, here.get(None)) for eps in epsilons]
        rows.append([f"**{arm}**{_shared(here.get(None))}", *map(_mean, across)])
        if any(entry and entry.get("paper") is not None for entry in across):
            rows.append(["the papers' figure", *(_cell(entry, "paper", ".3f") for entry in across)])
        if any(entry and entry.get("coverage") is not None for entry in across):
            rows.append(["coverage of 90 % intervals", *(_cell(entry, "coverage", ".1%") for entry in across)])
        if None not in here:
            rows.append(["claimed delta at this eps", *(_delta(entry, "claimed") for entry in across)])
            rows.append(["proved delta at this eps", *(_delta(entry, "proved") for entry in across)])
    title = f"**{data}**, {metric}" + (f", {tasks} tasks" if tasks else "")
    return f"{title}\n\n" + _table(("eps", *(f"{eps:g}" for eps in epsilons)), rows)


def _noises(report: Report) -> str:
    """Return what explains the papers' curves, with a table of Algorithm 2 by its noise; "" for other reports."""
    if report["name"] not in noises.NAMES:
        return ""
    head = ("data", "eps", "the papers' figure", *noises.SCALES.values())
    deltas = (f"true delta, {scale}" for scale in noises.SCALES.values())
    rows = [
        (row["data"], f"{row['epsilon']:g}", _cell(row, "paper", ".3f"))
        + tuple(_short(row[arm]["mean"]) for arm in noises.SCALES)
        + tuple(_delta(row[arm], "proved") for arm in noises.SCALES)
        for row in noises.compared(report)
    ]
    return f"{noises.explanation(report)}\n\n{_table((*head, *deltas), rows)}"


def _left_out() -> str:
    return (
        _table(("of model-protected multi-task learning", "why it is left out"), left_out.LEFT_OUT)
        + f"\n\n{left_out.IP_MTL}"
    )


def _measures(report: Report) -> str:
    """Return a table of further measures, with the guarantees of the fits behind them."""
    names = list(report["measures"])
    if not names:
        return ""
    rows = []
    for first in report["measures"][names[0]]:
        place = (first["arm"], first["epsilon"])
        entries = [next((e for e in report["measures"][n] if (e["arm"], e["epsilon"]) == place), None) for n in names]
        bounds = [_delta(first, "claimed"), _delta(first, "proved")]
        rows.append([first["arm"], f"{first['epsilon']:g}", *map(_mean, entries), *bounds])
    head = ("arm", "eps", *(name.replace("_", " ") for name in names), "claimed delta", "proved delta")
    return _table(head, rows)


def _by(entries: Sequence[Report], axis: str, corner: str) -> str:
    values = sorted({entry[axis] for entry in entries})
    rows = []
    for arm in _values(entries, "arm"):
        here = {entry[axis]: entry for entry in entries if entry["arm"] == arm}
        rows.append([arm, *(_mean(here.get(value)) for value in values)])
    deltas = [entry["proved"]["delta"] for entry in entries if entry["proved"]]
    claimed = next((entry["claimed"] for entry in entries if entry["claimed"]), None)
    note = f"eps = {entries[0]['epsilon']:g}, nMSE of cross-validation."
    if claimed and deltas:
        note += f" Claimed delta {_delta(entries[0], 'claimed')}; proved delta {min(deltas):.2g} to {max(deltas):.2g}."
    return f"{note}\n\n" + _table((corner, *(f"{value:g}" for value in values)), rows)


def _mean(entry: Report | None) -> str:
    if entry is None or entry["mean"] is None:
        return "-"
    if entry["low"] is None:
        return _short(entry["mean"])
    return f"{_short(entry['mean'])} ({_short(entry['low'])} to {_short(entry['high'])})"


def _short(value: float) -> str:
    """Format a number with three decimals, or with three digits from 100 on."""
    return f"{value:.3f}" if abs(value) < 100 else f"{value:.3g}"


def _cell(entry: Report | None, key: str, form: str) -> str:
    return "-" if entry is None or entry.get(key) is None else format(entry[key], form)


def _delta(entry: Report | None, kind: str) -> str:
    if entry is None:
        return "-"
    if entry[kind] is None:
        return "none"
    bound = entry[kind]
    same = entry["epsilon"] is not None and abs(bound["epsilon"] / entry["epsilon"] - 1) < 1e-9
    at = "" if same else f" at eps = {bound['epsilon']:.3g}"
    return f"{bound['delta']:.2g}{at}, {bound['adjacency'].replace('_', '-')}"


def _values(entries: Iterable[Report], key: str) -> list[Any]:
    return list(dict.fromkeys(entry.get(key) for entry in entries))


def _anchor(report: Report) -> str:
    title = f"{report['name']}: {report['title']}".lower()
    return f"[{report['name']}](#{''.join(c for c in title if c.isalnum() or c in ' -').replace(' ', '-')})"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    def clean(cells: Sequence[str]) -> str:
        return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"

    return "\n".join([clean(head), "|" + "---|" * len(head), *map(clean, rows)])
