"""The paper's algorithms, CnvxAdap and NCnvxAdap, what they minimise and cost, and the baselines that they are compared with.

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
