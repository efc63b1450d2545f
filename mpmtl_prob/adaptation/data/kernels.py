"""Random features: a public map of rows after which a linear predictor is one of a Gaussian kernel.

The map depends on public records and a seed alone, and every row is mapped from itself, so that a private record stays one
record. Every mapped row has length 1, which is then the bound of rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import MANY, optional, positive, whole
from mpmtl_prob.adaptation.data.domain import Domain, domain, public_domain


@dataclass(frozen=True, eq=False)
class RandomFeatures:
    """Map x -> (cos x.v_1, sin x.v_1, ..., cos x.v_D, sin x.v_D) / sqrt D, with products near exp(-|x - x'|^2 / 2 w^2).

    Attributes:
        directions: v, (d, D), normal with sd 1 / w.

    >>> from mpmtl_prob.adaptation import CnvxAdap, RandomFeatures
    >>> from mpmtl_prob.adaptation.data import problems
    >>> data = problems.two_sources(records=(300, 200), num_features=3, seed=0)
    >>> kernel = RandomFeatures.of(data.source, number=10)
    >>> model = CnvxAdap(epsilon=1.0, discrepancy=0.0, weight_bound=20.0).fit(kernel(data.source), kernel(data.target))
    >>> model.predict(kernel(data.test).X[:3]).shape
    (3,)

    Source: Rahimi and Recht (2007), for the map; Bassily et al. (2023), section 2, for kernels.
    """

    directions: FloatArray

    @classmethod
    def of(cls, public: Any, number: int = 50, *, width: float | None = None, seed: int = 0) -> RandomFeatures:
        """Draw a map for public records, a Domain or a pair (X, y).

        Args:
            public: public records, for the number of features and the width.
            number: D; a row becomes 2 D numbers.
            width: w, public; default the median distance between the first 1,000 public rows.
            seed: of the directions.

        Raises:
            ValueError: an argument outside its range, or records that are not numbers.
        """
        records = public_domain("public", domain("public", public))
        whole("number", number, upto=MANY // max(records.num_features, 1))
        width = optional(positive, "width", width)
        if width is None:
            some = records.X[:1000]
            squares = (some**2).sum(1)[:, None] + (some**2).sum(1)[None] - 2 * some @ some.T
            apart = squares[np.triu_indices(len(some), 1)]
            width = float(np.sqrt(np.median(apart))) if len(apart) and np.median(apart) > 0 else 1.0
        rng = np.random.default_rng(whole("seed", seed, 0))
        return cls(rng.standard_normal((records.num_features, number)) / width)

    def __call__(self, records: Any) -> Domain:
        """Return the mapped records. A record that is not finite stays so, and becomes zeros once it is bounded.

        Raises ValueError for another number of features.
        """
        d, D = self.directions.shape
        given = domain("records", records, d)
        if given.num_features != d:
            raise ValueError(f"records: expected {d} features, got {given.num_features}")
        with np.errstate(all="ignore"):  # a warning would reveal one record
            angles = given.X @ self.directions
            mapped = np.concatenate([np.cos(angles), np.sin(angles)], axis=1) / np.sqrt(D)
        return Domain(mapped, given.y)
