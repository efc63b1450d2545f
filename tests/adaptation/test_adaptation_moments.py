"""A release of moments: moments of clipped residuals, where they are cut, the noise, and what it is charged for."""

import numpy as np
import pytest
from scipy.special import ndtr

from mpmtl_prob.adaptation import MomentAdaptation, release_moments
from mpmtl_prob.adaptation.data import problems
from mpmtl_prob.adaptation.moments.clipping import moments
from mpmtl_prob.adaptation.moments.release import LONGEST, WEIGHT, clipping_bound, rows
from mpmtl_prob.privacy import BudgetExceeded, Gaussian, Ledger
from mpmtl_prob.privacy.mechanisms import exact

RNG = np.random.default_rng(3)
FAR = 6  # standard errors
DATA = problems.shifted((400, 150), 0.5, num_features=3, tests=400, seed=2)


@pytest.mark.parametrize(("sigma", "c"), [(0.2, 0.25), (0.1, 5.0)])
def test_clipped_residual_moments_are_those_of_simulation(sigma, c):
    """Moments of clipped residuals are those of simulated records."""
    n, repetitions, delta = 150, 6000, np.array([0.5, -0.2])
    N = n * np.array([[0.3, 0.1], [0.1, 0.2]])
    Z = RNG.standard_normal((repetitions, n, 2))
    a, Q = np.linalg.eigh(np.swapaxes(Z, 1, 2) @ Z)
    whitened = Z @ (Q / np.sqrt(a)[:, None, :]) @ np.swapaxes(Q, 1, 2)  # X'X is N in every repetition
    X = whitened @ np.linalg.cholesky(N).T
    psi = np.clip(X @ delta + sigma * RNG.standard_normal((repetitions, n)), -c, c)
    xr, rr = np.einsum("rni,rn->ri", X, psi), (psi**2).sum(1)
    q = delta @ N @ delta / n
    clipped, Nd = moments(np.sqrt(q + sigma**2), c, np, ndtr), N @ delta
    se = np.sqrt(1 / repetitions)
    assert np.all(np.abs(xr.mean(0) - clipped.kept * Nd) < FAR * se * xr.std(0) + 5e-3 * np.abs(Nd))
    assert rr.mean() == pytest.approx(n * clipped.square, rel=5e-3)
    expected = clipped.along(q) * N + clipped.across(q) * np.outer(Nd, Nd) / n
    np.testing.assert_allclose(np.cov(xr.T), expected, atol=0.1 * np.trace(expected))
    assert np.trace(np.cov(xr.T)) == pytest.approx(np.trace(expected), rel=0.06)
    assert rr.var() == pytest.approx(n * clipped.spread(q), rel=0.1)
    cross = np.array([np.cov(xr[:, i], rr)[0, 1] for i in (0, 1)])
    scale = np.sqrt(n * clipped.spread(q) * np.diag(expected))
    assert np.all(np.abs(cross - clipped.common(q) * Nd) < 0.06 * scale)
    if c == 5.0:
        assert [clipped.along(q), clipped.across(q), clipped.common(q)] == pytest.approx(
            [sigma**2, 0, 2 * sigma**2], abs=1e-9
        )


def options(**more):
    return {"centre": np.array([0.4, -0.2, 0.1]), "residual_bound": 0.3, "epsilon": 1.0, "delta": 1e-2} | more


def test_residuals_are_cut_where_a_slope_is_known_best():
    rng, n, width, scale = np.random.default_rng(3), 200, 0.3, 0.7
    x, e = width * rng.standard_normal((2000, n)), scale * rng.standard_normal((2000, n))

    def spread(c, sd):  # of the slope of one feature, simulated
        kept = np.mean(np.abs(e) < c)
        return np.std((x * np.clip(e, -c, c)).sum(axis=1) + sd * c * rng.standard_normal(2000)) / kept

    quiet, loud = (clipping_bound(scale, sd, n, width) / scale for sd in (0.1, 30.0))
    assert (quiet, loud) == pytest.approx((2.5, 1.5))
    assert spread(1.5 * scale, 30.0) < 0.8 * spread(2.5 * scale, 30.0)  # .68 of it
    assert spread(1.5 * scale, 0.0) < 1.1 * spread(2.5 * scale, 0.0)  # 1.02
    assert clipping_bound(scale, 0.5, n, width) / scale == pytest.approx(1.85)


def test_a_release_is_the_bounded_records_and_the_laws_own_noise():
    out = release_moments(DATA.target, **options(unsafe_seed=5))
    h = next(h for h in 2.0 ** -np.arange(5, 30) if np.all(np.rint(out.sigma / h**2) == out.sigma / h**2))
    v = rows(DATA.target, out.centre, 0.3, 1.0, h)
    assert np.array_equal(out.sigma, v.T @ v + out.mechanism.draw(h**2, exact.source(5, 0)))
    assert np.linalg.norm(v, axis=1).max() <= LONGEST
    again = release_moments(DATA.target, **options())
    assert str(again.guarantee.proved) == "eps = 1, delta = 0.01 (replace, one target record)"
    assert "one record of the target" in again.guarantee.explain().lower()


def test_a_poisoned_record_changes_nothing_but_its_own_place():
    zero = DATA.target.X.copy(), DATA.target.y.copy()
    zero[0][7], zero[1][7] = 0.0, 0.0
    wanted = release_moments(zero, **options(unsafe_seed=5)).sigma
    for value in (np.nan, np.inf, -np.inf):
        X, y = DATA.target.X.copy(), DATA.target.y.copy()
        X[7, 0] = value
        assert np.array_equal(release_moments((X, y), **options(unsafe_seed=5)).sigma, wanted)
        X[7, 0], y[7] = 1.0, value
        assert np.array_equal(release_moments((X, y), **options(unsafe_seed=5)).sigma, wanted)
    huge = release_moments((DATA.target.X * 1e300, DATA.target.y * 1e300), **options(unsafe_seed=5))
    assert np.trace(huge.sigma - wanted) <= LONGEST**2 * 150


def test_records_are_told_apart_no_better_than_noise_allows():
    """Nobody tells two records apart better than the noise allows."""
    law = release_moments(DATA.target, **options()).mechanism
    b = WEIGHT
    worst = (
        np.array([1.0, 0, 0, b]),
        np.array([b**2, np.sqrt(1 - b**4), 0, -b]),
    )  # orthogonal, and as long as they may be
    difference = np.outer(worst[0], worst[0]) - np.outer(worst[1], worst[1])
    mu = np.linalg.norm(difference) / (np.sqrt(2) * law.sd)
    assert mu == pytest.approx(law.mu("replace"))
    draws = law.sample(RNG, np.zeros((20_000, 4, 4)))
    statistic = (
        (draws * difference).sum((1, 2)) / np.sqrt(2) / law.sd / np.linalg.norm(difference)
    )  # of Neyman and Pearson
    assert statistic.std() == pytest.approx(1.0, abs=0.03)
    for _ in range(200):
        a, b = RNG.standard_normal((2, 4))
        a, b = (np.r_[v[:3] / max(1, np.linalg.norm(v[:3])), np.clip(v[3], -WEIGHT, WEIGHT)] for v in (a, b))
        assert np.linalg.norm(np.outer(a, a) - np.outer(b, b)) / (np.sqrt(2) * law.sd) <= mu


def test_the_residual_weight_gains_more_than_it_spends():
    """The weight of residuals spends less of the budget on residuals than it gains on features."""
    out = release_moments(DATA.target, **options())
    even = 2.0 / out.mechanism.mu("replace")  # of all entries, were residuals as long as rows
    assert out.sd == pytest.approx(25 / 32 * even)
    assert out.sd * out.residual_unit / out.residual_bound == pytest.approx(25 / 24 * even)
    assert LONGEST**2 == 1 + WEIGHT**2  # in bits: a record is not longer than the noise allows for


def test_it_is_charged_once_and_mistakes_cost_nothing():
    """It is charged once, in its own unit, and mistakes cost nothing."""
    book = Ledger(epsilon=1.0, delta=1e-2, unit="target record")
    model = MomentAdaptation(epsilon=0.9, delta=1e-2, ledger=book).fit(DATA.source, DATA.target)
    assert len(book.charges()) == 1
    for _ in range(2):  # all else is free
        model.interval(DATA.test.X)
        model.release_.discrepancy(DATA.source, 0.1)
        model.release_.ridge()
    with pytest.raises(BudgetExceeded):
        model.fit(DATA.source, DATA.target)
    for unit in ("task", "row", "person"):
        with pytest.raises(ValueError, match="unit: expected"):
            MomentAdaptation(ledger=Ledger(epsilon=9.0, delta=1e-2, unit=unit)).fit(DATA.source, DATA.target)
    with pytest.raises(ValueError, match="unit: expected"):
        book.charge(Gaussian(2, 9.0), unit="task")
    wrong = [
        ({"posterior": "guess"}, (DATA.source, DATA.target), "posterior: expected one of"),
        ({"epsilon": 0.0}, (DATA.source, DATA.target), "epsilon: expected a positive"),
        ({"residual_bound": -1.0}, (DATA.source, DATA.target), "residual_bound: expected a positive"),
        (
            {"posterior": "nuts", "row_bound": 9.0},
            ((np.ones((40, 31)), np.ones(40)), (np.ones((40, 31)), np.ones(40))),
            "more than 30",
        ),
        ({}, ({"none": DATA.source}, DATA.target), "source: expected other names"),
        ({}, (DATA.source, (np.ones((3, 2)), np.ones(3))), "target: expected the source's 3 features"),
        ({"draws": 0}, (DATA.source, DATA.target), "draws: expected a whole number"),
    ]
    for more, data, message in wrong:
        with pytest.raises(ValueError, match=message):
            MomentAdaptation(**{"delta": 1e-2, "ledger": book} | more).fit(*data)
    with pytest.raises(ValueError, match="centre: expected 3 finite"):
        release_moments(DATA.target, **options(centre=np.zeros(2), ledger=book))
    assert len(book.charges()) == 1
