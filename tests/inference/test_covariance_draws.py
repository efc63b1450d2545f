"""Powers of drawn covariances, which owners take as their priors."""

import numpy as np
import pytest

from mpmtl_prob.inference.public.covariance_draws import CovarianceDraws

D = 30


def draws(smallest):
    """Draws with eigenvalues from ``smallest`` to 1, in random coordinates."""
    rng = np.random.default_rng(0)
    U = np.linalg.qr(rng.standard_normal((40, D, D)))[0]
    return CovarianceDraws(np.tile(np.geomspace(smallest, 1.0, D), (40, 1)), U)


@pytest.mark.parametrize("smallest", [1e-2, 1e-5, 1e-17, 0.0])
def test_a_power_of_tasks_that_are_nearly_alike_has_a_root(smallest):
    """With power 4 the smallest eigenvalue would be far below the rounding errors of the largest."""
    nearly = draws(1e-20) if smallest == 0 else draws(smallest)
    nearly.eigenvalues[:, 0] = smallest
    for powered in (nearly.shapes(np.full(40, 4.0)), nearly.shape(4.0)[None]):
        np.linalg.cholesky(powered)
        np.testing.assert_allclose(np.trace(powered, axis1=1, axis2=2), D)


def test_powers_are_those_of_the_eigenvalues():
    some = draws(1e-2)
    powered = some.shapes(np.full(40, 1.5))
    exact = some.eigenvalues**1.5
    np.testing.assert_allclose(np.linalg.eigvalsh(powered), D * exact / exact.sum(axis=1, keepdims=True), rtol=1e-9)
