"""DP-AGGR and DP-MTRL: what they compute without noise, how much noise they add, and what that protects."""

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
from helpers.optimum import optimum
from helpers.tolerances import RARE
from numpy.testing import assert_allclose
from scipy import stats
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from mpmtl_prob import TaskData
from mpmtl_prob.estimators import DPMTRL, DPAggr, LeastSquares, Logistic
from mpmtl_prob.estimators.dp_mtrl import Local, Relations
from mpmtl_prob.privacy import Bound, BudgetExceeded, Ledger, composition_bound

RNG = np.random.default_rng(0)


def make(sizes, d=4, binary=False, seed=0):
    rng = np.random.default_rng(seed)
    shared = rng.standard_normal(d)
    X = [rng.standard_normal((n, d)) for n in sizes]
    X = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in X]
    y = [x @ (2 * shared + rng.standard_normal(d)) + 0.3 * rng.standard_normal(len(x)) for x in X]
    return TaskData.from_lists(X, [np.sign(v) for v in y] if binary else y)


@pytest.fixture(scope="module")
def ragged():
    return make([6, 9, 5, 12, 7])


@pytest.fixture(scope="module")
def ragged_binary():
    return make([6, 9, 5, 12, 7], binary=True)


def test_without_noise_tasks_get_the_average_of_ridge_models(ragged):
    """Without noise, every task gets the average of ridge models."""
    fitted = DPAggr(0.3, epsilon=None).fit(ragged)
    own = []
    for X, y, real in zip(ragged.X, ragged.y, ragged.mask, strict=True):
        n = real.sum()
        own.append(np.linalg.solve(X.T @ X / n + 0.3 * np.eye(4), X.T @ y / n))
    assert_allclose(fitted.W, np.repeat(np.mean(own, axis=0)[:, None], 5, axis=1), rtol=1e-10)
    assert fitted.guarantee.proved is None
    assert fitted.predict(ragged).mean.shape == ragged.y.shape


def test_without_noise_the_logistic_average_is_scikit_learns(ragged_binary):
    """Without noise, the logistic average is that of scikit-learn."""
    own = []
    for X, y, real in zip(ragged_binary.X, ragged_binary.y, ragged_binary.mask, strict=True):
        # it minimises C times the sum over rows plus half the squared length
        model = LogisticRegression(C=1 / (0.1 * real.sum()), fit_intercept=False, solver="newton-cholesky", tol=1e-12)
        own.append(model.fit(X[real], y[real]).coef_[0])
    fitted = DPAggr(0.1, epsilon=None, loss=Logistic()).fit(ragged_binary)
    assert_allclose(fitted.W[:, 0], np.mean(own, axis=0), atol=1e-8)


@pytest.mark.parametrize("loss", [LeastSquares(), Logistic()], ids=["squared", "logistic"])
@pytest.mark.parametrize("penalty", [0.05, 0.5, 5.0])
def test_a_row_moves_the_average_within_the_sensitivity(ragged, ragged_binary, loss, penalty):
    """No other row moves the average by more than the sensitivity."""
    binary = isinstance(loss, Logistic)
    tasks, rng = ragged_binary if binary else ragged, np.random.default_rng(1)
    n, d, trials = tasks.mask.sum(axis=1), 4, 300
    # many problems at once: the task that changes, with one row replaced, in `trials` versions
    x = rng.standard_normal((trials, d))
    x *= (1.0 if binary else 3.0) / np.linalg.norm(x, axis=1, keepdims=True)  # 3: to be shortened to 1
    target = rng.choice([-1.0, 1.0] if binary else [-2.0, 2.0, 50.0], trials)
    task = rng.integers(5, size=trials)
    before = DPAggr(penalty, None, loss, target_bound=2.0)
    X, y, mask = tasks.X[task].copy(), tasks.y[task].copy(), tasks.mask[task]
    X[:, 0], y[:, 0] = x, target
    changed = before.fit(TaskData(X, y, mask, tuple(range(trials)), tasks.features)).history["local"][0]
    fitted = before.fit(tasks)
    moved = np.linalg.norm(changed - fitted.history["local"][0][:, task], axis=0) / 5
    bound = 2 * before.lipschitz(tasks) / (5 * n.min() * penalty)
    assert moved.max() <= bound
    if penalty >= 0.5:  # and it is of the right size; under a weak penalty random rows are far from the worst
        assert moved.max() > 0.1 * bound
    assert (moved <= bound * n.min() / n[task]).all()
    # a task replaced altogether: two models of any rows whatever
    assert np.linalg.norm(changed[:, :1] - changed, axis=0).max() / 5 <= 2 * before.lipschitz(tasks) / (5 * penalty)


def noise_of(tasks, draws=400, **options):
    quiet = DPAggr(epsilon=None, **options).fit(tasks).W[:, 0]
    return np.stack([DPAggr(epsilon=0.7, unsafe_seed=s, **options).fit(tasks).W[:, 0] - quiet for s in range(draws)])


def test_circulated_noise_is_independent_laplace_as_printed(ragged):
    """Circulated noise is independent Laplace noise of the scale that is printed."""
    b = noise_of(ragged, penalty=0.3, level="row", target_bound=2.0)
    assert stats.kstest(b.ravel(), stats.laplace(scale=2 / (5 * 0.7 * 0.3)).cdf).pvalue > RARE  # n_min = 5
    b = noise_of(ragged, penalty=0.3, level="task", target_bound=2.0)
    assert stats.kstest(b.ravel(), stats.laplace(scale=2 * 12 / (5 * 0.7 * 0.3)).cdf).pvalue > RARE  # n = 12


def test_tight_noise_has_a_gamma_length_of_the_sensitivity(ragged):
    options = {"penalty": 0.3, "noise": "tight", "level": "row", "target_bound": 2.0}
    L = DPAggr(**options).lipschitz(ragged)
    assert_allclose(L, 2 / (2 * np.sqrt(0.3)) + 2)  # Y / (2 sqrt(lambda)) + Y with rows of length 1
    length = np.linalg.norm(noise_of(ragged, **options), axis=1)
    Delta = 2 * L / (5 * 5 * 0.3)
    assert stats.kstest(length, stats.gamma(4, scale=Delta / 0.7).cdf).pvalue > RARE
    assert stats.kstest(length, stats.gamma(4, scale=1.3 * Delta / 0.7).cdf).pvalue < 1e-3  # n_min and m are seen


def test_dp_aggr_says_what_it_claims_and_what_holds(ragged, ragged_binary):
    row = DPAggr(0.3, 1.0, noise="tight", level="row", target_bound=2.0).fit(ragged).guarantee
    assert row.claimed == row.proved == Bound(pytest.approx(1.0), 0.0, "replace", "row")
    # eps / n for a row of the largest task gives eps for the task; here, with 5 to 12 rows, less noise would do
    task = DPAggr(0.3, 1.0, noise="tight", target_bound=2.0, rows=(5, 12)).fit(ragged).guarantee
    assert task.claimed == Bound(1.0, 0.0, "replace", "task")
    assert task.proved == Bound(pytest.approx(5 / 12, rel=2e-3), 0.0, "replace", "task")
    # as circulated: neither L nor m is in the noise, and sqrt(d) is missing: true eps = eps sqrt(d) L / m
    binary = DPAggr(0.3, 1.0, Logistic(), level="row").fit(ragged_binary).guarantee
    assert binary.claimed == Bound(1.0, 0.0, "replace", "row")
    assert np.sqrt(4) * 1.0 / 5 <= binary.proved.epsilon <= np.sqrt(4) * 1.0 / 5 * 1.003  # with the cuts to the lattice


def test_row_counts_that_were_read_off_prove_nothing_of_a_task(ragged):
    method = DPAggr(0.3, 1.0, target_bound=2.0)
    counted = method.fit(ragged).guarantee
    assert counted.proved is None
    assert "number of rows" in counted.reason
    given = replace(method, rows=(4, 6)).fit(ragged)
    assert given.guarantee.proved.unit == "task"
    short = TaskData.from_lists(
        *[[part[:6] for part in parts] for parts in zip(*map(ragged.rows_of, range(5)), strict=True)]
    )
    assert_allclose(given.history["local"], replace(method, rows=(4, 6)).fit(short).history["local"])  # n_max holds
    assert replace(method, level="row", rows=(6, 12)).fit(ragged).guarantee.proved is None  # one has 5 rows
    with pytest.raises(ValueError, match="rows: expected"):
        replace(method, rows=(7, 6)).fit(ragged)


def test_a_bound_read_off_the_targets_proves_nothing(ragged):
    fitted = DPAggr(0.3, 1.0).fit(ragged)
    assert fitted.guarantee.proved is None
    assert "largest target" in fitted.guarantee.reason
    assert DPAggr(0.3, 1.0, target_bound=2.0, unsafe_seed=0).fit(ragged).guarantee.proved is None
    with pytest.raises(ValueError, match="ledger: expected none, as nothing is proved"):
        DPAggr(0.3, 1.0, ledger=Ledger(epsilon=2.0, delta=1e-6)).fit(ragged)


@pytest.mark.parametrize("level", ["row", "task"])
def test_dp_aggr_pays_before_it_draws(ragged_binary, level):
    book = Ledger(epsilon=1.0, delta=1e-6, unit=level)
    method = DPAggr(0.3, 0.9, Logistic(), noise="tight", level=level, rows=(5, 12), ledger=book)
    proved = method.fit(ragged_binary).guarantee.proved
    assert [charge.unit for charge in book.charges()] == [level]
    assert book.spent.epsilon <= proved.epsilon
    dear = replace(method, epsilon=3.0)
    with pytest.raises(BudgetExceeded):
        dear.fit(ragged_binary)
    assert len(book.charges()) == 1


def test_relations_are_the_inverse_of_omega_without_its_entries():
    W = RNG.standard_normal((3, 7))
    _, s, Vt = np.linalg.svd(W, full_matrices=False)
    P = np.linalg.inv(0.8 * (Vt.T * s) @ Vt / s.sum() + 0.2 * np.eye(7) / 7)
    relations, other = Relations.of(W, 0.2), RNG.standard_normal((3, 7))
    assert_allclose(relations.diagonal, np.diag(P), rtol=1e-10)
    assert_allclose(relations.others(other), other @ (P - np.diag(np.diag(P))), atol=1e-9)
    assert_allclose(Relations.of(np.zeros((3, 7)), 0.2).diagonal, 7)


def test_the_first_round_of_dp_mtrl_is_ridge_regression(ragged):
    fitted = DPMTRL(0.1, 0.02, epsilon=None).fit(ragged)
    for i, (X, y, real) in enumerate(zip(ragged.X, ragged.y, ragged.mask, strict=True)):
        n = real.sum()  # P = m I
        assert_allclose(fitted.W[:, i], np.linalg.solve(X.T @ X / n + (0.1 + 0.02 * 5) * np.eye(4), X.T @ y / n))


def test_coupled_equations_have_the_joint_fixed_point(ragged):
    """The coupled equations have the fixed point of the joint problem."""
    relations, ridge, relation = Relations.of(RNG.standard_normal((4, 5)), 0.5), 0.1, 0.05
    local, W = Local.of(ragged), np.zeros((4, 5))
    for _ in range(500):
        W = local.solve(relations, W, ridge, relation)
    # the joint problem with Omega fixed, by an independent solver
    P = np.diag(relations.diagonal) + np.stack([relations.others(np.eye(5)[i : i + 1])[0] for i in range(5)])
    V = cp.Variable((4, 5))
    fit = sum(
        cp.sum_squares(X[real] @ V[:, i] - y[real]) / (2 * real.sum())
        for i, (X, y, real) in enumerate(zip(ragged.X, ragged.y, ragged.mask, strict=True))
    )
    coupling = cp.sum_squares(V @ np.linalg.cholesky(P))
    optimum(cp.Problem(cp.Minimize(fit + ridge / 2 * cp.sum_squares(V) + relation / 2 * coupling)))
    assert_allclose(W, V.value, atol=1e-5)


def test_many_noiseless_rounds_find_optimal_relations():
    """Without noise, many rounds find the relations that are optimal."""
    tasks = make([30] * 3, d=6)
    V = cp.Variable((6, 3))
    fit = sum(cp.sum_squares(tasks.X[i] @ V[:, i] - tasks.y[i]) / (2 * 30) for i in range(3))
    # the best Omega leaves half of the relation's weight on the squared trace norm
    optimum(cp.Problem(cp.Minimize(fit + 0.5 / 2 * cp.sum_squares(V) + 0.01 / 2 * cp.normNuc(V) ** 2)))
    fitted = DPMTRL(0.5, 0.01, epsilon=None, rounds=400, floor=1e-6).fit(tasks)
    assert_allclose(fitted.W, V.value, atol=1e-4)


def test_dp_mtrl_noise_is_gamma_in_units_of_its_sensitivity():
    tasks = make([8] * 400)
    noisy, quiet = (DPMTRL(0.2, 0.001, e, level="row", unsafe_seed=3).fit(tasks) for e in (0.6, None))
    residual = np.abs(np.einsum("tni,it->tn", tasks.X, quiet.W) - tasks.y).max(axis=1)
    Delta = 2 * residual / (8 * (0.2 + 0.001 * 400))
    assert_allclose(noisy.history["sensitivity"][0], Delta)
    length = np.linalg.norm(noisy.W - quiet.W, axis=0) * 0.6 / Delta
    assert stats.kstest(length, stats.gamma(4).cdf).pvalue > RARE


def test_budgets_compose_to_the_claim_for_rows_and_tasks(ragged):
    """Budgets compose to what is claimed for rows and, by group privacy, for tasks."""
    row = DPMTRL(0.1, 0.1, epsilon=2.0, rounds=5, delta=1e-3, level="row").budgets(ragged)
    assert_allclose(row, row[0])
    assert_allclose(composition_bound(row, 1e-3), 2.0)
    task = DPMTRL(0.1, 0.1, epsilon=2.0, rounds=5, delta=1e-3, level="task").budgets(ragged)
    n = 12  # the largest task
    each, delta = 2.0 / n, 1e-3 / (n * np.exp(2.0))
    assert_allclose(composition_bound(task, delta), each)
    # Vadhan (2017), Lemma 2.2: n rows are (n eps, n e^{(n-1) eps} delta)-private, within Proposition 3's n e^{n eps} delta
    assert n * each == pytest.approx(2.0)
    assert n * np.exp((n - 1) * each) * delta <= n * np.exp(n * each) * delta == pytest.approx(1e-3)


def test_dp_mtrl_claims_and_proves_nothing(ragged):
    fitted = DPMTRL(0.1, 0.1, epsilon=2.0, rounds=3, level="row").fit(ragged)
    assert fitted.guarantee.claimed == Bound(2.0, 1 / (5 * np.log(5)), "replace", "row")
    assert fitted.guarantee.proved is None
    assert "largest residual of the private rows" in fitted.guarantee.reason
    assert fitted.history["W"].shape == (3, 4, 5)
    assert not np.array_equal(fitted.W, DPMTRL(0.1, 0.1, epsilon=2.0, rounds=3, level="row").fit(ragged).W)
    seeded = [DPMTRL(0.1, 0.1, epsilon=2.0, unsafe_seed=1).fit(ragged) for _ in range(2)]
    assert_allclose(seeded[0].W, seeded[1].W, rtol=0)
    assert "seed" in seeded[0].guarantee.reason


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (DPAggr(0.0), "penalty: expected a positive number, got 0.0"),
        (DPAggr(1.0, -1.0), "epsilon: expected a positive number"),
        (DPAggr(1.0, noise="normal"), "noise: expected one of 'circulated', 'tight'"),
        (DPAggr(1.0, level="person"), "level: expected one of 'task', 'row'"),
        (DPAggr(1.0, row_norm=0.0), "row_norm: expected a positive number"),
        (DPAggr(1.0, target_bound=-2.0), "target_bound: expected a positive number"),
        (DPAggr(1.0, loss=Logistic()), "tasks: expected targets -1 and 1"),
        (DPMTRL(-0.1, 1.0), "ridge: expected a number >= 0"),
        (DPMTRL(0.1, 0.0), "relation: expected a positive number"),
        (DPMTRL(0.1, 1.0, 0.0), "epsilon: expected a positive number"),
        (DPMTRL(0.1, 1.0, rounds=0), "rounds: expected a whole number >= 1"),
        (DPMTRL(0.1, 1.0, delta=1.0), "delta: expected a number in"),
        (DPMTRL(0.1, 1.0, level="unit"), "level: expected one of"),
        (DPMTRL(0.1, 1.0, floor=1.0), "floor: expected a number in"),
    ],
)
def test_bad_arguments_are_named(ragged, method, message):
    with pytest.raises(ValueError, match=message):
        method.fit(ragged)


@pytest.mark.parametrize("loss", [LeastSquares(), Logistic()], ids=["squared", "logistic"])
def test_a_penalty_too_weak_for_some_rows_is_always_refused(loss):
    """A penalty that is too weak for some rows is refused, whatever the rows are."""
    for X in (np.ones((4, 4)), np.eye(4), np.zeros((4, 4))):
        tasks = TaskData.from_lists([X] * 5, [np.ones(4), -np.ones(4), np.ones(4), -np.ones(4), np.ones(4)])
        for penalty, R in ((1e-30, 1.0), (9e-8, 1.0), (9e-2, 1e3)):
            message = rf"^penalty: expected at least .*, so that the solver converges, got {penalty}"
            with pytest.raises(ValueError, match=message):
                DPAggr(penalty, loss=loss, row_norm=R, target_bound=1.0).fit(tasks)
            DPAggr(1.01e-7 * R**2, loss=loss, row_norm=R, target_bound=1.0).fit(tasks)


ROWS = {
    "balanced": (np.ones((100, 2)), np.resize([1.0, -1.0], 100)),
    "nearly": (np.ones((100, 2)), np.r_[np.ones(51), -np.ones(49)]),
    "one other": (np.ones((100, 2)), np.r_[np.ones(99), -np.ones(1)]),
    "separable": (np.eye(100)[:, :2] * 1e150, np.ones(100)),
    "hardly": (np.linspace(1e-9, 1, 200).reshape(100, 2), np.r_[np.ones(50), -np.ones(50)]),
    "nothing": (np.zeros((100, 2)), np.ones(100)),
    "hidden": (np.full((100, 2), 1e-200), np.ones(100)),
    "bent": (np.random.default_rng(0).standard_normal((100, 2)) * [1.0, 1e-3], np.resize([1.0, -1.0, 1.0], 100)),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("penalty", [1.1e-7, 1e-4, 1.0, 1e6])
@pytest.mark.parametrize("R", [1e-6, 1.0, 30.0])
def test_models_of_any_rows_meet_one_tolerance_in_silence(R, penalty):
    """Models of any rows are found to the same tolerance, and no warning is raised."""
    X, y = (list(parts) for parts in zip(*ROWS.values(), strict=True))
    method = DPAggr(penalty * R**2, loss=Logistic(), rows=(10, 100), row_norm=R)
    fitted = method.fit(TaskData.from_lists(X, y))
    assert fitted.guarantee.claimed == Bound(1.0, 0.0, "replace", "task")
    assert fitted.guarantee.proved.delta == 0.0  # at an eps of its own
    for x, label, w in zip(X, y, fitted.history["local"][0].T, strict=True):
        x = x / np.maximum(1.0, np.linalg.norm(x, axis=1, keepdims=True) / R)
        slope = method.penalty * w - x.T @ (label * expit(-label * (x @ w))) / 100
        assert np.linalg.norm(slope) <= 1.01e-10 * R
