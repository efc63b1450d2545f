"""Threat model experiment: exact and measured errors, attacks, newcomers, and odds. It takes minutes on one core.

Source: Aliakbarpour et al. (2024), Table 1, Theorems 3.2 and 4.2 to 4.4, Definitions 2.1, 2.7 and 2.8.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from mpmtl_prob._util.files import write_text
from studies.papers import threat_attacks, threat_errors, threat_figures, threat_posteriors
from studies.papers.runner import digest, library_version, plain
from studies.papers.threat_settings import NAME, ThreatModels
from studies.papers.workers import Workers, as_done

#: parts by the name of their file; each is a function of the settings alone
PARTS: dict[str, Callable[[ThreatModels], dict[str, Any]]] = {
    "people": threat_errors.against_people,
    "questions": threat_errors.against_questions,
    "coalitions": threat_attacks.coalitions,
    "matrix": threat_attacks.matrix,
    "newcomers": threat_errors.newcomers,
    "needed": threat_errors.needed,
    "check": threat_errors.check,
    "information": threat_attacks.information,
    "calibration": threat_attacks.calibration,
    "posteriors": threat_posteriors.posteriors,
}


def reproduce(
    settings: ThreatModels,
    out: Path,
    *,
    fast: bool = False,
    command: str = "",
    workers: Workers | None = None,
    progress_bar: bool = True,
) -> dict[str, Any]:
    """Compute the missing parts; write ``threat-models.json`` and, with matplotlib, ``threat-models.png``.

    Args:
        settings: settings of all parts.
        out: folder.
        fast: True for the fast version.
        command: what the user typed, for the report.
        workers: processes that compute the parts in parallel; default this process.
        progress_bar: show one.

    Returns:
        The report.
    """
    key = digest({"version": library_version(), **asdict(settings)})
    folder = out / "units" / f"{NAME}-{key}"
    folder.mkdir(parents=True, exist_ok=True)
    paths = {name: folder / f"{name}.json" for name in PARTS}
    missing = [(name, settings) for name, path in paths.items() if not path.is_file()]
    with tqdm(total=len(PARTS), initial=len(PARTS) - len(missing), desc=NAME, disable=not progress_bar) as bar:
        for (name, _), result in as_done(_part, missing, workers):
            write_text(paths[name], json.dumps(plain(result)))
            bar.set_postfix_str(name)
            bar.update()
    parts = {name: json.loads(path.read_text()) for name, path in paths.items()}
    report = {
        "name": NAME,
        "figure": "Privacy in Metalearning and Multitask Learning (2024), sections 3 to 5",
        "title": "Who sees what, and what it costs",
        "fast": fast,
        "command": command or f"mpmtl-prob reproduce {NAME}",
        "library_version": library_version(),
        "settings": plain(asdict(settings)),
        "settings_hash": key,
        "parts": parts,
        "verdicts": [verdict for part in parts.values() for verdict in part["verdicts"]],
        "targets": [],
    }
    write_text(out / f"{NAME}.json", json.dumps(report, indent=1) + "\n")
    threat_figures.draw(report, out / f"{NAME}.png")
    return report


def _part(name: str, settings: ThreatModels) -> dict[str, Any]:
    return PARTS[name](settings)
