"""The release without a curator: owners keep their vectors, and a secure sum gives the second moment."""

from mpmtl_prob.federated.account import Account, RunRefused
from mpmtl_prob.federated.local import Outcome, run
from mpmtl_prob.federated.protocol import Invitation, Site, Trust, invite, serve, settle
from mpmtl_prob.federated.secure_sum import TooFewOwners

__all__ = [
    "Account",
    "Invitation",
    "Outcome",
    "RunRefused",
    "Site",
    "TooFewOwners",
    "Trust",
    "invite",
    "run",
    "serve",
    "settle",
]
