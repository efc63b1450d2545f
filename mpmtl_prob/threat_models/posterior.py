"""Posterior distributions of the means for each seat. The law of the noise is public, so noisy means have a likelihood.

- :func:`public`: from a billboard, for anybody. All questions inform the population's law, which improves the estimate of
  each (partial pooling).
- :func:`owner`: from one number, and a person's own answers to that question.
- :func:`coalition`: from the numbers that several people were sent, and all their answers.
- :func:`newcomer`: from a public posterior, and own answers that are not in it.

All of this is post-processing, and has no privacy cost. Posteriors are computed on nodes q = sin^2(angle), and the unknown
count behind a noisy mean is summed out at every node. The nodes are dense enough for the number of people.

Coverage is on average over the prior. Where a billboard is nearly all noise, the result depends mostly on the prior of phi
and k; :func:`sensitivity` shows how much another prior would change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaln, logsumexp, xlogy

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import in_range, positive, whole
from mpmtl_prob._util.hidden_arrays import HidesArrays
from mpmtl_prob.models import rates
from mpmtl_prob.sampling.diagnostics import Diagnosis, Remedies, diagnose
from mpmtl_prob.sampling.nuts import run_nuts
from mpmtl_prob.threat_models.means import NoisyMeans
from mpmtl_prob.threat_models.problems import Ints, People
from mpmtl_prob.threat_models.signs import Signs, sign

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["MeanPosterior", "coalition", "newcomer", "owner", "public", "sensitivity"]

#: Parameters (a, b) of the Beta law of a uniform mean.
UNIFORM = (1.0, 1.0)
_MANY = 1000  # a count with a larger variance is treated as normal; otherwise it is summed out
_AT_ONCE = 20_000_000  # numbers in memory at once

REMEDIES = Remedies(
    "Call public with more draws, or a longer warmup.",
    lambda more, draws: f"public(..., draws={more + draws}) should do.",
    "Call public with a longer warmup, or with a prior.",
    "call public with a longer warmup.",
)


@dataclass(frozen=True, eq=False, repr=False)
class MeanPosterior(HidesArrays):
    """Posterior of p for some questions, from one seat.

    Attributes:
        seat: "public", "owner", "coalition" or "newcomer".
        index: the questions, (k,).
        seen: the likelihood of everything that the seat sees, at the nodes.
        phi: draws of the population's mean rate given the public data, (chain, draw); constant where the prior is given.
        log_k: draws of log k, the similarity of the rates, (chain, draw).
        statistics: of the sampler; empty where nothing was sampled.
        seed: of the draws of p.
        board: the part of ``seen.likelihood`` that comes from public data, (k, nodes); None where that is all of it.
    """

    seat: str
    index: Ints
    seen: rates.Seen
    phi: FloatArray
    log_k: FloatArray
    statistics: Mapping[str, FloatArray] = field(default_factory=dict)
    seed: int = 0
    board: FloatArray | None = None

    @property
    def nodes(self) -> FloatArray:
        """The nodes of p, ascending, (nodes,)."""
        return 2 * np.exp(np.asarray(self.seen.log_odds)[0]) - 1

    @property
    def probabilities(self) -> FloatArray:
        """Posterior probabilities of the nodes for each question, averaged over the draws of phi and k, (k, nodes)."""
        L, W = np.asarray(self.seen.likelihood), self._priors()
        # Own answers change the weight of a draw of phi and k: to its evidence with them over that without, that is
        # L @ W.T / (board @ W.T).
        board = np.maximum((L if self.board is None else self.board) @ W.T, 1e-300)  # (k, draws)
        weights: FloatArray = L * ((1 / board) @ W)
        return weights / np.maximum(weights.sum(axis=1, keepdims=True), 1e-300)

    @property
    def mean(self) -> FloatArray:
        """The posterior mean, which has the least expected square error, (k,)."""
        return self.probabilities @ self.nodes

    @property
    def positive(self) -> FloatArray:
        """The posterior probability P(p > 0), (k,)."""
        return self.probabilities @ (self.nodes > 0)

    @property
    def sign(self) -> Signs:
        """The sign of the posterior median, (k,)."""
        return sign(self.positive - 0.5)

    @property
    def excess(self) -> FloatArray:
        """The expected loss of the sign, E |p| 1{the sign is wrong}, (k,)."""
        losses = np.where(self.sign[:, None] * self.nodes < 0, np.abs(self.nodes), 0.0)
        return np.sum(self.probabilities * losses, axis=-1)

    def interval(self, probability: float = 0.9) -> FloatArray:
        """Return central posterior intervals of p, (2, k). Raises ValueError for a probability outside (0, 1)."""
        tail = (1 - in_range("probability", probability, 0, 1)) / 2
        return np.stack([self._quantile(np.full(len(self.index), level)) for level in (tail, 1 - tail)])

    def draws(self) -> FloatArray:
        """Draw p jointly with phi and k of :meth:`to_arviz`, (chain, draw, k)."""
        rng = np.random.default_rng([self.seed, 3])
        W = self._priors()[self._resampled()]
        L = np.asarray(self.seen.likelihood)
        p = np.empty((len(W), len(self.index)))
        for j, row in enumerate(L):
            p[:, j] = _draw(row * W, self._edges(), rng.random(len(W)))
        return p.reshape(*self.phi.shape, -1)

    def to_arviz(self) -> xr.DataTree:
        """Return a DataTree: ``posterior`` with ``p`` (chain, draw, feature), ``phi`` and ``k``, and ``sample_stats``."""
        import arviz as az

        phi, log_k = (draws.ravel()[self._resampled()].reshape(draws.shape) for draws in (self.phi, self.log_k))
        groups = {"posterior": {"p": self.draws(), "phi": phi, "k": np.exp(log_k)}}
        if self.statistics:
            groups["sample_stats"] = dict(self.statistics)
        tree = az.from_dict(groups, dims={"p": ["feature"]}, coords={"feature": self.index})
        tree.attrs["seat"] = self.seat
        return tree

    def diagnose(self) -> Diagnosis:
        """Return r-hat and effective sample sizes of the public draws of phi and log k.

        Raises ValueError where the prior was given, so that nothing was sampled.
        """
        if not self.statistics:
            raise ValueError("posterior: expected one whose population was learnt, got one of a given prior")
        return diagnose({"phi": self.phi, "log k": self.log_k}, self.statistics, remedies=REMEDIES)

    def _priors(self) -> FloatArray:
        """Return the prior weights of the nodes at every draw of phi and k, (draws, nodes)."""
        return np.exp(np.asarray(rates.log_prior(self.phi.ravel(), self.log_k.ravel(), self.seen)))

    def _resampled(self) -> Ints:
        """Resample the public draws of phi and k by their importance weights given own answers: indices, (draws,)."""
        draws = np.arange(self.phi.size)
        if self.board is None:
            return draws
        W, rng = self._priors(), np.random.default_rng([self.seed, 4])
        ratio = (np.asarray(self.seen.likelihood) @ W.T / np.maximum(self.board @ W.T, 1e-300))[0]
        height = (draws + rng.random()) / len(draws) * ratio.sum()
        return rng.permutation(np.minimum(np.searchsorted(np.cumsum(ratio), height), len(draws) - 1))

    def _edges(self) -> FloatArray:
        """Return the edges between nodes, as angles, (nodes + 1,)."""
        angle = np.arcsin(np.exp(np.asarray(self.seen.log_odds)[0] / 2))
        return np.concatenate([[0.0], (angle[1:] + angle[:-1]) / 2, [np.pi / 2]])

    def _quantile(self, u: FloatArray) -> FloatArray:
        return _draw(self.probabilities, self._edges(), u)


def public(
    values: ArrayLike,
    mechanism: NoisyMeans,
    *,
    population: tuple[float, float] | None = None,
    chains: int = 4,
    warmup: int = 300,
    draws: int = 300,
    seed: int = 0,
    progress_bar: bool = True,
) -> MeanPosterior:
    """Compute the public posterior from a billboard.

    Args:
        values: the noisy means, before clipping, (d,).
        mechanism: which published them.
        population: a given Beta prior (a, b) of (1 + p) / 2; default: the prior is learnt, by NUTS on (phi, log k).
        chains: side by side.
        warmup: iterations of adaptation per chain.
        draws: kept per chain.
        seed: of the chains and of the draws of p.
        progress_bar: show one.

    Raises:
        ValueError: an argument outside its range.
    """
    h = np.asarray(values, dtype=np.float64)
    if not mechanism.on_billboard or h.shape != (mechanism.num_features,):
        raise ValueError(f"values: expected a billboard's {mechanism.num_features} numbers, got shape {h.shape}")
    index, seen = np.arange(len(h)), seen_at(h, mechanism)
    if population is not None:
        return MeanPosterior("public", index, seen, *_fixed(population, chains, draws), seed=seed)
    start = {"phi": 0.0, "log_k": rates.LOG_K_MEAN}
    samples, statistics = run_nuts(
        rates.population,
        seen,
        start=start,
        chains=chains,
        warmup=warmup,
        draws=draws,
        seed=seed,
        progress_bar=progress_bar,
    )
    return MeanPosterior("public", index, seen, samples["phi"], samples["log_k"], statistics, seed)


def owner(
    value: float,
    answers: ArrayLike,
    mechanism: NoisyMeans,
    *,
    beta: tuple[float, float] = UNIFORM,
    chains: int = 4,
    draws: int = 300,
    seed: int = 0,
) -> MeanPosterior:
    """Compute one person's posterior, from the number that they were sent and their own answers, which it contains.

    Args:
        value: the number, before clipping.
        answers: the person's own answers to their question, (n,).
        mechanism: which sent the number.
        beta: prior (a, b) of (1 + p) / 2, as one number cannot inform the population.
        chains: of draws.
        draws: kept per chain.
        seed: of the draws.

    Raises:
        ValueError: an argument outside its range.
    """
    own = People(np.reshape(answers, (1, -1, 1)), [0])  # type: ignore[arg-type]
    if own.samples != mechanism.samples:
        raise ValueError(f"answers: expected {mechanism.samples}, got {own.samples}")
    if np.ndim(value) or own.num_features > 1:
        raise ValueError(f"value: expected the one number that was sent, got shape {np.shape(value)}")
    seen = seen_at([value], mechanism, own.totals, own.samples)
    return MeanPosterior("owner", np.zeros(1, dtype=np.int64), seen, *_fixed(beta, chains, draws), seed=seed)


def coalition(
    values: ArrayLike,
    people: People,
    mechanism: NoisyMeans,
    *,
    beta: tuple[float, float] = UNIFORM,
    chains: int = 4,
    draws: int = 300,
    seed: int = 0,
) -> MeanPosterior:
    """Compute the joint posterior of several people for their questions, from their numbers and all their answers.

    Args:
        values: the number that each was sent, before clipping, (k,).
        people: their answers and questions.
        mechanism: which sent the numbers. People with the same question have separate noise, or the same.
        beta: as :func:`owner`.
        chains: of draws.
        draws: kept per chain.
        seed: of the draws.

    Raises:
        ValueError: an argument outside its range.
    """
    g = np.asarray(values, dtype=np.float64)
    if g.shape != (people.num_people,):
        raise ValueError(f"values: expected {people.num_people} numbers, one per person, got shape {g.shape}")
    if people.answers.shape[1:] != (mechanism.samples, mechanism.num_features):
        raise ValueError(
            f"people: expected those that the mechanism is for, got answers of shape {people.answers.shape}"
        )
    index, inverse, count = np.unique(people.index, return_inverse=True, return_counts=True)
    average = np.bincount(inverse, g) / count
    sd = mechanism.sd / np.sqrt(1 if mechanism.shared else count)
    seen = seen_at(average, mechanism, people.totals[index], people.num_people * people.samples, sd)
    return MeanPosterior("coalition", index, seen, *_fixed(beta, chains, draws), seed=seed)


def newcomer(posterior: MeanPosterior, people: People) -> MeanPosterior:
    """Compute the posterior of a newcomer, who reads a billboard and has own answers that are not part of it.

    Args:
        posterior: the public posterior.
        people: the newcomer, one person.

    Raises:
        ValueError: another seat's posterior, more than one person, or other features.
    """
    if posterior.seat != "public" or people.num_people != 1:
        raise ValueError("posterior: expected a public one, and one newcomer")
    if people.num_features != len(posterior.index):
        raise ValueError(f"people: expected {len(posterior.index)} features, as published, got {people.num_features}")
    j = people.index
    log_q, log_q_no = np.asarray(posterior.seen.log_odds)
    ones = (people.samples + people.totals[j]) / 2
    own_log_likelihood = ones * log_q + (people.samples - ones) * log_q_no
    board = np.asarray(posterior.seen.likelihood)[j]
    likelihood = board * np.exp(own_log_likelihood - own_log_likelihood.max())
    seen = posterior.seen._replace(likelihood=likelihood / likelihood.max())
    return MeanPosterior(
        "newcomer", j, seen, posterior.phi, posterior.log_k, posterior.statistics, posterior.seed, board
    )


def sensitivity(posterior: MeanPosterior, beta: tuple[float, float] = UNIFORM) -> str:
    """Describe in a sentence how far estimates would move under a given prior."""
    other = MeanPosterior(posterior.seat, posterior.index, posterior.seen, *_fixed(beta, 1, 1))
    moved = np.sqrt(np.mean((posterior.mean - other.mean) ** 2))
    spread = np.sqrt(np.mean(posterior.probabilities @ posterior.nodes**2 - posterior.mean**2))
    return (
        f"Under a Beta({beta[0]:g}, {beta[1]:g}) prior estimates move by {moved:.2g} (root mean square), "
        f"{moved / spread:.2g} of a posterior standard deviation."
    )


def seen_at(
    values: ArrayLike, mechanism: NoisyMeans, own: ArrayLike = 0, known: int = 0, sd: ArrayLike | None = None
) -> rates.Seen:
    """Compute the likelihood of rates q from noisy means (k,), which contain ``known`` answers with the sums ``own``.

    Known answers have their own factor in the likelihood. The count of the other answers is summed out.

    Raises:
        ValueError: no noise, or more known answers than the means contain.
    """
    g, total = np.asarray(values, dtype=np.float64), mechanism.num_people * mechanism.samples
    sd = np.broadcast_to(mechanism.sd if sd is None else sd, g.shape)
    if not (np.isfinite(g).all() and (sd > 0).all()):
        raise ValueError("values: expected finite numbers with noise, got others")
    if known > total:
        raise ValueError(f"people: expected at most {mechanism.num_people}, got more")
    size = max(160, int(np.ceil(4 * np.sqrt(total))))
    x, w = np.polynomial.legendre.leggauss(size)
    angle = (x + 1) * np.pi / 4
    q, q_no = np.sin(angle) ** 2, np.cos(angle) ** 2  # the rates of positive and of negative answers
    own = np.broadcast_to(own, g.shape)
    ones = (known + own) / 2
    log_likelihood = _log_likelihood(g - own / total, q, q_no, sd, total - known, total)
    log_likelihood = log_likelihood + xlogy(ones[:, None], q) + xlogy(known - ones[:, None], q_no)
    likelihood = np.exp(log_likelihood - log_likelihood.max(axis=1, keepdims=True))
    return rates.Seen(likelihood, np.stack([np.log(q), np.log(q_no)]), np.log(w * np.sin(2 * angle)))


def _log_likelihood(
    g: FloatArray, q: FloatArray, q_no: FloatArray, sd: FloatArray, unknown: int, total: int
) -> FloatArray:
    """Compute log p(g | q) for the sum of unknown answers and noise, up to a constant for each g, (k, nodes)."""
    expected = q * q_no * unknown
    variance = sd[:, None] ** 2 + 4 * expected / total**2
    log_likelihood = -((g[:, None] - unknown * (q - q_no) / total) ** 2) / (2 * variance) - np.log(variance) / 2
    # Counts are whole numbers. Where the noise is small enough to show this, values near whole counts are more likely.
    count, step = (g * total + unknown) / 2, 2 / (total * sd)
    off = ((count - np.rint(count))[:, None] - np.arange(-10, 11)) * step[:, None]
    near_whole = logsumexp(-(off**2) / 2, axis=1) + np.log(step) - np.log(2 * np.pi) / 2
    log_likelihood += np.where(step > 0.7, near_whole, 0.0)[:, None]
    for side, p, other in ((1, q, q_no), (-1, q_no, q)):  # few positive answers, then few negative ones
        few = (expected <= _MANY) & (p <= other)
        log_likelihood[:, few] = _summed(side * g, p[few], other[few], sd, unknown, total)
    return log_likelihood


def _summed(g: FloatArray, q: FloatArray, q_no: FloatArray, sd: FloatArray, unknown: int, total: int) -> FloatArray:
    """Compute the same for small q, by a sum over all counts that are not too unlikely."""
    most = unknown * q.max(initial=0.0)
    c = np.arange(min(unknown, int(most + 12 * np.sqrt(most) + 60)) + 1)
    log_count = xlogy(c, q[:, None]) + xlogy(unknown - c, q_no[:, None]) - betaln(c + 1, unknown - c + 1)
    pmf = np.exp(log_count - logsumexp(log_count, axis=1, keepdims=True)).T  # (counts, nodes)
    log_likelihood = np.empty((len(g), len(q)))
    rows = max(_AT_ONCE // len(c), 1)
    for start in range(0, len(g), rows):
        part = slice(start, start + rows)
        square = ((g[part, None] - (2 * c - unknown) / total) / sd[part, None]) ** 2 / 2
        least = square.min(axis=1, keepdims=True)
        log_likelihood[part] = np.log(np.maximum(np.exp(least - square) @ pmf, 1e-300)) - least - np.log(sd[part, None])
    return log_likelihood


def _fixed(beta: tuple[float, float], chains: int, draws: int) -> tuple[FloatArray, FloatArray]:
    """Return phi and log k of a given Beta law, as constant draws."""
    a, b = (positive("beta", parameter) for parameter in beta)
    chains, draws = whole("chains", chains), whole("draws", draws)
    return np.full((chains, draws), a / (a + b)), np.full((chains, draws), np.log(a + b))


def _draw(weights: FloatArray, edges: FloatArray, u: FloatArray) -> FloatArray:
    """Return p at the quantiles u (n,) of laws on nodes (n, nodes), whose mass is spread evenly between each node's edges."""
    below = np.cumsum(weights, axis=1)
    target = u * below[:, -1]
    cell = np.minimum((below <= target[:, None]).sum(axis=1), weights.shape[1] - 1)
    rows = np.arange(len(u))
    inside = (target - below[rows, cell]) / weights[rows, cell] + 1
    angle = edges[cell] + np.clip(inside, 0, 1) * (edges[cell + 1] - edges[cell])
    return 2 * np.sin(angle) ** 2 - 1
