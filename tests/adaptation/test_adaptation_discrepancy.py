"""The discrepancy against brute force, a semidefinite programme and its own sensitivity; losses against autodiff."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.optimum import optimum

from mpmtl_prob.adaptation import Ball, Domain, private_discrepancy
from mpmtl_prob.adaptation.data import problems
from mpmtl_prob.adaptation.paper.discrepancy import SLACK, Quadratic, by_dca, discrepancy, grid, largest, price
from mpmtl_prob.adaptation.paper.losses import Logistic, Softmax, Squared
from mpmtl_prob.adaptation.paper.ncnvx import candidate_search
from mpmtl_prob.privacy import BudgetExceeded, Ledger

RNG = np.random.default_rng(0)


def quadratics(d, number):
    for i in range(number):
        A = RNG.standard_normal((d, d))
        sign = (1.0, -1.0, 0.3)[i % 3]
        A = sign * (A @ A.T) if i % 2 else (A + A.T) / 2
        yield Quadratic(A, RNG.standard_normal(d) * 10.0 ** RNG.integers(-3, 1), float(RNG.standard_normal()))


def test_no_point_of_the_ball_beats_the_maximum():
    angle = np.linspace(0, 2 * np.pi, 721)
    rings = np.multiply.outer(np.linspace(0, 1, 101), np.stack([np.cos(angle), np.sin(angle)], 1)).reshape(-1, 2)
    for f in quadratics(2, 60):
        for radius in (0.1, 1.0, 5.0):
            maximum = largest(f, radius)
            assert np.linalg.norm(maximum.at) <= radius * (1 + 1e-9)
            grid = f(radius * rings)
            assert maximum.value >= grid.max() - 1e-9 * (1 + abs(maximum.value))
            assert maximum.value <= grid.max() + 1e-2 * (1 + np.ptp(grid))


def test_the_hard_case_fills_the_ball():
    f = Quadratic(np.diag([2.0, 2.0, 1.0]), np.array([0.0, 0.0, 0.1]), 0.0)
    maximum = largest(f, 1.0)
    # (2 I - A) v = -b leaves v_3 = -.1, and the rest of the ball to the top eigenvectors
    assert maximum.value == pytest.approx(2 * 0.99 + 0.01 + 0.02)
    for f in (Quadratic(np.zeros((2, 2)), np.zeros(2), 0.7), Quadratic(-np.eye(2), np.zeros(2), 0.7)):
        assert largest(f, 1.0).value == pytest.approx(0.7)


def test_a_semidefinite_programme_finds_the_same():
    cvxpy = pytest.importorskip("cvxpy")
    for f in quadratics(4, 6):
        # the S-lemma: min g with [[mult I - A, b], [b', g - mult R^2 - c]] >= 0
        mult, g = cvxpy.Variable(nonneg=True), cvxpy.Variable()
        corner = cvxpy.reshape(g - mult * 0.49 - f.c, (1, 1), order="C")
        block = cvxpy.bmat([[mult * np.eye(4) - f.A, f.b[:, None]], [f.b[None], corner]])
        problem = cvxpy.Problem(cvxpy.Minimize(g), [block >> 0])
        optimum(problem)
        assert largest(f, 0.7).value == pytest.approx(problem.value, rel=1e-5, abs=1e-6)


def test_difference_of_convex_steps_never_beat_the_maximum():
    """Difference-of-convex steps never beat the maximum, and sometimes fall short."""
    gaps = [discrepancy(f, 1.0).value - by_dca(f, 1.0, RNG.standard_normal(3)).value for f in quadratics(3, 40)]
    assert min(gaps) > -1e-9
    assert max(gaps) > 1e-3  # a single start proves nothing


def test_a_replaced_record_moves_it_by_no_more_than_its_share():
    data = problems.two_sources((50, 9), num_features=3, tests=1, seed=1)
    for ball in (Ball(None, 1.5), Ball((0.1, 0.2, -0.3), 0.3, 0.4)):
        f = discrepancy(ball.difference(data.source, data.target), ball.radius).value
        moved = []
        for _ in range(60):
            x, y = RNG.standard_normal(3) * 3, np.sign(RNG.standard_normal())
            X, t = data.target.X.copy(), data.target.y.copy()
            X[0], t[0] = x, y
            moved.append(discrepancy(ball.difference(data.source, Domain(X, t)), ball.radius).value - f)
        assert 0.2 * ball.loss_range / 9 < np.abs(moved).max() <= ball.loss_range / 9


def test_next_to_the_hard_case_it_is_as_exact_as_anywhere():
    # -b has a part along the top eigenvectors, but next to none: max = s + .999 + b^2 / s at s = |b|
    for b in (1e-11, 2.4e-13, 2.5e-14, 3e-16):
        f = Quadratic(np.diag([0.999, 0.4]), np.array([b, 0.0]), 0.0)
        assert largest(f, 1.0).value == pytest.approx(0.999 + 2 * b, rel=1e-14)
        tilted = largest(Quadratic(np.diag([0.999, 0.4]), np.array([b, 0.3]), 0.0), 1.0).value
        assert tilted == pytest.approx(
            0.999 + 0.3**2 / 0.599, rel=1e-10
        )  # v_2 = -.3 / .599, and the rest along the first


def test_a_record_along_the_top_direction_moves_it_by_its_share():
    """A record that takes the last part along the top moves the discrepancy by its share."""
    ball, n, h = Ball(None, 1.0), 20_000, 2.0**-11
    source, one = (np.zeros((n - 2, 2)), np.zeros(n - 2)), np.eye(1, n)[0]
    source[0][0, 0] = source[1][0] = h
    discrepancies = [
        discrepancy(ball.difference(Domain(*source), Domain(np.stack([1 - one + a * one, 0 * one], 1), a * one)), 1.0)
        for a in (h, 0.0)
    ]
    assert abs(discrepancies[0].value - discrepancies[1].value) < 1e-8 * ball.loss_range


def test_a_small_ball_tells_apart_what_a_large_one_does_not():
    """A small ball around a public fit tells samples apart that a large one does not."""
    same = problems.shifted((2000, 500), 0.0, seed=0)
    other = problems.shifted((2000, 500), 1.2, seed=0)
    local = Ball(tuple(np.linalg.lstsq(same.source.X, same.source.y, rcond=None)[0]), 0.1, 0.3)
    d = lambda data, ball: discrepancy(ball.difference(data.source, data.target), ball.radius).value
    assert d(other, local) > 3 * d(same, local)
    assert d(other, Ball(None, 3.0)) < 1.3 * d(same, Ball(None, 3.0))


def test_it_is_paid_for_and_refused_in_a_ledger_of_tasks():
    data = problems.two_sources((50, 30), tests=1)
    ball = Ball(None, 1.0)
    book = Ledger(epsilon=1.0, delta=1e-3, unit="target record")
    estimate = private_discrepancy(data.source, data.target, ball=ball, epsilon=0.6, ledger=book)
    assert estimate.guarantee.proved.epsilon == 0.6
    assert estimate.guarantee.proved.delta < 1e-9
    assert estimate.guarantee.proved.unit == "target record"
    assert 0 <= estimate.value <= ball.loss_range
    with pytest.raises(BudgetExceeded):
        private_discrepancy(data.source, data.target, ball=ball, epsilon=0.6, ledger=book)
    for unit in ("task", "row", "person"):
        other = Ledger(epsilon=9.0, delta=1e-3, unit=unit)
        with pytest.raises(ValueError, match="unit: expected"):
            private_discrepancy(data.source, data.target, ball=ball, epsilon=0.6, ledger=other)
        assert other.charges() == []


def test_the_price_covers_the_solver_and_the_grid():
    law = price(2.0, 100, 1.0)
    assert law.sensitivity >= 2.0 * (1 / 100 + 2 * SLACK) + grid(law)


def test_candidates_are_chosen_without_private_records():
    data = problems.two_sources((80, 12), tests=1, seed=2)
    label = lambda records: Domain(records.X, np.where(records.y > 0, 1.0, -1.0))
    source, target, loss = label(data.source), label(data.target), Logistic(1.0, 3.0)
    search = candidate_search(loss, source, 0, number=50)
    before = search(source, target)
    X = target.X.copy()
    X[3] = [1.0, 0, 0, 0, 0, 0, 0, 0]
    assert abs(search(source, Domain(X, target.y)) - before) <= loss.bound / 12
    assert candidate_search(loss, source, 0, number=50)(source, target) == before


@pytest.mark.parametrize(
    "loss", [Squared(1.0, 1.5), Logistic(1.0, 4.0), Softmax(1.0, 4.0, 3)], ids=lambda x: type(x).__name__
)
def test_losses_keep_their_bounds_and_autodiff_gradients(loss):
    """Losses keep their bounds and have the gradients that autodiff finds."""
    d, k = 4, loss.outputs

    def value(w, x, y):
        s = w.reshape(d, k).T @ x
        if isinstance(loss, Squared):
            return (s[0] - y) ** 2
        return jnp.logaddexp(0.0, -y * s[0]) if k == 1 else jax.nn.logsumexp(s) - s[y.astype(int)]

    with jax.enable_x64(True):
        all_of = jax.jit(lambda *at: (value(*at), jax.grad(value)(*at), jax.hessian(value)(*at)))
        for _ in range(30):
            w, x = RNG.standard_normal(d * k), RNG.standard_normal((1, d))
            w, x = loss.weight_bound * w / np.linalg.norm(w), x / np.linalg.norm(x)
            y = np.sign(RNG.standard_normal(1)) if k == 1 else RNG.integers(3, size=1).astype(float)
            exact, gradient, hessian = map(np.asarray, all_of(w, x[0], y[0]))
            assert loss.values(w, x, y)[0] == pytest.approx(float(exact), rel=1e-10)
            np.testing.assert_allclose(loss.gradients(w, x, y)[0], gradient, atol=1e-10)
            assert exact <= loss.bound * (1 + 1e-12)
            assert np.linalg.norm(gradient) <= loss.lipschitz * (1 + 1e-12)
            assert np.linalg.eigvalsh(hessian)[-1] <= loss.smoothness * (1 + 1e-12)
