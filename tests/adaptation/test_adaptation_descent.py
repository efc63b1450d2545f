"""The paper's systems against independent optima, its theorems' numbers, and the noise that is really added."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.optimum import optimum
from scipy.stats import norm

from mpmtl_prob.adaptation import Ball, CnvxAdap, Domain, NCnvxAdap, release_moments
from mpmtl_prob.adaptation.data import problems
from mpmtl_prob.adaptation.paper import accounting, descent
from mpmtl_prob.adaptation.paper.losses import Logistic, Squared
from mpmtl_prob.adaptation.paper.objective import Convex, Sizes, Smoothed
from mpmtl_prob.adaptation.paper.solver import Problem, minimise
from mpmtl_prob.adaptation.public_fit import huber
from mpmtl_prob.privacy import BudgetExceeded, Ledger, lattice
from mpmtl_prob.theory import adaptation as bounds

RNG = np.random.default_rng(1)
DATA = problems.two_sources((40, 15), num_features=3, tests=2, seed=3)
SIZES = Sizes(40, 15, 0.4)
LOSS = Squared(1.0, 1.5)
NONE = (np.zeros((0, 3)), np.zeros(0))
PROBLEM = Problem(DATA.source, DATA.target, LOSS, SIZES, 0.1)
ROWS = np.concatenate([DATA.source.X, DATA.target.X])
TARGETS = np.concatenate([DATA.source.y, DATA.target.y])


def test_the_printed_noise_is_worth_what_its_laws_say():
    """The printed noise is worth what the Gaussian and the Laplace law say."""
    for eps, true in zip((0.5, 1, 2, 4, 5, 10, 15), (0.17, 0.45, 1.15, 2.91, 3.95, 10.54, 19.4), strict=True):
        assert accounting.printed_epsilon(eps, 0.01) == pytest.approx(true, abs=0.006)
        mu = eps / np.sqrt(2 * np.log(300))
        exact = norm.cdf(-true / mu + mu / 2) - np.exp(true) * norm.cdf(-true / mu - mu / 2)
        assert exact == pytest.approx(0.01, rel=0.05)
    for eps, true in ((1, 0.62), (4, 3.00), (10, 8.65), (15, 14.1)):
        assert accounting.printed_total(eps, 0.01) == pytest.approx(true, abs=0.04)
    for delta, limit in ((1e-2, 8.92), (1e-3, 9.44), (1e-5, 10.25), (1e-6, 10.57)):
        assert accounting.valid_up_to(delta) == pytest.approx(limit, abs=0.006)


def test_calibration_saves_what_the_formula_wastes():
    for eps, saved in ((1, 1.80), (5, 1.19)):
        assert accounting.calibrated_mu(eps, 0.01) / accounting.printed_mu(eps, 0.01) == pytest.approx(saved, abs=0.01)
    with pytest.raises(ValueError, match="spends all"):
        accounting.calibrated_mu(1.0, 1e-3, [descent.law(10, 3, 1, 0.5)])


def test_slopes_of_both_objectives_are_those_of_autodiff():
    q0, L = SIZES.start, RNG.random(55)
    u = 1 + RNG.random(55)
    for penalties in (Convex(0.1, 0.2, 0.3), Smoothed(0.6, 0.2, 0.3, 300.0)):

        def value(u, p=penalties):
            q = q0 / u
            if isinstance(p, Convex):
                rest = p.kappa_1 * (q0 @ u - 1) + p.kappa_2 * jnp.linalg.norm(q) + p.kappa_inf * q.max()
            else:
                soft = jax.nn.logsumexp(p.inverse_temperature * q) / p.inverse_temperature
                rest = p.lambda_1 * (1 - q.sum()) + p.lambda_2 * jnp.linalg.norm(q) + p.lambda_inf * soft
            return q @ L + rest

        with jax.enable_x64(True):
            objective, slopes = jax.jit(jax.value_and_grad(value))(jnp.asarray(u))
            assert penalties.value(u, L, q0) == pytest.approx(float(objective))
            np.testing.assert_allclose(penalties.slopes(u, L, q0), slopes, atol=1e-12)


def test_the_profile_is_the_objective_at_its_best_weights():
    """The profile is the objective at its best weights, and nothing is lower."""
    penalties = Convex(0.02)
    best = minimise(PROBLEM, penalties, np.zeros(3))
    assert PROBLEM.objective(best.w, best.weights, penalties) == pytest.approx(best.objective, rel=1e-12)
    for _ in range(50):
        w = best.w + 0.1 * RNG.standard_normal(3)
        u = np.maximum(1.0, best.weights + RNG.standard_normal(55))
        assert PROBLEM.objective(w, u, penalties) > best.objective


@pytest.mark.parametrize("kappas", [(0.02, 0.0, 0.0), (0.05, 0.03, 0.5)])
def test_a_conic_solver_finds_the_same_optimum(kappas):
    cvxpy = pytest.importorskip("cvxpy")
    w, u, q0 = cvxpy.Variable(3), cvxpy.Variable(55), SIZES.start
    residuals = ROWS @ w - TARGETS
    terms = [q0[i] * cvxpy.quad_over_lin(residuals[i], u[i]) for i in range(55)]
    terms.append(cvxpy.sum(cvxpy.multiply(q0[:40] * 0.1, cvxpy.inv_pos(u[:40]))))
    terms.append(kappas[0] * (q0 @ u - 1))
    if kappas[1]:
        q = cvxpy.multiply(q0, cvxpy.inv_pos(u))
        terms += [kappas[1] * cvxpy.norm(q), kappas[2] * cvxpy.max(q)]
    problem = cvxpy.Problem(cvxpy.Minimize(sum(terms)), [u >= 1, cvxpy.norm(w) <= 1.5])
    optimum(problem)
    minimum = minimise(PROBLEM, Convex(*kappas), np.zeros(3))
    assert minimum.objective == pytest.approx(problem.value, rel=1e-3 if kappas[1] else 1e-6)
    np.testing.assert_allclose(minimum.w, w.value, atol=2e-2 if kappas[1] else 1e-4)


def test_without_public_weight_it_is_hubers_regression():
    sklearn = pytest.importorskip("sklearn.linear_model")
    problem = Problem(DATA.source, DATA.target, Squared(1.0, 50.0), Sizes(40, 15, 1e-9), 0.0)
    minimum = minimise(problem, Convex(0.01), np.zeros(3), tolerance=1e-10)
    np.testing.assert_allclose(minimum.w, huber(DATA.target, 0.1), atol=1e-4)
    model = sklearn.HuberRegressor(epsilon=1.35, alpha=0.0, fit_intercept=False, tol=1e-9, max_iter=1000)
    model.fit(DATA.target.X, DATA.target.y)  # its threshold is epsilon times a scale that it learns
    again = minimise(problem, Convex((1.35 * model.scale_) ** 2), np.zeros(3), tolerance=1e-10)
    np.testing.assert_allclose(again.w, model.coef_, atol=1e-4)


@pytest.mark.parametrize("variant", ["printed", "rescaled", "frozen", "profiled"])
def test_the_noise_of_a_step_is_what_the_promise_needs(variant):
    model = CnvxAdap(epsilon=2.0, delta=1e-3, variant=variant, steps=400, discrepancy=0.1, unsafe_seed=4,
                     kappa_1=0.02, weight_bound=1e6, step_size=1e-9)  # fmt: skip
    G = 2 * (1e6 + 1) if variant != "profiled" else 2 * np.sqrt(0.02)
    path = model.fit(DATA.source, DATA.target).path_
    steps = np.diff(np.vstack([np.zeros(3), path]), axis=0) / -1e-9
    k = 2 if variant in ("printed", "rescaled") else 1
    sigma = 2 * 0.5 * G / 15 * np.sqrt(400 * k) / accounting.calibrated_mu(2.0, 1e-3)
    assert steps.std() == pytest.approx(sigma, rel=0.1)
    assert "seed" in model.guarantee_.reason


def test_steps_follow_the_algorithm_to_the_letter():
    a, b, m, n, T, kappa = 0.4, 0.6, 40, 15, 7, (0.1, 0.2, 0.3)
    loss, penalties = Squared(1.0, 1.5), Convex(*kappa)
    model = CnvxAdap(variant="printed", source_weight=a, kappa_1=0.1, kappa_2=0.2, kappa_inf=0.3, steps=T)
    eta = model.step_sizes(SIZES, loss, 3.0, 3)
    B, G = 2.5**2, 5.0
    s1, s2 = 2 * b * G / n * 3.0, b**2 * B / n**2 * 3.0
    assert eta.w == pytest.approx(1.5 / np.sqrt(T * (G**2 + 3 * s1**2)))
    assert eta.public == pytest.approx(m**1.5 / (np.sqrt(T) * a**2 * (2 * B + 0.6)))
    assert eta.private == pytest.approx(n**1.5 / np.sqrt(T * (b**4 * (B + 0.6) ** 2 + n**4 * s2**2)))
    # in the paper's own u, without noise
    eta = eta._replace(public=eta.public * 3000, private=eta.private * 300)
    w, u, floor = np.zeros(3), np.r_[np.full(m, m / a), np.full(n, n / b)], np.r_[np.full(m, m / a), np.full(n, n / b)]
    path = []
    for _ in range(T):
        r = ROWS @ w - TARGETS
        L = r**2 + 0.1 * (np.arange(55) < m)
        top = np.isclose(1 / u, (1 / u).max(), rtol=1e-12)
        by_w = ROWS.T @ (2 * r / u)
        by_u = (
            -L / u**2
            + kappa[0] / floor**2
            - kappa[1] * u**-3.0 / np.linalg.norm(1 / u)
            - kappa[2] * top / top.sum() / u**2
        )
        w, u = w - eta.w * by_w, np.maximum(u - np.r_[np.full(m, eta.public), np.full(n, eta.private)] * by_u, floor)
        path.append(w)
    sums = descent.PrivateSums(DATA.target, loss, G, None, 0.0)
    descended = descent.descend_with_weights(
        DATA.source, sums, penalties, SIZES, 0.1, eta, T, np.zeros(3), move_private=True
    )
    np.testing.assert_allclose(descended.w, path, rtol=1e-9)
    assert u.max() / floor.max() > 1.05  # with the printed sizes they would not have moved at all


def test_a_record_moves_a_noisy_sum_within_its_sensitivity():
    """A record can move a noisy sum by no more than the noise is for."""
    law = descent.law(5, 3 + 15, 2, 4.0)
    h = descent.grid(law)
    zero = np.zeros((5, 18))
    for _ in range(20):
        X, y = DATA.target.X.copy(), DATA.target.y.copy()
        X[2], y[2] = RNG.standard_normal(3) * 10.0 ** RNG.integers(-3, 4), RNG.standard_normal()
        w, u = RNG.standard_normal(3), RNG.random(15)
        w *= 1.5 / np.linalg.norm(w)
        one, other = (
            descent.PrivateSums(each.bounded(1.0, 1.0), LOSS, LOSS.lipschitz, zero, h)
            for each in (DATA.target, Domain(X, y))
        )
        gradients = (one.gradient(0, w, u) - other.gradient(0, w, u)) / (2 * LOSS.lipschitz)
        losses = (one.losses(0, w, u) - other.losses(0, w, u)) / LOSS.bound
        assert np.linalg.norm(gradients) <= 1
        assert np.linalg.norm(losses) <= 1
        assert np.all(np.rint(losses / h) == losses / h)


def test_no_rounding_error_carries_a_gradient_past_its_bound():
    h = descent.grid(descent.law(300, 3, 1, 50.0))
    just_beyond = np.array([[0.5, 0.5], [0.5 * h, h], [0.0, h]])  # of length 1/2 in doubles
    squares = [sum(int(entry) ** 2 for entry in column) for column in (lattice.sent(just_beyond, 0.5, h) / h).T]
    assert max(squares) <= int(0.5 / h) ** 2
    assert 1e8 * int(0.5 / h) < 2**52  # and sums of a hundred million records are exact


@pytest.mark.filterwarnings("error")
def test_a_record_warns_nobody():
    X, y = DATA.target.X.copy(), DATA.target.y.copy()
    X[3], y[3] = 1e300, 1e300
    model = CnvxAdap(steps=2, discrepancy=0.0, target_bound=1e30, unsafe_seed=1)
    model.fit(DATA.source, Domain(X, y))
    far = release_moments((X, y), centre=np.full(3, 1e308), residual_bound=1.0, epsilon=1.0, unsafe_seed=1)
    assert np.isfinite(far.sigma).all()
    Ball((1e308,) * 3, 1.0).difference(DATA.source, Domain(X, y))
    assert np.isnan(Domain([[10**400, 1.0]], [0.0]).X[0, 0])


def test_a_poisoned_record_counts_as_one_of_zeros():
    poison = {"NaN": np.nan, "infinite": np.inf, "zero": 0.0}
    fits = {}
    for name, value in poison.items():
        X, y = DATA.target.X.copy(), DATA.target.y.copy()
        X[4, 1], y[4] = value, value
        if name == "zero":
            X[4], y[4] = 0.0, 0.0
        fits[name] = CnvxAdap(unsafe_seed=1, steps=20, variant="printed").fit(DATA.source, (X, y)).coef_
    assert np.array_equal(fits["NaN"], fits["zero"])
    assert np.array_equal(fits["infinite"], fits["zero"])
    X = DATA.target.X * 1e300
    assert np.all(np.isfinite(CnvxAdap(unsafe_seed=1, steps=20).fit(DATA.source, (X, DATA.target.y)).coef_))


def test_records_of_labels_unknown_to_the_source_are_zeros():
    """A record with a label that the source lacks counts as one of zeros."""
    source, X = labelled(DATA.source), DATA.target.X[:8]
    y = np.tile([0.0, 1.0], 4)
    fit = lambda X, y: NCnvxAdap(steps=20, discrepancy=0.0, delta=1e-2, unsafe_seed=0).fit(source, (X, y)).coef_
    first = np.arange(8) < 4
    assert np.array_equal(fit(X, np.where(first, 0.5, y)), fit(np.where(first[:, None], 0.0, X), y))


def test_one_charge_pays_for_all_and_mistakes_are_free():
    """One charge pays for the discrepancy and all steps, and mistakes cost nothing."""
    book = Ledger(epsilon=1.5, delta=1e-2, unit="target record")
    model = CnvxAdap(epsilon=1.0, delta=1e-2, steps=30, ledger=book).fit(DATA.source, DATA.target)
    assert len(book.charges()) == 1
    assert [law.kind for law in book.charges()[0].mechanisms] == ["VectorLaplace", "VectorGaussian"]
    assert model.guarantee_.proved.epsilon == 1.0
    assert 0.0099 < model.guarantee_.proved.delta <= 0.01
    assert book.spent.epsilon == pytest.approx(1.0, abs=1e-3)
    with pytest.raises(BudgetExceeded):
        model.fit(DATA.source, DATA.target)
    wrong = [
        ({}, (DATA.target.X[:, :2], DATA.target.y), "target: expected the source's 3 features, got 2"),
        ({}, "rows", r"target: expected a Domain, or a pair \(X, y\), got str"),
        ({"variant": "quick"}, DATA.target, "variant: expected one of"),
        ({"kappa_1": 0.0}, DATA.target, "kappa_1: expected a positive number"),
        ({"epsilon": -1.0}, DATA.target, "epsilon: expected a positive number"),
        ({"discrepancy": "some"}, DATA.target, "discrepancy: expected one of"),
        ({"kappa_2": 0.1}, DATA.target, "variant: expected another"),
        ({"start": [1.0]}, DATA.target, "start: expected 3 numbers"),
        ({"source_weight": 1.5}, DATA.target, "source_weight: expected a number"),
        ({"steps": 0}, DATA.target, "steps: expected a whole number"),
    ]
    for options, target, message in wrong:
        with pytest.raises(ValueError, match=message):
            CnvxAdap(**{"delta": 1e-2, "ledger": book} | options).fit(DATA.source, target)
    with pytest.raises(ValueError, match="source: expected finite numbers, got 40 records"):
        CnvxAdap().fit((DATA.source.X * np.nan, DATA.source.y), DATA.target)
    assert len(book.charges()) == 1


@pytest.mark.parametrize("variant", ["printed", "rescaled", "frozen", "profiled"])
def test_at_weight_one_only_the_discrepancy_is_private(variant):
    """alpha = 1, as in the paper's Figure 3: one charge for the discrepancy; no step adds noise."""
    options = {"variant": variant, "source_weight": 1.0, "kappa_1": 0.1, "steps": 40, "delta": 1e-2}
    book = Ledger(epsilon=1.5, delta=1e-2, unit="target record")
    model = CnvxAdap(epsilon=1.0, ledger=book, **options).fit(DATA.source, DATA.target)
    assert np.all(np.isfinite(model.coef_))
    assert np.all(model.source_weights_ > 0)
    assert [(law.kind, law.epsilon) for law in book.charges()[0].mechanisms] == [("VectorLaplace", 1.0)]
    proved = model.guarantee_.proved
    assert (proved.epsilon, proved.delta) == (1.0, 0.0)
    # given the published discrepancy, other private records lead to the very same bits
    again = CnvxAdap(epsilon=1.0, discrepancy=model.discrepancy_, **options)
    other = (-DATA.target.X[:7], np.full(7, np.nan))
    assert again.fit(DATA.source, other).coef_.tobytes() == model.coef_.tobytes()
    if variant == "profiled":  # whose steps are long enough to come near the optimum that a solver finds
        # of a discrepancy without noise, as how near they come in 40 steps depends on it
        exact = CnvxAdap(epsilon=None, **options).fit(DATA.source, DATA.target)
        stepped = CnvxAdap(epsilon=1.0, discrepancy=exact.discrepancy_, **options).fit(DATA.source, NONE)
        assert np.linalg.norm(exact.coef_ - stepped.coef_) < 0.1 * np.linalg.norm(exact.coef_)


@pytest.mark.parametrize("estimator", [CnvxAdap, NCnvxAdap])
def test_nothing_is_paid_where_no_private_record_is_looked_at(estimator):
    source, target = (Domain(part.X, (part.y > 0).astype(float)) for part in (DATA.source, DATA.target))
    for variant in ("printed", "profiled"):
        book = Ledger(epsilon=1.0, delta=1e-2, unit="target record")
        model = estimator(variant=variant, source_weight=1.0, discrepancy=0.0, steps=5, ledger=book).fit(source, target)
        assert (model.guarantee_.proved.epsilon, book.charges()) == (0.0, [])
        assert np.all(np.isfinite(model.coef_))
        with pytest.raises(ValueError, match="unsafe_seed: expected none with a ledger"):
            model.set_params(unsafe_seed=3).fit(source, target)


def test_the_papers_noise_says_what_it_claims_and_what_holds():
    fit = lambda eps: CnvxAdap(epsilon=eps, delta=0.01, accounting="printed", variant="printed", steps=10)
    for eps, kept in ((4.0, True), (20.0, False)):
        guarantee = fit(eps).fit(DATA.source, DATA.target).guarantee_
        assert guarantee.claimed.delta == 0.01
        assert (guarantee.proved.delta <= 0.01) is kept


def test_no_records_and_one_feature_still_have_an_answer():
    """Without records, or with one feature, there is still an answer."""
    none = (np.zeros((0, 3)), np.zeros(0))
    for model in (CnvxAdap(steps=5), CnvxAdap(steps=5, variant="printed"), CnvxAdap(epsilon=None)):
        assert np.all(np.isfinite(model.fit(DATA.source, none).coef_))
    one = CnvxAdap(steps=5).fit((DATA.source.X[:, :1], DATA.source.y), (DATA.target.X[:, :1], DATA.target.y))
    assert one.coef_.shape == (1,)
    constant = np.ones((40, 1)) * 0.5
    assert np.isfinite(CnvxAdap(epsilon=None).fit((constant, DATA.source.y), (constant[:15], DATA.target.y)).coef_[0])


def labelled(records):
    return Domain(records.X, (records.y > 0).astype(float))


def test_the_hessian_of_the_smoothed_objective_has_a_minus():
    q0, L, p = Sizes(3, 2, 0.4).start, RNG.random(5), Smoothed(0.3, 0.0, 0.5, 8.0)
    u = (1 + RNG.random(5)) / q0  # the paper's own
    with jax.enable_x64(True):
        f = lambda u: (L / u).sum() - 0.3 * (1 / u).sum() + 0.5 / 8 * jax.nn.logsumexp(8 / u)
        H, gradient = jax.jit(lambda u: (jax.hessian(f)(u), jax.grad(f)(u)))(jnp.asarray(u))
    s = np.exp(8 / u) / np.exp(8 / u).sum()
    diagonal = 2 * (L - 0.3) / u**3 + 0.5 * ((2 + 8 / u) * s / u**3 - 8 * s**2 / u**4)
    np.testing.assert_allclose(np.diag(H), diagonal, rtol=1e-9)
    np.testing.assert_allclose(p.slopes(u * q0, L, q0) * q0, gradient, rtol=1e-9)


def test_the_smoothness_bound_holds_where_it_is_checked():
    m, n, loss, p = 6, 4, Logistic(1.0, 2.0), Smoothed(0.5, 0.4, 0.3, 20.0)
    X, y, sizes = DATA.source.X[:10], np.sign(DATA.source.y[:10]), Sizes(6, 4, 0.5)
    q0 = sizes.start

    def J(v):
        w, u = v[:3], v[3:]
        l = jnp.logaddexp(0.0, -y * (X @ w))  # noqa: E741
        q = 1 / u
        soft = jax.nn.logsumexp(p.inverse_temperature * q) / p.inverse_temperature
        return (l * q).sum() + 0.5 * (1 - q.sum()) + 0.4 * jnp.linalg.norm(q) + 0.3 * soft

    with jax.enable_x64(True):
        hessian = jax.jit(jax.hessian(J))
        for _ in range(20):
            w = RNG.standard_normal(3)
            v = np.r_[2 * w / max(2.0, np.linalg.norm(w)), (1 + RNG.random(10)) / q0]
            assert np.abs(np.linalg.eigvalsh(np.asarray(hessian(jnp.asarray(v))))).max() <= bounds.smoothness(
                loss, p, sizes
            )
    assert m + n == len(q0)


def test_trimmed_classification_drops_far_records_and_descends():
    """Trimmed classification without privacy drops what is too far off, and descends."""
    source, target = labelled(DATA.source), labelled(DATA.target)
    model = NCnvxAdap(epsilon=None, lambda_1=0.9, discrepancy=0.0, source_weight=0.4).fit(source, target)
    loss, y = model.loss_, 2 * np.r_[source.y, target.y] - 1
    J = lambda w: SIZES.start @ np.minimum(loss.values(w, ROWS, y), 0.9)
    near = (descent.project(model.coef_ + 1e-3 * RNG.standard_normal(3), 5.0) for _ in range(50))
    assert all(J(model.coef_) <= J(w) + 1e-7 for w in near)
    assert set(model.predict(target.X)) <= {0.0, 1.0}


@pytest.mark.parametrize("variant", ["printed", "profiled"])
def test_private_classification_learns_where_there_is_budget(variant):
    data = problems.shifted((600, 800), 0.3, num_features=3, noise=0.05, tests=500, seed=0)
    source, target, test = (labelled(each) for each in (data.source, data.target, data.test))
    model = NCnvxAdap(epsilon=20.0, delta=1e-3, variant=variant, steps=60, unsafe_seed=1).fit(source, target)
    assert np.mean(model.predict(test.X) == test.y) > 0.85
    three = Domain(source.X, np.digitize(data.source.y, [-0.1, 0.1])), (target.X, np.full(800, 7.0))
    unknown = NCnvxAdap(epsilon=1.0, variant=variant, steps=5).fit(*three)  # labels that the source lacks
    assert unknown.coef_.shape == (3, 3)
    assert unknown.guarantee_.proved.unit == "target record"


def test_bounds_say_how_little_they_say():
    penalties = Convex(0.05)
    void = bounds.convex_utility(LOSS, penalties, Sizes(300, 60), epsilon=1.0, delta=0.01, steps=300, num_features=8,
                                 private_distance=60.0**3, public_distance=300.0**3)  # fmt: skip
    assert void.total > 100
    many = bounds.convex_steps(LOSS, penalties, Sizes(300, 60), epsilon=1.0, delta=0.01, num_features=8)
    assert many == np.ceil(60**2 / (8 * 0.25 * np.log(100)))
    for call, more in (
        (bounds.convex_steps, {}),
        (bounds.optimal_rate, {"private_distance": 0.0, "public_distance": 0.0}),
    ):
        with pytest.raises(ValueError, match="sizes: expected a source weight alpha below 1"):
            call(LOSS, penalties, Sizes(300, 60, 1.0), epsilon=1.0, delta=0.01, num_features=8, **more)
    J = Smoothed(0.5, 0.1, 0.1, 40.0)
    value, best = bounds.stationarity(Logistic(), J, SIZES, epsilon=1.0, delta=0.01, steps=None, num_features=8)
    for steps in (best // 2, 2 * best):
        assert (
            bounds.stationarity(Logistic(), J, SIZES, epsilon=1.0, delta=0.01, steps=max(steps, 1), num_features=8)[0]
            >= value
        )
    q0 = SIZES.start
    exact = bounds.learning_bound(q0, np.zeros(55), SIZES, 0.0, 1.0, 0.0)
    assert exact == pytest.approx(np.linalg.norm(q0) * np.sqrt(np.log(40) / 2))
    assert bounds.learning_bound(q0 * 0.9, np.zeros(55), SIZES, 0.0, 1.0, 0.0) > 0.9
    assert bounds.learning_bound(0 * q0, np.zeros(55), SIZES, 0.0, 1.0, 0.0) == np.inf


def test_the_learning_bound_by_hand():
    sizes, distances = Sizes(2, 2, 0.5), np.arange(4.0)
    q = sizes.start + np.array([0.1, -0.1, 0.05, -0.05])
    spread = (np.linalg.norm(q) + 0.6) * (np.sqrt(np.log(np.log2(2 / 0.7))) + np.sqrt(np.log(40) / 2))
    expected = q @ distances + 0.5 * 0.2 + 2 * 0.01 + 9 * 0.3 + spread
    assert bounds.learning_bound(q, distances, sizes, 0.2, 1.0, 0.01) == pytest.approx(expected)


def test_parameters_are_scikit_learns():
    sklearn = pytest.importorskip("sklearn.base")
    model = CnvxAdap(epsilon=2.0, kappa_1=0.3)
    copy = sklearn.clone(model).set_params(steps=7)
    assert copy.get_params() == model.get_params() | {"steps": 7}
    with pytest.raises(ValueError, match="rounds: expected one of"):
        model.set_params(rounds=3)
    with pytest.raises(ValueError, match="expected a fit before a prediction"):
        model.predict(np.zeros((1, 3)))
    with pytest.raises(ValueError, match=r"X: expected shape \(records, 3\)"):
        CnvxAdap(epsilon=None).fit(DATA.source, DATA.target).predict(np.zeros((1, 4)))
    assert "array of shape" not in repr(model)
