"""Membership inference: Bayes factors of an attacker who knows a person's answers, and sees noisy means.

In the alternative a new person takes the person's place. For every number g that is seen, with y of the person's n answers
positive and N(.) the noise,

    log BF = log sum_c' P(c' of (t - 1) n) N(g; 2 (c' + y) / (t n) - 1, s^2)
           - log sum_c P(c of t n) N(g; 2 c / (t n) - 1, s^2),

P is beta-binomial, by the prior of the mean updated with the person's own answers, or binomial if p is known. Whatever the
attacker knows, the mean of log BF if the person took part is at most rho = mu^2 / 2, as it is the divergence of a part of the
data that the guarantee covers. The strongest attacker, who knows all other answers too, has log BF ~ N(mu^2 / 2, mu^2).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaln, expit, logit, logsumexp, ndtr, ndtri, xlog1py, xlogy

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import in_range, positive, whole
from mpmtl_prob._util.hidden_arrays import HidesArrays
from mpmtl_prob._util.tables import percent
from mpmtl_prob.privacy.audit.found import Interval
from mpmtl_prob.privacy.audit.views import View
from mpmtl_prob.threat_models.means import NoisyMeans, against
from mpmtl_prob.threat_models.problems import Ints, checked_means

__all__ = ["Participant", "Suspected", "log_factor", "participant", "suspect"]

_CELLS = 4_000_000  # numbers in memory at once
UNIFORM = (1.0, 1.0)


def log_factor(
    values: ArrayLike,
    own: ArrayLike,
    mechanism: NoisyMeans,
    *,
    beta: tuple[float, float] = UNIFORM,
    p: ArrayLike | None = None,
) -> FloatArray:
    """Compute the log Bayes factor of a person's participation, (...,).

    Args:
        values: the noisy means of different features that the attacker sees, before clipping, (..., k).
        own: sums of the person's n answers on these features, (..., k) or (k,).
        mechanism: which made the noisy means.
        beta: (a, b) of the prior of (1 + p) / 2; default uniform.
        p: the means, (..., k) or (k,), for an attacker who knows them.

    Raises:
        ValueError: no noise, or an argument outside its range.
    """
    g, x = np.asarray(values, dtype=np.float64), np.asarray(own, dtype=np.float64)
    if not np.isfinite(g).all() or x.shape[-1:] != g.shape[-1:]:
        raise ValueError(
            f"values: expected finite numbers, one per sum of own answers, got shapes {g.shape}, {x.shape}"
        )
    g, x = np.broadcast_arrays(g, x)
    n, t = mechanism.samples, mechanism.num_people
    if not mechanism.sd:
        raise ValueError("mechanism: expected one with noise, got one without")
    y = (n + x) / 2
    if not ((y >= 0) & (y <= n) & (y == np.rint(y))).all():
        raise ValueError(f"own: expected sums of {n} answers of -1 and 1, got others")
    a, b = (positive("beta", parameter) for parameter in beta)
    q = None if p is None else np.broadcast_to((1 + checked_means(p)) / 2, g.shape)
    k = g.shape[-1]
    flat_g, flat_y = g.reshape(-1, k), y.reshape(-1, k)
    flat_q = None if q is None else q.reshape(-1, k)
    rows = max(_CELLS // (k * (t * n + 1)), 1)
    log_factors = []
    for start in range(0, len(flat_g), rows):
        part = slice(start, start + rows)
        G, Y = flat_g[part], flat_y[part].astype(np.int64)
        known = None if flat_q is None else flat_q[part]
        present = _log_density(G, Y, (t - 1) * n, Y, mechanism, (a, b), known)
        absent = _log_density(G, Y, t * n, 0, mechanism, (a, b), known)
        log_factors.append((present - absent).sum(axis=-1))
    return np.concatenate(log_factors).reshape(g.shape[:-1])


def _log_density(
    g: FloatArray,
    y: Ints,
    unknown: int,
    added: ArrayLike,
    mechanism: NoisyMeans,
    beta: tuple[float, float],
    q: FloatArray | None,
) -> FloatArray:
    """Compute log sum_c P(c of unknown) N(g; 2 (c + added) / (t n) - 1, s^2), (rows, k)."""
    from scipy.stats import betabinom  # a second to import

    c, n = np.arange(unknown + 1), mechanism.samples
    if q is None:  # one row of the table for every possible number of the person's positive answers
        a, b = beta
        table = np.stack([betabinom.logpmf(c, unknown, a + yes, b + n - yes) for yes in range(n + 1)])
        log_p = table[y]
    else:
        q = q[..., None]
        log_p = xlogy(c, q) + xlog1py(unknown - c, -q) - betaln(c + 1, unknown - c + 1) - np.log(unknown + 1)
    mean = 2 * (c + np.asarray(added)[..., None]) / (mechanism.num_people * n) - 1
    return logsumexp(log_p - ((g[..., None] - mean) / mechanism.sd) ** 2 / 2, axis=-1)


@dataclass(frozen=True, eq=False, repr=False)
class Suspected(HidesArrays):
    """Log Bayes factors of people who took part, and of people whose place a new person took.

    Attributes:
        mechanism: the mechanism under attack.
        view: what the attacker saw.
        inside: log BF of people who took part, (n,).
        outside: log BF of people who did not, (n,).
    """

    mechanism: NoisyMeans
    view: View
    inside: FloatArray
    outside: FloatArray

    def probability(self, prior: float = 0.5) -> tuple[FloatArray, FloatArray]:
        """Return the attacker's posterior probabilities of participation, of participants and of other people."""
        start = logit(in_range("prior", prior, 0, 1))
        return expit(start + self.inside), expit(start + self.outside)

    def information(self, confidence: float = 0.99) -> Interval:
        """Estimate E[log BF] of participants, in nats, with limits by the central limit theorem.

        A lower limit above rho refutes a guarantee of mu^2 / 2 = rho, even though the attacker does not know the others.
        """
        z = -ndtri((1 - in_range("confidence", confidence, 0, 1)) / 2)
        mean, width = self.inside.mean(), z * self.inside.std(ddof=1) / np.sqrt(len(self.inside))
        return Interval(float(mean), float(mean - width), float(mean + width))


def suspect(
    mechanism: NoisyMeans,
    *,
    view: View | None = None,
    beta: tuple[float, float] = UNIFORM,
    known: bool = False,
    trials: int = 2000,
    seed: int = 0,
) -> Suspected:
    """Play the membership-inference attack many times, with new means p from the prior; in doubles.

    Args:
        mechanism: the mechanism under attack, with noise.
        view: what the attacker sees; default the view that the noise protects against. The people ask about different
            features.
        beta: (a, b) of the prior of (1 + p) / 2, which the attacker knows.
        known: whether the attacker knows p too.
        trials: number of games with the person, and as many without.
        seed: of everything.

    Raises:
        ValueError: an argument outside its range, or a view that shows a person's own number.
    """
    attacked = mechanism.view if view is None else view
    k = mechanism.numbers(attacked)
    if k is None:
        raise ValueError("view: expected other people's numbers, got the billboard, which shows a person's own")
    t, n = mechanism.num_people, mechanism.samples
    rng, shape = np.random.default_rng(whole("seed", seed, 0)), (whole("trials", trials, 2), k)
    a, b = (positive("beta", parameter) for parameter in beta)
    q = rng.beta(a, b, shape)
    others = 2 * rng.binomial((t - 1) * n, q) - (t - 1) * n
    own, fresh = (2 * rng.binomial(n, q) - n for _ in range(2))
    log_factors = []
    for participant_sums in (own, fresh):
        seen = (others + participant_sums) / (t * n) + mechanism.sd * rng.standard_normal(shape)
        log_factors.append(log_factor(seen, own, mechanism, beta=beta, p=2 * q - 1 if known else None))
    return Suspected(mechanism, attacked, *log_factors)


@dataclass(frozen=True)
class Participant:
    """Membership-inference risk of one participant; str() explains it to them in words.

    Attributes:
        view: what the attacker sees.
        prior: the attacker's probability, before the release, that the person took part.
        typical: the median of the probability after the release, for an attacker who knows the person's answers and the
            population's means, but not the answers of others.
        tenth: the 90 % quantile of the same.
        most: the probability whose odds are e^eps times the prior odds.
        passed: the probability with which the strongest attacker, who knows all other answers too, exceeds ``most``.
    """

    view: View
    prior: float
    typical: float
    tenth: float
    most: float
    passed: float

    def __str__(self) -> str:
        who = "anybody" if self.view.owners is None else against(self.view)
        return (
            f"Against {who}: assume an attacker who thought it {percent(self.prior)} likely that you took part. If they know "
            f"your answers and the population's means, then after seeing this they typically find it {percent(self.typical)} "
            f"likely (in one case of ten more than {percent(self.tenth)}). If they know all others' answers too, they do not "
            f"get beyond {self.most:.0%}, except with a probability of {self.passed:.2g}."
        )


def participant(
    mechanism: NoisyMeans,
    epsilon: float,
    *,
    prior: float = 0.5,
    trials: int = 2000,
    seed: int = 0,
) -> Participant:
    """Compute the membership-inference risk of a participant, in the view that the mechanism protects against.

    Args:
        mechanism: with noise.
        epsilon: of the guarantee, by which odds grow by at most a factor of e^eps.
        prior: the attacker's probability, before the release, that the person took part, in (0, 1).
        trials: number of simulations for the typical case.
        seed: of the simulations.

    Raises:
        ValueError: an argument outside its range.
    """
    eps, mu = positive("epsilon", epsilon), mechanism.mu()
    inside, _ = suspect(mechanism, known=True, trials=trials, seed=seed).probability(prior)
    passed = ndtr(mu / 2 - eps / mu)  # log BF ~ N(mu^2 / 2, mu^2)
    typical, tenth = (float(quantile) for quantile in np.quantile(inside, (0.5, 0.9)))
    return Participant(mechanism.view, prior, typical, tenth, float(expit(logit(prior) + eps)), float(passed))
