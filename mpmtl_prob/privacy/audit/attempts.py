"""Audits of a claimed guarantee: each attack plays a game and reports whether it refuted the claim."""

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
    """Test whether the task can have taken part at all: positive semi-definite noise makes Sigma - A such a matrix too.

    Args:
        mechanism: the law of one release.
        claim: the claim to refute, (eps, delta) for one release, with its adjacency.
        **options: ``view`` (default the release itself), ``num_tasks`` (default 3 d), ``trials`` of each kind (default
            5,000; fewer for noise in shares, as every owner's share is drawn), ``confidence``, ``seed``, ``progress_bar``;
            ``threshold`` (default :class:`Split`; else :class:`Explicit` or :class:`Bonferroni`); ``exact=False`` for
            noise in doubles instead of exact noise on a lattice (default 20,000 trials); and ``sampler`` to audit other
            noise under the law's claim.

    Raises:
        ValueError: an argument outside its range.
    """
    played = _second_moments(mechanism, claim, **options)
    return played.play("support", played.impossible)


def likelihood_ratio(mechanisms: Mechanism | Sequence[Mechanism], claim: Bound, **options: Any) -> Audit:
    """Play the likelihood-ratio test, the best test of an adversary who knows everything except the task.

    Its score is the privacy loss, summed over rounds. Arguments as :func:`support`; with several mechanisms of one dimension
    the vectors of all tasks are the same in every round. Noise on vectors and private clip norms can be audited too: see
    :class:`game.Vectors` and :class:`game.Quantiles`. A view of fewer than d owners is refused, as it does not determine the
    density.
    """
    rounds = tuple(mechanisms) if isinstance(mechanisms, Sequence) else (mechanisms,)
    games = [game(law, claim, **options) for law in rounds]
    if any(isinstance(one, SecondMoments) and one.knows_little for one in games):
        raise ValueError("view: expected at least d owners, who together know Sigma, got fewer")
    fewest = min(one.trials for one in games)
    for one in games:
        one.trials = fewest
    played = [one.play("likelihood ratio", one.loss, stream=t) for t, one in enumerate(games)]
    absent = np.sum([audit.absent for audit in played], axis=0)
    present = np.sum([audit.present for audit in played], axis=0)
    return replace(played[0], absent=absent, present=present, mechanisms=rounds)


def ledger(book: Ledger, **options: Any) -> Audit:
    """Audit everything that a ledger paid for together, against the total that it reports as spent.

    The audited total assumes that all noise was fixed in advance. For a private clip norm the game reaches four fifths of
    its eps.

    Args:
        book: with at least one charge.
        **options: as :func:`support`.

    Raises:
        ValueError: a ledger without charges.
    """
    laws = tuple(law for charge in book.charges() for law in charge.mechanisms)
    if not laws:
        raise ValueError("book: expected a ledger with at least one charge, got none")
    return replace(likelihood_ratio(laws, book.spent, **options), test="everything in the ledger")


def tracing(mechanism: MatrixMechanism, claim: Bound, **options: Any) -> Audit:
    """Play a tracing attack, whose score w'(Sigma - E Sigma)w is how far the release leans towards the task's vector w.

    The other tasks are unknown to the attacker and different in every game. Where a task is replaced by one with vector u,
    the score is the difference between that of u and that of w. Arguments as :func:`support`.
    """
    played = _second_moments(mechanism, claim, **options)
    return played.play("tracing", played.leaning)


def representable(mechanism: MatrixMechanism, claim: Bound, *, shuffled: bool = False, **options: Any) -> Audit:
    """Play Mironov's attack on floating-point noise: can a double E exist with A + E = Sigma, entry by entry?

    The last bits of a sum may reveal what was added. The adversary knows both data sets bit for bit, and counts the entries
    that are possible with one data set and impossible with the other.

    Args:
        mechanism: the law of one release.
        claim: the claim to refute.
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
        impossible = {which: ~reachable(sigma, A) for which, A in played.moments.items()}
        return np.sum(impossible[True], axis=(1, 2), dtype=np.float64) - np.sum(impossible[False], axis=(1, 2))

    return played.play("representable", score)


def reachable(sigma: FloatArray, A: FloatArray) -> NDArray[np.bool_]:
    """Return, entry by entry, whether a double E exists with A + E = sigma in double precision."""
    nearest = sigma - A  # if a double E exists, it is this one or one of its two neighbours
    tried = [nearest, np.nextafter(nearest, np.inf), np.nextafter(nearest, -np.inf)]
    return np.any([sigma == A + E for E in tried], axis=0)


def controls(mechanism: Wishart, adjacency: str = "replace", **options: Any) -> dict[str, Audit]:
    """Audit three releases whose claims are false; an audit that does not refute all three does not work.

    Args:
        mechanism: its true guarantee is claimed for all three.
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
    """Test whether published noise follows the stated distribution.

    Noise that is a few per cent too small changes eps by a few per cent, which a few thousand games cannot show. Draws of
    the noise can show it. Published draws are compared with simulations in doubles, which come from other code. The tests
    compare log densities, which depend on size and shape, the first entry and the entry beside it (Kolmogorov and Smirnov),
    and the means of the log densities (Welch).

    Args:
        mechanism: noise on second moments or vectors.
        trials: number of published draws. There are ten times as many simulations.
        confidence: probability that correctly drawn noise passes.
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
    statistics: dict[str, Callable[[FloatArray], FloatArray]] = {
        "log density": lambda noise: mechanism.log_prob(noise, nothing),
        "first entry": lambda noise: noise.reshape(len(noise), -1)[:, 0],
        "entry beside it": lambda noise: noise.reshape(len(noise), -1)[:, min(1, nothing.size - 1)],
    }
    p_values = {name: surprise(statistic(on_grid), statistic(simulated)) for name, statistic in statistics.items()}
    p_values["mean log density"] = distance(*map(statistics["log density"], (on_grid, simulated)))
    return Drawn(mechanism, confidence, p_values)


def own_claim(mechanisms: Mechanism | Sequence[Mechanism], delta: float = 0.05, adjacency: str = "replace") -> Bound:
    """Return the true guarantee of the mechanisms, at a delta large enough for an audit of a few thousand releases."""
    rounds = composition.as_rounds(mechanisms)
    epsilon = composition.compute_epsilon(in_range("delta", delta, 0, 1), rounds, adjacency)
    if not np.isfinite(epsilon):  # the papers' noise has a larger delta at every eps: state its delta at eps = 1
        epsilon = 1.0
    return Bound(epsilon, composition.compute_delta(epsilon, rounds, adjacency), adjacency)


def _second_moments(mechanism: MatrixMechanism, claim: Bound, **options: Any) -> SecondMoments:
    """Return the game for noise on second moments. Raises ValueError for a law of another kind."""
    played = game(mechanism, claim, **options)
    if not isinstance(played, SecondMoments):
        raise ValueError(f"mechanism: expected noise on second moments, got {type(mechanism).__name__}")
    return played


def _same_seed(mechanism: Wishart, claim: Bound, **options: Any) -> Audit:
    """Audit two rounds with the same draw of noise: their difference shows how the task's message changed."""
    played = SecondMoments(mechanism, claim, **options)
    moved = np.roll(played.w, 1) if played.d > 1 else played.w / 2
    step = np.outer(moved, moved) - np.outer(played.w, played.w)

    def score(rng: np.random.Generator, n: int, there: bool) -> FloatArray:
        first = played.releases(rng, n, there)
        second = first + there * step  # the same noise again
        return np.linalg.norm(second - first - step, axis=(1, 2))

    audit = played.play("the same seed twice", score)
    return replace(audit, mechanisms=(mechanism, mechanism))
