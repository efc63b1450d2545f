"""Size of simulations: little in `make test`, all of it in `make test-evidence`, which runs every week.

Tests that are marked ``evidence`` run only there. A short version stays in `make test`, and must notice the same mistakes.
"""

import os

EVIDENCE = bool(os.environ.get("MPMTL_EVIDENCE"))


def effort(short, long):
    """Return the number of replications, draws or examples: ``short``, or ``long`` where evidence is asked for."""
    return long if EVIDENCE else short
