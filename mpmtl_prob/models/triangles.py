"""Triangular matrices and determinants, few and cheap operations each, forwards and backwards."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array, custom_jvp, lax
from jax.lax.linalg import triangular_solve
from numpy.typing import NDArray


def strictly_lower(entries: Array, d: int) -> Array:
    """(d, d) with these (d(d-1)/2,) below the diagonal, where :func:`places` says, and zeros elsewhere.

    Cut, turned over and laid out in rows, never written one by one: that would take a processor longer than to decompose
    the matrix.
    """
    n = d - 1  # the last rows of a square, then the same backwards, are a triangle and its mirror image
    square = jnp.concatenate([entries[n:], entries[::-1]]).reshape(n, n)
    return jnp.pad(jnp.where(np.tri(n, dtype=bool), square, 0), [(1, 0), (0, 1)])


def below_diagonal(M: Array) -> Array:
    """M (d, d) below its diagonal, and zeros elsewhere."""
    return jnp.where(np.tri(len(M), k=-1, dtype=bool), M, 0)


def places(d: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Row and column of every entry of :func:`strictly_lower`, (d(d-1)/2,) each."""
    n, count = d - 1, d * (d - 1) // 2
    entry = np.concatenate([np.arange(n, count), np.arange(count)[::-1]]).reshape(n, n)
    row, column = np.tril_indices(n)
    order = np.argsort(entry[row, column])
    return row[order] + 1, column[order]


@custom_jvp
def cholesky(M: Array) -> Array:
    """The lower factor of a positive definite M (d, d) that is symmetric as it comes; derivatives are products."""
    return lax.linalg.cholesky(M, symmetrize_input=False)


@cholesky.defjvp
def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    root = cholesky(*primals)
    half, lower = inverse_of_lower(root), np.tri(len(root), dtype=root.dtype)
    return root, root @ ((half @ tangents[0] @ half.T) * (lower - 0.5 * np.eye(len(root), dtype=root.dtype)))


@custom_jvp
def inverse_and_log_det(M: Array) -> tuple[Array, Array]:
    """M^{-1} and log|M| of a positive definite M (d, d); derivatives are products of M^{-1} and decompose nothing again."""
    root = cholesky(M)
    half = inverse_of_lower(root)
    return half.T @ half, log_det(root)


@inverse_and_log_det.defjvp
def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    inverse, log_det_m = inverse_and_log_det(*primals)
    return (inverse, log_det_m), (-inverse @ tangents[0] @ inverse, jnp.sum(inverse * tangents[0]))


@custom_jvp
def inverse_of_lower(L: Array) -> Array:
    """L^{-1} of a lower triangular L (d, d), likewise."""
    return triangular_solve(L, np.eye(len(L), dtype=L.dtype), left_side=True, lower=True)


@inverse_of_lower.defjvp
def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    inverse = inverse_of_lower(*primals)
    return inverse, -inverse @ tangents[0] @ inverse


def log_det(root: Array) -> Array:
    """log|M| of M = R R' from its triangular factor R."""
    return 2 * jnp.sum(jnp.log(diagonal_of(root)))


def diagonal(x: Array) -> Array:
    """The diagonal matrix of x (d,)."""
    return x * np.eye(len(x), dtype=x.dtype)


def diagonal_of(M: Array) -> Array:
    """The diagonal of a matrix M (d, d), as a sum: backwards as well it is one operation."""
    return jnp.sum(M * np.eye(len(M), dtype=M.dtype), axis=-1)
