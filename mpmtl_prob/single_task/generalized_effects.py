"""One task of a mixed model whose targets are no numbers: its effects given its own rows and what is known of tasks' effects.

    targets y given o + X beta,    beta ~ N(mu_k, c Omega_k) with probability w_kc,    one of several laws of targets

What rows say of beta is nearly that of normal pseudo-rows sqrt(h_r) x_r with targets sqrt(h_r) z_r and variance 1, h_r the
curvature of row r's log density and z_r what Newton's step would take for its target, both averaged over the posterior that
they give (Opper and Archambeau, 2009, Neural Computation 21, equations 2.7 and 2.8). Given these everything is normal, as of
numbers (:mod:`mpmtl_prob.single_task.random_effects`). Priors as wide as those of a task that has nothing to do with the
others have pseudo-rows for a few scales at a time: where labels are separated, what rows say depends on the scale. Draws
are made exact by the ratio of the laws of the rows, as all else of the ratio cancels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.hidden_arrays import shown
from mpmtl_prob.single_task.conjugate import in_turns
from mpmtl_prob.single_task.families import Families, Family
from mpmtl_prob.single_task.generalized import Predictors, law_weights, mode
from mpmtl_prob.single_task.random_effects import (
    KNOWN,
    EffectsPosterior,
    EffectsPriors,
    effects_posterior,
    tempered,
)

_STEPS = 4
_DRAWS, _AT_ONCE = 64, 2**21  # of the posterior at every step, fewer of many rows
_PRIORS = 32  # that are looked at for pseudo-rows, of many
_UNLIKELY = 0.01  # weight of a law of targets that is left out
_WIDE = 6.0  # between the largest and the smallest scale of priors that have pseudo-rows together
_LEAST = 1e-9  # curvature of a row, of which rounding leaves no less


class PseudoRows(NamedTuple):
    """Normal rows of variance 1 that say of effects nearly what a task's rows do.

    Attributes:
        X: (n, d).
        y: (n,).
        constant: of their log density, that of the rows less this quadratic form, on average.
    """

    X: FloatArray
    y: FloatArray
    constant: float

    def __repr__(self) -> str:
        return shown(self)

    def log_density(self, beta: FloatArray) -> FloatArray:
        """Of effects (S, d), (S,)."""
        out: FloatArray = self.constant - 0.5 * ((self.y - beta @ self.X.T) ** 2).sum(axis=1)
        return out


class GeneralizedPosterior(NamedTuple):
    """A task's approximate posterior in blocks, each for one prior, one law of targets and, of wide priors, a few scales.

    Attributes:
        blocks: the posteriors of blocks, whose parts' weights sum to 1 in each.
        weight: of every block, (B,).
        pseudo: rows of every block.
        laws: of every block.
        part: which of the priors that were given a block is of, (B,).
    """

    blocks: tuple[EffectsPosterior, ...]
    weight: FloatArray
    pseudo: tuple[PseudoRows, ...]
    laws: tuple[Family, ...]
    part: NDArray[np.int64]

    def __repr__(self) -> str:
        return shown(self)

    @property
    def mean(self) -> FloatArray:
        """Of beta, (d,)."""
        return np.asarray(sum(w * block.mean for w, block in zip(self.weight, self.blocks, strict=True)))

    def sample(self, rng: np.random.Generator, num_samples: int) -> dict[str, FloatArray]:
        """Draws of ``beta`` (S, d), the ``block``, the ``part`` and which of its priors it was, ``prior``, (S,)."""
        counts = rng.multinomial(num_samples, self.weight / self.weight.sum())
        drawn = [block.sample(rng, count) for block, count in zip(self.blocks, counts, strict=True)]
        block = np.repeat(np.arange(len(counts)), counts)
        out = {name: np.concatenate([each[name] for each in drawn]) for name in ("beta", "prior")}
        return out | {"block": block, "part": self.part[block]}

    def log_ratio(self, rows: Predictors, drawn: Mapping[str, FloatArray]) -> FloatArray:
        """Log ratio of the law of the rows to what draws were proposed from, (S,)."""
        out = np.empty(len(drawn["beta"]))
        for number, (pseudo, law) in enumerate(zip(self.pseudo, self.laws, strict=True)):
            own = np.flatnonzero(drawn["block"] == number)
            for turn in in_turns(len(own), len(rows.y)):
                now = own[turn]
                beta = drawn["beta"][now]
                exact = rows.log_likelihood(law, rows.offset + beta @ rows.X.T)
                out[now] = exact - pseudo.log_density(beta)
        return out


def generalized_posterior(
    rows: Predictors, families: Families, priors: Sequence[EffectsPriors]
) -> GeneralizedPosterior:
    """One task's effects in common units, approximately; :meth:`GeneralizedPosterior.log_ratio` makes its draws exact.

    Args:
        rows: of the task, in common units; none, (0, d), give the law of a new task.
        families: laws of its targets.
        priors: what the effects may be like.
    """
    modes = [mode(rows, law) for law in families.laws]
    likely = np.flatnonzero(law_weights(modes, families) > _UNLIKELY)
    power = tempered(rows.X.shape[1])
    blocks, pseudo, laws, part, log = [], [], [], [], []
    for number, prior in _separate(priors):
        for a in likely:
            law = families.laws[a]
            approximate = _pseudo_rows(rows, law, prior, modes[a].at, power)
            own = _given(approximate, prior)
            blocks.append(own)
            pseudo.append(approximate)
            laws.append(law)
            part.append(number)
            log.append(own.log_evidence + approximate.constant + families.log_prior[a])
    weight = np.exp(np.array(log) - logsumexp(log))
    return GeneralizedPosterior(tuple(blocks), weight, tuple(pseudo), tuple(laws), np.array(part))


def _separate(priors: Sequence[EffectsPriors]) -> Iterator[tuple[int, EffectsPriors]]:
    """Return the priors and whose they are, of wide ones a few scales at a time."""
    for number, prior in enumerate(priors):
        spread = np.log(prior.scales.max() / prior.scales.min())
        number_of_groups = min(len(prior.scales), max(1, int(np.ceil(spread / np.log(_WIDE)))))
        groups = np.array_split(np.argsort(prior.scales), number_of_groups)
        for own in groups:
            yield number, prior._replace(scales=prior.scales[own], log_scale_weight=prior.log_scale_weight[own])


def _given(pseudo: PseudoRows, prior: EffectsPriors) -> EffectsPosterior:
    """The posterior given pseudo-rows, whose evidence lacks their constant."""
    return effects_posterior(pseudo.X, pseudo.y, [prior], number=0.0, residuals=KNOWN)


def _pseudo_rows(rows: Predictors, law: Family, prior: EffectsPriors, start: FloatArray, power: float) -> PseudoRows:
    """Return the pseudo-rows under one prior to a power, so that what draws are proposed from has the longer tails."""
    X, y, offset, weights = rows
    number = max(8, min(_DRAWS, _AT_ONCE // max(len(y), 1)))
    beta, few = start[None], _few(prior)
    for step in range(_STEPS + 1):
        predictor = offset + beta @ X.T
        bend = np.maximum((weights * law.curvature(y, predictor)).mean(axis=0), _LEAST)
        slope = (weights * law.slope(y, predictor)).mean(axis=0)
        target = (predictor - offset).mean(axis=0) + slope / bend
        root = np.sqrt(bend if step < _STEPS else power * bend)
        pseudo = PseudoRows(X * root[:, None], target * root, 0.0)
        if step < _STEPS:
            # draws that are the same at every step, so that the steps come to rest
            beta = _given(pseudo, few).sample(np.random.default_rng(0), number)["beta"]
    gap = rows.log_likelihood(law, offset + beta @ X.T) - pseudo.log_density(beta)
    return pseudo._replace(constant=float(gap.mean()))


def _few(prior: EffectsPriors) -> EffectsPriors:
    """Return some of many priors, those that weigh most."""
    most = np.argsort(-prior.log_weight, kind="stable")
    weighty = most[: max(1, int(np.sum(np.exp(prior.log_weight) > 0)))]
    kept = weighty[np.linspace(0, len(weighty) - 1, min(_PRIORS, len(weighty))).astype(int)]
    return prior._replace(log_weight=prior.log_weight[kept], mean=prior.mean[kept], covariance=prior.covariance[kept])
