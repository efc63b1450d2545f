"""Size of simulations: little in `make test`, all of it in `make test-evidence`, which runs every week.

What is marked ``evidence`` runs only there. A short version stays in `make test`, and must notice the same mistakes.
"""

import os

EVIDENCE = bool(os.environ.get("MPMTL_EVIDENCE"))


def effort(short, long):
    """The number of replications, draws or examples: ``short``, or ``long`` where evidence is asked for."""
    return long if EVIDENCE else short
