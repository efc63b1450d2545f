"""Results pages, generated from the experiments' JSON files with all their numbers.

An overview has one row per claim, and every experiment has a page of its own. A new experiment is one more name in
``_ORDER``, with a note for readers in ``_READINGS`` if its figure needs one; a new claim, one more entry in ``_SUMMARIES``.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mpmtl_prob._util.files import write_text
from studies.papers import adaptations, left_out, noises, paper, reasons, threats
from studies.papers.settings import STUDIES, Data
from studies.papers.verdicts import FAILS, HOLDS, HOLDS_2018, UNTESTED, once

Report = Mapping[str, Any]

_ORDER = (*STUDIES, threats.NAME, adaptations.NAME)
#: suffix of a column of standard errors, which is merged into its column's cells
ERROR = ", s.e."
#: largest number of columns of a table before it is transposed
MOST_COLUMNS = 10
_METRICS = {"nmse": "nMSE", "nmse_within": "nMSE within tasks", "auc": "average AUC"}

_LINE_BY_LINE = (
    "[The papers, line by line](papers.md), lists every algorithm, definition, bound, data set and figure with the call that "
    "runs it, and what is left out."
)
#: notes for readers on each figure
_READINGS = {
    "fig2": "The output of the first round does not depend on the rows. What protects the odd task is in the last columns.",
    "fig3": (
        "DP-MTRL protects a task by group privacy, at eps / n per row. Its noise is then far above its models, whatever the "
        "penalties: both shrink alike."
    ),
    "fig4": "The journal's caption gives this eps, the preprint's a tenth of it. Q_0 = 1 - sqrt(mu), as printed. "
    "Numbers of rounds with which budgets differ so much that no double holds both the largest and the least noise are left "
    "out since these numbers were computed.",
    "fig5": (
        "The penalty was chosen for fits with noise. Without noise the same penalty shrinks the models more, and most of the "
        "distance between the two fits comes from that, little from which noise was drawn. For DP-MTRL at this eps the "
        f"papers state a log10 ratio of {paper.DP_MTRL_RATIO}; the noise that they describe (eps / n per row) "
        "gives the one in the table."
    ),
    "fig6": (
        "The papers give neither the scale of the weights nor how similar the tasks of a group are; both are ours. With "
        "tasks of a group all the same (similarity 1) the non-private gap is nearly theirs, with .95 two thirds of it. "
        "Hyper-parameters are searched as for Fig 9; noise-2018-synthetic searches all that the papers name."
    ),
    "fig7": "DP-MTRL is a reconstruction from the papers' description, with group privacy at eps / n per row.",
    "fig8": (
        "In the papers' data 75 tasks are similar, and then other groups begin: beyond 75, more tasks means tasks of other "
        "kinds. In the data set where all tasks are alike, further tasks stay similar."
    ),
    "fig9": (
        "The papers name what they searched at every eps (lambda, T, acceleration, strong convexity, alpha and Q), and "
        "not the values that they tried, nor K, nor their splits. Here lambda, T and K were searched; noise-2018 searches "
        "all. An arm that is not better than Algorithm 2 with M = I gains nothing from sharing. DP-MTRL is a "
        "reconstruction, with group privacy at eps / n per row; the papers' stays below the error of predicting zero at "
        "the smallest eps, which noise of the size that they describe does not allow."
    ),
    "fig10": (
        "People, not rows, are split: 30 % of the people with all their outcomes. The papers split every task apart, so that "
        "outcomes of one person fall on both sides. DP-MTRL is a reconstruction. Of DP-AGGR nothing is proved here, as its "
        "noise is scaled by counted rows."
    ),
    "non-private": (
        "The papers' MTL in Figs 9 to 12 is the best of four methods without privacy: the trace norm, the l2,1 norm, task "
        "relations, and DP-AGGR without noise, which is one average model for all tasks. All but task relations are here."
    ),
    **dict.fromkeys(noises.NAMES, noises.SEARCHED),
    "noise-2018-lsoa2": (
        "With 293 attributes an arm takes minutes to tune at one eps: every arm has four candidates, Algorithm 2 of lambda, "
        "T and K, at two eps. Ridge and the trace norm are then below what they have in Fig 10 with 40 candidates. As there, "
        "people are split."
    ),
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


def write(folder: Path, path: Path) -> dict[Path, str]:
    """Write the pages for the reports in a folder, and return them. Raises FileNotFoundError as :func:`load` does."""
    texts = pages(load(folder), folder, path)
    path.with_suffix("").mkdir(exist_ok=True)
    for place, text in texts.items():
        write_text(place, text)
    return texts


def pages(reports: Sequence[Report], folder: Path, path: Path) -> dict[Path, str]:
    """Return the text of every page by its path: an overview with one row per claim, and a page for each experiment.

    Args:
        reports: reports of any of the experiments.
        folder: folder of their figures.
        path: the overview, ``X.md``; the other pages are in the folder ``X`` beside it.
    """
    details = path.with_suffix("")
    texts = {details / f"{report['name']}.md": _experiment(report, reports, folder, details) for report in reports}
    texts[details / "method.md"] = _method(reports)
    overview = (
        "# What reproduces, and what does not",
        _introduction(reports),
        _LINE_BY_LINE,
        *(_school(report, os.path.relpath(folder, path.parent)) for report in reports if report["name"] == "fig9"),
        _claims(reports, details.name),
        _contents(f"{details.name}/{place.stem}" for place in texts),
    )
    return {path: _joined(overview)} | texts


def _joined(parts: Iterable[str]) -> str:
    """Return the parts that are not empty, as paragraphs of one page."""
    return "\n\n".join(part for part in parts if part).rstrip() + "\n"


def _contents(pages: Iterable[str]) -> str:
    """Return the list of pages from which Sphinx makes the navigation."""
    return "\n".join(["```{toctree}", ":hidden:", "", *pages, "```"])


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


def _introduction(reports: Sequence[Report]) -> str:
    """Return the introduction: what the pages show, and how many claims hold."""
    verdicts = [verdict["verdict"] for _, verdict in once(reports)]
    met = [target["met"] for report in reports for target in report["targets"]]
    lines = [
        "The experiments of three papers, run again with this library. The tables say in how many settings (data sets, "
        "mostly) each of their claims holds. Behind the links are the figures, all numbers with their intervals, and the "
        "reason for each verdict. A private method has two values of delta there: *claimed* is what its paper states, "
        "*proved* what holds for every pair of data sets.",
        f"Of {len(verdicts)} verdicts, {verdicts.count(HOLDS)} say that a claim holds, {verdicts.count(HOLDS_2018)} that it "
        f"holds with the noise of 2018, which is not private at that eps, {verdicts.count(FAILS)} that it does not, and "
        f"{verdicts.count(UNTESTED)} that it cannot be tested here.",
        f"The noise-aware posterior, which is not from the papers, meets {sum(met)} of the {len(met)} goals set for it."
        if met
        else "",
        _fast(reports),
    ]
    return " ".join(line for line in lines if line)


def _school(report: Report, figures: str) -> str:
    """Return the School figure and what privacy costs there at eps = 1."""
    promises = {
        "STL ridge": "nothing is shared",
        "Algorithm 2": "eps is claimed; proved delta {}",
        "noise-aware posterior": "nothing tuned; proved delta {}",
        "MTL trace norm": "no privacy",
    }
    at = {entry["arm"]: entry for entry in report["curves"] if entry["epsilon"] in (1.0, None)}
    if not promises.keys() <= at.keys():
        return ""
    rows = (
        (f"**{arm}**", _mean(at[arm]), promise.format(_delta(at[arm], "proved"))) for arm, promise in promises.items()
    )
    table = _table(("School, eps = 1", "error within schools (95 % interval)", ""), rows)
    return f"![{report['title']}]({figures}/{report['name']}.png)\n\n{table}"


def _fast(reports: Sequence[Report]) -> str:
    fast = [report["name"] for report in reports if report["fast"]]
    if not fast:
        return ""
    return (
        f"**Fast version** ({', '.join(fast)}): fewer candidates, folds and replications, the same for every arm. Tests then "
        "have little power: *holds* means that nothing contradicted the claim."
    )


def _method(reports: Sequence[Report]) -> str:
    """Return the page about what all experiments have in common."""
    absent = [name for name in _ORDER if name not in {report["name"] for report in reports}]
    shared = next(([r["selection"], r["noise"]] for r in reports if "selection" in r), [])
    return _joined(
        (
            "# How the experiments were run",
            "`mpmtl-prob reproduce page` writes these pages, with all their numbers, from the JSON files of the experiments."
            + (f" Not run for these pages: {', '.join(absent)}." if absent else ""),
            *shared,
            _PRIORS if shared else "",
            _TABLES,
            "## What is not reproduced",
            _table(("of model-protected multi-task learning", "why it is left out"), left_out.LEFT_OUT),
            left_out.IP_MTL,
            "## Versions",
            _table(
                ("experiment", "command", "version of the library", "hash of the settings"),
                ((_link(r), f"`{r['command']}`", r["library_version"], r["settings_hash"]) for r in reports),
            ),
        )
    )


_TABLES = (
    "In the tables, *nMSE* is the mean squared error over the variance of the test targets, 1 for predicting their mean; "
    "*within tasks* divides by the deviations from each task's own mean instead. *STL* is single-task learning (each task "
    "alone), *MTL* multi-task learning without privacy. Deltas belong to the eps at the head of their column, and to a task "
    "that is zeroed out or replaced by any other; the [glossary](../glossary.md) has these words."
)
_PRIORS = (
    "The priors of the noise-aware posterior are the library's. That of owners' signal-to-noise ratios was set on made-up "
    "data of many other shapes. The constants of messages, the power and kappa were set by the test errors on School and the "
    "two synthetic data sets of these pages, which favours the posterior there."
)


#: the papers' claims in plain words, by the number or the place in the paper with which verdicts begin
_SUMMARIES = {
    "1": "Algorithm 2 is never worse than single-task learning (STL), and reaches multi-task learning (MTL) by eps = 10",
    "2": "Algorithm 3 is worse than Algorithm 2 on low-rank data, and as good on group-sparse data",
    "3": "DP-MTRL beats STL only on low-rank data and at large eps",
    "4": "DP-AGGR is worse than STL, unless all tasks are alike",
    "5": "The error falls with every doubling of the number of tasks",
    "6": "Acceleration helps, most with the exponents of Theorem 6",
    "7": "The noise exceeds the signal, but moves the models by less than a tenth",
    "8": "On real data, too, Algorithm 2 lies between STL and MTL, and beats DP-MTRL and DP-AGGR at small eps",
    "noise": "With the journal's noise, or with that of 2018, Algorithm 2 is as in claim 1",
    "Fig 2": "An odd task is copied into the others at eps = 1e40, and not at eps = 0.1",
    "Fig 3": "Models of Algorithm 2 show which tasks are similar; those of DP-MTRL do not",
    "Thms 4.2-4.4": "Errors follow the formulas, and grow with the number of questions only on a billboard",
    "Table 1": "Privacy costs what the table says, by who sees the answers",
    "section 5": "Errors of signs are the stated sums",
    "Def 2.8": "People who collude learn as much as the formula says",
    "Defs 2.1, 2.7, 2.8": "A billboard's guarantee implies the joint one, and that the 1-out-of-t one; never the reverse",
    "Def 2.7": "An attacker who knows all other answers reaches the bound",
    "odds": "What an attacker learns about one person stays within rho",
    "Thm 3.2": "Newcomers err at most e^eps times as much as participants, plus delta",
    "people": "The stated numbers of people suffice, and one fewer would not",
    "check": "Stated errors are measured, to all their digits",
    "posterior": "A posterior errs less than clipping",
    "DA Fig. 1": "The error falls with n and eps, down to nearly the error without privacy",
    "DA Fig. 2": "CnvxAdap errs less than noisy gradients on the target alone",
    "DA Fig. 3": "Private DM is not better than CnvxAdap",
    "DA Table 1": "Without privacy, CnvxAdap beats target only, KMM and DM",
    "DA Table 3": "Without privacy, NCnvxAdap is the most accurate",
    "DA": "One noisy release errs less than the paper's algorithms",
}


def _claims(reports: Sequence[Report], folder: str) -> str:
    """Return a table of claims for each paper: in how many settings each holds, with links to the reasons."""
    by_paper: dict[str, dict[str, list[tuple[Report, Report]]]] = {}
    for report, verdict in once(reports):
        claims = by_paper.setdefault(_paper(report), {})
        claims.setdefault(_number(verdict["claim"]), []).append((report, verdict))
    blocks = []
    for name, claims in by_paper.items():
        rows: list[tuple[str, ...]] = []
        for number in sorted(claims, key=lambda number: (not number.isdigit(), number if number.isdigit() else "")):
            sources = dict.fromkeys(report["name"] for report, _ in claims[number])
            links = ", ".join(f"[{source}]({folder}/{source}.md)" for source in sources)
            statement = _SUMMARIES.get(number) or claims[number][0][1]["statement"]
            rows.append((number, statement, _outcome([verdict["verdict"] for _, verdict in claims[number]]), links))
        blocks.append(f"## {name}\n\n" + _table(("", "claim", "holds in", "page"), rows))
    return "\n\n".join(blocks)


def _paper(report: Report) -> str:
    """Return the title of the paper that an experiment is from."""
    return report["figure"].split(", section")[0] if "parts" in report else "Model-Protected Multi-Task Learning (2022)"


def _number(claim: str) -> str:
    """Return the key of ``_SUMMARIES`` of a claim, such as "odds" of "odds, rho"; the claim itself if there is none."""
    parts = claim.split(", ")
    starts = (", ".join(parts[:n]) for n in range(len(parts), 0, -1))
    return next((start for start in starts if start in _SUMMARIES), claim)


def _outcome(verdicts: Sequence[str]) -> str:
    """Return in how many settings a claim holds, in words."""
    untested = verdicts.count(UNTESTED)
    if untested == len(verdicts):
        return UNTESTED
    count = f"{verdicts.count(HOLDS)} of {len(verdicts) - untested}"
    if with_2018 := verdicts.count(HOLDS_2018):
        count += f", {with_2018} {HOLDS_2018.removeprefix('holds ')}"
    return f"{count}, {untested} {UNTESTED}" if untested else count


def _verdicts(report: Report, reports: Sequence[Report]) -> str:
    """Return the table of verdicts that come from one experiment."""
    mine = [verdict for source, verdict in once(reports) if source["name"] == report["name"]]
    if not mine:
        return ""
    rows = [(v["claim"], v["statement"], v["data"], f"**{v['verdict']}**", v["why"]) for v in mine]
    table = _table(("no.", "claim", "data", "verdict", "why"), rows)
    return "\n\n".join(part for part in ("## Verdicts", table, reasons.of_claims(report)) if part)


def _targets(report: Report) -> str:
    """Return the table of goals that were set for the noise-aware posterior before the experiment."""
    if not report["targets"]:
        return ""
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
        for t in report["targets"]
    ]
    met = sum(t["met"] for t in report["targets"])
    return (
        f"## Goals for the noise-aware posterior\n\n{met} of {len(rows)} are met. The guarantee is proved at the eps of the "
        "row with delta = 1/(m log m), for a task that is zeroed out; the last column is for one that is replaced. "
        f"{_GOALS.get(report['name'], '')}\n\n"
        + _table(("data", "measure", "eps", "goal", "result", "", "result, replacement"), rows)
        + (f"\n\nWhy not:\n\n{unmet}" if (unmet := reasons.of_goals(report)) else "")
    )


#: where the goals of an experiment come from, and what they are worth
_GOALS = {
    "fig6": (
        "*Share of the gap* is how much of the distance between single-task ridge and the trace norm without privacy is "
        "closed. These goals come from a trial on one draw of the data, in which the variance of the noise and the size of "
        "the weights were known; `python studies/benchmarks/told.py` measures what that knowledge is worth."
    ),
    "fig9": (
        "The single-task arms choose one penalty on all tasks' rows, which no owner could do; "
        "`python studies/benchmarks/alone.py` compares with arms that an owner can run."
    ),
}


def _beside(target: Report, form: str, nothing: str = "") -> str:
    """Return the result under replacement adjacency in words, or ``nothing`` if there is none."""
    number = target.get("replacement")
    return nothing if number is None else form.format(f"{number:.3f}")


def _experiment(report: Report, reports: Sequence[Report], folder: Path, place: Path) -> str:
    """Return the page of one experiment; ``place`` is the folder in which the page is."""
    picture = f"![{report['title']}]({Path(os.path.relpath(folder, place), report['name'] + '.png').as_posix()})"
    body = _in_parts(report, picture) if "parts" in report else _in_curves(report, reports, picture)
    made = f"Made by `{report['command']}`, version {report['library_version']}; [how experiments are run](method.md)."
    return _joined(
        (f"# {report['name']}: {report['title']}", *body, _verdicts(report, reports), _targets(report), made)
    )


def _in_curves(report: Report, reports: Sequence[Report], picture: str) -> list[str]:
    """Return the blocks of a report with curves over eps."""
    return [
        f"{report['figure'][:1].upper()}{report['figure'][1:]} of the papers. {_READINGS.get(report['name'], '')}",
        picture,
        _sizes(report),
        reasons.of_average(report, reports),
        _noises(report),
        *(_curves(report, data, tasks) for data in report["metrics"] for tasks in _values(report["curves"], "tasks")),
        _measures(report),
        *(f"Missing: {where}: {why}." for where, why in report["missing"].items()),
    ]


def _in_parts(report: Report, picture: str) -> list[str]:
    """Return the blocks of a report in parts (threat models, adaptation), with the tables of every part."""
    sizes = ", ".join(f"{name} {value}" for name, value in report["settings"].items() if not isinstance(value, list))
    blocks = [
        f"{report['figure']}. Settings: {sizes}. Noise is drawn in doubles from seeds: a rerun finds the same.",
        picture,
    ]
    for part in report["parts"].values():
        has_errors = any(key.endswith(ERROR) for rows in part["tables"] for key in rows[0])
        note = f"{part['note']} In brackets: standard errors." if has_errors else part["note"]
        blocks += [f"## {part['title']}", note, *(_upright(list(map(_cells, rows))) for rows in part["tables"])]
    return blocks


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
    alike = {data["similarity"] for data in settings["data"] if data["kind"] in ("low rank", "alike")}
    similar = f" Similarity of the tasks of a group: {', '.join(f'{one:g}' for one in sorted(alike))}." if alike else ""
    candidates = "all candidates" if effort["stride"] == 1 else f"every {_ordinal(effort['stride'])} candidate"
    return (
        f"{settings['replications']} replications. Hyper-parameters: {effort['folds']}-fold cross-validation over "
        f"{candidates} of the grids. Posteriors: {effort['chains']} chains of {effort['draws']} draws. "
        f"In brackets: {report['interval']}.{similar}{f' Left out: {", ".join(absent)}.' if absent else ''}"
    )


def _shared(entry: Report | None) -> str:
    """Return a note on the guarantee of an arm without a budget."""
    if entry is None:
        return ""
    return ", not private" if entry["proved"] is None else ", nothing shared: eps = 0, delta = 0 proved"


def _ordinal(stride: int) -> str:
    return {2: "2nd", 3: "3rd"}.get(stride, f"{stride}th")


def _curves(report: Report, data: str, tasks: int | None) -> str:
    """Return a table of arms by budgets, with the claimed and the proved delta below every private arm."""
    entries = [e for e in report["curves"] if e["data"] == data and e.get("tasks") == tasks]
    if not entries:
        return ""
    if any("exponent" in entry for entry in entries):
        return _by(entries, "exponent", "arm \\ exponent")
    epsilons = sorted({e["epsilon"] for e in entries if e["epsilon"] is not None}) or [None]
    metric = _METRICS[report["metrics"][data]]
    rows: list[list[str]] = []
    for arm in _values(entries, "arm"):
        here = {entry["epsilon"]: entry for entry in entries if entry["arm"] == arm}
        across = [here.get(eps, here.get(None)) for eps in epsilons]
        rows.append([f"**{arm}**{_shared(here.get(None))}", *_same(list(map(_mean, across)), None in here)])
        if any(entry and entry.get("paper") is not None for entry in across):
            papers = [_cell(entry, "paper", ".3f") for entry in across]
            rows.append(["the papers' figure", *_same(papers, None in here)])
        if any(entry and entry.get("coverage") is not None for entry in across):
            rows.append(["coverage of 90 % intervals", *(_cell(entry, "coverage", ".1%") for entry in across)])
        if None not in here:
            rows.append(["claimed delta at this eps", *(_delta(entry, "claimed") for entry in across)])
            rows.append(["proved delta at this eps", *(_delta(entry, "proved") for entry in across)])
    title = f"**{data}**, {metric}" + (f", {tasks} tasks" if tasks else "")
    return f"{title}\n\n" + _table(("eps", *("any" if eps is None else f"{eps:g}" for eps in epsilons)), rows)


def _same(cells: Sequence[str], no_budget: bool) -> list[str]:
    """Return the cells of a row; of an arm without a budget, whose number is the same at every eps, only the first."""
    return [cells[0], *["same"] * (len(cells) - 1)] if no_budget else list(cells)


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


def _link(report: Report) -> str:
    return f"[{report['name']}]({report['name']}.md)"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    def clean(cells: Sequence[str]) -> str:
        return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"

    return "\n".join([clean(head), "|" + "---|" * len(head), *map(clean, rows)])
