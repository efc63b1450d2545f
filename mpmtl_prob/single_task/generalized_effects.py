"""Random effects of one task in a generalized linear mixed model: the posterior given its rows and priors from a release.

    targets y given o + X beta,    beta ~ N(mu_k, c Omega_k) with probability w_kc,    one of several likelihoods

The likelihood of beta is approximated by that of normal pseudo-rows sqrt(h_r) x_r with targets sqrt(h_r) z_r and variance 1.
Here h_r is the curvature of row r's log density and z_r its working response in a Newton step, both averaged over the
posterior that they give (Opper and Archambeau, 2009, Neural Computation 21, equations 2.7 and 2.8). Given pseudo-rows
everything is normal, as for Gaussian targets (:mod:`mpmtl_prob.single_task.random_effects`). Wide priors, such as that of a
task unrelated to the others, have separate pseudo-rows for a few scales each, as for separated labels the approximation
depends on the scale. Importance weights, the ratios of exact to approximate likelihood, make the draws exact.
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
_DRAWS, _AT_ONCE = 64, 2**21  # posterior draws per step, and the largest number of draws times rows
_PRIORS = 32  # largest number of priors that are used to compute pseudo-rows
_UNLIKELY = 0.01  # likelihoods with less weight are left out
_WIDE = 6.0  # largest ratio between scales of priors that share pseudo-rows
_LEAST = 1e-9  # least curvature of a row, against rounding


class PseudoRows(NamedTuple):
    """Normal pseudo-rows of variance 1, whose likelihood approximates that of a task's rows.

    Attributes:
        X: (n, d).
        y: (n,).
        constant: average difference between the rows' log likelihood and the quadratic form of the pseudo-rows.
    """

    X: FloatArray
    y: FloatArray
    constant: float

    def __repr__(self) -> str:
        return shown(self)

    def log_density(self, beta: FloatArray) -> FloatArray:
        """Return the approximate log likelihood of effects (S, d), (S,)."""
        out: FloatArray = self.constant - 0.5 * ((self.y - beta @ self.X.T) ** 2).sum(axis=1)
        return out


class GeneralizedPosterior(NamedTuple):
    """Approximate posterior of a task, in blocks with one prior and one likelihood each, and a few scales of a wide prior.

    Attributes:
        blocks: the posteriors of the blocks; the weights in each sum to 1.
        weight: weights of the blocks, (B,).
        pseudo: pseudo-rows of the blocks.
        laws: likelihoods of the blocks.
        part: index of every block's prior among those that were given, (B,).
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
        """Posterior mean of beta, (d,)."""
        return np.asarray(sum(w * block.mean for w, block in zip(self.weight, self.blocks, strict=True)))

    def sample(self, rng: np.random.Generator, num_samples: int) -> dict[str, FloatArray]:
        """Draw ``beta`` (S, d), with its ``block``, its ``part``, and the index of its ``prior`` in the part, (S,)."""
        counts = rng.multinomial(num_samples, self.weight / self.weight.sum())
        drawn = [block.sample(rng, count) for block, count in zip(self.blocks, counts, strict=True)]
        block = np.repeat(np.arange(len(counts)), counts)
        out = {name: np.concatenate([draws[name] for draws in drawn]) for name in ("beta", "prior")}
        return out | {"block": block, "part": self.part[block]}

    def log_ratio(self, rows: Predictors, drawn: Mapping[str, FloatArray]) -> FloatArray:
        """Return log importance weights, the exact less the approximate log likelihood, (S,)."""
        out = np.empty(len(drawn["beta"]))
        for number, (pseudo, law) in enumerate(zip(self.pseudo, self.laws, strict=True)):
            of_block = np.flatnonzero(drawn["block"] == number)
            for turn in in_turns(len(of_block), len(rows.y)):
                now = of_block[turn]
                beta = drawn["beta"][now]
                exact = rows.log_likelihood(law, rows.offset + beta @ rows.X.T)
                out[now] = exact - pseudo.log_density(beta)
        return out


def generalized_posterior(
    rows: Predictors, families: Families, priors: Sequence[EffectsPriors]
) -> GeneralizedPosterior:
    """Approximate the posterior of one task's effects; :meth:`GeneralizedPosterior.log_ratio` makes its draws exact.

    Args:
        rows: rows of the task, in common units; without rows, (0, d), the result is the prior of a new task.
        families: possible likelihoods of its targets.
        priors: priors of the effects.
    """
    modes = [mode(rows, law) for law in families.laws]
    likely = np.flatnonzero(law_weights(modes, families) > _UNLIKELY)
    power = tempered(rows.X.shape[1])
    blocks, pseudo, laws, part, log = [], [], [], [], []
    for number, prior in _separate(priors):
        for a in likely:
            law = families.laws[a]
            approximate = _pseudo_rows(rows, law, prior, modes[a].at, power)
            posterior = _given(approximate, prior)
            blocks.append(posterior)
            pseudo.append(approximate)
            laws.append(law)
            part.append(number)
            log.append(posterior.log_evidence + approximate.constant + families.log_prior[a])
    weight = np.exp(np.array(log) - logsumexp(log))
    return GeneralizedPosterior(tuple(blocks), weight, tuple(pseudo), tuple(laws), np.array(part))


def _separate(priors: Sequence[EffectsPriors]) -> Iterator[tuple[int, EffectsPriors]]:
    """Yield the priors with their indices, and wide ones in parts with a few scales each."""
    for number, prior in enumerate(priors):
        spread = np.log(prior.scales.max() / prior.scales.min())
        number_of_groups = min(len(prior.scales), max(1, int(np.ceil(spread / np.log(_WIDE)))))
        groups = np.array_split(np.argsort(prior.scales), number_of_groups)
        for group in groups:
            yield number, prior._replace(scales=prior.scales[group], log_scale_weight=prior.log_scale_weight[group])


def _given(pseudo: PseudoRows, prior: EffectsPriors) -> EffectsPosterior:
    """Compute the posterior given pseudo-rows. Its evidence does not include their constant."""
    return effects_posterior(pseudo.X, pseudo.y, [prior], number=0.0, residuals=KNOWN)


def _pseudo_rows(rows: Predictors, law: Family, prior: EffectsPriors, start: FloatArray, power: float) -> PseudoRows:
    """Compute pseudo-rows under one prior, raised to a power below 1, so that proposals have longer tails."""
    X, y, offset, weights = rows
    number = max(8, min(_DRAWS, _AT_ONCE // max(len(y), 1)))
    beta, few_priors = start[None], _few(prior)
    for step in range(_STEPS + 1):
        predictor = offset + beta @ X.T
        bend = np.maximum((weights * law.curvature(y, predictor)).mean(axis=0), _LEAST)
        slope = (weights * law.slope(y, predictor)).mean(axis=0)
        target = (predictor - offset).mean(axis=0) + slope / bend
        root = np.sqrt(bend if step < _STEPS else power * bend)
        pseudo = PseudoRows(X * root[:, None], target * root, 0.0)
        if step < _STEPS:
            # The same random numbers at every step, so that the iteration converges.
            beta = _given(pseudo, few_priors).sample(np.random.default_rng(0), number)["beta"]
    gap = rows.log_likelihood(law, offset + beta @ X.T) - pseudo.log_density(beta)
    return pseudo._replace(constant=float(gap.mean()))


def _few(prior: EffectsPriors) -> EffectsPriors:
    """Return a subset of many priors, from those with the largest weights."""
    most = np.argsort(-prior.log_weight, kind="stable")
    weighty = most[: max(1, int(np.sum(np.exp(prior.log_weight) > 0)))]
    chosen = weighty[np.linspace(0, len(weighty) - 1, min(_PRIORS, len(weighty))).astype(int)]
    return prior._replace(
        log_weight=prior.log_weight[chosen], mean=prior.mean[chosen], covariance=prior.covariance[chosen]
    )
