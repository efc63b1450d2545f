"""What several draws give away together, and the least noise that keeps a promise."""

#: Modules.
__all__ = ["budgets", "calibration", "composition", "convolution", "curves", "filters"]
