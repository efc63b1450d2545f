"""``python -m mpmtl_prob``: the command line."""

import sys

from mpmtl_prob.cli import main

sys.exit(main())
