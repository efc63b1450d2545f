"""The tests: each plays a game and says whether it broke the claim."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import in_range, whole
from mpmtl_prob.privacy.accounting import composition
from mpmtl_prob.privacy.audit.found import Audit, Drawn, distance, surprise
from mpmtl_prob.privacy.audit.game import SecondMoments, game, published, unit
from mpmtl_prob.privacy.guarantee import Bound
from mpmtl_prob.privacy.ledger import Ledger
from mpmtl_prob.privacy.mechanisms import MatrixMechanism, Mechanism, VectorMechanism, Wishart


def support(mechanism: MatrixMechanism, claim: Bound, **options: Any) -> Audit:
    """Can the task have been there at all? With it, Sigma - A is positive semi-definite for noise that is.

    Args:
        mechanism: the law of one release.
        claim: what to break, (eps, delta) for one release, and with which adjacency.
        **options: ``view`` (default the release itself), ``num_tasks`` (default 3 d), ``trials`` of each kind (default
            5,000; of noise in shares fewer, as every owner's is drawn), ``confidence``, ``seed``, ``progress_bar``;
            ``threshold`` (default :class:`Split`; else :class:`Explicit` or :class:`Bonferroni`); ``exact=False``
            to draw noise in doubles, 20,000 times by default, where releases cut messages to a lattice and draw exactly;
            and ``sampler`` to audit other noise than the law's under its claim.

    Raises:
        ValueError: an argument outside its range.
    """
    played = _second_moments(mechanism, claim, **options)
    return played.play("support", played.impossible)


def likelihood_ratio(mechanisms: Mechanism | Sequence[Mechanism], claim: Bound, **options: Any) -> Audit:
    """The best test there is, for an adversary who knows all but the task: the privacy loss itself, summed over rounds.

    Arguments as :func:`support`; with several mechanisms of one dimension the task's vector and the others' are the same in
    every round. Noise on vectors and bought clip norms are played too: see :class:`game.Vectors` and :class:`game.Quantiles`.
    A view of fewer than d owners does not determine the density and is refused.
    """
    rounds = tuple(mechanisms) if isinstance(mechanisms, Sequence) else (mechanisms,)
    games = [game(law, claim, **options) for law in rounds]
    if any(isinstance(each, SecondMoments) and each.knows_little for each in games):
        raise ValueError("view: expected at least d owners, who know Sigma; fewer do not know its density")
    fewest = min(each.trials for each in games)
    for each in games:
        each.trials = fewest
    played = [each.play("likelihood ratio", each.loss, stream=t) for t, each in enumerate(games)]
    absent = np.sum([audit.absent for audit in played], axis=0)
    present = np.sum([audit.present for audit in played], axis=0)
    return replace(played[0], absent=absent, present=present, mechanisms=rounds)


def ledger(book: Ledger, **options: Any) -> Audit:
    """All that a ledger paid for, seen together, against the total that it says is spent.

    The total is that of noise which was settled in advance. Of a bought clip norm the game finds four fifths
    of what it may cost.

    Args:
        book: with one charge at least.
        **options: as :func:`support`.

    Raises:
        ValueError: a ledger that has paid for nothing.
    """
    laws = tuple(law for charge in book.charges() for law in charge.mechanisms)
    if not laws:
        raise ValueError("book: expected a ledger with at least one charge, got none")
    return replace(likelihood_ratio(laws, book.spent, **options), test="everything in the ledger")


def tracing(mechanism: MatrixMechanism, claim: Bound, **options: Any) -> Audit:
    """Does the release lean towards the task's vector? w'(Sigma - E Sigma)w, the others unknown and different every time.

    Arguments as :func:`support`. Where a task is replaced, the same of the other vector is taken off.
    """
    played = _second_moments(mechanism, claim, **options)
    return played.play("tracing", played.leaning)


def representable(mechanism: MatrixMechanism, claim: Bound, *, shuffled: bool = False, **options: Any) -> Audit:
    """Is there a double E with A + E = Sigma, entry by entry? The last bits of a sum show what was added.

    The adversary knows both data sets bit for bit, and counts the entries that the one cannot have led to and the other can.

    Args:
        mechanism: the law of one release.
        claim: what to break.
        shuffled: the curator adds up the tasks in an order that the adversary does not know.
        **options: as :func:`support`.

    Source: Mironov (2012), "On significance of the least significant bits for differential privacy".
    """
    played = _second_moments(mechanism, claim, **options)

    def release(rng: np.random.Generator, n: int, there: bool) -> FloatArray:
        if not shuffled:
            return played.releases(rng, n, there)
        orders = [played.messages[there][:, rng.permutation(played.num_tasks)] for _ in range(n)]
        return played.sampler(rng, np.stack([W @ W.T for W in orders]))

    def score(rng: np.random.Generator, n: int, there: bool) -> FloatArray:
        sigma = release(rng, n, there)
        cannot = {which: ~reachable(sigma, A) for which, A in played.moments.items()}
        return np.sum(cannot[True], axis=(1, 2), dtype=np.float64) - np.sum(cannot[False], axis=(1, 2))

    return played.play("representable", score)


def reachable(sigma: FloatArray, A: FloatArray) -> NDArray[np.bool_]:
    """Whether a double E exists with A + E = sigma in double precision, entry by entry."""
    nearest = sigma - A  # if any double does, this one or one beside it does
    tried = [nearest, np.nextafter(nearest, np.inf), np.nextafter(nearest, -np.inf)]
    return np.any([sigma == A + E for E in tried], axis=0)


def controls(mechanism: Wishart, adjacency: str = "replace", **options: Any) -> dict[str, Audit]:
    """Three releases that are not what they claim; an auditor that does not break all of them is asleep.

    Args:
        mechanism: whose own guarantee is claimed for all three.
        adjacency: of the claim, "replace" or "zero_out".
        **options: as :func:`support`.

    Returns:
        "no noise", "half the scale" and "the same seed twice", each an :class:`Audit`.
    """
    once = own_claim(mechanism, adjacency=adjacency)
    half = Wishart(mechanism.num_features, mechanism.df, mechanism.scale / 2, mechanism.clip)
    twice = own_claim((mechanism, mechanism), adjacency=adjacency)
    return {
        "no noise": support(mechanism, once, **options, sampler=lambda rng, A: A.copy()),
        "half the scale": likelihood_ratio(mechanism, once, **options, sampler=half.sample),
        "the same seed twice": _same_seed(mechanism, twice, **options),
    }


def drawn(
    mechanism: MatrixMechanism | VectorMechanism, *, trials: int = 10_000, confidence: float = 0.99, seed: int = 0
) -> Drawn:
    """Is the noise that is published of the law that is stated?

    A few per cent too little of it change eps by as much, which a few thousand releases of two data sets cannot show. The
    noise itself shows it: published draws are compared with simulations in doubles, which other code draws, by their log
    densities, in which size and shape are, by the first entry and by one beside it (Kolmogorov and Smirnov), and by the mean
    of the log densities (Welch).

    Args:
        mechanism: noise on second moments or vectors.
        trials: published draws; there are ten times as many simulations.
        confidence: with which noise that is drawn as stated passes.
        seed: of all draws.

    Raises:
        ValueError: an argument outside its range, or a law of another kind.
    """
    if not isinstance(mechanism, (MatrixMechanism, VectorMechanism)):
        raise ValueError(f"mechanism: expected noise on second moments or vectors, got {type(mechanism).__name__}")
    trials, confidence = whole("trials", trials, 100), in_range("confidence", confidence, 0, 1)
    rng, d = np.random.default_rng([whole("seed", seed, 0), 4]), mechanism.num_features
    nothing = np.zeros((d, d) if isinstance(mechanism, MatrixMechanism) else (d,))
    on_grid = published(mechanism, unit(mechanism, num_tasks=1))(
        rng, np.broadcast_to(nothing, (trials, *nothing.shape))
    )
    simulated = mechanism.sample(rng, np.broadcast_to(nothing, (10 * trials, *nothing.shape)))
    compared: dict[str, Callable[[FloatArray], FloatArray]] = {
        "log density": lambda noise: mechanism.log_prob(noise, nothing),
        "first entry": lambda noise: noise.reshape(len(noise), -1)[:, 0],
        "entry beside it": lambda noise: noise.reshape(len(noise), -1)[:, min(1, nothing.size - 1)],
    }
    p_values = {name: surprise(of(on_grid), of(simulated)) for name, of in compared.items()}
    p_values["mean log density"] = distance(*map(compared["log density"], (on_grid, simulated)))
    return Drawn(mechanism, confidence, p_values)


def own_claim(mechanisms: Mechanism | Sequence[Mechanism], delta: float = 0.05, adjacency: str = "replace") -> Bound:
    """The guarantee of the mechanisms, at a delta that a few thousand releases resolve."""
    rounds = composition.as_rounds(mechanisms)
    at = composition.compute_epsilon(in_range("delta", delta, 0, 1), rounds, adjacency)
    at = at if np.isfinite(at) else 1.0  # delta has a floor above it, as the papers' noise has: state what it is there
    return Bound(at, composition.compute_delta(at, rounds, adjacency), adjacency)


def _second_moments(mechanism: MatrixMechanism, claim: Bound, **options: Any) -> SecondMoments:
    """The game of noise on second moments. Raises ValueError for a law of another kind."""
    played = game(mechanism, claim, **options)
    if not isinstance(played, SecondMoments):
        raise ValueError(f"mechanism: expected noise on second moments, got {type(mechanism).__name__}")
    return played


def _same_seed(mechanism: Wishart, claim: Bound, **options: Any) -> Audit:
    """Two rounds with one draw of noise: the difference shows how the task moved between them."""
    played = SecondMoments(mechanism, claim, **options)
    moved = np.roll(played.w, 1) if played.d > 1 else played.w / 2
    step = np.outer(moved, moved) - np.outer(played.w, played.w)

    def score(rng: np.random.Generator, n: int, there: bool) -> FloatArray:
        first = played.releases(rng, n, there)
        second = first + there * step  # the same noise again
        return np.linalg.norm(second - first - step, axis=(1, 2))

    audit = played.play("the same seed twice", score)
    return replace(audit, mechanisms=(mechanism, mechanism))
