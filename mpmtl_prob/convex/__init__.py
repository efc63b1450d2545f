"""Losses, penalties and the solver that puts them together."""
