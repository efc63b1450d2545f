"""Privacy audits: statistical attacks that try to refute a claimed (eps, delta).

Every audit plays the same game many times: a release with the task, and a release without it or with another task in its
place, by the claim's adjacency. It scores both kinds of releases, and reports a lower confidence bound on eps at the claimed
delta (Clopper-Pearson). The threshold on the score is chosen on one half of the games and judged on the other
(:class:`Split`), or named in advance. A bound above the claimed eps refutes the claim. A bound below it proves nothing:
another attack may do better.

Noise is drawn and messages are truncated exactly as in releases, unless an option says otherwise. :func:`drawn` tests
whether the published noise follows the stated distribution.

A claim for replacement implies the claim for zeroing, as a zero vector is a replacement. Audit it under both adjacencies.
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
