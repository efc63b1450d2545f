"""Publication by a curator, from an inbox to a release: check everything, pay, then draw noise."""

from __future__ import annotations

from dataclasses import replace

from mpmtl_prob.desk.inbox import Inbox
from mpmtl_prob.privacy.ledger import Ledger
from mpmtl_prob.releases.publish import publish as publish_sum
from mpmtl_prob.releases.release import Release


def publish(inbox: Inbox, *, ledger: Ledger | None = None, unsafe_seed: int | None = None) -> Release:
    """Publish the sum of all messages with noise; the release records the study.

    Args:
        inbox: result of :func:`collect`, which has checked it.
        ledger: pays for the release, on disk, before any noise is drawn.
        unsafe_seed: draw the noise from this seed, for demonstrations: the release then guarantees nothing.

    Raises:
        BudgetExceeded: the price exceeds what is left in the ledger. Nothing was charged.
    """
    W = inbox.vectors
    release = publish_sum(W @ W.T, inbox.terms, ledger=ledger, unsafe_seed=unsafe_seed, data=W)
    return replace(release, study=inbox.schema.digest)
