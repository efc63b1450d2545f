"""Random effects of one task in a mixed (hierarchical) model: the posterior given its own rows and priors from a release.

    y = X beta + sigma e,    beta ~ N(mu_k, c Omega_k) with probability w_kc,    sigma^2 on a grid

The priors k are draws from a public posterior, or other possibilities for the task; c are scales of the spread. Given k, c
and sigma everything is normal, and the evidence of the task's own rows gives the weight of each.

Errors with Student's t distribution are normal given weights of the rows, omega_r = (nu + 1) / (nu + r^2 / sigma^2). A few
steps find omega. Importance weights, the ratios of the two likelihoods of the rows, then make the draws exact.

An estimate b that was computed elsewhere, with covariance V, is equivalent to d rows with a known residual variance of 1:
with rows V^(-1/2), N(b | beta, V) is the likelihood of targets V^(-1/2) b, as in a meta-analysis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.hidden_arrays import shown
from mpmtl_prob.single_task.conjugate import in_turns
from mpmtl_prob.single_task.shrunk import LOG_PRIOR, RESIDUALS
from mpmtl_prob.single_task.student import FREEDOM

_STEPS = 8  # iterations of the rows' weights
_LEAST = 1e-12  # least eigenvalue of a correlation matrix, against rounding


class Residuals(NamedTuple):
    """Grid of a task's residual variance, with its prior.

    Attributes:
        variance: (S,).
        log_prior: log prior probabilities, (S,).
    """

    variance: FloatArray
    log_prior: FloatArray


#: Residual variances of rows, and of the rows that :func:`as_rows` makes of an estimate.
UNKNOWN, KNOWN = Residuals(RESIDUALS, LOG_PRIOR), Residuals(np.ones(1), np.zeros(1))


class EffectsPriors(NamedTuple):
    """Normal priors of a task's effects, K of them, all with the same scales.

    Attributes:
        log_weight: log prior weights, (K,).
        mean: prior means, (K, d).
        covariance: prior covariances, (K, d, d).
        scales: c, (C,).
        log_scale_weight: log weights of the scales, (C,).
    """

    log_weight: FloatArray
    mean: FloatArray
    covariance: FloatArray
    scales: FloatArray
    log_scale_weight: FloatArray


class Mixture(NamedTuple):
    """Posterior of a task as a mixture of normals, in coordinates z of every prior, beta = mean + F z.

    Attributes:
        weight: (K, C, S), for S residual variances; the weights of all parts sum to 1.
        prior_mean: (K, d).
        F: (K, d, d).
        mean: means of z, (K, C, S, d).
        variance: variances of z, (K, C, S, d).
    """

    weight: FloatArray
    prior_mean: FloatArray
    F: FloatArray
    mean: FloatArray
    variance: FloatArray

    def __repr__(self) -> str:
        return shown(self)


class EffectsPosterior(NamedTuple):
    """Posterior of a task's effects, in one part for each set of priors.

    Attributes:
        parts: one mixture for each set of priors.
        log_evidence: log evidence of the rows, averaged over all priors.
        residuals: the residual variances, (S,).
    """

    parts: tuple[Mixture, ...]
    log_evidence: float
    residuals: FloatArray

    def __repr__(self) -> str:
        return shown(self)

    @property
    def mean(self) -> FloatArray:
        """Posterior mean of beta, (d,)."""
        total = 0.0
        for part in self.parts:
            z = np.einsum("kcs,kcsj->kj", part.weight, part.mean)
            total = total + part.weight.sum(axis=(1, 2)) @ part.prior_mean + np.einsum("kij,kj->i", part.F, z)
        return np.asarray(total)

    @property
    def shares(self) -> FloatArray:
        """Posterior probability of each part, (parts,)."""
        return np.array([part.weight.sum() for part in self.parts])

    def sample(self, rng: np.random.Generator, num_samples: int) -> dict[str, FloatArray]:
        """Draw ``beta`` (S, d), ``sigma`` (S,), the ``part`` (S,), and the index of its ``prior`` in the part (S,)."""
        sizes = [part.weight.size for part in self.parts]
        chances = np.concatenate([part.weight.ravel() for part in self.parts])
        picked = rng.choice(len(chances), num_samples, p=chances / chances.sum())
        z = rng.standard_normal((num_samples, self.parts[0].prior_mean.shape[1]))
        beta, sigma, prior = np.empty_like(z), np.empty(num_samples), np.empty(num_samples, dtype=int)
        of_part, first = np.empty(num_samples, dtype=int), 0
        for number, (part, size) in enumerate(zip(self.parts, sizes, strict=True)):
            of_this_part = np.flatnonzero((picked >= first) & (picked < first + size))
            k, c, s = np.unravel_index(picked[of_this_part] - first, part.weight.shape)
            at = part.mean[k, c, s] + np.sqrt(part.variance[k, c, s]) * z[of_this_part]
            beta[of_this_part] = part.prior_mean[k] + np.einsum("nij,nj->ni", part.F[k], at)
            sigma[of_this_part] = np.sqrt(self.residuals[s])
            prior[of_this_part], of_part[of_this_part] = k, number
            first += size
        return {"beta": beta, "sigma": sigma, "prior": prior, "part": of_part}


def effects_posterior(
    X: FloatArray,
    y: FloatArray,
    priors: Sequence[EffectsPriors],
    number: float | None = None,
    residuals: Residuals = UNKNOWN,
) -> EffectsPosterior:
    """Compute the posterior of one task's effects with normal errors.

    Args:
        X: rows (n, d) in common units; without rows, (0, d), the result is the prior of a new task.
        y: targets (n,), in common units.
        priors: sets of priors of the effects.
        number: effective number of rows, if these are weighted; default n.
        residuals: grid of the residual variance.
    """
    n = float(len(y)) if number is None else number
    laws, means, variances, factors = zip(*(_given(X, y, n, prior, residuals) for prior in priors), strict=True)
    top = max(law.max() for law in laws)
    total = sum(np.exp(law - top).sum() for law in laws)
    parts = tuple(
        Mixture(np.exp(law - top) / total, prior.mean, F, mean, variance)
        for law, prior, F, mean, variance in zip(laws, priors, factors, means, variances, strict=True)
    )
    return EffectsPosterior(parts, float(top + np.log(total)), residuals.variance)


def as_rows(mean: FloatArray, covariance: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return rows (d, d) and targets (d,) of residual variance 1, equivalent to an estimate with covariance V."""
    sd = np.sqrt(np.diag(covariance))
    # Decompose correlations, as coefficients may have very different scales.
    values, U = np.linalg.eigh(covariance / sd[:, None] / sd)
    rows = (U / np.sqrt(np.maximum(values, _LEAST))).T / sd
    return rows, rows @ mean


def _given(
    X: FloatArray, y: FloatArray, n: float, priors: EffectsPriors, residuals: Residuals
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Compute log weights (K, C, S), means and variances of z (K, C, S, d), and F (K, d, d) for one set of priors."""
    d, mean, variance = X.shape[1], priors.mean, residuals.variance
    gram, cross = X.T @ X, X.T @ y
    tiny = 1e-9 * (np.trace(priors.covariance, axis1=1, axis2=2)[:, None, None] + 1e-12)
    L = np.linalg.cholesky(priors.covariance + tiny * np.eye(d))
    eigenvalues, U = np.linalg.eigh(np.swapaxes(L, 1, 2) @ gram @ L)
    F = L @ U  # the rows' precision is diagonal in z
    r = np.einsum("kij,ki->kj", F, cross - mean @ gram)
    squared_residuals = np.maximum(y @ y - 2 * mean @ cross + np.einsum("ki,ij,kj->k", mean, gram, mean), 0.0)
    ratio = priors.scales[:, None, None] / variance[:, None]
    q = 1 + ratio * np.maximum(eigenvalues, 0.0)[:, None, None]
    means = ratio * r[:, None, None] / q
    explained = (means * r[:, None, None]).sum(axis=-1)
    quadratic = (squared_residuals[:, None, None] - explained) / variance
    log = residuals.log_prior - 0.5 * (n * np.log(2 * np.pi * variance) + np.log(q).sum(axis=-1) + quadratic)
    log = log + priors.log_weight[:, None, None] + priors.log_scale_weight[:, None]
    return log, means, priors.scales[:, None, None] / q, F


def student_effects_posterior(
    X: FloatArray, y: FloatArray, priors: Sequence[EffectsPriors]
) -> tuple[EffectsPosterior, FloatArray]:
    """Approximate the posterior with Student's t errors; return it with the rows' weights, (n,).

    :func:`student_log_ratio` makes its draws exact.
    """
    counts = np.ones(len(y))
    for _ in range(_STEPS):
        root = np.sqrt(counts)
        posterior = effects_posterior(X * root[:, None], y * root, priors)
        # Average sigma^-2 (y - X beta)^2 over the posterior, with the same random numbers at every step.
        drawn = posterior.sample(np.random.default_rng(0), 64)
        for now in in_turns(len(y), len(drawn["beta"])):
            squares = ((y[now] - drawn["beta"] @ X[now].T) / drawn["sigma"][:, None]) ** 2
            counts[now] = (FREEDOM + 1) / (FREEDOM + squares.mean(axis=0))
    power = tempered(X.shape[1])
    root = np.sqrt(power * counts)
    return effects_posterior(X * root[:, None], y * root, priors, power * len(y)), counts


def student_log_ratio(X: FloatArray, y: FloatArray, counts: FloatArray, drawn: Mapping[str, FloatArray]) -> FloatArray:
    """Return log importance weights, Student's likelihood over that of the proposal, (S,).

    Proposals are proportional to the prior times a power of a weighted normal likelihood, so that the prior cancels.
    """
    power, ratio = tempered(X.shape[1]), np.empty(len(drawn["beta"]))
    constant = gammaln((FREEDOM + 1) / 2) - gammaln(FREEDOM / 2) - 0.5 * np.log(FREEDOM * np.pi)
    for now in in_turns(len(ratio), len(y)):
        sigma = drawn["sigma"][now, None]
        squares = ((y - drawn["beta"][now] @ X.T) / sigma) ** 2
        exact = constant - (FREEDOM + 1) / 2 * np.log1p(squares / FREEDOM)
        proposed = -0.5 * (np.log(2 * np.pi) + counts * squares)
        # Both are densities of y, so that every row has a factor 1 / sigma.
        ratio[now] = (exact - np.log(sigma)).sum(axis=1) - power * (proposed - np.log(sigma)).sum(axis=1)
    return ratio


def tempered(d: int) -> float:
    """Return the power of the weighted normal likelihood in the proposal, below 1 so that the proposal has longer tails.

    It is nearer to 1 for more effects: with n effects a power p reduces the effective sample size to (p (2 - p))^(n / 2).
    """
    return 1 - 1 / float(np.sqrt(d + 1))
