"""Priors on the weights W (d x m) whose log density is a penalty: the trace norm, row norms, absolute values.

``p(W) = C lambda^{dm} exp(-lambda g(W))`` for a norm g, normalised for every lambda, so that lambda can be learnt. The
gradient of g jumps where singular values or rows vanish. With ``smoothing=gamma`` automatic differentiation returns the
gradient of its Moreau envelope instead, ``(W - prox_{gamma lambda g}(W)) / gamma``, while the value stays exact. Samplers
that accept by the exact value, such as HMC and NUTS, remain exact, because a leapfrog step with any force that depends on the
position alone is reversible and keeps volume.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import gammaln
from jax.typing import ArrayLike
from numpyro.distributions import Distribution, constraints
from numpyro.distributions.util import validate_sample

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob.models.normaliser import acceptance_rate, log_trace_norm_integral

_LEAST_ACCEPTANCE = 1e-3


class PenaltyPrior(Distribution):
    """Distribution p(W) = C lambda^{dm} exp(-lambda g(W)) on d x m matrices, for a norm g.

    Args:
        rate: lambda > 0, in units of 1/W; any batch shape.
        shape: (d, m).
        smoothing: gamma > 0 of the Moreau envelope whose gradients are used, in squared units of W over units of lambda g;
            None for the gradients of g itself.

    Raises:
        ValueError: a shape that is not two whole numbers above 0.

    Source: Parikh and Boyd (2014), Proximal Algorithms, section 3.1, for the envelope's gradient.
    """

    arg_constraints: ClassVar = {"rate": constraints.positive}
    support = constraints.real_matrix
    reparametrized_params: ClassVar = ["rate"]
    pytree_data_fields = ("rate", "smoothing")

    def __init__(
        self,
        rate: ArrayLike,
        shape: tuple[int, int],
        *,
        smoothing: ArrayLike | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if len(shape) != 2 or min(shape) < 1:
            raise ValueError(f"shape: expected (d, m), two whole numbers above 0, got {shape!r}")
        self.rate = rate
        self.smoothing = smoothing
        super().__init__(jnp.shape(rate), tuple(shape), validate_args=validate_args)

    @validate_sample
    def log_prob(self, value: ArrayLike) -> Array:
        """Return log p(W), normalised, for W (..., d, m)."""
        W, rate = jnp.asarray(value), jnp.asarray(self.rate)
        d, m = self.event_shape
        if self.smoothing is None:
            energy = rate * self.norm(W)
        else:
            energy = _energy(type(self), W, rate, jnp.asarray(self.smoothing, W.dtype))
        return self._log_constant() + d * m * jnp.log(rate) - energy

    @property
    def mean(self) -> Array:
        """0, by symmetry."""
        return jnp.zeros(self.batch_shape + self.event_shape)

    @staticmethod
    @abstractmethod
    def norm(W: Array) -> Array:
        """Return g(W), (...)."""

    @staticmethod
    @abstractmethod
    def envelope(W: Array, rate: Array, smoothing: Array) -> tuple[Array, Array]:
        """Return the exact g(W), and the gradient of the Moreau envelope of rate * g."""

    @staticmethod
    @abstractmethod
    def majoriser(moment: FloatArray, num_tasks: int) -> FloatArray:
        """Return C (d, d) of a quadratic 0.5 tr(V'C V) + constant that touches g from above where V V' is the moment.

        For an entrywise g it does so approximately.
        """

    @abstractmethod
    def _log_constant(self) -> float:
        """Return log C."""


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _energy(prior: type[PenaltyPrior], W: Array, rate: Array, smoothing: Array) -> Array:
    """Return lambda g(W), (...), with the derivative in W of its Moreau envelope."""
    return rate * prior.norm(W)


@_energy.defjvp
def _energy_jvp(prior: type[PenaltyPrior], primals: Any, tangents: Any) -> tuple[Array, Array]:
    W, rate, smoothing = primals
    dW, drate, _ = tangents
    value, slope = prior.envelope(W, rate, smoothing)
    return rate * value, jnp.sum(slope * dW, axis=(-2, -1)) + value * drate


class TraceNormPrior(PenaltyPrior):
    """Prior under which tasks share a subspace: p(W) = C_{d,m} lambda^{dm} exp(-lambda ||W||_*).

    ||W||_* is the sum of singular values. Their density is ~ prod_i s_i^{|d-m|} prod_{i<j} |s_i^2 - s_j^2|
    exp(-lambda sum_i s_i), so that C_{d,m} is a Pfaffian: :func:`mpmtl_prob.models.normaliser.log_trace_norm_integral`.
    ``sample`` is exact, and works for small min(d, m) only. Arguments as :class:`PenaltyPrior`.
    """

    @staticmethod
    def norm(W: Array) -> Array:
        return jnp.sum(jnp.linalg.svd(W, compute_uv=False), axis=-1)

    @staticmethod
    def envelope(W: Array, rate: Array, smoothing: Array) -> tuple[Array, Array]:
        # prox thresholds singular values at gamma lambda: W - prox = U diag(min(s, gamma lambda)) V'
        rate = rate[..., None]
        smoothing = smoothing[..., None]
        if W.dtype == jnp.float32:  # W W' would lose half of the few digits
            U, s, Vt = jnp.linalg.svd(W, full_matrices=False)
            return jnp.sum(s, axis=-1), (U * jnp.minimum(rate, s / smoothing)[..., None, :]) @ Vt
        wide = W if W.shape[-2] <= W.shape[-1] else jnp.swapaxes(W, -2, -1)
        eigenvalues, U = jnp.linalg.eigh(wide @ jnp.swapaxes(wide, -2, -1))  # three times as fast as the SVD
        s = jnp.sqrt(jnp.maximum(eigenvalues, 0.0))
        share = jnp.minimum(rate / jnp.where(s > 0, s, 1.0), 1 / smoothing)
        share = jnp.where(s > 0, share, 1 / smoothing)
        slope = (U * share[..., None, :]) @ (jnp.swapaxes(U, -2, -1) @ wide)
        return jnp.sum(s, axis=-1), slope if wide is W else jnp.swapaxes(slope, -2, -1)

    @staticmethod
    def majoriser(moment: FloatArray, num_tasks: int) -> FloatArray:
        eigenvalues, U = np.linalg.eigh(moment)
        return (U / np.sqrt(_floored(eigenvalues))) @ U.T  # (W W')^{-1/2}

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw exactly, by rejection sampling from Wishart matrices.

        W = H Q with Q uniform on the orthonormal frames and H (k x k, k = min(d, m)) of density ~ |H|^{|d-m|}
        prod_{i<j} (h_i + h_j) exp(-lambda tr H), h its eigenvalues. A Wishart matrix H is proposed, its shape H / tr H is
        accepted with probability prod_{i<j} (h_i + h_j) k / (2 tr H), and its trace is drawn from Gamma(dm, lambda).

        Raises:
            NotImplementedError: fewer than one proposal in a thousand would be accepted, as for min(d, m) above 5 or so.
        """
        rate = acceptance_rate(*self.event_shape)
        if rate < _LEAST_ACCEPTANCE:
            raise NotImplementedError(
                f"TraceNormPrior: no exact sampler for shape {self.event_shape}, whose rejection sampler would accept one "
                f"proposal in {1 / rate:.2g}; draw with MCMC"
            )
        k, n = sorted(self.event_shape)
        shape = sample_shape + self.batch_shape
        keys = jax.random.split(key, int(np.prod(shape, dtype=int)))
        draws = jax.vmap(partial(_trace_norm_draw, k, n))(keys).reshape(*shape, k, n)
        d, m = self.event_shape
        return (draws if d <= m else jnp.swapaxes(draws, -2, -1)) / jnp.asarray(self.rate)[..., None, None]

    def _log_constant(self) -> float:
        return -log_trace_norm_integral(*self.event_shape)


def _trace_norm_draw(k: int, n: int, key: Array) -> Array:
    """Draw a matrix (k, n), k <= n, at rate 1."""
    df = 2 * (n - k) + k + 1  # |H|^{(df-k-1)/2} = |H|^{n-k}
    pairs = np.triu_indices(k, 1)

    def propose(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        key, draw, accept = jax.random.split(state[0], 3)
        G = jax.random.normal(draw, (k, df))
        H = G @ G.T
        H = H / jnp.trace(H)
        h = jnp.linalg.eigvalsh(H)
        # the mean of the k(k-1)/2 sums is 2/k, so that by the arithmetic-geometric inequality this is at most 0
        log_probability = jnp.sum(jnp.log(0.5 * k * (h[pairs[0]] + h[pairs[1]])))
        return key, H, jnp.log(jax.random.uniform(accept)) < log_probability

    key, frame, size = jax.random.split(key, 3)
    _, H, _ = jax.lax.while_loop(lambda state: ~state[2], propose, (key, jnp.eye(k), jnp.array(False)))
    Q, R = jnp.linalg.qr(jax.random.normal(frame, (n, k)))
    Q = Q * jnp.sign(jnp.diagonal(R))  # uniform on the orthonormal frames
    return jax.random.gamma(size, float(k * n)) * (H @ Q.T)


class GroupLaplace(PenaltyPrior):
    """Prior under which tasks share features, with independent rows w^j.

    p(w^j) = lambda^m Gamma(m/2) / (2 pi^{m/2} Gamma(m)) exp(-lambda ||w^j||). With d = 1 and m = 1 it is the Laplace
    distribution. Arguments as :class:`PenaltyPrior`.
    """

    @staticmethod
    def norm(W: Array) -> Array:
        square = jnp.sum(W**2, axis=-1)
        return jnp.sum(jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0), axis=-1)

    @staticmethod
    def envelope(W: Array, rate: Array, smoothing: Array) -> tuple[Array, Array]:
        norm = jnp.sqrt(jnp.sum(W**2, axis=-1))
        # prox shortens rows by gamma lambda: W - prox = w^j min(1, gamma lambda / ||w^j||)
        share = jnp.minimum(rate[..., None] / jnp.where(norm > 0, norm, jnp.inf), 1 / smoothing[..., None])
        return jnp.sum(norm, axis=-1), W * jnp.where(norm > 0, share, 1.0)[..., None]

    @staticmethod
    def majoriser(moment: FloatArray, num_tasks: int) -> FloatArray:
        return np.diag(1 / np.sqrt(_floored(np.diagonal(moment))))

    @property
    def variance(self) -> Array:
        """Variance of every entry, (m + 1) / lambda^2."""
        rate = jnp.asarray(self.rate)[..., None, None]
        return jnp.broadcast_to((self.event_shape[1] + 1) / rate**2, self.batch_shape + self.event_shape)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw exactly: ||w^j|| ~ Gamma(m, lambda) and a uniform direction."""
        d, m = self.event_shape
        shape = sample_shape + self.batch_shape
        direction, size = jax.random.split(key)
        Z = jax.random.normal(direction, (*shape, d, m))
        length = jax.random.gamma(size, float(m), (*shape, d, 1)) / jnp.asarray(self.rate)[..., None, None]
        return length * Z / jnp.linalg.norm(Z, axis=-1, keepdims=True)

    def _log_constant(self) -> float:
        d, m = self.event_shape
        return d * (gammaln(m / 2) - jnp.log(2.0) - 0.5 * m * jnp.log(jnp.pi) - gammaln(float(m)))


class EntrywiseLaplace(PenaltyPrior):
    """Prior under which every task has its own few features, with independent entries.

    p(w) = lambda / 2 exp(-lambda |w|). Arguments as :class:`PenaltyPrior`.
    """

    @staticmethod
    def norm(W: Array) -> Array:
        return jnp.sum(jnp.abs(W), axis=(-2, -1))

    @staticmethod
    def envelope(W: Array, rate: Array, smoothing: Array) -> tuple[Array, Array]:
        bound = rate[..., None, None]
        return EntrywiseLaplace.norm(W), jnp.clip(W / smoothing[..., None, None], -bound, bound)

    @staticmethod
    def majoriser(moment: FloatArray, num_tasks: int) -> FloatArray:
        return np.diag(1 / np.sqrt(_floored(np.diagonal(moment) / num_tasks)))  # one curvature for all entries of a row

    @property
    def variance(self) -> Array:
        """Variance of every entry, 2 / lambda^2."""
        rate = jnp.asarray(self.rate)[..., None, None]
        return jnp.broadcast_to(2 / rate**2, self.batch_shape + self.event_shape)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw exactly."""
        shape = sample_shape + self.batch_shape + self.event_shape
        return jax.random.laplace(key, shape) / jnp.asarray(self.rate)[..., None, None]

    def _log_constant(self) -> float:
        d, m = self.event_shape
        return -d * m * float(np.log(2.0))


def _floored(squares: FloatArray) -> FloatArray:
    """Return squares with a lower bound of 1e-4 of the largest; ones if all are zero."""
    largest = squares.max()
    return np.maximum(squares, 1e-4 * largest) if largest > 0 else np.ones_like(squares)
