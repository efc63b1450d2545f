"""Fewer tasks than features, and noise that hides even the largest direction of their weights."""

from functools import partial

import jax
import numpy as np
import pytest
import scipy.stats as st
from helpers.effort import effort
from helpers.quickly import quickly
from helpers.tolerances import RARE, surprise
from numpy.testing import assert_allclose
from numpyro.infer.util import log_density

from mpmtl_prob.inference.public.init import start_noise_dominated, suggested
from mpmtl_prob.models import latent_weights
from mpmtl_prob.models.observed import LOG_PHI_SD, observe
from mpmtl_prob.models.shared_covariance import LOG_KAPPA_MEAN, LOG_KAPPA_SD
from mpmtl_prob.privacy import Gaussian, Wishart
from mpmtl_prob.sampling.nuts import run_nuts

D, FEW, PHI = 3, 2, 0.8  # features, tasks, and the variance of a weight
LAWS = {"wishart": Wishart(D, 14.0, 0.5), "gaussian": Gaussian(D, 2.0)}


def test_leaning_keeps_volume_and_has_the_precision_it_is_told():
    rng, tilt = np.random.default_rng(0), np.array([0.7, -0.1, 0.4, -1.0])
    root, Z = rng.standard_normal((3, 3)), rng.standard_normal((4, 3))
    leaning = lambda flat, G: latent_weights.shear(flat.reshape(4, 3), tilt, G).ravel()
    compiled = quickly(jax.jacfwd(leaning))
    jacobian = lambda G: np.asarray(compiled(Z.ravel(), G))
    assert_allclose(np.linalg.slogdet(jacobian(root @ root.T))[1], 0.0, atol=1e-12)
    small = root @ root.T
    small *= 3e-4 / np.abs(small).max()  # to second order in it
    precision = np.linalg.inv(covariance := (J := jacobian(small)) @ J.T)
    assert_allclose(precision, np.eye(12) + np.kron(np.diag(tilt), small), atol=10 * np.abs(small).max() ** 2)
    assert np.abs(covariance - np.eye(12)).max() > 1e3 * np.abs(small).max() ** 2


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_the_slope_is_that_of_the_density_at_zero_weights(law):
    """The likelihood's slope is that of the density where all weights are zero."""
    sigma = law.sample(np.random.default_rng(0), np.eye(D))
    observed = observe(sigma, law, 2, phi=PHI)
    along = [1e-4 * np.outer(v, v) for v in observed.eigenvectors.T]
    slope = np.array([law.log_prob(sigma, step) - law.log_prob(sigma, -step) for step in along]) / 1e-4
    assert_allclose(observed.likelihood_slope, np.mean(slope) - slope, rtol=1e-4)


def test_leaning_is_a_change_of_coordinates_and_of_nothing_else():
    d, m, rng = 5, 2, np.random.default_rng(0)
    law = Wishart(d, 40.0, 0.5)
    read = observe(law.sample(rng, np.eye(d)), law, m, phi=PHI, trace=float(m))
    observed, upright = (
        read._replace(likelihood_slope=tilt) for tilt in (np.array([4.0, 1.0, 0.0, -2.0, -3.0]), np.zeros(d))
    )
    model = latent_weights.noise_dominated_weights(m)

    @quickly
    def density(observed, site):
        value, trace = log_density(model, (observed,), {}, site)
        return value, {name: trace[name]["value"] for name in ("A", "kappa")}

    leaning_of = quickly(latent_weights.shear)
    for _ in range(4):
        site = {name: rng.standard_normal(shape) for name, shape in {"z": (), "z_kappa": (), "Z": (d, m)}.items()}
        site |= {"log_diagonal": rng.standard_normal(m), "off_diagonal": rng.standard_normal(1)}
        leaning, sites = jax.tree.map(np.asarray, density(observed, site))
        df = sites["kappa"] + m - d - np.arange(m)
        T = np.diag(np.sqrt(df) * np.exp(np.sqrt(0.5 / df) * site["log_diagonal"]))
        T[1, 0] = site["off_diagonal"][0]
        shape, steepest = np.linalg.inv(T.T @ T), np.abs(observed.likelihood_slope).max()
        tau = m * np.exp(site["z"] / (observed.trace * np.sqrt(observed.trace_precision)))
        G = steepest * tau / d * shape / np.trace(shape)
        N = np.asarray(leaning_of(site["Z"], observed.likelihood_slope / steepest, G))
        assert np.abs(N - site["Z"]).max() > 0.1
        same, other = density(upright, site | {"Z": N})
        assert_allclose(same, leaning)
        assert_allclose(other["A"], sites["A"])


@partial(quickly, static_argnums=0)
def noise_dominated(m, observed, site):
    """Log density, A and log phi."""
    value, trace = log_density(latent_weights.noise_dominated_weights(m), (observed,), {}, site)
    return value, trace["A"]["value"], trace["log_phi"]["value"]


@pytest.mark.parametrize("df", [400.0, 6000.0])
def test_chains_start_at_the_suggested_row_norms(df):
    """Chains of a noise-dominated release start at the row norms that the release suggests."""
    d, m, rng = 50, 20, np.random.default_rng(0)
    law = Wishart(d, df, 0.3 / np.sqrt(df))

    def a_release():
        W = rng.standard_normal((d, m)) / np.sqrt(d)
        observed = observe(law.sample(rng, W @ W.T), law, m, phi=1 / d, trace=float(m))
        return observed, start_noise_dominated(observed), along(observed, suggested(observed))

    (observed, start, norms), (_, other, other_norms) = a_release(), a_release()
    # the random part is the same, so that two starts differ by what the two releases suggest
    ratio = (start["Z"] / other["Z"]) ** 2 * np.mean(norms) / np.mean(other_norms)
    assert_allclose(ratio, np.broadcast_to((norms / other_norms)[:, None], (d, m)))

    value, A, _ = noise_dominated(m, observed, start)
    assert np.isfinite(value)
    assert_allclose(np.trace(A), m, rtol=1e-6)
    # A has more along a direction as the norm of its row is larger
    _, even, _ = noise_dominated(m, observed, start | {"Z": start["Z"] / np.sqrt(norms)[:, None]})
    more = along(observed, A) / along(observed, even)
    assert_allclose(more / more.mean(), norms / norms.mean(), rtol=1e-3)
    # and no direction of it is much of what bounds it
    root = np.linalg.inv(
        np.linalg.cholesky((observed.eigenvectors / observed.noise.precision_floor) @ observed.eigenvectors.T)
    )
    assert np.linalg.eigvalsh(root @ A @ root.T).max() < 0.5


def test_phi_has_its_prior_where_the_weights_keep_their_size():
    d, m, rng = 50, 20, np.random.default_rng(1)
    law = Wishart(d, 400.0, 0.015)
    observed = observe(law.sample(rng, np.eye(d) * m / d), law, m, phi=1 / d, trace=float(m))
    upright, site = observed._replace(likelihood_slope=np.zeros(d)), start_noise_dominated(observed)
    # twice the normal numbers, a quarter of phi, and the same W
    twice = site | {"Z": 2 * site["Z"]}
    (value, A, log_phi), (other, same, quarter) = noise_dominated(m, upright, site), noise_dominated(m, upright, twice)
    assert_allclose(same, A)
    assert_allclose(quarter, log_phi - np.log(4))
    prior = st.norm(observed.log_phi_mean, LOG_PHI_SD)
    expected = st.norm.logpdf(twice["Z"]).sum() - st.norm.logpdf(site["Z"]).sum()
    expected += prior.logpdf(quarter) - prior.logpdf(log_phi)
    assert_allclose(other - value, expected, atol=1e-6)


def along(observed, M):
    """Return the size of a matrix along each eigenvector of a release."""
    return np.einsum("ji,jk,ki->i", observed.eigenvectors, M, observed.eigenvectors)


def from_the_prior(rng, sigma, law, number):
    """Independent draws of the posterior, by no sampler: those of the prior that the release and tr(A) let stay."""
    log_phi = np.log(FEW / D**2) + LOG_PHI_SD * rng.standard_normal(number)
    kappa = D + 1 + np.exp(LOG_KAPPA_MEAN + LOG_KAPPA_SD * rng.standard_normal(number))
    # Omega^{-1} = T T' / (kappa phi) by Bartlett, and W ~ N(0, Omega)
    T = np.tril(rng.standard_normal((number, D, D)), -1)
    T[:, range(D), range(D)] = np.sqrt(rng.chisquare(kappa[:, None] - np.arange(D)))
    W = np.linalg.solve(np.swapaxes(T, 1, 2), rng.standard_normal((number, D, FEW)))
    A = (kappa * np.exp(log_phi))[:, None, None] * (W @ np.swapaxes(W, 1, 2))
    log_weight = -0.5 * ((np.trace(A, axis1=1, axis2=2) / FEW - 1) / 0.1) ** 2
    near = log_weight > -20.0
    every = {"A": A[near], "log_phi": log_phi[near], "kappa": kappa[near]}
    log_weight = log_weight[near] + np.asarray(law.log_prob(sigma, every["A"]))
    stay = np.log(rng.random(len(log_weight))) < log_weight - log_weight.max()
    return {name: each[stay] for name, each in every.items()}


def test_a_noise_dominated_release_has_the_right_posterior():
    """A noise-dominated release has the posterior that weighted draws of the prior give."""
    rng = np.random.default_rng(3)
    W = rng.standard_normal((D, FEW))
    W /= np.linalg.norm(W, axis=0)
    sigma = W @ W.T + st.wishart(60, 0.5 * np.eye(D)).rvs(random_state=rng)
    law = Wishart(D, 60.0, 0.5)
    observed = observe(sigma, law, FEW, phi=FEW / D**2, trace=float(FEW))
    run = {"chains": 4, "warmup": 200, "draws": effort(500, 2000), "seed": 0, "progress_bar": False}
    sampled, statistics = run_nuts(
        latent_weights.noise_dominated_weights(FEW), observed, start=start_noise_dominated(observed), **run
    )
    assert statistics["diverging"].mean() < 0.01
    theirs, ours = (functionals(draws) for draws in (from_the_prior(rng, sigma, law, 200_000), sampled))
    assert len(theirs["trace"]) > 2000
    for name in ours:
        assert surprise(theirs[name], ours[name]) > RARE, name
        # what the test would say of a posterior half an sd off
        assert surprise(theirs[name], ours[name] + 0.5 * ours[name].std()) < RARE


def functionals(draws):
    """By name, (chain, draw) or (draw,)."""
    A, eigenvalues = draws["A"], np.linalg.eigvalsh(draws["A"])
    largest = {"trace": eigenvalues.sum(-1), "second eigenvalue": eigenvalues[..., 1], "largest": eigenvalues[..., 2]}
    return largest | {
        "off-diagonal": A[..., 0, 1],
        "log phi": draws["log_phi"],
        "log kappa": np.log(draws["kappa"] - D - 1),
    }
