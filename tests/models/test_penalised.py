"""The Bayesian forms of the penalised regressions against the deterministic problems and their own definition."""

from functools import partial

import jax
import numpy as np
import numpyro
import pytest
import scipy.stats as st
from numpy.testing import assert_allclose
from numpyro.infer.util import log_density

import mpmtl_prob as mp
from mpmtl_prob import models
from mpmtl_prob.convex import penalties
from mpmtl_prob.models import penalised
from mpmtl_prob.privacy import Gaussian

PENALTIES = {models.low_rank: penalties.TraceNorm(), models.group_sparse: penalties.GroupLasso()}


@pytest.fixture(scope="module")
def tasks():
    rng = np.random.default_rng(0)
    W = rng.standard_normal((4, 2)) @ rng.standard_normal((2, 12))  # of a size whose solver other tests compile
    X = [rng.standard_normal((n, 4)) for n in (4, 6, 9, 5, 7, *[8] * 7)]
    y = [x @ w + 0.5 * rng.standard_normal(len(x)) for x, w in zip(X, W.T, strict=True)]
    return mp.TaskData.from_lists(X, y)


@partial(jax.jit, static_argnums=0)
def log_joint(model, data, sites):
    return log_density(model, (data,), {}, sites)[0]


def density(model, data, **sites):
    return float(log_joint(model, data, {name: np.asarray(value) for name, value in sites.items()}))


@jax.jit
def with_slope(W, data):
    return jax.value_and_grad(lambda V: log_density(models.low_rank, (data,), {}, {"W": V})[0])(W)


@pytest.mark.parametrize("model", PENALTIES)
def test_mode_is_the_deterministic_optimum(model, tasks):
    rate, sigma = 2.0, 0.7
    data = penalised.observe(model, tasks, rate=rate, sigma=sigma, precondition=False)
    optimum = mp.estimators.MultiTask(PENALTIES[model], rate * sigma, tolerance=1e-10).fit(tasks).W
    rng = np.random.default_rng(1)
    best = density(model, data, W=optimum)
    for step in (1e-3, 1e-1, 1.0):
        assert density(model, data, W=optimum + step * rng.standard_normal(optimum.shape)) < best
    # nothing else is in the density: differences are those of the objective, in units of sigma^2
    objective = lambda W: (
        0.5 * np.sum((tasks.y - (tasks.X @ W.T[..., None])[..., 0]) ** 2)
        + rate * sigma * float(PENALTIES[model].value(W))
    )
    other = rng.standard_normal(optimum.shape)
    expected = -(objective(optimum) - objective(other)) / sigma**2
    assert_allclose(best - density(model, data, W=other), expected, rtol=1e-9)


def test_low_rank_sparse_has_the_density_of_two_penalties(tasks):
    """The low-rank-plus-sparse model has the density of the sum of two penalties."""
    data = penalised.observe(models.low_rank_sparse, tasks, rate=2.0, rate_own=3.0, sigma=0.5, precondition=False)
    rng = np.random.default_rng(2)
    draws = rng.standard_normal((2, 2, 4, 12))

    def objective(P, Q):
        fit = 0.5 * np.sum((tasks.y - (tasks.X @ (P + Q).T[..., None])[..., 0]) ** 2)
        return fit + 0.5 * (2 * np.linalg.svd(P, compute_uv=False).sum() + 3 * np.abs(Q).sum())

    values = [density(models.low_rank_sparse, data, P=P, Q=Q) for P, Q in draws]
    assert_allclose(values[0] - values[1], -(objective(*draws[0]) - objective(*draws[1])) / 0.25, rtol=1e-9)


def test_a_rate_of_exceptions_is_refused_by_models_without_them(tasks):
    with pytest.raises(ValueError, match=r"rate_own: expected None, as low_rank has one penalty only, got 3\.0"):
        penalised.observe(models.low_rank, tasks, rate=2.0, rate_own=3.0)


@pytest.mark.parametrize("model", penalised.PRIORS)
def test_joint_density_is_prior_times_likelihood_normalised(model, tasks):
    names = ("W",) if len(penalised.PRIORS[model]) == 1 else ("P", "Q")
    rates = {"rate": (1.5, 0.6)} | ({"rate_own": (2.5, 0.4)} if len(names) == 2 else {})
    data = penalised.observe(model, tasks, **rates, sigma=(0.8, 0.3), precondition=False)
    rng = np.random.default_rng(3)
    parts = {name: rng.standard_normal((4, 12)) for name in names}
    scales = {"sigma": 0.9, "rate": 1.1} | ({"rate_own": 2.0} if len(names) == 2 else {})
    expected = st.lognorm(0.3, scale=0.8).logpdf(0.9) + st.lognorm(0.6, scale=1.5).logpdf(1.1)
    expected += st.lognorm(0.4, scale=2.5).logpdf(2.0) if len(names) == 2 else 0.0
    for prior, rate, part in zip(penalised.PRIORS[model], (1.1, 2.0), parts.values(), strict=False):
        expected += float(prior(rate / 0.9, (4, 12)).log_prob(part))
    mean = (tasks.X @ sum(parts.values()).T[..., None])[..., 0]
    expected += st.norm(mean, 0.9).logpdf(tasks.y)[tasks.mask].sum()
    assert_allclose(density(model, data, **parts, **scales), expected, rtol=1e-10)


@partial(jax.jit, static_argnums=0)
def with_matrices(model, data, sites):
    """The joint density, and what is recorded under the names of matrices."""
    value, trace = log_density(model, (data,), {}, sites)
    return value, {name: site["value"] for name, site in trace.items() if name in ("W", "P", "Q")}


@jax.jit
def there_and_back(local, rate, sigma, z, W):
    """The Jacobian of z to W, what it is said to be, and the z of W."""
    transform = local.at(rate, sigma)
    return jax.jacobian(transform)(z).reshape(z.size, z.size), transform.log_abs_det_jacobian(z, None), transform.inv(W)


@pytest.mark.parametrize("model", penalised.PRIORS)
def test_local_coordinates_change_the_variables_and_nothing_else(model, tasks):
    both = [penalised.observe(model, tasks, precondition=p) for p in (True, False)]
    names = ("W",) if len(penalised.PRIORS[model]) == 1 else ("P", "Q")
    rng = np.random.default_rng(4)
    scales = {"sigma": 0.6, "rate": 1.7} | ({"rate_own": 2.2} if len(names) == 2 else {})
    local = {f"{name}_local": rng.standard_normal((4, 12)) for name in names}
    value, matrices = with_matrices(model, both[0], local | scales)
    jacobian = 0.0
    for name, part in zip(names, both[0].parts, strict=True):
        z, rate = local[f"{name}_local"], scales["rate" if name != "Q" else "rate_own"]
        flat, log_jacobian, back = there_and_back(part.local, rate, 0.6, z, matrices[name])
        jacobian += np.linalg.slogdet(flat)[1]
        assert_allclose(log_jacobian, np.linalg.slogdet(flat)[1], rtol=1e-9)
        assert_allclose(back, z, rtol=1e-8, atol=1e-10)
    plain = density(model, both[1], **scales, **{name: matrices[name] for name in names})
    assert_allclose(value, plain + jacobian, rtol=1e-10)


def test_local_coordinates_make_a_gaussian_prior_standard_normal(tasks):
    # with the quadratic in place of the penalty, z given y is N(0, I) at every rate and sigma
    part = penalised.observe(models.low_rank, tasks).parts[0]
    gram, rate, sigma = tasks.gram, 1.3, 0.4
    scale, centre = jax.jit(lambda local: ((at := local.at(rate, sigma)).scale, at(np.zeros((4, 12)))))(part.local)
    C = np.asarray(part.local.inverse[0]).T @ np.asarray(part.local.inverse[0])  # B^{-T} B^{-1}
    for i in range(tasks.num_tasks):
        precision = gram.xx[i] / sigma**2 + (rate / sigma) ** 2 * C
        L = np.asarray(part.local.basis[i]) * np.asarray(scale)[i]
        assert_allclose(L.T @ precision @ L, np.eye(4), atol=1e-9)
        mean = np.linalg.solve(precision, gram.xy[i] / sigma**2)
        assert_allclose(np.asarray(centre)[:, i], mean, rtol=1e-8)


@pytest.mark.parametrize("noise", ["Wishart", "Gaussian"])
@pytest.mark.parametrize("message", ["direction", "clip"])
def test_release_is_an_observed_site(message, noise, tasks):
    W = np.random.default_rng(5).standard_normal((4, 12))
    clip = {"clip": 1.2} if message == "clip" else {}
    if noise == "Gaussian":
        clip["mechanism"] = Gaussian(4, 0.5, clip.get("clip", 1.0))
    release = mp.release(W, epsilon=5.0, message=message, unsafe_seed=0, adjacency="zero_out", **clip)
    data = penalised.observe(models.low_rank, tasks, rate=1.0, sigma=1.0, precondition=False, with_release=release)
    alone = data._replace(release=None)
    law = release.mechanisms[0]
    for V in (W, 0.3 * W, 3 * W):
        norm = np.linalg.norm(V, axis=0)
        bounded = V / norm if message == "direction" else V / np.maximum(1, norm / 1.2)
        with np.errstate(divide="ignore"):
            expected = law.log_prob(release.sigma[0], bounded @ bounded.T)
        value, gradient = with_slope(V, data)
        if np.isfinite(expected):
            assert_allclose(value - density(models.low_rank, alone, W=V), expected, rtol=1e-8)
        assert np.isfinite(gradient).all()


def test_tasks_may_be_handed_to_a_model_as_they_are(tasks):
    def traced():
        with numpyro.handlers.seed(rng_seed=0), numpyro.handlers.trace() as trace:
            models.group_sparse(tasks, sigma=1.0)
        assert trace["W"]["type"] == "deterministic"
        assert trace["W_local"]["fn"].shape() == (4, 12)

    jax.eval_shape(traced)  # nothing needs computing


def test_bad_arguments_are_named(tasks):
    observe = lambda **options: penalised.observe(models.low_rank, tasks, **options)
    with pytest.raises(ValueError, match="rate: expected a positive number, got -1"):
        observe(rate=-1)
    with pytest.raises(ValueError, match="smoothing: expected a number, got 'much'"):
        observe(smoothing="much")
    with pytest.raises(ValueError, match="with_release: expected 4 features and 12 tasks as in the data, got 4 and 9"):
        observe(with_release=mp.release(np.ones((4, 9)), epsilon=1.0, unsafe_seed=0))
    with pytest.raises(ValueError, match="options: expected none with prepared data, got rate"):
        models.low_rank(observe(), rate=1.0)
