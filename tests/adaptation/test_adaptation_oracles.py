"""Private adaptation beside theorems, other programs and earlier measurements; each part has tests of its own."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism, from_laplace_mechanism
from helpers.effort import effort
from helpers.tolerances import FAR
from numpyro.infer.util import log_density
from scipy.optimize import differential_evolution, minimize

from mpmtl_prob.adaptation import CnvxAdap, Domain, MomentAdaptation, NCnvxAdap, SourceOnly, Unprotected
from mpmtl_prob.adaptation.data import problems
from mpmtl_prob.adaptation.paper import accounting, descent
from mpmtl_prob.adaptation.paper.losses import Logistic, Squared
from mpmtl_prob.adaptation.paper.objective import Convex, Sizes, Smoothed
from mpmtl_prob.adaptation.paper.solver import Problem
from mpmtl_prob.adaptation.paper.solver import minimise as optimum
from mpmtl_prob.privacy import audit
from mpmtl_prob.theory import adaptation as bounds

RNG = np.random.default_rng(4)
DATA = problems.two_sources((40, 15), num_features=3, tests=2, seed=3)


def error(model, data):
    return float(np.mean((data.test.y - model.predict(data.test.X)) ** 2))


def labelled(records):
    return Domain(records.X, (records.y > 0).astype(float))


@pytest.mark.parametrize(("epsilon", "total"), [(1.0, 0.62), (10.0, 8.65)])
def test_another_library_composes_to_the_same_total(epsilon, total):
    """Another library composes discrepancy and descent to the same total."""
    half = epsilon / 2
    noise = np.sqrt(2 * np.log(300)) / half  # of sensitivity 1: mu = eps / sqrt(2 log(3 / delta))
    steps = from_gaussian_mechanism(noise, value_discretization_interval=1e-3)
    both = steps.compose(from_laplace_mechanism(1 / half, value_discretization_interval=1e-3))
    assert both.get_epsilon_for_delta(0.01) == pytest.approx(accounting.printed_total(epsilon, 0.01), abs=5e-3)
    assert accounting.printed_total(epsilon, 0.01) == pytest.approx(total, abs=0.005)


def test_the_best_attack_breaks_only_what_is_not_promised():
    """The best attack finds no more than is promised, and breaks what is not promised."""
    play = {"trials": 4000, "progress_bar": False}
    one = MomentAdaptation(epsilon=1.0, delta=0.05, draws=2).fit(DATA.source, DATA.target)
    steps = CnvxAdap(epsilon=1.0, delta=0.05, steps=4, discrepancy=0.0).fit(DATA.source, DATA.target)
    for guarantee in (one.guarantee_, steps.guarantee_):
        (law,), claim = guarantee.mechanisms, guarantee.proved
        assert not audit.likelihood_ratio(law, claim, **play).broken
        assert audit.likelihood_ratio(law, replace(claim, epsilon=0.2, delta=0.01), **play).broken


def test_frozen_weights_descend_as_far_as_the_theorem_says():
    sizes, loss, penalties = Sizes(300, 200, 0.4), Squared(1.0, 1.0), Convex(0.05)
    data = problems.two_sources((300, 200), num_features=3, tests=2, seed=1)
    problem, q0 = Problem(data.source, data.target, loss, sizes, 0.0), sizes.start
    X, y = problem.rows
    F = lambda w: q0 @ (X @ w - y) ** 2  # at u~ = 1
    best = optimum(problem, Convex(1e6), np.zeros(3)).objective  # where no record is weighed down
    bound = bounds.convex_utility(
        loss,
        penalties,
        sizes,
        epsilon=10.0,
        delta=0.01,
        steps=200,
        num_features=3,
        private_distance=0,
        public_distance=0,
    ).predictor
    options = {"accounting": "printed", "variant": "frozen", "source_weight": 0.4, "steps": 200, "discrepancy": 0.0}
    gaps = [
        F(CnvxAdap(epsilon=10.0, delta=0.01, unsafe_seed=s, **options).fit(data.source, data.target).coef_) - best
        for s in range(5)
    ]
    assert 0 < np.mean(gaps) < bound < F(np.zeros(3)) + 1


def test_the_printed_classifier_is_as_stationary_as_stated():
    """The printed classifier is as stationary as the theorem says."""
    sizes, loss, J, T = Sizes(300, 200, 0.4), Logistic(1.0, 2.0), Smoothed(0.5, 0.05, 0.05, 60.0), 12
    data = problems.two_sources((300, 200), num_features=3, tests=2, seed=1)
    sign = lambda each: Domain(each.X, np.where(each.y > 0, 1.0, -1.0))
    source, target, beta = sign(data.source), sign(data.target), bounds.smoothness(loss, J, sizes)
    bound = bounds.stationarity(loss, J, sizes, epsilon=4.0, delta=0.01, steps=T, num_features=3)[0]
    problem, q0, mappings = Problem(source, target, loss, sizes, 0.0), sizes.start, []
    ratio = accounting.printed_noise(4.0, 0.01, T)
    for seed in range(4):
        noise = ratio * np.random.default_rng(seed).standard_normal((T, 3 + 200))
        sums = descent.PrivateSums(target, loss, loss.lipschitz, noise, 2.0**-20)
        before = np.zeros(500)
        for t in range(1, T + 1):  # u~ after t steps is what t steps add up to, less what t - 1 do
            eta = descent.StepSizes(1 / beta, 1 / beta, 1 / beta)
            path = descent.descend_with_weights(source, sums, J, sizes, 0.0, eta, t, np.zeros(3), move_private=True)
            total = t * np.concatenate([path.public, path.private])
            w, u, before = path.w[-1], total - before, total
            L = problem.losses(w)
            by_w = problem.rows[0].T @ (q0 / u * loss.slopes(w, *problem.rows)[:, 0])
            mappings.append(bounds.gradient_mapping((w, u), (by_w, J.slopes(u, L, q0)), beta, sizes, 2.0))
    assert 0 < np.mean(mappings) < bound


def test_the_trimmed_optimum_is_scipys():
    """The optimum of the trimmed objective is the one that SciPy finds."""
    source, target = labelled(DATA.source), labelled(DATA.target)
    X, y = np.vstack([source.X, target.X]), 2 * np.r_[source.y, target.y] - 1
    q0 = Sizes(40, 15, 0.4).start
    for most, slack in ((5.0, 1e-6), (1.2, 1e-6), (0.8, 0.005)):  # J is not convex, and the last has several hollows
        J = lambda w, most=most: float(q0 @ np.minimum(np.logaddexp(0, -y * (X @ descent.project(w, 5.0))), most))
        model = NCnvxAdap(epsilon=None, lambda_1=most, discrepancy=0.0, source_weight=0.4, weight_bound=5.0)
        lowest = differential_evolution(J, [(-5, 5)] * 3, rng=0, maxiter=100, popsize=10, tol=1e-8).fun
        assert J(model.fit(source, target).coef_) <= lowest * (1 + slack)


def test_a_probabilistic_program_has_the_same_mode():
    """A probabilistic program with the objective as its energy has the same mode."""
    sizes, penalties = Sizes(40, 15, 0.4), Convex(0.02)
    problem = Problem(DATA.source, DATA.target, Squared(1.0, 1.5), sizes, 0.1)
    best, q0 = optimum(problem, penalties, np.zeros(3)), sizes.start
    X, y = problem.rows

    def model():  # every record's weight u~ >= 1 a latent number, its energy F
        flat = numpyro.distributions.ImproperUniform
        w = numpyro.sample("w", flat(numpyro.distributions.constraints.real_vector, (), (3,)))
        u = numpyro.sample("u", flat(numpyro.distributions.constraints.greater_than(1.0), (), (55,)))
        L = (X @ w - y) ** 2 + 0.1 * (jnp.arange(55) < 40)
        numpyro.factor("F", -((q0 * L / u).sum() + 0.02 * (q0 @ u - 1)))

    def energy(x):  # inside the support: u~ = 1 + v^2
        return -log_density(model, (), {}, {"w": x[:3], "u": 1 + 1e-9 + x[3:] ** 2})[0]

    with jax.enable_x64(True):
        both = jax.jit(jax.value_and_grad(energy))
        options = {"ftol": 1e-15, "gtol": 1e-10, "maxiter": 5000}
        lowest_point = minimize(
            both, np.r_[np.zeros(3), np.full(55, 0.5)], jac=True, method="L-BFGS-B", options=options
        )
    assert lowest_point.fun == pytest.approx(best.objective, rel=1e-6)
    np.testing.assert_allclose(lowest_point.x[:3], best.w, atol=1e-3)
    np.testing.assert_allclose(1 + lowest_point.x[3:] ** 2, best.weights, rtol=0.02)


def test_without_a_shift_it_pools_and_far_sources_lose_weight():
    """Without a shift it is as good as pooling, and far sources lose their weight."""
    same = problems.shifted((400, 100), 0.0, num_features=3, tests=2000, seed=2)
    options = {"epsilon": None, "discrepancy": 0.0, "source_weight": 0.8, "kappa_1": 0.2}
    pooled = error(Unprotected("pooled").fit(same.source, same.target), same)
    assert error(CnvxAdap(**options).fit(same.source, same.target), same) < 1.01 * pooled
    data = problems.shifted((400, 100), 0.0, num_features=3, tests=2, seed=2)
    far = Domain(data.source.X, -data.source.y)
    left = {}
    for variant in ("printed", "rescaled", "profiled"):
        model = CnvxAdap(epsilon=50.0, delta=0.1, variant=variant, kappa_1=0.005, source_weight=0.3, unsafe_seed=1,
                         steps=200, discrepancy=0.0).fit(far, data.target)  # fmt: skip
        left[variant] = model.source_weights_.sum() / 0.3
    assert left["profiled"] < 0.4
    assert left["profiled"] < left["rescaled"] < 0.95
    assert left["printed"] > 0.999  # its weights do not move


def test_without_noise_a_fit_is_a_function_of_its_arguments():
    for model in (CnvxAdap(epsilon=None), NCnvxAdap(epsilon=None, discrepancy=0.0)):
        data = (
            (labelled(DATA.source), labelled(DATA.target))
            if isinstance(model, NCnvxAdap)
            else (DATA.source, DATA.target)
        )
        assert np.array_equal(model.fit(*data).coef_, model.fit(*data).coef_)
    quiet = CnvxAdap(epsilon=1e6, delta=0.5, unsafe_seed=0, discrepancy=0.0, steps=2000, kappa_1=0.02, weight_bound=1.5)
    best = CnvxAdap(epsilon=None, discrepancy=0.0, kappa_1=0.02, weight_bound=1.5)
    np.testing.assert_allclose(
        quiet.fit(DATA.source, DATA.target).coef_, best.fit(DATA.source, DATA.target).coef_, atol=1e-3
    )


def test_errors_on_the_fixed_generator_are_those_measured():
    """Errors on the fixed generator are those that were measured."""
    measured = {"least squares": 0.028, "least absolute": 0.018, "one release": 0.018}  # 300 public records, 60 private
    fits = {name: [] for name in measured}
    for seed in range(effort(20, 40)):
        data = problems.two_sources((300, 60), tests=2000, seed=seed)
        fits["least squares"].append(error(SourceOnly("squared").fit(data.source), data))
        if seed < effort(10, 20):
            fits["least absolute"].append(error(SourceOnly("absolute").fit(data.source), data))
            release = MomentAdaptation(epsilon=1.0, delta=0.01, unsafe_seed=seed, draws=100)
            fits["one release"].append(error(release.fit(data.sources, data.target), data))
    for name, each in fits.items():
        assert abs(np.mean(each) - measured[name]) < FAR * np.std(each) / np.sqrt(len(each)) + 5e-4, name
