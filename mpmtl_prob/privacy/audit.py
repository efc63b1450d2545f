"""Tests that try to break a claim.

Every test plays the same game many times: a release with the task, and one without it. It scores both, and reports a lower
confidence bound on eps at the claimed delta (Clopper-Pearson); the threshold is chosen on one half of the games and judged
on the other. A bound above the claim breaks it. A bound below proves nothing: it is what this adversary found.

A claim for replacement is a claim for zeroing too, since a zero vector is a replacement: that is what is played.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv
from tqdm import tqdm

from mpmtl_prob._check import in_range, positive, whole
from mpmtl_prob.privacy import composition, views
from mpmtl_prob.privacy.guarantee import Bound
from mpmtl_prob.privacy.mechanisms import Noise, Wishart
from mpmtl_prob.privacy.views import View
from mpmtl_prob.tasks import FloatArray

Sampler = Callable[[np.random.Generator, FloatArray], FloatArray]

TRIALS = 20_000
_CHUNK = 1000
_ROUNDING = 1e-9  # relative: eigenvalues this far below zero are rounding errors


@dataclass(frozen=True)
class Interval:
    """A measured number with a confidence interval."""

    estimate: float
    lower: float
    upper: float

    def __contains__(self, value: float) -> bool:
        return self.lower <= value <= self.upper


@dataclass(frozen=True, eq=False, repr=False)
class Audit:
    """What a test found.

    Attributes:
        test: its name.
        view: what its adversary sees.
        claim: what it tried to break.
        absent: scores of the releases without the task, (n,); high scores speak for its absence.
        present: scores of those with it, (n,).
        confidence: of every bound.
        mechanisms: the laws that the claim is about, for the proved curve.
    """

    test: str
    view: View
    claim: Bound
    absent: FloatArray
    present: FloatArray
    confidence: float
    mechanisms: tuple[Noise, ...]

    @property
    def epsilon_lower(self) -> float:
        """Lower confidence bound on the eps at which the claimed delta can hold."""
        return max(self._epsilon_lower(self.absent, self.present), self._epsilon_lower(-self.present, -self.absent))

    @property
    def broken(self) -> bool:
        """Whether the claim is refuted."""
        return self.epsilon_lower > self.claim.epsilon

    def delta_at(self, epsilon: float, threshold: float | None = None, direction: str = "add") -> Interval:
        """delta at eps as measured by the event "score above the threshold" ("add"), or below it ("remove").

        Args:
            epsilon: any number.
            threshold: of the score; default eps, which is the best one for a score that is the privacy loss ("remove": -eps).
            direction: "add" (absence likelier) or "remove".
        """
        sign = 1.0 if direction == "add" else -1.0
        p, q = (self.absent, self.present) if direction == "add" else (self.present, self.absent)
        level = sign * epsilon if threshold is None else threshold
        hits, alarms = (int(np.sum(sign * scores > sign * level)) for scores in (p, q))
        factor = np.exp(epsilon)
        tail = (1 - self.confidence) / 4  # two rates, two sides
        (p_low, p_high), (q_low, q_high) = clopper_pearson(hits, len(p), tail), clopper_pearson(alarms, len(q), tail)
        estimate = hits / len(p) - factor * alarms / len(q)
        return Interval(float(estimate), float(p_low - factor * q_high), float(p_high - factor * q_low))

    def roc(self) -> tuple[FloatArray, FloatArray]:
        """False-positive and true-positive rates of "the task was absent", at every threshold."""
        thresholds = np.unique(np.concatenate([self.absent, self.present]))[::-1]
        rates = [
            1 - np.searchsorted(np.sort(scores), thresholds, side="left") / len(scores)
            for scores in (self.present, self.absent)
        ]
        return np.append(0.0, rates[0]), np.append(0.0, rates[1])

    def plot(self, ax: Any = None) -> Any:
        """The measured trade-off under the proved and the claimed one; returns the matplotlib axes."""
        import matplotlib.pyplot as plt

        ax = plt.subplots(figsize=(4.6, 4.2))[1] if ax is None else ax
        grid = np.concatenate([[0.0], np.geomspace(1e-5, 1, 200)])
        fpr, tpr = self.roc()
        proved = proved_power(self.mechanisms, grid)
        ax.plot(grid, proved, color="#1b6ca8", lw=6, alpha=0.35, label="proved: no test is above")
        eps, delta = self.claim.epsilon, self.claim.delta
        claimed = np.minimum(np.exp(eps) * grid + delta, 1 - np.exp(-eps) * (1 - grid - delta))
        name = f"claimed: eps = {eps:.3g}, delta = {delta:.2g}"
        ax.plot(grid, np.minimum(claimed, 1), color="0.5", ls="--", label=name)
        ax.plot(fpr, tpr, color="#c8472b", lw=1.5, label=f"measured: {self.test}, {self.view.name}")
        ax.set(xlabel="false alarms", ylabel="absent tasks recognised", xlim=(-0.01, 1), ylim=(0, 1.01))
        ax.set_title(self.verdict, fontsize=9)
        ax.legend(loc="lower right", fontsize=8, frameon=False)
        return ax

    @property
    def verdict(self) -> str:
        """In words."""
        verb, found = "BROKEN" if self.broken else "not broken", f"eps >= {self.epsilon_lower:.3g}"
        return f"{verb}: {found} at delta = {self.claim.delta:.3g}, claimed {self.claim.epsilon:.3g}"

    def __repr__(self) -> str:
        return (
            f"Audit({self.test}; seen by {self.view.name}; {len(self.absent)} + {len(self.present)} releases)\n"
            f"  {self.verdict} ({self.confidence:.0%} confidence)"
        )

    def _epsilon_lower(self, p: FloatArray, q: FloatArray) -> float:
        """log((P(S) - delta) / Q(S)) from its confidence limits, S = {score > t}, t chosen on the other half."""
        half, n = len(p) // 2, len(p) - len(p) // 2
        thresholds = np.unique(np.quantile(q[:half], 1 - np.geomspace(2 / half, 0.9, 60), method="inverted_cdf"))
        thresholds = thresholds[np.isfinite(thresholds)]
        if len(thresholds) == 0:
            return 0.0
        tail = (1 - self.confidence) / 4  # two rates, two directions

        def bound(hits: NDArray[Any], alarms: NDArray[Any], size: int) -> NDArray[Any]:
            low, high = clopper_pearson(hits, size, tail)[0], clopper_pearson(alarms, size, tail)[1]
            return np.log(np.maximum(low - self.claim.delta, 1e-300) / high)

        def counted(scores: FloatArray, levels: FloatArray) -> NDArray[Any]:
            return len(scores) - np.searchsorted(np.sort(scores), levels, side="right")

        best = np.argmax(bound(counted(p[:half], thresholds), counted(q[:half], thresholds), half))
        chosen = thresholds[best : best + 1]
        return max(0.0, float(bound(counted(p[half:], chosen), counted(q[half:], chosen), n)[0]))


def clopper_pearson(hits: Any, trials: int, tail: float) -> tuple[NDArray[Any], NDArray[Any]]:
    """Exact confidence limits of a probability, each missed with probability at most ``tail``."""
    k = np.asarray(hits, dtype=np.float64)
    low = np.where(k > 0, betaincinv(np.maximum(k, 1), trials - k + 1, tail), 0.0)
    high = np.where(k < trials, betaincinv(k + 1, np.maximum(trials - k, 1), 1 - tail), 1.0)
    return low, high


def proved_power(mechanisms: Sequence[Noise], false_alarms: FloatArray) -> FloatArray:
    """The largest probability of recognising an absent task at the given false-alarm rates, from all (eps, delta) at once."""
    profile = composition.profile(composition.as_rounds(mechanisms), "zero_out")
    a, power = np.asarray(false_alarms, dtype=np.float64), np.ones(np.shape(false_alarms))
    for epsilon in np.concatenate([np.linspace(0, 3, 121), np.linspace(3, 20, 69)[1:]]):
        power = np.minimum(power, np.exp(epsilon) * a + profile.add(epsilon))
        power = np.minimum(power, 1 - np.exp(-epsilon) * (1 - a - profile.remove(epsilon)))
    return np.clip(power, 0.0, 1.0)


def support(mechanism: Noise, claim: Bound, **options: Any) -> Audit:
    """Can the task have been there at all? With it, Sigma - A is positive semi-definite for noise that is.

    Args:
        mechanism: the law of one release.
        claim: what to break, (eps, delta) for one release.
        **options: ``view`` (default the release itself), ``num_tasks`` (default 3 d), ``trials`` of each kind,
            ``confidence``, ``seed``, ``progress``, and ``sampler`` to audit other noise than the law's under its claim.

    Raises:
        ValueError: an argument outside its range.
    """
    game = _Game(mechanism, **options)
    return game.play("support", claim, game.support_score)


def likelihood_ratio(mechanisms: Noise | Sequence[Noise], claim: Bound, **options: Any) -> Audit:
    """The best test there is, for an adversary who knows all but the task: the privacy loss itself, summed over rounds.

    Arguments as :func:`support`; with several mechanisms the task's vector and the others' are the same in every round.
    A view of fewer than d owners does not determine the density and is refused.
    """
    rounds = tuple(mechanisms) if isinstance(mechanisms, Sequence) else (mechanisms,)
    games = [_Game(law, **options) for law in rounds]
    if games[0].owned is not None and games[0].owned.shape[1] < games[0].d:
        raise ValueError("view: expected at least d owners, who know Sigma; fewer do not know its density")
    played = [game.play("likelihood ratio", claim, game.loss, stream=t) for t, game in enumerate(games)]
    absent = np.sum([audit.absent for audit in played], axis=0)
    present = np.sum([audit.present for audit in played], axis=0)
    return replace(played[0], absent=absent, present=present, mechanisms=rounds)


def tracing(mechanism: Noise, claim: Bound, **options: Any) -> Audit:
    """Does the release lean towards the task's vector? w'(Sigma - E Sigma)w, the others unknown and different every time.

    Arguments as :func:`support`.
    """
    game = _Game(mechanism, **options)
    return game.play("tracing", claim, game.tracing_score, fresh_others=True)


def controls(mechanism: Wishart, **options: Any) -> dict[str, Audit]:
    """Three releases that are not what they claim; an auditor that does not break all of them is asleep.

    Args:
        mechanism: whose own exact guarantee is claimed for all three.
        **options: as :func:`support`.

    Returns:
        "no noise", "half the scale" and "the same seed twice", each an :class:`Audit`.
    """
    once = own_claim(mechanism)
    half = Wishart(mechanism.num_features, mechanism.df, mechanism.scale / 2, mechanism.clip)
    return {
        "no noise": support(mechanism, once, **options, sampler=lambda rng, A: A.copy()),
        "half the scale": likelihood_ratio(mechanism, once, **options, sampler=half.sample),
        "the same seed twice": _same_seed(mechanism, own_claim((mechanism, mechanism)), **options),
    }


def own_claim(mechanisms: Noise | Sequence[Noise], delta: float = 0.05) -> Bound:
    """The exact guarantee of the mechanisms when a task is zeroed, at a delta that a few thousand releases resolve."""
    rounds = composition.as_rounds(mechanisms)
    at = composition.epsilon(in_range("delta", delta, 0, 1), rounds, "zero_out")
    at = at if np.isfinite(at) else 1.0  # delta has a floor above it, as the papers' noise has: state what it is there
    return Bound(at, composition.delta(at, rounds, "zero_out"), "zero_out")


def _same_seed(mechanism: Wishart, claim: Bound, **options: Any) -> Audit:
    """Two rounds with one draw of noise: the difference shows how the task moved between them."""
    game = _Game(mechanism, **options)
    moved = np.roll(game.w, 1) if game.d > 1 else game.w / 2
    step = np.outer(moved, moved) - np.outer(game.w, game.w)

    def score(first: FloatArray, there: bool) -> FloatArray:
        second = first + there * step  # the same noise again
        return np.linalg.norm(second - first - step, axis=(1, 2))

    audit = game.play("the same seed twice", claim, score, tells=True)
    return replace(audit, mechanisms=(mechanism, mechanism))


class _Game:
    """Releases with and without one task, and what the adversary makes of them."""

    def __init__(
        self,
        mechanism: Noise,
        *,
        view: View | None = None,
        num_tasks: int | None = None,
        trials: int = TRIALS,
        confidence: float = 0.99,
        seed: int = 0,
        progress: bool = True,
        sampler: Sampler | None = None,
    ) -> None:
        self.law, self.view = mechanism, views.billboard() if view is None else view
        self.d, self.trials = mechanism.num_features, whole("trials", trials, 100)
        self.num_tasks = whole("num_tasks", 3 * self.d if num_tasks is None else num_tasks, 2)
        self.confidence = in_range("confidence", confidence, 0, 1)
        self.seed, self.progress = whole("seed", seed, 0), progress
        self.sampler: Sampler = mechanism.sample if sampler is None else sampler
        W = self.directions(np.random.default_rng([self.seed, 1]), 1)[0]
        self.w, self.rest = W[:, 0], W[:, 1:]
        self.others = self.rest @ self.rest.T
        self.c = views.SHRINKAGE * np.sqrt(positive("noise", np.trace(self._noise_size()) / self.d))
        # the coalition's own vectors
        self.owned = None if self.view.owners is None else self.rest[:, self.view.columns(self.num_tasks - 1)]

    def directions(self, rng: np.random.Generator, n: int) -> FloatArray:
        """n sets of tasks' vectors of length K, (n, d, m)."""
        W = rng.standard_normal((n, self.d, self.num_tasks))
        return self.law.clip * W / np.linalg.norm(W, axis=1, keepdims=True)

    def play(
        self,
        test: str,
        claim: Bound,
        score: Callable[..., FloatArray],
        *,
        stream: int = 0,
        fresh_others: bool = False,
        tells: bool = False,
    ) -> Audit:
        """Scores of ``trials`` releases without the task and as many with it."""
        if not isinstance(claim, Bound):
            raise ValueError(f"claim: expected a Bound, got {type(claim).__name__}")
        scores: dict[bool, list[FloatArray]] = {False: [], True: []}
        with tqdm(total=2 * self.trials, desc=test, unit="release", disable=not self.progress, leave=False) as bar:
            for there in (False, True):
                rng = np.random.default_rng([self.seed, 2, stream, int(there)])
                for start in range(0, self.trials, _CHUNK):
                    n = min(_CHUNK, self.trials - start)
                    rest = self.directions(rng, n)[:, :, 1:] if fresh_others else self.rest[None]
                    A = rest @ np.swapaxes(rest, 1, 2) + there * np.outer(self.w, self.w)
                    sigma = self.sampler(rng, np.broadcast_to(A, (n, self.d, self.d)))
                    scores[there].append(score(sigma, there) if tells else score(sigma))
                    bar.update(n)
        absent, present = (np.concatenate(scores[there]) for there in (False, True))
        return Audit(test, self.view, claim, absent, present, self.confidence, (self.law,))

    def support_score(self, sigma: FloatArray) -> FloatArray:
        """1 where the task cannot have been there."""
        A = self.others + np.outer(self.w, self.w)
        if self.owned is not None and self.owned.shape[1] < self.d:
            seen = views.seen_through(views.received(sigma, self.owned, self.c), self.owned)
            gap = seen - views.shrunk_on_span(A, self.owned, self.c)
            size = np.abs(gap).max(axis=(1, 2))
            rounding = 1e-13 * np.abs(seen).max(axis=(1, 2)) + _ROUNDING * size
        else:
            sigma = self._sigma(sigma)
            gap, rounding = sigma - A, _ROUNDING * np.trace(sigma, axis1=1, axis2=2)
        return (np.linalg.eigvalsh(gap)[:, 0] < -rounding).astype(np.float64)

    def loss(self, sigma: FloatArray) -> FloatArray:
        """log of the density without the task over the density with it."""
        sigma = self._sigma(sigma)
        absent = self.law.log_prob(sigma, self.others)
        present = self.law.log_prob(sigma, self.others + np.outer(self.w, self.w))
        neither = np.isneginf(absent) & np.isneginf(present)
        with np.errstate(invalid="ignore"):
            return np.where(neither, 0.0, absent - present)

    def tracing_score(self, sigma: FloatArray) -> FloatArray:
        """-w'(Sigma - E Sigma)w; on the owners' span where they know no more."""
        if self.owned is not None and self.owned.shape[1] < self.d:
            seen = views.seen_through(views.received(sigma, self.owned, self.c), self.owned)
            u = np.linalg.pinv(self.owned) @ self.w
            return -np.einsum("i,nij,j->n", u, seen, u)
        expected = self.law.mean + (self.num_tasks - 1) / self.d * self.law.clip**2 * np.eye(self.d)
        return -np.einsum("i,nij,j->n", self.w, self._sigma(sigma) - expected, self.w)

    def _sigma(self, sigma: FloatArray) -> FloatArray:
        """Sigma, or what the coalition gets back of it."""
        if self.owned is None:
            return sigma
        return views.recovered(views.received(sigma, self.owned, self.c), self.owned, self.c)

    def _noise_size(self) -> FloatArray:
        return self.law.mean if isinstance(self.law, Wishart) else self.law.fluctuation * np.eye(self.d)
