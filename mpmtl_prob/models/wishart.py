"""Distributions of symmetric matrices: releases given the second moment A, and A given an upper bound.

A release ``Sigma = A + E`` with ``E ~ Wishart(df, scale I)`` implies that ``Sigma - A`` is positive definite.
:class:`ShiftedWishart` is its likelihood, and :class:`ShiftedGaussian` that of Gaussian noise, which implies no bound.
:class:`MatrixBeta` is a distribution of A on ``0 < A < Sigma``. :func:`between_zero_and` and :func:`positive_definite_above`
are the supports as constraints, with transforms for NumPyro's samplers.
"""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import multigammaln
from jax.typing import ArrayLike
from numpyro.distributions import Distribution, biject_to, constraints
from numpyro.distributions.transforms import ComposeTransform, Transform
from numpyro.distributions.util import validate_sample


class _Above(constraints.Constraint):
    """Constraint {Sigma: Sigma - loc positive definite}."""

    event_dim = 2

    def __init__(self, loc: ArrayLike) -> None:
        self.loc = loc

    def __call__(self, x: ArrayLike) -> Array:
        return constraints.positive_definite(jnp.asarray(x) - jnp.asarray(self.loc))

    def feasible_like(self, prototype: ArrayLike) -> Array:
        return jnp.broadcast_to(jnp.asarray(self.loc) + jnp.eye(jnp.shape(prototype)[-1]), jnp.shape(prototype))

    def tree_flatten(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return (self.loc,), (("loc",), {})

    def eq(self, other: object, static: bool = False) -> Any:
        return isinstance(other, _Above) and constraints.array_equiv(self.loc, other.loc, static=static)


class _Between(constraints.Constraint):
    """Constraint {A: A and upper - A positive definite}."""

    event_dim = 2

    def __init__(self, upper: ArrayLike) -> None:
        self.upper = upper

    def __call__(self, x: ArrayLike) -> Array:
        return constraints.positive_definite(x) & constraints.positive_definite(
            jnp.asarray(self.upper) - jnp.asarray(x)
        )

    def feasible_like(self, prototype: ArrayLike) -> Array:
        return jnp.broadcast_to(0.5 * jnp.asarray(self.upper), jnp.shape(prototype))

    def tree_flatten(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return (self.upper,), (("upper",), {})

    def eq(self, other: object, static: bool = False) -> Any:
        return isinstance(other, _Between) and constraints.array_equiv(self.upper, other.upper, static=static)


positive_definite_above = _Above
between_zero_and = _Between


class _Shift(Transform):
    """Transform from x to x + loc, on symmetric matrices."""

    def __init__(self, loc: ArrayLike) -> None:
        self.loc = loc

    domain = constraints.positive_definite

    @property
    def codomain(self) -> constraints.Constraint:
        return _Above(self.loc)

    def __call__(self, x: ArrayLike) -> Array:
        return jnp.asarray(x) + jnp.asarray(self.loc)

    def _inverse(self, y: ArrayLike) -> Array:
        return jnp.asarray(y) - jnp.asarray(self.loc)

    def log_abs_det_jacobian(self, x: ArrayLike, y: ArrayLike, intermediates: Any = None) -> Array:
        return jnp.zeros(jnp.broadcast_shapes(jnp.shape(x), jnp.shape(self.loc))[:-2])

    def tree_flatten(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return (self.loc,), (("loc",), {})


class BoundedMatrix(Transform):
    """Transform from positive definite matrices C onto 0 < A < upper.

    ``A = L B L'`` with ``L L' = upper`` and ``B = C (I + C)^{-1}``. The Jacobian is
    ``|dA| = |upper|^{(d+1)/2} |I + C|^{-(d+1)} |dC|``.

    Args:
        upper: positive definite, (..., d, d).
    """

    domain = constraints.positive_definite

    def __init__(self, upper: ArrayLike) -> None:
        self.upper = upper

    @property
    def codomain(self) -> constraints.Constraint:
        return _Between(self.upper)

    def __call__(self, x: ArrayLike) -> Array:
        K = jnp.linalg.cholesky(jnp.asarray(x))
        # C (I + C)^{-1} = K (I + K'K)^{-1} K' = V'V is accurate where C is small
        V = _solve(_eye(K) + _t(K) @ K, _t(K))
        half = jnp.linalg.cholesky(jnp.asarray(self.upper)) @ _t(V)
        return half @ _t(half)

    def _inverse(self, y: ArrayLike) -> Array:
        L = jnp.linalg.cholesky(jnp.asarray(self.upper))
        root = jnp.linalg.cholesky(jnp.asarray(y))
        J = solve_triangular(jnp.broadcast_to(L, root.shape), root, lower=True)  # B = J J'
        V = _solve(_eye(J) - _t(J) @ J, _t(J))  # C = (I - B)^{-1} B = J (I - J'J)^{-1} J'
        return _t(V) @ V

    def log_abs_det_jacobian(self, x: ArrayLike, y: ArrayLike, intermediates: Any = None) -> Array:
        C = jnp.asarray(x)
        d = C.shape[-1]
        return (d + 1) * (0.5 * _log_det(jnp.asarray(self.upper)) - _log_det(C + _eye(C)))

    def tree_flatten(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return (self.upper,), (("upper",), {})


@biject_to.register(_Above)
def _biject_to_above(constraint: _Above) -> Transform:
    return ComposeTransform([biject_to(constraints.positive_definite), _Shift(constraint.loc)])


@biject_to.register(_Between)
def _biject_to_between(constraint: _Between) -> Transform:
    return ComposeTransform([biject_to(constraints.positive_definite), BoundedMatrix(constraint.upper)])


class ShiftedWishart(Distribution):
    """Distribution of a release with Wishart noise, given the second moment: Sigma - loc ~ Wishart_d(df, scale I).

    The log density is -inf where Sigma - loc is not positive definite. Its gradient is finite everywhere, in every argument.

    Args:
        loc: A, symmetric, (..., d, d).
        df: degrees of freedom nu > d - 1, (...).
        scale: s > 0, (...).

    Source: TPAMI 2022, Algorithm 1, step 5.
    """

    arg_constraints: ClassVar = {
        "loc": constraints.real_matrix,
        "df": constraints.dependent(is_discrete=False, event_dim=0),
        "scale": constraints.positive,
    }
    reparametrized_params: ClassVar = ["loc", "scale"]
    pytree_data_fields = ("loc", "df", "scale")

    def __init__(self, loc: ArrayLike, df: ArrayLike, scale: ArrayLike, *, validate_args: bool | None = None) -> None:
        self.loc, self.df, self.scale = jnp.asarray(loc), jnp.asarray(df), jnp.asarray(scale)
        batch = jnp.broadcast_shapes(self.loc.shape[:-2], self.df.shape, self.scale.shape)
        super().__init__(batch, self.loc.shape[-2:], validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=2)
    def support(self) -> constraints.Constraint:
        """The matrices above loc."""
        return _Above(self.loc)

    @property
    def mean(self) -> Array:
        """loc + df scale I."""
        return jnp.broadcast_to(
            self.loc + _last(self.df * self.scale) * _eye(self.loc), self.batch_shape + self.event_shape
        )

    @property
    def variance(self) -> Array:
        """Variance of every entry: df scale^2, twice that on the diagonal."""
        one = _last(self.df * self.scale**2)
        return jnp.broadcast_to(one * (1 + _eye(self.loc)), self.batch_shape + self.event_shape)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw exactly, by Bartlett's decomposition."""
        T = _bartlett(key, self.df, sample_shape + self.batch_shape, self.event_shape[-1], self.loc.dtype)
        return self.loc + _last(self.scale) * (T @ _t(T))

    @validate_sample
    def log_prob(self, value: ArrayLike) -> Array:
        """Return log p(Sigma), (...), over the d (d + 1) / 2 free entries."""
        noise = jnp.asarray(value) - self.loc
        d = noise.shape[-1]
        log_det, inside = _guarded_log_det(noise)
        trace = jnp.trace(noise, axis1=-2, axis2=-1)
        log_norm = 0.5 * self.df * d * jnp.log(2 * self.scale) + multigammaln(0.5 * self.df, d)
        log_prob = 0.5 * ((self.df - d - 1) * log_det - trace / self.scale) - log_norm
        return jnp.where(inside, log_prob, -jnp.inf)


class ShiftedGaussian(Distribution):
    """Distribution of a release with Gaussian noise, given the second moment.

    Sigma - loc is symmetric, N(0, sd^2) off the diagonal and N(0, 2 sd^2) on it.

    Args:
        loc: A, symmetric, (..., d, d).
        sd: sd of the noise off the diagonal, (...).
    """

    arg_constraints: ClassVar = {"loc": constraints.real_matrix, "sd": constraints.positive}
    support = constraints.real_matrix  # symmetric ones of it
    reparametrized_params: ClassVar = ["loc", "sd"]
    pytree_data_fields = ("loc", "sd")

    def __init__(self, loc: ArrayLike, sd: ArrayLike, *, validate_args: bool | None = None) -> None:
        self.loc, self.sd = jnp.asarray(loc), jnp.asarray(sd)
        batch = jnp.broadcast_shapes(self.loc.shape[:-2], self.sd.shape)
        super().__init__(batch, self.loc.shape[-2:], validate_args=validate_args)

    @property
    def mean(self) -> Array:
        """loc."""
        return jnp.broadcast_to(self.loc, self.batch_shape + self.event_shape)

    @property
    def variance(self) -> Array:
        """Variance of every entry: sd^2, twice that on the diagonal."""
        return jnp.broadcast_to(_last(self.sd**2) * (1 + _eye(self.loc)), self.batch_shape + self.event_shape)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw loc + sd (G + G') / sqrt(2), where G has independent standard normal entries."""
        G = jax.random.normal(key, sample_shape + self.batch_shape + self.event_shape, self.loc.dtype)
        return self.loc + _last(self.sd / jnp.sqrt(2)) * (G + _t(G))

    @validate_sample
    def log_prob(self, value: ArrayLike) -> Array:
        """Return log p(Sigma), (...), over the d (d + 1) / 2 free entries."""
        noise = jnp.asarray(value) - self.loc
        d = noise.shape[-1]
        log_norm = 0.25 * d * (d + 1) * jnp.log(2 * jnp.pi * self.sd**2) + 0.5 * d * jnp.log(2.0)
        return -jnp.sum(noise**2, axis=(-2, -1)) / (4 * self.sd**2) - log_norm


class MatrixBeta(Distribution):
    """Matrix-variate beta distribution: p(A) ~ |A|^{a - (d+1)/2} |upper - A|^{b - (d+1)/2} on 0 < A < upper.

    With a = b = (d + 1) / 2 it is uniform. With d = 1 it is upper times the beta distribution.

    Args:
        concentration1: a > (d - 1) / 2, (...).
        concentration0: b > (d - 1) / 2, (...).
        upper: positive definite, (..., d, d).

    Source: Gupta and Nagar (2000), Matrix Variate Distributions, definition 5.2.1.
    """

    arg_constraints: ClassVar = {
        "concentration1": constraints.dependent(is_discrete=False, event_dim=0),
        "concentration0": constraints.dependent(is_discrete=False, event_dim=0),
        "upper": constraints.positive_definite,
    }
    reparametrized_params: ClassVar = ["upper"]
    pytree_data_fields = ("concentration1", "concentration0", "upper")

    def __init__(
        self,
        concentration1: ArrayLike,
        concentration0: ArrayLike,
        upper: ArrayLike,
        *,
        validate_args: bool | None = None,
    ) -> None:
        self.upper = jnp.asarray(upper)
        self.concentration1, self.concentration0 = jnp.asarray(concentration1), jnp.asarray(concentration0)
        batch = jnp.broadcast_shapes(self.upper.shape[:-2], self.concentration1.shape, self.concentration0.shape)
        super().__init__(batch, self.upper.shape[-2:], validate_args=validate_args)

    @classmethod
    def uniform(cls, upper: ArrayLike, *, validate_args: bool | None = None) -> MatrixBeta:
        """Return the uniform distribution on 0 < A < upper."""
        half = 0.5 * (jnp.shape(upper)[-1] + 1)
        return cls(half, half, upper, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=2)
    def support(self) -> constraints.Constraint:
        """The positive definite matrices below upper."""
        return _Between(self.upper)

    @property
    def mean(self) -> Array:
        """a / (a + b) upper."""
        share = self.concentration1 / (self.concentration1 + self.concentration0)
        return jnp.broadcast_to(_last(share) * self.upper, self.batch_shape + self.event_shape)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw exactly, from two Wishart matrices: (S_1 + S_0)^{-1/2} S_1 (S_1 + S_0)^{-1/2}."""
        d = self.event_shape[-1]
        shape = sample_shape + self.batch_shape
        df = 2 * jnp.stack([jnp.broadcast_to(a, self.batch_shape) for a in (self.concentration1, self.concentration0)])
        df = df.reshape(2, *(1,) * len(sample_shape), *self.batch_shape)
        T1, T0 = _bartlett(key, df, (2, *shape), d, self.upper.dtype)
        # the distribution of V V' is invariant to rotations, so that any square root of upper can be used
        V = _solve(T1 @ _t(T1) + T0 @ _t(T0), T1)
        half = jnp.linalg.cholesky(self.upper) @ V
        return half @ _t(half)

    @validate_sample
    def log_prob(self, value: ArrayLike) -> Array:
        """Return log p(A), (...), over the d (d + 1) / 2 free entries; -inf outside the support, with finite gradients."""
        A = jnp.asarray(value)
        d = A.shape[-1]
        a, b = self.concentration1, self.concentration0
        half = 0.5 * (d + 1)
        log_det, positive = _guarded_log_det(A)
        log_det_rest, below = _guarded_log_det(self.upper - A)
        log_beta = multigammaln(a, d) + multigammaln(b, d) - multigammaln(a + b, d)
        log_prob = (a - half) * log_det + (b - half) * log_det_rest - (a + b - half) * _log_det(self.upper) - log_beta
        return jnp.where(positive & below, log_prob, -jnp.inf)


def _bartlett(key: Array, df: Array, shape: tuple[int, ...], d: int, dtype: Any) -> Array:
    """Draw lower triangular T with T T' ~ Wishart_d(df, I), (*shape, d, d)."""
    below, diagonal = jax.random.split(key)
    T = jnp.tril(jax.random.normal(below, (*shape, d, d), dtype), -1)
    chi = jnp.sqrt(2 * jax.random.gamma(diagonal, 0.5 * (df[..., None] - jnp.arange(d)), (*shape, d), dtype))
    return T + chi[..., None] * _eye(T)


def _guarded_log_det(M: Array) -> tuple[Array, Array]:
    """Return log|M| where M is positive definite and otherwise 0 with gradient 0, and whether M is positive definite."""
    diagonal = jnp.diagonal(jnp.linalg.cholesky(jax.lax.stop_gradient(M)), axis1=-2, axis2=-1)
    inside = jnp.all(diagonal > 0, axis=-1)  # a factorisation that fails returns nan
    return _log_det(jnp.where(inside[..., None, None], M, _eye(M))), inside


def _log_det(M: Array) -> Array:
    return 2 * jnp.sum(jnp.log(jnp.diagonal(jnp.linalg.cholesky(M), axis1=-2, axis2=-1)), axis=-1)


def _solve(M: Array, B: Array) -> Array:
    """Return R^{-1} B with R R' = M."""
    return solve_triangular(jnp.linalg.cholesky(M), B, lower=True)


def _eye(M: Array) -> Array:
    return jnp.eye(M.shape[-1], dtype=M.dtype)


def _t(M: Array) -> Array:
    return jnp.swapaxes(M, -2, -1)


def _last(x: Array) -> Array:
    return x[..., None, None]
