"""Single-task models: closed forms, normal approximations, and the messages that data owners compute from them."""

#: Modules.
__all__ = ["conjugate", "intercepts", "laplace", "posterior_means", "student"]
