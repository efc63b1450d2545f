"""The posterior of the shared second moment: its density, its calibration, its sampler."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats as st
from helpers.effort import effort
from helpers.quickly import quickly
from helpers.tolerances import FAR, RARE
from numpy.testing import assert_allclose
from numpyro.infer.util import log_density

import mpmtl_prob as mp
from mpmtl_prob.inference import shared_covariance
from mpmtl_prob.models import shared_covariance as model
from mpmtl_prob.models.observed import LOG_PHI_SD, observe
from mpmtl_prob.privacy import Gaussian, Wishart
from mpmtl_prob.sampling._threefry import keys
from mpmtl_prob.sampling.calibration import chain_for_each, uniformity
from mpmtl_prob.sampling.chains import program
from mpmtl_prob.sampling.nuts import kernel

D, M, PHI = 3, 20, 0.8
LAWS = {"wishart": Wishart(D, 12.0, 0.5), "gaussian": Gaussian(D, 2.0)}
FAST = {"chains": 2, "warmup": 200, "draws": 200, "progress_bar": False}


def start(d=D):
    return {"z": 0.0, "z_kappa": 0.0, "log_diagonal": np.zeros(d), "off_diagonal": np.zeros(d * (d - 1) // 2)}


def prior_of_omega(log_phi, z_kappa):
    """kappa and Phi, with E[Omega^{-1}] = I / phi."""
    kappa = D + 1 + np.exp(model.LOG_KAPPA_MEAN + model.LOG_KAPPA_SD * z_kappa)
    return kappa, kappa * np.exp(log_phi) * np.eye(D)


def simulate(rng, law):
    """A release from the model itself: log phi and kappa, then Omega, W and E."""
    log_phi, z_kappa = np.log(PHI) + LOG_PHI_SD * rng.standard_normal(), rng.standard_normal()
    omega = st.invwishart(*prior_of_omega(log_phi, z_kappa)).rvs(random_state=rng)
    A = st.wishart(M, omega).rvs(random_state=rng)
    return log_phi, z_kappa, A, law.sample(rng, A)


def log_joint(log_phi, z_kappa, A, sigma, rng, law):
    """log p(log phi) p(kappa) p(A | phi, kappa) p(Sigma | A), with Omega integrated out by Bayes' rule at any Omega."""
    kappa, Phi = prior_of_omega(log_phi, z_kappa)
    omega = np.cov(rng.standard_normal((D, 20)))
    prior = st.invwishart(kappa, Phi).logpdf(omega) - st.invwishart(kappa + M, Phi + A).logpdf(omega)
    prior += st.norm.logpdf(log_phi, np.log(PHI), LOG_PHI_SD) + st.norm.logpdf(z_kappa)
    return prior + st.wishart(M, omega).logpdf(A) + law.log_prob(sigma, A)


def sites(flat):
    return {"z": flat[0], "z_kappa": flat[1], "log_diagonal": flat[2 : 2 + D], "off_diagonal": flat[2 + D :]}


@quickly
def density(flat, observed):
    """The model's, of its coordinates; log phi and A there; the Jacobian of what the joint density is over."""

    def physical(flat):
        value, trace = log_density(model.full, (observed,), {}, sites(flat))
        sampled, lower = {name: trace[name]["value"] for name in ("log_phi", "A")}, np.tril_indices(D)
        return jnp.concatenate([sampled["log_phi"][None], flat[1:2], sampled["A"][lower]]), (value, sampled)

    jacobian, (value, trace) = jax.jacfwd(physical, has_aux=True)(flat)
    return value, trace["log_phi"], trace["A"], jacobian


@pytest.mark.parametrize("size", [None, 100.0])  # one direction of three shows, where Wishart noise is not loud
@pytest.mark.parametrize("loud", [1, 1000])  # noise that lets A show, and noise that hides it: the coordinates differ
@pytest.mark.parametrize("name", LAWS)
def test_density_of_coordinates_is_the_joint_times_the_jacobian(size, loud, name):
    """The density in the sampler's coordinates is the joint density times the Jacobian."""
    rng = np.random.default_rng(0)
    *_, sigma = simulate(rng, LAWS[name])
    law = {"wishart": Wishart(D, 12.0, 0.5 * loud), "gaussian": Gaussian(D, 2.0 * loud)}[name]
    sigma = sigma + law.mean - LAWS[name].mean
    observed = observe(sigma, law, M, phi=PHI, trace=size)
    difference = []
    for _ in range(8):
        flat = jnp.asarray(0.7 * rng.standard_normal(2 + D * (D + 1) // 2))
        value, log_phi, A, jacobian = map(np.asarray, density(flat, observed))
        expected = log_joint(float(log_phi), float(flat[1]), A, sigma, rng, law) + np.linalg.slogdet(jacobian)[1]
        if size is not None:
            expected += st.norm.logpdf(np.trace(A) / size, 1, 0.1)
        difference.append(float(value) - expected)
    assert_allclose(difference, difference[0], atol=1e-8)


def test_nuts_of_one_vector_starts_with_density_and_gradient():
    """NUTS of one vector starts with the model's density and gradient."""
    rng = np.random.default_rng(2)
    data = observe(simulate(rng, LAWS["wishart"])[-1], LAWS["wishart"], M, phi=PHI)
    flat, steps = 0.5 * rng.standard_normal(2 + D * (D + 1) // 2), 1e-4 * np.eye(2 + D * (D + 1) // 2)
    state = program(kernel(model.full), 200).init(keys(0, 1)[0], sites(flat), (data,))
    assert_allclose(state.z.vector, flat)
    assert_allclose(state.potential_energy, -density(flat, data)[0], rtol=1e-9)
    assert_allclose(state.energy, state.potential_energy)
    slope = [density(flat - step, data)[0] - density(flat + step, data)[0] for step in steps]
    assert_allclose(state.z_grad.vector, np.array(slope) / 2e-4, rtol=1e-5, atol=1e-5)


#: Iterations for each of 19 draws, which should be nearly independent.
THIN = effort(5, 10)


def ranks(replications, law=LAWS["wishart"], believed=None, seed=0):
    """Ranks of the truth among 19 posterior draws, 0..19, of functionals that see scale, shape and prior."""
    rng = np.random.default_rng(seed)
    truths, data = [], []
    for _ in range(replications):
        log_phi, z_kappa, A, sigma = simulate(rng, law)
        kappa, _ = prior_of_omega(log_phi, z_kappa)
        truths.append(functionals({"A": A[None], "log_phi": np.array([log_phi]), "kappa": np.array([kappa])}))
        data.append(observe(sigma, believed or law, M, phi=PHI))
    # every draw is made and few are kept: so the program is that of `shared_covariance`
    draws, _ = chain_for_each(kernel(model.full), data, start=lambda _: start(), warmup=200, draws=THIN * 19)
    drawn = functionals({name: values[:, THIN - 1 :: THIN] for name, values in draws.items()})
    return {name: np.sum(drawn[name] < np.array([t[name] for t in truths]), axis=1) for name in drawn}


def functionals(draws):
    """By name, (...)."""
    return {
        "trace": np.trace(draws["A"], axis1=-2, axis2=-1),
        "smallest eigenvalue": np.linalg.eigvalsh(draws["A"])[..., 0],
        "off-diagonal": draws["A"][..., 0, 1],
        "log phi": draws["log_phi"],
        "kappa": draws["kappa"],
    }


# Gaussian noise: against draws of the prior in test_gaussian_release.py, and here every week
LONG = pytest.mark.evidence


@pytest.mark.parametrize(
    "law", [LAWS["wishart"], pytest.param(LAWS["gaussian"], marks=LONG)], ids=["wishart", "gaussian"]
)
def test_posterior_is_calibrated_on_data_from_the_model(law):
    for name, counts in ranks(effort(60, 200), law).items():
        assert uniformity(counts) > RARE, name
        # central 90 % intervals: ranks 1..18 of 0..19
        covered = st.binomtest(int(np.sum((counts >= 1) & (counts <= 18))), len(counts), 0.9)
        assert covered.pvalue > RARE, name


@LONG  # that ranks show it is seen every day in test_sampling.py
@pytest.mark.parametrize(
    ("name", "believed", "replications"),  # as few as the least that the calibration is tested with
    [("wishart", Wishart(D, 12.0, 0.3), 60), ("gaussian", Gaussian(D, 1.0), 200)],
)
def test_calibration_catches_understated_noise(name, believed, replications):
    """The calibration catches a sampler that believes the noise to be smaller than it is."""
    ranks_by_name = ranks(replications, LAWS[name], believed)
    assert min(uniformity(each) for each in ranks_by_name.values()) < RARE


@pytest.fixture(scope="module")
def release():
    W = np.random.default_rng(3).standard_normal((3, 40)) * [[3.0], [1.0], [0.3]]
    return mp.release(W, epsilon=2.0, unsafe_seed=0, adjacency="zero_out")


@pytest.fixture(scope="module")
def posterior(release):
    return shared_covariance(release, **FAST)


def test_posterior_respects_the_release(release, posterior):
    A = posterior.to_arviz()["posterior/A"].values
    assert (np.linalg.eigvalsh(A) > 0).all()
    assert (np.linalg.eigvalsh(release.sigma[0] - A) > 0).all()


def test_chains_agree(posterior):
    import arviz as az

    rhat = az.rhat(posterior.to_arviz()["posterior"].to_dataset()[["spectrum", "log_phi"]])
    assert max(float(v.max()) for v in rhat.data_vars.values()) < 1.05
    assert posterior.to_arviz()["sample_stats/diverging"].sum() == 0


def test_tree_names_features_and_says_who_could_have_computed_it(release, posterior):
    tree = posterior.to_arviz()
    assert set(tree.children) == {"posterior", "sample_stats", "observed_data", "release"}
    assert tree["posterior/Omega"].dims == ("chain", "draw", "feature", "feature_other")
    assert tree.attrs["seat"] == "public"
    assert_allclose(tree["posterior/spectrum"].sum("component"), 1)
    assert_allclose(tree["observed_data/sigma"], release.sigma[0])
    assert posterior.guarantee is release.guarantee
    assert "r-hat" in repr(posterior)


def test_omega_is_drawn_from_its_conditional_law(posterior):
    # E[Omega | A, phi, kappa] = (Phi + A) / (kappa + m - d - 1): the draws' mean agrees within Monte Carlo error
    tree = posterior.to_arviz()["posterior"].dataset
    kappa, phi = tree["kappa"].values[..., None, None], np.exp(tree["log_phi"].values)[..., None, None]
    conditional = (tree["A"].values + kappa * phi * np.eye(3)) / (kappa + 40 - 3 - 1)
    ratio = np.linalg.slogdet(tree["Omega"].values)[1] - np.linalg.slogdet(conditional)[1]
    difference = (tree["Omega"].values - conditional).reshape(400, 9)
    error = difference.std(0) / np.sqrt(400)
    assert (np.abs(difference.mean(0)) < FAR * error).all()
    assert ratio.std() > 0.1


def test_a_second_release_does_not_compile_again(posterior):
    compiles = program(kernel(model.full), FAST["warmup"])
    parts = (compiles.fill, compiles.constrain)
    compiled = [part._cache_size() for part in parts]
    other = mp.release(np.random.default_rng(9).standard_normal((3, 55)), epsilon=0.5, unsafe_seed=1)
    shared_covariance(other, **FAST)
    assert [part._cache_size() for part in parts] == compiled


@pytest.mark.parametrize("name", LAWS)
def test_single_precision_has_the_same_slope(name):
    rng = np.random.default_rng(1)
    observed = observe(simulate(rng, LAWS[name])[-1], LAWS[name], M, phi=PHI)
    flat = 0.7 * rng.standard_normal(2 + D * (D + 1) // 2)
    slope = jax.grad(lambda flat, observed: log_density(model.full, (observed,), {}, sites(flat))[0])
    steps = 1e-5 * np.eye(len(flat))  # central differences in double precision: the density is compiled above
    exact = np.array([density(flat + e, observed)[0] - density(flat - e, observed)[0] for e in steps]) / 2e-5
    with jax.enable_x64(False):
        single = quickly(slope)(flat.astype(np.float32), jax.tree.map(np.float32, observed))
    assert single.dtype == np.float32
    assert_allclose(single, exact, rtol=1e-3, atol=1e-3 * np.abs(exact).max())


@LONG
def test_single_precision_gives_the_same_posterior(release, posterior):
    with jax.enable_x64(False):
        single = shared_covariance(release, **FAST)
    one, other = (p.to_arviz()["posterior/spectrum"].values for p in (posterior, single))
    assert_allclose(one.mean((0, 1)), other.mean((0, 1)), atol=FAR * one.std((0, 1)).max() / np.sqrt(60))


def test_the_same_seed_gives_the_same_posterior(release, posterior):
    again = shared_covariance(release, **FAST)
    assert_allclose(again.omega, posterior.omega, rtol=1e-10)


def test_bad_arguments_are_named(release):
    with pytest.raises(ValueError, match="structure: expected one of 'auto', 'full'"):
        shared_covariance(release, structure="sparse")
    with pytest.raises(ValueError, match="draws: expected a whole number >= 1, got 0"):
        shared_covariance(release, draws=0)
    with pytest.raises(ValueError, match="release: expected a Release, got ndarray"):
        shared_covariance(np.eye(3))
