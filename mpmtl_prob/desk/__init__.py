"""Roles at separate desks: a hospital's message, the curator's release, and a hospital's own model."""

from mpmtl_prob.desk.inbox import Inbox, collect
from mpmtl_prob.desk.message import Message, make_message
from mpmtl_prob.desk.model import OwnModel, fit
from mpmtl_prob.desk.publish import publish
from mpmtl_prob.desk.report import report

__all__ = ["Inbox", "Message", "OwnModel", "collect", "fit", "make_message", "publish", "report"]
