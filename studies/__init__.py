"""Studies with the package, which are no part of it: the papers' experiments, and benchmarks."""
