"""A process of the panel that runs the library's arm under whichever version of the library its PYTHONPATH names.

It reads units as one JSON list, and the folder of real tables, and prints one JSON line for every finished unit. The panel
starts it; nobody else has to.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


def main() -> None:
    """Run the units on standard input, one after the other."""
    import jax

    jax.config.update("jax_enable_x64", True)
    warnings.simplefilter("ignore")  # a fit that did not converge is judged by its error
    import mpmtl_prob
    from random_effects import units

    given = json.loads(sys.stdin.read())
    root = Path(mpmtl_prob.__file__).resolve().parents[1]
    if root != Path(given["checkout"]).resolve():
        raise SystemExit(f"checkout: expected the library of {given['checkout']}, imported that of {root}")
    data = None if given["data"] is None else Path(given["data"])
    for unit in given["units"]:
        try:
            result = units.run(units.Unit(**unit), data)
        except ValueError as refused:  # the library does not release this: no result, with its words
            result = {"missing": str(refused)}
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
