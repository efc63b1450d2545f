"""Many short chains of Hamiltonian Monte Carlo, in the coordinates of a normal distribution that is fitted to the posterior.

In these coordinates, x = m + L u, a posterior that is nearly normal has about the same width in all directions. Trajectories
are those of the normal distribution, circles of u and its momentum, with kicks by what the gradient has beyond the normal's;
a few of them make a draw that is nearly independent of the last one. What the fit misses all chains together learn in a short
warm-up. They move together too, so that one call of the density computes a point of each.

Chains of a group start from one point and differ in their momenta. Groups therefore agree only where chains have forgotten
their starts, and the usual r-hat of groups says so (the nested r-hat). Autocorrelations about the average over all chains
say how many effective draws there are.

Source: Neal (2011), Handbook of Markov Chain Monte Carlo, chapter 5, with section 5.5.1 for the kicks; Geyer (1992),
Statistical Science 7, for autocorrelations; Margossian et al. (2024), Bayesian Analysis, "Nested R-hat".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from tqdm.auto import tqdm

from mpmtl_prob._util.arrays import Draws, FloatArray
from mpmtl_prob._util.threads import one_thread
from mpmtl_prob.sampling.diagnostics import RHAT_LIMIT_OF_MANY
from mpmtl_prob.sampling.weighted import Density, Normal

#: Number of short chains that start from one point.
_GROUP = 8
#: Numbers of transitions of the parts of the warm-up. In the first part every chain adapts a step size of its own, because
#: one that starts far out moves in small steps only. In the second all have the same one, and their points say how wide the
#: density is in every direction, for new coordinates. In the last part the step size is adapted to these.
_WARMUP = (12, 16, 10)
#: Weight of the covariance of these points in the new coordinates; the rest is that of the fit.
_TRUST = 0.75
#: Smallest number of transitions of a round; rounds go on until there are enough effective draws.
_ROUND = 25
#: Largest number of rounds, and the number after which there are no more if as many would not be enough.
_ROUNDS, _ENOUGH_TO_TELL = 12, 3
#: Lengths of trajectories in the warm-up, a quarter of a circle, and afterwards. Of a normal distribution a quarter makes
#: independent draws. Widths with long tails need more, for up to twice as many effective draws per gradient.
_FIRST_LENGTH, _LENGTH = 1.5, 2.5
#: Relative change of the length from one trajectory to the next.
_CHANGE = 0.4
#: Range of the factors by which a chain's step size changes from one trajectory to the next. Where the density is narrow in
#: one place and wide in another, chains leave the narrow place by their small steps.
_JITTER = (0.5, 1.1)
#: Share of trajectories to accept.
_ACCEPTANCE = 0.85
#: Change of the log step size per unit of acceptance, in the parts of the warm-up.
_STRIDES = (0.5, 0.4, 0.4)
#: Most steps of a trajectory.
_MOST_STEPS = 64
#: Increase of the energy above which a trajectory has diverged.
_DIVERGED = 1000.0


class Agreement(NamedTuple):
    """Diagnosis of short chains.

    Attributes:
        ess: least effective number of draws of a watched number.
        rhat: largest ratio of the spread over all draws to that within groups of chains that start from one point.
    """

    ess: float
    rhat: float

    def bear(self, wanted: float) -> bool:
        """Return whether the draws can be used as ``wanted`` independent ones."""
        return self.ess >= wanted and self.rhat <= RHAT_LIMIT_OF_MANY


class _State(NamedTuple):
    """A point of every chain in the coordinates u (C, n), with energy, gradient and sites there."""

    u: FloatArray
    energy: FloatArray
    gradient: FloatArray
    sites: Draws

    def where(self, accepted: np.ndarray, other: _State) -> _State:
        """Return this state, and the other one of chains that have not accepted."""

        def chosen(ours: FloatArray, theirs: FloatArray) -> FloatArray:
            return np.where(accepted.reshape(-1, *[1] * (np.ndim(ours) - 1)), ours, theirs)

        return _State(
            chosen(self.u, other.u),
            chosen(self.energy, other.energy),
            chosen(self.gradient, other.gradient),
            {name: chosen(values, other.sites[name]) for name, values in self.sites.items()},
        )


@one_thread
def short_chains(
    density: Density,
    law: Normal,
    watched: Callable[[Draws], Mapping[str, FloatArray]],
    *,
    shape: tuple[int, int],
    wanted: float,
    rng: np.random.Generator,
    progress_bar: bool = True,
) -> tuple[Draws, Draws, Agreement]:
    """Draw from a density by many short chains.

    Args:
        density: as in :func:`mpmtl_prob.sampling.weighted.weighted_draws`.
        law: a normal distribution near the density: :func:`mpmtl_prob.sampling.weighted.fitted`.
        watched: from sites by name, (chain, draw, ...), to the numbers whose effective draws count.
        shape: (groups, draws) of the returned arrays. The draws of a group are those of its short chains, one after another,
            and evenly spaced transitions of each.
        wanted: effective draws, of all groups together; chains are drawn on until there are as many, up to 12 rounds.
        rng: generator of starts and momenta.
        progress_bar: show one, with effective draws.

    Returns:
        Sites of the draws by name, (group, draw, ...); statistics likewise: ``lp``, ``acceptance_rate`` and ``diverging``;
        and how far the chains agree. Unless ``agreement.bear(wanted)``, the draws must not be used.
    """
    groups, draws = shape
    of_chain = -(-draws // _GROUP)
    per_round = max(_ROUND, of_chain)
    # a single group cannot be compared with others, so that its chains start apart
    starts = rng.standard_normal((groups, 1 if groups > 1 else _GROUP, len(law.mean)))
    state = _at(density, law, np.broadcast_to(starts, (groups, _GROUP, len(law.mean))).reshape(-1, len(law.mean)))
    kept: list[Draws] = []
    agreement = Agreement(0.0, np.inf)
    with tqdm(total=sum(_WARMUP) + per_round, disable=not progress_bar, desc="short chains") as bar:
        law, state, step = _warmed_up(density, law, state, rng, bar)
        for number in range(_ROUNDS):
            if number:
                bar.total += per_round
            for _ in range(per_round):
                state, statistics = _transition(density, law, state, step, _LENGTH, rng)
                kept.append(state.sites | {"lp": -state.energy} | statistics)
                bar.update()
            joined = {name: np.stack([each[name] for each in kept], axis=1) for name in kept[0]}
            agreement = _agreement(watched(joined), groups)
            bar.set_postfix_str(f"{agreement.ess:.0f} effective draws, r-hat {agreement.rhat:.3f}")
            hopeless = number + 1 >= _ENOUGH_TO_TELL and agreement.ess * _ROUNDS < wanted * (number + 1)
            if hopeless or agreement.bear(wanted):
                break
    spaced = np.linspace(0, len(kept) - 1, of_chain).round().astype(int)

    def of_groups(values: FloatArray) -> FloatArray:
        picked = values[:, spaced]
        return picked.reshape(groups, _GROUP * of_chain, *picked.shape[2:])[:, :draws]

    sites = {name: of_groups(values) for name, values in joined.items()}
    return sites, {name: sites.pop(name) for name in ("lp", *statistics)}, agreement


def _warmed_up(
    density: Density, law: Normal, state: _State, rng: np.random.Generator, bar: tqdm[Any]
) -> tuple[Normal, _State, FloatArray]:
    """Return coordinates, the chains' states in them and their step sizes (C,) after the warm-up."""
    first = -0.25 * np.log(len(law.mean))
    log_step = np.full(len(state.u), first)
    for part, (transitions, stride) in enumerate(zip(_WARMUP, _STRIDES, strict=True)):
        points = []
        for _ in range(transitions):
            state, statistics = _transition(density, law, state, np.exp(log_step), _FIRST_LENGTH, rng)
            rate = statistics["acceptance_rate"]
            if part == 0:
                log_step += stride * (rate - _ACCEPTANCE)
            else:
                log_step[:] = np.median(log_step) + stride * (rate.mean() - _ACCEPTANCE)
            points.append(state.u)
            bar.update()
        if part == 1:
            law, state = _recentred(law, state, np.concatenate(points))
            log_step[:] = first
    return law, state, np.exp(log_step)


def _recentred(law: Normal, state: _State, points: FloatArray) -> tuple[Normal, _State]:
    """Return coordinates of about unit scale in every direction of some points (N, n), and the state in them."""
    centre = points.mean(axis=0)
    covariance = _TRUST * np.cov(points.T).reshape(len(centre), -1) + (1 - _TRUST) * np.eye(len(centre))
    root = np.linalg.cholesky(covariance)
    u = np.linalg.solve(root, (state.u - centre).T).T
    new = Normal(law.mean + law.root @ centre, law.root @ root)
    return new, state._replace(u=u, gradient=state.gradient @ root)


def _at(density: Density, law: Normal, u: FloatArray) -> _State:
    """Return the state of chains at points u (C, n)."""
    energy, gradient, sites = density(law.mean + u @ law.root.T)
    return _State(u, energy, gradient @ law.root, sites)


def _transition(
    density: Density, law: Normal, state: _State, steps: FloatArray, length: float, rng: np.random.Generator
) -> tuple[_State, dict[str, Any]]:
    """Return every chain's next state and statistics (C,), after a trajectory from a fresh momentum.

    ``steps`` (C,) are the chains' step sizes, and ``length`` the average length; the number of steps is the same for all.
    """
    step = steps[:, None] * rng.uniform(*_JITTER, (len(steps), 1))
    length *= 1 + _CHANGE * rng.uniform(-1, 1)
    momentum = rng.standard_normal(state.u.shape)
    before = state.energy + 0.5 * (momentum**2).sum(axis=1)
    end = state
    with np.errstate(all="ignore"):  # trajectories that leave the range of doubles are not accepted
        for _ in range(min(max(1, round(length / np.median(step))), _MOST_STEPS)):
            momentum = momentum - 0.5 * step * (end.gradient - end.u)
            u = np.cos(step) * end.u + np.sin(step) * momentum
            momentum = np.cos(step) * momentum - np.sin(step) * end.u
            end = _at(density, law, u)
            momentum = momentum - 0.5 * step * (end.gradient - end.u)
        increase = end.energy + 0.5 * (momentum**2).sum(axis=1) - before
        increase = np.where(np.isfinite(increase), increase, np.inf)
        rate = np.exp(-np.maximum(increase, 0.0))
    accepted = rng.random(len(rate)) < rate
    return end.where(accepted, state), {"acceptance_rate": rate, "diverging": increase > _DIVERGED}


def _agreement(watched: Mapping[str, FloatArray], groups: int) -> Agreement:
    """Return how far chains agree on watched numbers, (chain, draw, ...) each."""
    numbers = np.concatenate([each.reshape(*each.shape[:2], -1) for each in watched.values()], axis=2)
    variance = numbers.var(axis=(0, 1))
    of_groups = numbers.reshape(groups, -1, numbers.shape[2]).mean(axis=1)
    with np.errstate(all="ignore"):
        ess = [_effective(each) for each in np.moveaxis(numbers, 2, 0)]
        between = of_groups.var(axis=0, ddof=1) if groups > 1 else np.zeros(len(variance))
        rhat = np.sqrt(1 + between / np.maximum(variance - between, 1e-300))
    if not np.all(np.isfinite(ess)):
        return Agreement(0.0, np.inf)
    return Agreement(float(min(ess)), float(rhat.max()))


def _effective(values: FloatArray) -> float:
    """Return the effective number of draws of one number, (chain, draw), of chains that all have the same average.

    Autocorrelations are summed in pairs, up to the first pair without a positive sum: Geyer (1992), section 3.3.
    """
    away = values - values.mean()
    total = -1.0
    for lag in range(0, values.shape[1] - 1, 2):
        pair = sum((away[:, : values.shape[1] - t] * away[:, t:]).mean() for t in (lag, lag + 1)) / (away**2).mean()
        if pair <= 0:
            break
        total += 2 * pair
    # as in other packages: draws that swing about their average count for at most this much more
    return float(values.size / max(total, 1 / np.log10(values.size)))
