"""Lemmas 1 and 2 of TPAMI 2022: how far noise can take a projection from the prox that it replaces."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.effort import effort
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from mpmtl_prob.convex.penalties import GroupLasso, TraceNorm
from mpmtl_prob.theory.projection import group_sparse_error, low_rank_error

shapes = effort(st.sampled_from([(2, 7), (5, 3)]), st.tuples(st.integers(1, 8), st.integers(1, 12)))
instances = given(
    seed=st.integers(0, 2**32 - 1),
    shape=shapes,  # each compiles
    rank=st.integers(1, 8),
    noise=st.floats(-8, 0.5),
    penalty=st.floats(0.05, 3.0),
    eta=st.floats(0.1, 3.0),
)


@partial(jax.jit, static_argnums=0)
def proximal_error(norm, C, E, eta, penalty):
    """(1/2 eta) ||W^ - C||_F^2 + lambda g(W^) minus its least value, W^ the projection read off C C' + E."""
    objective = lambda W: jnp.sum((W - C) ** 2) / (2 * eta) + norm.value(W, penalty)
    projected = norm.projection(C @ C.T + E, eta * penalty) @ C
    return objective(projected) - objective(norm.prox(C, eta * penalty))


def low_rank(rng, d, m, rank):
    r = min(rank, d, m)
    C = rng.standard_normal((d, r)) @ rng.standard_normal((r, m)) * np.exp(rng.normal())
    return C, np.linalg.svd(C, compute_uv=False)


@settings(max_examples=60, deadline=None, derandomize=True)
@instances
def test_lemma_1_bounds_the_low_rank_projection(seed, shape, rank, noise, penalty, eta):
    """Lemma 1 bounds the proximal error of the low-rank projection."""
    (d, m), rng = shape, np.random.default_rng(seed)
    C, s = low_rank(rng, d, m, rank)
    k = int(np.sum(s > eta * penalty))
    root = rng.standard_normal((d, d + 1))
    E = root @ root.T
    padded = np.append(s**2, np.zeros(max(d - len(s), 0) + 1))
    gap = np.min(padded[:k] - padded[1 : k + 1]) if k else np.inf
    E *= 10**noise * min(gap, s[0] ** 2) / 2 / np.linalg.norm(E, 2)
    sigma_1 = np.linalg.norm(E, 2)
    assume(2 * sigma_1 <= gap)
    bound = low_rank_error(C, sigma_1, step_size=eta, penalty=penalty)
    error = proximal_error(TraceNorm(), C, E, eta, penalty)
    assert -1e-8 * (1 + s[0] ** 2 / eta) <= error <= bound * (1 + 1e-9) + 1e-9


@settings(max_examples=60, deadline=None, derandomize=True)
@instances
def test_lemma_2_bounds_the_group_sparse_projection(seed, shape, rank, noise, penalty, eta):
    """Lemma 2 bounds the proximal error of the group-sparse projection."""
    (d, m), rng = shape, np.random.default_rng(seed)
    C = rng.standard_normal((d, m)) * np.exp(rng.normal(size=(d, 1))) * (rng.permutation(d) < rank)[:, None]
    rows = np.linalg.norm(C, axis=1)
    E = np.diag(10**noise * rng.chisquare(2, d))
    bound = group_sparse_error(C, np.diag(E).max(), step_size=eta, penalty=penalty)
    error = proximal_error(GroupLasso(), C, E, eta, penalty)
    assert -1e-9 * (1 + rows.max() ** 2 / eta) <= error <= bound * (1 + 1e-9) + 1e-9


def test_the_error_of_lemma_1_vanishes_only_with_the_noise():
    """The error of Lemma 1 vanishes with the noise and not before."""
    rng = np.random.default_rng(0)
    C, E = rng.standard_normal((5, 3)), np.eye(5)
    errors = [proximal_error(TraceNorm(), C, scale * E, 1.0, 1.0) for scale in (0.0, 1e-3, 1e-1, 1.0)]
    assert_allclose(errors[0], 0, atol=1e-12)
    assert errors[1] < errors[2] < errors[3]
    assert errors[3] > 0.01


def test_the_bounds_by_hand():
    """Singular values 3 and 1 with eta lambda = 2: one is kept, the other is not."""
    C = np.diag([3.0, 1.0])
    expected = (9 / 2 + 3) * ((1 / 2 + 2) * 0.25 + np.sqrt(0.25))
    assert_allclose(low_rank_error(C, 0.25, step_size=1.0, penalty=2.0), expected)
    expected = (2 / 2 * 9 + 3) * (1 / 4 * 0.25 + np.sqrt(0.25))
    assert_allclose(group_sparse_error(C, 0.25, step_size=1.0, penalty=2.0), expected)


def test_noise_beyond_the_gap_is_refused():
    with pytest.raises(ValueError, match="noise: expected at most 4, half the least gap of the spectrum, got 5"):
        low_rank_error(np.diag([3.0, 1.0]), 5.0, step_size=1.0, penalty=2.0)
