"""Ledger as most of its tests want it."""

from mpmtl_prob.privacy import Ledger


def ledger(path=None, **change):
    return Ledger(path, **({"epsilon": 1.0, "delta": 1e-3} | change))
