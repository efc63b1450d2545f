"""Adaptation by one release of moments: the posterior, its calibration, its limits."""

import warnings
from dataclasses import replace

import jax
import numpy as np
import pytest
from helpers.effort import effort
from helpers.tolerances import FAR, RARE
from numpyro.infer.util import log_density
from scipy import stats
from scipy.special import logsumexp, ndtr

from mpmtl_prob.adaptation import (
    AdaSSP,
    Ball,
    CnvxAdap,
    Domain,
    MomentAdaptation,
    NCnvxAdap,
    NetworkAdap,
    NoisyGradient,
    WarmDescent,
    infer,
    release_moments,
    tilted,
)
from mpmtl_prob.adaptation.data import problems
from mpmtl_prob.adaptation.moments import grid_posterior as conditional
from mpmtl_prob.adaptation.moments import shift_model
from mpmtl_prob.adaptation.moments.clipping import moments
from mpmtl_prob.adaptation.moments.feature_moment import Shape
from mpmtl_prob.adaptation.moments.grid_posterior import SIGMA_SPREAD, TAUS, Prior, _Explained, posterior
from mpmtl_prob.adaptation.moments.release import LONGEST, MomentRelease, rows
from mpmtl_prob.adaptation.paper.discrepancy import discrepancy
from mpmtl_prob.adaptation.public_fit import robust
from mpmtl_prob.privacy import Gaussian
from mpmtl_prob.privacy.guarantee import NOT_PRIVATE
from mpmtl_prob.sampling.calibration import uniformity

#: bounds of data that are made to keep to them, so that weights and release are in their units
AS_THEY_COME = {"row_bound": 1.0, "target_bound": 1.0}

RNG = np.random.default_rng(3)
DATA = problems.shifted((400, 150), 0.5, num_features=3, tests=400, seed=2)


def test_without_noise_it_is_least_squares_with_its_covariance():
    data = problems.shifted((400, 3000), 0.4, num_features=3, tests=10, seed=3)
    model = MomentAdaptation(**AS_THEY_COME, epsilon=1e5, delta=0.5, residual_bound=2.0, draws=2000).fit(
        data.source, data.target
    )
    X, y = data.target.X, data.target.y
    exact_fit = np.linalg.solve(X.T @ X, X.T @ y)
    covariance = np.linalg.inv(X.T @ X) * np.mean((y - X @ exact_fit) ** 2)
    sd = np.sqrt(np.diag(covariance))
    assert np.all(np.abs(model.coef_ - exact_fit) < 0.3 * sd)
    np.testing.assert_allclose(model.posterior_.w.std(0), sd, rtol=0.1)
    assert model.posterior_.sigma.mean() == pytest.approx(0.15, rel=0.05)
    exact_value = discrepancy(model.release_.ball(0.2).difference(data.source, data.target), 0.2).value
    assert model.release_.discrepancy(data.source, 0.2).value == pytest.approx(exact_value, rel=0.02)
    np.testing.assert_allclose(model.release_.ridge(), exact_fit, atol=0.02)


def test_without_information_it_is_the_public_fit():
    model = MomentAdaptation(**AS_THEY_COME, epsilon=1e-3, delta=1e-6, unsafe_seed=0, draws=1000).fit(
        DATA.source, DATA.target
    )
    error = lambda w: np.mean((DATA.test.y - DATA.test.X @ w) ** 2)
    grid = posterior(model.release_, model.prior_)
    assert error(grid.mean) <= error(robust(DATA.source).w) * 1.005
    assert 0.9 < grid.weights[:2].sum() < 0.998  # .98 before, with slopes as they are and with others


def test_a_domain_counts_in_two_ways_and_is_as_likely_as_before():
    prior = prior_of(3)
    both = prior.rescaled(0.5 * prior.sigma)
    np.testing.assert_allclose(both.means, [[0.3] * 3, [0.2] * 3, [0.0] * 3])
    odds = np.exp(both.log_odds)
    np.testing.assert_allclose([odds[:2].sum(), odds[2]], [0.98, 0.02])
    assert odds[:1] @ both.same[:1] == pytest.approx(0.98 * prior.same[0])  # its weights as they are
    assert np.all(np.linalg.eigvalsh(both.covariances[1] - both.covariances[0]) > -1e-12)


def seen_in(unit):
    """Return, for targets times a unit, prior variances, differences of the chains' log density, and the public fit."""
    data = problems.shifted((400, 150), 0.5, num_features=2, tests=1, seed=2)
    source, target = (Domain(each.X, each.y * unit) for each in (data.source, data.target))
    model = MomentAdaptation(epsilon=3.0, delta=1e-3, row_bound=1.0, target_bound=unit, unsafe_seed=0, draws=2).fit(
        source, target
    )
    seen = shift_model.observe(model.release_, posterior(model.release_, model.prior_))
    rng = np.random.default_rng(0)
    values = {
        name: np.stack([each] * 10) + 0.3 * rng.standard_normal((10, *each.shape))
        for name, each in shift_model.start(seen).items()
    }
    values["bend"] = np.exp(values["bend"])
    return seen.values / unit**2, np.diff(densities(seen, values)), robust(source).w / unit


log_residuals = jax.jit(shift_model.log_residuals)


def residuals(seen, N, delta, sigma):
    """Their log density; of the numbers that it asks for, so that all tests of two features have one program."""
    asked = dict.fromkeys(seen._fields) | {
        k: np.asarray(getattr(seen, k)) for k in ("xr", "rr", "sd", "n", "c", "unit")
    }
    return float(log_residuals(shift_model.Observed(**asked), N, delta, np.float64(sigma)))


@jax.jit
def densities(seen, values):
    """Compute the log density that chains climb, at ten points of two features: compiled once."""
    return jax.vmap(lambda at: log_density(shift_model.model, (seen,), {}, at)[0])(values)


def test_the_unit_of_targets_does_not_matter():
    (values, density, fit), *others = (seen_in(unit) for unit in (1.0, 2.0**-30, 2.0**30))  # 1e-9 and 1e9
    for other in others:
        np.testing.assert_allclose(other[0], values, rtol=1e-9)
        np.testing.assert_allclose(other[1], density, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(other[2], fit, rtol=1e-9)


def prior_of(d):
    """A public prior with a shift that matters, and slopes that may go with sigma."""
    C = np.diag(np.linspace(0.12, 0.05, d))
    means, slopes = (np.stack([np.full(d, size), np.zeros(d)]) for size in (0.3, 0.2))
    return Prior(
        means,
        np.stack([1e-4 * np.eye(d), np.zeros((d, d))]),
        np.stack(2 * [np.eye(d)]),
        np.array([0.4, 2.0]),
        0.15,
        C,
        np.log([0.98, 0.02]),
        np.array([0.1, 0.0]),
        slopes,
    )


def of_moments(sigma, sd, n=60, c=0.5):
    """A release of these moments round zero, with noise of this size."""
    d = len(sigma) - 1
    law = Gaussian(d + 1, sd, LONGEST)
    return MomentRelease(sigma, law, n, np.zeros(d), c, 1.0, 1.0, tuple(range(d)), NOT_PRIVATE, 2.0**-9)


def simulate(seed, n=80, d=2, epsilon=3.0):
    """Truth and release of the model itself: shift, noise and features from their priors, then records."""
    rng, prior = np.random.default_rng(seed), prior_of(d)
    sigma = prior.sigma * np.exp(0.6 * rng.standard_normal())
    full = prior.rescaled(sigma)
    k = rng.choice(3, p=np.exp(full.log_odds))
    tau = full.scales[k] * abs(rng.standard_t(3))
    tau = TAUS[0] * full.scales[k] if rng.random() < full.same[k] else tau
    root = np.linalg.cholesky(full.covariances[k] + tau**2 / d * np.eye(d))
    w = full.means[k] + root @ rng.standard_normal(d)
    A = np.eye(d) + np.tril(0.2 * rng.standard_normal((d, d)) / np.sqrt(d))
    X = (
        rng.standard_normal((n, d))
        @ (np.linalg.cholesky(prior.second_moment) @ A).T
        * np.exp(0.3 * rng.standard_normal())
    )
    X /= np.maximum(1, np.linalg.norm(X, axis=1))[:, None]
    y = X @ w + sigma * rng.standard_normal(n)
    release = release_moments(
        (X, y), centre=prior.means[0], residual_bound=0.4, epsilon=epsilon, delta=1e-2, unsafe_seed=seed
    )
    return w, sigma, release, prior


@pytest.fixture(scope="module")
def simulated():
    return [simulate(seed) for seed in range(effort(60, 90))]


def ranks(simulated, change=lambda release: release):
    ranks_of_truth = []
    for i, (w, sigma, release, prior) in enumerate(simulated):
        post = infer(change(release), prior, ("source", "none"), draws=399, chains=1, seed=i)
        ranks_of_truth.append([*(post.w < w).sum(0), (post.sigma < sigma).sum()])
    return np.array(ranks_of_truth)


def test_intervals_cover_on_data_from_the_model(simulated):
    ranks_of_truth = ranks(simulated)
    for column in range(3):
        assert uniformity(ranks_of_truth[:, column], draws=399, bins=8) > RARE
    inside = (ranks_of_truth[:, :2] >= 20) & (ranks_of_truth[:, :2] < 380)
    assert inside.mean() > 0.9 - FAR * 0.25 / np.sqrt(len(ranks_of_truth))  # shares of one target's weights vary by .25


def test_calibration_catches_what_the_model_must_not_leave_out(simulated):
    """The test of calibration sees what the model must not leave out."""
    quiet = lambda release: replace(release, mechanism=replace(release.mechanism, sd=release.sd / 50))
    unaware = ranks(simulated[:50], quiet)  # of the noise
    assert min(uniformity(unaware[:, column], draws=399, bins=8) for column in range(3)) < 1e-5


@pytest.mark.parametrize("d", [1, 4])
def test_a_release_that_says_nothing_leaves_the_prior(d):
    """Also of shifts of many times the residuals: tau stopped at 1.5 of its scales, and sigma was twice what it should be."""
    prior = prior_of(d)._replace(scales=np.array([1.5, 6.0]))
    X = 0.3 * np.ones((60, d)) / np.sqrt(d)
    mute = release_moments(
        (X, X[:, 0]), centre=prior.means[0], residual_bound=8.0, epsilon=1e-6, delta=1e-8, unsafe_seed=0
    )
    grid = posterior(mute, prior)
    for k in range(3):
        before = np.exp(grid.prior.log_tau[k] + grid.prior.log_odds[k])
        assert np.abs(grid.weights[k].sum(axis=-1) - before).sum() < 0.05 * before.sum()
    w, _, tau, sigma = grid.draw(np.random.default_rng(0), 20_000)
    log_sigma = np.log(sigma / prior.sigma) / SIGMA_SPREAD
    assert abs(np.mean(log_sigma)) < 0.1
    assert np.std(log_sigma) == pytest.approx(1.0, abs=0.1)
    assert np.mean(np.sum((w - prior.means[0]) ** 2, axis=1)[tau > 15] / tau[tau > 15] ** 2) == pytest.approx(
        1, abs=0.3
    )


@pytest.mark.parametrize(
    "law", [(1e-8, 1e-20), (1.0, 2.0), (1.0, 0.1), (1.0, 1e-4), (100.0, 2e4), (100.0, 1.0), (9.0, 54.0)]
)
def test_residual_sizes_have_a_density_whatever_shifts_explain(law):
    """The size of residuals has a density, whatever a shift explains."""
    t = np.geomspace(0.02, 1000.0, 4000)
    q = _Explained(*(np.full(len(t), number) for number in law))
    density = np.exp(q.log_size(t**2, 1.0)) / (np.sqrt(2 * np.pi) * SIGMA_SPREAD)
    assert np.sum(density) * np.log(t[1] / t[0]) == pytest.approx(1, abs=0.01)


def test_the_sampler_and_the_grid_agree():
    data = problems.shifted((400, 300), 0.5, num_features=2, tests=10, seed=5)
    kw = {"epsilon": 3.0, "delta": 1e-2, "unsafe_seed": 2, "progress_bar": False}
    grid = MomentAdaptation(**kw).fit(data.source, data.target)
    nuts = MomentAdaptation(**kw, posterior="nuts", chains=2, warmup=150, draws=200).fit(data.source, data.target)
    assert nuts.posterior_.statistics["diverging"].sum() <= 12
    sd = grid.posterior_.w.std(0)
    assert np.all(np.abs(grid.coef_ - nuts.coef_) < 0.5 * sd)
    np.testing.assert_allclose(nuts.posterior_.w.std(0), sd, rtol=0.3)
    assert nuts.posterior_.sigma.mean() == pytest.approx(grid.posterior_.sigma.mean(), rel=0.1)
    taus = (nuts.prior_.scales[:, None] * TAUS).ravel()
    assert np.isclose(nuts.posterior_.tau[:, None], taus).any(axis=1).all()
    assert nuts.posterior_.domain_weights["source"] == pytest.approx(grid.posterior_.domain_weights["source"], abs=0.1)
    # the density of the residuals' moments is that of a normal of the moments above
    with jax.enable_x64(True):
        seen = shift_model.observe(grid.release_, posterior(grid.release_, grid.prior_))
        d, N, delta, sigma = 2, 300 * np.diag([0.06, 0.05]), np.array([0.2, 0.3]), 0.2
        q = delta @ N @ delta / 300
        clipped = moments(np.sqrt(q + sigma**2), seen.c, np, ndtr)
        mean = np.r_[clipped.kept * N @ delta, 300 * clipped.square]
        cross = clipped.common(q) * N @ delta
        xr = (
            clipped.along(q) * N
            + clipped.across(q) * np.outer(N @ delta, N @ delta) / 300
            + (seen.sd * seen.unit) ** 2 * np.eye(d)
        )
        full = np.block([[xr, cross[:, None]], [cross[None], 300 * clipped.spread(q) + 2 * seen.sd**2 * seen.unit**4]])
        from scipy.stats import multivariate_normal

        wanted = multivariate_normal(mean, full).logpdf(np.r_[seen.xr, seen.rr]) + 1.5 * np.log(2 * np.pi)
        assert residuals(seen, N, delta, sigma) == pytest.approx(wanted, rel=1e-6)


def test_the_samplers_density_is_that_of_its_laws():
    _, _, release, prior = simulate(0)
    rng, seen = np.random.default_rng(1), shift_model.observe(release, posterior(release, prior))
    shapes = {"factor": (), "bend": (), "diagonal": (2,), "below": (1,), "shift": (2,), "log_sigma": ()}
    covariances = seen.axes * seen.values[:, :, None] @ np.swapaxes(seen.axes, 2, 3)
    normal = [[stats.multivariate_normal(m, C) for C in each] for m, each in zip(seen.means, covariances, strict=True)]
    points = {name: np.abs(rng.standard_normal((10, *shape))) / 2 for name, shape in shapes.items()}
    for i, log_p in enumerate(densities(seen, points)):
        at = {name: each[i] for name, each in points.items()}
        A = np.diag(np.exp(at["bend"] / np.sqrt(2) * at["diagonal"]))
        A[1, 0] = at["bend"] / np.sqrt(2) * at["below"][0]
        half = seen.root @ A
        N, delta = 80 * np.exp(0.7 * at["factor"]) * half @ half.T, seen.centre + seen.coordinates @ at["shift"]
        wanted = residuals(seen, N, delta, prior.sigma * np.exp(at["log_sigma"]))
        wanted += logsumexp(seen.log_odds + [[law.logpdf(delta) for law in each] for each in normal])
        wanted += Gaussian(2, seen.sd).log_prob(seen.xx, N) + stats.t(4).logpdf(at["diagonal"]).sum()
        wanted += stats.norm.logpdf([at["factor"], *at["below"]]).sum() + stats.halfnorm(0, 0.5).logpdf(at["bend"])
        assert log_p == pytest.approx(wanted + stats.norm(0, 0.6).logpdf(at["log_sigma"]), rel=1e-8)


def test_sizes_of_residuals_weigh_what_likelihood_and_prior_say(monkeypatch):
    N, m, scale = 60 * np.diag([0.1, 0.05]), np.array([0.4, -0.3]), 0.3
    release = of_moments(np.block([[N, np.array([[1.5], [-1.0]])], [np.array([[1.5, -1.0, 9.0]])]]), 1.0)
    monkeypatch.setattr(conditional, "shape", lambda *_: Shape(N, np.zeros((2, 2)), np.eye(2)))  # features are known
    known = Prior(
        m[None], np.zeros((1, 2, 2)), np.eye(2)[None], np.array([1e-9]), scale, N / 60,
        np.zeros(1), np.zeros(1), np.zeros((1, 2)),
    )  # fmt: skip
    grid = posterior(release, known)  # of a shift that is known too
    sigma = np.sqrt(grid.sizes**2 - m @ N @ m / 60)
    with jax.enable_x64(True):
        seen = shift_model.observe(release, grid)
        log = np.array([residuals(seen, N, m, each) for each in sigma])
    # sizes are equally far apart in log t, and log sigma is normal
    log += np.log(grid.sizes**2 / sigma**2) - 0.5 * (np.log(sigma / scale) / conditional.SIGMA_SPREAD) ** 2
    expected = np.exp(log - log.max())
    np.testing.assert_allclose(grid.weights[0].sum(axis=0), expected / expected.sum(), rtol=1e-6)


def test_it_tells_which_public_domain_the_target_resembles():
    data = problems.two_sources((1000, 600), num_features=4, tests=300, seed=1)
    model = MomentAdaptation(epsilon=2.0, delta=1e-2, unsafe_seed=0).fit(data.sources, data.target)
    # 70 % of all records are good ones, so that the fit to all is not far from them
    assert model.posterior_.domain_weights["bad"] < 0.1 < model.posterior_.domain_weights["good"]
    assert sum(model.posterior_.domain_weights.values()) == pytest.approx(1.0)
    far = Domain(data.target.X, np.clip(-3 * data.target.y, -1, 1))
    other = MomentAdaptation(epsilon=20.0, delta=1e-2, unsafe_seed=0).fit(data.sources, far)
    assert other.posterior_.domain_weights["none"] > model.posterior_.domain_weights["none"]


def test_with_several_domains_all_of_them_together_are_one_more():
    data = problems.two_sources((600, 60), num_features=3, tests=10, seed=2)
    model = MomentAdaptation(**AS_THEY_COME, unsafe_seed=0, draws=10).fit(data.sources, data.target)
    assert model.posterior_.domains == ("bad", "good", "all", "none")
    np.testing.assert_allclose(model.prior_.means[2], robust(data.source).w, rtol=1e-9)
    np.testing.assert_array_equal(model.prior_.same, [0.2, 0.2, 0.2, 0.0])
    np.testing.assert_allclose(np.exp(model.prior_.log_tau).sum(axis=1), 1.0)
    with pytest.raises(ValueError, match="source: expected other names than 'all'"):
        MomentAdaptation().fit({"all": data.source, "more": data.source}, data.target)


def test_with_next_to_nothing_there_is_still_an_answer():
    none = (np.zeros((0, 3)), np.zeros(0))
    one = slice(0, 1)
    cases = [
        (DATA.source, none),
        (None, DATA.target),
        ((DATA.source.X[:, one], DATA.source.y), (DATA.target.X[:, one], DATA.target.y)),
        ((np.full((50, 2), 0.7), np.zeros(50)), (np.full((9, 2), 0.7), np.zeros(9))),
        ((DATA.source.X[:1], DATA.source.y[:1]), DATA.target),
    ]
    for source, target in cases:
        model = MomentAdaptation(**AS_THEY_COME, epsilon=1.0, delta=1e-2, draws=50).fit(source, target)
        assert np.all(np.isfinite(model.coef_))
        lower, upper = model.interval(np.ones((2, len(model.coef_))))
        assert np.all(lower < upper)
    assert MomentAdaptation(delta=1e-2, draws=50).fit(*cases[0]).coef_ == pytest.approx(robust(DATA.source).w, abs=0.3)


def test_adassp_on_residuals_of_a_public_fit():
    error = lambda fitted: np.mean((DATA.test.y - fitted.predict(DATA.test.X)) ** 2)
    fits = lambda **more: [
        error(AdaSSP(delta=1e-2, unsafe_seed=seed, **more).fit(DATA.source, DATA.target)) for seed in range(10)
    ]
    assert np.mean(fits(epsilon=1.0)) < np.mean(fits(epsilon=1.0, residuals=False))
    assert np.mean(fits(epsilon=50.0, residuals=False)) < 0.03
    tiny = AdaSSP(epsilon=0.01, delta=1e-2, unsafe_seed=1).fit(DATA.source, DATA.target)
    assert error(tiny) < 2 * np.mean((DATA.test.y - DATA.test.X @ tiny.release_.centre) ** 2)


def test_the_ridge_is_the_least_that_outweighs_the_noise():
    release = of_moments(np.array([[9.0, 0.0, 3.0], [0.0, 4.0, 1.0], [3.0, 1.0, 5.0]]), 2.0)
    size = 2.0 * np.sqrt(2 * np.log(2 * 2**2 / 0.1))  # more than 4, the least eigenvalue
    np.testing.assert_allclose(release.ridge(0.1), [3.0 / (9.0 + size - 4.0), 1.0 / size])


def test_tilted_weights_bring_moments_together():
    data = problems.shifted((2000, 4000), 0.0, num_features=3, tests=10, seed=6)
    seen = {"centre": np.array([0.4, -0.2, 0.1]), "residual_bound": 1.0}
    release = release_moments(data.target, epsilon=1e4, delta=0.5, **seen)
    weighted = tilted(release, data.source, scale=10.0)
    v = rows(data.source, release.centre, 1.0, 1.0, 2.0**-40)
    gap = lambda q: np.linalg.norm((v.T * q) @ v - release.sigma / 4000)
    assert gap(weighted.weights) < 0.1 * gap(np.full(2000, 1 / 2000))
    assert weighted.weights.sum() == pytest.approx(1.0)
    assert 100 < weighted.records < 2000
    loud = release_moments(data.target, epsilon=1e-5, delta=1e-9, unsafe_seed=0, **seen)
    assert tilted(loud, data.source, draws=3).records > 1500  # next to nothing is known: next to as it is
    assert isinstance(release.ball(1.0), Ball)


def tilting(sd, scale, draws):
    """A release with noise of this size of x and y tilted, every phi with mean 0 and sd 1, and q's log slopes by phi."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.7, 0.7, (200, 1))
    source = Domain(X, X[:, 0] + 0.2 * rng.standard_normal(200))
    release = of_moments(np.array([[9.0, 6.0], [6.0, 5.0]]), sd)
    v, (i, j) = rows(source, release.centre, 0.5, 1.0, 2.0**-40), np.tril_indices(2)
    phi = v[:, i] * v[:, j]
    middle, spread = phi.mean(axis=0), phi.std(axis=0)
    phi, z = (phi - middle) / spread, (release.sigma[i, j] / 60 - middle) / spread
    weighted = tilted(release, source, scale=scale, draws=draws)
    slopes = lambda q: np.linalg.lstsq(np.column_stack([phi, np.ones(200)]), np.log(q), rcond=None)[0][:3]
    noise = (sd * np.array([np.sqrt(2), 1, np.sqrt(2)]) / 60 / spread) ** 2
    return weighted, phi, z, noise, slopes


def test_tilted_weights_are_the_mode_of_their_law():
    weighted, phi, z, noise, slopes = tilting(sd=3.0, scale=2.0, draws=1)
    C = np.cov(phi.T, aweights=weighted.weights, ddof=0)
    pull = C @ np.linalg.solve(np.cov(phi.T, ddof=0) / 60 + np.diag(noise), z - weighted.weights @ phi)
    np.testing.assert_allclose(pull, slopes(weighted.weights) / 2.0**2, atol=1e-5)


def test_draws_of_tilted_weights_are_as_wide_as_the_prior():
    """Draws of tilted weights are as wide as the prior where nothing is known."""
    weighted, *_, slopes = tilting(sd=1e6, scale=0.3, draws=3000)
    np.testing.assert_allclose(slopes(weighted.draws.T).std(axis=1), 0.3, rtol=0.1)  # eight standard errors


def test_dependent_columns_are_no_doubt_about_the_public_fit():
    same = problems.shifted((600, 300), 0.0, num_features=3, tests=400, seed=4)
    twice = lambda records: Domain(np.hstack([records.X, records.X[:, :2]]) / np.sqrt(2), records.y)
    model = MomentAdaptation(epsilon=1.0, delta=1e-2, unsafe_seed=0).fit(twice(same.source), twice(same.target))
    assert model.prior_.covariances.max() < 1.0  # a variance of rounding errors would make any other domain likelier
    assert model.posterior_.domain_weights["source"] > 0.9
    error = np.mean((same.test.y - model.predict(twice(same.test).X)) ** 2)
    assert error < 1.1 * np.mean((same.test.y - same.test.X @ robust(same.source).w) ** 2)


UNITS = np.array([12.0, 0.01, 5e4])


def in_own_units(n, seed, private=0.0):
    """Age, a share and an income; a public table, or a private one of other weights."""
    rng = np.random.default_rng(seed)
    Z = rng.standard_normal((n, 3))
    X = np.array([40.0, 0.3, 2e5]) + UNITS * Z
    return X, 70.0 + X @ np.array([0.5, 200.0, 1e-4]) + private * Z @ np.array(
        [1.2, -1.0, 1.0]
    ) + 6.0 * rng.standard_normal(n)


def test_a_table_in_its_own_units_is_scaled_by_the_public_one():
    """By default; with bounds of 1 every row and target was cut, and intervals held nothing."""
    (X, y), private, test = in_own_units(1000, 0), in_own_units(500, 1, 1.0), in_own_units(500, 2, 1.0)
    model = MomentAdaptation(epsilon=1.0, delta=1e-3, intercept=True, unsafe_seed=0).fit((X, y), private)
    low, high = model.interval(test[0])
    covered = np.mean((low < test[1]) & (test[1] < high))
    assert abs(covered - 0.9) < FAR * np.sqrt(0.09 / 500) + 0.05
    assert np.mean((test[1] - model.predict(test[0])) ** 2) < 1.5 * 36.0
    # all of it is of public records: what the private ones are does not show in the noiseless part of what is published
    other = MomentAdaptation(epsilon=1.0, delta=1e-3, intercept=True, unsafe_seed=0).fit(
        (X, y), (private[0] * 1e3, -private[1])
    )
    for name in ("centre", "scale", "label_centre", "label_scale", "row_bound"):
        assert np.array_equal(getattr(model.scaling_, name), getattr(other.scaling_, name))
    for name in ("row_bound", "residual_bound", "sd", "lattice"):
        assert getattr(model.release_, name) == getattr(other.release_, name)


def test_units_of_the_table_change_only_units_of_weights():
    """Units of the table change nothing but the units of weights."""
    (X, y), (P, t) = in_own_units(300, 0), in_own_units(100, 1)
    units = np.array([2.0**-50, 2.0**20, 2.0**90])
    fit = lambda a, b: MomentAdaptation(epsilon=1.0, delta=1e-3, unsafe_seed=0, draws=20).fit(a, b)
    plain, moved = fit((X, y), (P, t)), fit((X * units, y * 2.0**60), (P * units, t * 2.0**60))
    assert np.array_equal(moved.release_.sigma, plain.release_.sigma)
    np.testing.assert_allclose(moved.posterior_.w * units / 2.0**60, plain.posterior_.w, rtol=1e-9)
    np.testing.assert_allclose(moved.posterior_.sigma / 2.0**60, plain.posterior_.sigma, rtol=1e-9)


def test_bounds_that_are_named_leave_the_table_as_it_is():
    model = MomentAdaptation(**AS_THEY_COME, epsilon=1.0, delta=1e-2, unsafe_seed=0, draws=20).fit(
        DATA.source, DATA.target
    )
    assert model.scaling_ is None
    assert model.release_.row_bound == 1.0
    np.testing.assert_array_equal(model.release_.centre, robust(DATA.source.bounded(1.0, 1.0)).w)


def test_only_bounds_that_cut_public_records_are_mentioned():
    """Bounds that cut public records are mentioned, and those that cut private ones are not."""
    source, target = in_own_units(200, 0), (in_own_units(50, 1)[0] * 1e6, np.full(50, 1e6))
    for model in (
        MomentAdaptation(row_bound=9e5, target_bound=1.0, delta=1e-2, draws=5),
        AdaSSP(row_bound=9e5, delta=1e-2),
        CnvxAdap(row_bound=9e5, weight_bound=9e5, delta=1e-2, steps=3),
        WarmDescent(row_bound=9e5, weight_bound=9e5, delta=1e-2, steps=3),
        NoisyGradient(row_bound=9e5, weight_bound=9e5, delta=1e-2, steps=3),
    ):
        with pytest.warns(
            UserWarning, match=r"target_bound: 100% of the public targets are beyond 1 .* within 1[89]\d"
        ):
            model.fit(source, target)
    labels = (source[0], np.arange(200) % 2)
    for model in (NCnvxAdap(delta=1e-2, steps=3), NetworkAdap(delta=1e-2, steps=3)):
        with pytest.warns(UserWarning, match="row_bound: 100% of the public rows are beyond 1"):
            model.fit(labels, (source[0] / 1e7, labels[1]))
    with pytest.warns(
        UserWarning, match="weight_bound: least squares of the public records has weights of length 12.4, and"
    ):
        CnvxAdap(target_bound=9e5, row_bound=9e5, delta=1e-2, steps=3).fit(
            (source[0] * [1.0, 100.0, 1e-5], source[1]), target
        )
    within = (DATA.source, (DATA.target.X * 1e6, DATA.target.y * 1e6))  # nobody is told of private ones
    for model in (
        MomentAdaptation(**AS_THEY_COME, delta=1e-2, draws=5),
        AdaSSP(delta=1e-2),
        CnvxAdap(delta=1e-2, steps=3),
    ):
        model.fit(*within)


def test_without_public_records_bounds_are_called_a_guess():
    """Without public records, bounds are called a guess."""
    with pytest.warns(UserWarning, match="row_bound and target_bound: taken to be 1, as there is no public record"):
        MomentAdaptation(delta=1e-2, draws=5).fit(None, DATA.target)
    MomentAdaptation(row_bound=1.0, target_bound=1.0, delta=1e-2, draws=5).fit(None, DATA.target)
    with pytest.warns(UserWarning, match="row_bound: scales and bounds are settled on 2 public records of 3 features"):
        MomentAdaptation(delta=1e-2, draws=5).fit((DATA.source.X[:2], DATA.source.y[:2]), DATA.target)


NEXT_TO_NOTHING = "source: residuals of the public fit are almost zero"


@pytest.mark.parametrize("epsilon", [1.0, 50.0, 1e4])
@pytest.mark.parametrize("bounds", [{}, AS_THEY_COME, {"intercept": True}], ids=["scaled", "named", "intercept"])
@pytest.mark.parametrize("noise", [0.0, 1e-8])
def test_zero_public_residuals_do_not_fail_after_the_charge(noise, bounds, epsilon):
    """Public residuals of zero are no reason to fail after the charge.

    Whatever the private targets are; exact ones had probabilities that were NaN.
    """
    rng = np.random.default_rng(7)
    X = 0.3 * rng.standard_normal((300, 3))
    y = X @ np.array([0.5, -0.2, 0.1])
    public, private = (X[:200], y[:200] + noise * rng.standard_normal(200)), slice(200, 300)
    for seed in range(2):
        for own in (y[private], 1e9 * y[private]):
            model = MomentAdaptation(epsilon=epsilon, delta=1e-3, draws=20, unsafe_seed=seed, **bounds)
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "source: private targets are far", UserWarning)
                with pytest.warns(UserWarning, match=NEXT_TO_NOTHING):
                    model.fit(public, (X[private], own))
            assert np.all(np.isfinite(model.posterior_.w))
            assert np.all(np.isfinite(model.posterior_.sigma))
        model = MomentAdaptation(epsilon=1e4, delta=1e-3, draws=20, unsafe_seed=seed, **bounds)
        with pytest.warns(UserWarning, match=NEXT_TO_NOTHING):
            model.fit(public, (X[private], y[private]))
        assert np.max(np.abs(model.predict(X[private]) - y[private])) < 1e-5


def test_the_release_warns_of_unlike_public_residuals():
    """The release itself says where public residuals are no measure of private ones."""
    rng = np.random.default_rng(7)
    X = 0.3 * rng.standard_normal((500, 3))
    y = X @ np.array([0.5, -0.2, 0.1])
    own = y + 0.1 * rng.standard_normal(500)
    model = MomentAdaptation(epsilon=20.0, delta=1e-3, draws=20, unsafe_seed=0)
    with pytest.warns(UserWarning, match=NEXT_TO_NOTHING), pytest.warns(UserWarning, match="private targets are far"):
        model.fit((X, y), (X, own))
    model.set_params(residual_bound=1.0).fit((X, y), (X, own))  # as advised
    low, high = model.interval(X)
    assert 0.8 < np.mean((low < own) & (own < high)) < 0.97


@pytest.mark.parametrize("bounds", [{}, AS_THEY_COME], ids=["scaled", "named"])
def test_constant_public_targets_say_nothing_of_residual_sizes(bounds):
    """Public targets that never vary say nothing of the size of residuals."""
    rng = np.random.default_rng(8)
    X = 0.3 * rng.standard_normal((500, 3))
    own = X @ np.array([0.5, -0.2, 0.1]) + 0.1 * rng.standard_normal(500)
    for constant in (0.0, 0.7):
        model = MomentAdaptation(epsilon=20.0, delta=1e-3, draws=100, intercept=True, unsafe_seed=0, **bounds)
        model.fit((X, np.full(500, constant)), (X, own + constant))
        low, high = model.interval(X)
        assert np.mean((low < own + constant) & (own + constant < high)) > 0.8, constant


@pytest.mark.parametrize("bounds", [{}, {"row_bound": 6.0, "target_bound": 99.0}], ids=["scaled", "named"])
def test_the_release_warns_of_private_targets_elsewhere(bounds):
    """The release itself says where private targets are on another level.

    Residuals are then cut on one side, which the model of the cuts does not know; a wider cut leaves them whole.
    """
    rng = np.random.default_rng(9)

    def records(n, level):
        X = rng.standard_normal((n, 3))
        return Domain(X, X @ np.array([0.5, -0.4, 0.3]) + level + 0.5 * rng.standard_normal(n))

    source, test = records(2000, 0.0), records(2000, 1.5)
    model = MomentAdaptation(epsilon=10.0, delta=1e-3, intercept=True, unsafe_seed=0, **bounds).fit(
        source, records(500, 0.2)
    )
    assert model.intercept_ == pytest.approx(0.2, abs=0.1)
    target = records(500, 1.5)  # three times the residuals' scale
    with pytest.warns(UserWarning, match="source: private targets are on another level than the public ones"):
        model.fit(source, target)
    model.set_params(residual_bound=6.0).fit(source, target)  # as advised
    assert model.intercept_ == pytest.approx(1.5, abs=0.2)
    low, high = model.interval(test.X)
    assert 0.7 < np.mean((low < test.y) & (test.y < high)) < 0.99
