"""Yardsticks against scikit-learn and conic solvers, and what a domain is made of."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from helpers.effort import effort
from helpers.optimum import optimum

from mpmtl_prob.adaptation import (
    KMM,
    DiscrepancyMinimisation,
    Domain,
    MomentAdaptation,
    NoisyGradient,
    SourceOnly,
    Unprotected,
    WarmDescent,
)
from mpmtl_prob.adaptation.data import problems, real
from mpmtl_prob.adaptation.data.domain import several, stacked
from mpmtl_prob.adaptation.paper.matching import box_and_sum, discrepancy_weights, kernel_weights
from mpmtl_prob.adaptation.public_fit import huber, robust
from mpmtl_prob.privacy import Ledger

RNG = np.random.default_rng(2)
DATA = problems.two_sources((60, 25), num_features=3, tests=300, seed=5)


def error(model, data=DATA):
    return float(np.mean((data.test.y - model.predict(data.test.X)) ** 2))


def test_the_generator_is_the_one_that_is_written_down():
    m, n, d = 50, 20, 4
    rng = np.random.default_rng(9)

    def unit_vector():
        v = rng.standard_normal(d)
        return v / np.linalg.norm(v)

    w_t, u, w_o = unit_vector(), unit_vector(), unit_vector()

    def rows(k, s):
        X = 0.8 * rng.standard_normal((k, d)) / 2
        X[:, 0] += s
        return X / np.maximum(1, np.linalg.norm(X, axis=1))[:, None]

    Xs, Xt, _ = rows(m, 0.5), rows(n, 0.0), rows(7, 0.0)
    bad = rng.random(m) < 0.3
    ys = np.where(bad, Xs @ w_o, Xs @ (w_t + 0.3 * u)) + 0.1 * rng.standard_normal(m)
    data = problems.two_sources((m, n), num_features=d, tests=7, seed=9)
    assert np.array_equal(data.source.X, Xs)
    assert np.array_equal(data.source.y, np.clip(ys, -1, 1))
    assert np.array_equal(data.target.X, Xt)
    assert [(data.groups == k).sum() for k in ("bad", "good")] == [bad.sum(), m - bad.sum()]
    assert sorted(data.sources) == ["bad", "good"]


def test_shifted_weights_are_as_far_apart_as_they_say():
    far = problems.shifted((4000, 4000), 1.2, noise=1e-3, tests=1, seed=1)
    w_s, w_t = (np.linalg.lstsq(each.X, each.y, rcond=None)[0] for each in (far.source, far.target))
    assert np.linalg.norm(w_t - w_s) == pytest.approx(1.2, abs=1e-2)
    assert np.linalg.norm(w_t) == pytest.approx(0.9, abs=1e-2)


def test_school_has_its_kinds_apart():
    data = real.school("girls", records=(50, 40))
    column = data.source.features.index("school_girls")
    assert data.source.X[:, column].max() == 0
    assert data.target.X[:, column].min() > 0
    np.testing.assert_allclose(np.linalg.norm(data.target.X, axis=1), 1)
    assert np.abs(data.test.y).max() <= 1
    assert sorted(data.sources) == ["school_boys", "school_mixed"]
    for name, each in data.sources.items():
        assert each.X[:, each.features.index(name)].min() > 0


def test_source_fits_are_what_they_are_called():
    sklearn = pytest.importorskip("sklearn.linear_model")
    exact = np.linalg.lstsq(DATA.source.X, DATA.source.y, rcond=None)[0]
    np.testing.assert_allclose(SourceOnly("squared").fit(DATA.source).coef_, exact)
    model = sklearn.HuberRegressor(epsilon=1.5, alpha=0.0, fit_intercept=False, tol=1e-9, max_iter=1000)
    model.fit(DATA.source.X, DATA.source.y)
    np.testing.assert_allclose(huber(DATA.source, 1.5 * model.scale_), model.coef_, atol=1e-5)
    median = sklearn.QuantileRegressor(alpha=0.0, fit_intercept=False).fit(DATA.source.X, DATA.source.y)
    absolute = lambda w: np.abs(DATA.source.y - DATA.source.X @ w).sum()
    fitted = SourceOnly("absolute").fit(DATA.source)
    assert absolute(fitted.coef_) <= absolute(median.coef_) * 1.001
    assert fitted.guarantee_.proved.epsilon == 0


def test_the_robust_covariance_is_the_spread_of_the_fit():
    fits, claimed = [], []
    for seed in range(80):
        data = problems.shifted((80, 1), 0.0, num_features=2, tests=1, seed=7).source
        y = data.X @ np.array([0.5, -0.5]) + 0.2 * np.random.default_rng(seed).standard_normal(80)
        fit = robust(Domain(data.X, y))
        fits.append(fit.w)
        claimed.append(fit.covariance)
    np.testing.assert_allclose(np.cov(np.array(fits).T), np.mean(claimed, axis=0), rtol=0.5, atol=5e-4)


def test_a_column_of_one_record_is_known_as_by_one_record():
    """A column of one record is known no better than by one record."""
    rng, X = np.random.default_rng(5), np.zeros((200, 3))
    X[:, 0], X[:3, 1], X[0, 2] = rng.standard_normal(200), 1.0, 1.0  # the first record is fitted without a residual
    w = np.array([0.5, 0.3, -0.2])
    fits = [robust(Domain(X, X @ w + 0.2 * rng.standard_normal(200))) for _ in range(effort(200, 300))]
    squares = np.array([(fit.w - w) ** 2 / np.diag(fit.covariance) for fit in fits])
    ratio = squares.mean(axis=0)  # 1 to 1.4 of other seeds, give or take .25; 65 and 260 of residuals as they are left
    assert np.all((ratio > 0.4) & (ratio < 3.0))


@pytest.mark.parametrize("size", [1, 5, 6, 17])
def test_a_small_source_is_fitted_from_all_and_says_its_doubt(size):
    """A source of few records is fitted starting from all public ones, and says how little it knows."""
    sklearn = pytest.importorskip("sklearn.linear_model")
    data = problems.shifted((800, 300), 0.3, num_features=6, noise=0.1, tests=2000, seed=2)
    few = Domain(data.source.X[:size], data.source.y[:size])
    most = robust(data.source)
    fit, reach = robust(few, most), 2 * most.scale / np.sqrt(np.mean(few.X**2))
    model = sklearn.Ridge(alpha=6 * most.scale**2 / reach**2, fit_intercept=False)
    wanted = most.w + model.fit(few.X, few.y - few.X @ most.w).coef_
    np.testing.assert_allclose(fit.w, wanted, atol=1e-9)
    assert fit.scale == most.scale
    assert np.linalg.norm(fit.w - most.w) < 3 * np.sqrt(np.trace(fit.covariance))
    alone = robust(few)
    assert alone.scale > 0.03 or size == 1  # an interpolating fit had 1e-7
    release = {"epsilon": 2.0, "delta": 1e-3, "row_bound": 1.0, "target_bound": 1.0, "unsafe_seed": 0}
    large = error(MomentAdaptation(**release).fit(data.source, data.target), data)
    both = MomentAdaptation(**release).fit({"large": data.source, "few": few}, data.target)
    assert error(both, data) < 1.05 * large
    assert error(MomentAdaptation(**release).fit(few, data.target), data) < 4 * large


def test_doubt_about_all_records_carries_over_to_later_fits():
    """Doubt about all public records is doubt about a fit that starts from them."""
    source = problems.shifted((60, 10), 0.3, num_features=3, tests=2, seed=2).source
    few, most = Domain(source.X[:5], source.y[:5]), robust(source)
    fit, sure = robust(few, most), robust(few, replace(most, covariance=np.zeros((3, 3))))
    # weights are linear in those from which they start
    kept = np.column_stack([robust(few, replace(most, w=most.w + e)).w - fit.w for e in np.eye(3)])
    np.testing.assert_allclose(fit.covariance - sure.covariance, kept @ most.covariance @ kept.T, rtol=1e-6, atol=1e-15)


def test_ridge_yardsticks():
    sklearn = pytest.importorskip("sklearn.linear_model")
    model = sklearn.Ridge(alpha=85 * 0.01, fit_intercept=False)
    model.fit(np.vstack([DATA.source.X, DATA.target.X]), np.r_[DATA.source.y, DATA.target.y])
    np.testing.assert_allclose(Unprotected("pooled", 0.01).fit(DATA.source, DATA.target).coef_, model.coef_, atol=1e-10)
    assert Unprotected().fit(DATA.source, DATA.target).guarantee_.proved is None


def test_kernel_mean_matching_solves_its_quadratic_programme():
    cvxpy = pytest.importorskip("cvxpy")
    X, Y = DATA.source.X[:25], DATA.target.X[:10]
    b = kernel_weights(X, Y, width=0.7, largest=3.0, max_iterations=20_000)
    K = np.exp(-((X[:, None] - X[None]) ** 2).sum(-1) / (2 * 0.49))
    k = 2.5 * np.exp(-((X[:, None] - Y[None]) ** 2).sum(-1) / (2 * 0.49)).sum(1)
    v, slack = cvxpy.Variable(25), (5 - 1) / 5
    constraints = [v >= 0, v <= 3, cvxpy.abs(cvxpy.sum(v) - 25) <= 25 * slack]
    problem = cvxpy.Problem(cvxpy.Minimize(cvxpy.quad_form(v, cvxpy.psd_wrap(K)) / 2 - k @ v), constraints)
    optimum(problem)
    assert b @ K @ b / 2 - k @ b == pytest.approx(problem.value, rel=1e-4)
    assert np.all((b >= 0) & (b <= 3))
    for low, high in ((1.0, 2.0), (30.0, 40.0)):
        v = RNG.standard_normal(25)
        p = box_and_sum(v, 3.0, low, high)
        assert low - 1e-9 <= p.sum() <= high + 1e-9
        other = box_and_sum(RNG.standard_normal(25), 3.0, low, high)
        assert (v - p) @ (other - p) <= 1e-9  # the nearest point


def test_discrepancy_minimisation_is_near_its_optimum():
    """Discrepancy minimisation is near the optimum of its semidefinite program."""
    cvxpy = pytest.importorskip("cvxpy")
    X, M = DATA.source.X[:30], DATA.target.X.T @ DATA.target.X / 25
    q = discrepancy_weights(X, M)
    v = cvxpy.Variable(30)
    difference = X.T @ cvxpy.diag(v) @ X - M
    problem = cvxpy.Problem(cvxpy.Minimize(cvxpy.sigma_max(difference)), [v >= 0, cvxpy.sum(v) == 1])
    optimum(problem)
    uniform = np.linalg.norm(X.T @ X / 30 - M, 2)
    distance = np.linalg.norm((X.T * q) @ X - M, 2)
    assert problem.value - 1e-7 <= distance <= problem.value + 0.02 * uniform
    assert q.sum() == pytest.approx(1.0)


def test_matching_helps_where_features_shift_and_the_line_bends():
    rng = np.random.default_rng(0)
    x_s, x_t = rng.uniform(-1, 1, 150), rng.uniform(0.5, 1, 100)
    bend = lambda x: Domain(x[:, None] / 2, np.maximum(x, 0.2) / 2).with_intercept()
    source, target = bend(x_s), bend(x_t)
    plain = SourceOnly("squared").fit(source)
    for model in (KMM(), DiscrepancyMinimisation()):
        fitted = model.fit(source, target)
        assert np.mean((fitted.predict(target.X) - target.y) ** 2) < np.mean((plain.predict(target.X) - target.y) ** 2)
        assert fitted.guarantee_.proved is None


def test_private_baselines_pay_and_a_warm_start_helps():
    data = problems.shifted((300, 100), 0.2, tests=500, seed=0)
    book = Ledger(epsilon=2.1, delta=1e-2, unit="target record")
    options = {"epsilon": 1.0, "delta": 1e-2, "steps": 50}
    warm = WarmDescent(**options, ledger=book).fit(data.source, data.target)
    cold = NoisyGradient(**options, ledger=book).fit(data.source, data.target)
    assert len(book.charges()) == 2
    assert warm.guarantee_.proved == cold.guarantee_.proved
    assert error(warm, data) < error(cold, data)


def test_domains_come_from_tables_and_name_their_mistakes():
    """Domains come from tables, and say what is wrong with a table."""
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": [3, 4], "y": [0.5, 0.1]})
    assert Domain.from_pandas(frame, "y").features == ("a", "b")
    assert Domain(frame[["a", "b"]], frame["y"]).with_intercept().features == ("a", "b", "intercept")
    model = SourceOnly("squared").fit((frame[["a", "b"]], frame["y"]))
    assert model.predict(frame[["a", "b"]]).shape == (2,)
    wrong = [
        (lambda: Domain(np.zeros(3), np.zeros(3)), "X: expected shape"),
        (lambda: Domain(np.zeros((3, 1)), np.zeros(2)), "y: expected one target per record"),
        (lambda: Domain(np.zeros((3, 0)), np.zeros(3)), "at least one feature"),
        (lambda: Domain([[1.0, 2.0], [3.0]], [1.0]), "y: expected one target per record"),
        (lambda: Domain("ab", [1.0]), "X: expected a table or an array, got str"),
        (lambda: SourceOnly().fit(([["a"]], [1.0]), DATA.target), "source: expected finite numbers, got 1 records"),
        (lambda: Domain(np.zeros((3, 2)), np.zeros(3), ("x",)), "features: expected 2 names"),
        (lambda: Domain.from_pandas(frame, "z"), "target: expected one of the 3 columns, got 'z'"),
        (lambda: several({}), "source: expected at least one"),
        (lambda: several({"a": DATA.source, "b": (np.ones((2, 2)), np.ones(2))}), "domains of the same features"),
        (lambda: several({"a": DATA.source, "b": 3}), "source 'b': expected a Domain"),
        (lambda: SourceOnly().fit((np.zeros((0, 2)), np.zeros(0))), "source: expected at least one record"),
        (
            lambda: Unprotected().fit((frame[["a", "b"]], frame["y"]), (frame[["b", "a"]], frame["y"])),
            "target: expected the source's features",
        ),
    ]
    for act, message in wrong:
        with pytest.raises(ValueError, match=message):
            act()
    assert stacked(several({"a": DATA.source, "b": DATA.target})).num_records == 85
    assert repr(DATA.target).startswith("Domain(X=<ndarray of shape (25, 3)>")
