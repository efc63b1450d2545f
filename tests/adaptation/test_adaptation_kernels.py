"""Random features, discrepancy minimisation from a private moment, and the rate that is optimal."""

import numpy as np
import pytest

from mpmtl_prob.adaptation import (
    CnvxAdap,
    DiscrepancyMinimisation,
    Domain,
    PrivateDiscrepancyMinimisation,
    RandomFeatures,
    bounds,
)
from mpmtl_prob.adaptation.data import problems
from mpmtl_prob.adaptation.paper.losses import Squared
from mpmtl_prob.adaptation.paper.objective import Convex, Sizes
from mpmtl_prob.privacy import Ledger

DATA = problems.two_sources((200, 100), num_features=3, tests=300, seed=2)


def test_random_features_have_the_kernels_products():
    kernel = RandomFeatures.of(DATA.source, number=4000, width=0.7, seed=1)
    Z, X = kernel(DATA.source).X[:40], DATA.source.X[:40]
    np.testing.assert_allclose(np.linalg.norm(Z, axis=1), 1.0, rtol=1e-12)
    exact = np.exp(-((X[:, None] - X[None]) ** 2).sum(-1) / (2 * 0.7**2))
    assert np.abs(Z @ Z.T - exact).max() < 5 * np.sqrt(0.5 / 4000)  # the sd of a mean of 4000 cosines is at most that


@pytest.mark.filterwarnings("ignore:weight_bound")  # features of one number are nearly collinear, and weights long
def test_random_features_learn_what_no_line_can():
    kernel = RandomFeatures.of(DATA.source, number=60)
    mapped = kernel((np.vstack([DATA.target.X[:5], [[np.nan, 0, 0]]]), np.ones(6)))
    assert not np.isfinite(mapped.X[5]).any()
    np.testing.assert_array_equal(
        mapped.X[:5], kernel((np.vstack([DATA.target.X[:5], [[9.0, 9, 9]]]), np.ones(6))).X[:5]
    )
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (800, 1))
    curve = Domain(X, np.clip(2 * np.abs(X[:, 0]) - 1, -1, 1))
    kernel = RandomFeatures.of(curve, number=20, width=0.5)
    error = {}
    for name, see in (("line", lambda part: part), ("kernel", kernel)):
        parts = [
            see(Domain(curve.X[rows], curve.y[rows])) for rows in (slice(0, 400), slice(400, 600), slice(600, 800))
        ]
        model = CnvxAdap(epsilon=None, discrepancy=0.0, kappa_1=2.0, weight_bound=8.0).fit(*parts[:2])
        error[name] = np.mean((model.predict(parts[2].X) - parts[2].y) ** 2)
    assert error["kernel"] < 0.05 < 0.25 < error["line"]  # the variance of the curve is 1/3
    with pytest.raises(ValueError, match="records: expected 1 features, got 3"):
        kernel(DATA.target)


def test_private_discrepancy_minimisation_pays_once():
    book = Ledger(epsilon=2.0, delta=1e-2, unit="target record")
    model = PrivateDiscrepancyMinimisation(epsilon=1.0, delta=1e-2, ledger=book).fit(DATA.source, DATA.target)
    assert len(book.charges()) == 1
    assert model.guarantee_.proved.epsilon == 1.0
    assert model.source_weights_.sum() == pytest.approx(1.0)
    assert (model.source_weights_ >= 0).all()
    quiet = PrivateDiscrepancyMinimisation(epsilon=1e8, delta=1e-2, unsafe_seed=0).fit(DATA.source, DATA.target)
    exact = DiscrepancyMinimisation().fit(DATA.source, DATA.target)
    np.testing.assert_allclose(quiet.coef_, exact.coef_, atol=1e-3)
    other = Domain(DATA.target.X, -DATA.target.y)  # labels of private records are not used
    same = PrivateDiscrepancyMinimisation(epsilon=1e8, delta=1e-2, unsafe_seed=0).fit(DATA.source, other)
    np.testing.assert_allclose(same.coef_, quiet.coef_, atol=1e-6)


def test_the_optimal_rate_is_the_large_term_of_the_utility():
    loss, penalties = Squared(1.0, 1.5), Convex(0.05)
    given = {"epsilon": 1.0, "delta": 1e-3, "num_features": 8}
    for n in (10, 10_000, 10**6):
        sizes = Sizes(10 * n, n, 0.5)
        optimal = bounds.optimal_rate(loss, penalties, sizes, **given, private_distance=1.0, public_distance=1.0)
        B, G, reach = 2.5**2, 5.0, 1.5 * 5.0
        assert optimal.private_records == pytest.approx((B * 2) ** 2 / (reach**2 * 8))
        assert optimal.rate == pytest.approx(1.5 * G * np.sqrt(8 * np.log(1000)) / n)
        parts = bounds.convex_utility(
            loss, penalties, sizes, **given, steps=optimal.steps, private_distance=1.0, public_distance=1.0
        )
        assert optimal.holds
        assert 0.5 < parts.total / optimal.rate < 8  # constants, and log(3 / delta) in the place of log(1 / delta)
    far = bounds.optimal_rate(loss, penalties, sizes, **given, private_distance=1e9, public_distance=0.0)
    assert not far.holds
