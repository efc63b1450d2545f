"""Command line ``mpmtl-prob``: a thin layer over the functions of the library."""

from mpmtl_prob.cli.main import main

__all__ = ["main"]
