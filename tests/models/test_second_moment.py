"""The coordinates of a second moment: what they are built from. Densities are tested with the models that use them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.quickly import quickly
from numpy.testing import assert_allclose
from numpyro.handlers import seed, substitute
from numpyro.infer.util import constrain_fn

from mpmtl_prob.inference.public.init import start_low_rank, suggested
from mpmtl_prob.models import shared_covariance as model
from mpmtl_prob.models.observed import LOG_PHI_SD, observe
from mpmtl_prob.models.scale import OPEN
from mpmtl_prob.models.second_moment import at_rest, rotated_second_moment
from mpmtl_prob.models.triangles import inverse_and_log_det, inverse_of_lower
from mpmtl_prob.privacy import Gaussian, Wishart


@pytest.fixture(scope="module")
def factor():
    rng = np.random.default_rng(0)
    return np.tril(rng.standard_normal((4, 4)), -1) + np.diag(1 + rng.random(4))


@pytest.fixture(scope="module")
def weight():
    return np.random.default_rng(1).standard_normal((4, 4))


def test_inverse_and_derivatives_are_those_of_plain_algebra(factor, weight):
    """An inverse and its derivatives are those of plain algebra."""

    def ours(L):
        inverse, log_det = inverse_and_log_det(L @ L.T)
        return jnp.sum(weight * inverse) + log_det**2

    def slope(L):
        inverse, log_det = np.linalg.inv(L @ L.T), np.log(np.linalg.det(L @ L.T))
        of_square = 2 * log_det * inverse - inverse.T @ weight @ inverse.T
        return (of_square + of_square.T) @ L

    def curvature(i, j):  # by a step that is imaginary, which costs no digits
        step = np.zeros((4, 4), complex)
        step[i, j] = 1e-30j
        return np.imag(slope(factor + step)) / 1e-30

    value, gradient, hessian = quickly(lambda L: (ours(L), jax.grad(ours)(L), jax.hessian(ours)(L)))(factor)
    M = factor @ factor.T
    assert_allclose(value, np.sum(weight * np.linalg.inv(M)) + np.linalg.slogdet(M)[1] ** 2)
    assert_allclose(gradient, slope(factor))
    expected = np.array([[curvature(i, j) for j in range(4)] for i in range(4)])
    assert_allclose(np.moveaxis(hessian, (2, 3), (0, 1)), expected, atol=1e-9)


def test_the_inverse_of_a_triangle_too(factor, weight):
    value, gradient = quickly(jax.value_and_grad(lambda L: jnp.sum(weight * inverse_of_lower(jnp.tril(L)) ** 2)))(
        factor
    )
    inverse = np.linalg.inv(factor)
    assert_allclose(value, np.sum(weight * inverse**2))
    assert_allclose(gradient, np.tril(-inverse.T @ (2 * weight * inverse) @ inverse.T), atol=1e-12)


def test_signal_far_above_gaussian_noise_is_the_centre():
    """A signal far above Gaussian noise is the centre of the coordinates."""
    A = np.diag([900.0, 4000.0, 100.0]) + 50.0
    shown = observe(A, Gaussian(3, 1e-3), 10, phi=1.0).free.features
    assert np.argmax(shown.basis, axis=0).tolist() == [1, 0, 2]  # largest first
    size = np.exp(shown.log_size)
    L = np.tril(shown.products, -1) / np.sqrt(size) + np.diag(np.sqrt(size))
    assert_allclose(L @ L.T, shown.basis.T @ A @ shown.basis, rtol=1e-8)
    assert_allclose(shown.information, (size / (np.sqrt(2) * 1e-3)) ** 2, rtol=1e-8)


@pytest.mark.parametrize("size", [-5.0, 0.0, 1e-3])
def test_of_what_gaussian_noise_hides_nothing_is_said(size):
    shown = observe(size * np.eye(3), Gaussian(3, 1.0), 10, phi=1.0).free.features
    assert (shown.information < 1e-5).all()
    assert np.isfinite(shown.log_size).all()


def test_behind_loud_gaussian_noise_a_moment_follows_omega():
    """Behind Gaussian noise that hides everything, the second moment moves with Omega."""
    law = Gaussian(3, 1e6)
    m = 10
    root = np.array([[3.0, 0.0, 0.0], [2.0, 1.0, 0.0], [-1.0, 4.0, 0.5]])
    observed, prior = observe(np.diag([3.0, 2.0, 1.0]), law, m, phi=1.0), m * root @ root.T
    rest = seed(substitute(rotated_second_moment, data=at_rest(observed)), 0)
    Q = observed.free.directions.basis
    # Bartlett: T_jj^2 has m - j degrees of freedom
    L = np.linalg.cholesky(Q.T @ prior @ Q) * np.sqrt(1 - np.arange(3) / m)
    assert_allclose(quickly(lambda: rest(observed, prior).A)(), Q @ L @ L.T @ Q.T, rtol=1e-4)


def test_of_wishart_noise_the_coordinates_lie_below_the_release():
    observed = observe(np.diag([9.0, 2.0, 1.0]), Wishart(3, 5.0, 0.1), 10, phi=0.1)
    assert observed.free is None
    assert (np.asarray(observed.precision) > 0).all()


def along_the_release(scale):
    """A along a release's eigenvectors: as it suggests, where chains start, and with Omega's floor at four times that."""
    law, A = Wishart(3, 50.0, scale), np.diag([400.0, 30.0, 20.0]) + 5.0
    observed = observe(law.sample(np.random.default_rng(0), A), law, 100, phi=1.0)
    start, V = start_low_rank(observed, 2), np.asarray(observed.eigenvectors)
    higher = start | {"z": start["z"] + np.log(4) / (LOG_PHI_SD * OPEN)}
    program = quickly(
        lambda sites: constrain_fn(model.few_directions, (observed, 2), {}, sites, return_deterministic=True)["A"]
    )
    second_moments = (100 * suggested(observed), program(start), program(higher))
    return [V.T @ np.asarray(A) @ V for A in second_moments]


@pytest.mark.parametrize("scale", [1e-4, 1.0, 100.0])
def test_low_rank_chains_start_at_the_suggested_moment(scale):
    """Chains of the low-rank structure start at the second moment that the release suggests."""
    expected, start, _ = along_the_release(scale)
    assert_allclose(start, expected, atol=1e-8)


def test_a_moment_follows_omega_only_where_noise_hides_it():
    """The second moment follows Omega only where the noise hides it."""

    def moved(scale):
        _, start, higher = along_the_release(scale)
        return np.diagonal(higher) / np.diagonal(start)

    assert_allclose(moved(1e-4), 1.0, atol=1e-3)
    hidden, _, shown = moved(1.0)
    assert hidden > 1.5
    assert shown == pytest.approx(1.0, abs=0.01)
    assert moved(100.0).min() > 2
