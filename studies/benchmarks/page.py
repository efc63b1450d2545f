"""Build docs/benchmarks.md and the pages in docs/benchmarks from the JSON files there: no number is typed by hand.

    python studies/benchmarks/page.py

`make bench` and `make evidence` run it after the benchmarks. A new benchmark is one more entry in ``PAGES``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import page_claims
import page_evidence
import page_outcomes
import page_panel
import page_plans
import page_pooled
import page_several
import page_speed
from tables import Report, as_table

DOCS = Path(__file__).resolve().parents[2] / "docs"
#: the picture of the overview, in docs/benchmarks
PICTURE = "overview.png"


class Section(NamedTuple):
    """A benchmark on a page.

    Attributes:
        title: its heading.
        write: yields its paragraphs and tables from the report.
        claim: returns one claim and its number, for the overview.
    """

    title: str
    write: Callable[[Report], Iterable[str]]
    claim: Callable[[Report], page_claims.Claim]


#: pages by file name: title, and sections by the name of their report
PAGES: dict[str, tuple[str, dict[str, Section]]] = {
    "mixed_models": (
        "Mixed models with privacy",
        {"panel": Section("Made-up studies and real tables", page_panel.panel, page_claims.panel)},
    ),
    "outcomes": (
        "Binary outcomes and counts",
        {"outcomes": Section("Beside being alone, and without privacy", page_outcomes.outcomes, page_claims.outcomes)},
    ),
    "pooled_mixed_models": (
        "Beside lme4, statsmodels, PyMC and NumPyro",
        {"pooled_mixed_models": Section("Time, memory and error", page_pooled.pooled, page_claims.pooled)},
    ),
    "plans": (
        "What a study is told to expect",
        {"plans": Section("Plans beside what happened", page_plans.plans, page_claims.plans)},
    ),
    "gain": (
        "What a release is worth",
        {
            "gap": Section("What one release is worth", page_evidence.gap, page_claims.gap),
            "alone": Section("Where the release says nothing", page_evidence.alone, page_claims.alone),
            "told": Section(
                "What it would be worth to know how much features explain", page_evidence.told, page_claims.told
            ),
            "several": Section("One posterior of several releases", page_several.several, page_claims.several),
            "newcomers": Section("Schools that did not take part", page_evidence.newcomers, page_claims.newcomers),
        },
    ),
    "choices": (
        "Which model for which data",
        {
            "shapes": Section("Data of many shapes", page_evidence.shapes, page_claims.shapes),
            "choices": Section("Do a second round and a low rank pay?", page_evidence.choices, page_claims.choices),
        },
    ),
    "coverage": (
        "Do intervals cover what they say?",
        {
            "intervals": Section("Data from the model", page_evidence.coverage, page_claims.coverage),
            "own_message": Section("An owner's own message", page_evidence.own_message, page_claims.own_message),
            "misfit": Section("Data that the model does not describe", page_evidence.misfit, page_claims.misfit),
        },
    ),
    "calibration": (
        "Do samplers sample the posterior?",
        {
            "calibration": Section("The curator's models", page_evidence.calibration, page_claims.calibration),
            "calibration_shared": Section(
                "Structures of the shared covariance", page_evidence.calibration, page_claims.calibration
            ),
            "calibration_effects": Section(
                "Average effects and their spread", page_evidence.calibration, page_claims.calibration
            ),
            "defaults": Section(
                "Does the default pass its own diagnosis?", page_evidence.defaults, page_claims.defaults
            ),
        },
    ),
    "adaptation": (
        "A public source and a private target",
        {
            "adaptation": Section("Errors beside other methods", page_evidence.adaptation, page_claims.adaptation),
            "calibration_adaptation": Section(
                "Coverage, on data from the model",
                page_evidence.covered_by_adaptation,
                page_claims.covered_by_adaptation,
            ),
        },
    ),
    "waiting": (
        "How long a user waits",
        {
            "speed": Section("Imports, compilation, draws", page_speed.speed, page_claims.speed),
            "first_answer": Section(
                "From a CSV file to a table of coefficients", page_speed.first_answer, page_claims.first_answer
            ),
        },
    ),
    "other_packages": (
        "Speed beside other packages",
        {
            "estimators": Section("Estimators", page_speed.peers, page_claims.estimators),
            "samplers": Section("Samplers of the curator's posterior", page_speed.samplers, page_claims.samplers),
            "public": Section("The public posterior, with weights latent", page_speed.public, page_claims.public),
        },
    ),
    "growth": (
        "Many tasks, and large ones",
        {
            "scaling": Section("How cost grows", page_speed.scaling, page_claims.scaling),
            "streamed": Section("Tasks that do not fit in memory", page_speed.streamed, page_claims.streamed),
            "memory": Section(
                "Memory, where one task is far larger than the others", page_speed.memory, page_claims.memory
            ),
        },
    ),
    "no_curator": (
        "Releases without a curator",
        {
            "federated": Section("One process", page_speed.federated, page_claims.federated),
            "nodes": Section("One table over several nodes", page_speed.nodes, page_claims.nodes),
            "nodes_million": Section("The same, a million tasks", page_speed.nodes, page_claims.nodes),
        },
    ),
}


def load(folder: Path) -> dict[str, Report]:
    """Return the reports by the name of their file, in the order of the pages."""
    names = [name for _, sections in PAGES.values() for name in sections]
    return {name: json.loads(path.read_text()) for name in names if (path := folder / f"{name}.json").is_file()}


def pages(reports: Mapping[str, Report]) -> dict[str, str]:
    """Return the text of every page with a report, by its path in docs; the overview comes first."""
    present = {
        place: (title, {name: section for name, section in sections.items() if name in reports})
        for place, (title, sections) in PAGES.items()
        if reports.keys() & sections.keys()
    }
    texts = {f"benchmarks/{place}.md": _page(title, sections, reports) for place, (title, sections) in present.items()}
    rows = [
        (
            *section.claim(reports[name]),
            f"[{title}](benchmarks/{place}.md)" if n == 0 else f"[same page](benchmarks/{place}.md)",
        )
        for place, (title, sections) in present.items()
        for n, (name, section) in enumerate(sections.items())
    ]
    contents = ["```{toctree}", ":hidden:", "", *(f"benchmarks/{place}" for place in present), "```"]
    overview = ["# Benchmarks and evidence", *_introduction(reports), as_table(("claim", "number", "page"), rows)]
    return {"benchmarks.md": "\n\n".join([*overview, "\n".join(contents)]) + "\n"} | texts


def _page(title: str, sections: Mapping[str, Section], reports: Mapping[str, Report]) -> str:
    parts = [f"# {title}"]
    for name, section in sections.items():
        parts += [f"## {section.title}", f"`{_tidy(reports[name]['command'])}`", *section.write(reports[name])]
    return "\n\n".join([*parts, "## Machines", _machines({name: reports[name] for name in sections})]) + "\n"


def _introduction(reports: Mapping[str, Report]) -> Iterable[str]:
    absent = [name for _, sections in PAGES.values() for name in sections if name not in reports]
    yield (
        "Is it right, what is it worth, and how fast is it? Every row is one claim with its number; the page behind it has "
        "all numbers and the command that makes them. `make evidence` runs the benchmarks of correctness (hours), `make "
        "bench` most of those of speed (minutes), and `python studies/benchmarks/page.py` writes these pages. Machines are "
        "never quiet: of times, only ratios within one run are compared. Where a row names eps, delta is 1 / (m log m) for m "
        "tasks, and a whole task is protected."
    ) + (f" Not run for these pages: {', '.join(absent)}." if absent else "")
    if "panel" in reports:
        yield (
            f"![Errors of coefficients in made-up studies: alone, with a release, without privacy](benchmarks/{PICTURE})"
        )
        yield (
            "*Made-up studies, one a line: squared error of the tasks' coefficients with one release (blue), and with a "
            "mixed model of all rows without privacy (black), relative to a task alone (grey). Blue left of grey is a gain.*"
        )


def _machines(reports: Mapping[str, Report]) -> str:
    machines: dict[str, list[str]] = {}
    for name, report in reports.items():
        machines.setdefault(_machine(report["machine"]), []).append(name)
    return "\n".join(f"- {', '.join(names)}: {words}" for words, names in machines.items())


def _machine(machine: Report) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    return (
        f"{machine['cores']} cores ({machine['processor']}, {machine['system']}), Python {machine['python']}, "
        f"mpmtl_prob {machine['mpmtl_prob']}, {versions}."
    )


def _tidy(command: str) -> str:
    """Return a command without where somebody's other environment is."""
    return re.sub(r"--before \S+", "--before CHECKOUT", re.sub(r"--cuqi \S+", "--cuqi PYTHON", command))


def draw(report: Report, path: Path) -> None:
    """Draw the errors of the made-up studies of the panel relative to a task alone."""
    from matplotlib.figure import Figure

    cells = [cell for cell in report["cells"] if {"alone, evidence", "default", "mixed"} <= cell["errors"].keys()]
    ratio = lambda cell, arm: cell["errors"][arm]["mean"] / cell["errors"]["alone, evidence"]["mean"]
    cells.sort(key=lambda cell: ratio(cell, "default"))
    figure = Figure(figsize=(8, 4), layout="constrained")
    ax = figure.subplots()
    places = range(len(cells))
    ours, ideal = ([ratio(cell, arm) for cell in cells] for arm in ("default", "mixed"))
    ax.hlines(places, ours, 1, color="0.85", linewidth=1, zorder=1)
    ax.axvline(1, color="0.6", label="each task alone")
    ax.plot(ours, places, "o", color="C0", markersize=5, label="with one release")
    ax.plot(ideal, places, "|", color="k", markersize=7, label="all rows pooled, no privacy")
    ax.set_yticks([])
    ax.set_ylabel(f"{len(cells)} made-up studies")
    ax.set_xlim(0, None)
    ax.set_xlabel("squared error of coefficients, relative to each task alone")
    ax.legend(loc="upper left", frameon=False)
    ax.spines[["top", "right", "left"]].set_visible(False)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    REPORTS = load(DOCS / "benchmarks")
    for name, text in pages(REPORTS).items():
        (DOCS / name).write_text(text)
    if "panel" in REPORTS:
        draw(REPORTS["panel"], DOCS / "benchmarks" / PICTURE)
