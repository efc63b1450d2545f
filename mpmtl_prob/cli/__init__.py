"""The command line ``mpmtl-prob``: thin, over the same functions as the library."""

from mpmtl_prob.cli.main import main

__all__ = ["main"]
