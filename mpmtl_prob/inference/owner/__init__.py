"""An owner's seat: posteriors given the owner's own rows and every release."""

#: Modules.
__all__ = ["answers", "leave_one_out", "likelihoods", "methods", "posteriors"]
