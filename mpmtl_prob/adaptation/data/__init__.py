"""Domains of records with bounds on private ones, synthetic and real data sets, units, and tables as files."""

#: Modules.
__all__ = ["domain", "paper_files", "problems", "real", "scaling", "tables"]
