"""Federated release: sites keep their vectors, and secure aggregation gives the sum of their second moments."""

try:
    import cryptography  # noqa: F401 # the modules below need it
except ImportError:
    raise ImportError("federated needs cryptography: pip install 'mpmtl-prob[federated]'") from None

from mpmtl_prob._util.former import former_names
from mpmtl_prob.federated.invitation import Invitation, Trust, invite
from mpmtl_prob.federated.local import Outcome, run
from mpmtl_prob.federated.protocol import Site, serve, settle
from mpmtl_prob.federated.report import Report, invite_report, read_report, report_message
from mpmtl_prob.federated.run_log import RunLog, RunRefused
from mpmtl_prob.federated.secure_sum import TooFewOwners
from mpmtl_prob.federated.signing import Signer, new_key, write_key
from mpmtl_prob.federated.site_policy import SitePolicy

__all__ = [
    "Invitation",
    "Outcome",
    "Report",
    "RunLog",
    "RunRefused",
    "Signer",
    "Site",
    "SitePolicy",
    "TooFewOwners",
    "Trust",
    "invite",
    "invite_report",
    "new_key",
    "read_report",
    "report_message",
    "run",
    "serve",
    "settle",
    "write_key",
]

__getattr__ = former_names(
    __name__,
    {
        "Account": "RunLog",
        "Conditions": "SitePolicy",
    },
)
