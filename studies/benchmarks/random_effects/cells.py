"""Simulated data sets of the panel: sixty-three named cells, each a row of cells.csv, and their draws.

The table was committed before any arm had run on it. Its rows:

- fourteen cells of the plainest kind (30 or 100 rows a task, independent features), where targets are stated;
- twenty-seven cells, chosen one after the other, each the one of some thousand random cells that adds most new pairs of
  levels, until every pair of levels of two factors is in some cell (d = 1 has neither d / 2 rows nor correlated features);
- cells named ``few-``, with about as many rows as features: independent (a, z without a common mean) and correlated
  columns (b), effects-coded indicators with a spread of three strong directions (c), and columns as of school records (e).

A cell's data follow from its name and a seed alone. The model of all cells is

    beta_i ~ N(mu, Omega),   y_ij = x_ij'beta_i + sigma_i e_ij,   e_ij ~ N(0, 1),

with a direction of mu drawn uniformly and its length given, and Omega = tau^2 / d I unless the cell says otherwise.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

TABLE = Path(__file__).with_name("cells.csv")
SEEDS, FAST_SEEDS = 20, 3
FEWEST, MOST = 5, 200  #: rows of a task where tasks are unequal: log-uniform between the two
CORRELATION = 0.6  #: of neighbouring columns; of columns k apart, its k-th power
RESIDUAL_SPREAD = 0.8  #: standard deviation of log sigma_i^2 where residual variances are unequal; their mean is 1
POPULATION = 40_000  #: rows behind declared means and second moments of features that have no closed form
ETHNIC = (0.5, 0.12, 0.1, 0.08, 0.05, 0.04, 0.04, 0.03, 0.02, 0.02)  #: shares of groups in school-like records


@dataclass(frozen=True)
class Cell:
    """A row of the table.

    Attributes:
        name: of the cell.
        columns: of the features: "independent", "correlated", "effects" or "school".
        d: features.
        m: tasks.
        rows: of a task: a number, "d/2" (at least 1), "d", or "unequal".
        mean: the length of mu.
        tau: the size of beta_i - mu, the root of the trace of Omega; None: three strong directions, see :func:`truth`.
        residual: "equal" variances of one, or "unequal".
        epsilon: of the release, where a task's data are replaced by any other.
        fast: is in the short run.
    """

    name: str
    columns: str
    d: int
    m: int
    rows: str
    mean: float
    tau: float | None
    residual: str
    epsilon: float
    fast: bool

    @property
    def declared_rows(self) -> int:
        """Declared number of a task's rows, which is the median of its distribution where tasks are unequal."""
        named = {"d/2": max(1, self.d // 2), "d": self.d, "unequal": round(np.sqrt(FEWEST * MOST))}
        return named[self.rows] if self.rows in named else int(self.rows)

    @property
    def row_range(self) -> tuple[int, int]:
        """Public bounds on a task's rows."""
        return (FEWEST, MOST) if self.rows == "unequal" else (self.declared_rows, self.declared_rows)

    @property
    def intercept(self) -> bool:
        """True if the first column is constant."""
        return self.columns in ("effects", "school")


@dataclass(frozen=True)
class Draw:
    """A data set of a cell, with its truth.

    Attributes:
        X: rows of every task, (n_i, d) each.
        y: targets, (n_i,) each.
        beta: true coefficients, (d, m).
        mu: their mean, (d,).
        Omega: their covariance, (d, d).
        sigma2: residual variances, (m,).
    """

    X: list[np.ndarray]
    y: list[np.ndarray]
    beta: np.ndarray
    mu: np.ndarray
    Omega: np.ndarray
    sigma2: np.ndarray


def cells(fast: bool = False, names: Sequence[str] = ()) -> list[Cell]:
    """Read the table.

    Args:
        fast: only the cells of the short run.
        names: only these.

    Raises:
        ValueError: a name that is not in the table.
    """
    with TABLE.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    known = {row["name"]: _cell(row) for row in rows}
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"cells: expected names of {TABLE.name}, got {', '.join(unknown)}; --list prints them all")
    return [cell for cell in known.values() if (cell.fast or not fast) and (not names or cell.name in names)]


def _cell(row: dict[str, str]) -> Cell:
    tau = None if row["tau"] == "three directions" else float(row["tau"])
    numbers: dict[str, Any] = {"d": int(row["d"]), "m": int(row["m"]), "mean": float(row["mean"]), "tau": tau}
    return Cell(**row | numbers | {"epsilon": float(row["epsilon"]), "fast": row["fast"] == "yes"})


def generator(cell: Cell, seed: int) -> np.random.Generator:
    """Return a generator of a cell, a seed and a name."""
    return np.random.default_rng([int(hashlib.sha256(cell.name.encode()).hexdigest()[:12], 16), seed])


def draw(cell: Cell, seed: int) -> Draw:
    """Simulate a data set of a cell."""
    rng = generator(cell, seed)
    mu, Omega = truth(cell, rng)
    beta = mu[:, None] + np.linalg.cholesky(Omega) @ rng.standard_normal((cell.d, cell.m))
    sigma2 = np.ones(cell.m)
    if cell.residual == "unequal":
        sigma2 = np.exp(RESIDUAL_SPREAD * rng.standard_normal(cell.m) - RESIDUAL_SPREAD**2 / 2)
    counts = np.full(cell.m, cell.declared_rows)
    if cell.rows == "unequal":
        counts = np.round(np.exp(rng.uniform(np.log(FEWEST), np.log(MOST), cell.m))).astype(int)
    X = features(cell, counts, rng)
    noise = [np.sqrt(s2) * rng.standard_normal(len(x)) for x, s2 in zip(X, sigma2, strict=True)]
    y = [x @ b + e for x, b, e in zip(X, beta.T, noise, strict=True)]
    return Draw(X, y, beta, mu, Omega, sigma2)


def truth(cell: Cell, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw the mean mu (d,) and the covariance Omega (d, d) of a data set's coefficients.

    Three strong directions: .4 along each of them, uniformly drawn, and .02 in all.
    """
    direction = rng.standard_normal(cell.d)
    mu = cell.mean * direction / np.linalg.norm(direction)
    if cell.tau is not None:
        return mu, cell.tau**2 / cell.d * np.eye(cell.d)
    Q = np.linalg.qr(rng.standard_normal((cell.d, 3)))[0]
    return mu, 0.4 * Q @ Q.T + 0.02 * np.eye(cell.d)


def features(cell: Cell, counts: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    """Rows of every task, in declared units: school-like columns are centred and scaled, the others are as they come."""
    X = [_records(cell, int(n), rng) for n in counts]
    if cell.columns == "school":
        centre, scale = _declared()
        X = [(x - centre) / scale for x in X]
    return X


def _records(cell: Cell, n: int, rng: np.random.Generator) -> np.ndarray:
    if cell.columns == "school":
        return _school(n, rng)
    if cell.columns == "effects":
        two = rng.choice([-1.0, 1.0], (n, 5))
        three = [_effects(rng.integers(0, 3, n)) for _ in range(4)]
        return np.column_stack([np.ones(n), two, *three])
    rows = rng.standard_normal((n, cell.d))
    return rows @ np.linalg.cholesky(second_moment(cell)).T if cell.columns == "correlated" else rows


def _effects(level: np.ndarray) -> np.ndarray:
    """Return the effects coding of three levels: two columns, both -1 at the last level."""
    last = (level == 2).astype(float)
    return np.column_stack([(level == 0) - last, (level == 1) - last])


def _school(n: int, rng: np.random.Generator) -> np.ndarray:
    """Draw records like pupils of one school: an intercept and 27 columns, mostly indicators, 11 constant in a school."""
    one = lambda level, k: (level[:, None] == np.arange(1, k)).astype(float)
    groups = rng.dirichlet(8 * np.array(ETHNIC))
    year, band = one(rng.integers(0, 3, n), 3), one(rng.choice(3, n, p=[0.25, 0.5, 0.25]), 3)
    female, group = rng.integers(0, 2, (n, 1)).astype(float), one(rng.choice(10, n, p=groups), 10)
    shares = 0.4 * rng.standard_normal(2) + 0.5
    kinds = [one(rng.integers(0, k, 1), k)[0] for k in (4, 4, 6)]
    of_school = np.tile(np.concatenate([shares, *kinds]), (n, 1))
    return np.column_stack([np.ones(n), year, female, band, group, of_school])


@cache
def _population() -> np.ndarray:
    """Draw records of many schools, from which centres and scales are declared."""
    rng = np.random.default_rng(2026)
    return np.concatenate([_school(20, rng) for _ in range(POPULATION // 20)])


@cache
def _declared() -> tuple[np.ndarray, np.ndarray]:
    """Return centres and scales of school-like columns, which leave the intercept as it is."""
    centre = _population().mean(axis=0)
    centre[0] = 0.0
    return centre, np.sqrt(((_population() - centre) ** 2).mean(axis=0))


@cache
def second_moment(cell: Cell) -> np.ndarray:
    """Return E x x' (d, d) of a row in declared units, the metric of coefficients' errors."""
    if cell.columns == "independent":
        return np.eye(cell.d)
    if cell.columns == "correlated":
        return CORRELATION ** np.abs(np.subtract.outer(np.arange(cell.d), np.arange(cell.d)))
    if cell.columns == "effects":  # independent attributes of mean zero; the two columns of one attribute share 1 / 3
        A = np.diag(np.r_[np.ones(6), np.full(8, 2 / 3)])
        for first in range(6, 14, 2):
            A[first, first + 1] = A[first + 1, first] = 1 / 3
        return A
    centre, scale = _declared()
    rows = (_population() - centre) / scale
    return rows.T @ rows / len(rows)


def declared_square(cell: Cell) -> float:
    """E y^2, as somebody who knows the field would declare it: the cell's own, for a mean in an average direction."""
    A = second_moment(cell)
    spread = np.trace(A) / cell.d
    explained = cell.tau**2 * spread if cell.tau is not None else (3 * 0.4 + 0.02 * cell.d) * spread
    return float(cell.mean**2 * spread + explained + 1)


def error(cell: Cell, coefficients: np.ndarray, beta: np.ndarray) -> float:
    """Return the mean squared error of test rows' means: (b - beta)'A(b - beta), A = E x x', averaged over tasks."""
    off = coefficients - beta
    return float(np.einsum("im,ij,jm->m", off, second_moment(cell), off).mean())
