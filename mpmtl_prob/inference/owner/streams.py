"""Random numbers for tasks that are computed a few at a time, equal to those if all were computed at once.

The number of tasks in a turn then depends on memory alone. A random number is determined by its place, so that the numbers a
task uses change none of another task.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob.single_task.conjugate import in_turns


class Block(NamedTuple):
    """Block of tasks that share a generator.

    Attributes:
        seed: seed of all blocks.
        number: its number; block 0 has the random numbers that all tasks have if there is one block.
        num_tasks: number of its tasks.
        num_draws: number of draws of each task, or of proposals where these are resampled.
    """

    seed: int
    number: int
    num_tasks: int
    num_draws: int

    @property
    def key(self) -> tuple[int, ...]:
        """Key by which its streams are spawned."""
        return (self.number,) if self.number else ()

    @property
    def generator(self) -> np.random.Generator:
        """Generator of the numbers that all tasks of the block use together, at its beginning."""
        return np.random.default_rng(np.random.SeedSequence((self.seed,), spawn_key=self.key))

    def resampling(self) -> tuple[FloatArray, np.random.Generator]:
        """Return the place of every task's first pick in its step, (tasks,), and the generator that shuffles the picks."""
        rng = self.generator
        # skip the numbers of :meth:`Turn.picks`, which come first
        for now in in_turns(self.num_draws, self.num_tasks):
            rng.random((now.stop - now.start, self.num_tasks))
        return rng.random(self.num_tasks), rng


class Turn(NamedTuple):
    """Tasks of a block that are computed together.

    Attributes:
        block: their block.
        tasks: their places in it.
    """

    block: Block
    tasks: slice

    def at(self, *place: int) -> np.random.Generator:
        """Return the generator for a place in the computation.

        The streams that are spawned from it, one for every task, are the same in any division into turns.
        """
        return np.random.default_rng(
            _OfTurn((self.block.seed, *place), self.block.key, self.tasks, self.block.num_tasks)
        )

    def picks(self, weight: FloatArray) -> NDArray[np.int16]:
        """Pick one of S parts for every draw, (draw, task), with the tasks' weights of the parts, (task, S)."""
        rng = self.block.generator
        bounds = np.cumsum(weight, axis=1)
        out = np.empty((self.block.num_draws, len(weight)), dtype=np.int16)
        for now in in_turns(len(out), self.block.num_tasks):
            u = rng.random((now.stop - now.start, self.block.num_tasks))[:, self.tasks, None]
            out[now] = np.minimum((u > bounds).sum(axis=2), weight.shape[1] - 1)
        return out


class _OfTurn(np.random.SeedSequence):
    """Seed sequence whose children are those of some tasks, among the children for all tasks of their block."""

    def __init__(self, entropy: tuple[int, ...], key: tuple[int, ...], tasks: slice, num_tasks: int) -> None:
        super().__init__(entropy, spawn_key=key)
        self._tasks = tasks
        self._num_tasks = num_tasks
        self._calls = 0

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> NDArray[Any]:
        """Return the state of the generator itself, for posteriors that draw all tasks from one stream.

        Every turn has a stream of its own.
        """
        if not self._tasks.start:
            return super().generate_state(n_words, dtype)
        return self._child(self._num_tasks, self._tasks.start).generate_state(n_words, dtype)

    def spawn(self, n_children: int) -> list[np.random.SeedSequence]:  # type: ignore[override] # whose children are plain
        """Return new children: one for each of the turn's tasks, or any other number."""
        first = self._calls * self._num_tasks + self._tasks.start
        self._calls += 1
        if n_children != self._tasks.stop - self._tasks.start:
            return [self._child(self._num_tasks, first, i) for i in range(n_children)]
        return [self._child(first + i) for i in range(n_children)]

    def _child(self, *place: int) -> np.random.SeedSequence:
        return np.random.SeedSequence(self.entropy, spawn_key=(*self.spawn_key, *place))
