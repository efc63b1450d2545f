"""Domains: records and how a private one is bounded, made-up and real pairs of domains, units, tables as files."""

#: Modules.
__all__ = ["domain", "paper_files", "problems", "real", "scaling", "tables"]
