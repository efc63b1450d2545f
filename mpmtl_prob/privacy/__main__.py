"""Command ``python -m mpmtl_prob.privacy``: the noise of a proved guarantee relative to the noise that the papers use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.optimize import brentq

from mpmtl_prob.privacy.accounting.calibration import SHAPES, calibrate, calibrate_gaussian
from mpmtl_prob.privacy.mechanisms import PaperWishart
from mpmtl_prob.privacy.mechanisms.closed_forms import delta_add, delta_remove


def cost_table(
    num_features: int, delta: float, epsilons: Sequence[float], max_shape: float = SHAPES[-1]
) -> dict[str, list[float]]:
    """Return the size of the calibrated noise, k <= max_shape, relative to the papers' at the same nominal eps, for T = 1."""
    papers = [PaperWishart(num_features, epsilon).operator_norm for epsilon in epsilons]
    return {
        adjacency: [
            calibrate(epsilon, delta, num_features, adjacency=adjacency, max_shape=max_shape).operator_norm / paper
            for epsilon, paper in zip(epsilons, papers, strict=True)
        ]
        for adjacency in ("zero_out", "replace")
    }


def entry_table(num_features: int, delta: float, epsilons: Sequence[float]) -> dict[str, list[float]]:
    """Return the standard deviation of an off-diagonal entry of the noise, K = 1, T = 1, by adjacency and by proof.

    "replaced, two hops" is the cost of a simpler proof, by which a replacement is a removal followed by an addition.
    """
    replaced = [calibrate(epsilon, delta, num_features) for epsilon in epsilons]
    zeroed = [calibrate(epsilon, delta, num_features, adjacency="zero_out") for epsilon in epsilons]
    two_hops = [
        replace(law, scale=_two_hop_theta(at, delta, law.shape) / 2) for at, law in zip(epsilons, replaced, strict=True)
    ]
    rows = {"replaced, two hops": two_hops, "replaced": replaced, "zeroed": zeroed}
    table = {name: [law.scale * np.sqrt(law.df) for law in row] for name, row in rows.items()}
    gaussian = [calibrate_gaussian(epsilon, delta, num_features).sd for epsilon in epsilons]
    return table | {"replaced, Gaussian": gaussian}


def _two_hop_theta(epsilon: float, delta: float, shape: float) -> float:
    """Return the scale at which a removal followed by an addition keeps (eps, delta), at the best split of eps."""

    def excess(theta: float) -> float:
        split = np.linspace(0, min(epsilon, 1 / theta), 200)
        steps = [delta_remove(c, shape, theta) + np.exp(c) * delta_add(epsilon - c, shape, theta) for c in split]
        return min(steps) - delta

    return float(brentq(excess, 1e-4, 1e4))


def main() -> None:
    """Print the tables for the School data: d = 27, m = 139, delta = 1 / (m log m)."""
    epsilons = (0.1, 0.3, 1.0, 3.0, 10.0)
    print("d = 27, m = 139:     eps" + "".join(f"{epsilon:8g}" for epsilon in epsilons))
    for max_shape in (96.0, SHAPES[-1]):
        for adjacency, row in cost_table(27, 1 / (139 * np.log(139)), epsilons, max_shape).items():
            print(f"{adjacency:>10}, k <= {max_shape:<6g}" + "".join(f"{ratio:8.2f}" for ratio in row))
    print("standard deviation of an entry, K = 1:")
    for name, row in entry_table(27, 1 / (139 * np.log(139)), epsilons).items():
        print(f"{name:>24}" + "".join(f"{sd:8.4g}" for sd in row))


if __name__ == "__main__":
    main()
