"""Break a mechanism, sell it under the promise of the sound one, and see whether an audit as it comes notices.

What is broken is what is published: the exact draw, the shares, the clip norm. Simulations in doubles stay sound, so that an
audit that looks at these alone finds nothing. Sound mechanisms are audited too, and must pass.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from attacks import Case
from mpmtl_prob.privacy import audit
from mpmtl_prob.privacy import mechanisms as laws
from mpmtl_prob.privacy.guarantee import Bound
from mpmtl_prob.privacy.mechanisms import exact

HALVED = "noise on second moments drawn at half its size"
VECTORS = "noise on vectors drawn at half its size"
ZERO = "noise in shares, of which every share is zero"
SHARES = "noise in shares that are half as large, or that half of the owners add"
CLIP = "a clip norm sold at twice its eps"
SEED = "the same noise in every release"
LITTLE = "noise a twentieth too small, which its own law shows"
SOUND = "sound mechanisms, which must pass"
WAYS = (HALVED, VECTORS, ZERO, SHARES, CLIP, SEED, LITTLE, SOUND)


def cases(rng: np.random.Generator, effort: float) -> Iterator[Case]:
    """Every way; the number of mechanisms goes with the effort, and with little each way has one or two of the laws."""
    many = lambda number: max(1, round(number * effort))
    first, ends = (slice(None),) * 2 if effort >= 0.1 else (slice(1), slice(None, None, 4))
    for _ in range(many(12)):
        for law in (wishart(rng), gaussian(rng))[first]:
            yield broken(HALVED, scaled(law, 0.5), law, rng)
        for law in (vector_gaussian(rng), laplace(rng))[first]:
            yield broken(VECTORS, scaled(law, 0.5), law, rng)
        law = shares(rng)
        yield broken(ZERO, with_draw(law, draw_share=lambda self, source: np.zeros((self.num_features,) * 2)), law, rng)
        half = dataclasses.replace(law, share=law.share / 2)
        yield broken(
            SHARES, with_draw(law, draw_share=lambda self, source, half=half: half.draw_share(source)), law, rng
        )
        clip = laws.Quantile(float(rng.uniform(0.4, 3.0)))
        twice = laws.Quantile(2 * clip.epsilon)
        dearer = with_draw(clip, draw=lambda self, *arguments, twice=twice: twice.draw(*arguments))
        yield broken(CLIP, dearer, clip, rng)
        law = wishart(rng) if rng.random() < 0.5 else gaussian(rng)
        yield broken(
            SEED,
            with_draw(law, draw=lambda self, unit, source: type(self).__mro__[1].draw(self, unit, exact.seeded(0))),
            law,
            rng,
        )
        law = wishart(rng) if rng.random() < 0.5 else laplace(rng)
        noticed = audit.drawn(scaled(law, 0.95)).broken if hasattr(audit, "drawn") else False
        yield Case(LITTLE, noticed, f"{law}: noise x .95 is not noticed")
        for law in (wishart(rng), gaussian(rng), laplace(rng), shares(rng), clip)[ends]:
            claim = audit.own_claim(law) if not isinstance(law, laws.Quantile) else Bound(law.epsilon, 0.0, "replace")
            passed = audit.likelihood_ratio(
                law, claim, trials=1000, progress_bar=False, confidence=1 - 1e-9, seed=int(rng.integers(2**31))
            )
            yield Case(SOUND, not passed.broken, f"{law}: {passed.verdict}")


# Mechanisms of which much can be told: their noise is of the size of what it protects


def wishart(rng: np.random.Generator) -> laws.Wishart:
    d = int(rng.integers(1, 4))
    shape = float(rng.uniform(4, 60))
    return laws.Wishart(d, d - 1 + 2 * shape, float(rng.uniform(0.8, 2.0)) / np.sqrt(shape) / 2)


def gaussian(rng: np.random.Generator) -> laws.Gaussian:
    return laws.Gaussian(int(rng.integers(1, 4)), float(rng.uniform(0.4, 1.0)))


def laplace(rng: np.random.Generator) -> laws.VectorLaplace:
    return laws.VectorLaplace(int(rng.integers(1, 4)), float(rng.uniform(1.0, 3.0)), 1.0)


def vector_gaussian(rng: np.random.Generator) -> laws.VectorGaussian:
    return laws.VectorGaussian(int(rng.integers(1, 4)), float(rng.uniform(0.4, 1.0)), 1.0)


def shares(rng: np.random.Generator) -> laws.GaussianShares:
    owners = int(rng.integers(2, 5))
    colluders = int(rng.integers(0, owners - 1))
    share = float(rng.uniform(0.5, 1.0)) / np.sqrt(owners - colluders)
    return laws.GaussianShares(2, share, owners, 2.0**-20, colluders)


def broken(way: str, mechanism: Any, sound: Any, rng: np.random.Generator) -> Case:
    """Held if the audit, as it comes, breaks the mechanism under the sound one's claim."""
    adjacency = str(rng.choice(["replace", "zero_out"]))
    claim = audit.own_claim(sound, adjacency=adjacency)
    if isinstance(sound, laws.Quantile):
        claim = Bound(sound.epsilon, 0.0, adjacency)
    report = audit.likelihood_ratio(mechanism, claim, progress_bar=False, seed=int(rng.integers(2**31)))
    return Case(way, report.broken, f"{sound}, {adjacency}: {report.verdict}")


def scaled(law: Any, factor: float) -> Any:
    """The law with draws that are shorter, on a grid that is as fine."""

    def draw(self: Any, unit: float, source: Any) -> Any:
        return factor * type(self).__mro__[1].draw(self, unit / factor, source)

    return with_draw(law, draw=draw)


def with_draw(law: Any, **methods: Any) -> Any:
    """A law of the same numbers, of which these methods are others."""
    fields = {field.name: getattr(law, field.name) for field in dataclasses.fields(law)}
    return type(law.kind, (type(law),), methods)(**fields)
