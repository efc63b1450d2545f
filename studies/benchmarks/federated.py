"""Cost of a release over many owners, for each of them: CPU and bytes, by their number and by how many share masks.

    python studies/benchmarks/federated.py [--owners 30 139 300] [--partners 20] [--many 1000] [--json OUT]
    python studies/benchmarks/federated.py --vanish 1000 10000

All owners run in one process, one after the other, so that CPU seconds over their number are one owner's, with its part of
the server's. Every owner has 27 features, as School has, and its message is made before: what is measured is the sum and the
noise. The second command runs nothing: it says how many of so many owners may vanish, by how many share masks.
"""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np
import record

from mpmtl_prob import federated

FEATURES = 27


def measure(owners: int, partners: int | None, trust: str) -> dict[str, Any]:
    """Measure one run."""
    W = np.random.default_rng(0).standard_normal((FEATURES, owners))
    invitation = federated.invite(1.0, owners, FEATURES, trust=trust, partners=partners, scaling="none")
    sites = [federated.Site(i, W[:, [i]]) for i in range(owners)]
    begin = time.process_time()
    run = federated.run(invitation, sites, progress_bar=False)
    spent = time.process_time() - begin
    moved = sum(run.moved.values())
    return {
        "owners": owners,
        "partners": partners or owners - 1,
        "trust": trust,
        "CPU seconds": spent,
        "CPU milliseconds an owner": 1000 * spent / owners,
        "kB an owner": moved / owners / 1000,
        "peak GB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    }


def vanish(owners: list[int]) -> None:
    """Print a table for the guide: default dropouts, at a risk of 1e-6 of no release."""
    print("| partners | " + " | ".join(f"of {n}" for n in owners) + " |\n|---|" + "---|" * len(owners))
    for partners in (20, 40, 60, 100, 200):
        allowed = [federated.invite(1.0, n, FEATURES, partners=partners).dropouts for n in owners]
        print(
            f"| {partners} | " + " | ".join(f"{k} ({k / n:.1%})" for k, n in zip(allowed, owners, strict=True)) + " |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--owners", type=int, nargs="+", default=[30, 139, 300], help="all share masks with all")
    parser.add_argument("--partners", type=int, default=20)
    parser.add_argument("--many", type=int, nargs="+", default=[139, 1000], help="each shares masks with its partners")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write the numbers to this file too")
    parser.add_argument("--vanish", type=int, nargs="+", help="how many of so many may vanish")
    options = parser.parse_args()
    if options.vanish:
        return vanish(options.vanish)
    cells = [(n, None, trust) for n in options.owners for trust in ("secure_sum", "no_curator")]
    cells += [(n, options.partners, "secure_sum") for n in options.many]
    rows: list[dict[str, Any]] = []
    for cell in cells:
        rows.append(measure(*cell))
        print(
            ", ".join(f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in rows[-1].items()), flush=True
        )
        record.write(options.json, {"rows": rows})


if __name__ == "__main__":
    main()
