"""What each seat knows of the means: the law of the noise is public, so that what is seen is data with a likelihood.

- :func:`public`: a billboard, for anybody. From many questions the population is learnt, and serves each of them.
- :func:`owner`: one number, and the own answers to that question.
- :func:`coalition`: what several people were sent, and the answers of all of them.
- :func:`newcomer`: a public posterior, and own answers that are not in it.

Everything is post-processing: it costs no one any privacy. All posteriors are computed on nodes q = sin^2(angle), on which
the count behind a noisy mean is summed out; nodes are dense enough for that many people.

Coverage is over the prior: what is learnt from a billboard that is nearly all noise is what the prior of phi and k says, and
:func:`sensitivity` shows how much another one would change.
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

#: (a, b) of a uniform mean
UNIFORM = (1.0, 1.0)
_MANY = 1000  # variance of a count above which it is as good as normal; below, it is summed out
_AT_ONCE = 20_000_000  # numbers in memory

REMEDIES = Remedies(
    "Call public with more draws, or a longer warmup.",
    lambda more, draws: f"public(..., draws={more + draws}) should do.",
    "Call public with a longer warmup, or with a prior.",
    "call public with a longer warmup.",
)


@dataclass(frozen=True, eq=False, repr=False)
class MeanPosterior(HidesArrays):
    """The posterior of p for some questions, from one seat.

    Attributes:
        seat: "public", "owner", "coalition" or "newcomer".
        index: the questions, (k,).
        seen: what is seen of them, at the nodes.
        phi: draws of the population's mean rate given what the public sees, (chain, draw); constant where the prior is given.
        log_k: of how alike the rates are.
        statistics: of the sampler; empty where nothing was sampled.
        seed: of the draws of p.
        board: of ``seen.likelihood``, what the public sees too, (k, nodes); None where that is all of it.
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
        """Of p, ascending, (nodes,)."""
        return 2 * np.exp(np.asarray(self.seen.log_odds)[0]) - 1

    @property
    def probabilities(self) -> FloatArray:
        """Of the nodes, for each question, averaged over the draws of phi and k, (k, nodes)."""
        L, W = np.asarray(self.seen.likelihood), self._priors()
        # a draw of phi and k counts as its evidence with own answers over that without: L @ W.T / (board @ W.T)
        board = np.maximum((L if self.board is None else self.board) @ W.T, 1e-300)  # (k, draws)
        found: FloatArray = L * ((1 / board) @ W)
        return found / np.maximum(found.sum(axis=1, keepdims=True), 1e-300)

    @property
    def mean(self) -> FloatArray:
        """The estimate with the least expected square error, (k,)."""
        return self.probabilities @ self.nodes

    @property
    def positive(self) -> FloatArray:
        """P(p > 0), (k,)."""
        return self.probabilities @ (self.nodes > 0)

    @property
    def sign(self) -> Signs:
        """Of the posterior median, (k,)."""
        return sign(self.positive - 0.5)

    @property
    def excess(self) -> FloatArray:
        """E |p| 1{the sign is wrong}, (k,)."""
        against = np.where(self.sign[:, None] * self.nodes < 0, np.abs(self.nodes), 0.0)
        return np.sum(self.probabilities * against, axis=-1)

    def interval(self, probability: float = 0.9) -> FloatArray:
        """Central intervals of p, (2, k). Raises ValueError for a probability outside (0, 1)."""
        tail = (1 - in_range("probability", probability, 0, 1)) / 2
        return np.stack([self._quantile(np.full(len(self.index), each)) for each in (tail, 1 - tail)])

    def draws(self) -> FloatArray:
        """Of p, jointly with phi and k of :meth:`to_arviz`, (chain, draw, k)."""
        rng, W = np.random.default_rng([self.seed, 3]), self._priors()[self._kept()]
        L, found = np.asarray(self.seen.likelihood), np.empty((len(W), len(self.index)))
        for j, row in enumerate(L):
            found[:, j] = _draw(row * W, self._edges(), rng.random(len(W)))
        return found.reshape(*self.phi.shape, -1)

    def to_arviz(self) -> xr.DataTree:
        """A DataTree: ``posterior`` with ``p`` (chain, draw, feature), ``phi`` and ``k``, and ``sample_stats``."""
        import arviz as az

        phi, log_k = (each.ravel()[self._kept()].reshape(each.shape) for each in (self.phi, self.log_k))
        groups = {"posterior": {"p": self.draws(), "phi": phi, "k": np.exp(log_k)}}
        if self.statistics:
            groups["sample_stats"] = dict(self.statistics)
        tree = az.from_dict(groups, dims={"p": ["feature"]}, coords={"feature": self.index})
        tree.attrs["seat"] = self.seat
        return tree

    def diagnose(self) -> Diagnosis:
        """r-hat and effective sample sizes of the public's phi and log k. Raises ValueError where the prior was given."""
        if not self.statistics:
            raise ValueError("posterior: expected one whose population was learnt, got one of a given prior")
        return diagnose({"phi": self.phi, "log k": self.log_k}, self.statistics, remedies=REMEDIES)

    def _priors(self) -> FloatArray:
        """At every draw of phi and k, over the nodes, (draws, nodes)."""
        return np.exp(np.asarray(rates.log_prior(self.phi.ravel(), self.log_k.ravel(), self.seen)))

    def _kept(self) -> Ints:
        """Which draws of phi and k stand for those given own answers too: every one as often as it counts, (draws,)."""
        draws = np.arange(self.phi.size)
        if self.board is None:
            return draws
        W, rng = self._priors(), np.random.default_rng([self.seed, 4])
        ratio = (np.asarray(self.seen.likelihood) @ W.T / np.maximum(self.board @ W.T, 1e-300))[0]
        height = (draws + rng.random()) / len(draws) * ratio.sum()
        return rng.permutation(np.minimum(np.searchsorted(np.cumsum(ratio), height), len(draws) - 1))

    def _edges(self) -> FloatArray:
        """Between nodes, as angles, (nodes + 1,)."""
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
    """From a billboard, for anybody.

    Args:
        values: the noisy means, before they are clipped, (d,).
        mechanism: which published them.
        population: (a, b) of (1 + p) / 2, where it is given; default: learnt, by NUTS on (phi, log k).
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
    found, statistics = run_nuts(
        rates.population,
        seen,
        start=start,
        chains=chains,
        warmup=warmup,
        draws=draws,
        seed=seed,
        progress_bar=progress_bar,
    )
    return MeanPosterior("public", index, seen, found["phi"], found["log_k"], statistics, seed)


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
    """Of one person, from the number that it was sent and its own answers to its question, which are part of it.

    Args:
        value: the number, before it is clipped.
        answers: its own, to its question, (n,).
        mechanism: which sent it.
        beta: (a, b) of (1 + p) / 2: from one number no population is learnt.
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
    """Of several people together, for the questions that they have, from what they were sent and all their answers.

    Args:
        values: what each was sent, before it is clipped, (k,).
        people: who they are.
        mechanism: which sent it. Equal questions have noises of their own, or one.
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
    """Of somebody who reads a billboard that it is not on, with its own answers to its question.

    Args:
        posterior: of the public.
        people: the newcomer, one person.

    Raises:
        ValueError: another seat's posterior, more than one person, or other features.
    """
    if posterior.seat != "public" or people.num_people != 1:
        raise ValueError("posterior: expected a public one, and one newcomer")
    if people.num_features != len(posterior.index):
        raise ValueError(f"people: expected {len(posterior.index)} features, as published, got {people.num_features}")
    j = people.index
    log_q, log_rest = np.asarray(posterior.seen.log_odds)
    ones = (people.samples + people.totals[j]) / 2
    own = ones * log_q + (people.samples - ones) * log_rest
    board = np.asarray(posterior.seen.likelihood)[j]
    likelihood = board * np.exp(own - own.max())
    seen = posterior.seen._replace(likelihood=likelihood / likelihood.max())
    return MeanPosterior(
        "newcomer", j, seen, posterior.phi, posterior.log_k, posterior.statistics, posterior.seed, board
    )


def sensitivity(posterior: MeanPosterior, beta: tuple[float, float] = UNIFORM) -> str:
    """How far estimates would move under a given prior, in a line."""
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
    """The likelihood of rates q, given noisy means (k,) and the sums ``own`` of ``known`` of the answers in them.

    Known answers speak for q by themselves; the count of the others is summed out.

    Raises:
        ValueError: no noise, or more known answers than there are.
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
    q, rest = np.sin(angle) ** 2, np.cos(angle) ** 2
    own = np.broadcast_to(own, g.shape)
    ones = (known + own) / 2
    found = _log_likelihood(g - own / total, q, rest, sd, total - known, total)
    found = found + xlogy(ones[:, None], q) + xlogy(known - ones[:, None], rest)
    likelihood = np.exp(found - found.max(axis=1, keepdims=True))
    return rates.Seen(likelihood, np.stack([np.log(q), np.log(rest)]), np.log(w * np.sin(2 * angle)))


def _log_likelihood(
    g: FloatArray, q: FloatArray, rest: FloatArray, sd: FloatArray, unknown: int, total: int
) -> FloatArray:
    """log p(g | q) of what unknown answers and noise add up to, up to a constant for each g, (k, nodes)."""
    expected = q * rest * unknown
    variance = sd[:, None] ** 2 + 4 * expected / total**2
    found = -((g[:, None] - unknown * (q - rest) / total) ** 2) / (2 * variance) - np.log(variance) / 2
    # counts are whole: where noise shows it, a number is the likelier the nearer it is to one
    count, step = (g * total + unknown) / 2, 2 / (total * sd)
    off = ((count - np.rint(count))[:, None] - np.arange(-10, 11)) * step[:, None]
    found += np.where(step > 0.7, logsumexp(-(off**2) / 2, axis=1) + np.log(step) - np.log(2 * np.pi) / 2, 0.0)[:, None]
    for side, p, other in ((1, q, rest), (-1, rest, q)):  # few answers of yes, few of no
        few = (expected <= _MANY) & (p <= other)
        found[:, few] = _summed(side * g, p[few], other[few], sd, unknown, total)
    return found


def _summed(g: FloatArray, q: FloatArray, rest: FloatArray, sd: FloatArray, unknown: int, total: int) -> FloatArray:
    """The same where q are small, over every count that has a chance."""
    most = unknown * q.max(initial=0.0)
    c = np.arange(min(unknown, int(most + 12 * np.sqrt(most) + 60)) + 1)
    log_count = xlogy(c, q[:, None]) + xlogy(unknown - c, rest[:, None]) - betaln(c + 1, unknown - c + 1)
    pmf = np.exp(log_count - logsumexp(log_count, axis=1, keepdims=True)).T  # (counts, nodes)
    found = np.empty((len(g), len(q)))
    for start in range(0, len(g), rows := max(_AT_ONCE // len(c), 1)):
        part = slice(start, start + rows)
        square = ((g[part, None] - (2 * c - unknown) / total) / sd[part, None]) ** 2 / 2
        least = square.min(axis=1, keepdims=True)
        found[part] = np.log(np.maximum(np.exp(least - square) @ pmf, 1e-300)) - least - np.log(sd[part, None])
    return found


def _fixed(beta: tuple[float, float], chains: int, draws: int) -> tuple[FloatArray, FloatArray]:
    """phi and log k of a given Beta law, as constant draws."""
    a, b = (positive("beta", each) for each in beta)
    chains, draws = whole("chains", chains), whole("draws", draws)
    return np.full((chains, draws), a / (a + b)), np.full((chains, draws), np.log(a + b))


def _draw(weights: FloatArray, edges: FloatArray, u: FloatArray) -> FloatArray:
    """p at the quantiles u (n,) of laws on nodes (n, nodes), each node spread evenly between its edges."""
    below = np.cumsum(weights, axis=1)
    target = u * below[:, -1]
    cell = np.minimum((below <= target[:, None]).sum(axis=1), weights.shape[1] - 1)
    rows = np.arange(len(u))
    inside = (target - below[rows, cell]) / weights[rows, cell] + 1
    angle = edges[cell] + np.clip(inside, 0, 1) * (edges[cell + 1] - edges[cell])
    return 2 * np.sin(angle) ** 2 - 1
