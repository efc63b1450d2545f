"""Mixed model of tasks' effects (random effects), given a release of one noisy matrix: partial pooling without rows.

    beta_i ~ N(mu, Omega)                                              tasks' effects, in common units
    eta_i | beta_i ~ N(p_i o beta_i, c v diag(p_i - p_i^2))            their estimates: :mod:`mpmtl_prob.single_task.shrunk`
    logit p_i = level + spread z_i,  z_i ~ N(0, 1)                     how far a task's rows determine them
    u_i = (g eta_i, k p_i averaged, 1),   A = sum of u u' / |u|^2,   Sigma = A + noise

A is a sum over m tasks. The likelihood approximates Sigma by a normal distribution with the mean and covariance that the
model implies. The mean of u u' / |u|^2 is an average over points of the distribution of u that is smooth in the parameters,
and for messages of few numbers so is its covariance. For longer ones the variance is that of a normal u given z (Isserlis,
1918), scaled to length one to first order. It is computed in a basis in which the entries of A are nearly independent: the
mean of u, and the principal axes of u about it. The noise has the same distribution in every basis.

Where tasks have covariates, z_i = (1, z_i1, ..., z_iq), which are public,

    beta_i ~ N(mu + slopes (z_i1, ..., z_iq), Omega),   u_i = (g eta_i, k p_i averaged, z_i).

The mean is then also over tasks' z, where tasks with nearly the same z form a group, and the variance is that of u given z.
Instead of the mean of u, the basis has the axes of E[u | z], which are 1 + q.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import ndtr, ndtri
from jax.typing import ArrayLike

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob.models.effects_density import Law
from mpmtl_prob.models.effects_release import (
    ACCURACY_SCALE,
    FEW_NUMBERS,
    FLOOR,
    LARGEST_SHARE,
    LENGTHS,
    LOGIT_SD,
    MAX_RANK,
    NEAR,
    NODES,
    SMALLEST_VARIANCE,
    WEIGHTS,
    CovariateGroups,
    EffectsPrior,
    EffectsRelease,
    other_site,
    points_of,
)


class RandomEffects(NamedTuple):
    """Distribution of tasks' effects in common units, as the model samples it.

    Attributes:
        mu: average effects, (d,).
        Omega: covariance of effects between tasks, (d, d).
        slopes: change of effects with one unit of every covariate of tasks, (d, q); None without covariates.
    """

    mu: Array
    Omega: Array
    slopes: Array | None = None


class Accuracy(NamedTuple):
    """Accuracy of tasks' estimates: logit p_i = level + spread z_i, p_i how far rows determine effects."""

    level: Array  #: (d,)
    spread: Array  #: one number
    errors: Array  #: c, the variance of estimates' errors over the variance that p implies; one number

    @property
    def at_nodes(self) -> Array:
        """p at the quadrature's nodes, (nodes, d)."""
        return jax.nn.sigmoid(self.level + self.spread * jnp.asarray(NODES)[:, None])


def random_effects(
    release: EffectsRelease, structure: str = "full", others: Sequence[EffectsRelease] = ()
) -> RandomEffects:
    """Sample the distribution of tasks' effects given a release, in a NumPyro model of your own.

    Args:
        release: from :func:`mpmtl_prob.inference.observed_effects`.
        structure: of Omega: "full", "diagonal", "group_sparse" or "low_rank".
        others: releases of other tasks, whose effects have the same distribution.
    """
    prior = release.prior
    d = jnp.shape(release.averages)[1]
    Omega = numpyro.deterministic("Omega", _spread(release, structure, d))
    accuracy = _accuracy(release, d)
    # A release determines p o mu, so that coordinates are centred at its noisy value. A chain from anywhere else may stay at
    # a mean of the wrong sign. mu itself is no good coordinate, because it is long where p is small.
    p = jax.nn.sigmoid(accuracy.level)
    away = numpyro.sample("mu_away", dist.ImproperUniform(dist.constraints.real_vector, (), (d,)))
    mu = numpyro.deterministic("mu", (jnp.asarray(release.start) + release.start_scale * away) / p)
    log_prior = numpyro.deterministic("log_prior_mu", log_prior_of_average(mu, prior.average))
    numpyro.factor("mu_prior", log_prior - jnp.log(p).sum())
    slopes = None if release.covariates is None else _slopes(release.covariates, prior, p)
    likelihood = log_likelihood(release, mu, Omega, accuracy, slopes)
    for number, other in enumerate(others):
        with numpyro.handlers.scope(
            prefix=other_site(number)
        ):  # because other tasks have estimates of another accuracy
            likelihood += log_likelihood(other, mu, Omega, _accuracy(other, d), slopes)
    numpyro.factor("Sigma", numpyro.deterministic("log_likelihood", likelihood))
    return RandomEffects(mu, Omega, slopes)


def _slopes(covariates: CovariateGroups, prior: EffectsPrior, p: Array) -> Array:
    """Sample the slopes of effects in covariates, (d, q), in coordinates of p o slopes (see mu)."""
    start = jnp.asarray(covariates.start)
    away = numpyro.sample("slopes_away", dist.ImproperUniform(dist.constraints.real_matrix, (), start.shape))
    slopes = numpyro.deterministic("slopes", (start + jnp.asarray(covariates.start_scale) * away) / p[:, None])
    log_prior = jax.vmap(lambda slope: log_prior_of_average(slope, prior.slope), in_axes=1)(slopes).sum()
    numpyro.deterministic("log_prior_slopes", log_prior)
    numpyro.factor("slopes_prior", log_prior - start.shape[1] * jnp.log(p).sum())
    return slopes


@lru_cache
def model_of(structure: str) -> Callable[..., None]:
    """Return the model of a release with a structure: the same function for all releases, so that it is compiled once."""

    def model(release: EffectsRelease, others: Sequence[EffectsRelease] = ()) -> None:
        random_effects(release, structure, others)

    return model


def log_prior_of_average(mu: Array, scale: ArrayLike) -> Array:
    """Return the log density of mu (d,), a mixture of N(0, L^2 / d I) whose L is half-normal, up to a constant.

    It is a sum over a grid of L, so that no scale has to be sampled.
    """
    d = mu.shape[0]
    lengths = jnp.asarray(LENGTHS) * scale
    weight = jnp.log(lengths) - 0.5 * jnp.asarray(LENGTHS) ** 2
    density = -0.5 * (mu @ mu) * d / lengths**2 - d * jnp.log(lengths)
    return jax.scipy.special.logsumexp(weight + density)


def _spread(release: EffectsRelease, structure: str, d: int) -> Array:
    """Sample Omega (d, d): the size tau of every group of effects, and the shape of Omega within groups."""
    prior = release.prior
    averages = jnp.asarray(release.averages)
    # tau is the size of all n effects of a group together, so that one effect has tau / sqrt(n)
    tau = _sizes(prior, averages.shape[0]) @ (averages > 0) * jnp.sqrt(averages.max(axis=0))
    if d == 1:
        return tau[:, None] ** 2
    if structure in ("group_sparse", "low_rank"):
        return tau[:, None] * _few(structure, averages, d) * tau
    logit = jnp.log(prior.correlation) - jnp.log1p(-jnp.asarray(prior.correlation))
    uneven = jax.nn.sigmoid(numpyro.sample("unevenness", dist.Normal(logit, LOGIT_SD)))
    diagonal = numpyro.sample("diagonal", dist.Normal(0, 1).expand([d]))
    if structure == "diagonal":
        return jnp.diag((tau * jnp.exp(uneven * diagonal)) ** 2)
    # the triangular factor of a Wishart matrix (Bartlett, 1933) with 1 / c^2 degrees of freedom, which must exceed d - 1
    c = uneven * np.sqrt(LARGEST_SHARE / (d - 1))
    below = numpyro.sample("below", dist.Normal(0, 1).expand([d * (d - 1) // 2]))
    size = jnp.sqrt(1 - c**2 * np.arange(d))
    L = jnp.diag(size * jnp.exp(c * diagonal / (np.sqrt(2) * size))).at[np.tril_indices(d, -1)].set(c * below)
    L = tau[:, None] * L
    return L @ L.T


def _sizes(prior: EffectsPrior, groups: int) -> Array:
    """Sample tau of every group, (groups,), from its log-normal prior.

    The coordinate is log tau where tau is small, and tau itself where it is large, because a release bounds tau from above,
    and in log tau the density would fall too steeply there.
    """
    site = numpyro.sample("size", dist.ImproperUniform(dist.constraints.real_vector, (), (groups,)))
    soft = jax.nn.softplus(site)
    log_tau = numpyro.deterministic("log_tau", jnp.log(prior.spread) + jnp.log(soft) - np.log(np.log(2.0)))
    law = dist.Normal(jnp.log(prior.spread), jnp.log(prior.spread_factor))
    log_prior = numpyro.deterministic("log_prior_tau", law.log_prob(log_tau).sum())
    numpyro.factor("tau", log_prior + (jax.nn.log_sigmoid(site) - jnp.log(soft)).sum())
    return jnp.exp(log_tau)


def _few(structure: str, averages: Array, d: int) -> Array:
    """Sample the shape of Omega (d, d) where few effects or few directions vary between tasks.

    "group_sparse" is diag(1 + l_j^2), and "low_rank" is I + sum_k l_k^2 h_k h_k' / d with standard normal h_k. All l are
    half-Cauchy (horseshoe), so that each effect or direction is either far above the floor of ones or near it. The shape is
    scaled so that its diagonal is one on average over every group.

    Source: Carvalho, Polson and Scott (2010), Biometrika 97, section 1.2.
    """
    number = d if structure == "group_sparse" else min(MAX_RANK, d)
    uniform = jax.scipy.stats.norm.cdf(numpyro.sample("scales", dist.Normal(0, 1).expand([number])))
    scale = jnp.tan(0.5 * np.pi * jnp.clip(uniform, 0.0, 1 - 1e-6))
    if structure == "group_sparse":
        shape = jnp.diag(1 + scale**2)
    else:
        H = numpyro.sample("directions", dist.Normal(0, 1).expand([d, number])) * scale
        shape = jnp.eye(d) + H @ H.T / d
    size = jnp.sqrt((averages @ jnp.diag(shape)) @ (averages > 0))
    return shape / size[:, None] / size


def _half_normal(name: str, scale: float) -> Array:
    """Sample a half-normal number as a function of a standard normal one, because in its logarithm the density is steep."""
    site = numpyro.sample(f"{name}_site", dist.Normal(0, 1))
    return numpyro.deterministic(name, -scale * ndtri(0.5 * ndtr(-site)))


def _accuracy(release: EffectsRelease, d: int) -> Accuracy:
    """Sample how far rows determine effects: a level for every group, effects around it, and tasks around effects."""
    averages = jnp.asarray(release.averages)
    logit = jnp.log(release.prior.determined) - jnp.log1p(-jnp.asarray(release.prior.determined))
    level = numpyro.sample("level", dist.Normal(logit, LOGIT_SD).expand([averages.shape[0]])) @ (averages > 0)
    if d > 1:
        level = level + _half_normal("level_sd", ACCURACY_SCALE) * numpyro.sample(
            "levels", dist.Normal(0, 1).expand([d])
        )
    level = numpyro.deterministic("determined", level)
    uncertain = release.prior.errors * (1 - jax.nn.sigmoid(level).mean())
    errors = jnp.exp(uncertain * numpyro.sample("errors_site", dist.Normal(0, 1)))
    return Accuracy(level, _half_normal("determined_spread", ACCURACY_SCALE), numpyro.deterministic("errors", errors))


def log_likelihood(
    release: EffectsRelease, mu: Array, Omega: Array, accuracy: Accuracy, slopes: Array | None = None
) -> Array:
    """Return log p(Sigma | mu, Omega, accuracy, slopes), up to a constant."""
    m = release.num_tasks
    noise = release.noise_variance
    weights = _weights(release)
    centres, covariance = _law_of_messages(release, mu, Omega, accuracy, slopes)
    d = mu.shape[0]
    if centres.shape[1] <= FEW_NUMBERS:
        return _log_density_of_all_entries(release, centres, covariance)
    mean = _mean_of_products(release, centres, covariance)
    D = mean.shape[0]
    # from here on u is divided by its root mean square length at every node
    length = jnp.sqrt((centres**2).sum(axis=1) + jnp.trace(covariance, axis1=1, axis2=2))[:, None]
    centres, covariance = centres / length, covariance / length[..., None] ** 2
    if release.covariates is None:
        Q = _basis(weights, centres, covariance)
    else:
        Q = _basis_given_covariates(release.covariates, weights, centres, covariance)
    observed = Q.T @ jnp.asarray(release.sigma) @ Q
    expected = m * (Q.T @ mean @ Q)
    c = jnp.einsum("ia,nib->nab", Q[:d], covariance @ Q[:d])
    b = centres @ Q
    outer = b[:, :, None] * b[:, None]
    second = outer + c  # E[u_i u_j]
    square = jnp.diagonal(second, axis1=1, axis2=2)  # E[u_i^2]
    # Isserlis: E[u_i^2 u_j^2] = E[u_i^2] E[u_j^2] + mixed
    mixed = 2 * c**2 + 4 * outer * c
    products = square[:, :, None] * square[:, None]
    # scaling to length one gives u u' - E[u u'] (|u|^2 - 1) to first order, as E|u|^2 = 1; along = Cov(u u', |u|^2)
    along = 2 * second @ second - 2 * (b**2).sum(axis=1)[:, None, None] * outer
    total = jnp.trace(along, axis1=1, axis2=2)[:, None, None]
    average = jnp.einsum("n,nij->ij", weights, second)
    sizes = jnp.diag(average)
    # squares of means, E[u_i u_j]^2 and E[u_i^2] E[u_j^2]; with covariates, averages over groups
    if release.covariates is None:
        squares, of_sizes = average**2, jnp.outer(sizes, sizes)
    else:
        squares, of_sizes = _products_of_means(release.covariates, second)
    variance = jnp.einsum("n,nij->ij", weights, products + mixed - 2 * second * along + total * second**2) - squares
    entries = m * jnp.maximum(variance, SMALLEST_VARIANCE) + noise
    below = np.tril(np.ones((D, D)), -1)
    off_diagonal = -0.5 * (below * ((observed - expected) ** 2 / entries + jnp.log(entries))).sum()
    # the entries of the diagonal are correlated, as their sum is m
    along_diagonal = jnp.diagonal(along, axis1=1, axis2=2)
    crossed = square[:, :, None] * along_diagonal[:, None]
    joint = mixed - crossed - jnp.swapaxes(crossed, 1, 2) + (total + 1) * products
    joint = m * (jnp.einsum("n,nij->ij", weights, joint) - of_sizes) + (2 * noise + FLOOR * m) * jnp.eye(D)
    root = jnp.linalg.cholesky(joint)
    residual = solve_triangular(root, jnp.diag(observed - expected), lower=True)
    return off_diagonal - 0.5 * residual @ residual - jnp.log(jnp.diag(root)).sum()


def _log_density_of_all_entries(release: EffectsRelease, centres: Array, covariance: Array) -> Array:
    """Return the log density of Sigma with the mean and the covariance of all entries of A, averages over points of u."""
    m, D = release.num_tasks, centres.shape[1]
    u = _points_of_messages(release, centres, covariance)
    v = u / jnp.linalg.norm(u, axis=-1, keepdims=True)
    counts = jnp.full(1, m) if release.covariates is None else jnp.asarray(release.covariates.counts)
    inside = np.repeat(WEIGHTS, u.shape[1]) / u.shape[1]  # weights of the points of a group of tasks
    rows, columns = np.tril_indices(D)
    entries = (v[..., rows] * v[..., columns]).reshape(len(counts), len(inside), len(rows))
    means = jnp.einsum("k,gke->ge", inside, entries)
    away = (entries - means[:, None]) * np.sqrt(inside)[:, None]
    noise = release.noise_variance * np.where(rows == columns, 2.0, 1.0)
    law = jnp.einsum("g,gke,gkf->ef", counts, away, away) + jnp.diag(noise + FLOOR * m)
    root = jnp.linalg.cholesky(law)
    residual = solve_triangular(root, jnp.asarray(release.sigma)[rows, columns] - counts @ means, lower=True)
    return -0.5 * residual @ residual - jnp.log(jnp.diag(root)).sum()


@jax.jit
def compiled_log_likelihoods(release: EffectsRelease, law: Law, slopes: FloatArray | None) -> Array:
    """Return the log likelihoods of draws of mu, Omega and accuracy, and of slopes if there are any, (S,)."""

    def of_draw(draw: tuple[Any, Array]) -> Array:
        (mu, Omega, *accuracy), of_slopes = draw
        return log_likelihood(release, mu, Omega, Accuracy(*accuracy), of_slopes)

    out: Array = jax.lax.map(of_draw, (law, slopes))
    return out


def _weights(release: EffectsRelease) -> Array:
    """Return the weights of the nodes, (nodes,), which are those of the quadrature over z_i, for every group of tasks."""
    if release.covariates is None:
        return jnp.asarray(WEIGHTS)
    counts = jnp.asarray(release.covariates.counts)
    return ((counts / counts.sum())[:, None] * WEIGHTS).ravel()


def _law_of_messages(
    release: EffectsRelease, mu: Array, Omega: Array, accuracy: Accuracy, slopes: Array | None = None
) -> tuple[Array, Array]:
    """Return means of u (nodes, D) and covariances of its first d entries (nodes, d, d); the others are fixed at a node."""
    p = accuracy.at_nodes
    if release.covariates is None:
        z = jnp.ones((len(p), 1))
    else:
        assert slopes is not None
        groups = jnp.asarray(release.covariates.z)
        z, p = jnp.repeat(groups, len(p), axis=0), jnp.tile(p, (len(groups), 1))
        mu = mu + z[:, 1:] @ slopes.T
    g, v = jnp.asarray(release.effect_size), jnp.asarray(release.prior_variance)
    last = jnp.asarray(release.determined_size) * p @ jnp.asarray(release.averages).T
    centres = jnp.concatenate([g * p * mu, last, z], axis=1)
    errors = jnp.eye(Omega.shape[0]) * (accuracy.errors * v * p * (1 - p) + 1e-9)[:, :, None]  # c v diag(p - p^2)
    return centres, g**2 * (p[:, :, None] * Omega * p[:, None] + errors)


def _mean_of_products(release: EffectsRelease, centres: Array, covariance: Array) -> Array:
    """Return E[u u' / |u|^2], (D, D), as an average over points of the distribution of u."""
    nodes, d = covariance.shape[:2]
    u = _points_of_messages(release, centres, covariance)[..., :d]
    last = centres[:, d:]
    share = _weights(release)[:, None] / u.shape[1] / ((u**2).sum(axis=-1) + (last**2).sum(axis=1)[:, None])
    flat = u.reshape(-1, d)
    scaled = share.reshape(-1, 1) * flat
    top = scaled.T @ flat
    cross = scaled.reshape(nodes, -1, d).sum(axis=1).T @ last
    return jnp.block([[top, cross], [cross.T, (last * share.sum(axis=1)[:, None]).T @ last]])


def _points_of_messages(release: EffectsRelease, centres: Array, covariance: Array) -> Array:
    """Return points of the distribution of u at every node, (nodes, K, D), all with the same weight."""
    d = covariance.shape[1]
    points = jnp.asarray(points_of(d, 1 if release.covariates is None else len(jnp.asarray(release.covariates.counts))))
    u = jnp.einsum("ki,nji->nkj", points, jnp.linalg.cholesky(covariance)) + centres[:, None, :d]
    last = jnp.broadcast_to(centres[:, None, d:], (*u.shape[:2], centres.shape[1] - d))
    return jnp.concatenate([u, last], axis=-1)


def _basis(weights: Array, centres: Array, covariance: Array) -> Array:
    """Return an orthonormal basis (D, D): the principal axes of u about its mean, and last the direction of the mean."""
    D = centres.shape[1]
    d = covariance.shape[1]
    mean = weights @ centres
    # a reflection that takes the mean to the last axis; the mean's last entry is positive, so that no digits cancel
    v = (mean / jnp.linalg.norm(mean)).at[-1].add(1.0)
    v = v / jnp.linalg.norm(v)
    H = jnp.eye(D) - 2 * jnp.outer(v, v)
    between = centres - mean
    C = (between.T @ (weights[:, None] * between)).at[:d, :d].add(jnp.einsum("n,nij->ij", weights, covariance))
    axes = _principal_axes((H @ C @ H)[:-1, :-1])
    return jnp.concatenate([H[:, :-1] @ axes, H[:, -1:]], axis=1)


def _products_of_means(covariates: CovariateGroups, second: Array) -> tuple[Array, Array]:
    """Average E[u_i u_j | z]^2 and E[u_i^2 | z] E[u_j^2 | z] over groups, from second moments (nodes, D, D)."""
    D = second.shape[1]
    counts = jnp.asarray(covariates.counts)
    shares = counts / counts.sum()
    means = jnp.einsum("k,gkij->gij", jnp.asarray(WEIGHTS), second.reshape(len(shares), -1, D, D))
    sizes = jnp.diagonal(means, axis1=1, axis2=2)
    return jnp.einsum("g,gij->ij", shares, means**2), jnp.einsum("g,gi,gj->ij", shares, sizes, sizes)


def _basis_given_covariates(covariates: CovariateGroups, weights: Array, centres: Array, covariance: Array) -> Array:
    """Return an orthonormal basis (D, D): the principal axes of u given z, and last the 1 + q axes of E[u | z].

    Two entries of A that share an axis of the first kind, and have two different axes of E[u | z], are as correlated as these
    two are in the sum over tasks. They are not correlated, as the axes are principal axes of that sum.
    """
    D = centres.shape[1]
    d = covariance.shape[1]
    number = jnp.shape(covariates.z)[1]
    counts = jnp.asarray(covariates.counts)
    by_group = jnp.einsum("k,gkj->gj", jnp.asarray(WEIGHTS), centres.reshape(len(counts), -1, D))
    between = by_group.T @ ((counts / counts.sum())[:, None] * by_group)
    V = _principal_axes(between)[:, -number:]
    deviations = centres - jnp.repeat(by_group, len(centres) // len(counts), axis=0)
    average_covariance = jnp.einsum("n,nij->ij", weights, covariance)
    within = (deviations.T @ (weights[:, None] * deviations)).at[:d, :d].add(average_covariance)
    complement = jnp.eye(D) - V @ V.T
    # the axes of E[u | z] get the largest eigenvalues, so that they come last
    high = 2 * jnp.trace(within) * (1 + np.arange(number))
    return _principal_axes(complement @ within @ complement + (V * high) @ V.T)


@jax.custom_jvp
def _principal_axes(C: Array) -> Array:
    """Return the eigenvectors of a symmetric matrix, as columns, with a damped derivative.

    Eigenvectors of equal eigenvalues have no derivative, and the likelihood here hardly depends on their choice. Therefore
    the part of the derivative that rotates eigenvectors of nearly equal eigenvalues into each other is damped. Hamiltonian
    trajectories with such a force remain exact, because it depends on the position alone, and fewer of them diverge. An
    optimiser that takes it for the gradient errs by the damping.
    """
    vectors: Array = jnp.linalg.eigh(C)[1]
    return vectors


@_principal_axes.defjvp
def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    values, V = jnp.linalg.eigh(primals[0])
    gap = values[None, :] - values[:, None]
    turn = V.T @ (0.5 * (tangents[0] + tangents[0].T)) @ V * gap / (gap**2 + (NEAR * jnp.abs(values).max()) ** 2)
    return V, V @ turn
