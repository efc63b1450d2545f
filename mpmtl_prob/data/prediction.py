"""Predictions of a fit for every row: targets, with intervals where the predictor knows its uncertainty."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.former import FormerName
from mpmtl_prob._util.hidden_arrays import shown
from mpmtl_prob.data.padding import check_view, offsets_of, padded, real_rows, some_rows

if TYPE_CHECKING:
    import pandas as pd

    from mpmtl_prob.data.tasks import TaskData


class RowDraws(Protocol):
    """Posterior predictive draws of every row, S of them; repeated calls return the same draws."""

    def __len__(self) -> int:
        """Return S, the number of draws."""
        ...

    def blocks(self, i: int) -> Iterator[Block]:
        """Yield the draws of task i, a block of rows at a time."""
        ...


class Block(NamedTuple):
    """Posterior predictive draws of k rows, stored as ``away * unit + around``."""

    away: NDArray[np.floating[Any]]  #: deviations, (S, k)
    around: FloatArray  #: what the draws vary around, (k,)
    unit: FloatArray  #: unit of the deviations, (k,)

    def __repr__(self) -> str:
        return shown(self)

    @property
    def draws(self) -> FloatArray:
        """Draws of the rows, (S, k)."""
        return self.away * self.unit + self.around


@dataclass(frozen=True, eq=False, repr=False)
class KeptDraws:
    """Draws in memory, of all rows one after another.

    Attributes:
        away: deviations, (S, N).
        around: what the draws vary around, (N,).
        unit: unit of the deviations, (N,).
        offsets: first row of every task, as in TaskData.
    """

    away: NDArray[np.floating[Any]]
    around: FloatArray
    unit: FloatArray
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.away)

    def blocks(self, i: int) -> Iterator[Block]:
        rows = slice(*self.offsets[i : i + 2])
        yield Block(self.away[:, rows], self.around[rows], self.unit[rows])

    @classmethod
    def of(cls, draws: RowDraws, offsets: NDArray[np.int64], places: Iterable[int]) -> KeptDraws:
        """Copy the draws of the tasks at these places; ``offsets`` are those of the copied rows."""
        parts = [block for i in places for block in draws.blocks(i)]
        away, around, unit = zip(*parts, strict=True)
        return cls(np.concatenate(away, axis=1), np.concatenate(around), np.concatenate(unit), offsets)


@dataclass(frozen=True, eq=False, repr=False, init=False)
class Prediction:
    """Predicted targets of every row, with intervals where the predictor knows its uncertainty.

    An object stores numbers of every row, one task after another. Intervals are computed a few rows at a time, from draws
    that need not be in memory together. ``mean``, ``mask``, ``draws`` and :meth:`interval` are the same, padded to the
    longest task. Build one from padded arrays, ``Prediction(mean, mask, tasks, centered_draws)``, or from ``means`` and
    ``offsets``.

    Attributes:
        means: predicted targets, (N,).
        offsets: first row of every task and the end of the last, as in the TaskData predicted on, (m + 1,).
        tasks: task names.
        quantity: the predicted quantity: "target", or "probability" of the target 1 where targets are -1 and 1.
        row_draws: posterior predictive draws, or None for a point predictor.
    """

    means: FloatArray
    offsets: NDArray[np.int64]
    tasks: tuple[Hashable, ...]
    quantity: str
    row_draws: RowDraws | None

    def __init__(
        self,
        mean: Any = None,
        mask: Any = None,
        tasks: tuple[Hashable, ...] = (),
        centered_draws: Any = None,
        quantity: str = "target",
        around: Any = None,
        unit: Any = None,
        *,
        means: Any = None,
        offsets: Any = None,
        row_draws: RowDraws | None = None,
    ) -> None:
        """Build a prediction from arrays of all rows, or from padded arrays.

        Args:
            mean: (m, n_max).
            mask: as in the TaskData predicted on, (m, n_max).
            tasks: task names.
            centered_draws: draws minus ``around``, in units of ``unit`` (S, m, n_max); None for a point predictor. Single
                precision then rounds their deviations only.
            quantity: "target" or "probability".
            around: (m, n_max), or one number; default 0.
            unit: unit of every row, (m, n_max), or one number: a power of two, so that single precision reaches any target;
                default 1.
            means: (N,), instead of ``mean``.
            offsets: instead of ``mask``.
            row_draws: instead of ``centered_draws``.
        """
        if mask is not None:
            real = np.asarray(mask)
            if offsets is not None and means is not None:
                selected = some_rows(real, offsets)
                if row_draws is not None:
                    every = KeptDraws.of(row_draws, offsets, range(len(offsets) - 1))
                    parts = every.away[:, selected], every.around[selected], every.unit[selected]
                    row_draws = KeptDraws(*parts, offsets_of(real.sum(axis=1)))
                means = means[selected]
            offsets = offsets_of(real.sum(axis=1))
        if mean is not None or centered_draws is not None:  # made for padded arrays only, as it is of their size
            real = real_rows(offsets, _longest(offsets)) if mask is None else real

        def flat(value: Any) -> NDArray[Any]:
            return np.broadcast_to(value, real.shape)[real]

        means = means if mean is None else np.asarray(mean)[real]
        if centered_draws is not None:
            given = flat(0.0 if around is None else around), flat(1.0 if unit is None else unit)
            row_draws = KeptDraws(np.asarray(centered_draws)[:, real], *given, offsets)
        for name, value in zip(_NAMES, (means, offsets, tuple(tasks), quantity, row_draws), strict=True):
            object.__setattr__(self, name, value)

    away = FormerName("centered_draws")

    @property
    def mean(self) -> FloatArray:
        """``means`` padded, (m, n_max), with zeros after a task's own rows. Raises ValueError as :attr:`TaskData.X`."""
        return self._padded("mean", self.means)

    @property
    def mask(self) -> NDArray[np.bool_]:
        """True where a padded array holds a row, (m, n_max)."""
        longest = _longest(self.offsets)
        check_view("mask", (len(self.tasks), longest), 1, self.means.nbytes, _ADVICE)
        mask: NDArray[np.bool_] = real_rows(self.offsets, longest)
        return mask

    @property
    def draws(self) -> NDArray[np.floating[Any]] | None:
        """Posterior predictive draws padded, (S, m, n_max), or None for a point predictor.

        Raises ValueError as :attr:`TaskData.X`; ``take([i]).draws`` returns those of one task.
        """
        return self._of_draws("draws", lambda block: block.draws)

    @property
    def centered_draws(self) -> NDArray[np.floating[Any]] | None:
        """Draws minus what they vary around, in units of their own, padded as ``draws``."""
        return self._of_draws("centered_draws", lambda block: block.away)

    def interval_of_rows(self, probability: float = 0.9) -> tuple[FloatArray, FloatArray]:
        """Compute the central interval of every row with the given probability, a pair of (N,) arrays.

        Raises:
            ValueError: probability outside (0, 1), or a point predictor, which has no distribution.
        """
        if not 0 < probability < 1:
            raise ValueError(f"probability: expected a number strictly between 0 and 1, got {probability!r}")
        (interval,) = self.intervals_of_rows([probability])
        return interval

    def intervals_of_rows(self, probabilities: Sequence[float]) -> list[tuple[FloatArray, FloatArray]]:
        """Compute :meth:`interval_of_rows` for several probabilities, from the same draws."""
        if self.row_draws is None:
            raise ValueError("interval: this predictor gives points, no distribution; fit a posterior for intervals")
        tails = np.array([(1 - probability) / 2 for probability in probabilities])
        levels = np.concatenate([tails, 1 - tails])
        limits, at = np.empty((len(levels), len(self.means))), 0
        for block in _together(block for i in range(len(self.tasks)) for block in self.row_draws.blocks(i)):
            now = slice(at, at + len(block.unit))
            limits[:, now] = np.quantile(block.away, levels, axis=0) * block.unit + block.around
            at = now.stop
        return list(zip(limits[: len(tails)], limits[len(tails) :], strict=True))

    def interval(self, probability: float = 0.9) -> tuple[FloatArray, FloatArray]:
        """Return :meth:`interval_of_rows` padded, a pair of (m, n_max) arrays. Raises as that, and as :attr:`TaskData.X`."""
        lower, upper = self.interval_of_rows(probability)
        return self._padded("interval", lower), self._padded("interval", upper)

    def take(self, places: ArrayLike) -> Prediction:
        """Return the prediction for the tasks at these places, whole numbers from 0 to m - 1, in this order."""
        at = np.atleast_1d(np.asarray(places, dtype=np.int64)).tolist()
        parts = [self.means[slice(*self.offsets[i : i + 2])] for i in at]
        offsets = offsets_of(list(map(len, parts)))
        draws = None if self.row_draws is None else KeptDraws.of(self.row_draws, offsets, at)
        names = tuple(self.tasks[i] for i in at)
        return Prediction(
            means=np.concatenate(parts), offsets=offsets, tasks=names, quantity=self.quantity, row_draws=draws
        )

    def to_pandas(self, probability: float = 0.9) -> pd.DataFrame:
        """Return one row per observation: task, row within the task, mean and, if the predictor knows one, the interval."""
        import pandas as pd

        counts = np.diff(self.offsets)
        row = np.arange(len(self.means)) - np.repeat(self.offsets[:-1], counts)
        task = np.repeat(np.asarray(self.tasks, dtype=object), counts)
        columns: dict[str, Any] = {"task": task, "row": row, "mean": self.means}
        if self.row_draws is not None:
            columns["lower"], columns["upper"] = self.interval_of_rows(probability)
        return pd.DataFrame(columns)

    def _padded(self, name: str, flat: NDArray[Any]) -> Any:
        longest = _longest(self.offsets)
        check_view(name, (len(self.tasks), longest), flat.dtype.itemsize, flat.nbytes, _ADVICE)
        return padded(flat, self.offsets, longest)

    def _of_draws(self, name: str, part: Callable[[Block], NDArray[Any]]) -> NDArray[Any] | None:
        if self.row_draws is None:
            return None
        shape = len(self.row_draws), len(self.tasks), _longest(self.offsets)
        check_view(name, shape, 8, 8 * shape[0] * len(self.means), _ADVICE)
        stacked = None
        for i in range(len(self.tasks)):
            at = 0
            for values in map(part, self.row_draws.blocks(i)):
                stacked = np.zeros(shape, dtype=values.dtype) if stacked is None else stacked
                stacked[:, i, at : at + values.shape[1]] = values
                at += values.shape[1]
        return stacked

    def __repr__(self) -> str:
        kind = "points" if self.row_draws is None else f"{len(self.row_draws)} draws"
        return f"Prediction({len(self.tasks)} tasks, {len(self.means)} rows, {kind})"


_NAMES = tuple(field.name for field in fields(Prediction))
_MANY = 2**18  # numbers that are worked on at a time
_ADVICE = (
    "take([i]) is the prediction of one task, and means, interval_of_rows() and to_pandas() are those of every row"
)


def _longest(offsets: NDArray[np.int64]) -> int:
    return int(np.diff(offsets).max(initial=0))


def _together(blocks: Iterable[Block]) -> Iterator[Block]:
    """Join blocks of few draws until they are large enough to be worked on together."""
    waiting: list[Block] = []
    for block in blocks:
        waiting.append(block)
        if sum(part.away.size for part in waiting) >= _MANY:
            yield _joined(waiting)
            waiting = []
    if waiting:
        yield _joined(waiting)


def _joined(blocks: Sequence[Block]) -> Block:
    away, around, unit = zip(*blocks, strict=True)
    return (
        blocks[0] if len(blocks) == 1 else Block(np.concatenate(away, 1), np.concatenate(around), np.concatenate(unit))
    )


@dataclass(frozen=True, eq=False, repr=False)
class DrawnNumbers:
    """Posterior predictive draws ``x'w + sigma e``, made on demand; those of a task do not depend on the rows of others.

    Attributes:
        tasks: the rows to predict.
        means: x'w for the weights ``centre``, (N,).
        W: draws of the weights, (S, d, m), of which those at ``pick`` are used.
        centre: weights that the draws vary around, (d, m).
        sigma: draws of the residual standard deviation, (S,) or (S, m).
        pick: indices of draws.
        seed: seed of the errors e.
        errors: function that draws errors e of a given shape.
    """

    tasks: TaskData
    means: FloatArray
    W: NDArray[np.floating[Any]]
    centre: FloatArray
    sigma: NDArray[np.floating[Any]]
    pick: NDArray[np.int64]
    seed: int
    errors: Callable[[np.random.Generator, tuple[int, ...]], NDArray[np.floating[Any]]]

    def __len__(self) -> int:
        return len(self.pick)

    def blocks(self, i: int) -> Iterator[Block]:
        away = self.W[self.pick, :, i] - self.centre[:, i]
        sigma = np.asarray(self.sigma if self.sigma.ndim == 1 else self.sigma[:, i], dtype=np.float64)[self.pick]
        rng = stream(self.seed, i)
        for rows in row_blocks(self.tasks.offsets, i, len(self.pick)):
            of_weights = away @ self.tasks.rows[rows].T
            drawn, unit = in_single(of_weights + sigma[:, None] * self.errors(rng, of_weights.shape))
            yield Block(drawn, self.means[rows], unit)


def row_blocks(offsets: NDArray[np.int64], i: int, draws: int) -> Iterator[slice]:
    """Split the rows of task i into slices small enough for this many draws of each row."""
    begin, end = map(int, offsets[i : i + 2])
    step = max(1, _MANY // max(draws, 1))
    return (slice(at, min(at + step, end)) for at in range(begin, end, step))


def stream(seed: int, i: int) -> np.random.Generator:
    """Return the i-th generator of ``np.random.default_rng(seed).spawn(...)``."""
    parent: Any = np.random.default_rng(seed).bit_generator.seed_seq
    return np.random.default_rng(np.random.SeedSequence(parent.entropy, spawn_key=(i,)))


def normal_errors(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Draw standard normal errors in single precision."""
    return rng.standard_normal(shape, np.float32)


def in_single(away: FloatArray) -> tuple[NDArray[np.float32], FloatArray]:
    """Return draws (S, ...) in single precision, and their unit (...): a power of two above the largest deviation.

    Nothing overflows. The rounding is relative to the largest draw of a row, and so does not show in an interval.
    """
    unit = power_above(np.abs(away).max(axis=0, initial=0.0))
    return (away / unit).astype(np.float32), unit


def single_holds(targets: FloatArray, error: float) -> bool:
    """Return True if single precision reaches targets (N,) and rounds them by less than a thousandth of ``error``."""
    largest = np.abs(targets).max(initial=0.0)
    return bool(largest == 0 or 1e-30 < largest < 1e30) and bool(np.spacing(np.float32(largest)) <= 1e-3 * error)


def power_above(size: FloatArray) -> FloatArray:
    """Return the powers of two above these sizes, within the range where they and their reciprocals are doubles."""
    return np.ldexp(1.0, np.clip(np.frexp(size)[1], -1000, 1000))


def linear_prediction(W: FloatArray, data: TaskData) -> Prediction:
    """Predict X_i w_i for every task, with weights W (d, m).

    Raises:
        ValueError: data whose tasks or features do not match W.
    """
    check_weights(W, data)
    return Prediction(means=linear(W, data), offsets=data.offsets, tasks=data.tasks)


def linear(W: FloatArray, data: TaskData) -> FloatArray:
    """Compute x'w_i of every row, (N,), with weights W (d, m)."""
    values, task = np.empty(data.num_rows), data.task_of_rows
    step = max(1, _MANY // data.num_features)
    for begin in range(0, len(values), step):  # in blocks, as weights of all rows would need much memory
        now = slice(begin, begin + step)
        products = np.take(W.T, task[now], axis=0)
        products *= data.rows[now]
        products.sum(axis=1, out=values[now])
    return values


def check_rows(prediction: Prediction, test: TaskData) -> None:
    """Raise ValueError unless ``prediction`` belongs to the rows of ``test``."""
    if not isinstance(prediction, Prediction):
        raise ValueError(f"prediction: expected a Prediction, as of a fit's predict(), got {type(prediction).__name__}")
    test.check_targets("test", plain=False)
    if tuple(prediction.tasks) != tuple(test.tasks) or not np.array_equal(prediction.offsets, test.offsets):
        raise ValueError("prediction and test: expected predictions of the rows of test, got rows of other tasks")


def check_weights(W: NDArray[Any], data: TaskData) -> None:
    """Raise ValueError unless W is (d, m) with the numbers of features d and tasks m of the data."""
    if W.shape != (data.num_features, data.num_tasks):
        raise ValueError(
            f"tasks: expected {W.shape[0]} features and {W.shape[1]} tasks as in the fit, "
            f"got {data.num_features} and {data.num_tasks}"
        )
