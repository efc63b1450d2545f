"""The public's seat: posteriors that anybody can compute from the releases alone."""

#: Modules.
__all__ = [
    "comparison",
    "covariance_draws",
    "datatree",
    "information",
    "init",
    "inverse_wishart",
    "membership",
    "moment_estimate",
    "shared",
    "structures",
]
