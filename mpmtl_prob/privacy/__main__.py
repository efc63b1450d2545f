"""``python -m mpmtl_prob.privacy`` prints what a promise that holds costs, relative to the papers' promise that does not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpmtl_prob.privacy.calibration import SHAPES, calibrate
from mpmtl_prob.privacy.mechanisms import PaperWishart


def cost_table(
    num_features: int, delta: float, epsilons: Sequence[float], max_shape: float = SHAPES[-1]
) -> dict[str, list[float]]:
    """Fluctuation of the calibrated noise, k <= max_shape, relative to the papers' of the same nominal eps, T = 1."""
    papers = [PaperWishart(num_features, epsilon).fluctuation for epsilon in epsilons]
    return {
        adjacency: [
            calibrate(epsilon, delta, num_features, adjacency=adjacency, max_shape=max_shape).fluctuation / paper
            for epsilon, paper in zip(epsilons, papers, strict=True)
        ]
        for adjacency in ("zero_out", "replace")
    }


def main() -> None:
    """Print the table for the School data: d = 27, m = 139, delta = 1 / (m log m)."""
    epsilons = (0.1, 0.3, 1.0, 3.0, 10.0)
    print("d = 27, m = 139:     eps" + "".join(f"{epsilon:8g}" for epsilon in epsilons))
    for max_shape in (96.0, SHAPES[-1]):
        for adjacency, row in cost_table(27, 1 / (139 * np.log(139)), epsilons, max_shape).items():
            print(f"{adjacency:>10}, k <= {max_shape:<6g}" + "".join(f"{ratio:8.2f}" for ratio in row))


if __name__ == "__main__":
    main()
