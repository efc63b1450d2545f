"""Optimum of a convex problem by an interior-point solver."""

import warnings


def optimum(problem):
    """Solve a problem and return its value to nine digits, or as many as there are; the default, eight, blurs where it is."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Solution may be inaccurate")  # who compares says how accurate
        return problem.solve(solver="CLARABEL", tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9)
