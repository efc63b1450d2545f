"""Privacy audits of every mechanism and view, and controls whose claims an audit must refute.

There are three attackers. One knows all other people's answers (the likelihood ratio, which is the best test), one knows p
(tracing, by a threshold or by the mean score), and one knows only losses
(:func:`mpmtl_prob.threat_models.metalearning.generalisation_gap`). Noise is drawn in doubles. Verdicts and limits are those
of :mod:`mpmtl_prob.privacy.audit`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
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
    """Return the true guarantee of a mechanism against a view, default its own, at this delta.

    Raises ValueError where there is none.
    """
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
    """Play the likelihood-ratio attack: did a person with answers x take part, or one with answers -x in their place?

    The attacker knows all other answers. The log likelihood ratio is exactly Gaussian with the mechanism's mu. The other
    people ask about different features, as far as there are enough.

    Args:
        mechanism: the mechanism under attack.
        claim: the claim to refute, about replacement of a person.
        view: what the attacker sees; default the view that the noise protects against.
        trials: number of games with the person, and as many without.
        confidence: of the limits.
        seed: of the answers and the noise.

    Raises:
        ValueError: a view that shows a person's own number, against which no noise here protects; another kind of claim.
    """
    attacked = mechanism.view if view is None else view
    _check_claim(claim)
    n, t, d = whole("trials", trials, 100), mechanism.num_people, mechanism.num_features
    seen = np.arange(_numbers_seen(mechanism, attacked)) % d
    rng = np.random.default_rng([whole("seed", seed, 0), 1])
    everybody = rng.choice([-1, 1], (t, d)) * mechanism.samples  # equal answers of one person move the mean most
    x = everybody[0]
    others = everybody[1:].sum(axis=0)
    means = {there: (others + (x if there else -x))[seen] / (t * mechanism.samples) for there in (False, True)}
    log_ratios = {}
    for there in (False, True):
        totals = np.broadcast_to(others + (x if there else -x), (n, d))
        released = mechanism.simulate(np.random.default_rng([seed, 2, there]), totals, seen)
        squares = {which: np.sum((released - mean) ** 2, axis=1) for which, mean in means.items()}
        log_ratios[there] = (squares[True] - squares[False]) / (2 * mechanism.sd**2 if mechanism.sd else 1.0)
    laws = (mechanism.law(attacked),) if mechanism.sd else ()
    confidence = in_range("confidence", confidence, 0, 1)
    return Audit("likelihood ratio", attacked, claim, log_ratios[False], log_ratios[True], confidence, laws)


@dataclass(frozen=True, eq=False, repr=False)
class Traced(HidesArrays):
    """Tracing scores of people who took part, and of the same people if others had taken part in their places.

    Attributes:
        mechanism: the mechanism under attack.
        view: what the attacker saw.
        inside: scores T of people who took part, (n,).
        outside: scores T' of people who did not, (n,).
        bound: B, the largest possible score; infinite for estimates that are not clipped.
    """

    mechanism: NoisyMeans
    view: View
    inside: FloatArray
    outside: FloatArray
    bound: float

    @property
    def auc(self) -> float:
        """The probability that the score of a participant is above that of a person who did not take part."""
        return auc(self.inside, self.outside)

    def threshold(self, claim: Bound, confidence: float = 0.99) -> Audit:
        """Audit a claim by a threshold on the score, against TPR <= e^eps FPR + delta, with Clopper and Pearson's limits.

        Raises ValueError for a claim that is not about the replacement of a person.
        """
        _check_claim(claim)
        laws = (self.mechanism.law(self.view),) if self.mechanism.sd else ()
        confidence = in_range("confidence", confidence, 0, 1)
        return Audit("tracing", self.view, claim, -self.outside, -self.inside, confidence, laws)

    def moments(self, delta: float, confidence: float = 0.99) -> Interval:
        """Estimate eps from the mean scores, asinh((E T - 2 delta B) / E|T'|), with limits by the central limit theorem.

        Raises:
            ValueError: estimates that are not clipped, as their scores are not bounded.
        """
        if not np.isfinite(self.bound):
            raise ValueError("mechanism: expected clipped estimates, whose scores are bounded")
        delta = in_range("delta", delta, 0, 1, left_closed=True)
        z = -ndtri((1 - in_range("confidence", confidence, 0, 1)) / 4)  # limits of two means, on two sides
        inside, outside = self.inside, np.abs(self.outside)

        def width(values: FloatArray) -> float:
            return float(z * values.std(ddof=1) / np.sqrt(len(values)))

        def epsilon(mean: float, size: float) -> float:
            return scores.implied_epsilon(mean, max(size, 1e-300), delta, self.bound)

        return Interval(
            epsilon(inside.mean(), outside.mean()),
            epsilon(inside.mean() - width(inside), outside.mean() + width(outside)),
            epsilon(inside.mean() + width(inside), outside.mean() - width(outside)),
        )


def trace(
    mechanism: NoisyMeans,
    *,
    view: View | None = None,
    spread: float | None = None,
    trials: int = 2000,
    seed: int = 0,
) -> Traced:
    """Play the tracing attack in many runs with new means p from the hard prior; the people ask about different features.

    Args:
        mechanism: the mechanism under attack.
        view: what the attacker sees; default the view that the noise protects against.
        spread: of p, for signs of the noisy means; None for the means themselves, with p ~ U[-1, 1].
        trials: number of runs.
        seed: of everything.

    Raises:
        ValueError: a view that shows a person's own number, or n > 1, for which the scores are not made.
    """
    attacked = mechanism.view if view is None else view
    n, t, k = whole("trials", trials, 2), mechanism.num_people, _numbers_seen(mechanism, attacked)
    if mechanism.samples > 1:
        raise ValueError(f"mechanism: expected one of a single sample per person, got {mechanism.samples}")
    rng = np.random.default_rng(whole("seed", seed, 0))
    width = 1.0 if spread is None else at_most_one("spread", spread)

    def score(estimates: FloatArray, p: FloatArray, answers: ArrayLike) -> FloatArray:
        if spread is None:
            return scores.mean_score(estimates, p, answers)
        return scores.sign_score(sign(estimates), p, answers, width)

    inside: list[FloatArray] = []
    outside: list[FloatArray] = []
    for start in range(0, n, max(_CELLS // k, 1)):
        shape = (min(max(_CELLS // k, 1), n - start), k)
        p = rng.uniform(-width, width, shape)
        others = 2 * rng.binomial(t - 1, (1 + p) / 2) - (t - 1)
        x, fresh = (2 * (rng.random(shape) < (1 + p) / 2) - 1 for _ in range(2))
        for answers, parts in ((x, inside), (fresh, outside)):
            value = (others + answers) / t + mechanism.sd * rng.standard_normal(shape)
            parts.append(score(mechanism.estimate(value), p, x))
    bounded = mechanism.clipped or spread is not None
    bound = scores.largest(k, spread) if bounded else np.inf
    return Traced(mechanism, attacked, np.concatenate(inside), np.concatenate(outside), bound)


def _check_claim(claim: Bound) -> None:
    """Raise ValueError for a claim that is not about the replacement of a person."""
    if (claim.unit, claim.adjacency) != ("person", "replace"):
        raise ValueError(f"claim: expected one with unit 'person' and adjacency 'replace', got {claim}")


def _numbers_seen(mechanism: NoisyMeans, view: View) -> int:
    """Return the number of noisy means that a view shows. Raises ValueError where it shows a person's own number."""
    k = mechanism.numbers(view)
    if k is None:
        raise ValueError("view: expected other people's numbers, got the billboard, which shows a person's own")
    return k


def auc(inside: FloatArray, outside: FloatArray) -> float:
    """Compute the probability that one of the first is above one of the second; ties count half (Mann and Whitney)."""
    from scipy.stats import rankdata  # a second to import

    ranks = rankdata(np.concatenate([inside, outside]))[: len(inside)]
    return float((ranks.sum() / len(inside) - (len(inside) + 1) / 2) / len(outside))


def one_time_pad(view: View, claim: Bound, *, trials: int = 2000, confidence: float = 0.99, seed: int = 0) -> Audit:
    """Audit a control: one person is sent a random bit r, another r XOR s, where s is a third person's secret.

    Each bit alone is random whatever s is, and so private against one other person at eps = delta = 0. Two people together
    know s.

    Raises:
        ValueError: the billboard's view, as nothing is on a billboard here.
    """
    rng = np.random.default_rng(whole("seed", seed, 0))
    confidence = in_range("confidence", confidence, 0, 1)
    seen = view.columns(2) if view.owners is not None else None
    if seen is None:
        raise ValueError("view: expected what other people receive, got the billboard")
    decoded = {}
    for secret in (0, 1):
        r = rng.integers(2, size=whole("trials", trials, 100))
        decoded[secret] = np.bitwise_xor.reduce(np.stack([r, r ^ secret])[seen], axis=0).astype(np.float64)
    return Audit("one-time pad", view, claim, decoded[1], decoded[0], confidence, ())


class RawBillboard:
    """Control that publishes all data without noise, so that only those on the billboard have a small loss."""

    def learn(self, data: Iterable[Any], seed: int) -> frozenset[bytes]:
        """Return the data of everybody."""
        return frozenset(np.asarray(person).tobytes() for person in data)

    def personalise(self, h: frozenset[bytes], own: Any) -> float:
        """Return the loss: 0 for people on the billboard, else 1."""
        return float(np.asarray(own).tobytes() not in h)


def controls(
    epsilon: float, delta: float, *, trials: int = 2000, confidence: float = 0.99, seed: int = 0
) -> dict[str, bool]:
    """Audit claims that are false, and return for each whether the audit refuted it, as it must."""
    claim = Bound(epsilon, delta, "replace", "person")
    options = {"trials": trials, "confidence": confidence, "seed": seed}
    pad = one_time_pad(views.coalition(2), claim, **options)  # type: ignore[arg-type]
    weak = NoisyMeans.within(epsilon, delta, 60, 100, view=views.single())
    rng = np.random.default_rng(seed)
    newcomers: list[float] = []
    participants: list[float] = []
    for _ in range(max(trials // 10, 100)):
        data = rng.choice([-1, 1], (6, 40))
        h = RawBillboard().learn(data[:5], seed)
        newcomers.append(RawBillboard().personalise(h, data[5]))
        participants.append(RawBillboard().personalise(h, data[0]))
    return {
        "one-time pad before two": pad.broken,
        "raw data on the billboard": generalisation_gap(newcomers, participants, delta, confidence).lower > epsilon,
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
    """Attack every mechanism in every view, and compare the results with the guarantee there.

    Returns:
        Rows with ``mechanism``, ``view``, ``mu``, whether (epsilon, delta) ``holds``, the ``auc`` of tracing and that of the
        ``likelihood_ratio``, and whether the latter has ``broken`` the guarantee; the last three are None where a view shows
        a person's own number.
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
