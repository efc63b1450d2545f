"""Privacy accounting: composition of several draws, privacy filters, and calibration of noise."""

#: Modules.
__all__ = ["budgets", "calibration", "composition", "convolution", "curves", "filters"]
