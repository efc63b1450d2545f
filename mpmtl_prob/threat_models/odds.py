"""Was this person in it? Bayes factors for somebody who knows the person's answers, and of the others what is seen.

In the alternative a fresh person stands in the place. For every number g that is seen, with y of the person's n answers
positive and N(.) the noise,

    log BF = log sum_c' P(c' of (t - 1) n) N(g; 2 (c' + y) / (t n) - 1, s^2)
           - log sum_c P(c of t n) N(g; 2 c / (t n) - 1, s^2),

P beta-binomial of the prior of the mean updated by the person's own answers, or binomial if p is known. Whatever the attacker
knows or does not, the mean of log BF when the person is there is at most rho = mu^2 / 2: it is the divergence of a part of
what the promise is about. The strongest attacker, who knows all other answers too, has log BF ~ N(mu^2 / 2, mu^2).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaln, expit, logit, logsumexp, ndtr, ndtri, xlog1py, xlogy

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import in_range, positive, whole
from mpmtl_prob._util.hidden_arrays import HidesArrays
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
    """The log Bayes factor of a person's presence, (...,).

    Args:
        values: the noisy means that are seen, before they are clipped, of different features, (..., k).
        own: sums of the person's n answers to these, (..., k) or (k,).
        mechanism: which made them.
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
    a, b = (positive("beta", each) for each in beta)
    q = None if p is None else np.broadcast_to((1 + checked_means(p)) / 2, g.shape)
    k = g.shape[-1]
    flat = lambda values: values.reshape(-1, k)
    rows = max(_CELLS // (k * (t * n + 1)), 1)
    found = []
    for start in range(0, len(flat(g)), rows):
        part = slice(start, start + rows)
        G, Y = flat(g)[part], flat(y)[part].astype(np.int64)
        known = None if q is None else flat(q)[part]
        inside = _mixed(G, Y, (t - 1) * n, Y, mechanism, (a, b), known)
        found.append((inside - _mixed(G, Y, t * n, 0, mechanism, (a, b), known)).sum(axis=-1))
    return np.concatenate(found).reshape(g.shape[:-1])


def _mixed(
    g: FloatArray,
    y: Ints,
    unknown: int,
    added: ArrayLike,
    mechanism: NoisyMeans,
    beta: tuple[float, float],
    q: FloatArray | None,
) -> FloatArray:
    """log sum_c P(c of unknown) N(g; 2 (c + added) / (t n) - 1, s^2), (rows, k)."""
    from scipy.stats import betabinom  # which takes a second to import

    c, n = np.arange(unknown + 1), mechanism.samples
    if q is None:  # one table for every possible number of own positive answers
        log_p = np.stack([betabinom.logpmf(c, unknown, beta[0] + own, beta[1] + n - own) for own in range(n + 1)])[y]
    else:
        q = q[..., None]
        log_p = xlogy(c, q) + xlog1py(unknown - c, -q) - betaln(c + 1, unknown - c + 1) - np.log(unknown + 1)
    mean = 2 * (c + np.asarray(added)[..., None]) / (mechanism.num_people * n) - 1
    return logsumexp(log_p - ((g[..., None] - mean) / mechanism.sd) ** 2 / 2, axis=-1)


@dataclass(frozen=True, eq=False, repr=False)
class Suspected(HidesArrays):
    """Log Bayes factors of people who were there and of people whose place a fresh one took.

    Attributes:
        mechanism: what was played against.
        view: what the attacker saw.
        inside: log BF of those who were there, (n,).
        outside: of those who were not, (n,).
    """

    mechanism: NoisyMeans
    view: View
    inside: FloatArray
    outside: FloatArray

    def probability(self, prior: float = 0.5) -> tuple[FloatArray, FloatArray]:
        """That each was there, after seeing it: of those who were, and of those who were not."""
        start = logit(in_range("prior", prior, 0, 1))
        return expit(start + self.inside), expit(start + self.outside)

    def information(self, confidence: float = 0.99) -> Interval:
        """E[log BF] of those who were there, in nats, between limits by the central limit theorem.

        A lower limit above rho refutes the promise of mu^2 / 2 = rho, by an attacker who does not know the others.
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
    """Play against people whose p comes from the prior, new every time, in doubles.

    Args:
        mechanism: what to play against, with noise.
        view: what the attacker sees, default what the noise is meant for; others ask about different features.
        beta: (a, b) of the prior of (1 + p) / 2, which the attacker knows.
        known: whether the attacker knows p too.
        trials: of each kind.
        seed: of everything.

    Raises:
        ValueError: an argument outside its range, or a view that shows a person's own number.
    """
    looking = mechanism.view if view is None else view
    k = mechanism.numbers(looking)
    if k is None:
        raise ValueError("view: expected other people's numbers, got the billboard, which shows a person's own")
    t, n = mechanism.num_people, mechanism.samples
    rng, shape = np.random.default_rng(whole("seed", seed, 0)), (whole("trials", trials, 2), k)
    a, b = (positive("beta", each) for each in beta)
    q = rng.beta(a, b, shape)
    rest = 2 * rng.binomial((t - 1) * n, q) - (t - 1) * n
    own, other = (2 * rng.binomial(n, q) - n for _ in range(2))
    found = []
    for there in (own, other):
        seen = (rest + there) / (t * n) + mechanism.sd * rng.standard_normal(shape)
        found.append(log_factor(seen, own, mechanism, beta=beta, p=2 * q - 1 if known else None))
    return Suspected(mechanism, looking, *found)


@dataclass(frozen=True)
class Participant:
    """What somebody could learn about a person's taking part, for that person; str() says it in words.

    Attributes:
        view: who looks.
        prior: how likely they thought it.
        typical: the median of how likely they think it then, if they know the person's answers and the population's means,
            and no others' answers.
        tenth: what one in ten of these is beyond.
        most: e^eps times the odds, as a probability.
        passed: the probability that the strongest attacker, who knows all others' answers too, gets beyond.
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
            f"Against {who}: if somebody thought it {self.prior:.0%} likely that you took part, then after seeing this it is "
            f"typically {self.typical:.0%} (in one case of ten more than {self.tenth:.0%}) for whoever knows your answers "
            f"and the population's means. Whoever knows all others' answers too does not get beyond {self.most:.0%}, except "
            f"with a probability of {self.passed:.2g}."
        )


def participant(
    mechanism: NoisyMeans,
    epsilon: float,
    *,
    prior: float = 0.5,
    trials: int = 2000,
    seed: int = 0,
) -> Participant:
    """What a mechanism lets somebody learn about a person who took part, before the view that it is meant for.

    Args:
        mechanism: with noise.
        epsilon: of the promise; the cap is e^eps times the odds.
        prior: how likely somebody thought it, in (0, 1).
        trials: simulations behind the typical case.
        seed: of these.

    Raises:
        ValueError: an argument outside its range.
    """
    eps, mu = positive("epsilon", epsilon), mechanism.mu()
    inside, _ = suspect(mechanism, known=True, trials=trials, seed=seed).probability(prior)
    passed = ndtr(mu / 2 - eps / mu)  # log BF ~ N(mu^2 / 2, mu^2)
    typical, tenth = (float(each) for each in np.quantile(inside, (0.5, 0.9)))
    return Participant(mechanism.view, prior, typical, tenth, float(expit(logit(prior) + eps)), float(passed))
