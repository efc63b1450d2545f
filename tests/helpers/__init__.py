"""Helpers of several tests: builders, tolerances, independent computations, and harnesses."""
