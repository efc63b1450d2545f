"""Three methods by which an owner uses the public posterior: plug in its mean, mix over its draws, or sample jointly."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from tqdm.auto import tqdm

from mpmtl_prob._util.arrays import Draws, FloatArray
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
from mpmtl_prob.sampling.nuts import run_nuts
from mpmtl_prob.single_task import conjugate

#: Tasks that share a generator of random numbers, and whose Gram matrices are in memory together.
BLOCK = 1024
#: Largest number of numbers in intermediate results.
AT_ONCE = 2**20
#: Numbers in a task's posterior given one Omega, besides a d x d matrix.
_OF_ONE = 300
#: Smallest number of tasks in a turn, because tasks share the computations for every Omega.
_FEWEST = 4
#: Draws of the public posterior that "mixture" mixes over.
MIXED = 64
#: Median of the log-normal prior of the power p of :meth:`SharedPosterior.shape`. The covariance of weights is sharper than
#: that of messages if those are estimates (p > 1), and flatter if messages exaggerate it (p < 1).
POWER_MEDIAN = 1.5
#: Standard deviation of log p; p is so between 0.55 and 4.1 with 95 %.
POWER_LOG_SD = 0.5
_FEATURES = 1e-12, 1e12  # range of features' sizes that a sampler in single precision can square


class Results(NamedTuple):
    """Posterior means W (d, m), draws by name (S, ..., m), and diagnoses of every task."""

    W: FloatArray
    draws: Draws
    khat: FloatArray | None = None  #: Pareto k of the mixture over Omega
    khat_draws: FloatArray | None = None  #: Pareto k of the weights that correct approximate draws
    divergences: NDArray[np.int64] | None = None  #: number of divergences of the chains

    def __repr__(self) -> str:
        return shown(self)

    @property
    def of_tasks(self) -> dict[str, NDArray[Any]]:
        """Diagnoses that there are, by name, (m,) each."""
        diagnoses = {"khat": self.khat, "khat_draws": self.khat_draws, "divergences": self.divergences}
        return {name: value for name, value in diagnoses.items() if value is not None}


def raised_shapes(
    shared: SharedPosterior | CovarianceDraws, power: float | None, likelihood: Likelihood = GAUSSIAN
) -> tuple[FloatArray, FloatArray]:
    """Return the mean of Omega's shape at one power, or at the nodes of its prior, (S, d, d), and the prior weights (S,)."""
    if power is not None:
        return shared.shape(power)[None], np.ones(1)
    z = np.linspace(-2.0, 2.0, likelihood.nodes)  # in prior standard deviations of log p
    powers = POWER_MEDIAN * np.exp(POWER_LOG_SD * z)
    return np.stack([shared.shape(p) for p in powers]), np.exp(-0.5 * z**2)


def drawn_shapes(shared: SharedPosterior, power: float | None) -> FloatArray:
    """Return draws of Omega's shape, each at one power or at a draw of it, (S, d, d)."""
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
) -> Results:
    """Average each task's posterior over a few matrices Omega (S, d, d) with prior weights (S,), by its own evidence."""

    def weights(posteriors: Sequence[Posteriors]) -> _Weights:
        log_weight = np.log(prior) + _evidence(posteriors)
        weight = np.exp(log_weight - log_weight.max(axis=1, keepdims=True))
        return weight / weight.sum(axis=1, keepdims=True), None

    return _in_turns(tasks, omegas, scale, num_draws, seed, likelihood, weights)


def mixture(
    tasks: TaskData,
    omegas: FloatArray,
    scale: FloatArray | None,
    num_draws: int,
    seed: int,
    likelihood: Likelihood = GAUSSIAN,
) -> Results:
    """Average each task's posterior over draws of Omega's shape (S, d, d), by Pareto-smoothed weights of its own evidence.

    Source: Vehtari et al. (2024), JMLR 25(72).
    """

    def weights(posteriors: Sequence[Posteriors]) -> _Weights:
        return smoothed(_evidence(posteriors))

    return _in_turns(tasks, omegas, scale, num_draws, seed, likelihood, weights)


#: Weights of the posteriors given every Omega, (m, S), and the Pareto k of every task, (m,), where they were smoothed.
type _Weights = tuple[FloatArray, FloatArray | None]


def _in_turns(
    tasks: TaskData,
    omegas: FloatArray,
    scale: FloatArray | None,
    num_draws: int,
    seed: int,
    likelihood: Likelihood,
    weights: Callable[[Sequence[Posteriors]], _Weights],
) -> Results:
    """Compute the results of all tasks, a few at a time, because posteriors for every Omega take much more memory."""
    count = num_draws if likelihood.exact else num_proposals(num_draws)
    d, m = tasks.num_features, tasks.num_tasks
    step = max(_FEWEST, AT_ONCE // (count * d + len(omegas) * (d * d + _OF_ONE)))
    results = ResultsByTurns(m)
    for number, first in enumerate(range(0, m, BLOCK)):
        block = Block(seed, number, min(BLOCK, m - first), count)
        begins, shuffle = block.resampling()
        for at in range(0, block.num_tasks, step):
            turn = Turn(block, slice(at, min(at + step, block.num_tasks)))
            now = slice(first + at, first + turn.tasks.stop)
            few = tasks if now == slice(0, m) else tasks.take(range(m)[now])
            S = None if scale is None else scale[now]
            posteriors = [posteriors_given(likelihood, few, omega, S) for omega in omegas]
            weight, khat = weights(posteriors)
            # exact draws go straight to their place; proposals are resampled first
            place = partial(results.place, now) if likelihood.exact else None
            W, draws = _blend(posteriors, weight, turn, place)
            khat_draws = None
            if not likelihood.exact:
                W, draws, khat_draws = resampled(draws, W, num_draws, shuffle, begins[turn.tasks])
            results.put(now, Results(W, draws, khat, khat_draws))
    return results.all


def _blocks(tasks: TaskData) -> Iterator[tuple[slice, TaskData]]:
    """Yield blocks of tasks with their places; a single block is the given object, with its cached Gram matrices."""
    m = tasks.num_tasks
    for first in range(0, m, BLOCK):
        now = slice(first, min(first + BLOCK, m))
        yield now, tasks if m <= BLOCK else tasks.take(range(m)[now])


def scales(tasks: TaskData, scaling: str) -> FloatArray:
    """Compute :func:`conjugate.scales` of the slopes, (m, d), of many tasks without storing their Gram matrices."""
    return np.concatenate([conjugate.scales(some.slopes.gram, scaling) for _, some in _blocks(tasks)])


class ResultsByTurns:
    """Results of all tasks, (..., m), collected a few tasks at a time."""

    def __init__(self, num_tasks: int) -> None:
        self.num_tasks = num_tasks
        self.draws: Draws = {}
        self._others: dict[str, Any] = {}

    def put(self, now: slice, part: Results) -> None:
        """Store the results of the tasks at these places, unless their draws are there already."""
        for name in ("W", "khat", "khat_draws"):
            if (value := getattr(part, name)) is not None:
                self._of_all(self._others, name, value.shape[:-1])[..., now] = value
        for name, value in part.draws.items():
            place = self.place(now, name, value.shape[:-1])
            if not np.may_share_memory(place, value):
                place[...] = value

    def place(self, now: slice, name: str, shape: tuple[int, ...]) -> FloatArray:
        """Return the array for draws of the tasks at these places, (*shape, tasks)."""
        return self._of_all(self.draws, name, shape)[..., now]

    def _of_all(self, arrays: dict[str, FloatArray], name: str, shape: tuple[int, ...]) -> FloatArray:
        """Return an array for all tasks, which is new if there is none of its name."""
        if name not in arrays:
            arrays[name] = np.empty((*shape, self.num_tasks))
        return arrays[name]

    @property
    def all(self) -> Results:
        """Results of all tasks."""
        return Results(draws=self.draws, **self._others)


#: From a name and a shape (S, ...) to an array for its draws (S, ..., m).
Place = Callable[[str, tuple[int, ...]], FloatArray]


def _evidence(posteriors: Sequence[Posteriors]) -> FloatArray:
    """Return the log evidence of every task for every Omega, (m, S)."""
    return np.stack([posterior.log_evidence for posterior in posteriors], axis=1)


def _blend(
    posteriors: Sequence[Posteriors], weight: FloatArray, turn: Turn, place: Place | None
) -> tuple[FloatArray, Draws]:
    """Mix S posteriors of every task by weights (m, S).

    Args:
        posteriors: given every Omega.
        weight: of every task.
        turn: the tasks, with their random numbers.
        place: where draws are written; default: to new arrays.

    Returns:
        Mean and draws of the mixture.
    """
    W = np.sum([w * posterior.mean for w, posterior in zip(weight.T, posteriors, strict=True)], axis=0)
    pick = turn.picks(weight)
    count = len(pick)
    draws: Draws = {}
    block = -(-count // min(len(posteriors), 16))  # a call for few draws costs nearly as much as one for many
    for s, posterior in enumerate(posteriors):
        draw, task = np.nonzero(pick == s)
        if len(draw) == 0:
            continue
        order = (
            np.cumsum(pick == s, axis=0)[draw, task] - 1
        )  # number of the draw among those of its task from this Omega
        # every block has its own stream, so that a task's draws do not depend on how many blocks other tasks need
        for b in range(int(order.max()) // block + 1):
            now = order // block == b
            for name, value in posterior.sample(turn.at(s, b), block).items():
                if name not in draws:
                    shape = (count, *value.shape[1:])
                    draws[name] = np.empty(shape) if place is None else place(name, shape[:-1])
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
) -> Results:
    """Run NUTS on an owner's model and the public one together, one owner at a time, which is exact and slow."""
    public = observed(release)
    start = model_for("full", release).start
    S = np.ones((tasks.num_tasks, tasks.num_features)) if scale is None else scale
    of_owners: list[Draws] = []
    divergences = np.zeros(tasks.num_tasks, dtype=np.int64)
    per_chain = -(-num_draws // chains)
    for i in tqdm(range(tasks.num_tasks), desc="owners", disable=not progress_bar):
        X, y = tasks.rows_of(i)
        joint_model = jointly(likelihood, X, y)
        scaled_X, owner_scale, factor = _near_one(X, S[i])
        samples, statistics = run_nuts(
            joint_model.model,
            public,
            *_padded(scaled_X, y / joint_model.unit),
            owner_scale,
            start={**start, **joint_model.start},
            chains=chains,
            warmup=300,
            draws=per_chain,
            seed=seed + i,
            progress_bar=False,
        )
        divergences[i] = statistics["diverging"].sum()
        names = ("w", *joint_model.kept)
        draws = {k: np.asarray(samples[k]).reshape(-1, *samples[k].shape[2:])[:num_draws] for k in names}
        draws = {k: v * np.float64(joint_model.unit) if k in OF_TARGETS else v for k, v in draws.items()}
        of_owners.append(draws | {"w": draws["w"] * factor})
    stacked = {"W" if k == "w" else k: np.stack([draws[k] for draws in of_owners], axis=-1) for k in of_owners[0]}
    return Results(stacked["W"].mean(axis=0), stacked, divergences=divergences)


def _near_one(X: FloatArray, scale: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Scale extreme features so that a sampler in single precision can square them.

    The scale S is then part of the features. The posterior is the same, because the prior of v depends on X S v alone.

    Returns:
        X (n, d) and S (d,) for the sampler, and the factors by which its w is multiplied, (d,).
    """
    if _FEATURES[0] < np.abs(X).max() < _FEATURES[1]:
        return X, scale, np.ones_like(scale)
    with np.errstate(all="ignore"):
        A = X * scale
        size = power_above(np.abs(A).max())
        return A / size, np.ones_like(scale), scale / size


def _padded(X: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return rows, targets and mask, padded to a power of two.

    A shape depends on its own task only, and there are few shapes to compile for.
    """
    more = 2 ** (len(y) - 1).bit_length() - len(y)
    return np.pad(X, ((0, more), (0, 0))), np.pad(y, (0, more)), np.pad(np.ones(len(y)), (0, more))


def jointly(likelihood: Likelihood, X: FloatArray, y: FloatArray) -> Jointly:
    """Return :meth:`Likelihood.jointly`. Raises ValueError for a likelihood without such a model."""
    if (joint_model := likelihood.jointly(X, y)) is None:
        raise ValueError(f"method: 'joint' has no model for the likelihood {str(likelihood)!r}; take 'plug_in'")
    return joint_model
