"""JSON file of a benchmark's numbers, with the command and the machine that they come from."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tomllib
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from mpmtl_prob._util.files import write_text
from studies.papers.runner import plain

_PROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"
_PACKAGES = ("numpyro", "jax", "numpy", "scipy", "arviz")


def option(parser: argparse.ArgumentParser) -> None:
    """Give a command its ``--json``."""
    parser.add_argument("--json", type=Path, metavar="OUT", help="write the numbers to this file too")


def write(path: Path | None, numbers: Mapping[str, Any], *peers: str) -> None:
    """Write numbers, with the command's arguments and the machine, where a path is given.

    Args:
        path: the file, or None.
        numbers: by name, as deep as need be.
        peers: other packages that were measured; a missing one has no version.
    """
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    report = plain({"command": command(sys.argv), "machine": machine(*peers), **numbers})
    write_text(path, json.dumps(report, indent=1) + "\n")


def command(argv: list[str]) -> str:
    """Return the command as typed in the root of the repository, without the file that it wrote its numbers to."""
    words = [f"studies/benchmarks/{Path(argv[0]).name}", *argv[1:]]
    if "--json" in words:
        at = words.index("--json")
        del words[at : at + 2]
    return " ".join(["python", *words])


def machine(*peers: str) -> dict[str, Any]:
    """Return cores, Python and the versions of the measured packages."""
    versions = {name: version for name in (*_PACKAGES, *peers) if (version := _version(name))}
    return {
        "cores": os.cpu_count(),
        "processor": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "mpmtl_prob": tomllib.loads(_PROJECT.read_text())["project"]["version"],
        "versions": versions,
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
