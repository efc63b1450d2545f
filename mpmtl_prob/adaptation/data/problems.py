"""Synthetic pairs of domains with known weights; real ones are in :mod:`mpmtl_prob.adaptation.data.real`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import in_range, positive, whole
from mpmtl_prob.adaptation.data.domain import Domain


class Pair(NamedTuple):
    """A public source, a private target, and test records from the target's distribution.

    Attributes:
        source: public.
        target: private.
        test: from the target's distribution.
        w: the target's true weights, (d,); None for real data.
        groups: the public domain of every source record, (m,).
    """

    source: Domain
    target: Domain
    test: Domain
    w: FloatArray | None = None
    groups: FloatArray | None = None

    @property
    def sources(self) -> dict[str, Domain]:
        """The public domains by name."""
        if self.groups is None:
            return {"source": self.source}
        kinds = sorted(set(self.groups.tolist()))
        rows = {str(k): self.groups == k for k in kinds}
        return {k: Domain(self.source.X[at], self.source.y[at], self.source.features) for k, at in rows.items()}


def two_sources(
    records: tuple[int, int] = (300, 60), *, num_features: int = 8, tests: int = 4000, seed: int = 0
) -> Pair:
    """Simulate a source of which 70 % resembles the target and 30 % does not.

    Weights w_t, u, w_o are directions; rows are .8 N(0, I) / sqrt d, the source's .5 further along the first axis, shrunk
    into the unit ball; y = x.w_t of the target, x.(w_t + .3 u) of good source records, x.w_o of bad ones; noise of sd .1;
    targets cut to [-1, 1].

    Args:
        records: (m, n).
        num_features: d.
        tests: number of test records.
        seed: of all random numbers.
    """
    (m, n), d = records, whole("num_features", num_features)
    rng = np.random.default_rng(seed)
    w_t, u, w_o = (_direction(rng, d) for _ in range(3))
    rows = [_rows(rng, k, d, 0.8, along) for k, along in ((m, 0.5), (n, 0.0), (tests, 0.0))]
    bad = rng.random(m) < 0.3
    means = [np.where(bad, rows[0] @ w_o, rows[0] @ (w_t + 0.3 * u)), rows[1] @ w_t, rows[2] @ w_t]
    source, target, test = [
        Domain(X, np.clip(f + 0.1 * rng.standard_normal(len(f)), -1, 1)) for X, f in zip(rows, means, strict=True)
    ]
    return Pair(source, target, test, w_t, np.where(bad, "bad", "good"))


def shifted(
    records: tuple[int, int] = (300, 60),
    shift: float = 0.5,
    *,
    num_features: int = 8,
    noise: float = 0.15,
    tests: int = 4000,
    seed: int = 0,
) -> Pair:
    """Simulate a target whose weights differ from the source's by a known distance, with shifted features.

    |w_s| = |w_t| = .9 and |w_t - w_s| = shift; rows are .7 N(0, I) / sqrt d, the source's .5 further along the first axis,
    shrunk into the unit ball; targets cut to [-1, 1].

    Args:
        records: (m, n).
        shift: in [0, 1.8).
        num_features: d, at least 2.
        noise: sd of the targets.
        tests: number of test records.
        seed: of all random numbers.
    """
    (m, n), d = records, whole("num_features", num_features, 2)
    in_range("shift", shift, 0, 1.8, left_closed=True)
    positive("noise", noise)
    rng = np.random.default_rng(seed)
    u, v = _direction(rng, d), rng.standard_normal(d)
    v -= u * (u @ v)
    angle = 2 * np.arcsin(shift / 1.8)
    w_s, w_t = 0.9 * u, 0.9 * (np.cos(angle) * u + np.sin(angle) * v / np.linalg.norm(v))
    rows = [_rows(rng, k, d, 0.7, along) for k, along in ((m, 0.5), (n, 0.0), (tests, 0.0))]
    source, target, test = [
        Domain(X, np.clip(X @ w + noise * rng.standard_normal(len(X)), -1, 1))
        for X, w in zip(rows, (w_s, w_t, w_t), strict=True)
    ]
    return Pair(source, target, test, w_t)


def _direction(rng: np.random.Generator, d: int) -> FloatArray:
    v = rng.standard_normal(d)
    direction: FloatArray = v / np.linalg.norm(v)
    return direction


def _rows(rng: np.random.Generator, k: int, d: int, scale: float, along: float) -> FloatArray:
    X = scale * rng.standard_normal((k, d)) / np.sqrt(d)
    X[:, 0] += along
    rows: FloatArray = X / np.maximum(1.0, np.linalg.norm(X, axis=1))[:, None]
    return rows
