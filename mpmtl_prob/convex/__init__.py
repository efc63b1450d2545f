"""Losses, penalties and the solver that puts them together."""

#: Modules.
__all__ = ["losses", "penalties", "solver"]
