"""The mixed model's density in NumPy, beside the NumPyro model that defines it."""

import jax
import numpy as np
import pytest

import mpmtl_prob as mp
from mpmtl_prob.inference import EffectsPrior, observed_effects
from mpmtl_prob.inference.public.effects_draws import STORED, start_of
from mpmtl_prob.models import effects_density
from mpmtl_prob.models.effects import Accuracy, log_likelihood, model_of
from mpmtl_prob.models.effects_density import EffectsDensity, Law, log_likelihoods
from mpmtl_prob.models.effects_release import points_of
from mpmtl_prob.sampling.compiled_density import CompiledDensity

PRIOR = EffectsPrior(spread=0.4, spread_factor=3.0, correlation=0.4, determined=0.6, errors=0.7)


@pytest.fixture(scope="module", autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def seen():
    """A release of six columns and an intercept, and the point that its model starts from."""
    rng = np.random.default_rng(0)
    X = [rng.standard_normal((40, 6)) for _ in range(20)]
    y = [x @ (np.linspace(-0.2, 0.4, 6) + 0.2 * rng.standard_normal(6)) + rng.normal(0.3) for x in X]
    names = list("abcdef")
    tasks = mp.TaskData.from_lists(X, y, features=names).with_intercept()
    release = mp.release(tasks, 1.0, reference=mp.Reference.standard(names), unsafe_seed=0)
    observed = observed_effects(release, PRIOR)
    return observed, start_of(observed, "full")


@pytest.fixture(scope="module")
def points(seen):
    """Points near the start and far from it, more than one batch of them."""
    start = EffectsDensity(*seen).start
    rng = np.random.default_rng(1)
    return start + np.repeat([0.1, 0.5, 1.0], 30)[:, None] * rng.standard_normal((90, len(start)))


@pytest.fixture(scope="module")
def of_model(seen, points):
    """Energies, gradients and sites by NumPyro and JAX."""
    observed, start = seen
    return CompiledDensity(model_of("full"), (observed, ()), start, STORED)(points)


def difference(ours, theirs):
    """The largest difference, as a share of the largest number of the same point."""
    ours, theirs = ours.reshape(len(ours), -1), theirs.reshape(len(theirs), -1)
    return (np.abs(ours - theirs).max(axis=1) / np.maximum(np.abs(theirs).max(axis=1), 1e-3)).max()


def test_energies_and_sites_are_those_of_the_model(seen, points, of_model):
    energies, gradients, sites = EffectsDensity(*seen)(points, gradient=False)
    assert gradients is None
    assert difference(energies, of_model[0]) < 1e-10
    assert sites.keys() == of_model[2].keys()
    assert {name: difference(sites[name], of_model[2][name]) < 1e-9 for name in sites} == dict.fromkeys(sites, True)


def test_gradients_are_those_of_the_model(seen, points, of_model):
    """Gradients are those that JAX derives from the model, with its damping of the axes' derivative."""
    energies, gradients, _ = EffectsDensity(*seen)(points)
    assert difference(energies, of_model[0]) < 1e-10
    assert difference(gradients, of_model[1]) < 1e-7


def test_the_comparison_notices_a_missing_derivative(seen, points, of_model, monkeypatch):
    monkeypatch.setattr(effects_density._Basis, "add_derivatives", lambda *_: None)
    assert difference(EffectsDensity(*seen)(points)[1], of_model[1]) > 1e-3


def test_likelihoods_of_draws_are_those_of_the_model(seen, points):
    """Likelihoods of given draws, by which owners leave their messages out, are the model's."""
    observed, _ = seen
    sites = EffectsDensity(*seen)(points[:3], gradient=False)[2]
    law = Law(*(sites[name] for name in ("mu", "Omega", "determined", "determined_spread", "errors")))
    theirs = [
        float(log_likelihood(observed, mu, Omega, Accuracy(*rest))) for mu, Omega, *rest in zip(*law, strict=True)
    ]
    assert np.allclose(log_likelihoods(observed, law), theirs, rtol=1e-10)


def test_a_matrix_without_a_root_spoils_no_other():
    matrices = np.stack([np.eye(2), -np.eye(2), 4 * np.eye(2)])
    roots = effects_density._cholesky(matrices)
    assert np.array_equal(roots[[0, 2]], [np.eye(2), 2 * np.eye(2)])
    assert np.isnan(roots[1]).all()


def _clipped(points, mean, root):
    """Average of clipped vectors and of their products, over points (K, d) of a standard normal distribution."""
    vectors = np.column_stack([mean + points @ root.T, np.ones(len(points))])
    vectors /= np.maximum(1.0, np.linalg.norm(vectors, axis=1) / 1.5)[:, None]
    return vectors.T @ vectors / len(vectors)


@pytest.mark.parametrize(("d", "most"), [(1, 0.1), (2, 0.25), (3, 0.45), (4, 0.7), (12, 1.0)])
def test_points_average_better_than_random_ones(d, most):
    """The error over that of as many random points with exactly the same mean and covariance, over several laws."""
    ours = points_of(d)
    np.testing.assert_allclose(ours.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(ours.T @ ours / len(ours), np.eye(d), atol=1e-12)
    rng = np.random.default_rng(d)
    many = rng.standard_normal((200_000, d))
    many = np.concatenate([many, -many])
    errors = []
    for _ in range(30):
        root = np.linalg.cholesky(np.atleast_2d(np.cov(rng.standard_normal((d, d + 2)))))
        mean = rng.standard_normal(d) * rng.choice([0.1, 0.5, 1.0])
        half = rng.standard_normal((len(ours) // 2, d))
        half = half @ np.linalg.inv(np.linalg.cholesky(half.T @ half / len(half))).T
        exact = _clipped(many, mean, root)
        both = (ours, np.concatenate([half, -half]))
        errors.append([np.sum((_clipped(points, mean, root) - exact) ** 2) for points in both])
    mine, random = np.sqrt(np.mean(errors, axis=0))
    assert mine < most * random
