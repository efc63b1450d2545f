"""Games that audits play: releases of two neighbouring data sets, and an adversary's scores of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tqdm import tqdm

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import in_range, positive, whole
from mpmtl_prob._util.protocols import derives
from mpmtl_prob.privacy import lattice
from mpmtl_prob.privacy.audit import views
from mpmtl_prob.privacy.audit.found import Audit
from mpmtl_prob.privacy.audit.thresholds import SPLIT, Threshold
from mpmtl_prob.privacy.audit.views import View
from mpmtl_prob.privacy.guarantee import Bound
from mpmtl_prob.privacy.mechanisms import GaussianShares, MatrixMechanism, Mechanism, Quantile, VectorMechanism, exact
from mpmtl_prob.privacy.units import Adjacency

Sampler = Callable[[np.random.Generator, FloatArray], FloatArray]

#: Default number of releases of either kind with exact noise. They take seconds for a few features, half a minute for 27.
TRIALS = 5000
#: Default number of releases of either kind with noise in doubles, which are fast.
IN_DOUBLES = 20_000
_CHUNK = 1000
_ROUNDING = 1e-9  # relative size of negative eigenvalues that may come from rounding errors


def published(mechanism: MatrixMechanism | VectorMechanism, unit: float) -> Sampler:
    """Return a sampler that draws as releases do: real noise, rounded to multiples of ``unit``."""

    def sample(rng: np.random.Generator, A: FloatArray) -> FloatArray:
        seeds = rng.integers(2**62, size=len(A)).tolist()
        return A + np.stack([mechanism.draw(unit, exact.seeded(seed)) for seed in seeds])

    return sample


class Game:
    """Game between a mechanism and an adversary, who scores many releases of two neighbouring data sets."""

    #: Default number of releases of either kind.
    usual = TRIALS

    def __init__(
        self,
        mechanism: Mechanism,
        claim: Bound,
        *,
        view: View | None = None,
        trials: int | None = None,
        confidence: float = 0.99,
        seed: int = 0,
        progress_bar: bool = True,
        threshold: Threshold = SPLIT,
    ) -> None:
        if not isinstance(claim, Bound):
            raise ValueError(f"claim: expected a Bound, got {type(claim).__name__}")
        self.law, self.claim, self.view = mechanism, claim, views.billboard() if view is None else view
        self.trials = whole("trials", self.usual if trials is None else trials, 100)
        self.confidence = in_range("confidence", confidence, 0, 1)
        self.seed, self.progress_bar = whole("seed", seed, 0), progress_bar
        if not isinstance(threshold, Threshold):
            raise ValueError(
                f"threshold: expected Split(), Explicit(...) or Bonferroni(...), got {type(threshold).__name__}"
            )
        self.threshold = threshold

    def loss(self, rng: np.random.Generator, n: int, there: bool) -> FloatArray:
        """Return the privacy losses of n releases: log of the density without the task over the density with it."""
        raise NotImplementedError

    def play(
        self, test: str, score: Callable[[np.random.Generator, int, bool], FloatArray], *, stream: int = 0
    ) -> Audit:
        """Score ``trials`` releases without the task (or with another in its place), and as many with it."""
        scores: dict[bool, list[FloatArray]] = {False: [], True: []}
        with tqdm(total=2 * self.trials, desc=test, unit="release", disable=not self.progress_bar, leave=False) as bar:
            for there in (False, True):
                rng = np.random.default_rng([self.seed, 2, stream, int(there)])
                for start in range(0, self.trials, _CHUNK):
                    n = min(_CHUNK, self.trials - start)
                    scores[there].append(score(rng, n, there))
                    bar.update(n)
        absent, present = (np.concatenate(scores[there]) for there in (False, True))
        return Audit(test, self.view, self.claim, absent, present, self.confidence, (self.law,), self.threshold)


class SecondMoments(Game):
    """Game of releases of W W' with noise, where the claim's adjacency decides what replaces the task's vector.

    A zeroed task has the zero vector instead. A replaced task has a vector of the same length at a right angle to its own,
    which is the worst pair, or nearly. In one dimension all vectors of one length have the same second moment, and so the
    replacement is the zero vector.
    """

    law: MatrixMechanism

    def __init__(
        self,
        mechanism: MatrixMechanism,
        claim: Bound,
        *,
        num_tasks: int | None = None,
        sampler: Sampler | None = None,
        exact: bool = True,
        **options: object,
    ) -> None:
        self.usual = _usual(mechanism) if exact and sampler is None else IN_DOUBLES
        super().__init__(mechanism, claim, **options)  # type: ignore[arg-type]
        self.d = mechanism.num_features
        self.num_tasks = whole("num_tasks", 3 * self.d if num_tasks is None else num_tasks, 2)
        self.h = lattice.step(mechanism.clip, self.d, self.num_tasks, [mechanism]) if exact else None
        drawn = mechanism.sample if self.h is None else published(mechanism, unit(mechanism, self.num_tasks))
        self.sampler: Sampler = drawn if sampler is None else sampler
        with_task = self.directions(np.random.default_rng([self.seed, 1]), 1)[0]
        self.w = with_task[:, 0]
        others = with_task[:, 1:]
        self.u = self._replacement_vector()
        self.messages = {True: with_task, False: np.column_stack([self.u, others])}
        self.moments = {there: W @ W.T for there, W in self.messages.items()}
        self.c = views.SHRINKAGE * np.sqrt(positive("noise", np.trace(self._noise_size()) / self.d))
        # vectors of the owners who form the adversary
        self.owned = None if self.view.owners is None else others[:, self.view.columns(self.num_tasks - 1)]

    def directions(self, rng: np.random.Generator, n: int) -> FloatArray:
        """Draw n sets of the messages of all tasks, each message of length K, (n, d, m)."""
        W = rng.standard_normal((n, self.d, self.num_tasks))
        W = self.law.clip * W / np.linalg.norm(W, axis=1, keepdims=True)
        return W if self.h is None else np.stack([lattice.sent(messages, self.law.clip, self.h) for messages in W])

    def loss(self, rng: np.random.Generator, n: int, there: bool) -> FloatArray:
        sigma = self.sigma(self.releases(rng, n, there))
        absent, present = (self.law.log_prob(sigma, self.moments[which]) for which in (False, True))
        neither = np.isneginf(absent) & np.isneginf(present)
        with np.errstate(invalid="ignore"):
            return np.where(neither, 0.0, absent - present)

    def impossible(self, rng: np.random.Generator, n: int, there: bool) -> FloatArray:
        """Score n releases: 1 where the task cannot have been there, else 0."""
        sigma, A = self.releases(rng, n, there), self.moments[True]
        if self.knows_little:
            assert self.owned is not None
            seen = views.seen_through(views.received(sigma, self.owned, self.c), self.owned)
            gap = seen - views.shrunk_on_span(A, self.owned, self.c)
            size = np.abs(gap).max(axis=(1, 2))
            rounding = 1e-13 * np.abs(seen).max(axis=(1, 2)) + _ROUNDING * size
        else:
            sigma = self.sigma(sigma)
            gap, rounding = sigma - A, _ROUNDING * np.trace(sigma, axis1=1, axis2=2)
        return (np.linalg.eigvalsh(gap)[:, 0] < -rounding).astype(np.float64)

    def leaning(self, rng: np.random.Generator, n: int, there: bool) -> FloatArray:
        """Score n releases by u'(Sigma - E Sigma)u - w'(Sigma - E Sigma)w, with other tasks that are new in every game.

        A view that knows the release only on the owners' span uses that part of it.
        """
        others = self.directions(rng, n)[:, :, 1:]
        v = self.w if there else self.u
        sigma = self.sampler(rng, others @ np.swapaxes(others, 1, 2) + np.outer(v, v))
        towards = np.outer(self.u, self.u) - np.outer(self.w, self.w)
        if self.knows_little:
            assert self.owned is not None
            seen = views.seen_through(views.received(sigma, self.owned, self.c), self.owned)
            inverse = np.linalg.pinv(self.owned)
            return np.einsum("ij,nij->n", inverse @ towards @ inverse.T, seen)
        expected = self.law.mean + (self.num_tasks - 1) / self.d * self.law.clip**2 * np.eye(self.d)
        return np.einsum("ij,nij->n", towards, self.sigma(sigma) - expected)

    def releases(self, rng: np.random.Generator, n: int, there: bool) -> FloatArray:
        """Draw n releases of one of the two data sets, (n, d, d)."""
        return self.sampler(rng, np.broadcast_to(self.moments[there], (n, self.d, self.d)))

    def sigma(self, releases: FloatArray) -> FloatArray:
        """Return Sigma as the adversary knows it: the release itself, or the coalition's reconstruction."""
        if self.owned is None:
            return releases
        return views.recovered(views.received(releases, self.owned, self.c), self.owned, self.c)

    @property
    def knows_little(self) -> bool:
        """True if the adversary's vectors do not span the space, so that they do not determine Sigma."""
        return self.owned is not None and self.owned.shape[1] < self.d

    def _replacement_vector(self) -> FloatArray:
        if self.claim.adjacency == Adjacency.ZERO_OUT or self.d == 1:
            return np.zeros(self.d)
        v = np.random.default_rng([self.seed, 3]).standard_normal(self.d)
        v -= (v @ self.w) / (self.w @ self.w) * self.w
        u = self.law.clip * v / np.linalg.norm(v)
        return u if self.h is None else lattice.sent(u[:, None], self.law.clip, self.h)[:, 0]

    def _noise_size(self) -> FloatArray:
        return self.law.mean if np.any(self.law.mean) else self.law.operator_norm * np.eye(self.d)


class Vectors(Game):
    """Game of noise on a vector that moves by the law's sensitivity, or by half of it if the vector is zeroed."""

    law: VectorMechanism

    def __init__(
        self,
        mechanism: VectorMechanism,
        claim: Bound,
        *,
        exact: bool = True,
        num_tasks: object = None,
        **options: object,
    ) -> None:
        self.usual = _usual(mechanism) if exact else IN_DOUBLES
        super().__init__(mechanism, claim, **options)  # type: ignore[arg-type]
        self.moved = np.zeros(mechanism.num_features)
        self.moved[0] = mechanism.sensitivity * (1.0 if claim.adjacency == Adjacency.REPLACE else 0.5)
        self.sampler = published(mechanism, unit(mechanism, 1)) if exact else mechanism.sample

    def loss(self, rng: np.random.Generator, n: int, there: bool) -> FloatArray:
        released = self.sampler(rng, np.broadcast_to(there * self.moved, (n, len(self.moved))))
        return self.law.log_prob(released, np.zeros_like(self.moved)) - self.law.log_prob(released, self.moved)


class Quantiles(Game):
    """Game of a private median of two norms on a grid of five points, which reaches nearly all of the stated eps.

    The other task's norm lies just below the last point. If this task's norm is above all points, the last point is the
    median, and the other four points are off by one. If it is below all points, the other four are the median, and the last
    point is off by one. So the weight of the last point itself changes by e^(eps/2), and the sum of all weights by nearly as
    much: four fifths of eps together, where eps is small.
    """

    law: Quantile

    def __init__(
        self, mechanism: Quantile, claim: Bound, *, exact: bool = True, num_tasks: object = None, **options: object
    ) -> None:
        self.usual = IN_DOUBLES  # draws from few points are fast too
        super().__init__(mechanism, claim, **options)  # type: ignore[arg-type]

    def loss(self, rng: np.random.Generator, n: int, there: bool) -> FloatArray:
        grid = np.array([1.0, 2.0, 3.0, 4.0, 6.0])
        norms = {which: np.array([7.0 if which else 0.0, 5.0]) for which in (False, True)}
        seeds = rng.integers(2**62, size=n).tolist()
        quantiles = np.array([self.law.draw(norms[there], grid, 0.5, exact.seeded(seed)) for seed in seeds])
        utilities = {which: -np.abs(np.searchsorted(np.sort(norms[which]), grid, side="right") - 1) for which in norms}
        logs = {which: self.law.epsilon / 2 * utility for which, utility in utilities.items()}
        loss = logs[False] - logs[True] - (np.logaddexp.reduce(logs[False]) - np.logaddexp.reduce(logs[True]))
        return loss[np.searchsorted(grid, quantiles)]


def unit(mechanism: MatrixMechanism | VectorMechanism, num_tasks: int) -> float:
    """Return the unit of published draws, which are whole multiples of it: that of releases, or the step of shares."""
    if isinstance(mechanism, GaussianShares):
        return mechanism.step
    if isinstance(mechanism, MatrixMechanism):
        return lattice.step(mechanism.clip, mechanism.num_features, num_tasks, [mechanism]) ** 2
    return lattice.step(mechanism.sensitivity, mechanism.num_features, 1, [])


def _usual(mechanism: Mechanism) -> int:
    """Return the default number of releases of either kind.

    Noise in shares needs a draw for every number of every owner, each of a tenth of a millisecond; so releases are fewer.
    """
    if not isinstance(mechanism, GaussianShares):
        return TRIALS
    numbers = mechanism.owners * mechanism.num_features * (mechanism.num_features + 1) // 2
    return max(500, min(TRIALS, 60_000 // numbers))


def game(mechanism: Mechanism, claim: Bound, **options: object) -> Game:
    """Return the game for a law. Noise in shares is played without colluders' shares, which the adversary knows."""
    if isinstance(mechanism, GaussianShares):
        return SecondMoments(mechanism.honest, claim, **options)  # type: ignore[arg-type]
    if isinstance(mechanism, MatrixMechanism):
        return SecondMoments(mechanism, claim, **options)  # type: ignore[arg-type]
    if isinstance(mechanism, VectorMechanism):
        return Vectors(mechanism, claim, **options)  # type: ignore[arg-type]
    if isinstance(mechanism, Quantile):
        return Quantiles(mechanism, claim, **options)  # type: ignore[arg-type]
    derives("mechanism", mechanism, Mechanism)
    raise ValueError(f"mechanism: expected noise on second moments or vectors, or a quantile, got {mechanism.kind}")
