"""What is chosen for a user: does a second round pay where it is taken, and what does another structure give?

    python benchmarks/choices.py [--shapes 24] [--epsilons 1 3 10] [--json OUT]

Data sets of benchmarks/shapes.py, other ones than its table shows: of at least as many tasks as features, and half of them
with fewer rows than features, where a first message is mostly its own prior. Every arm has the whole budget. Every shape is
a file in --units, and is not run again. "auto" is how many rounds rounds="auto" takes there.
"""

from __future__ import annotations

import itertools

from shapes import data, error, over_shapes, shape

from mpmtl_prob.inference import NoiseAware
from mpmtl_prob.privacy import calibrate
from mpmtl_prob.releases import default_delta
from mpmtl_prob.releases.rounds import how_many

#: structure and rounds; what the others stand beside comes first
ARMS = (("full", 1), ("full", 2), ("low_rank", 1), ("low_rank", 2))
FIRST_SEED = 200  # the other table's are below
MOST_FEATURES = 20


def seeds(count: int) -> list[int]:
    """Of shapes by turns with fewer rows than features and with at least as many."""
    few: list[int] = []
    more: list[int] = []
    for seed in itertools.count(FIRST_SEED):
        of = shape(seed)
        if of.features <= min(of.tasks, MOST_FEATURES):
            (few if of.rows < of.features else more).append(seed)
        if 2 * min(len(few), len(more)) >= count:
            return [seed for pair in zip(few, more, strict=False) for seed in pair][:count]
    raise AssertionError  # itertools.count does not end


def auto(seed: int, epsilon: float) -> dict[str, int]:
    """Rounds that rounds="auto" takes."""
    m, d = shape(seed).tasks, shape(seed).features
    return {"auto": how_many("auto", m, True, lambda: calibrate(epsilon, default_delta(m), d))}


def errors(seed: int, epsilon: float) -> list[float]:
    """Of every arm."""
    train, X, W = data(shape(seed), seed)
    fit = lambda structure, rounds: NoiseAware(
        epsilon, structure=structure, rounds=rounds, chains=2, seed=seed, unsafe_seed=seed, progress_bar=False
    ).fit(train)
    return [error(fit(*arm).W, X, W) for arm in ARMS]


def main() -> None:
    over_shapes(__doc__, "choices", ARMS, seeds, errors, auto, shapes=24, epsilons=(1.0, 3.0, 10.0))


if __name__ == "__main__":
    main()
