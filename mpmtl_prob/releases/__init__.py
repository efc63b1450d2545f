"""Releases: bounded messages, their second moment plus noise (Sigma), and the file that holds them."""

from mpmtl_prob._util.former import former_names
from mpmtl_prob.releases.effects import EffectsLayout
from mpmtl_prob.releases.messages import PrivateClipNorm, private_clip_norm
from mpmtl_prob.releases.publish import publish, release
from mpmtl_prob.releases.release import Release
from mpmtl_prob.releases.spec import ReleaseSpec, Terms, default_delta, message, terms

__all__ = [
    "EffectsLayout",
    "PrivateClipNorm",
    "Release",
    "ReleaseSpec",
    "Terms",
    "default_delta",
    "message",
    "private_clip_norm",
    "publish",
    "release",
    "terms",
]

__getattr__ = former_names(
    __name__,
    {
        "BoughtClip": "PrivateClipNorm",
        "buy_clip": "private_clip_norm",
    },
)
