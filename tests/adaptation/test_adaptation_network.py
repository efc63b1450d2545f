"""A small network whose private gradients are shortened record by record: sums by brute force, sensitivity, noise, limits."""

import numpy as np
import pytest

from mpmtl_prob.adaptation import Domain, NCnvxAdap, NetworkAdap, approximate_posterior
from mpmtl_prob.adaptation.paper import accounting, descent
from mpmtl_prob.adaptation.paper.network import Network
from mpmtl_prob.privacy import BudgetExceeded, Ledger

RNG = np.random.default_rng(6)
D, H, K = 2, 3, 2
LOSS = Network(1.0, 5.0, K, H, 0.2, 0.5)


def halves(n, turn=0.0, seed=0):
    """Labels 1 in two opposite quarters of the plane, 0 in the others: no line tells them apart."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-0.7, 0.7, (n, D))
    c, s = np.cos(turn), np.sin(turn)
    Z = X @ np.array([[c, -s], [s, c]])
    return Domain(X, (Z[:, 0] * Z[:, 1] > 0).astype(float))


SOURCE, TARGET = halves(120, seed=1), halves(40, 0.3, seed=2)


def by_hand(w, x, y):
    """One record's loss and gradient, with the chain rule written out."""
    M, b, A, a = w[: D * H].reshape(D, H), w[D * H : D * H + H], w[D * H + H : -K].reshape(H, K), w[-K:]
    hidden = np.tanh(x @ M + b)
    s = hidden @ A + a
    p = np.exp(s) / np.exp(s).sum()
    by_s = p - np.eye(K)[int(y)]
    by_hidden = (A @ by_s) * (1 - hidden**2)
    return -np.log(p[int(y)]), np.r_[np.outer(x, by_hidden).ravel(), by_hidden, np.outer(hidden, by_s).ravel(), by_s]


def test_a_sum_is_that_of_gradients_shortened_one_by_one():
    law = descent.law(1, LOSS.size(D), 1, 4.0)
    h = descent.grid(law)
    sums = descent.PrivateSums(TARGET, LOSS, 0.2, np.zeros((1, LOSS.size(D))), h)
    for _ in range(5):
        w, weights = RNG.standard_normal(LOSS.size(D)), RNG.random(40)
        each = [by_hand(w, x, y) for x, y in zip(TARGET.X, TARGET.y, strict=True)]
        np.testing.assert_allclose(LOSS.values(w, TARGET.X, TARGET.y), [value for value, _ in each], atol=1e-12)
        gradients = weights[:, None] * np.array([g for _, g in each])
        lengths = np.linalg.norm(gradients, axis=1)
        assert np.any(lengths > 0.2)
        assert np.any(lengths < 0.2)
        wanted = sum(g * min(1.0, 0.2 / length) for g, length in zip(gradients, lengths, strict=True))
        np.testing.assert_allclose(sums.gradient(0, w, weights), wanted, atol=40 * 0.4 * h)
        np.testing.assert_allclose(
            LOSS.slopes(w, TARGET.X, TARGET.y) @ np.ones(K), 0.0, atol=1e-12
        )  # scores that all rise by as much change nothing


def test_a_record_moves_a_sum_within_bounds_and_no_other_bits():
    """Another record moves a sum by no more than the noise is for, and changes no bit of other records."""
    law = descent.law(1, LOSS.size(D) + 40, 2, 4.0)
    h, zero = descent.grid(law), np.zeros((1, LOSS.size(D) + 40))
    moved = []
    for _ in range(30):
        X, y = TARGET.X.copy(), TARGET.y.copy()
        X[5], y[5] = RNG.standard_normal(D) * 10.0 ** RNG.integers(-3, 300), 1 - y[5]
        other = Domain(Domain(X, y).bounded(1.0, 1.0).X, y)
        w, u = descent.project(10 * RNG.standard_normal(LOSS.size(D)), 5.0), RNG.random(40)
        one, two = (descent.PrivateSums(each, LOSS, 0.2, zero, h) for each in (TARGET, other))
        gradients = (one.gradient(0, w, u) - two.gradient(0, w, u)) / 0.4
        assert np.all(np.isfinite(gradients))
        moved.append(np.linalg.norm(gradients))
        assert np.linalg.norm(one.losses(0, w, u) - two.losses(0, w, u)) <= LOSS.bound
        a, b = (LOSS.gradients(w, each.X, each.y) for each in (TARGET, other))
        assert np.array_equal(np.delete(a, 5, 0), np.delete(b, 5, 0))
    assert 0.3 < max(moved) <= 1.0


@pytest.mark.parametrize("variant", ["printed", "profiled"])
def test_the_noise_of_a_step_is_what_the_promise_needs(variant):
    options = {
        "steps": 60,
        "step_size": 1e-6,
        "variant": variant,
        "hidden": H,
        "gradient_bound": 0.2,
        "discrepancy": 0.0,
    }
    model = NetworkAdap(epsilon=2.0, delta=1e-3, unsafe_seed=3, **options).fit(SOURCE, TARGET)
    path = np.vstack([model._first(model.loss_, SOURCE), model.path_])
    steps = np.diff(path, axis=0) / -1e-6
    queries = 2 if variant == "printed" else 1
    sigma = 2 * 0.5 * 0.2 / 40 * np.sqrt(60 * queries) / accounting.calibrated_mu(2.0, 1e-3)
    assert steps.std(axis=0).mean() == pytest.approx(sigma, rel=0.1)


def test_it_learns_what_no_line_can_and_adapts():
    source, target, test = halves(1500, seed=3), halves(1500, 0.6, seed=4), halves(2000, 0.6, seed=5)
    right = lambda model: np.mean(model.predict(test.X) == test.y)
    options = {"steps": 60, "source_weight": 0.1, "discrepancy": 0.0, "lambda_1": 20.0, "step_size": 2.0}
    private = right(NetworkAdap(epsilon=4.0, delta=1e-4, unsafe_seed=1, **options).fit(source, target))
    line = right(NCnvxAdap(epsilon=None, discrepancy=0.0).fit(source, target))
    start = NetworkAdap(epsilon=4.0, delta=1e-4, unsafe_seed=1, **options | {"steps": 1, "step_size": 1e-9})
    public = right(start.fit(source, target))
    print(private, line, public)
    assert line < 0.65
    assert private > public + 0.04


@pytest.mark.filterwarnings("error")
def test_poisoned_records_are_zeros_and_long_ones_are_cut():
    """A poisoned record counts as one of zeros, and a long one as one of length r."""
    options = {"epsilon": 1.0, "delta": 1e-3, "steps": 4, "hidden": H, "unsafe_seed": 1}
    fit = lambda X, y, discrepancy=0.0: NetworkAdap(**options, discrepancy=discrepancy).fit(SOURCE, (X, y)).coef_
    zero = TARGET.X.copy()
    zero[7] = 0.0
    y = TARGET.y.copy()
    y[7] = 0.0
    wanted = fit(zero, y)
    for value in (np.nan, np.inf, -np.inf):
        X = TARGET.X.copy()
        X[7, 1] = value
        assert np.array_equal(fit(X, y), wanted)
    assert np.array_equal(fit(X, y, "candidates"), fit(zero, y, "candidates"))  # a noisy one is slow to account for
    label = TARGET.y.copy()
    label[7] = np.nan  # a label that the source lacks
    assert np.array_equal(fit(TARGET.X, label), wanted)
    assert np.all(np.isfinite(fit(TARGET.X * 1e300, TARGET.y)))
    assert np.all(np.isfinite(fit(np.zeros((0, D)), np.zeros(0))))


def test_one_charge_pays_and_mistakes_cost_nothing():
    book = Ledger(epsilon=1.5, delta=1e-2, unit="target record")
    options = {"epsilon": 1.0, "delta": 1e-2, "steps": 3, "hidden": H, "ledger": book}
    model = NetworkAdap(**options).fit(SOURCE, TARGET)
    assert [law.kind for law in book.charges()[0].mechanisms] == ["VectorLaplace", "VectorGaussian"]
    assert model.guarantee_.proved.unit == "target record"
    assert 0 <= model.discrepancy_ <= model.loss_bound
    with pytest.raises(BudgetExceeded):
        NetworkAdap(**options).fit(SOURCE, TARGET)
    with pytest.raises(ValueError, match="unit: expected"):
        NetworkAdap(ledger=Ledger(epsilon=9.0, delta=1e-2)).fit(SOURCE, TARGET)
    for more, message in (
        ({"step_size": None}, "step_size: expected a number for a network"),
        ({"step_size": -1.0}, "step_size: expected a positive"),
        ({"hidden": 0}, "hidden: expected a whole number"),
        ({"gradient_bound": 0.0}, "gradient_bound: expected a positive"),
        ({"loss_bound": np.inf}, "loss_bound: expected a positive"),
    ):
        with pytest.raises(ValueError, match=message):
            NetworkAdap(**options | more).fit(SOURCE, TARGET)
    assert len(book.charges()) == 1
    with pytest.raises(ValueError, match="model: expected an NCnvxAdap fitted with epsilon"):
        approximate_posterior(model, SOURCE)
    with pytest.raises(ValueError, match=r"X: expected shape \(records, 2\), got \(1, 3\)"):
        model.predict(np.ones((1, 3)))
    with pytest.raises(ValueError, match="expected a fit before a prediction"):
        NetworkAdap().predict(TARGET.X)
