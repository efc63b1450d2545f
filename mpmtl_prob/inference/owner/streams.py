"""Random numbers of tasks that are worked out a few at a time: those that they would have all at once.

How many tasks are beside one another is then a matter of memory alone. A number's place decides it: what a task takes moves
no number of another.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob.single_task.conjugate import in_turns


class Block(NamedTuple):
    """Tasks that share a generator.

    Attributes:
        seed: of all blocks.
        number: which of them it is; the first one's numbers are those of all tasks where there is one block.
        num_tasks: in it.
        num_draws: that are made of each task, proposals where these are resampled.
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
        """Return the generator of numbers that tasks read side by side, from the first one."""
        return np.random.default_rng(np.random.SeedSequence((self.seed,), spawn_key=self.key))

    def resampling(self) -> tuple[FloatArray, np.random.Generator]:
        """Yield the start of every task's picks, (tasks,), and the generator that shuffles them, for some tasks at a time."""
        rng = self.generator
        for now in in_turns(self.num_draws, self.num_tasks):  # those of :meth:`Turn.picks` come first
            rng.random((now.stop - now.start, self.num_tasks))
        return rng.random(self.num_tasks), rng


class Turn(NamedTuple):
    """Some tasks of a block.

    Attributes:
        block: of which they are.
        tasks: their places in it.
    """

    block: Block
    tasks: slice

    def at(self, *place: int) -> np.random.Generator:
        """Those of a place in the work. What is spawned from them, a stream for every task, is a task's own in any turn."""
        return np.random.default_rng(
            _OfTurn((self.block.seed, *place), self.block.key, self.tasks, self.block.num_tasks)
        )

    def picks(self, weight: FloatArray) -> NDArray[np.int16]:
        """Return which of S parts every draw is of, (draw, task), where tasks give these the weights (task, S)."""
        rng, bounds = self.block.generator, np.cumsum(weight, axis=1)
        out = np.empty((self.block.num_draws, len(weight)), dtype=np.int16)
        for now in in_turns(len(out), self.block.num_tasks):
            u = rng.random((now.stop - now.start, self.block.num_tasks))[:, self.tasks, None]
            out[now] = np.minimum((u > bounds).sum(axis=2), weight.shape[1] - 1)
        return out


class _OfTurn(np.random.SeedSequence):
    """The seeds of a generator whose children are those of some tasks, among the children of all tasks of their block."""

    def __init__(self, entropy: tuple[int, ...], key: tuple[int, ...], tasks: slice, num_tasks: int) -> None:
        super().__init__(entropy, spawn_key=key)
        self._tasks, self._num_tasks, self._calls = tasks, num_tasks, 0

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> NDArray[Any]:
        """Return the state of the generator itself, for posteriors that draw all tasks from one: other turns have others."""
        if not self._tasks.start:
            return super().generate_state(n_words, dtype)
        return self._child(self._num_tasks, self._tasks.start).generate_state(n_words, dtype)

    def spawn(self, n_children: int) -> list[np.random.SeedSequence]:  # type: ignore[override] # whose children are plain
        first, self._calls = self._calls * self._num_tasks + self._tasks.start, self._calls + 1
        if n_children != self._tasks.stop - self._tasks.start:  # not one for every task
            return [self._child(self._num_tasks, first, i) for i in range(n_children)]
        return [self._child(first + i) for i in range(n_children)]

    def _child(self, *place: int) -> np.random.SeedSequence:
        return np.random.SeedSequence(self.entropy, spawn_key=(*self.spawn_key, *place))
