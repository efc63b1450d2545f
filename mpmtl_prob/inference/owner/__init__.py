"""An owner's seat: its own rows and every release."""

#: Modules.
__all__ = ["answers", "likelihoods", "methods", "own_message", "posteriors"]
