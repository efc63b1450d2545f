"""Convex optimisation: losses, penalties and the solver for their sum."""

#: Modules.
__all__ = ["losses", "penalties", "solver"]
