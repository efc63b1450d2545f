"""The approximate posterior of a private classifier: its limit without noise, calibration, what it refuses."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from mpmtl_prob.adaptation import CnvxAdap, Domain, NCnvxAdap, approximate_posterior
from mpmtl_prob.adaptation.moments.label_posterior import _laplace, _moments, _Published
from mpmtl_prob.adaptation.paper.ncnvx import public_fit

D = 3


def simulated(seed, m=400, n=300, shift=2.0):
    """Weights of the target, and records of source and target."""
    rng = np.random.default_rng(seed)
    source = 2 * rng.standard_normal(D)
    target = source + shift * rng.standard_normal(D) / np.sqrt(D)

    def records(n, w):
        X = 0.35 * rng.standard_normal((n, D))
        X /= np.maximum(1, np.linalg.norm(X, axis=1))[:, None]
        return Domain(X, np.where(rng.random(n) < expit(X @ w), "yes", "no") == "yes")

    return target, records(m, source), records(n, target)


def fitted(seed, source, target, **more):
    options = {"delta": 1e-3, "steps": 30, "discrepancy": 0.0, "weight_bound": 10.0, "unsafe_seed": seed}
    return NCnvxAdap(**options | more).fit(source, target)


def test_little_noise_gives_the_maximum_and_its_covariance():
    """With little noise and the same rows, it is the likelihood's maximum with its covariance."""
    _, _, records = simulated(1, n=1500)
    X, y = records.X, records.y
    value = lambda w: np.logaddexp(0, X @ w).sum() - y @ X @ w
    best = minimize(value, np.zeros(D), jac=lambda w: X.T @ (expit(X @ w) - y)).x
    p = expit(X @ best)
    sd = np.sqrt(np.diag(np.linalg.inv((X.T * p * (1 - p)) @ X)))
    other = Domain(X, np.random.default_rng(0).permutation(y))  # labels of the source say nothing
    model = fitted(1, other, records, epsilon=1e5, delta=0.5, lambda_1=50.0, source_weight=0.01, steps=300)
    fitted_posterior = approximate_posterior(model, other, shift_scale=1e3, draws=4000)
    assert np.all(np.abs(fitted_posterior.mean - best) < 0.1 * sd)
    np.testing.assert_allclose(fitted_posterior.w.std(0), sd, rtol=0.1)


@pytest.fixture(scope="module")
def fits():
    fitted_cases = []
    for seed in range(40):
        w, source, target = simulated(seed)
        fitted_cases.append((w, source, fitted(seed, source, target, epsilon=1.5)))
    return fitted_cases


@pytest.fixture(scope="module")
def posteriors(fits):
    return [approximate_posterior(model, source) for _, source, model in fits]


def inside(fits, posteriors):
    intervals = ((w, *post.interval(0.9)) for (w, *_), post in zip(fits, posteriors, strict=True))
    return float(np.mean([(low < w) & (w < high) for w, low, high in intervals]))


def test_intervals_cover_for_rows_like_the_sources(fits, posteriors):
    assert 0.82 < inside(fits, posteriors) < 0.97
    z = np.array([(post.mean - w) / post.w.std(0) for (w, *_), post in zip(fits, posteriors, strict=True)])
    assert 0.8 < z.std() < 1.25
    assert np.abs(z.mean(0)).max() < 0.6


def test_the_test_of_calibration_sees_noise_that_is_left_out(fits):
    believed = []
    for _, source, model in fits[:20]:
        sd, model.noise_sd_ = model.noise_sd_, model.noise_sd_ / 20
        believed.append(approximate_posterior(model, source))
        model.noise_sd_ = sd
    assert inside(fits[:20], believed) < 0.75


@pytest.fixture
def told():
    rng = np.random.default_rng(0)
    X, plus, minus = rng.standard_normal((40, 2)), rng.random(40), -rng.random(40)
    return _Published(np.array([3.0, -2.0]), 30, 0.7, X, plus, minus)


def test_noisy_gradients_have_the_moments_of_their_law(told):
    """Noisy gradients have the mean and the covariance of their law."""
    theta = np.array([0.5, -1.0])
    p = expit(told.X @ theta)
    slopes = np.vstack([told.X * told.plus[:, None], told.X * told.minus[:, None]])
    each = np.cov(slopes.T, aweights=np.r_[p, 1 - p], ddof=0)
    of_rows = told.X * (p * told.plus + (1 - p) * told.minus)[:, None]
    mean, covariance, _ = _moments(told, theta)
    np.testing.assert_allclose(mean, 30 * of_rows.mean(axis=0))
    sample = 30**2 / 40 * np.cov(of_rows.T, ddof=0)  # the source's rows are one too
    np.testing.assert_allclose(covariance, 30 * each + sample + 0.7 * np.eye(2))


def test_releases_without_labels_favour_no_size_of_shift(told):
    """A release that says nothing of labels favours no size of the shift."""
    mute = told._replace(minus=told.plus)
    log_evidence = [
        _laplace(mute, np.zeros(2), size * np.eye(2), np.zeros(2)).log_evidence for size in (0.1, 1.0, 100.0)
    ]
    np.testing.assert_allclose(log_evidence, log_evidence[0], atol=1e-9)


def test_without_a_record_weights_follow_the_prior():
    _, source, _ = simulated(0)
    model = fitted(None, source, (np.zeros((0, D)), np.zeros(0)), steps=2)
    fitted_posterior = approximate_posterior(model, source, shift_scale=50.0, draws=4000)
    centre = public_fit(model.loss_, model._coded(source, model.loss_))
    large = fitted_posterior.tau > 20  # beside which what the source leaves open is nothing
    away = np.sum((fitted_posterior.w - centre) ** 2, axis=1) / fitted_posterior.tau**2
    assert np.mean(away[large]) == pytest.approx(1.0, abs=0.15)  # ten standard errors


def test_it_is_nearer_than_the_descent_that_it_is_made_of(fits, posteriors):
    error = lambda estimates: np.mean([np.sum((each - w) ** 2) for (w, *_), each in zip(fits, estimates, strict=True)])
    assert error([post.mean for post in posteriors]) < 0.9 * error([model.coef_ for *_, model in fits])


def test_probabilities_are_of_the_second_class(fits, posteriors):
    (w, source, model), post = fits[0], posteriors[0]
    mean, low, high = post.probabilities(source.X)
    assert np.all((low <= mean) & (mean <= high))
    assert np.corrcoef(mean, expit(source.X @ w))[0, 1] > 0.5  # .8 or so, and of the first class its negative
    assert np.array_equal(approximate_posterior(model, source).w, post.w)  # free, and the same again


def test_other_models_are_named():
    _, source, target = simulated(0)
    wrong = [
        NCnvxAdap(epsilon=None, discrepancy=0.0).fit(source, target),
        fitted(0, source, target, variant="printed", steps=2),
        CnvxAdap(steps=2, discrepancy=0.0).fit(source, target),
        NCnvxAdap(),
    ]
    for model in wrong:
        with pytest.raises(ValueError, match="model: expected an NCnvxAdap fitted with epsilon"):
            approximate_posterior(model, source)
    model = fitted(0, source, target)
    with pytest.raises(ValueError, match="source: expected 3 features as the model has, got 1"):
        approximate_posterior(model, (source.X[:, :1], source.y))
    with pytest.raises(ValueError, match="shift_scale: expected a positive"):
        approximate_posterior(model, source, shift_scale=0.0)
    none = fitted(0, source, (np.zeros((0, D)), np.zeros(0)))
    assert np.all(np.isfinite(approximate_posterior(none, source).w))
