"""What leaves the room: bounded messages, their second moment plus noise, and the file that it is kept in."""

from mpmtl_prob.releases.messages import BoughtClip, buy_clip
from mpmtl_prob.releases.release import Release, default_delta, release

__all__ = ["BoughtClip", "Release", "buy_clip", "default_delta", "release"]
