"""The public's seat: what anybody can say who has the releases alone."""

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
