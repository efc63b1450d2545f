"""The curator's seat: posteriors given the rows of all tasks, and the papers' rounds as a sampler."""

#: Modules.
__all__ = ["fitting", "posterior", "private"]
