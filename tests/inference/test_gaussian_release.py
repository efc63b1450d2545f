"""A release with Gaussian noise: its posterior by other means, and everything that rests on it.

Densities and calibration of every structure are tested beside those of Wishart noise.
"""

import arviz as az
import jax
import numpy as np
import pytest
import scipy.stats as st
from helpers.effort import effort
from helpers.quickly import quickly
from numpy.testing import assert_allclose
from numpyro.infer.util import log_density

import mpmtl_prob as mp
from mpmtl_prob.inference import SharedPosterior, compare_releases, shared_covariance, task_posteriors
from mpmtl_prob.inference.owner.leave_one_out import leave_one_out
from mpmtl_prob.inference.public.init import noise_dominated, start_full
from mpmtl_prob.models import shared_covariance as model
from mpmtl_prob.models.latent_weights import noise_dominated_weights
from mpmtl_prob.models.observed import LOG_PHI_SD, observe
from mpmtl_prob.privacy import Gaussian, Wishart
from mpmtl_prob.sampling.nuts import run_nuts

PHI = 0.8
LONG = pytest.mark.evidence
WEIGHTS = np.random.default_rng(3).standard_normal((3, 40)) * [[3.0], [1.0], [0.1]]
FAST = {"chains": 2, "warmup": 200, "draws": 200, "progress_bar": False}


def release(W, law, unsafe_seed=0, **options):
    return mp.release(W, 1.0, mechanism=law, unsafe_seed=unsafe_seed, adjacency="zero_out", **options)


def sampled(sigma, law, tasks):
    """Draws (chain, draw, ...) of the posterior by NUTS, where A's size is not public."""
    public = observe(sigma, law, tasks, phi=PHI)
    run = {"chains": 4, "warmup": 200, "draws": effort(1000, 2000), "seed": 0, "progress_bar": False}
    return run_nuts(model.full, public, start=start_full(public), **run)[0]


def agrees(draws, expected, error=0.0):
    """Tell whether the mean of draws (chain, draw) is this one, within 6 standard errors of either."""
    own = draws.std() / np.sqrt(min(float(az.ess(draws)), draws.size))
    return abs(draws.mean() - expected) < 6 * np.hypot(own, error)


@LONG
@pytest.mark.parametrize("sigma", [-2.0, 1.0, 25.0])  # A would be negative, hidden, and in sight
def test_one_feature_has_the_posterior_of_quadrature(sigma):
    m, law = 6, Gaussian(1, 1.5)
    draws = sampled(np.array([[sigma]]), law, m)
    a, log_phi, z = np.meshgrid(
        np.exp(np.linspace(-14, 5, 500)),
        np.log(PHI) + np.linspace(-16, 12, effort(100, 200)),
        np.linspace(-4.5, 4.5, effort(30, 60)),
        indexing="ij",
    )
    kappa = 2 + np.exp(model.LOG_KAPPA_MEAN + model.LOG_KAPPA_SD * z)
    scale = m * np.exp(log_phi)  # w_i ~ N(0, omega), omega ~ InverseGamma(kappa / 2, kappa phi / 2): A / (m phi) ~ F
    log_density = st.f.logpdf(a / scale, m, kappa) - np.log(scale) + np.log(a)  # of log a, whose grid is even
    log_density += st.norm.logpdf(log_phi, np.log(PHI), LOG_PHI_SD) + st.norm.logpdf(z)
    log_density += st.norm.logpdf(sigma, a, np.sqrt(2) * law.sd)
    weight = np.exp(log_density - log_density.max())
    weight /= weight.sum()
    log_A, marginal = np.log(draws["A"][..., 0, 0]), weight.sum(axis=(1, 2))
    for level in np.quantile(log_A, [0.1, 0.5, 0.9]):
        below = np.interp(level, np.log(a[:, 0, 0]), np.cumsum(marginal) - marginal / 2)
        assert agrees((log_A < level) * 1.0, below)
    assert agrees(draws["log_phi"], np.sum(weight * log_phi))
    assert agrees(np.log(draws["kappa"]), np.sum(weight * np.log(kappa)))


def weighted_draws(rng, size, sigma, law, tasks, phi, trace=None):
    """A, log phi and their weights: draws of the prior, by what the release says of them; ``trace`` is known to a tenth."""
    d = len(sigma)
    log_phi = np.log(phi) + LOG_PHI_SD * rng.standard_normal(size)
    kappa = d + 1 + np.exp(model.LOG_KAPPA_MEAN + model.LOG_KAPPA_SD * rng.standard_normal(size))
    T, W = np.tril(rng.standard_normal((2, size, d, d)), -1)  # T T' ~ Wishart(kappa, I), W W' ~ Wishart(tasks, I)
    T[:, range(d), range(d)] = np.sqrt(rng.chisquare(kappa[:, None] - np.arange(d)))
    W[:, range(d), range(d)] = np.sqrt(rng.chisquare(tasks - np.arange(d), (size, d)))
    W = np.linalg.solve(np.swapaxes(T, 1, 2), W)  # Omega^{-1} = T T' / (kappa phi)
    A, log_weight = W @ np.swapaxes(W, 1, 2), 0.0
    if trace is not None:  # phi as a likely trace has it
        likely = trace * (1 + 0.1 * rng.standard_normal(size))
        log_phi = np.log(likely / (kappa * np.trace(A, axis1=1, axis2=2)))
        log_weight = st.norm.logpdf(log_phi, np.log(phi), LOG_PHI_SD) - np.log(likely)
    A *= (kappa * np.exp(log_phi))[:, None, None]
    log_weight = log_weight + law.log_prob(sigma, A)
    weight = np.exp(log_weight - log_weight.max())
    return A, log_phi, weight / weight.sum()


def check(draws, weighted):
    A, log_phi, weight = weighted
    for of in (
        lambda A, _: np.log(np.trace(A, axis1=-2, axis2=-1)),
        lambda A, _: np.log(np.linalg.eigvalsh(A)[..., 0]),
        lambda A, _: A[..., 0, 1] / np.sqrt(A[..., 0, 0] * A[..., 1, 1]),
        lambda A, _: A[..., 0, 1],
        lambda _, log_phi: log_phi,
    ):
        values = of(A, log_phi)
        mean = np.sum(weight * values)
        assert agrees(of(draws["A"], draws["log_phi"]), mean, np.sqrt(np.sum((weight * (values - mean)) ** 2)))


@LONG
def test_two_features_agree_with_weighted_draws_of_the_prior():
    """Two features of unknown size have the posterior that weighted draws of the prior have."""
    law, sigma = Gaussian(2, 1.5), np.array([[4.0, -2.5], [-2.5, -1.0]])  # indefinite
    check(sampled(sigma, law, 5), weighted_draws(np.random.default_rng(1), 400_000, sigma, law, 5, PHI))


@pytest.fixture(scope="module")
def published():
    """Three features, the noise as large as the smaller directions: every other release is indefinite, here the first is."""
    each = (release(WEIGHTS, Gaussian(3, 3.0), seed) for seed in range(64))
    return next(draw for draw in each if np.linalg.eigvalsh(draw.sigma[0])[0] < 0)


@pytest.fixture(scope="module")
def posterior(published):
    return shared_covariance(published, **FAST | {"draws": 600})


def test_posterior_agrees_with_weighted_draws_of_the_prior(published, posterior):
    """A release has the posterior that weighted draws of the prior have."""
    law, rng = published.mechanisms[0], np.random.default_rng(1)
    expected = weighted_draws(rng, 100_000, published.sigma[0], law, 40, 1 / 3, trace=40.0)
    draws = {name: posterior.to_arviz()[f"posterior/{name}"].values for name in ("A", "log_phi")}
    check(draws, expected)
    with pytest.raises(AssertionError):  # of noise that is half as large again
        check(draws, weighted_draws(rng, 100_000, published.sigma[0], Gaussian(3, 1.5 * law.sd), 40, 1 / 3, trace=40.0))


def test_an_indefinite_release_has_a_posterior(published, posterior, tmp_path):
    assert np.linalg.eigvalsh(published.sigma[0])[0] < 0
    tree = posterior.to_arviz()
    A = tree["posterior/A"].values
    assert (np.linalg.eigvalsh(A) > 0).all()
    assert (np.linalg.eigvalsh(published.sigma[0] - A)[..., 0] < 0).all()  # Sigma bounds nothing
    assert tree["sample_stats/diverging"].sum() == 0
    rhat = az.rhat(tree["posterior"].to_dataset()[["spectrum", "log_phi"]])
    assert max(float(v.max()) for v in rhat.data_vars.values()) < 1.1
    posterior.save(tmp_path / "posterior.nc")
    assert_allclose(SharedPosterior.load(tmp_path / "posterior.nc").omega, posterior.omega)


@pytest.mark.evidence
def test_single_precision_gives_the_same_posterior(published, posterior):
    with jax.enable_x64(False):
        single = shared_covariance(published, **FAST)
    one, other = (p.to_arviz()["posterior/spectrum"].values for p in (posterior, single))
    assert_allclose(one.mean((0, 1)), other.mean((0, 1)), atol=6 * one.std((0, 1)).max() / np.sqrt(60))


def test_the_shape_is_that_of_the_releases_own_axes(published, posterior):
    # prior and noise favour no direction: nothing of the sampler's noise is left off the diagonal, and the order is Sigma's
    V = np.linalg.eigh(published.sigma[0])[1]
    inside = V.T @ posterior.shape(1.3) @ V
    assert_allclose(inside, np.diag(np.diag(inside)), atol=1e-10)
    assert (np.diff(np.diag(inside)) > -1e-12).all()


def test_the_release_says_less_the_louder_its_noise_is(published, posterior):
    by_noise = {"quiet": shared_covariance(release(WEIGHTS, Gaussian(3, 0.01)), **FAST), "loud": posterior}
    quiet, loud = (each.information for each in by_noise.values())
    assert_allclose(quiet.noise["the spectrum"], 1, atol=0.15)
    assert loud.noise["the spectrum"] > 1.3
    assert loud.prior["the spectrum"] > 1.3 * quiet.prior["the spectrum"]
    rows = compare_releases(by_noise, rank=1).rows
    assert rows[0]["largest_angle"] < rows[1]["largest_angle"]
    assert "as wide as without" in posterior.diagnose().remarks[-1] or "times as wide" in str(posterior.diagnose())


def test_without_its_own_message_a_release_may_be_anything():
    W = np.eye(2)[:, [0, 0, 1]]
    sent = W[:, 0]
    rests = [leave_one_out(release(W, Gaussian(2, 5.0), unsafe_seed=seed), sent) for seed in range(40)]
    for rest in rests:
        assert (rest.num_tasks, rest.guarantee.proved) == (2, None)  # it is the owner's own, not to be let out
    assert min(np.linalg.eigvalsh(rest.sigma[0])[0] for rest in rests) < 0
    with pytest.raises(ValueError, match="message: expected the message behind the release"):
        leave_one_out(release(W, Wishart(2, 3.0, 0.01)), 2 * sent)


def tasks_of(m=12, d=2, n=8, seed=0):
    rng = np.random.default_rng(seed)
    W = np.array([3.0, 1.0, 0.2])[:d, None] * rng.standard_normal((d, m))
    X = rng.standard_normal((m, n, d))
    return mp.TaskData.from_lists(list(X), list(np.einsum("tnj,jt->tn", X, W) + rng.standard_normal((m, n))))


@pytest.mark.evidence
def test_owners_use_it_by_every_method():
    tasks = tasks_of(m=4)
    shared = shared_covariance(release(tasks, Gaussian(2, 1.0)), **FAST)
    weights = {
        method: task_posteriors(tasks, shared, method=method, power=1.0, chains=2, draws=200).W
        for method in ("plug_in", "mixture", "joint")
    }
    assert_allclose(weights["plug_in"], weights["mixture"], atol=0.4)
    assert_allclose(weights["plug_in"], weights["joint"], atol=0.4)
    excluded = task_posteriors(tasks, shared, leave_one_out="exact")
    assert np.isfinite(excluded.W).all()
    assert not np.allclose(excluded.W, task_posteriors(tasks, shared).W, atol=1e-6)


@pytest.mark.evidence
def test_rounds_have_a_posterior():
    law = Gaussian(2, 1.0)
    fitted = mp.NoiseAware(1.0, mechanism=law, rounds=2, unsafe_seed=0, **FAST).fit(tasks_of())
    assert fitted.shared.release.mechanisms == (law, law)
    assert (np.linalg.eigvalsh(fitted.shared.to_arviz()["posterior/A"].values) > 0).all()


@LONG
@pytest.mark.parametrize("structure", ["auto", "group_sparse", "low_rank", "paper"])
def test_every_structure_finds_the_leading_feature(structure):
    W = np.zeros((3, 30))
    W[0], W[1:] = 1.0, 0.02 * np.random.default_rng(0).standard_normal((2, 30))
    leading = shared_covariance(release(W, Gaussian(3, 0.5)), structure=structure, **FAST)
    assert leading.omega[0, 0] > 3 * leading.omega[[1, 2], [1, 2]].max()


def test_noise_dominated_releases_are_read_by_noise_density():
    """A noise-dominated release is read by the density of its noise."""
    # in the same coordinates only the likelihood of Sigma differs between two kinds of noise
    rng = np.random.default_rng(0)
    sigma = 40.0 * np.eye(3) + 1.0
    laws = (Gaussian(3, 30.0), Wishart(3, 60.0, 0.7))
    reads = [
        observe(sigma, law, 2, phi=PHI, trace=2.0)._replace(likelihood_slope=np.array([0.3, 0.1, -0.4])) for law in laws
    ]

    @quickly
    def density(read, site):
        value, trace = log_density(noise_dominated_weights(2), (read,), {}, site)
        return value, trace["A"]["value"]

    difference = []
    for _ in range(4):
        site = {"z": rng.standard_normal(), "z_kappa": rng.standard_normal(), "Z": rng.standard_normal((3, 2))}
        site |= {"log_diagonal": rng.standard_normal(2), "off_diagonal": rng.standard_normal(1)}
        (one, A), (other, _) = (density(read, site) for read in reads)
        likelihood = [law.log_prob(sigma, np.asarray(A)) for law in laws]
        difference.append(one - other - likelihood[0] + likelihood[1])
    assert_allclose(difference, difference[0], atol=1e-8)


@LONG
@pytest.mark.parametrize("sd", [0.1, 30.0])  # in coordinates of the release, and of the prior
def test_fewer_tasks_than_features_have_a_posterior_too(sd):
    published = release(np.random.default_rng(0).standard_normal((4, 3)), Gaussian(4, sd))
    assert noise_dominated(published) == (sd > 1)
    A = shared_covariance(published, **FAST).to_arviz()["posterior/A"].values
    assert np.linalg.matrix_rank(A, hermitian=True, tol=1e-8).max() == 3
    assert_allclose(np.trace(A, axis1=-2, axis2=-1).mean(), 3.0, rtol=0.1)


def test_one_feature_replaced_moves_no_more_than_one_zeroed():
    """With one feature, replacing a task moves the release no more than zeroing it does.

    |w^2 - u^2| <= K^2, under noise of variance 2 sd^2: delta by quadrature over the densities themselves.
    """
    law = Gaussian(1, 0.7, 1.3)
    x = np.linspace(-15, 17, 400_001)
    p, q = st.norm.pdf(x, 1.3**2, np.sqrt(2) * 0.7), st.norm.pdf(x, 0, np.sqrt(2) * 0.7)
    for epsilon in (0.1, 1.0, 3.0):
        true = np.trapezoid(np.maximum(p - np.exp(epsilon) * q, 0), x)
        assert mp.privacy.compute_delta(epsilon, law, "replace") == pytest.approx(true, rel=1e-6)
        assert mp.privacy.compute_delta(epsilon, law, "zero_out") == pytest.approx(true, rel=1e-6)
