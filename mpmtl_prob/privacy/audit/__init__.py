"""Tests that try to break a claim.

Every test plays the same game many times: a release with the task, and one without it, or with another in its place, as the
claim's adjacency says. It scores both, and reports a lower confidence bound on eps at the claimed delta (Clopper-Pearson).
The threshold is chosen on one half of the games and judged on the other (:class:`Split`), or named beforehand. A bound above
the claim breaks it. A bound below proves nothing: it is what this adversary found.

Noise is drawn as releases draw it, and messages are cut as releases cut them, unless a test is told otherwise. That the
noise is of the law that is stated at all is what :func:`drawn` looks at.

A claim for replacement is a claim for zeroing too, since a zero vector is a replacement: audit it under both adjacencies.
"""

from mpmtl_prob.privacy.audit.attempts import (
    controls,
    drawn,
    ledger,
    likelihood_ratio,
    own_claim,
    reachable,
    representable,
    support,
    tracing,
)
from mpmtl_prob.privacy.audit.found import Audit, Drawn, Interval, proved_power
from mpmtl_prob.privacy.audit.game import IN_DOUBLES, TRIALS, Sampler, published
from mpmtl_prob.privacy.audit.thresholds import Bonferroni, Explicit, Split, Threshold, clopper_pearson

__all__ = [
    "IN_DOUBLES",
    "TRIALS",
    "Audit",
    "Bonferroni",
    "Drawn",
    "Explicit",
    "Interval",
    "Sampler",
    "Split",
    "Threshold",
    "clopper_pearson",
    "controls",
    "drawn",
    "ledger",
    "likelihood_ratio",
    "own_claim",
    "proved_power",
    "published",
    "reachable",
    "representable",
    "support",
    "tracing",
]
