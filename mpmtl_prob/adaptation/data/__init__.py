"""Domains of records with bounds on private ones, synthetic and real data sets, units, and tables as files."""

from mpmtl_prob._util.lazy import lazy_names

#: Modules, each of which is imported when it is first asked for.
__all__ = ["domain", "paper_files", "problems", "real", "scaling", "tables"]

__getattr__ = lazy_names(__name__, {})
