"""Run the attacks and print what was tried and what fell.

    python tests/attacks/run.py                       every class, at most an hour together (`make attack`)
    python tests/attacks/run.py parsing ledger        these classes
    python tests/attacks/run.py --package CHECKOUT    against another version, in a folder that holds mpmtl_prob
    python tests/attacks/run.py --json FILE           the counts as a file, for docs/security_testing.md

Every class runs in a process of its own, with a seed that is printed. The exit status is 1 if anything fell.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
#: The classes of attack, in the order in which they are reported.
CLASSES = ("parsing", "accounting", "audits", "ledger", "charges", "files", "secure_sum")


def attack(name: str, seed: int, effort: float) -> dict[str, Any]:
    """Run one class in this process; return its title, and of every way how many cases were tried and fell."""
    import numpy as np

    module = importlib.import_module(f"attacks.{name}")
    ways = {way: {"tried": 0, "fell": 0, "example": ""} for way in module.WAYS}
    started = time.monotonic()
    for case in module.cases(np.random.default_rng(seed), effort):
        count = ways[case.way]
        count["tried"] += 1
        if not case.held:
            count["fell"] += 1
            count["example"] = count["example"] or case.what
    title = (module.__doc__ or "").strip().splitlines()[0]
    return {"title": title, "ways": ways, "seconds": round(time.monotonic() - started, 1)}


def in_own_process(name: str, package: Path, seed: int, effort: float) -> dict[str, Any]:
    """Run one class against the package in a folder. Raises RuntimeError with the process's words where it fails."""
    code = (
        "import json, sys; from attacks import run; import mpmtl_prob; print(mpmtl_prob.__file__, file=sys.stderr); "
        f"print(json.dumps(run.attack({name!r}, {seed}, {effort})))"
    )
    path = os.pathsep.join([str(package), str(TESTS)])
    environment = os.environ | {"PYTHONPATH": path}
    # from that folder, as Python imports from the folder that it is started in before any other
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, cwd=package)
    if done.returncode:
        raise RuntimeError(f"the attack {name!r} ended with status {done.returncode}\n{done.stderr}")
    if not done.stderr.splitlines() or not any(line.startswith(str(package)) for line in done.stderr.splitlines()):
        raise RuntimeError(f"the attack {name!r} did not import the package in {package}\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("classes", nargs="*", help="which classes; default all")
    parser.add_argument("--package", type=Path, default=TESTS.parent, help="a folder that holds mpmtl_prob")
    parser.add_argument("--seed", type=int, default=0, help="seed of all random cases")
    parser.add_argument("--effort", type=float, default=1.0, help="share of the cases to try")
    parser.add_argument("--json", type=Path, help="write the counts there")
    options = parser.parse_args(arguments)
    results = {}
    for name in options.classes or CLASSES:
        results[name] = in_own_process(name, options.package.resolve(), options.seed, options.effort)
        print(f"{name}: {results[name]['title']} ({results[name]['seconds']:.0f} s)")
        for way, count in results[name]["ways"].items():
            verdict = f"{count['fell']} FELL, such as {count['example']}" if count["fell"] else "all held"
            print(f"  {count['tried']:7} tried, {verdict}: {way}", flush=True)
    counts = [count for result in results.values() for count in result["ways"].values()]
    fallen = sum(count["fell"] > 0 for count in counts)
    print(
        f"{sum(count['tried'] for count in counts)} cases, {len(counts)} ways, {fallen} of which fell (seed {options.seed})"
    )
    if options.json:
        options.json.write_text(
            json.dumps({"seed": options.seed, "effort": options.effort, "classes": results}, indent=1) + "\n"
        )
    return int(fallen > 0)


if __name__ == "__main__":
    sys.path.insert(0, str(TESTS))
    sys.exit(main())
