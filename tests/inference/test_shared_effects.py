"""The public posterior of average effects and their spread, against simulated tasks, and against laws in closed form."""

from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from helpers.effort import effort
from helpers.quickly import quickly
from numpyro.handlers import substitute
from numpyro.infer.util import log_density as log_density_of
from scipy.stats import halfnorm, kstest, norm

import mpmtl_prob as mp
from mpmtl_prob import Reference
from mpmtl_prob.inference import EffectsPrior, SharedEffects, Until, observed_effects, shared_effects
from mpmtl_prob.inference.owner.effects import _Public
from mpmtl_prob.inference.owner.sent_messages import as_sent
from mpmtl_prob.inference.public.effects import _ACCEPTANCE
from mpmtl_prob.inference.public.effects_draws import start_of
from mpmtl_prob.models import effects as model
from mpmtl_prob.models.effects_release import ACCURACY
from mpmtl_prob.privacy.mechanisms import Gaussian, Wishart
from mpmtl_prob.releases.effects import CONSTANTS, EffectsLayout
from mpmtl_prob.sampling.calibration import chain_for_each, uniformity
from mpmtl_prob.sampling.nuts import kernel

D, M = 2, 30
LAYOUT = EffectsLayout(("a", "b"), Reference.standard(["a", "b"]))
ONE_EFFECT = EffectsLayout(("a",), Reference.standard(["a"]))
PRIOR = EffectsPrior()
THIN = effort(8, 20)
#: Noise that hides a lot, and noise that hides little, of both kinds.
LAWS = {
    "gaussian": Gaussian(D + 2, 1.0),
    "wishart": Wishart(D + 2, 12.0, 0.3),
    "little noise": Gaussian(D + 2, 0.1),
}


@pytest.fixture(scope="module", autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def drawn_shape(rng, structure, prior, d):
    """The spread of effects over tau^2 / d, (d, d), by NumPy alone."""
    if d == 1:
        return np.eye(1)
    cauchy = lambda n: np.abs(rng.standard_cauchy(n))
    if structure == "group_sparse":
        size = 1 + cauchy(d) ** 2
        return np.diag(d * size / size.sum())
    if structure == "low_rank":
        rank = min(model.MAX_RANK, d)
        H = rng.standard_normal((d, rank)) * cauchy(rank)
        shape = np.eye(d) + H @ H.T / d
        return d * shape / np.trace(shape)
    uneven = 1 / (1 + np.exp(-(logit(prior.correlation) + 1.5 * rng.standard_normal())))
    if structure == "diagonal":
        return np.diag(np.exp(2 * uneven * rng.standard_normal(d)))
    c, L = uneven * np.sqrt(0.95 / (d - 1)), np.zeros((d, d))
    for i in range(d):
        size = np.sqrt(1 - c**2 * i)
        L[i, i] = size * np.exp(c * rng.standard_normal() / (np.sqrt(2) * size))
        L[i, :i] = c * rng.standard_normal(i)
    return L @ L.T


def logit(p):
    return np.log(p / (1 - p))


def drawn_parameters(rng, structure="full", prior=PRIOR, d=D):
    """mu, Omega and accuracy from the prior, by NumPy alone."""
    weight = np.exp(np.log(model.LENGTHS) - 0.5 * model.LENGTHS**2)
    length = rng.choice(model.LENGTHS, p=weight / weight.sum()) * prior.average
    mu = length / np.sqrt(d) * rng.standard_normal(d)
    tau = np.exp(np.log(prior.spread) + np.log(prior.spread_factor) * rng.standard_normal()) / np.sqrt(d)
    Omega = tau**2 * drawn_shape(rng, structure, prior, d)
    level = (
        logit(prior.determined)
        + 1.5 * rng.standard_normal()
        + np.abs(0.5 * rng.standard_normal()) * rng.standard_normal(d)
    )
    spread = np.abs(0.5 * rng.standard_normal())
    errors = np.exp(prior.errors * np.mean(1 / (1 + np.exp(level))) * rng.standard_normal())
    return mu, Omega, model.Accuracy(level, spread, errors)


def drawn_messages(rng, mu, Omega, accuracy, m=M, layout=LAYOUT):
    """Messages (D, m) of m tasks of the model, each scaled to length one exactly."""
    d, (level, spread, errors) = len(mu), accuracy
    p = 1 / (1 + np.exp(-(level + spread * rng.standard_normal((m, 1)))))
    beta = mu + rng.standard_normal((m, d)) @ np.linalg.cholesky(Omega).T
    eta = p * beta + np.sqrt(errors * layout.effect_variance * p * (1 - p)) * rng.standard_normal((m, d))
    u = np.hstack([layout.effect_size * eta, layout.determined_size * p @ layout.averages.T, np.ones((m, 1))])
    return (u / np.linalg.norm(u, axis=1, keepdims=True)).T


def drawn_noise(rng, law):
    """Noise of a law less its mean, by NumPy alone."""
    n = law.num_features
    E = rng.standard_normal((n, n))
    if isinstance(law, Gaussian):
        return law.sd * (E + E.T) / np.sqrt(2)
    Z = rng.standard_normal((n, int(law.df)))
    return law.scale * (Z @ Z.T - law.df * np.eye(n))


def as_read(sigma, law, m=M, layout=LAYOUT):
    """Return what the model reads of a noisy sum less its mean, as :func:`observed_effects` has it of a release."""
    release = mp.Release(
        sigma[None] + law.mean,
        (law,), m, layout.coordinates, mp.privacy.Guarantee(None, None, "a test"), "effects", "none", "", effects=layout,
    )  # fmt: skip
    return observed_effects(release)


def simulated(law, replications, *, structure="full", m=M, layout=LAYOUT):
    """True values, and what the model reads of releases of tasks of which they are true."""
    rng = np.random.default_rng(1)
    truths, data = [], []
    while len(data) < replications:
        mu, Omega, accuracy = drawn_parameters(rng, structure, d=len(layout.coefficients))
        W = drawn_messages(rng, mu, Omega, accuracy, m, layout)
        sigma = W @ W.T + drawn_noise(rng, law)
        if law.positive_definite and np.linalg.eigvalsh(sigma + law.mean)[0] <= 0:
            continue
        data.append(as_read(sigma, law, m, layout))
        truths.append((mu, Omega, accuracy.level))
    return truths, data


def ranks(
    law,
    replications,
    *,
    structure="full",
    m=M,
    layout=LAYOUT,
    warmup=150,
    draws=19,
    thin=THIN,
    believed=lambda seen: seen,
):
    """Ranks of true values among posterior draws: uniform where the posterior is right."""
    truths, data = simulated(law, replications, structure=structure, m=m, layout=layout)
    data = [believed(seen) for seen in data]
    posterior_draws, _ = chain_for_each(
        kernel(model.model_of(structure), _ACCEPTANCE),
        data,
        start=lambda seen: start_of(seen, structure),
        warmup=warmup,
        draws=draws,
        thin=thin,
    )
    return ranks_among(posterior_draws, truths)


def ranks_among(posterior_draws, truths):
    """Rank true values, (replications,) by functional, among draws (replication, draw, ...)."""
    of = lambda mu, Omega, level: {
        "mu": mu[..., 0],
        "length of mu": np.linalg.norm(mu, axis=-1),
        "size": np.log(np.trace(Omega, axis1=-2, axis2=-1)),
        "ratio": np.log(Omega[..., 0, 0] / Omega[..., -1, -1]),
        "accuracy": np.asarray(level).mean(axis=-1),
    }
    drawn = of(posterior_draws["mu"], posterior_draws["Omega"], posterior_draws["determined"])
    true = of(*(np.array(part) for part in zip(*truths, strict=True)))
    return {name: (drawn[name] < true[name][:, None]).sum(axis=1) for name in drawn}


@pytest.mark.parametrize(
    "noise", ["wishart", *(pytest.param(name, marks=pytest.mark.evidence) for name in ("gaussian", "little noise"))]
)
def test_posterior_is_calibrated_on_simulated_tasks(noise):
    ranks_by_name = ranks(LAWS[noise], effort(40, 400))
    assert min(uniformity(rank) for rank in ranks_by_name.values()) > 1e-3


@pytest.mark.parametrize("sd", [1.0, pytest.param(0.3, marks=pytest.mark.evidence)])
def test_posterior_of_a_single_effect_is_calibrated(sd):
    """A single effect: messages differ most in length, so that a first-order variance made intervals too narrow."""
    ranks_by_name = ranks(Gaussian(3, sd), effort(40, 400), layout=ONE_EFFECT)
    del ranks_by_name["ratio"]
    assert min(uniformity(rank) for rank in ranks_by_name.values()) > 1e-3


@pytest.mark.parametrize(
    "structure",
    ["low_rank", *(pytest.param(name, marks=pytest.mark.evidence) for name in ("group_sparse", "diagonal"))],
)
def test_posterior_of_every_structure_is_calibrated(structure):
    ranks_by_name = ranks(LAWS["wishart"], effort(20, 400), structure=structure)
    assert min(uniformity(rank) for rank in ranks_by_name.values()) > 1e-3


def test_calibration_catches_a_tenth_of_the_noise():
    """The calibration catches a likelihood with a tenth of the noise."""
    ranks_by_name = ranks(
        LAWS["wishart"],
        effort(20, 100),
        believed=lambda seen: seen._replace(noise_variance=seen.noise_variance / 100),
    )
    assert min(uniformity(rank) for rank in ranks_by_name.values()) < 1e-3


@lru_cache
def law_of_entries(layout=LAYOUT):
    """Parameters, and the messages of many tasks with them, by simulation."""
    rng = np.random.default_rng(0)
    d = len(layout.coefficients)
    size = min(1.0, np.sqrt(2 / d))
    mu, Omega = size * np.resize([0.5, -0.2], d), np.diag(size**2 * np.resize([0.08, 0.05], d))
    if d == 2:
        Omega[0, 1] = Omega[1, 0] = 0.03
    accuracy = model.Accuracy(np.resize([1.5, 0.7], d), 0.4, 0.8)
    return (mu, Omega, accuracy), drawn_messages(rng, mu, Omega, accuracy, m=400_000, layout=layout)


def test_expected_second_moment_is_that_of_simulated_messages():
    (mu, Omega, accuracy), W = law_of_entries()
    seen = as_read(M * np.eye(D + 2) / (D + 2), LAWS["gaussian"])
    centres, covariance = model._law_of_messages(seen, jnp.asarray(mu), jnp.asarray(Omega), accuracy)
    mean = model._mean_of_products(seen, centres, covariance)
    assert np.allclose(mean, W @ W.T / W.shape[1], atol=4e-3)


@pytest.mark.parametrize(
    ("coefficients", "outcome", "share"),
    [("a", "number", 1 / 10), ("ab", "number", 1 / 5), ("ab", "binary", 1 / 10), ("abcdefg", "number", 1 / 3)],
)
def test_log_likelihood_is_the_joint_normal_law_of_all_entries(coefficients, outcome, share):
    """The log likelihood is the normal law of all entries of the sum together.

    Beside simulated sums: the mean and the whole covariance of the entries, by simulation, in a normal law. What is left for
    few effects are errors of quadrature, and for seven what scaling to length one leaves beyond first order.
    """
    layout = EffectsLayout(tuple(coefficients), mp.Reference.standard(tuple(coefficients)), *CONSTANTS[outcome])
    (mu, Omega, accuracy), W = law_of_entries(layout)
    D2 = len(coefficients) + 2
    law = Gaussian(D2, 1.0)
    m = 200
    i, j = np.tril_indices(D2)
    products = W[i] * W[j]
    mean, covariance = m * products.mean(axis=1), m * np.cov(products) + law.sd**2 * np.diag(1.0 + (i == j))
    likelihood = quickly(model.log_likelihood)
    ours, exact = [], []
    for sigma in np.random.default_rng(1).multivariate_normal(mean, covariance, size=20):
        full = np.zeros((D2, D2))
        full[i, j] = full[j, i] = sigma
        seen = as_read(full, law, m, layout)
        ours.append(float(likelihood(seen, jnp.asarray(mu), jnp.asarray(Omega), accuracy)))
        off = sigma - mean
        exact.append(-0.5 * off @ np.linalg.solve(covariance, off))
    difference = np.array(ours) - np.array(exact)
    assert np.std(difference) < np.std(exact) * share


@pytest.mark.parametrize("few", [0, 7], ids=["principal axes", "all entries"])
def test_gradient_is_right_where_principal_axes_are_not_unique(monkeypatch, few):
    """Two effects alike: eigenvalues are equal, and eigenvectors anything; finite differences are the judge."""
    monkeypatch.setattr(model, "FEW_NUMBERS", few)
    seen = as_read(M * np.eye(D + 2) / (D + 2), LAWS["little noise"])
    accuracy = model.Accuracy(jnp.full(D, 1.0), jnp.asarray(0.3), jnp.asarray(1.0))
    value = quickly(lambda x: model.log_likelihood(seen, x[:D], jnp.diag(x[D:]), accuracy))
    slope = quickly(jax.grad(lambda x: model.log_likelihood(seen, x[:D], jnp.diag(x[D:]), accuracy)))
    x, h = np.array([0.3, 0.3, 0.1, 0.1]), 1e-5
    steps = h * np.eye(2 * D)
    differences = [(value(x + step) - value(x - step)) / (2 * h) for step in steps]
    assert np.allclose(slope(x), differences, rtol=1e-4, atol=1e-3)


def test_sizes_of_the_spread_are_log_normal():
    """Sizes of the spread are log-normal, whatever coordinate they are sampled in.

    By quadrature over the coordinate: the law's weight, median and quartile.
    """
    prior = EffectsPrior(spread=0.4, spread_factor=3.0)
    sized = lambda: model._sizes(prior, 1)

    def law(site):
        log_density, trace = log_density_of(sized, (), {}, {"size": site[None]})
        return log_density, trace["log_tau"]["value"][0]

    grid = np.linspace(-15.0, 60.0, 20_001)
    log_density, log_tau = (np.asarray(part) for part in jax.vmap(law)(grid))
    weight = np.exp(log_density) * (grid[1] - grid[0])
    assert np.isclose(weight.sum(), 1.0, atol=1e-3)
    below = lambda value: weight[np.asarray(log_tau) < value].sum()
    assert np.isclose(below(np.log(0.4)), 0.5, atol=2e-3)
    assert np.isclose(below(np.log(0.4 * 3.0)), norm.cdf(1), atol=2e-3)


def test_half_normal_numbers_are():
    z = np.random.default_rng(0).standard_normal(200_000)
    drawn = lambda site: substitute(lambda: model._half_normal("x", 0.5), {"x_site": site})()
    values = np.asarray(jax.vmap(drawn)(z))
    assert kstest(values, halfnorm(scale=0.5).cdf).pvalue > 1e-3


@pytest.fixture(scope="module")
def shared():
    rng = np.random.default_rng(0)
    X = [rng.standard_normal((40, D)) for _ in range(60)]
    y = [x @ (np.array([0.6, -0.3]) + 0.2 * rng.standard_normal(D)) + 0.7 * rng.standard_normal(40) for x in X]
    tasks = mp.TaskData.from_lists(X, y, features=["a", "b"])
    release = mp.release(tasks, 3.0, reference=LAYOUT.reference, unsafe_seed=1)
    return shared_effects(release, warmup=200, progress_bar=False)


def test_average_effects_are_near_the_truth_and_say_how_near(shared):
    table = shared.average_effects()
    assert list(table.index) == ["a", "b"]
    assert np.all(np.abs(table["mean"] - [0.6, -0.3]) < 4 * table["sd"])
    assert np.all(table["sd"] < 0.15)
    assert table["positive"]["a"] > 0.95 > 0.05 > table["positive"]["b"]
    assert np.all((table["tau_lower"] < table["tau"]) & (table["tau"] < table["tau_upper"]))
    assert np.all((table["i2"] > 0) & (table["i2"] < 1))


def test_a_contrast_is_the_difference_of_its_effects(shared):
    contrast = shared.contrasts({"a less b": {"a": 1, "b": -1}})
    table = shared.average_effects()
    assert np.isclose(contrast["mean"]["a less b"], table["mean"]["a"] - table["mean"]["b"])


def test_covariance_of_a_release_of_effects_is_that_of_effects(shared):
    """The shared covariance of a release of effects is the covariance of effects."""
    covariance = mp.inference.shared_covariance(shared.release, warmup=200, progress_bar=False)
    assert isinstance(covariance, SharedEffects)
    assert np.array_equal(covariance.draws("Omega"), shared.draws("Omega"))
    with pytest.raises(ValueError, match=r"structure: expected one of .full., .diagonal.*got .paper."):
        mp.inference.shared_covariance(shared.release, structure="paper")


def test_shape_and_subspace_are_those_of_omegas_draws(shared):
    """The shape and the subspace of the effects are those of the draws of Omega."""
    Omega = shared.draws("Omega")
    assert np.allclose(shared.omega, np.mean([D * draw / np.trace(draw) for draw in Omega], axis=0))
    leading = shared.subspace(1)
    U = np.linalg.svd(Omega)[0][:, :, 0]
    assert np.allclose(leading.projector, np.einsum("si,sj->ij", U, U) / len(U))
    assert list(leading.projector["feature"].values) == ["a", "b"]


def test_a_new_task_is_less_certain_than_the_average(shared):
    assert np.all(shared.new_task()["sd"] > shared.average_effects()["sd"])


def test_effects_are_in_the_tables_units_whatever_those_are(shared):
    """Metres in place of centimetres: messages are the same to the last bits, effects a hundred times."""
    rng = np.random.default_rng(2)
    X = [rng.standard_normal((20, D)) for _ in range(12)]
    y = [x @ [0.6, -0.3] + rng.standard_normal(20) for x in X]
    hundred = Reference({"a": (0, 100), "b": (0, 1)}, target=(0, 1))
    plain = mp.TaskData.from_lists(X, y, features=["a", "b"])
    scaled = mp.TaskData.from_lists([x * [100, 1] for x in X], y, features=["a", "b"])
    one = mp.release(plain, 3.0, reference=LAYOUT.reference, unsafe_seed=0)
    other = mp.release(scaled, 3.0, reference=hundred, unsafe_seed=0)
    assert np.abs(one.sigma - other.sigma).max() <= 20 * one.lattice


def test_file_holds_the_posterior(shared, tmp_path):
    shared.save(tmp_path / "effects.nc")
    loaded = SharedEffects.load(tmp_path / "effects.nc")
    assert np.allclose(loaded.draws("mu"), shared.draws("mu"), rtol=1e-6)
    assert loaded.average_effects().round(5).equals(shared.average_effects().round(5))
    assert loaded.prior == shared.prior
    with pytest.raises(ValueError, match="no chains to go on from"):
        loaded.extend(10)
    with xr.open_datatree(tmp_path / "effects.nc") as stored:
        assert stored["posterior/Omega"].shape[2:] == (D * (D + 1) // 2,)
    assert np.allclose(loaded.draws("Omega"), shared.draws("Omega"), rtol=1e-6, atol=1e-6)


def test_more_draws_go_on_from_where_chains_stopped(shared):
    more = shared.extend(50, progress_bar=False)
    assert more.num_draws == shared.num_draws + 50
    assert np.array_equal(more._tree["posterior/mu"].values[:, : shared.num_draws], shared._tree["posterior/mu"].values)


def test_until_stops_as_soon_as_there_is_enough(shared):
    stopped = shared_effects(shared.release, warmup=200, until=Until(ess=100), progress_bar=False)
    assert stopped.num_draws < 300


def test_arviz_reads_the_tree(shared):
    import arviz_stats

    summary = arviz_stats.summary(shared.to_arviz(), var_names=["average_effect"])
    assert list(summary.index) == ["average_effect[a]", "average_effect[b]"]
    sensitivity = shared.sensitivity()
    assert {"prior", "likelihood"} <= set(sensitivity.columns)


def test_a_release_that_says_nothing_is_said_to_say_nothing():
    rng = np.random.default_rng(0)
    tasks = mp.TaskData.from_lists(
        [rng.standard_normal((9, D)) for _ in range(12)], [rng.standard_normal(9) for _ in range(12)]
    )
    release = mp.release(tasks, 1e-3, reference=Reference.standard(2), unsafe_seed=0)
    posterior = shared_effects(release, warmup=200, progress_bar=False)
    assert "next to nothing of average effects" in str(posterior.diagnose())


def test_a_release_of_directions_has_no_average_effects(shared):
    rng = np.random.default_rng(0)
    tasks = mp.TaskData.from_lists(
        [rng.standard_normal((9, D)) for _ in range(12)], [rng.standard_normal(9) for _ in range(12)]
    )
    with pytest.raises(ValueError, match=r"expected one of messages of effects.*reference="):
        shared_effects(mp.release(tasks, 1.0))


@pytest.mark.parametrize(
    ("prior", "words"),
    [
        (EffectsPrior(average=0.0), "prior: average"),
        (EffectsPrior(spread=-1.0), "prior: spread"),
        (EffectsPrior(spread_factor=0.5), "prior: spread_factor"),
        (EffectsPrior(correlation=1.5), "prior: correlation"),
        ({"average": 1.0}, "expected an EffectsPrior"),
    ],
)
def test_a_prior_outside_its_range_is_named(shared, prior, words):
    with pytest.raises(ValueError, match=words):
        shared_effects(shared.release, prior=prior)


def test_a_wider_prior_of_the_average_moves_it_away_from_zero(shared):
    narrow = shared_effects(shared.release, prior=EffectsPrior(average=0.1), warmup=200, progress_bar=False)
    assert abs(narrow.average_effects()["mean"]["a"]) < abs(shared.average_effects()["mean"]["a"])


def study(seed, m=40, n=12):
    """A release of some tasks of one kind."""
    rng = np.random.default_rng(seed)
    beta = np.array([0.6, -0.3]) + 0.2 * rng.standard_normal((m, 2))
    X = [rng.standard_normal((n, 2)) for _ in range(m)]
    y = [x @ b + 0.7 * rng.standard_normal(n) for x, b in zip(X, beta, strict=True)]
    tasks = mp.TaskData.from_lists(X, y, features=["a", "b"])
    return tasks, mp.release(tasks, 1.0, reference=mp.Reference.standard(["a", "b"]), unsafe_seed=seed)


SHORT = {"chains": 2, "warmup": 150, "draws": 150, "progress_bar": False}


@pytest.fixture(scope="module")
def of_two():
    (tasks, first), (_, second) = study(1), study(2)
    return tasks, first, second, mp.inference.shared_effects([first, second], **SHORT)


def test_two_releases_say_more_than_one(of_two):
    """Two consortia of one kind have the sum of their log likelihoods, so that variances are about half."""
    _, first, second, both = of_two
    sd = [mp.inference.shared_effects(each, **SHORT).average_effects()["sd"].mean() for each in (first, second)]
    assert 0.55 < both.average_effects()["sd"].mean() / np.mean(sd) < 0.9
    assert both.num_tasks == 80


def test_two_releases_have_the_same_effects_and_an_accuracy_each():
    """Their joint density is the first's, times the likelihood of the second and the prior of its own accuracy."""
    seen = [observed_effects(study(seed)[1]) for seed in (1, 2)]
    start = start_of(seen[0], "full", seen[1:]) | {
        "other_0/level": np.array([0.4]),
        "other_0/levels": np.array([0.3, -0.2]),
        "other_0/errors_site": 0.7,
    }
    one = {name: value for name, value in start.items() if not name.startswith("other_0")}
    sample = model.model_of("full")
    of_both = log_density_of(sample, (seen[0], (seen[1],)), {}, start)[0]
    of_first, trace = log_density_of(sample, (seen[0],), {}, one)
    sd, spread = (-0.5 * model.ndtri(0.5 * norm.cdf(0.5)) for _ in range(2))
    level = 0.4 + sd * start["other_0/levels"]
    accuracy = model.Accuracy(level, spread, np.exp(PRIOR.errors * np.mean(1 / (1 + np.exp(level))) * 0.7))
    of_second = model.log_likelihood(seen[1], trace["mu"]["value"], trace["Omega"]["value"], accuracy)
    logit = np.log(0.73 / 0.27)
    prior = norm.logpdf(0.4, logit, 1.5) + norm.logpdf([0.3, -0.2]).sum() + 2 * norm.logpdf(-0.5) + norm.logpdf(0.7)
    assert float(of_both) == pytest.approx(float(of_first + of_second) + prior, rel=1e-9)


def test_owners_leave_their_message_out_of_their_own_release(of_two):
    """Owners leave their message out of the release that they are in, and of no other."""
    tasks, first, second, both = of_two
    public = _Public(both, 300)
    log_weight, _ = public.leave_one_out(tasks)
    v = as_sent(tasks, first)[:, 0]
    accuracy = [both.draws(name)[public.pick] for name in ACCURACY]

    @quickly
    @partial(jax.vmap, in_axes=(None, None, 0, 0, 0))
    def log_likelihood(seen, sigma, mu, Omega, accuracy):
        return model.log_likelihood(seen._replace(sigma=sigma), mu, Omega, model.Accuracy(*accuracy))

    def log_ratio(release):
        """Compute log p(the release without the message | draw) - log p(the release | draw)."""
        seen = observed_effects(release)
        rest = seen._replace(num_tasks=seen.num_tasks - 1)
        draws = public.mu, public.Omega, accuracy
        return log_likelihood(rest, seen.sigma - np.outer(v, v), *draws) - log_likelihood(seen, seen.sigma, *draws)

    of_own, of_other = (np.corrcoef(log_weight[0], log_ratio(release))[0, 1] for release in (first, second))
    assert of_own > 0.99 > of_other
    own = mp.inference.task_posteriors(tasks, both)
    assert own.to_arviz().attrs["own_message"] == "out"
    assert np.isfinite(own.W).all()


def test_a_file_holds_all_releases(of_two, tmp_path):
    *_, second, both = of_two
    both.save(tmp_path / "both.nc")
    again = mp.inference.SharedEffects.load(tmp_path / "both.nc")
    assert [each.sigma.tolist() for each in again.others] == [second.sigma.tolist()]
    again.save(tmp_path / "again.nc")
    assert mp.inference.SharedEffects.load(tmp_path / "again.nc").num_tasks == 80
    assert "2" in both._repr_html_()


def test_the_order_of_releases_is_that_of_their_numbers(of_two):
    _, first, second, both = of_two
    tree = both.as_stored()
    zeroth = tree["other_release_0"].copy()
    del tree["other_release_0"]
    tree["other_release_1"] = xr.DataTree(first.to_xarray())
    tree["other_release_0"] = zeroth
    others = mp.inference.SharedEffects.from_tree(tree).others
    assert [release.sigma.tolist() for release in others] == [second.sigma.tolist(), first.sigma.tolist()]


def test_releases_of_other_units_are_refused():
    tasks, first = study(1)
    other = mp.release(tasks, 1.0, reference=mp.Reference({"a": (0, 2), "b": (0, 1)}), unsafe_seed=0)
    with pytest.raises(ValueError, match="in the same units in all releases, got others in release 2"):
        mp.inference.shared_effects([first, other])
    with pytest.raises(ValueError, match="release: expected a Release, got TaskData"):
        mp.inference.shared_effects([first, tasks])
