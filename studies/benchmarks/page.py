"""Build docs/benchmarks.md from the JSON files of the benchmarks: no number in it is typed by hand.

    python studies/benchmarks/page.py

`make bench` and `make evidence` run it after the benchmarks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import page_evidence
import page_outcomes
import page_panel
import page_plans
import page_several
import page_speed
from tables import Report

DOCS = Path(__file__).resolve().parents[2] / "docs"


def load(folder: Path) -> dict[str, Report]:
    """Reports by the name of their file, in the order of the page."""
    return {name: json.loads(path.read_text()) for name in SECTIONS if (path := folder / f"{name}.json").is_file()}


def page(reports: Mapping[str, Report]) -> str:
    """The page as Markdown."""
    parts = ["# Benchmarks and evidence", _preamble(reports)]
    for name, (title, section) in SECTIONS.items():
        if name in reports:
            parts += [f"## {title}", f"`{_tidy(reports[name]['command'])}`", *section(reports[name])]
    parts += ["## Machines", _machines(reports)]
    return "\n\n".join(parts) + "\n"


def _preamble(reports: Mapping[str, Report]) -> str:
    absent = [name for name in SECTIONS if name not in reports]
    return (
        "This page is made by `python studies/benchmarks/page.py` from the JSON files of the benchmarks. `make "
        "bench` runs most of those of speed, `make evidence` those of correctness, which takes hours where the "
        "other takes minutes. A machine is never as quiet as one would like: only ratios within one run are "
        "shown, and exponents."
    ) + (f" Not run for this page: {', '.join(absent)}." if absent else "")


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
    """Without where somebody's other environment lies."""
    return re.sub(r"--before \S+", "--before CHECKOUT", re.sub(r"--cuqi \S+", "--cuqi PYTHON", command))


Section = tuple[str, Callable[[Report], Iterable[str]]]
SECTIONS: dict[str, Section] = {
    "speed": ("How long a user waits", page_speed.speed),
    "estimators": ("Estimators beside other code", page_speed.peers),
    "samplers": ("Samplers of the curator's posterior", page_speed.samplers),
    "public": ("The public posterior beside W latent", page_speed.public),
    "scaling": ("How cost grows", page_speed.scaling),
    "streamed": ("Tasks that do not fit in memory", page_speed.streamed),
    "first_answer": ("From a CSV file to a table of coefficients", page_speed.first_answer),
    "memory": ("Memory, where one task is far larger than the others", page_speed.memory),
    "federated": ("A release without a curator", page_speed.federated),
    "nodes": ("One table over several nodes", page_speed.nodes),
    "nodes_million": ("The same, a million tasks", page_speed.nodes),
    "adaptation": ("A public source and a private target", page_evidence.adaptation),
    "calibration_adaptation": ("Coverage of adaptation, on data from its model", page_evidence.covered_by_adaptation),
    "intervals": ("Coverage", page_evidence.coverage),
    "calibration": ("Calibration of the curator's models", page_evidence.calibration),
    "calibration_shared": ("Calibration of the structures of the shared covariance", page_evidence.calibration),
    "calibration_effects": ("Calibration of average effects and their spread", page_evidence.calibration),
    "gap": ("What one release is worth", page_evidence.gap),
    "alone": ("Where the release says nothing", page_evidence.alone),
    "told": ("What it would be worth to know how much features explain", page_evidence.told),
    "shapes": ("Data of many shapes", page_evidence.shapes),
    "choices": ("Do a second round and a low rank pay?", page_evidence.choices),
    "defaults": ("Does the default pass its own diagnosis?", page_evidence.defaults),
    "misfit": ("Data that the model does not mean", page_evidence.misfit),
    "own_message": ("An owner's own message", page_evidence.own_message),
    "panel": ("Mixed models with privacy", page_panel.panel),
    "plans": ("What a study is told to expect", page_plans.plans),
    "several": ("One posterior of several releases", page_several.several),
    "outcomes": ("Binary outcomes and counts", page_outcomes.outcomes),
    "newcomers": ("Schools that did not take part", page_evidence.newcomers),
}


if __name__ == "__main__":
    (DOCS / "benchmarks.md").write_text(page(load(DOCS / "benchmarks")))
