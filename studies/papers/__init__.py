"""Reproduction of the papers' experiments, from settings to verdicts: ``mpmtl-prob reproduce NAME``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mpmtl_prob._util.files import write_netcdf, write_text
from studies.papers import adaptations, figures, page, threats
from studies.papers.adaptations import Adaptations
from studies.papers.runner import run
from studies.papers.settings import STUDIES, Data, Effort, Study, Unit
from studies.papers.summary import summarise
from studies.papers.threat_settings import ThreatModels
from studies.papers.verdicts import Verdict, verdicts
from studies.papers.workers import Workers

__all__ = [
    "EXPERIMENTS",
    "STUDIES",
    "Adaptations",
    "Data",
    "Effort",
    "Study",
    "ThreatModels",
    "Unit",
    "Verdict",
    "Workers",
    "page",
    "reproduce",
    "run",
    "verdicts",
]

#: experiments by the name in the command
EXPERIMENTS: dict[str, Study | ThreatModels | Adaptations] = {
    **STUDIES,
    threats.NAME: ThreatModels(),
    adaptations.NAME: Adaptations(),
}


def reproduce(
    study: Study | ThreatModels | Adaptations,
    out: Path,
    *,
    fast: bool = False,
    command: str = "",
    workers: Workers | None = None,
    progress_bar: bool = True,
) -> dict[str, Any]:
    """Run the missing units of an experiment, and write its data set, report and picture.

    It writes ``NAME.nc``, ``NAME.json`` and, with matplotlib, ``NAME.png`` to ``out``, and every finished unit to
    ``out/units``. The threat models and adaptation have no ``NAME.nc``, as all numbers are in the report.

    Args:
        study: one of ``EXPERIMENTS.values()``, its fast version, or your own.
        out: folder.
        fast: True for the version that takes minutes, :meth:`Study.fast`.
        command: what the user typed, for the report.
        workers: processes that compute the units in parallel; default this process.
        progress_bar: show one.

    Returns:
        The report.

    Raises:
        FileNotFoundError: a data set is missing; the message says where to put it.
    """
    out.mkdir(parents=True, exist_ok=True)
    options: Any = {"fast": fast, "command": command, "workers": workers, "progress_bar": progress_bar}
    if isinstance(study, ThreatModels):
        return threats.reproduce(study, out, **options)
    if isinstance(study, Adaptations):
        return adaptations.reproduce(study, out, **options)
    results = run(study, out / "units", workers=workers, progress_bar=progress_bar)
    report = summarise(study, results, fast=fast, command=command or f"mpmtl-prob reproduce {study.name}")
    write_netcdf(results, out / f"{study.name}.nc", private=False)
    write_text(out / f"{study.name}.json", json.dumps(report, indent=1) + "\n")
    figures.draw(report, results, out / f"{study.name}.png")
    return report
