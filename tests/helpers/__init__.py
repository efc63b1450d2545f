"""What several tests use: builders, tolerances, independent computations, and harnesses."""
