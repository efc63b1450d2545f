"""The distributions of the models against scipy, quadrature and Monte Carlo."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats as st
from helpers.effort import effort
from helpers.quickly import quickly
from helpers.tolerances import FAR, RARE
from numpy.testing import assert_allclose
from numpyro.distributions import biject_to
from scipy.integrate import dblquad
from scipy.special import betaln, multigammaln

from mpmtl_prob.models import (
    EntrywiseLaplace,
    GroupLaplace,
    MatrixBeta,
    ShiftedGaussian,
    ShiftedWishart,
    TraceNormPrior,
    between_zero_and,
    positive_definite_above,
)
from mpmtl_prob.models.normaliser import acceptance_rate, log_trace_norm_integral

NORMS = {
    TraceNormPrior: lambda W: np.linalg.norm(W, "nuc"),
    GroupLaplace: lambda W: np.linalg.norm(W, axis=1).sum(),
    EntrywiseLaplace: lambda W: np.abs(W).sum(),
}
KEY = jax.random.key(0)
LONG = pytest.mark.evidence


@partial(quickly, static_argnums=1)
def draw(law, size):
    return law.sample(KEY, (size,))


@quickly
def log_prob(law, value):
    return law.log_prob(value)


@quickly
def moments(law):
    return law.mean, law.variance


@quickly
def with_slope(law, value):
    """log p of every value, and its gradient."""
    log_p, back = jax.vjp(law.log_prob, value)
    return log_p, back(jnp.ones_like(log_p))[0]


def slope(law, value):
    return with_slope(law, value)[1]


@quickly
def with_support(law, value):
    return law.log_prob(value), law.support(value)


@partial(quickly, static_argnums=0)
def with_derivatives(prior, W, rate, smoothing):
    """log p, its gradients in W and lambda, and its derivative along W itself, forwards."""
    log_prob = lambda W, rate: prior(rate, W.shape, smoothing=smoothing).log_prob(W)
    log_p, gradients = jax.value_and_grad(log_prob, (0, 1))(W, rate)
    return log_p, *gradients, jax.jvp(lambda W: log_prob(W, rate), (W,), (W,))[1]


def spd(rng, d, df=None):
    return st.wishart(df or d + 3, np.eye(d)).rvs(random_state=rng) * np.ones((d, d))


# -- priors that are penalties ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("prior", [TraceNormPrior, GroupLaplace, EntrywiseLaplace])
def test_one_task_and_one_feature_is_the_laplace_law(prior):
    x = np.linspace(-3, 3, 7)
    assert_allclose(log_prob(prior(0.7, (1, 1)), x[:, None, None]), st.laplace(scale=1 / 0.7).logpdf(x), rtol=1e-12)


def test_trace_norm_of_a_vector_is_the_group_laplace_law():
    W = np.random.default_rng(0).standard_normal((5, 1, 4))
    log_p = log_prob(TraceNormPrior(1.3, (1, 4)), W)
    assert_allclose(log_p, log_prob(GroupLaplace(1.3, (1, 4)), W), rtol=1e-12)
    assert_allclose(log_prob(TraceNormPrior(1.3, (4, 1)), np.swapaxes(W, 1, 2)), log_p, rtol=1e-12)


@pytest.mark.parametrize(("d", "m"), [(2, 2), (2, 5), (7, 2)])
def test_trace_norm_integral_agrees_with_quadrature(d, m):
    """The integral over the trace norm agrees with quadrature over two singular values."""
    n = max(d, m)
    density = lambda b, a: (a * b) ** (n - 2) * (b**2 - a**2) * np.exp(-a - b)
    integral = dblquad(density, 0, 60, lambda a: a, 90, epsabs=0, epsrel=1e-9)[0]
    log_constant = np.log(4) + (n + 2) * np.log(np.pi) - multigammaln(n / 2, 2) - multigammaln(1, 2)
    assert_allclose(log_trace_norm_integral(d, m), log_constant + np.log(integral), rtol=1e-9)


@pytest.mark.parametrize(("d", "m"), [(3, 4), (4, 4)])
def test_trace_norm_is_normalised_by_importance_sampling(d, m):
    # W = radius * U from p(||W||_F) uniform on the sphere; int e^{-||W||_*} dW = E[||U||_*^{-dm}] Gamma(dm) area(sphere)
    rng, size = np.random.default_rng(1), effort(60_000, 200_000)
    U = rng.standard_normal((size, d, m))
    U /= np.linalg.norm(U, axis=(1, 2), keepdims=True)
    weight = np.linalg.svd(U, compute_uv=False).sum(-1) ** (-d * m)
    area = np.log(2) + 0.5 * d * m * np.log(np.pi) - multigammaln(d * m / 2, 1)
    estimate, error = weight.mean(), weight.std() / np.sqrt(size)
    expected = np.exp(log_trace_norm_integral(d, m) - area - multigammaln(d * m, 1))
    assert abs(estimate - expected) < FAR * error
    assert error < 0.02 * expected


def test_trace_norm_integral_keeps_its_digits_at_real_sizes(monkeypatch):
    """The integral over the trace norm keeps its digits at the size of real problems."""
    from mpmtl_prob.models import normaliser

    coarse = normaliser._log_singular_value_integral(27, 112)
    monkeypatch.setattr(normaliser, "_DIGITS", 400)
    assert coarse == normaliser._log_singular_value_integral(27, 112)


@pytest.mark.parametrize(("d", "m"), [pytest.param(2, 2, marks=LONG), (5, 4)])
def test_trace_norm_draws_have_the_law(d, m):
    rate, size = np.array([[0.6], [1.8]]), 2000
    law = TraceNormPrior(rate, (d, m))
    W = np.asarray(draw(law, size))
    assert W.shape == (size, 2, 1, d, m)
    norm = rate * np.linalg.svd(W, compute_uv=False).sum(-1)
    assert st.kstest(norm.ravel(), st.gamma(d * m).cdf).pvalue > RARE
    # E[<grad log p, h(W)> + div h] = 0 for smooth h: Stein's identity sees the whole law. h(W) = W W' W
    gradient = np.asarray(slope(law, W))
    h = W @ np.swapaxes(W, -2, -1) @ W
    divergence = (d + m + 1) * np.sum(W**2, axis=(-2, -1))
    stein = rate**2 * (np.sum(gradient * h, axis=(-2, -1)) + divergence)
    assert abs(stein.mean()) < FAR * stein.std() / np.sqrt(stein.size)
    # rotations of either side leave the law as it is
    corners = (W[..., i, j].ravel() for i, j in ((0, 0), (-1, -1), (0, 1), (-1, 0)))
    first, last, above, below = corners
    assert st.ks_2samp(first / last, above / below).pvalue > RARE


def test_share_of_accepted_proposals_is_the_one_predicted():
    rng, k, n = np.random.default_rng(2), 4, 6
    G = rng.standard_normal((100_000, k, 2 * (n - k) + k + 1))
    h = np.linalg.eigvalsh(G @ np.swapaxes(G, 1, 2))
    i, j = np.triu_indices(k, 1)
    accept = np.prod((h[:, i] + h[:, j]) * k / (2 * h.sum(-1, keepdims=True)), axis=1)
    assert accept.max() <= 1 + 1e-12
    assert abs(accept.mean() - acceptance_rate(k, n)) < FAR * accept.std() / np.sqrt(len(accept))


def test_trace_norm_says_where_it_has_no_sampler():
    with pytest.raises(NotImplementedError, match="no exact sampler for shape \\(20, 20\\)"):
        TraceNormPrior(1.0, (20, 20)).sample(KEY)


@pytest.mark.parametrize("prior", [GroupLaplace, EntrywiseLaplace])
def test_draws_and_moments_of_the_separable_priors(prior):
    law = prior(jnp.array([0.5, 2.0]), (3, 4))
    W = np.asarray(draw(law, 20_000))
    assert W.shape == (20_000, 2, 3, 4)
    assert_allclose(W.var(0), law.variance, rtol=0.12)
    for b, rate in enumerate((0.5, 2.0)):
        if prior is GroupLaplace:
            assert st.kstest(np.linalg.norm(W[:, b, 1], axis=-1), st.gamma(4, scale=1 / rate).cdf).pvalue > RARE
        else:
            assert st.kstest(W[:, b, 1, 2], st.laplace(scale=1 / rate).cdf).pvalue > RARE


def prox(prior, W, threshold):
    """The proximal operator of its norm."""
    if prior is TraceNormPrior:
        U, s, Vt = np.linalg.svd(W, full_matrices=False)
        return (U * np.maximum(s - threshold, 0)) @ Vt
    size = np.abs(W) if prior is EntrywiseLaplace else np.linalg.norm(W, axis=1, keepdims=True)
    return W * np.maximum(1 - threshold / size, 0)


@pytest.mark.parametrize(
    ("prior", "shape", "precision"),
    [
        *((prior, (3, 5), "float64") for prior in NORMS),
        (TraceNormPrior, (5, 3), "float64"),  # the others know no sides
        *((prior, (3, 5), "float32") for prior in NORMS),
    ],
)
def test_smoothed_gradient_is_the_moreau_envelopes(prior, shape, precision):
    """The smoothed gradient is that of the Moreau envelope, and the value is exact."""
    W = np.random.default_rng(3).standard_normal(shape).astype(precision)
    rate, gamma = np.asarray(1.4, precision), np.asarray(0.8, precision)
    rtol = 2e-4 if precision == "float32" else 1e-9
    value, gradient, _, along = with_derivatives(prior, W, rate, gamma)
    assert gradient.dtype == precision
    assert_allclose(value, log_prob(prior(rate, shape), W), rtol=rtol)
    expected = -(W - prox(prior, W.astype("float64"), gamma * rate)) / gamma
    assert_allclose(gradient, expected, rtol=rtol, atol=rtol)
    assert_allclose(along, np.sum(expected * W), rtol=rtol)


@pytest.mark.parametrize("prior", NORMS)
@pytest.mark.parametrize("smoothing", [None, 0.3])
def test_gradients_are_finite_where_the_penalty_has_a_kink(prior, smoothing):
    for W in (np.zeros((3, 5)), np.ones((3, 5)), np.eye(3, 5)):
        assert all(np.isfinite(each).all() for each in with_derivatives(prior, W, 2.0, smoothing))


@pytest.mark.parametrize("prior", NORMS)
@pytest.mark.parametrize("smoothing", [None, 0.3])
def test_lambda_has_its_exact_derivative_smoothed_or_not(prior, smoothing):
    W = np.random.default_rng(4).standard_normal((3, 5))
    slope = with_derivatives(prior, W, 1.7, smoothing)[2]
    assert_allclose(slope, 15 / 1.7 - NORMS[prior](W), rtol=1e-9)  # of d m log(lambda) - lambda g(W)


@pytest.mark.parametrize(
    "prior", [TraceNormPrior, *(pytest.param(each, marks=LONG) for each in (GroupLaplace, EntrywiseLaplace))]
)
def test_priors_batch_and_are_pytrees(prior):
    rates = jnp.array([[0.5], [1.0]])
    law = prior(rates, (2, 3), smoothing=0.1)
    assert law.batch_shape == (2, 1)
    assert law.event_shape == (2, 3)
    W = np.random.default_rng(5).standard_normal((7, 2, 1, 2, 3))
    one = prior(1.0, (2, 3), smoothing=0.1)
    (log_p, along), (alone, its) = with_slope(law, W), with_slope(one, np.asarray(W)[:, 1, 0])
    assert_allclose(np.asarray(log_p)[:, 1, 0], alone, rtol=1e-10)
    assert_allclose(np.asarray(along)[:, 1, 0], its, rtol=1e-9)
    leaves, structure = jax.tree.flatten(law)
    assert_allclose(with_slope(jax.tree.unflatten(structure, leaves), W)[0], log_p)


def test_bad_shapes_and_rates_are_named():
    with pytest.raises(ValueError, match=r"shape: expected \(d, m\), two whole numbers above 0, got \(3,\)"):
        TraceNormPrior(1.0, (3,))
    with pytest.raises(ValueError, match="rate"):
        GroupLaplace(-1.0, (2, 2), validate_args=True)


# -- matrices under a release -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, pytest.param(2, marks=LONG), 5])
def test_shifted_wishart_is_scipys_wishart_moved(d):
    rng = np.random.default_rng(d)
    loc, df, scale = spd(rng, d), d + 2.5, 0.4
    reference = st.wishart(df, scale * np.eye(d))
    noise = reference.rvs(6, random_state=rng).reshape(6, d, d)
    law = ShiftedWishart(loc, df, scale)
    assert_allclose(log_prob(law, loc + noise), [reference.logpdf(e) for e in noise], rtol=1e-9)


#: Of two degrees of freedom, each round two matrices.
WISHARTS = ShiftedWishart(np.stack([spd(np.random.default_rng(i), 3) for i in range(2)]), np.array([[6.5], [9.0]]), 0.5)


def test_shifted_wishart_draws_have_its_moments():
    law, size = WISHARTS, 10_000
    draws = np.asarray(draw(law, size))
    assert draws.shape == (size, 2, 2, 3, 3)
    mean, variance = map(np.asarray, moments(law))
    error = np.sqrt(variance.max((-2, -1), keepdims=True) / size)
    assert (np.abs(draws.mean(0) - mean) < FAR * error).all()
    assert_allclose((draws.var(0) / variance).mean((0, 1)), 1, rtol=0.06)
    assert_allclose(draws, np.swapaxes(draws, -2, -1))
    # the diagonal of a Wishart matrix is chi-squared
    for i, df in enumerate((6.5, 9.0)):
        assert st.kstest((draws[:, i, 1, 1, 1] - law.loc[1, 1, 1]) / 0.5, st.chi2(df).cdf).pvalue > RARE


def test_shifted_wishart_has_finite_gradients_off_its_support():
    """Outside its support the shifted Wishart law is minus infinity with finite gradients."""
    d = 3
    density = lambda sigma, loc, df, scale: ShiftedWishart(loc, df, scale, validate_args=False).log_prob(sigma)
    both, sigma = quickly(jax.value_and_grad(density, (0, 1, 2, 3))), 2 * np.eye(d)
    for df in (d + 1.0, d + 8.0):
        for loc, inside in ((np.eye(d), True), (np.diag([3.0, 1.0, 1.0]), False), (2 * np.eye(d), False)):
            value, gradients = both(sigma, loc, df, 0.5)
            assert np.isfinite(value) if inside else value == -np.inf
            assert all(np.isfinite(each).all() for each in gradients)


def test_shifted_wishart_batches():
    law, rng = WISHARTS, np.random.default_rng(8)
    assert law.batch_shape == (2, 2)
    loc = np.asarray(law.loc)
    draws = loc + np.array([[spd(rng, 3) for _ in range(4)] for _ in range(5)]).reshape(5, 2, 2, 3, 3)
    one = ShiftedWishart(loc[1], 9.0, 0.5)
    log_p, inside = with_support(law, draws)
    below = draws[:, 1, 1].copy()
    below[0] = loc[1] - np.eye(3)
    alone, kept = with_support(one, below)
    assert_allclose(np.asarray(log_p)[1:, 1, 1], alone[1:], rtol=1e-12)
    leaves, structure = jax.tree.flatten(law)
    assert_allclose(with_support(jax.tree.unflatten(structure, leaves), draws)[0], log_p)
    assert inside.all()
    assert kept.tolist() == [False, True, True, True, True]


def test_shifted_gaussian_has_independent_lower_entries():
    """The shifted Gaussian law has independent entries on and below the diagonal."""
    d, sd = 3, 0.7
    loc = spd(np.random.default_rng(0), d)
    law = ShiftedGaussian(loc, sd)
    draws = np.asarray(draw(law, 40_000))
    below, diagonal = np.tril_indices(d, -1), np.arange(d)
    expected = st.norm.logpdf(draws[:, *below], loc[below], sd).sum(1)
    expected += st.norm.logpdf(draws[:, diagonal, diagonal], np.diag(loc), np.sqrt(2) * sd).sum(1)
    assert_allclose(log_prob(law, draws), expected, rtol=1e-9)
    assert_allclose(draws, np.swapaxes(draws, 1, 2))
    assert_allclose(draws.mean(0), law.mean, atol=6 * np.sqrt(law.variance.max() / 40_000))
    assert_allclose(draws.var(0), law.variance, rtol=0.06)


@pytest.mark.parametrize("make", [positive_definite_above, between_zero_and])
def test_unconstrained_coordinates_have_the_right_jacobian(make):
    """Unconstrained coordinates fill the set, with the right Jacobian."""
    d, rng = 3, np.random.default_rng(5)
    bound = spd(rng, d)
    constraint = make(bound)
    transform = biject_to(constraint)
    lower = np.tril_indices(d)
    x = rng.standard_normal((20, d * (d + 1) // 2))

    @quickly
    def both_ways(x):
        y = transform(x)
        return y, constraint(y), transform.inv(y), transform.log_abs_det_jacobian(x, y), constraint(feasible)

    feasible = constraint.feasible_like(np.empty((20, d, d)))
    y, inside, back, log_jacobian, known = both_ways(x)
    assert y.shape == (20, d, d)
    assert inside.all()
    assert known.all()
    assert_allclose(back, x, rtol=1e-7, atol=1e-7)
    jacobian = quickly(jax.vmap(jax.jacfwd(lambda v: transform(v)[lower])))(x)
    assert_allclose(log_jacobian, np.linalg.slogdet(jacobian)[1], rtol=1e-8)
    # far out in these coordinates, yet of a matrix that doubles can decompose, is close to the boundary, not across it
    far = both_ways(np.clip(5 * x, -6, 6))[0]
    eigenvalues = np.linalg.eigvalsh(far if make is between_zero_and else far - bound)
    assert (eigenvalues > -1e-9).all()


def test_matrix_beta_of_one_feature_is_the_beta_law():
    x = np.linspace(0.1, 1.9, 6)
    law = MatrixBeta(2.5, 1.5, 2.0 * np.eye(1))
    assert_allclose(log_prob(law, x[:, None, None]), st.beta(2.5, 1.5, scale=2).logpdf(x), rtol=1e-10)


def test_determinant_of_matrix_beta_draws_is_a_product_of_betas():
    d, a, b = 3, 4.0, 2.5
    upper = spd(np.random.default_rng(6), d)
    draws = np.asarray(draw(MatrixBeta(a, b, upper), 20_000))
    log_det = np.linalg.slogdet(draws)[1] - np.linalg.slogdet(upper)[1]
    # |B| is a product of independent Beta(a - i/2, b), so its moments are ratios of beta functions
    for power in (0.5, 1.0, 2.0):
        expected = np.exp(sum(betaln(a - i / 2 + power, b) - betaln(a - i / 2, b) for i in range(d)))
        powers = np.exp(power * log_det)
        assert abs(powers.mean() - expected) < FAR * powers.std() / np.sqrt(len(powers))
    assert_allclose(draws.mean(0), MatrixBeta(a, b, upper).mean, atol=0.03 * np.trace(upper))


def test_uniform_law_below_a_matrix_is_normalised():
    # volume of {A: 0 < A < U} by rejection from the box of entries
    upper = np.array([[2.0, 0.5], [0.5, 1.0]])
    rng, size = np.random.default_rng(7), effort(100_000, 400_000)
    a, b, c = rng.uniform(0, 2, size), rng.uniform(-1.5, 1.5, size), rng.uniform(0, 1, size)
    A = np.stack([np.stack([a, b], -1), np.stack([b, c], -1)], -1)
    inside = np.asarray(quickly(lambda A: between_zero_and(upper)(A))(A))
    volume, error = 6 * inside.mean(), 6 * inside.std() / np.sqrt(size)
    law = MatrixBeta.uniform(upper, validate_args=False)
    log_density, gradient = with_slope(law, A)
    density = np.exp(log_density)
    assert_allclose(density[inside], density[inside][0])
    assert abs(1 / density[inside][0] - volume) < FAR * error
    assert (density[~inside] == 0).all()
    assert np.isfinite(gradient).all()


@pytest.mark.evidence
def test_matrix_beta_batches_and_is_a_pytree():
    uppers = jnp.stack([jnp.eye(2), 3 * jnp.eye(2)])
    law = MatrixBeta(jnp.array([[2.0], [4.0]]), 2.0, uppers)
    draws = draw(law, 3)
    assert draws.shape == (3, 2, 2, 2, 2)
    assert law.support(draws).all()
    leaves, structure = jax.tree.flatten(law)
    assert_allclose(log_prob(jax.tree.unflatten(structure, leaves), draws), log_prob(law, draws))
