"""Design matrix of a study: the model's columns, computed from a table's by the study's file alone, so alike at every site.

An interaction is the product of its parts less their centres. So the main effects, and the intercept, are effects where the
other columns are at their centres, and the columns are less correlated. Centres and scales of a curve, or of a function of
several columns, follow from the declared ones: they are computed over public points around the declared centres.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob.schema.columns import INDICATOR, Category, Column, Number
from mpmtl_prob.schema.formula import (
    Arithmetic,
    Expression,
    Factor,
    Log,
    Plain,
    Powers,
    Spline,
    Term,
    columns_of,
)

#: Points around a centre, in units of the scale: nine equally likely quantiles of a normal distribution.
_PLACES = (-1.5932, -0.9674, -0.5895, -0.2822, 0.0, 0.2822, 0.5895, 0.9674, 1.5932)
#: Least scale of a spline column, for those that are flat at all these points.
_FLAT = 0.05
#: Largest number of columns in one expression, as the number of points grows exponentially with it.
_MOST_COLUMNS = 3
#: Largest number of columns of the model; the noise would make many fewer useless.
_MOST_BUILT = 1000


class Built(NamedTuple):
    """Column of the design: its name, and a public centre and scale."""

    name: str
    centre: float
    scale: float


class Design:
    """Design of a formula: its columns, and the rows of the design matrix.

    Args:
        columns: the table's columns, by name.
        terms: terms of the formula; None for all columns, without interactions.

    Raises:
        ValueError: terms with unknown columns, or that cannot be computed.
    """

    def __init__(self, columns: Mapping[str, Column], terms: Sequence[Term] | None) -> None:
        self.columns = columns
        self.terms = tuple((Plain(name),) for name in columns) if terms is None else tuple(terms)
        self._check()
        self._check_number()
        self._parts = {factor: self._described(factor) for term in self.terms for factor in term}
        # Columns with an effect of missing cells.
        self.marked = [name for name in self.used if columns[name].missing == INDICATOR]
        self.built = tuple(itertools.chain(*map(self._of_term, self.terms), map(self._of_absence, self.marked)))
        names = [one.name for one in self.built]
        if twice := [name for name, times in Counter(names).items() if times > 1]:
            raise ValueError(f"[study]: formula: expected different columns, got {twice[0]!r} twice")

    @property
    def used(self) -> tuple[str, ...]:
        """Names of the table's columns that the design uses, in the order of the file."""
        used = {name for term in self.terms for factor in term for name in columns_of(factor)}
        return tuple(name for name in self.columns if name in used)

    def rows(self, values: Mapping[str, FloatArray], absent: Mapping[str, FloatArray], number: int) -> FloatArray:
        """Compute the design matrix, (n, k).

        Args:
            values: for every used column of the table, (n,): numbers, or positions of levels.
            absent: 1 for a missing cell, (n,), for columns whose missing cells have an effect.
            number: n.
        """
        parts = {factor: self._values(factor, values) for factor in self._parts}
        out = []
        for term in self.terms:
            if len(term) == 1:
                out += list(parts[term[0]])
                continue
            centred = [
                [column - one.centre for column, one in zip(parts[factor], self._parts[factor], strict=True)]
                for factor in term
            ]
            for combination in itertools.product(*centred):
                product = np.ones(number)
                for column in combination:
                    product = product * column
                out.append(product)
        out += [absent[name] for name in self.marked]
        return np.column_stack(out) if out else np.zeros((number, 0))

    def _check(self) -> None:
        """Raise ValueError for terms that do not fit the columns."""
        singles = {term[0] for term in self.terms if len(term) == 1}
        for term in self.terms:
            for factor in term:
                self._check_factor(factor)
                if len(term) > 1 and factor not in singles:
                    words = ":".join(part.label for part in term)
                    raise ValueError(
                        f"[study]: formula: {words}: expected {factor.label} beside it too; write "
                        f"{' * '.join(part.label for part in term)}"
                    )

    def _check_number(self) -> None:
        """Raise ValueError for too many columns, before they are computed."""
        sizes = {factor: self._size(factor) for term in self.terms for factor in term}
        if (number := sum(math.prod(sizes[factor] for factor in term) for term in self.terms)) > _MOST_BUILT:
            raise ValueError(
                f"[columns]: expected at most {_MOST_BUILT} columns of the model, got {number}; leave some out, or count "
                "levels together"
            )

    def _size(self, factor: Factor) -> int:
        """Return the number of columns of a factor."""
        if isinstance(factor, Powers):
            return factor.degree
        if isinstance(factor, Spline):
            return len(factor.knots) + factor.degree
        column = self.columns[factor.column] if isinstance(factor, Plain) else None
        return len(column.levels) - 1 if isinstance(column, Category) else 1

    def _check_factor(self, factor: Factor) -> None:
        names = columns_of(factor)
        for name in names:
            if name not in self.columns:
                raise ValueError(
                    f"[study]: formula: expected columns that [columns] declares, {', '.join(self.columns)}, got {name!r}"
                )
            if isinstance(factor, Plain) and factor.category and not isinstance(self.columns[name], Category):
                raise ValueError(
                    f"[study]: formula: C({name}): expected a category, got a column of numbers; take C away, or declare its "
                    f"levels in [columns.{name}]"
                )
            if not isinstance(factor, Plain) and isinstance(self.columns[name], Category):
                raise ValueError(f"[study]: formula: {factor.label}: expected a column of numbers, got a category")
        if len(names) > _MOST_COLUMNS:
            raise ValueError(f"[study]: formula: {factor.label}: expected at most {_MOST_COLUMNS} columns in one I()")
        if isinstance(factor, Log | Spline):
            column = self.columns[names[0]]
            bounds = column.range if isinstance(column, Number) else None
            if bounds is None:
                raise ValueError(
                    f"[columns.{names[0]}]: range: expected it for {factor.label}, such as [10, 60], got none; add what "
                    "values are possible"
                )
            if isinstance(factor, Log) and not bounds[0] > 0:
                raise ValueError(
                    f"[columns.{names[0]}]: range: expected numbers above 0 for {factor.label}, got {list(bounds)}"
                )
            if isinstance(factor, Spline) and not all(bounds[0] < knot < bounds[1] for knot in factor.knots):
                raise ValueError(
                    f"[study]: formula: {factor.label}: expected knots inside the range {list(bounds)} of the column, got "
                    f"{list(factor.knots)}"
                )

    def _of_term(self, term: Term) -> Iterator[Built]:
        if len(term) == 1:
            yield from self._parts[term[0]]
            return
        for combination in itertools.product(*(self._parts[factor] for factor in term)):
            scale = math.prod(one.scale for one in combination)
            yield Built(":".join(one.name for one in combination), 0.0, _short(scale))

    def _of_absence(self, name: str) -> Built:
        share = self.columns[name].missing_share
        return Built(f"{name} missing", share, _of_share(share))

    def _described(self, factor: Factor) -> tuple[Built, ...]:
        """Return the design's columns of one factor."""
        if isinstance(factor, Plain):
            column = self.columns[factor.column]
            if isinstance(column, Category):
                shares = [(level, column.share(level)) for level in column.others]
                return tuple(Built(f"{column.name}[{level}]", share, _of_share(share)) for level, share in shares)
            return (Built(column.name, column.centre, column.scale),)
        if isinstance(factor, Powers):  # mean and sd of powers of a normal variable
            moments = [1.0 if k == 0 else 0.0 if k % 2 else math.prod(range(1, k, 2)) for k in range(11)]
            pairs = [(moments[k], math.sqrt(moments[2 * k] - moments[k] ** 2)) for k in range(1, factor.degree + 1)]
        else:
            pairs = [_moments(values, factor) for values in self._values(factor, self._places(columns_of(factor)))]
        if len(pairs) == 1:
            return (Built(factor.label, *pairs[0]),)
        return tuple(Built(f"{factor.label}[{k}]", *pair) for k, pair in enumerate(pairs, 1))

    def _places(self, names: Sequence[str]) -> dict[str, FloatArray]:
        """Return public points for columns, in all combinations."""
        points = []
        for name in names:
            column = self.columns[name]
            assert isinstance(column, Number)
            low, high = (-math.inf, math.inf) if column.range is None else column.range
            points.append([min(max(column.centre + z * column.scale, low), high) for z in _PLACES])
        every = np.array(list(itertools.product(*points)))
        return {name: every[:, j] for j, name in enumerate(names)}

    def _values(self, factor: Factor, values: Mapping[str, FloatArray]) -> tuple[FloatArray, ...]:
        """Compute the columns of one factor, each (n,)."""
        with np.errstate(all="ignore"):  # a warning would reveal one row
            if isinstance(factor, Arithmetic):
                some = next(iter(values.values()))
                return (np.zeros(len(some)) + _computed(factor.expression, values),)
            x, column = values[factor.column], self.columns[factor.column]
            if isinstance(factor, Plain):
                if isinstance(column, Category):
                    return tuple((x == column.levels.index(level)).astype(float) for level in column.others)
                return (x,)
            assert isinstance(column, Number)
            if isinstance(factor, Powers):
                z = (x - column.centre) / column.scale
                return tuple(itertools.accumulate([z] * factor.degree, np.multiply))
            if isinstance(factor, Log):
                return (np.log(x),)
            return _spline(x, factor, column)


def _spline(x: FloatArray, factor: Spline, column: Number) -> tuple[FloatArray, ...]:
    """Compute the B-splines of a column, without the first one, as the intercept takes its place."""
    from formulaic.transforms import basis_spline

    assert column.range is not None
    low, high = column.range
    basis = basis_spline(
        np.clip(x, low, high),
        knots=list(factor.knots),
        degree=factor.degree,
        lower_bound=low,
        upper_bound=high,
        _state={},
    )
    return tuple(np.asarray(basis[k], dtype=np.float64) for k in sorted(basis))


def _computed(expression: Expression, values: Mapping[str, FloatArray]) -> FloatArray:
    if isinstance(expression, float):
        return np.array(expression)
    if isinstance(expression, str):
        return values[expression]
    operator, left, right = expression[0], *(_computed(part, values) for part in expression[1:])
    if operator == "+":
        return left + right
    if operator == "-":
        return left - right
    if operator == "*":
        return left * right
    if operator == "/":
        return left / right
    return np.power(left, right)


def _moments(values: FloatArray, factor: Factor) -> tuple[float, float]:
    """Return mean and standard deviation of public values, the same in every bit on every machine."""
    numbers = [float(value) for value in values]
    if not all(map(math.isfinite, numbers)):
        raise ValueError(
            f"[study]: formula: {factor.label}: expected finite numbers round the centres of its columns, got others; give "
            "the columns a range in which it can be computed"
        )
    mean = math.fsum(numbers) / len(numbers)
    variance = math.fsum((value - mean) ** 2 for value in numbers) / len(numbers)
    scale = math.sqrt(variance)
    if abs(mean) < 1e-9 * scale:  # zero up to rounding
        mean = 0.0
    return _short(mean), max(_short(scale), _FLAT if isinstance(factor, Spline) else 0.0) or 1.0


def _of_share(share: float) -> float:
    return _short(math.sqrt(share * (1 - share)))


def _short(value: float) -> float:
    """Round to six digits, as libraries differ in the last bits of roots and logarithms."""
    return float(f"{value:.6g}")
