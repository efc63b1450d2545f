"""What leaves the room: bounded messages, their second moment plus noise, and the file that it is kept in."""

from mpmtl_prob.releases.messages import BoughtClip, buy_clip
from mpmtl_prob.releases.publish import publish, release
from mpmtl_prob.releases.release import Release
from mpmtl_prob.releases.terms import Terms, default_delta, message, terms

__all__ = ["BoughtClip", "Release", "Terms", "buy_clip", "default_delta", "message", "publish", "release", "terms"]
