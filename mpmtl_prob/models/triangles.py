"""Triangular matrices and determinants, of few operations that are cheap to differentiate."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array, custom_jvp, lax
from jax.lax.linalg import triangular_solve
from numpy.typing import NDArray


def strictly_lower(entries: Array, d: int) -> Array:
    """Return a matrix (d, d) with these entries (d(d-1)/2,) below its diagonal, in the order of :func:`places`.

    Writing the entries one by one would take a processor longer than decomposing the matrix. Instead, they are concatenated
    with their reverse and reshaped to a square, whose lower triangle has each of them once.
    """
    n = d - 1
    square = jnp.concatenate([entries[n:], entries[::-1]]).reshape(n, n)
    return jnp.pad(jnp.where(np.tri(n, dtype=bool), square, 0), [(1, 0), (0, 1)])


def below_diagonal(M: Array) -> Array:
    """Return M (d, d) with zeros on and above its diagonal."""
    return jnp.where(np.tri(len(M), k=-1, dtype=bool), M, 0)


def places(d: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the row and the column of every entry of :func:`strictly_lower`, (d(d-1)/2,) each."""
    n = d - 1
    count = d * (d - 1) // 2
    entry = np.concatenate([np.arange(n, count), np.arange(count)[::-1]]).reshape(n, n)
    row, column = np.tril_indices(n)
    order = np.argsort(entry[row, column])
    return row[order] + 1, column[order]


@custom_jvp
def cholesky(M: Array) -> Array:
    """Return the lower Cholesky factor of a positive definite M (d, d), which must be exactly symmetric.

    Its derivative multiplies by an inverse instead of solving triangular systems.
    """
    return lax.linalg.cholesky(M, symmetrize_input=False)


@cholesky.defjvp
def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    root = cholesky(*primals)
    half = inverse_of_lower(root)
    lower = np.tri(len(root), dtype=root.dtype)
    return root, root @ ((half @ tangents[0] @ half.T) * (lower - 0.5 * np.eye(len(root), dtype=root.dtype)))


@custom_jvp
def inverse_and_log_det(M: Array) -> tuple[Array, Array]:
    """Return M^{-1} and log|M| of a positive definite M (d, d), whose derivatives are products with M^{-1}."""
    root = cholesky(M)
    half = inverse_of_lower(root)
    return half.T @ half, log_det(root)


@inverse_and_log_det.defjvp
def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    inverse, log_det_m = inverse_and_log_det(*primals)
    return (inverse, log_det_m), (-inverse @ tangents[0] @ inverse, jnp.sum(inverse * tangents[0]))


@custom_jvp
def inverse_of_lower(L: Array) -> Array:
    """Return L^{-1} of a lower triangular L (d, d), whose derivatives are products with L^{-1}."""
    return triangular_solve(L, np.eye(len(L), dtype=L.dtype), left_side=True, lower=True)


@inverse_of_lower.defjvp
def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    inverse = inverse_of_lower(*primals)
    return inverse, -inverse @ tangents[0] @ inverse


def log_det(root: Array) -> Array:
    """Return log|M| of M = R R' from its triangular factor R."""
    return 2 * jnp.sum(jnp.log(diagonal_of(root)))


def diagonal(x: Array) -> Array:
    """Return the diagonal matrix of x (d,)."""
    return x * np.eye(len(x), dtype=x.dtype)


def diagonal_of(M: Array) -> Array:
    """Return the diagonal of a matrix M (d, d), by a sum whose derivative is a single operation too."""
    return jnp.sum(M * np.eye(len(M), dtype=M.dtype), axis=-1)
