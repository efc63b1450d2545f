"""Errors of the default choices of NoiseAware: whether a second round, and another structure, pay where it chooses them.

    python studies/benchmarks/choices.py [--shapes 24] [--epsilons 1 3 10] [--json OUT]

Data sets are those of studies/benchmarks/shapes.py with other seeds than in its table. They have at least as many tasks as
features, and half of them fewer rows than features, where a first message depends mostly on its prior. Every arm has the
whole budget. Every shape is a file in --units, and is not run again. "chosen" is the arm that NoiseAware chooses.
"""

from __future__ import annotations

import itertools

from shapes import data, error, over_shapes, shape

from mpmtl_prob import release
from mpmtl_prob.inference import NoiseAware, structure_for

#: Structure and number of rounds; the first arm is the one that others are compared with.
ARMS = (("full", 1), ("full", 2), ("low_rank", 1), ("low_rank", 2))
FIRST_SEED = 200  # the other table's are below
MOST_FEATURES = 20


def seeds(count: int) -> list[int]:
    """Return seeds of shapes that have, in turn, fewer rows than features and at least as many."""
    few: list[int] = []
    more: list[int] = []
    for seed in itertools.count(FIRST_SEED):
        of = shape(seed)
        if of.features <= min(of.tasks, MOST_FEATURES):
            (few if of.rows < of.features else more).append(seed)
        if 2 * min(len(few), len(more)) >= count:
            return [seed for pair in zip(few, more, strict=False) for seed in pair][:count]
    raise AssertionError  # itertools.count does not end


def chosen(seed: int, epsilon: float) -> dict[str, tuple[str, int]]:
    """Return the structure and the number of rounds that NoiseAware chooses by default."""
    train, _, W = data(shape(seed), seed)
    published = release(train, epsilon, rounds="auto", respond=lambda _: W, unsafe_seed=seed)
    return {"chosen": (structure_for(published).name, published.rounds)}


def errors(seed: int, epsilon: float) -> list[float]:
    """Return the error of every arm."""
    train, X, W = data(shape(seed), seed)
    fit = lambda structure, rounds: NoiseAware(
        epsilon, structure=structure, rounds=rounds, chains=2, seed=seed, unsafe_seed=seed, progress_bar=False
    ).fit(train)
    return [error(fit(*arm).W, X, W) for arm in ARMS]


def main() -> None:
    over_shapes(__doc__, "choices", ARMS, seeds, errors, chosen, shapes=24, epsilons=(1.0, 3.0, 10.0))


if __name__ == "__main__":
    main()
