"""Attempts to break a promise, for every mechanism and view, and controls that have to be caught.

Three attackers. One knows all others' answers (the likelihood ratio, the best test there is); one knows p (tracing, by a
threshold or by its mean); one knows only losses (:func:`mpmtl_prob.threat_models.metalearning.generalisation_gap`). Noise is
drawn in doubles. Verdicts and limits are those of :mod:`mpmtl_prob.privacy.audit`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import in_range, whole
from mpmtl_prob._util.hidden_arrays import HidesArrays
from mpmtl_prob.privacy import Bound, views
from mpmtl_prob.privacy.accounting import composition
from mpmtl_prob.privacy.audit.found import Audit, Interval
from mpmtl_prob.privacy.audit.views import View
from mpmtl_prob.privacy.mechanisms.profile import PrivacyProfile
from mpmtl_prob.threat_models import scores
from mpmtl_prob.threat_models.means import NoisyMeans
from mpmtl_prob.threat_models.metalearning import generalisation_gap
from mpmtl_prob.threat_models.problems import at_most_one
from mpmtl_prob.threat_models.signs import sign

__all__ = [
    "RawBillboard",
    "Traced",
    "auc",
    "controls",
    "likelihood_ratio",
    "matrix",
    "one_time_pad",
    "own_claim",
    "trace",
]

_CELLS = 2_000_000  # numbers in memory at once


def own_claim(mechanism: NoisyMeans, delta: float, view: View | None = None) -> Bound:
    """What holds of a mechanism before a view, default its own, at this delta. Raises ValueError where nothing does."""
    epsilon = composition.compute_epsilon(delta, mechanism.law(view))
    return Bound(epsilon, delta, "replace", "person")


def likelihood_ratio(
    mechanism: NoisyMeans,
    claim: Bound,
    *,
    view: View | None = None,
    trials: int = 2000,
    confidence: float = 0.99,
    seed: int = 0,
) -> Audit:
    """All others' answers are known: was the rest of it a person's answers x, or -x in their place?

    Exactly Gaussian with the mechanism's mu. Others ask about different features as far as there are any.

    Args:
        mechanism: what to play against.
        claim: what to break; for replacement, of a person.
        view: what the attacker sees, default what the noise is meant for.
        trials: of each kind.
        confidence: of the limits.
        seed: of the answers and the noise.

    Raises:
        ValueError: a view that shows a person's own number, which no noise here is meant for; a claim of something else.
    """
    looking = mechanism.view if view is None else view
    _of_a_person(claim)
    n, t, d = whole("trials", trials, 100), mechanism.num_people, mechanism.num_features
    seen = np.arange(_seen(mechanism, looking)) % d
    rng = np.random.default_rng([whole("seed", seed, 0), 1])
    everybody = rng.choice([-1, 1], (t, d)) * mechanism.samples  # all of a person's answers alike: it moves most
    x, rest = everybody[0], everybody[1:].sum(axis=0)
    means = {there: (rest + (x if there else -x))[seen] / (t * mechanism.samples) for there in (False, True)}
    found = {}
    for there in (False, True):
        totals = np.broadcast_to(rest + (x if there else -x), (n, d))
        out = mechanism.simulate(np.random.default_rng([seed, 2, there]), totals, seen)
        off = {which: np.sum((out - mean) ** 2, axis=1) for which, mean in means.items()}
        found[there] = (off[True] - off[False]) / (2 * mechanism.sd**2 if mechanism.sd else 1.0)
    laws = (mechanism.law(looking),) if mechanism.sd else ()
    return Audit(
        "likelihood ratio", looking, claim, found[False], found[True], in_range("confidence", confidence, 0, 1), laws
    )


@dataclass(frozen=True, eq=False, repr=False)
class Traced(HidesArrays):
    """Scores of people who took part and of the same people had others taken their places.

    Attributes:
        mechanism: what was played against.
        view: what the attacker saw.
        inside: T, (n,).
        outside: T', (n,).
        bound: B; infinite for estimates that are not clipped.
    """

    mechanism: NoisyMeans
    view: View
    inside: FloatArray
    outside: FloatArray
    bound: float

    @property
    def auc(self) -> float:
        """The probability that a score of somebody who took part is above one of somebody who did not."""
        return auc(self.inside, self.outside)

    def threshold(self, claim: Bound, confidence: float = 0.99) -> Audit:
        """Whoever scores high took part: against TPR <= e^eps FPR + delta, with Clopper and Pearson's limits.

        Raises ValueError for a claim that is not of a person in whose place another stands.
        """
        _of_a_person(claim)
        laws = (self.mechanism.law(self.view),) if self.mechanism.sd else ()
        confidence = in_range("confidence", confidence, 0, 1)
        return Audit("tracing", self.view, claim, -self.outside, -self.inside, confidence, laws)

    def moments(self, delta: float, confidence: float = 0.99) -> Interval:
        """eps from the mean scores, asinh((E T - 2 delta B) / E|T'|), between limits by the central limit theorem.

        Raises:
            ValueError: estimates that are not clipped, as nothing bounds their scores.
        """
        if not np.isfinite(self.bound):
            raise ValueError("mechanism: expected clipped estimates, whose scores are bounded")
        delta = in_range("delta", delta, 0, 1, left_closed=True)
        z = -ndtri((1 - in_range("confidence", confidence, 0, 1)) / 4)  # two means, two sides
        T, out = self.inside, np.abs(self.outside)
        width = lambda values: z * values.std(ddof=1) / np.sqrt(len(values))
        eps = lambda mean, size: scores.implied_epsilon(mean, max(size, 1e-300), delta, self.bound)
        low, high = T.mean() - width(T), T.mean() + width(T)
        return Interval(
            eps(T.mean(), out.mean()), eps(low, out.mean() + width(out)), eps(high, out.mean() - width(out))
        )


def trace(
    mechanism: NoisyMeans,
    *,
    view: View | None = None,
    spread: float | None = None,
    trials: int = 2000,
    seed: int = 0,
) -> Traced:
    """Play against people whose p comes from the hard prior, new every time, and whose others ask about different features.

    Args:
        mechanism: what to play against.
        view: what the attacker sees, default what the noise is meant for.
        spread: of p, for signs of the noisy means; None for the means themselves, and p ~ U[-1, 1].
        trials: runs.
        seed: of everything.

    Raises:
        ValueError: a view that shows a person's own number, or n > 1, which the scores are not about.
    """
    looking = mechanism.view if view is None else view
    n, t, k = whole("trials", trials, 2), mechanism.num_people, _seen(mechanism, looking)
    if mechanism.samples > 1:
        raise ValueError(f"mechanism: expected one of a single sample per person, got {mechanism.samples}")
    rng, inside, outside = np.random.default_rng(whole("seed", seed, 0)), list[FloatArray](), list[FloatArray]()
    width = 1.0 if spread is None else at_most_one("spread", spread)
    score = scores.mean_score if spread is None else lambda e, p, x: scores.sign_score(sign(e), p, x, width)
    for start in range(0, n, max(_CELLS // k, 1)):
        shape = (min(max(_CELLS // k, 1), n - start), k)
        p = rng.uniform(-width, width, shape)
        rest = 2 * rng.binomial(t - 1, (1 + p) / 2) - (t - 1)
        x, other = (2 * (rng.random(shape) < (1 + p) / 2) - 1 for _ in range(2))
        for answers, kept in ((x, inside), (other, outside)):
            value = (rest + answers) / t + mechanism.sd * rng.standard_normal(shape)
            kept.append(score(mechanism.estimate(value), p, x))
    bounded = mechanism.clipped or spread is not None
    bound = scores.largest(k, spread) if bounded else np.inf
    return Traced(mechanism, looking, np.concatenate(inside), np.concatenate(outside), bound)


def _of_a_person(claim: Bound) -> None:
    if (claim.unit, claim.adjacency) != ("person", "replace"):
        raise ValueError(f"claim: expected one of a person in whose place another stands, got {claim}")


def _seen(mechanism: NoisyMeans, view: View) -> int:
    k = mechanism.numbers(view)
    if k is None:
        raise ValueError("view: expected other people's numbers, got the billboard, which shows a person's own")
    return k


def auc(inside: FloatArray, outside: FloatArray) -> float:
    """The probability that one of the first is above one of the second, ties counting half (Mann and Whitney)."""
    from scipy.stats import rankdata  # which takes a second to import

    ranks = rankdata(np.concatenate([inside, outside]))[: len(inside)]
    return float((ranks.sum() / len(inside) - (len(inside) + 1) / 2) / len(outside))


def one_time_pad(view: View, claim: Bound, *, trials: int = 2000, confidence: float = 0.99, seed: int = 0) -> Audit:
    """A control: one person is sent a coin r, another r XOR s, and s is a third one's secret.

    Each alone is a coin, whatever s is: private before one other person at eps = delta = 0. Two together know s.

    Raises:
        ValueError: the billboard's view, for which there is no such thing.
    """
    rng = np.random.default_rng(whole("seed", seed, 0))
    seen = view.columns(2) if view.owners is not None else None
    if seen is None:
        raise ValueError("view: expected what other people receive, got the billboard")
    found = {}
    for secret in (0, 1):
        r = rng.integers(2, size=whole("trials", trials, 100))
        found[secret] = np.bitwise_xor.reduce(np.stack([r, r ^ secret])[seen], axis=0).astype(np.float64)
    return Audit("one-time pad", view, claim, found[1], found[0], confidence, ())


class RawBillboard:
    """A control: all data as they are, which help those who are on the billboard, and nobody else."""

    def learn(self, data: Iterable[Any], seed: int) -> frozenset[bytes]:
        """Everything."""
        return frozenset(np.asarray(own).tobytes() for own in data)

    def personalise(self, h: frozenset[bytes], own: Any) -> float:
        """The loss: 0 for those who are found on it, else 1."""
        return float(np.asarray(own).tobytes() not in h)


def controls(
    epsilon: float, delta: float, *, trials: int = 2000, confidence: float = 0.99, seed: int = 0
) -> dict[str, bool]:
    """Broken promises that the tests have to find: whether each was found."""
    claim = Bound(epsilon, delta, "replace", "person")
    options = {"trials": trials, "confidence": confidence, "seed": seed}
    pad = one_time_pad(views.coalition(2), claim, **options)  # type: ignore[arg-type]
    weak = NoisyMeans.within(epsilon, delta, 60, 100, view=views.single())
    rng, losses = np.random.default_rng(seed), ([], [])  # type: ignore[var-annotated]
    for _ in range(max(trials // 10, 100)):
        data = rng.choice([-1, 1], (6, 40))
        h = RawBillboard().learn(data[:5], seed)
        for kind, own in zip(losses, (data[5], data[0]), strict=True):
            kind.append(RawBillboard().personalise(h, own))
    return {
        "one-time pad before two": pad.broken,
        "raw data on the billboard": generalisation_gap(*losses, delta, confidence).lower > epsilon,
        "noise for one other, before all": likelihood_ratio(weak, claim, view=views.others(), **options).broken,  # type: ignore[arg-type]
        "no noise, traced": trace(
            NoisyMeans(50, 2000, 0.0, views.billboard()), trials=min(trials, 500), seed=seed
        ).threshold(claim, confidence).broken,
    }  # fmt: skip


def matrix(
    mechanisms: dict[str, NoisyMeans],
    epsilon: float,
    delta: float,
    *,
    trials: int = 2000,
    confidence: float = 0.99,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Every mechanism before every view: what is promised there, and what attackers make of it.

    Returns:
        Rows with ``mechanism``, ``view``, ``mu``, whether (epsilon, delta) ``holds``, the ``auc`` of tracing and that of the
        likelihood ratio, and whether the latter has ``broken`` the promise; None where a view shows a person's own number.
    """
    rows = []
    for name, mechanism in mechanisms.items():
        for view in (views.single(), views.others(), views.billboard()):
            mu = mechanism.mu(view)
            row: dict[str, Any] = {"mechanism": name, "view": view.name, "mu": mu}
            row["holds"] = bool(np.isfinite(mu) and PrivacyProfile.gaussian(mu).delta(epsilon) <= delta * (1 + 1e-9))
            row["auc"] = row["likelihood_ratio"] = row["broken"] = None
            if mechanism.numbers(view) is not None:
                row["auc"] = trace(mechanism, view=view, trials=trials, seed=seed).auc
                claim = Bound(epsilon, delta, "replace", "person")
                played = likelihood_ratio(mechanism, claim, view=view, trials=trials, confidence=confidence, seed=seed)
                row["likelihood_ratio"], row["broken"] = auc(-played.present, -played.absent), played.broken
            rows.append(row)
    return rows
