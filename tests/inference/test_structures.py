"""The structures of the shared covariance: densities, calibration, and what they are good for."""

from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats as st
from helpers.quickly import quickly
from helpers.tolerances import RARE
from numpy.testing import assert_allclose
from numpyro.infer.util import constrain_fn, log_density, potential_energy

import mpmtl_prob as mp
from mpmtl_prob.inference import shared_covariance
from mpmtl_prob.inference.public import init as starts
from mpmtl_prob.inference.public.init import start_adaptive, start_group_sparse, start_low_rank
from mpmtl_prob.inference.public.structures import model_for
from mpmtl_prob.models import latent_weights
from mpmtl_prob.models import shared_covariance as model
from mpmtl_prob.models.noise import contraction
from mpmtl_prob.models.observed import LOG_PHI_SD, observe
from mpmtl_prob.privacy import Gaussian, Wishart
from mpmtl_prob.sampling.calibration import chain_for_each, uniformity
from mpmtl_prob.sampling.nuts import kernel

D, M, PHI = 3, 12, 0.8
LAWS = {"wishart": Wishart(D, 14.0, 0.5), "gaussian": Gaussian(D, 2.0)}
LOWER = np.tril_indices(D)
FAST = {"chains": 2, "warmup": 200, "draws": 200, "progress_bar": False}


def arrays(value, trace):
    """Keep what a compiled function may return of a density and a model's trace."""
    return value, {
        k: {"value": site["value"]} for k, site in trace.items() if site["type"] in ("sample", "deterministic")
    }


def log_scale(log_phi):
    return st.norm.logpdf(log_phi, np.log(PHI), LOG_PHI_SD)


def secant(log_lambda):
    """log density of the logarithm of a half-Cauchy."""
    return np.sum(st.halfcauchy.logpdf(np.exp(log_lambda)) + log_lambda)


def group_sparse_omega(log_phi, log_lambda):
    return np.diag(np.exp(log_phi) * (1 + np.exp(2 * log_lambda)))


def low_rank_omega(log_phi, log_lambda, G):
    H = G * np.exp(log_lambda) / np.sqrt(D)
    return np.exp(log_phi) * (np.eye(D) + H @ H.T)


def coordinates(rng):
    return {
        "z": rng.standard_normal(),
        "log_diagonal": 0.5 * rng.standard_normal(D),
        "off_diagonal": rng.standard_normal(D),
    }


def draw_group_sparse(rng):
    log_phi = np.log(PHI) + LOG_PHI_SD * rng.standard_normal()
    omega = group_sparse_omega(log_phi, np.log(np.abs(rng.standard_cauchy(D))))
    return log_phi, np.atleast_2d(st.wishart(M, omega).rvs(random_state=rng))


def inverse_wishart(shape, z_kappa):
    """kappa and Phi, with E[Omega^{-1}] = shape^{-1}."""
    kappa = D + 1 + np.exp(model.LOG_KAPPA_MEAN + model.LOG_KAPPA_SD * z_kappa)
    return kappa, kappa * shape


def draw_adaptive(rng):
    log_phi = np.log(PHI) + LOG_PHI_SD * rng.standard_normal()
    log_lambda = np.log(np.abs(rng.standard_cauchy(D)))
    shape = group_sparse_omega(log_phi, log_lambda)
    omega = st.invwishart(*inverse_wishart(shape, rng.standard_normal())).rvs(random_state=rng)
    return log_phi, st.wishart(M, omega).rvs(random_state=rng)


def draw_full(rng):
    log_phi = np.log(PHI) + LOG_PHI_SD * rng.standard_normal()
    omega = st.invwishart(*inverse_wishart(np.exp(log_phi) * np.eye(D), rng.standard_normal())).rvs(random_state=rng)
    return log_phi, st.wishart(M, omega).rvs(random_state=rng)


def draw_low_rank(rng):
    log_phi = np.log(PHI) + LOG_PHI_SD * rng.standard_normal()
    omega = low_rank_omega(log_phi, np.log(np.abs(rng.standard_cauchy(2))), rng.standard_normal((D, 2)))
    return log_phi, st.wishart(M, omega).rvs(random_state=rng)


def draw_group_laplace(rng):
    log_phi = np.log(PHI) + LOG_PHI_SD * rng.standard_normal()
    u = rng.standard_normal((D, FEW))
    radius = rng.gamma(FEW, np.sqrt(np.exp(log_phi) / FEW), D)
    W = u / np.linalg.norm(u, axis=1, keepdims=True) * radius[:, None]
    return log_phi, W @ W.T


def draw_matrix_t(rng):
    log_phi = np.log(PHI) + LOG_PHI_SD * rng.standard_normal()
    omega = st.invwishart(*inverse_wishart(np.exp(log_phi) * np.eye(D), rng.standard_normal())).rvs(random_state=rng)
    W = np.linalg.cholesky(omega) @ rng.standard_normal((D, FEW))
    return log_phi, W @ W.T


FEW = 2  # tasks, fewer than features


def low_rank(observed):
    model.few_directions(observed, rank=2)


Z_START = {"z": 0.0, "Z": 0.3 * np.random.default_rng(0).standard_normal((D, FEW))}
ZK_START = Z_START | {"z_kappa": 0.0}
CALIBRATED = {
    "auto": (model.adaptive, draw_adaptive, start_adaptive, M),
    "group_sparse": (model.few_features, draw_group_sparse, start_group_sparse, M),
    "low_rank": (low_rank, draw_low_rank, partial(start_low_rank, rank=2), M),
    "paper_group_sparse": (
        latent_weights.latent_weights(FEW, "group_laplace"),
        draw_group_laplace,
        lambda _: Z_START,
        FEW,
    ),
    "fewer tasks than features": (
        latent_weights.latent_weights(FEW, "matrix_t"),
        draw_matrix_t,
        lambda _: ZK_START,
        FEW,
    ),
}


@pytest.mark.parametrize(
    ("structure", "law"),
    [
        ("auto", "wishart"),
        ("auto", "gaussian"),
        ("low_rank", "wishart"),
        ("group_sparse", "wishart"),
        # of the same parts
        pytest.param("low_rank", "gaussian", marks=pytest.mark.evidence),
        pytest.param("group_sparse", "gaussian", marks=pytest.mark.evidence),
    ],
)
def test_density_of_coordinates_is_the_joint_times_the_jacobian(structure, law):
    """The density in the sampler's coordinates is the joint density times the Jacobian."""
    rng, law = np.random.default_rng(1), LAWS[law]
    _, A = CALIBRATED[structure][1](rng)
    check_density(structure, law, law.sample(rng, A), rng)


def test_so_it_is_along_the_eigenvectors_of_a_release():
    rng, law = np.random.default_rng(1), LAWS["wishart"]
    sigma = law.mean + 20.0 * np.ones((D, D))
    assert not has_features_as_axes(observe(sigma, law, M, phi=PHI))
    check_density("auto", law, sigma, rng)


def has_features_as_axes(observed):
    return bool(np.isin(observed.axes.basis, (0.0, 1.0)).all())


def test_axes_are_the_features_unless_signal_lies_across_them():
    """The axes are the features unless what is visible lies across them."""
    axes = lambda clear: has_features_as_axes(observe(LAWS["wishart"].mean + clear, LAWS["wishart"], M, phi=PHI))
    assert axes(np.diag([50.0, 0.0, 0.0]))
    assert axes(np.diag([1.0, 0.5, 0.0]) + 0.3)  # nothing shows
    assert not axes(20.0 * np.ones((D, D)))


def sites(flat, shapes):
    """By name, of NumPy or of JAX."""
    sizes = [int(np.prod(shape)) for _, shape in shapes]
    ends = zip(shapes, sizes, np.cumsum(sizes), strict=True)
    return {name: flat[end - size : end].reshape(shape) for (name, shape), size, end in ends}


@lru_cache
def evaluation(structure, shapes):
    """Compiled for every release of a structure."""
    function = CALIBRATED[structure][0]

    @quickly
    @partial(jax.jacfwd, has_aux=True)
    def evaluate(flat, observed):
        """The Jacobian of everything that the joint density is over; density and trace."""
        site = sites(flat, shapes)
        value, trace = log_density(function, (observed,), {}, site)
        rest = [site[name].ravel() for name in ("G", "z_kappa") if name in site]
        log_size = jnp.log(jax.nn.softplus(site["size"]))
        physical = jnp.concatenate([trace["log_phi"]["value"][None], log_size, *rest, trace["A"]["value"][LOWER]])
        return physical, arrays(value, trace)

    return evaluate


def check_density(structure, law, sigma, rng):
    observed = observe(sigma, law, M, phi=PHI)
    shapes = tuple((name, np.shape(value)) for name, value in CALIBRATED[structure][2](observed).items())
    difference = []
    for _ in range(5):
        flat = 0.7 * rng.standard_normal(sum(int(np.prod(shape)) for _, shape in shapes))
        jacobian, (value, trace) = evaluation(structure, shapes)(flat, observed)
        log_phi, A = float(trace["log_phi"]["value"]), np.asarray(trace["A"]["value"])
        site = sites(flat, shapes)
        log_lambda = np.log(np.logaddexp(0, site["size"])) - 0.5 * (log_phi - np.log(PHI))
        if structure == "auto":  # Omega integrated out, by Bayes' rule at any Omega
            kappa, Phi = inverse_wishart(group_sparse_omega(log_phi, log_lambda), site["z_kappa"])
            assert_allclose(np.diag(Phi), trace["prior_scale"]["value"])
            omega = np.cov(rng.standard_normal((D, 20)))
            prior = st.norm.logpdf(site["z_kappa"]) + st.invwishart(kappa, Phi).logpdf(omega)
            prior -= st.invwishart(kappa + M, Phi + A).logpdf(omega)
        elif structure == "group_sparse":
            omega, prior = group_sparse_omega(log_phi, log_lambda), 0.0
            assert_allclose(np.diag(omega), trace["omega"]["value"])
        else:
            G = observed.eigenvectors @ site["G"]
            omega, prior = low_rank_omega(log_phi, log_lambda, G), st.norm.logpdf(G).sum()
            assert_allclose(omega, trace["Omega"]["value"])
        joint = (
            log_scale(log_phi) + secant(log_lambda) + prior + st.wishart(M, omega).logpdf(A) + law.log_prob(sigma, A)
        )
        difference.append(float(value) - joint - np.linalg.slogdet(jacobian)[1])
    assert_allclose(difference, difference[0], atol=1e-7)


@pytest.mark.parametrize(("rows", "columns"), [(1, 4), (3, 2), pytest.param(2, 2, marks=pytest.mark.evidence), (3, 5)])
def test_contraction_reaches_the_unit_ball_with_its_jacobian(rows, columns):
    """The contraction reaches the unit ball with the Jacobian that it reports."""
    Z = np.random.default_rng(0).standard_normal((rows, columns))

    @quickly
    @partial(jax.jacfwd, has_aux=True)
    def evaluate(flat):
        contracted = contraction(flat.reshape(rows, columns))
        return contracted[0].ravel(), contracted

    jacobian, (Y, log_jacobian, log_det) = evaluate(Z.ravel())
    assert_allclose(log_jacobian, np.linalg.slogdet(jacobian)[1])
    assert_allclose(log_det, np.linalg.slogdet(np.eye(rows) - Y @ Y.T)[1])
    assert np.linalg.eigvalsh(np.eye(rows) - Y @ Y.T).min() > 0


ball = quickly(contraction)


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
@pytest.mark.parametrize("prior", latent_weights.PRIORS)
def test_density_of_latent_weights_has_prior_noise_and_jacobian(prior, law):
    """The density of latent weights is the prior times the noise times the Jacobian."""
    rng = np.random.default_rng(2)
    W = rng.standard_normal((D, 4))
    sigma = law.sample(rng, W @ W.T)
    observed = observe(sigma, law, 4, phi=PHI)
    Q, eigenvalues = observed.eigenvectors, np.linalg.eigvalsh(sigma)[:, None]

    @quickly
    def evaluate(sites):
        value, trace = log_density(latent_weights.latent_weights(4, prior), (observed,), {}, sites)
        scale = lambda z: log_density(latent_weights.latent_weights(4, prior), (observed,), {}, sites | {"z": z})[1]
        return *arrays(value, trace), jax.jacfwd(lambda z: scale(z)["log_phi"]["value"])(sites["z"])

    difference = []
    for _ in range(4):
        z, z_kappa, Z = rng.standard_normal(), rng.standard_normal(), rng.standard_normal((D, 4))
        sites = {"z": z, "Z": jnp.asarray(Z)} | ({"z_kappa": z_kappa} if prior == "matrix_t" else {})
        value, trace, unit = evaluate(sites)  # that of log(phi)
        scaled, jacobian = latent_weights.unit(observed, 4) * Z, 0.0
        if isinstance(law, Wishart):  # keeps below Sigma
            Y, jacobian, _ = ball(scaled / np.sqrt(eigenvalues))
            scaled = np.sqrt(eigenvalues) * Y
        W, log_phi = Q @ np.asarray(scaled), float(trace["log_phi"]["value"])
        assert_allclose(trace["A"]["value"], W @ W.T)
        rate = np.sqrt(4 / np.exp(log_phi))
        if prior == "matrix_t":
            kappa, Phi = inverse_wishart(np.exp(log_phi) * np.eye(D), z_kappa)
            omega = np.cov(rng.standard_normal((D, 20)))  # integrated out, by Bayes' rule at any Omega
            log_prior = st.norm.logpdf(z_kappa) + st.multivariate_normal(cov=omega).logpdf(W.T).sum()
            log_prior += st.invwishart(kappa, Phi).logpdf(omega) - st.invwishart(kappa + 4, Phi + W @ W.T).logpdf(omega)
        elif prior == "trace_norm":
            log_prior = D * 4 * np.log(rate) - rate * np.linalg.norm(W, "nuc")
        else:
            log_prior = D * 4 * np.log(rate) - rate * np.linalg.norm(W, axis=1).sum()
        log_prior += log_scale(log_phi) + np.log(float(unit))
        difference.append(float(value) - log_prior - law.log_prob(sigma, W @ W.T) - float(jacobian))
    assert_allclose(difference, difference[0], atol=1e-6)


def ranks(function, draw, start, tasks, replications, warmup=200, thin=10, seed=0, law=LAWS["wishart"], believed=None):
    """Ranks of the truth among 19 posterior draws, 0..19, by functional, (replications,)."""
    rng = np.random.default_rng(seed)
    truths, data = [], []
    for _ in range(replications):
        log_phi, A = draw(rng)
        sigma = law.sample(rng, A)
        truths.append(functionals(A[None], np.array([log_phi])))
        data.append(observe(sigma, believed or law, tasks, phi=PHI))
    # every draw is made and few are kept: so the program is that of `shared_covariance`
    draws, _ = chain_for_each(kernel(function), data, start=start, warmup=warmup, draws=19 * thin)
    drawn = functionals(draws["A"][:, thin - 1 :: thin], draws["log_phi"][:, thin - 1 :: thin])
    return {name: np.sum(drawn[name] < np.array([t[name] for t in truths]), axis=1) for name in drawn}


def functionals(A, log_phi):
    """By name, (...)."""
    return {
        "trace": np.trace(A, axis1=-2, axis2=-1),
        "second eigenvalue": np.linalg.eigvalsh(A)[..., 1],
        "off-diagonal": A[..., 0, 1],
        "log phi": log_phi,
    }


# that of "full" is tested every day; studies/benchmarks/calibration_shared.py runs all of them, with many more replications
@pytest.mark.evidence
@pytest.mark.parametrize(
    ("structure", "law"),
    [
        ("group_sparse", "wishart"),
        ("auto", "gaussian"),
        ("fewer tasks than features", "wishart"),
    ],
)
def test_a_structure_is_calibrated_on_data_from_its_own_model(structure, law):
    for name, counts in ranks(*CALIBRATED[structure], 100, law=LAWS[law]).items():
        assert uniformity(counts) > RARE, (name, np.bincount(counts, minlength=20))
        # central 90 % intervals: ranks 1..18 of 0..19
        covered = st.binomtest(int(np.sum((counts >= 1) & (counts <= 18))), len(counts), 0.9)
        assert covered.pvalue > RARE, name


@pytest.mark.evidence
def test_calibration_catches_understated_noise():
    """The calibration catches a sampler that believes the noise to be smaller than it is."""
    ranks_by_name = ranks(*CALIBRATED["group_sparse"], 100, believed=Wishart(D, 14.0, 0.35))
    assert min(uniformity(each) for each in ranks_by_name.values()) < RARE


@pytest.fixture(scope="module")
def sparse_release():
    W = np.zeros((D, 120))
    W[:2] = np.random.default_rng(0).standard_normal((2, 120))
    return mp.release(W, epsilon=1.0, unsafe_seed=0, adjacency="zero_out")


def test_group_sparse_finds_the_features_that_matter(sparse_release):
    posterior = shared_covariance(sparse_release, structure="group_sparse", **FAST)
    inclusion = posterior.to_arviz()["posterior/inclusion"].mean(("chain", "draw"))
    assert inclusion.dims == ("feature",)
    assert inclusion[:2].min() > 0.9
    assert inclusion[2:].max() < inclusion[:2].min() - 0.2
    assert_allclose(posterior.omega, np.diag(np.diag(posterior.omega)))


@pytest.fixture
def few():
    """A release of fewer tasks than features."""
    W = np.random.default_rng(0).standard_normal((D, FEW))
    return mp.release(W, epsilon=5.0, delta=0.1, unsafe_seed=0, adjacency="zero_out")


@pytest.mark.parametrize("structure", ["full", "paper"])
def test_chains_of_few_tasks_start_at_an_allowed_point(few, structure):
    """Chains for fewer tasks than features start where there is a slope and the release allows them to be."""
    read, seen = model_for(structure, few), starts.observed(few)
    value, slope = quickly(jax.value_and_grad(partial(potential_energy, read.model, (seen,), {})))(read.start)
    assert np.isfinite(value)
    assert all(np.isfinite(each).all() for each in slope.values())
    assert np.linalg.norm(slope["Z"]) > 0
    A = quickly(lambda sites: constrain_fn(read.model, (seen,), {}, sites, return_deterministic=True)["A"])(read.start)
    assert (np.linalg.eigvalsh(few.sigma[0] - A) > 0).all()
    assert np.linalg.matrix_rank(A, hermitian=True, tol=1e-8) == FEW
    with pytest.raises(ValueError, match="structure: 'low_rank' needs at least as many tasks as features, got 2 tasks"):
        shared_covariance(few, structure="low_rank")


@pytest.mark.evidence
@pytest.mark.parametrize("structure", ["full", "paper"])
def test_fewer_tasks_than_features_have_a_posterior_too(few, structure):
    posterior = shared_covariance(few, structure=structure, **FAST | {"draws": 50})
    A = posterior.to_arviz()["posterior/A"].values
    assert (np.linalg.eigvalsh(few.sigma[0] - A) > 0).all()
    assert np.linalg.matrix_rank(A, hermitian=True, tol=1e-8).max() == FEW
    assert np.isfinite(posterior.omega).all()


def test_log_chi_square_density_keeps_its_digits_at_huge_kappa():
    """The density of a log chi-square keeps its digits where kappa is enormous."""
    log_density = quickly(latent_weights.log_density_of_log_chi2)
    for a in (0.7, 3.0, 29.9, 30.1, 500.0):
        x = np.array([-1.2, -0.3, 1e-4, 0.4])
        exact = st.chi2(2 * a).logpdf(2 * a * np.exp(x)) + np.log(2 * a) + x - 0.5 * np.log(a)
        value = np.asarray(log_density(np.float64(a), x))
        assert_allclose(value - value[2], exact - exact[2], rtol=1e-9, atol=1e-9)
        assert_allclose(value, exact, atol=1e-5)  # and the constants on both sides of Stirling's series agree
    y = np.array([-2.0, 0.0, 1.0, 1.5])  # in units of the spread it is normal there
    for a in (1e10, 1e32):
        value = np.asarray(log_density(np.float64(a), y / np.sqrt(a)))
        assert_allclose(value, st.norm.logpdf(y), atol=1e-4)
