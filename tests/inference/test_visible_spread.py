"""A spread along few strong directions: what a release shows of it, and that owners make use of it."""

from types import SimpleNamespace

import numpy as np
import pytest

import mpmtl_prob as mp
from mpmtl_prob import Reference
from mpmtl_prob.inference import observed_effects
from mpmtl_prob.inference.owner.effects import _Public
from mpmtl_prob.inference.owner.visible_spread import visible_shape
from mpmtl_prob.privacy.mechanisms import Gaussian
from mpmtl_prob.releases.effects import EffectsLayout

D, M = 6, 300
LAYOUT = EffectsLayout(tuple("abcdef"), Reference.standard(list("abcdef")))
STRONG = np.linalg.qr(np.random.default_rng(0).standard_normal((D, 2)))[0]
P = np.array([0.5, 0.6, 0.7, 0.8, 0.9, 0.6])


def messages(rng, Omega, m=M):
    """Messages (D + 2, m) of tasks with these effects, none of which has a mean."""
    v = LAYOUT.effect_variance
    beta = rng.standard_normal((m, D)) @ np.linalg.cholesky(Omega).T
    eta = P * beta + np.sqrt(v * P * (1 - P)) * rng.standard_normal((m, D))
    u = np.hstack([LAYOUT.effect_size * eta, np.full((m, 1), LAYOUT.determined_size * P.mean()), np.ones((m, 1))])
    return (u / np.linalg.norm(u, axis=1, keepdims=True)).T


def release_of(W, sd):
    E = np.random.default_rng(9).standard_normal((len(W),) * 2)
    law = Gaussian(len(W), sd)
    return mp.Release(
        (W @ W.T + sd * (E + E.T) / np.sqrt(2))[None], (law,), W.shape[1], LAYOUT.coordinates,
        mp.privacy.Guarantee(None, None, "a test"), "effects", "none", "", effects=LAYOUT,
    )  # fmt: skip


TWO_STRONG = 0.15 * STRONG @ STRONG.T + 0.003 * np.eye(D)


def overlap(shape):
    """Compute how much of the two strong directions lies among the shape's first two axes."""
    return float(((STRONG.T @ np.linalg.eigh(shape)[1][:, -2:]) ** 2).sum() / 2)


def test_strong_directions_are_seen_through_the_noise():
    seen = observed_effects(release_of(messages(np.random.default_rng(1), TWO_STRONG), 1.0))
    visible = visible_shape(seen, P)
    assert overlap(visible.shape) > 0.9
    assert np.isclose(np.trace(visible.shape), 1)
    assert np.linalg.eigvalsh(visible.shape)[0] > 0
    assert np.isclose(visible.share, 0.5)


def test_of_noise_alone_little_is_believed():
    shares = []
    for seed in range(20):
        E = np.random.default_rng(seed).standard_normal((D + 2, D + 2))
        nothing = release_of(messages(np.random.default_rng(seed), 1e-9 * np.eye(D)), 1.0)
        sigma = nothing.sigma[0] + 20.0 * (E + E.T) / np.sqrt(2)
        visible = visible_shape(observed_effects(nothing)._replace(sigma=sigma, noise_variance=401.0), P)
        shares.append(0.0 if visible is None else visible.share)
    assert np.mean(shares) < 0.15


def test_an_own_message_is_left_out():
    W = messages(np.random.default_rng(2), TWO_STRONG, m=30)
    whole, rest = (observed_effects(release_of(each, 0.3)) for each in (W, W[:, 1:]))
    without, without_any = visible_shape(whole, P, W[:, 0]), visible_shape(rest, P)
    assert np.allclose(without.shape, without_any.shape)
    assert np.isclose(without.share, without_any.share)
    assert not np.allclose(visible_shape(whole, P).shape, without.shape)


def test_one_or_two_effects_have_no_few_among_many():
    seen = observed_effects(release_of(messages(np.random.default_rng(1), TWO_STRONG), 1.0))
    assert visible_shape(seen, P[:2]) is None


@pytest.mark.parametrize("left_out", [False, True])
def test_every_second_draw_of_an_owner_has_the_visible_shape(left_out):
    """With the weight that it has, whatever the weights of the draws; the size of the spread is that of the draw."""
    W = messages(np.random.default_rng(3), TWO_STRONG)
    release, rng = release_of(W, 1.0), np.random.default_rng(4)
    draws = {
        "mu": 0.1 * rng.standard_normal((40, D)),
        "Omega": np.eye(D) * rng.uniform(0.01, 0.1, (40, 1, 1)),
        "determined": np.broadcast_to(np.log(P / (1 - P)), (40, D)),
    }
    shared = SimpleNamespace(draws=draws.__getitem__, release=release, layout=LAYOUT, prior=None)
    public, own = _Public(shared, 40), W[:, 0] if left_out else None
    log_weight = rng.standard_normal(40)
    known, _ = public.priors(log_weight, public.mu, own)
    visible = visible_shape(observed_effects(release), P, own)
    assert np.allclose(known.covariance[::2], draws["Omega"][::2])
    size = np.trace(draws["Omega"][1::2], axis1=1, axis2=2)
    assert np.allclose(known.covariance[1::2], visible.shape * size[:, None, None])
    weight = np.exp(known.log_weight)
    assert np.isclose(weight[1::2].sum() / weight.sum(), visible.share)
    assert np.allclose(weight[1::2] / weight[1::2].sum(), np.exp(log_weight[1::2]) / np.exp(log_weight[1::2]).sum())
