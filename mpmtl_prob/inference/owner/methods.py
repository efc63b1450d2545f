"""Three ways for an owner to use the public posterior: plug in its mean, mix over its draws, or sample both at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from tqdm.auto import tqdm

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import positive
from mpmtl_prob._util.hidden_arrays import shown
from mpmtl_prob.data.prediction import power_above
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.inference.owner.likelihoods import (
    GAUSSIAN,
    OF_TARGETS,
    Jointly,
    Likelihood,
    Posteriors,
    posteriors_given,
)
from mpmtl_prob.inference.owner.streams import Block, Turn
from mpmtl_prob.inference.public.covariance_draws import CovarianceDraws
from mpmtl_prob.inference.public.init import observed
from mpmtl_prob.inference.public.shared import SharedPosterior
from mpmtl_prob.inference.public.structures import model_for
from mpmtl_prob.releases.release import Release
from mpmtl_prob.sampling.importance import num_proposals, resampled, smoothed
from mpmtl_prob.sampling.nuts import Draws, run_nuts
from mpmtl_prob.single_task import conjugate

#: Tasks that share a generator of random numbers; of so many the Gram matrices are kept at a time.
BLOCK = 1024
#: Numbers that may be held beside what is kept, and those that a task's posterior given one Omega takes but for a square.
AT_ONCE, _OF_ONE = 2**20, 300
#: Tasks that are worked out at once at least, however wide: they share what is worked out for every Omega.
_FEWEST = 4
#: Draws of the public posterior that "mixture" mixes over.
MIXED = 64
#: Prior of the power p of :meth:`SharedPosterior.shape`, log-normal: how much sharper the weights' covariance is than
#: that of the messages, which are estimates (p > 1) or say more than the weights do (p < 1). 0.55 to 4.1 with 95 %.
POWER_MEDIAN = 1.5
POWER_LOG_SD = 0.5
_FEATURES = 1e-12, 1e12  # sizes of features that a sampler meets as they are


class Found(NamedTuple):
    """Posterior means W (d, m), draws by name (S, ..., m), and by task what says how far they can be trusted."""

    W: FloatArray
    draws: Draws
    khat: FloatArray | None = None  #: Pareto k of the mixture over Omega
    khat_draws: FloatArray | None = None  #: Pareto k of the correction of approximate draws
    divergences: NDArray[np.int64] | None = None  #: of the chains

    def __repr__(self) -> str:
        return shown(self)

    @property
    def of_tasks(self) -> dict[str, NDArray[Any]]:
        """Those that there are, (m,) each."""
        found = {"khat": self.khat, "khat_draws": self.khat_draws, "divergences": self.divergences}
        return {name: value for name, value in found.items() if value is not None}


def raised_shapes(
    shared: SharedPosterior | CovarianceDraws, power: float | None, likelihood: Likelihood = GAUSSIAN
) -> tuple[FloatArray, FloatArray]:
    """The mean of Omega's shape at one power, or at the nodes of its prior, (S, d, d), and the prior weights (S,)."""
    if power is not None:
        return shared.shape(power)[None], np.ones(1)
    z = np.linspace(-2.0, 2.0, likelihood.nodes)  # in prior standard deviations of log p
    p = POWER_MEDIAN * np.exp(POWER_LOG_SD * z)
    return np.stack([shared.shape(each) for each in p]), np.exp(-0.5 * z**2)


def drawn(shared: SharedPosterior, power: float | None) -> FloatArray:
    """Draws of Omega's shape, each at one power or at a draw of it, (S, d, d)."""
    if power is not None:
        return shared.shapes(np.full(MIXED, positive("power", power)))
    quantiles = ndtri((np.arange(MIXED) + 0.5) / MIXED)
    p = POWER_MEDIAN * np.exp(POWER_LOG_SD * np.random.default_rng(0).permutation(quantiles))
    return shared.shapes(p)


def plug_in(
    tasks: TaskData,
    omegas: FloatArray,
    prior: FloatArray,
    scale: FloatArray | None,
    num_draws: int,
    seed: int,
    likelihood: Likelihood = GAUSSIAN,
) -> Found:
    """Omega one of a few matrices (S, d, d) with prior weights (S,), by each task's own evidence."""

    def weighed(posteriors: Sequence[Posteriors]) -> _Weighed:
        log_weight = np.log(prior) + _evidence(posteriors)
        weight = np.exp(log_weight - log_weight.max(axis=1, keepdims=True))
        return weight / weight.sum(axis=1, keepdims=True), None

    return _in_turns(tasks, omegas, scale, num_draws, seed, likelihood, weighed)


def mixture(
    tasks: TaskData,
    omegas: FloatArray,
    scale: FloatArray | None,
    num_draws: int,
    seed: int,
    likelihood: Likelihood = GAUSSIAN,
) -> Found:
    """Every draw of Omega's shape (S, d, d) weighted by each task's own evidence for it, Pareto-smoothed.

    Source: Vehtari et al. (2024), JMLR 25(72).
    """

    return _in_turns(
        tasks, omegas, scale, num_draws, seed, likelihood, lambda posteriors: smoothed(_evidence(posteriors))
    )


#: Weights of the posteriors given every Omega, (m, S), and the Pareto k of the tasks, (m,), where they were smoothed.
type _Weighed = tuple[FloatArray, FloatArray | None]


def _in_turns(
    tasks: TaskData,
    omegas: FloatArray,
    scale: FloatArray | None,
    num_draws: int,
    seed: int,
    likelihood: Likelihood,
    weighed: Callable[[Sequence[Posteriors]], _Weighed],
) -> Found:
    """Compute the results of all tasks, a few at a time: posteriors at every Omega take far more than what is kept."""
    count = num_draws if likelihood.exact else num_proposals(num_draws)
    d, m = tasks.num_features, tasks.num_tasks
    step = max(_FEWEST, AT_ONCE // (count * d + len(omegas) * (d * d + _OF_ONE)))
    whole = Whole(m)
    for number, first in enumerate(range(0, m, BLOCK)):
        block = Block(seed, number, min(BLOCK, m - first), count)
        begins, shuffle = block.resampling()
        for at in range(0, block.num_tasks, step):
            turn = Turn(block, slice(at, min(at + step, block.num_tasks)))
            now = slice(first + at, first + turn.tasks.stop)
            few = tasks if now == slice(0, m) else tasks.take(range(m)[now])
            S = None if scale is None else scale[now]
            posteriors = [posteriors_given(likelihood, few, omega, S) for omega in omegas]
            weight, khat = weighed(posteriors)
            room = partial(whole.room, now) if likelihood.exact else None  # proposals are not what is kept
            W, draws = _blend(posteriors, weight, turn, room)
            khat_draws = None
            if not likelihood.exact:
                W, draws, khat_draws = resampled(draws, W, num_draws, shuffle, begins[turn.tasks])
            whole.put(now, Found(W, draws, khat, khat_draws))
    return whole.found


def _blocks(tasks: TaskData) -> Iterator[tuple[slice, TaskData]]:
    """The places of a few tasks, and these tasks; of few enough the ones given, with what they keep."""
    m = tasks.num_tasks
    for first in range(0, m, BLOCK):
        now = slice(first, min(first + BLOCK, m))
        yield now, tasks if m <= BLOCK else tasks.take(range(m)[now])


def scales(tasks: TaskData, scaling: str) -> FloatArray:
    """Compute :func:`conjugate.scales` of the slopes, (m, d), of many tasks without keeping their Gram matrices."""
    return np.concatenate([conjugate.scales(some.slopes.gram, scaling) for _, some in _blocks(tasks)])


class Whole:
    """Results of all tasks, (..., m), put together a few of them at a time."""

    def __init__(self, num_tasks: int) -> None:
        self.num_tasks = num_tasks
        self.known: dict[str, Any] = {}
        self.draws: Draws = {}

    def put(self, now: slice, part: Found) -> None:
        """Store the results of the tasks at these places; their draws may be stored already."""
        for name in ("W", "khat", "khat_draws"):
            if (value := getattr(part, name)) is not None:
                self._room(self.known, name, value.shape[:-1])[..., now] = value
        for name, value in part.draws.items():
            room = self.room(now, name, value.shape[:-1])
            if not np.may_share_memory(room, value):
                room[...] = value

    def room(self, now: slice, name: str, shape: tuple[int, ...]) -> FloatArray:
        """Return the array into which draws of the tasks at these places go, (*shape, tasks)."""
        return self._room(self.draws, name, shape)[..., now]

    def _room(self, of: dict[str, FloatArray], name: str, shape: tuple[int, ...]) -> FloatArray:
        if name not in of:
            of[name] = np.empty((*shape, self.num_tasks))
        return of[name]

    @property
    def found(self) -> Found:
        return Found(draws=self.draws, **self.known)


#: From a name and a shape (S, ...) to where draws (S, ..., m) of it are to be.
Room = Callable[[str, tuple[int, ...]], FloatArray]


def _evidence(posteriors: Sequence[Posteriors]) -> FloatArray:
    """(m, S)."""
    return np.stack([posterior.log_evidence for posterior in posteriors], axis=1)


def _blend(
    posteriors: Sequence[Posteriors], weight: FloatArray, turn: Turn, room: Room | None
) -> tuple[FloatArray, Draws]:
    """The mixture of S posteriors of every task with weights (m, S): its mean, and draws, in their room if there is one."""
    W = np.sum([w * posterior.mean for w, posterior in zip(weight.T, posteriors, strict=True)], axis=0)
    pick = turn.picks(weight)
    count = len(pick)
    draws: Draws = {}
    block = -(-count // min(len(posteriors), 16))  # a call of few draws costs nearly as much as one of many
    for s, posterior in enumerate(posteriors):
        draw, task = np.nonzero(pick == s)
        if len(draw) == 0:
            continue
        order = np.cumsum(pick == s, axis=0)[draw, task] - 1  # the how-manieth draw of its task from this Omega
        for b in range(int(order.max()) // block + 1):  # each from its own stream: how many others take does not matter
            now = order // block == b
            for name, value in posterior.sample(turn.at(s, b), block).items():
                if name not in draws:
                    shape = (count, *value.shape[1:])
                    draws[name] = np.empty(shape) if room is None else room(name, shape[:-1])
                draws[name][draw[now], ..., task[now]] = value[order[now] % block, ..., task[now]]
    return W, draws


def joint(
    tasks: TaskData,
    release: Release,
    scale: FloatArray | None,
    chains: int,
    num_draws: int,
    seed: int,
    progress_bar: bool,
    likelihood: Likelihood = GAUSSIAN,
) -> Found:
    """NUTS on an owner's model and the public one together, one owner at a time: exact, and slow."""
    d, public = tasks.num_features, observed(release)
    start = model_for("full", release).start
    S = np.ones((tasks.num_tasks, d)) if scale is None else scale
    kept: list[Draws] = []
    divergences = np.zeros(tasks.num_tasks, dtype=np.int64)
    for i in tqdm(range(tasks.num_tasks), desc="owners", disable=not progress_bar):
        X, y = tasks.rows_of(i)
        own = jointly(likelihood, X, y)
        near, scale, back = _near_one(X, S[i])
        per_chain = -(-num_draws // chains)
        found, statistics = run_nuts(
            own.model,
            public,
            *_padded(near, y / own.unit),
            scale,
            start={**start, **own.start},
            chains=chains,
            warmup=300,
            draws=per_chain,
            seed=seed + i,
            progress_bar=False,
        )
        divergences[i] = statistics["diverging"].sum()
        mine = {k: np.asarray(found[k]).reshape(-1, *found[k].shape[2:])[:num_draws] for k in ("w", *own.kept)}
        mine = {k: v * np.float64(own.unit) if k in OF_TARGETS else v for k, v in mine.items()}
        kept.append(mine | {"w": mine["w"] * back})
    draws = {"W" if k == "w" else k: np.stack([each[k] for each in kept], axis=-1) for k in kept[0]}
    return Found(draws["W"].mean(axis=0), draws, divergences=divergences)


def _near_one(X: FloatArray, scale: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """X (n, d) and S (d,) that a sampler in single precision can square, and what its w is then multiplied by, (d,).

    Extreme features are scaled before instead of after, and brought near 1: the prior of v knows the size of X S v alone.
    """
    if _FEATURES[0] < np.abs(X).max() < _FEATURES[1]:
        return X, scale, np.ones_like(scale)
    with np.errstate(all="ignore"):
        A = X * scale
        size = power_above(np.abs(A).max())
        return A / size, np.ones_like(scale), scale / size


def _padded(X: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Rows, targets and mask, up to a power of two: a shape that is its task's own, and few of them to compile for."""
    more = 2 ** (len(y) - 1).bit_length() - len(y)
    return np.pad(X, ((0, more), (0, 0))), np.pad(y, (0, more)), np.pad(np.ones(len(y)), (0, more))


def jointly(likelihood: Likelihood, X: FloatArray, y: FloatArray) -> Jointly:
    """:meth:`Likelihood.jointly`. Raises ValueError for a likelihood that has no such model."""
    if (own := likelihood.jointly(X, y)) is None:
        raise ValueError(f"method: 'joint' has no model for the likelihood {str(likelihood)!r}; take 'plug_in'")
    return own
