"""Outcomes that are no numbers, one task at a time: beside SciPy's laws and optimiser, and beside quadrature."""

import numpy as np
import pytest
from scipy import integrate, optimize, stats
from scipy.special import expit
from statsmodels.tools.numdiff import approx_hess

from mpmtl_prob.sampling.importance import smoothed
from mpmtl_prob.single_task.families import BERNOULLI, NEGATIVE_BINOMIAL, POISSON, Bernoulli, NegativeBinomial
from mpmtl_prob.single_task.generalized import Predictors, generalized_estimate, mode
from mpmtl_prob.single_task.generalized_effects import generalized_posterior
from mpmtl_prob.single_task.random_effects import EffectsPriors

LAWS = [Bernoulli(), NegativeBinomial(), NegativeBinomial(0.7)]
NAMES = ["binary", "poisson", "negative binomial"]
ETA = np.linspace(-4, 3, 8)


def targets(law):
    return np.array([0, 1, 1, 0, 1, 0, 0, 1.0] if isinstance(law, Bernoulli) else [0, 1, 0, 2, 5, 0, 7, 30.0])


def rows(law, n=20, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X, offset = rng.standard_normal((n, d)), rng.normal(-0.5, 0.3, n)
    eta = offset + X @ np.array([0.8, -0.5, 0.1])[:d]
    binary = isinstance(law, Bernoulli)
    y = (rng.random(n) < expit(eta)).astype(float) if binary else rng.poisson(np.exp(eta)).astype(float)
    return Predictors(X, y, offset, rng.choice([1.0, 2.0], n))


def test_log_densities_are_scipy_s():
    y = targets(LAWS[0])
    np.testing.assert_allclose(LAWS[0].log_density(y, ETA), stats.bernoulli.logpmf(y, expit(ETA)), rtol=1e-12)
    y, mean = targets(LAWS[1]), np.exp(ETA)
    np.testing.assert_allclose(LAWS[1].log_density(y, ETA), stats.poisson.logpmf(y, mean), rtol=1e-12)
    size = 1 / 0.7
    np.testing.assert_allclose(
        LAWS[2].log_density(y, ETA), stats.nbinom.logpmf(y, size, size / (size + mean)), rtol=1e-10
    )


@pytest.mark.parametrize("law", LAWS, ids=NAMES)
def test_slopes_and_curvatures_are_derivatives(law):
    y, h = targets(law), 1e-5
    slope = (law.log_density(y, ETA + h) - law.log_density(y, ETA - h)) / (2 * h)
    np.testing.assert_allclose(law.slope(y, ETA), slope, rtol=1e-6, atol=1e-8)
    bend = -(law.slope(y, ETA + h) - law.slope(y, ETA - h)) / (2 * h)
    np.testing.assert_allclose(law.curvature(y, ETA), bend, rtol=1e-6, atol=1e-8)


def test_without_dispersion_counts_are_nearly_poisson_s():
    y = targets(LAWS[1])
    np.testing.assert_allclose(
        NegativeBinomial(1e-7).log_density(y, ETA), NegativeBinomial().log_density(y, ETA), atol=1e-3
    )


def test_priors_of_dispersions_sum_to_one():
    assert np.exp(NEGATIVE_BINOMIAL.log_prior).sum() == pytest.approx(1)


@pytest.mark.parametrize("law", LAWS, ids=NAMES)
def test_the_mode_is_the_optimiser_s(law):
    own = rows(law)
    loss = lambda b: -own.log_likelihood(law, own.offset + own.X @ b) + b @ b / 2
    best = optimize.minimize(loss, np.zeros(3), method="BFGS", options={"gtol": 1e-9})
    maximum = mode(own, law)
    np.testing.assert_allclose(maximum.at, best.x, atol=1e-5)
    np.testing.assert_allclose(maximum.curvature, approx_hess(maximum.at, loss), rtol=1e-3, atol=1e-3)


def test_a_row_of_weight_two_counts_as_two():
    own = rows(LAWS[0])
    twice = np.repeat(np.arange(20), own.weights.astype(int))
    again = Predictors(own.X[twice], own.y[twice], own.offset[twice], np.ones(len(twice)))
    np.testing.assert_allclose(
        generalized_estimate(own, BERNOULLI, 0.2).estimate,
        generalized_estimate(again, BERNOULLI, 0.2).estimate,
        rtol=1e-9,
    )


@pytest.mark.parametrize(
    ("families", "y"),
    [(BERNOULLI, np.zeros(12)), (BERNOULLI, np.ones(12)), (POISSON, np.zeros(12)), (NEGATIVE_BINOMIAL, np.zeros(12))],
    ids=["no event", "events only", "zero counts", "zero counts, dispersed"],
)
def test_a_task_with_one_kind_of_target_has_an_estimate(families, y):
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.standard_normal((12, 2)), np.ones(12)])
    own = generalized_estimate(Predictors(X, y, np.full(12, -1.0), np.ones(12)), families, 0.2)
    assert np.isfinite(own.estimate).all()
    assert np.sign(own.estimate[2]) == (1 if y.any() else -1)
    assert ((own.determined >= 0) & (own.determined < 1)).all()


def test_separating_columns_have_estimates_of_ordinary_size():
    """A column that separates the labels has an estimate of ordinary size."""
    x = np.linspace(-1, 1, 30)
    own = generalized_estimate(Predictors(x[:, None], (x > 0) * 1.0, np.zeros(30), np.ones(30)), BERNOULLI, 0.5)
    assert 0.3 < own.estimate[0] < 3


@pytest.mark.parametrize("rate", [0.3, 0.05])
def test_what_is_determined_undoes_the_shrinkage(rate):
    """By simulation: the average estimate is the average of p times the truth, though the declared baseline is half of it."""
    rng = np.random.default_rng(1)
    v, n, beta = 0.125, int(15 / rate), np.array([0.5, -0.3])
    sent, told = [], []
    for _ in range(400):
        X = rng.standard_normal((n, 2))
        level = np.log(rate / (1 - rate))
        y = (rng.random(n) < expit(level + X @ beta)).astype(float)
        own = Predictors(np.column_stack([X, np.ones(n)]), y, np.full(n, np.log(rate / 2)), np.ones(n))
        each = generalized_estimate(own, BERNOULLI, v)
        sent.append(each.estimate)
        told.append(each.determined)
    ratio = np.mean(sent, axis=0) / np.mean(told, axis=0)
    np.testing.assert_allclose(ratio[:2], beta, atol=0.09)
    away = np.array(sent)[:, :2] - np.array(told)[:, :2] * beta
    said = v * np.array(told)[:, :2] * (1 - np.array(told)[:, :2])
    np.testing.assert_allclose((away**2).mean(axis=0) / said.mean(axis=0), 1, atol=0.25)


@pytest.mark.parametrize("wild", [np.inf, np.nan, 1e200])
def test_numbers_beyond_doubles_are_as_no_rows(wild):
    own = rows(LAWS[0])
    X = own.X.copy()
    X[3, 1] = wild
    each = generalized_estimate(own._replace(X=X), BERNOULLI, 0.2)
    np.testing.assert_array_equal(each.estimate, 0)
    np.testing.assert_array_equal(each.determined, 0)


def priors(scales=(0.5, 2.0)):
    """Two normal priors of one effect, each with two scales."""
    share = np.full(len(scales), -np.log(len(scales)))
    return EffectsPriors(
        np.log([0.6, 0.4]), np.array([[0.5], [-0.2]]), np.array([[[0.3]], [[0.1]]]), np.array(scales), share
    )


def by_quadrature(own, families, prior):
    """Mean, sd and evidence of one effect."""

    grid = np.linspace(-25, 25, 4001)
    values = np.zeros(len(grid))
    for weight, mean, variance in zip(np.exp(prior.log_weight), prior.mean, prior.covariance, strict=True):
        for c, share in zip(prior.scales, np.exp(prior.log_scale_weight), strict=True):
            values += weight * share * stats.norm.pdf(grid, mean[0], np.sqrt(c * variance[0, 0]))
    predictor = own.offset + grid[:, None] * own.X[:, 0]
    laws = zip(families.laws, np.exp(families.log_prior), strict=True)
    values *= sum(p * np.exp(own.log_likelihood(law, predictor)) for law, p in laws)
    total = integrate.trapezoid(values, grid)
    mean = integrate.trapezoid(grid * values, grid) / total
    return mean, np.sqrt(integrate.trapezoid((grid - mean) ** 2 * values, grid) / total)


def exact(own, families, given, number=20_000):
    approximate = generalized_posterior(own, families, given)
    drawn = approximate.sample(np.random.default_rng(0), number)
    (weight,), khat = smoothed(approximate.log_ratio(own, drawn)[None])
    mean = weight @ drawn["beta"][:, 0]
    return mean, np.sqrt(weight @ (drawn["beta"][:, 0] - mean) ** 2), khat[0], approximate


X1 = np.linspace(-1, 1.5, 15)[:, None]
CASES = {
    "labels": (BERNOULLI, (np.arange(15) % 3 == 0) * 1.0),
    "separated": (BERNOULLI, (X1[:, 0] > 0) * 1.0),
    "no event": (BERNOULLI, np.zeros(15)),
    "counts": (POISSON, np.round(np.exp(X1[:, 0]))),
    "zero counts": (POISSON, np.zeros(15)),
    "dispersed": (NEGATIVE_BINOMIAL, np.array([0, 0, 0, 5, 0, 1, 0, 9, 0, 0, 2, 0, 14, 0, 1.0])),
}


@pytest.mark.parametrize("wide", [False, True], ids=["like others", "of any size"])
@pytest.mark.parametrize("case", CASES)
def test_draws_have_the_posterior_s_mean_and_spread(case, wide):
    families, y = CASES[case]
    own = Predictors(X1, y, np.full(15, -0.3), np.ones(15))
    given = priors(np.geomspace(0.01, 30, 6) if wide else (0.5, 2.0))
    mean, sd, khat, _ = exact(own, families, (given,))
    of_mean, of_sd = by_quadrature(own, families, given)
    assert khat < 0.7
    assert mean == pytest.approx(of_mean, abs=0.03 * of_sd)
    assert sd == pytest.approx(of_sd, rel=0.03)


def test_approximations_alone_are_not_exact():
    """Approximations are not exact: without the ratios, the spread of a task without events fails the test above."""
    families, y = CASES["no event"]
    own = Predictors(X1, y, np.full(15, -0.3), np.ones(15))
    *_, approximate = exact(own, families, (priors(),))
    drawn = approximate.sample(np.random.default_rng(0), 20_000)["beta"][:, 0]
    assert abs(drawn.std() / by_quadrature(own, families, priors())[1] - 1) > 0.04


def test_no_rows_give_the_prior():
    own = Predictors(*(part[:0] for part in rows(LAWS[0], d=1)))
    mean, sd, *_ = exact(own, BERNOULLI, (priors(),))
    of_mean, of_sd = by_quadrature(own, BERNOULLI, priors())
    assert mean == pytest.approx(of_mean, abs=0.03 * of_sd)
    assert sd == pytest.approx(of_sd, rel=0.03)


def test_evidence_says_which_prior_a_task_is_of():
    own = rows(LAWS[0], n=400, d=1)
    near = EffectsPriors(np.zeros(1), np.array([[0.8]]), np.array([[[0.01]]]), np.ones(1), np.zeros(1))
    far = near._replace(mean=np.array([[-3.0]]))
    approximate = generalized_posterior(own, BERNOULLI, (near, far))
    assert approximate.weight[approximate.part == 0].sum() > 0.99
