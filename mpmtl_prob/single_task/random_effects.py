"""One task of a mixed model: its effects given its own rows and what is known of tasks' effects.

    y = X beta + sigma e,    beta ~ N(mu_k, c Omega_k) with probability w_kc,    sigma^2 on a grid

The priors k are draws of a public posterior, or whatever else the task may turn out to be; c are scales of the spread.
Given k, c and sigma everything is normal, and the law of the task's own rows, its evidence, says how much each of them
counts.

Errors of Student's t law are normal given what every row counts, omega_r = (nu + 1) / (nu + r^2 / sigma^2). A few steps find
omega; draws are then made exact by the ratio of the two laws of the rows, as all else of the ratio cancels.

An estimate b that was made elsewhere, with covariance V, is as d rows whose residual variance is known to be 1: with rows
V^(-1/2), N(b | beta, V) is the law of targets V^(-1/2) b.
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

_STEPS = 8  # towards what every row counts
_LEAST = 1e-12  # of an eigenvalue of correlations, of which rounding leaves no less


class Residuals(NamedTuple):
    """What a task's residual variance may be.

    Attributes:
        variance: (S,).
        log_prior: of each, (S,).
    """

    variance: FloatArray
    log_prior: FloatArray


#: Of rows, and of what :func:`as_rows` makes of an estimate.
UNKNOWN, KNOWN = Residuals(RESIDUALS, LOG_PRIOR), Residuals(np.ones(1), np.zeros(1))


class EffectsPriors(NamedTuple):
    """Normal priors of a task's effects, K of them, each with the same scales of its spread.

    Attributes:
        log_weight: of every prior, (K,).
        mean: (K, d).
        covariance: (K, d, d).
        scales: c, (C,).
        log_scale_weight: (C,).
    """

    log_weight: FloatArray
    mean: FloatArray
    covariance: FloatArray
    scales: FloatArray
    log_scale_weight: FloatArray


class Mixture(NamedTuple):
    """A task's posterior: normal laws with weights, in coordinates z of every prior, beta = mean + F z.

    Attributes:
        weight: (K, C, S), S the residual variances; all weights of all parts sum to 1.
        prior_mean: (K, d).
        F: (K, d, d).
        mean: of z, (K, C, S, d).
        variance: of z, (K, C, S, d).
    """

    weight: FloatArray
    prior_mean: FloatArray
    F: FloatArray
    mean: FloatArray
    variance: FloatArray

    def __repr__(self) -> str:
        return shown(self)


class EffectsPosterior(NamedTuple):
    """A task's posterior of its effects, in parts.

    Attributes:
        parts: one for each of the priors that were given.
        log_evidence: of the rows, averaged over all priors.
        residuals: the residual variances, (S,).
    """

    parts: tuple[Mixture, ...]
    log_evidence: float
    residuals: FloatArray

    def __repr__(self) -> str:
        return shown(self)

    @property
    def mean(self) -> FloatArray:
        """Of beta, (d,)."""
        total = 0.0
        for part in self.parts:
            z = np.einsum("kcs,kcsj->kj", part.weight, part.mean)
            total = total + part.weight.sum(axis=(1, 2)) @ part.prior_mean + np.einsum("kij,kj->i", part.F, z)
        return np.asarray(total)

    @property
    def shares(self) -> FloatArray:
        """How much each of the parts counts, (parts,)."""
        return np.array([part.weight.sum() for part in self.parts])

    def sample(self, rng: np.random.Generator, num_samples: int) -> dict[str, FloatArray]:
        """Draws of ``beta`` (S, d), ``sigma`` (S,), the ``part`` (S,), and which of its priors it was, ``prior`` (S,)."""
        sizes = [part.weight.size for part in self.parts]
        chances = np.concatenate([part.weight.ravel() for part in self.parts])
        picked = rng.choice(len(chances), num_samples, p=chances / chances.sum())
        z = rng.standard_normal((num_samples, self.parts[0].prior_mean.shape[1]))
        beta, sigma, prior = np.empty_like(z), np.empty(num_samples), np.empty(num_samples, dtype=int)
        of_part, first = np.empty(num_samples, dtype=int), 0
        for number, (part, size) in enumerate(zip(self.parts, sizes, strict=True)):
            own = np.flatnonzero((picked >= first) & (picked < first + size))
            k, c, s = np.unravel_index(picked[own] - first, part.weight.shape)
            at = part.mean[k, c, s] + np.sqrt(part.variance[k, c, s]) * z[own]
            beta[own] = part.prior_mean[k] + np.einsum("nij,nj->ni", part.F[k], at)
            sigma[own] = np.sqrt(self.residuals[s])
            prior[own], of_part[own] = k, number
            first += size
        return {"beta": beta, "sigma": sigma, "prior": prior, "part": of_part}


def effects_posterior(
    X: FloatArray,
    y: FloatArray,
    priors: Sequence[EffectsPriors],
    number: float | None = None,
    residuals: Residuals = UNKNOWN,
) -> EffectsPosterior:
    """One task's effects in common units, with normal errors.

    Args:
        X: rows (n, d) in common units; none, (0, d), give the law of a new task.
        y: targets (n,), likewise.
        priors: what the effects may be like.
        number: of rows, where these are weighted; default n.
        residuals: what the residual variance may be.
    """
    n = float(len(y)) if number is None else number
    laws, means, variances, factors = zip(*(_given(X, y, n, each, residuals) for each in priors), strict=True)
    top = max(law.max() for law in laws)
    total = sum(np.exp(law - top).sum() for law in laws)
    parts = tuple(
        Mixture(np.exp(law - top) / total, prior.mean, F, mean, variance)
        for law, prior, F, mean, variance in zip(laws, priors, factors, means, variances, strict=True)
    )
    return EffectsPosterior(parts, float(top + np.log(total)), residuals.variance)


def as_rows(mean: FloatArray, covariance: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Rows (d, d) and targets (d,) that say what an estimate b (d,) with covariance V (d, d) does, of residual variance 1."""
    sd = np.sqrt(np.diag(covariance))
    values, U = np.linalg.eigh(
        covariance / sd[:, None] / sd
    )  # of correlations, as one coefficient may be far from another
    rows = (U / np.sqrt(np.maximum(values, _LEAST))).T / sd
    return rows, rows @ mean


def _given(
    X: FloatArray, y: FloatArray, n: float, priors: EffectsPriors, residuals: Residuals
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Log weights (K, C, S), means and variances of z (K, C, S, d) and F (K, d, d) of one set of priors."""
    d, mean, variance = X.shape[1], priors.mean, residuals.variance
    gram, cross = X.T @ X, X.T @ y
    tiny = 1e-9 * (np.trace(priors.covariance, axis1=1, axis2=2)[:, None, None] + 1e-12)
    L = np.linalg.cholesky(priors.covariance + tiny * np.eye(d))
    eigenvalues, U = np.linalg.eigh(np.swapaxes(L, 1, 2) @ gram @ L)
    F = L @ U  # the rows' precision is diagonal in z
    r = np.einsum("kij,ki->kj", F, cross - mean @ gram)
    rest = np.maximum(y @ y - 2 * mean @ cross + np.einsum("ki,ij,kj->k", mean, gram, mean), 0.0)
    ratio = priors.scales[:, None, None] / variance[:, None]
    q = 1 + ratio * np.maximum(eigenvalues, 0.0)[:, None, None]
    means = ratio * r[:, None, None] / q
    explained = (means * r[:, None, None]).sum(axis=-1)
    quadratic = (rest[:, None, None] - explained) / variance
    log = residuals.log_prior - 0.5 * (n * np.log(2 * np.pi * variance) + np.log(q).sum(axis=-1) + quadratic)
    log = log + priors.log_weight[:, None, None] + priors.log_scale_weight[:, None]
    return log, means, priors.scales[:, None, None] / q, F


def student_effects_posterior(
    X: FloatArray, y: FloatArray, priors: Sequence[EffectsPriors]
) -> tuple[EffectsPosterior, FloatArray]:
    """One task's effects with errors of Student's t law, approximately, and what every row counts, (n,).

    :func:`student_log_ratio` makes its draws exact.
    """
    counts = np.ones(len(y))
    for _ in range(_STEPS):
        root = np.sqrt(counts)
        posterior = effects_posterior(X * root[:, None], y * root, priors)
        # the mean of sigma^-2 (y - X beta)^2 over the posterior, by draws that are the same at every step
        drawn = posterior.sample(np.random.default_rng(0), 64)
        for now in in_turns(len(y), len(drawn["beta"])):
            squares = ((y[now] - drawn["beta"] @ X[now].T) / drawn["sigma"][:, None]) ** 2
            counts[now] = (FREEDOM + 1) / (FREEDOM + squares.mean(axis=0))
    power = tempered(X.shape[1])
    root = np.sqrt(power * counts)
    return effects_posterior(X * root[:, None], y * root, priors, power * len(y)), counts


def student_log_ratio(X: FloatArray, y: FloatArray, counts: FloatArray, drawn: Mapping[str, FloatArray]) -> FloatArray:
    """Log ratio of Student's law of the rows to what draws were proposed from, (S,).

    Proposals are proportional to the prior times a power of a weighted normal law, so that nothing else is left of the ratio.
    """
    power, ratio = tempered(X.shape[1]), np.empty(len(drawn["beta"]))
    constant = gammaln((FREEDOM + 1) / 2) - gammaln(FREEDOM / 2) - 0.5 * np.log(FREEDOM * np.pi)
    for now in in_turns(len(ratio), len(y)):
        sigma = drawn["sigma"][now, None]
        squares = ((y - drawn["beta"][now] @ X.T) / sigma) ** 2
        exact = constant - (FREEDOM + 1) / 2 * np.log1p(squares / FREEDOM)
        proposed = -0.5 * (np.log(2 * np.pi) + counts * squares)
        # both are densities of y: of residuals over sigma, once per row
        ratio[now] = (exact - np.log(sigma)).sum(axis=1) - power * (proposed - np.log(sigma)).sum(axis=1)
    return ratio


def tempered(d: int) -> float:
    """The power of the weighted normal law of rows that draws are proposed from, so that its tails are the longer ones.

    The more effects, the nearer to 1: of n effects a power p leaves of the draws a share (p (2 - p))^(n / 2).
    """
    return 1 - 1 / float(np.sqrt(d + 1))
