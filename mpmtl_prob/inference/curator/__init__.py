"""The curator's seat: all rows, and the papers' rounds as a sampler."""

#: Modules.
__all__ = ["fitting", "posterior", "private"]
