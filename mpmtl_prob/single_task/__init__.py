"""Each task alone: closed forms, normal approximations, and the messages that owners make of them."""

#: Modules.
__all__ = ["conjugate", "intercepts", "laplace", "posterior_means", "student"]
