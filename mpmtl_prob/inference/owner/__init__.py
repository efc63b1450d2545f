"""An owner's seat: its own rows and every release."""

#: Modules.
__all__ = ["answers", "leave_one_out", "likelihoods", "methods", "posteriors"]
