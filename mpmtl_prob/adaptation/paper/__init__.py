"""The paper's algorithms CnvxAdap and NCnvxAdap, with objective functions, privacy accounting and baselines.

Source: Bassily, Cortes, Mao and Mohri (2023), Differentially Private Domain Adaptation with Theoretical Guarantees.
"""

#: Modules.
__all__ = [
    "accounting",
    "baselines",
    "cnvx",
    "descent",
    "discrepancy",
    "losses",
    "matching",
    "ncnvx",
    "network",
    "objective",
    "private",
    "solver",
]
