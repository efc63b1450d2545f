"""Parts of Algorithm 1: step sizes, acceleration, budgets, mechanisms; Algorithm 4; a mapping of W'W."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from helpers.tolerances import FAR, RARE
from numpy.testing import assert_allclose

from mpmtl_prob import TaskData
from mpmtl_prob.estimators import (
    L1,
    MPMTL,
    ColumnGroupLasso,
    GroupLasso,
    LeastSquares,
    LocalGradientDescent,
    Logistic,
    LowRank,
    LowRankPlusSparse,
    LowRankSparse,
    MultiTask,
    Noise,
    Proximal,
    ProximalSum,
    RidgeLogistic,
    RowProtection,
    Run,
    SquaredFrobenius,
    TaskRelations,
    TraceNorm,
    first_round,
    one_round,
)
from mpmtl_prob.estimators.framework import run_rounds
from mpmtl_prob.privacy import BudgetExceeded, Gaussian, Ledger, Wishart, calibrate_gaussian, composition_bound
from mpmtl_prob.releases import ReleaseSpec, private_clip_norm


def make(m=6, d=3, n=9, seed=0, binary=False):
    rng = np.random.default_rng(seed)
    W = np.outer(rng.standard_normal(d), rng.standard_normal(m))
    X = rng.standard_normal((m, n, d)) * rng.uniform(0.5, 2, (m, 1, 1))
    y = np.einsum("tni,it->tn", X, W) + 0.3 * rng.standard_normal((m, n))
    return TaskData.from_lists(list(X), list(np.sign(y) if binary else y))


@pytest.fixture(scope="module")
def tasks():
    return make()


@pytest.fixture(scope="module")
def binary():
    return make(binary=True)


def test_one_round_at_a_time_is_the_whole_run(tasks):
    rng = np.random.default_rng(0)
    root = rng.standard_normal((3, 3, 5))
    run = Run(LeastSquares().of(tasks), np.full(6, 0.01), 0.05, np.arange(3) / 5, 0.8, np.zeros(3))
    run, W0, E = jax.tree.map(np.asarray, (run, rng.standard_normal((3, 6)), root @ root.swapaxes(1, 2)))
    sharing = Proximal(TraceNorm())
    sigma, outputs, last = run_rounds(sharing, run, W0, Noise(E))
    carry = jax.jit(first_round, static_argnums=0)(sharing, run, W0, Noise(E))
    step = jax.jit(one_round, static_argnums=0)
    for t in range(3):
        carry, output = step(sharing, run, carry, t, Noise(E[t]))
        assert_allclose(output, outputs[t], atol=1e-12)
    assert_allclose(carry.history, sigma, atol=1e-12)
    assert_allclose(carry.W, last, atol=1e-12)


# -- losses, step sizes, acceleration -------------------------------------------------------------------------------------


@pytest.mark.parametrize("acceleration", [False, True])
@pytest.mark.parametrize(
    "loss", [Logistic(), Logistic(strong_convexity=0.3), LeastSquares(strong_convexity=0.3)], ids=repr
)
def test_without_noise_the_rounds_converge_under_every_loss(binary, loss, acceleration):
    optimum = MultiTask(TraceNorm(), 1.0, loss, tolerance=1e-9).fit(binary)
    fitted = LowRank(penalty=1.0, epsilon=None, rounds=4000, acceleration=acceleration, loss=loss, record=False).fit(
        binary
    )
    assert_allclose(fitted.W, optimum.W, atol=2e-5)


def test_strong_convexity_buys_linear_convergence(tasks):
    loss = LeastSquares(strong_convexity=5.0)
    optimum = MultiTask(TraceNorm(), 1.0, loss, tolerance=1e-10).fit(tasks).W
    path = LowRank(penalty=1.0, epsilon=None, rounds=300, loss=loss).fit(tasks).history["W"]
    error = np.linalg.norm(path - optimum, axis=(1, 2))
    L = loss.of(tasks).curvature().max()
    assert error[120] <= error[20] * (1 - np.sqrt(5.0 / L)) ** 50  # half the rate of theory, on the root scale


def test_beta_is_the_papers(tasks):
    beta = lambda **options: LowRank(penalty=1.0, rounds=4, clip=1.0, **options).plan(tasks).run.beta
    assert_allclose(beta(acceleration=False), 0)
    assert_allclose(beta(), [0, 1 / 4, 2 / 5, 3 / 6])
    loss = LeastSquares(strong_convexity=2.0)
    root = np.sqrt(2.0 / loss.of(tasks).curvature().max())
    assert_allclose(beta(loss=loss), (1 - root) / (1 + root))
    assert_allclose(beta(loss=loss, acceleration="convex"), beta())


def test_every_owner_may_step_at_its_own_pace(tasks):
    curvature = LeastSquares().of(tasks).curvature()
    plan = LocalGradientDescent(rounds=1, step_size="per_task").plan(tasks)
    assert_allclose(plan.run.step_size, 1 / curvature)
    shared = LocalGradientDescent(rounds=3, start="zero", acceleration=False, step_size=None).fit(tasks)
    own = LocalGradientDescent(rounds=3, start="zero", acceleration=False, step_size="per_task").fit(tasks)
    loss = lambda W: np.asarray(LeastSquares().of(tasks).value(jnp.asarray(W)))
    assert (loss(own.W) <= loss(shared.W) + 1e-9).all()
    assert loss(own.W).sum() < loss(shared.W).sum()
    assert_allclose(
        LowRank(penalty=2.0, clip=1.0, step_size="per_task").plan(tasks).run.threshold, 2.0 / curvature.max()
    )


# -- budgets and mechanisms -------------------------------------------------------------------------------------------------


def budgets(algorithm, tasks):
    return np.array([1 / law.theta for law in algorithm.plan(tasks).mechanisms])


def test_the_schedule_is_the_papers_best_for_the_loss(tasks):
    algorithm = LowRank(penalty=1.0, epsilon=2.0, rounds=5, clip=1.0, delta=1e-3)
    t = np.arange(1, 6)
    growth = lambda **options: (b := budgets(dataclasses.replace(algorithm, **options), tasks)) / b[0]
    assert_allclose(growth(), t**0.4)
    assert_allclose(growth(acceleration=False), 1.0)
    assert_allclose(growth(delta=0.0), t ** (2 / 3))
    assert_allclose(growth(alpha=1.5), t**1.5)
    loss = LeastSquares(strong_convexity=2.0)
    ratio = 2.0 / loss.of(tasks).curvature().max()
    assert_allclose(growth(loss=loss), ((1 - np.sqrt(ratio)) ** 0.2) ** -(t - 1.0))
    assert_allclose(growth(loss=loss, acceleration=False), ((1 - ratio) ** 0.4) ** -(t - 1.0))
    assert_allclose(growth(loss=loss, alpha=0.0), 1.0)
    spent = composition_bound(budgets(algorithm, tasks), 1e-3)
    assert spent <= 2.0
    assert_allclose(spent, 2.0, rtol=1e-9)


def test_calibrated_rounds_keep_their_promise_and_claim_nothing(tasks):
    algorithm = LowRank(
        penalty=1.0, epsilon=2.0, rounds=3, clip=0.7, delta=1e-3, mechanism="calibrated", curvature=30.0
    )
    fitted = dataclasses.replace(algorithm, ledger=Ledger(epsilon=2.0, delta=1e-3)).fit(tasks)
    assert fitted.guarantee.claimed is None
    assert fitted.guarantee.proved.epsilon == 2.0
    assert 0.9e-3 < fitted.guarantee.proved.delta <= 1e-3
    assert all(type(law) is Wishart and law.clip == 0.7 for law in fitted.release.mechanisms)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_gaussian_rounds_are_calibrated_and_paid_for(tasks, alpha):
    """delta of T rounds by the normal law itself: mu of a replacement is K^2 / sd, and squares of mu add up."""
    ledger = Ledger(epsilon=2.0, delta=1e-3)
    fitted = LowRank(
        1.0, 2.0, 3, 0.7, delta=1e-3, mechanism="gaussian", curvature=30.0, alpha=alpha, ledger=ledger
    ).fit(tasks)
    laws = fitted.release.mechanisms
    mu = np.sqrt(sum((0.7**2 / law.sd) ** 2 for law in laws))
    normal = scipy.stats.norm
    delta = normal.cdf(mu / 2 - 2.0 / mu) - np.exp(2.0) * normal.cdf(-mu / 2 - 2.0 / mu)
    assert delta == pytest.approx(1e-3, rel=1e-6)
    assert delta <= 1e-3
    assert_allclose([law.sd * (t + 1) ** alpha for t, law in enumerate(laws)], laws[0].sd, rtol=1e-12)
    assert fitted.guarantee.claimed is None
    assert fitted.guarantee.proved.epsilon == 2.0
    assert fitted.guarantee.proved.delta == pytest.approx(delta, rel=1e-9)
    assert [charge.mechanisms for charge in ledger.charges()] == [laws]
    assert ledger.spent.epsilon == pytest.approx(2.0, rel=1e-6)
    with pytest.raises(BudgetExceeded):
        LowRank(1.0, 2.0, 3, 0.7, mechanism="gaussian", curvature=30.0, ledger=ledger).fit(tasks)


def test_little_gaussian_noise_changes_nothing(tasks):
    """Little Gaussian noise changes nothing, and much of it leaves nothing shared."""
    options = {"penalty": 1.0, "rounds": 5, "clip": 10.0, "curvature": 30.0, "unsafe_seed": 0}
    exact = LowRank(**options | {"epsilon": None, "unsafe_seed": None}).fit(tasks)
    fitted = LowRank(**options, epsilon=1.0, mechanism=Gaussian(3, 1e-7, clip=10.0)).fit(tasks)
    assert_allclose(fitted.W, exact.W, atol=2 * fitted.release.lattice)  # messages are cut to it
    enormous = LowRank(**options, epsilon=1.0, mechanism=Gaussian(3, 1e14, clip=10.0)).fit(tasks)
    # some eigenvalue is below 0, and a model keeps nothing along its direction
    assert np.all(np.linalg.eigvalsh(enormous.release.sigma)[:, 0] < 0)
    assert np.isfinite(enormous.W).all()
    debiased = LowRank(**options, epsilon=1.0, mechanism="gaussian", debias=True).fit(tasks)
    plain = LowRank(**options, epsilon=1.0, mechanism="gaussian").fit(tasks)
    np.testing.assert_array_equal(debiased.W, plain.W)  # there is no mean to take off


def test_a_specification_says_gaussian_noise_to_rounds_too(tasks):
    spec = ReleaseSpec(3.0, mechanism="gaussian", message="clip", clip=0.7, rounds=2)
    by_spec = LowRank(1.0, spec, curvature=30.0, alpha=0.0, unsafe_seed=1).fit(tasks)
    named = LowRank(1.0, 3.0, 2, 0.7, mechanism="gaussian", curvature=30.0, alpha=0.0, unsafe_seed=1).fit(tasks)
    np.testing.assert_array_equal(by_spec.release.sigma, named.release.sigma)
    one_round = calibrate_gaussian(3.0, 1 / (6 * np.log(6)), 3, 2, clip=0.7)  # equal budgets: as a release has them
    assert [law.sd for law in by_spec.release.mechanisms] == pytest.approx([one_round.sd] * 2)


def test_a_step_size_read_off_the_rows_proves_nothing(tasks):
    algorithm = LowRank(penalty=1.0, epsilon=2.0, rounds=3, clip=0.7)
    for read_off in (None, "per_task"):
        fitted = dataclasses.replace(algorithm, step_size=read_off).fit(tasks)
        assert fitted.guarantee.proved is None
        assert "largest curvature" in fitted.guarantee.reason
        assert fitted.release.guarantee == fitted.guarantee
    for public in ({"step_size": 0.01}, {"curvature": 30.0}, {"curvature": 30.0, "step_size": "per_task"}):
        fitted = dataclasses.replace(algorithm, **public).fit(tasks)
        # the papers' noise: budgets that add up to less than 2 by their own composition, and all of it shows in the support
        spent = sum(1 / law.theta for law in fitted.release.mechanisms)
        assert fitted.guarantee.proved.delta == pytest.approx(-np.expm1(-spent))


def test_a_public_bound_on_curvatures_replaces_the_largest(tasks):
    """A public bound on curvatures takes the place of the largest curvature."""
    curvature = LeastSquares().of(tasks).curvature()
    L = float(np.median(curvature))
    plan = LowRank(penalty=2.0, clip=1.0, curvature=L, loss=LeastSquares(strong_convexity=0.1)).plan(tasks)
    assert_allclose(1 / plan.run.step_size, np.maximum(L, curvature + 0.1))  # steeper owners step by their own
    assert_allclose(plan.run.threshold, 2.0 / L)
    assert_allclose(plan.run.beta, (1 - np.sqrt(0.1 / L)) / (1 + np.sqrt(0.1 / L)))


def test_debiasing_removes_what_is_known_of_the_noise(tasks):
    algorithm = LowRank(penalty=0.5, epsilon=50.0, rounds=1, clip=1.0, unsafe_seed=1)
    law = algorithm.plan(tasks).mechanisms[0]
    plan = dataclasses.replace(algorithm, debias=True).plan(tasks)
    assert_allclose(plan.run.offset, law.df * law.scale)
    plan = dataclasses.replace(plan, run=plan.run._replace(lattice=None))
    sigma, outputs = plan.execute(Noise(law.mean[None]), Proximal(TraceNorm()))
    clean = dataclasses.replace(algorithm, epsilon=None).fit(tasks)
    assert_allclose(outputs[0], clean.W, atol=1e-10)  # noise equal to its mean leaves no trace
    sent = plan.W0 / np.maximum(1.0, np.linalg.norm(plan.W0, axis=0))  # clipped
    assert_allclose(sigma[0] - law.mean, sent @ sent.T, atol=1e-9)  # while the release itself is untouched


def test_a_bought_clip_norm_is_in_the_guarantee(tasks):
    bought = private_clip_norm(tasks, 0.5, low=0.01, high=100.0, scaling="none")
    algorithm = LowRank(penalty=0.5, epsilon=2.0, rounds=3, clip=bought, adjacency="zero_out", curvature=30.0)
    fitted = algorithm.fit(tasks)
    free = dataclasses.replace(algorithm, clip=bought.clip).fit(tasks)
    assert fitted.release.composed_with == (bought.law,)
    assert fitted.guarantee.proved.delta > free.guarantee.proved.delta


# -- Algorithm 4 ----------------------------------------------------------------------------------------------------------


def algorithm_4_by_hand(tasks, W0, noise, clip, eta, penalties, beta, doubled):
    clipped = lambda W: np.stack([w / max(1, np.linalg.norm(w) / clip) for w in W.T], axis=1)
    P = W0
    Q = W0 if doubled else np.zeros_like(W0)  # step 2, before the clip of step 4
    P_before, Q_before, outputs = clipped(W0), Q, []
    for t, E in enumerate(noise):
        P = clipped(P)
        U, eigenvalues, _ = np.linalg.svd(P @ P.T + E)
        P_hat = U @ np.diag(np.maximum(0, 1 - eta * penalties[0] / np.sqrt(eigenvalues))) @ U.T @ P
        Q_hat = np.sign(Q) * np.maximum(0, np.abs(Q) - eta * penalties[1])
        Z_p, Z_q = P_hat + beta[t] * (P_hat - P_before), Q_hat + beta[t] * (Q_hat - Q_before)
        Z = Z_p + Z_q
        slope = [tasks.X[i].T @ (tasks.X[i] @ Z[:, i] - tasks.y[i]) for i in range(tasks.num_tasks)]
        P, Q = (part - eta * np.stack(slope, axis=1) for part in (Z_p, Z_q))
        P_before, Q_before = P_hat, Q_hat
        outputs.append(P_hat + Q_hat)
    return np.array(outputs)


@pytest.mark.parametrize("doubled", [True, False])
def test_algorithm_4_is_as_printed(tasks, doubled):
    rng = np.random.default_rng(5)
    root, W0, beta = rng.standard_normal((3, 3, 5)), rng.standard_normal((3, 6)), np.arange(3) / 5
    E = root @ root.swapaxes(1, 2)
    run = Run(LeastSquares().of(tasks), np.full(6, 0.01), np.array([0.05, 0.02]), beta, 0.8, np.zeros(3))
    _, rounds_run, _ = run_rounds(ProximalSum(doubled=doubled), *jax.tree.map(np.asarray, (run, W0, Noise(E))))
    expected = algorithm_4_by_hand(tasks, W0, E, 0.8, 0.01, (5.0, 2.0), beta, doubled)
    assert_allclose(rounds_run, expected, atol=1e-10)


def test_p_and_q_start_alike_as_printed_or_q_from_zero():
    W0 = np.arange(18.0).reshape(3, 6)
    for doubled in (True, False):
        Q, P_before, Q_before = ProximalSum(doubled=doubled).start(W0)
        assert_allclose(P_before, W0)
        assert_allclose([Q, Q_before], np.stack([doubled * W0] * 2))


@pytest.mark.parametrize(
    ("norm", "own"),
    [
        (TraceNorm(), L1()),
        pytest.param(TraceNorm(), ColumnGroupLasso(), marks=pytest.mark.evidence),
        pytest.param(GroupLasso(), SquaredFrobenius(), marks=pytest.mark.evidence),
        pytest.param(GroupLasso(), L1(), marks=pytest.mark.evidence),
        pytest.param(GroupLasso(), ColumnGroupLasso(), marks=pytest.mark.evidence),
        pytest.param(TraceNorm(), SquaredFrobenius(), marks=pytest.mark.evidence),
    ],
    ids=lambda penalty: type(penalty).__name__,
)
def test_noiseless_algorithm_4_converges_for_every_variant(tasks, norm, own):
    """Without noise, Algorithm 4 converges to the optimum for every variant."""
    optimum = LowRankPlusSparse((2.0, 1.0), norm, own, tolerance=1e-9).fit(tasks)
    algorithm = LowRankSparse(
        penalty=(2.0, 1.0), sharing=ProximalSum(norm, own), epsilon=None, rounds=6000, record=False
    )
    # P and Q are not unique; their sum is, where the loss is strictly convex in it
    assert_allclose(algorithm.fit(tasks).W, optimum.W, atol=1e-4)


def test_algorithm_4_pays_for_p_and_not_for_q(tasks):
    fitted = LowRankSparse(penalty=(1.0, 1.0), epsilon=1.0, rounds=3, clip=1.0).fit(tasks)
    assert fitted.name == "Algorithm 4"
    assert fitted.release.rounds == 3
    with pytest.raises(ValueError, match=r"penalty: expected two numbers >= 0, \(lambda_1, lambda_2\), got 1.0"):
        LowRankSparse(penalty=1.0, clip=1.0).fit(tasks)


# -- a mapping of W'W -------------------------------------------------------------------------------------------------------


def test_task_relations_shrink_by_conditional_precision():
    """Task relations shrink by the precision of a task given the others."""
    rng = np.random.default_rng(0)
    W = rng.standard_normal((6, 3))
    W = np.column_stack([W, W[:, 0] + 0.05 * rng.standard_normal(6)])  # the last task nearly repeats the first
    S = W.T @ W
    values, U = np.linalg.eigh(S)
    precision = np.diag(np.linalg.inv(U @ np.diag(np.sqrt(values)) @ U.T))
    M = jax.jit(lambda S: TaskRelations().mapping(S[None], 0, None))(S)
    assert_allclose(np.diag(M), precision / precision.mean(), rtol=1e-6)
    assert M[0, 0] > 2 * M[1, 1]


def test_of_task_relations_nothing_is_proved(tasks):
    fitted = MPMTL(TaskRelations(), 0.3, epsilon=1.0, rounds=3, clip=1.0).fit(tasks)
    assert fitted.release.sigma.shape == (3, 6, 6)
    assert fitted.guarantee.proved is None
    assert fitted.guarantee.claimed.epsilon == 1.0
    assert "both signs" in fitted.guarantee.reason
    with pytest.raises(ValueError, match="mechanism: expected 'paper' for W'W"):
        MPMTL(TaskRelations(), 0.3, mechanism="calibrated", clip=1.0).fit(tasks)


# -- the owners' arm -------------------------------------------------------------------------------------------------------


def test_alone_and_forever_is_the_single_task_optimum(binary):
    alone = LocalGradientDescent(rounds=4000, loss=Logistic(strong_convexity=0.5), start="zero", record=False).fit(
        binary
    )
    assert_allclose(alone.W, RidgeLogistic(0.5, tolerance=1e-9).fit(binary).W, atol=1e-7)


def test_history_may_be_left_out(tasks):
    algorithm = LowRank(penalty=0.1, epsilon=1.0, rounds=3, clip=1.0, unsafe_seed=3)
    short = dataclasses.replace(algorithm, record=False).fit(tasks)
    whole = algorithm.fit(tasks)
    assert short.history["W"].shape == (1, 3, 6)
    assert whole.history["W"].shape == (3, 3, 6)
    assert_allclose(short.W, whole.W, atol=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"acceleration": "fast"}, "acceleration: expected one of 'none', 'convex', 'strongly_convex', got 'fast'"),
        ({"acceleration": "strongly_convex"}, "acceleration: 'strongly_convex' needs a loss with strong_convexity > 0"),
        ({"mechanism": "laplace"}, "mechanism: expected one of 'wishart', 'calibrated', 'gaussian', 'paper'"),
        ({"mechanism": Gaussian(2, 1.0)}, "mechanism: expected num_features = 3 and clip = 1.0, got Gaussian"),
        (
            {"mechanism": Gaussian(3, 1.0, clip=2.0)},
            "mechanism: expected num_features = 3 and clip = 1.0, got Gaussian",
        ),
        ({"mechanism": Gaussian(3, 1.0), "delta": 1e-3}, "delta: the given mechanism has"),
        ({"step_size": "own"}, "step_size: expected one of 'per_task', got 'own'"),
        ({"step_size": 0.0}, "step_size: expected a positive number, or one for each of 6 tasks"),
        ({"step_size": np.ones(5)}, "step_size: expected a positive number, or one for each of 6 tasks"),
        ({"penalty": (1.0, 2.0)}, "penalty: expected a number >= 0"),
        ({"loss": Logistic()}, "tasks: expected targets -1 and 1"),
    ],
)
def test_bad_arguments_are_named(tasks, options, message):
    with pytest.raises(ValueError, match=message):
        LowRank(**({"penalty": 1.0, "clip": 1.0} | options)).fit(tasks)


# -- Algorithm 5 ----------------------------------------------------------------------------------------------------------


def test_algorithm_5_adds_noise_and_clips_again(tasks):
    """Algorithm 5 adds noise to the models and clips them again."""
    rng = np.random.default_rng(5)
    W0, b = rng.standard_normal((3, 6)), 0.4 * rng.standard_normal((1, 3, 6))
    run = Run(LeastSquares().of(tasks), np.full(6, 0.01), 0.05, np.zeros(1), 0.8, np.zeros(1))
    sharing = Proximal(TraceNorm())
    arguments = jax.tree.map(np.asarray, (run, W0, Noise(np.zeros((1, 3, 3)), b)))
    sigma, _, _ = run_rounds(sharing, *arguments)
    clipped = lambda W: W / np.maximum(1, np.linalg.norm(W, axis=0) / 0.8)
    sent = clipped(clipped(W0) + b[0])
    assert np.linalg.norm(clipped(W0) + b[0], axis=0).max() > 0.8
    assert_allclose(sigma[0], sent @ sent.T, atol=1e-12)


def test_algorithm_5_has_two_budgets_in_two_ledgers(tasks):
    """Algorithm 5 has two budgets, for two units, in two ledgers."""
    of_tasks = Ledger(epsilon=1.0, delta=0.9, adjacency="zero_out")
    of_rows = Ledger(epsilon=20.0, delta=1e-3, unit="row")
    rows = RowProtection(20.0, 1e-3, of_rows)
    algorithm = LowRank(penalty=0.1, epsilon=1.0, rounds=3, clip=0.7, curvature=30.0, ledger=of_tasks, rows=rows)
    fitted = algorithm.fit(tasks)
    assert fitted.name == "Algorithm 5 on Algorithm 2"
    assert (fitted.guarantee.proved.unit, fitted.row_guarantee.proved.unit) == ("task", "row")
    assert fitted.row_guarantee.proved.epsilon == 20.0
    assert fitted.row_guarantee.proved.delta <= 1e-3
    (task_charge,), (row_charge,) = of_tasks.charges(), of_rows.charges()
    assert [law.kind for law in task_charge.mechanisms] == ["PaperWishart"] * 3
    assert [law.kind for law in row_charge.mechanisms] == ["VectorLaplace"] * 3
    assert {law.sensitivity for law in row_charge.mechanisms} == {1.4}
    spent = [law.epsilon for law in row_charge.mechanisms]
    assert_allclose(composition_bound(spent, 1e-3), 20.0, rtol=1e-9)
    assert "one row, from the curator" in repr(fitted)


def test_noise_on_the_models_is_fresh_and_has_the_right_law(tasks):
    algorithm = LowRank(penalty=0.0, epsilon=None, rounds=1, clip=0.7, start="zero", rows=RowProtection(50.0, 0.0))
    sent = np.concatenate([algorithm.fit(tasks).W for _ in range(100)], axis=1)  # with lambda = 0, W^^ is what was sent
    norm = np.linalg.norm(sent, axis=0)
    inside = norm < 0.7 * (1 - 1e-9)
    law = scipy.stats.gamma(3, scale=2 * 0.7 / 50.0)
    assert abs(inside.mean() - law.cdf(0.7)) < FAR * np.sqrt(law.cdf(0.7) * law.sf(0.7) / norm.size) + 1e-3
    assert scipy.stats.kstest(norm[inside], lambda r: law.cdf(r) / law.cdf(0.7)).pvalue > RARE
    assert len(np.unique(norm.round(12))) > 0.9 * norm.size  # fresh, on a lattice


def test_a_seed_protects_no_row(tasks):
    algorithm = LowRank(penalty=0.1, epsilon=1.0, rounds=3, clip=1.0, unsafe_seed=0, rows=RowProtection(5.0))
    one, other = algorithm.fit(tasks), algorithm.fit(tasks)
    assert one.row_guarantee.proved is None
    assert_allclose(one.W, other.W)
    with pytest.raises(ValueError, match=r"rows\.epsilon: expected a positive number"):
        dataclasses.replace(algorithm, rows=RowProtection(0.0)).fit(tasks)
    with pytest.raises(ValueError, match="clip: expected a finite norm K"):
        LowRank(penalty=0.1, epsilon=None, rows=RowProtection(5.0)).fit(tasks)
