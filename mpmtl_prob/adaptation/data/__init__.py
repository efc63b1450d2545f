"""Domains: records and how a private one is bounded, made-up and real pairs of domains, units, tables as files."""
