"""Parser of a study's formula. It never executes any part of a formula.

A formula comes from somebody else and is read on every hospital's machine, and packages for formulas run parts of them as
Python. This parser accepts names of columns, numbers, ``+ - * :`` and calls from a fixed list, and raises an error for
anything else. The package formulaic, which expands terms such as ``a * b``, gets only names that were made here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

#: Functions that a formula may call, with an example of each.
CALLS = {
    "C": "C(insurance)",
    "bs": "bs(bmi, knots=[20, 25, 30])",
    "poly": "poly(age, 2)",
    "log": "log(income)",
    "I": "I(weight / height ** 2)",
}
_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+)|(?P<name>[^\W\d]\w*)|`(?P<quoted>[^`\n]+)`|(?P<sign>\*\*|[-+*:/()\[\],=~|]))"
)
#: Limits on length, depth, terms and operations; larger formulas could use up all memory.
_LONGEST, _DEEPEST, _MOST_TERMS, _OPERATIONS = 2000, 12, 1000, 50


@dataclass(frozen=True)
class Plain:
    """Column without a transformation: a number, or a category, which ``C`` marks."""

    column: str
    category: bool = field(default=False, compare=False)

    @property
    def label(self) -> str:
        """Name of its effects."""
        return self.column


@dataclass(frozen=True)
class Log:
    """Natural logarithm of a column."""

    column: str

    @property
    def label(self) -> str:
        """Name of its effects."""
        return f"log({self.column})"


@dataclass(frozen=True)
class Powers:
    """Powers of a standardised column, (x - centre) / scale."""

    column: str
    degree: int

    @property
    def label(self) -> str:
        """Name of its effects."""
        return f"poly({self.column})"


@dataclass(frozen=True)
class Spline:
    """B-spline of a column, with public knots."""

    column: str
    knots: tuple[float, ...]
    degree: int

    @property
    def label(self) -> str:
        """Name of its effects."""
        return f"bs({self.column})"


#: A number, a column's name, or an operation with one or two operands.
type Expression = float | str | tuple[str, Expression] | tuple[str, Expression, Expression]


@dataclass(frozen=True)
class Arithmetic:
    """Arithmetic expression of columns and numbers: sums, products, ratios and powers."""

    expression: Expression
    text: str

    @property
    def label(self) -> str:
        """Name of its effects."""
        return f"I({self.text})"


type Factor = Plain | Log | Powers | Spline | Arithmetic
type Term = tuple[Factor, ...]


def columns_of(factor: Factor) -> tuple[str, ...]:
    """Return the names of the columns that a factor uses."""
    if not isinstance(factor, Arithmetic):
        return (factor.column,)
    return tuple(dict.fromkeys(_names(factor.expression)))


def read_formula(text: str, *, target: str, task: str) -> tuple[Term, ...]:
    """Parse a formula into its terms, without the intercept, which every study has.

    Args:
        text: such as ``los ~ age + C(insurance) * emergency``; the target may be left out.
        target: name of the target's column.
        task: name of the tasks' column. ``(... | task)`` may repeat the formula's columns, as all effects vary by task
            (random effects).

    Raises:
        ValueError: the text is not such a formula. No part of it was executed.
        ImportError: formulaic is not installed.
    """
    return _Reader(text, target, task).terms()


def _names(expression: Expression) -> Iterator[str]:
    if isinstance(expression, str):
        yield expression
    elif isinstance(expression, tuple):
        for part in expression[1:]:
            yield from _names(part)


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"[study]: formula: {text}")


def _tokens(text: str) -> list[tuple[str, str]]:
    """Split a formula into tokens, pairs of kind and text."""
    if len(text) > _LONGEST:
        _refuse(f"expected at most {_LONGEST} characters, got {len(text)}")
    tokens, place, text = [], 0, text.rstrip()
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None or match.lastgroup is None:
            _refuse(
                f"expected names of columns, numbers, + - * : and {', '.join(CALLS)}, got {text[place:].lstrip()[:20]!r}"
            )
        kind = "name" if match.lastgroup == "quoted" else match.lastgroup
        tokens.append((kind, match[match.lastgroup]))
        place = match.end()
    return tokens


class _Reader:
    """Recursive-descent parser for one formula."""

    def __init__(self, text: str, target: str, task: str) -> None:
        self.tokens, self.place, self.target, self.task = _tokens(text), 0, target, task
        self.factors: list[Factor] = []

    def terms(self) -> tuple[Term, ...]:
        if ("sign", "~") in self.tokens:
            if self.tokens[:2] != [("name", self.target), ("sign", "~")]:
                _refuse(f"expected the target {self.target!r} alone before ~")
            self.place = 2
        fixed, varying, _ = self._sum(0, at_top=True)
        if self.place < len(self.tokens):
            _refuse(f"expected + - * or : between terms, got {self.tokens[self.place][1]!r}")
        terms = self._expanded(fixed)
        if not terms:
            _refuse("expected at least one column")
        if varying is not None and set(map(frozenset, self._expanded(varying))) != set(map(frozenset, terms)):
            _refuse(
                f"expected the formula's own columns in (... | {self.task}), as all effects vary between tasks, got others; "
                "leave the bracket out"
            )
        return terms

    def _sum(self, depth: int, *, at_top: bool = False) -> tuple[str, str | None, int]:
        """Parse terms up to the end or a closing bracket.

        Returns:
            The terms as text with names made here, those of a bracket ``(... | task)`` or None, and a bound on the number of
            terms: crossing a and b terms gives at most ab + a + b.
        """
        if depth > _DEEPEST:
            _refuse(f"expected brackets up to {_DEEPEST} deep")
        text, varying, operator = "", None, "+"
        added, crossing = 0, 1
        while True:
            kind, word = self._next("a column")
            crossed = operator != "+"
            if at_top and (kind, word) == ("sign", "(") and self._bar_ahead():
                if varying is not None or crossed:
                    _refuse(f"expected one (... | {self.task}) at most, after a +")
                varying = self._random()
                crossed = True
            elif kind == "number":
                if crossed or float(word) != 1:
                    _refuse(f"expected no number but + 1, the intercept, which every study has, got {operator} {word}")
                crossed = True
            else:
                crossed = False
                operand, number = self._operand(kind, word, depth)
                text += (f" {operator} " if text else "") + operand
                if operator in "+-":
                    added, crossing = added + crossing - 1, 1
                crossing *= number + 1
                if added + crossing - 1 > _MOST_TERMS:
                    _refuse(f"expected at most {_MOST_TERMS} terms")
            if self._peek() == ("sign", "/"):
                _refuse("expected + - * or : between terms, got '/'; write a + a:b for a / b")
            if self._peek() not in (("sign", "+"), ("sign", "-"), ("sign", "*"), ("sign", ":")):
                return text, varying, added + crossing - 1
            operator = self._next("")[1]
            if operator != "+" and (crossed or not text):  # the last operand is not a column
                _refuse(f"expected a column before {operator!r}")

    def _operand(self, kind: str, word: str, depth: int) -> tuple[str, int]:
        if (kind, word) == ("sign", "("):
            inner, _, number = self._sum(depth + 1)
            self._expect(")")
            return f"({inner})", number
        if kind != "name":
            _refuse(f"expected a column, got {word!r}")
        factor: Factor = self._call(word) if self._peek() == ("sign", "(") else Plain(self._column(word))
        if factor not in self.factors:
            self.factors.append(factor)
        place = self.factors.index(factor)
        if isinstance(factor, Plain) and factor.category:
            self.factors[place] = factor
        return f"f{place}", 1

    def _bar_ahead(self) -> bool:
        """Return True if the bracket that was just opened contains a bar."""
        depth = 1
        for token in self.tokens[self.place :]:
            depth += (token == ("sign", "(")) - (token == ("sign", ")"))
            if depth == 0:
                return False
            if depth == 1 and token == ("sign", "|"):
                return True
        return False

    def _random(self) -> str:
        inside, _, _ = self._sum(1)
        self._expect("|")
        if self._peek() == ("sign", "|"):
            _refuse("expected one bar: with || effects would be independent, and here they may go together")
        kind, word = self._next("the tasks' column")
        if kind != "name" or word != self.task or self._peek() != ("sign", ")"):
            _refuse(
                f"expected {self.task!r} alone after the bar, as a study has one kind of task; nested groups, such as a/b, "
                "are not read: summarise per group, or take the inner group as the task"
            )
        self._expect(")")
        return inside

    def _call(self, name: str) -> Factor:
        if name not in CALLS:
            _refuse(f"expected one of {', '.join(CALLS)} before a bracket, got {name!r}")
        self._expect("(")
        if name == "I":
            start = self.place
            expression = self._arithmetic(0)
            read = self.tokens[start : self.place]
            if sum(token in _TIGHT for token in read) > _OPERATIONS:
                _refuse(f"I: expected at most {_OPERATIONS} operations")
            text = "".join(word for _, word in read)
            self._expect(")")
            if not any(True for _ in _names(expression)):
                _refuse("I: expected a column in it, got numbers alone")
            return Arithmetic(expression, text)
        kind, word = self._next("a column")
        if kind != "name":
            _refuse(f"{name}: expected a column first, such as {CALLS[name]}, got {word!r}")
        column, arguments = self._column(word), self._arguments(name)
        self._expect(")")
        return _factor(name, column, arguments)

    def _arguments(self, name: str) -> dict[str, float | tuple[float, ...]]:
        """Parse arguments, numbers or lists of numbers by name; the first argument of poly needs no name."""
        arguments: dict[str, float | tuple[float, ...]] = {}
        while self._peek() == ("sign", ","):
            self._next("")
            key = "degree"
            if self._peek()[0] == "name":
                key = self._next("")[1]
                self._expect("=")
            elif name != "poly" or arguments:
                _refuse(f"{name}: expected arguments by name, such as {CALLS[name]}, got {self._peek()[1]!r}")
            if key in arguments:
                _refuse(f"{name}: expected {key!r} once, got it twice")
            arguments[key] = self._value(name)
        return arguments

    def _value(self, name: str) -> float | tuple[float, ...]:
        if self._peek() != ("sign", "["):
            return self._signed(name)
        self._next("")
        numbers = [self._signed(name)]
        while self._peek() == ("sign", ","):
            self._next("")
            numbers.append(self._signed(name))
        self._expect("]")
        return tuple(numbers)

    def _signed(self, name: str) -> float:
        sign = 1.0
        if self._peek() == ("sign", "-"):
            self._next("")
            sign = -1.0
        kind, word = self._next("a number")
        if kind != "number" or not float(word) < 1e100:
            _refuse(f"{name}: expected a number, such as in {CALLS[name]}, got {word!r}")
        return sign * float(word)

    def _arithmetic(self, depth: int, least: int = 0) -> Expression:
        """Parse an expression of operators with at least this precedence: 0 for + and -, 1 for * and /, 2 for **."""
        if depth > _DEEPEST:
            _refuse(f"expected brackets up to {_DEEPEST} deep")
        left = self._atom(depth)
        while (token := self._peek()) in _TIGHT and _TIGHT[token] >= least:
            self._next("")
            if token[1] == "**":
                kind, word = self._next("a power")
                if kind != "number" or word not in _POWERS:
                    _refuse(f"I: expected a power from 2 to 9, got {word!r}")
                if self._peek() == token:  # powers of powers mean different things in different languages
                    _refuse("I: expected brackets round a power of a power")
                left = ("**", left, float(word))
            else:
                left = (token[1], left, self._arithmetic(depth + 1, _TIGHT[token] + 1))
        return left

    def _atom(self, depth: int) -> Expression:
        kind, word = self._next("a column or a number")
        if kind == "number":
            return float(word)
        if kind == "name":
            if self._peek() == ("sign", "("):
                _refuse(f"I: expected sums, products and powers of columns, got a call of {word!r}")
            return self._column(word)
        if word == "-":
            return ("-", 0.0, self._arithmetic(depth + 1, 2))
        if word == "(":
            inner = self._arithmetic(depth + 1)
            self._expect(")")
            return inner
        _refuse(f"I: expected a column or a number, got {word!r}")

    def _column(self, name: str) -> str:
        if name in (self.target, self.task):
            _refuse(f"expected columns that the target is explained by, got {name!r}")
        return name

    def _peek(self) -> tuple[str, str]:
        return self.tokens[self.place] if self.place < len(self.tokens) else ("end", "")

    def _next(self, what: str) -> tuple[str, str]:
        token = self._peek()
        if token[0] == "end":
            _refuse(f"expected {what}, got the end of the formula")
        self.place += 1
        return token

    def _expect(self, sign: str) -> None:
        kind, word = self._peek()
        if (kind, word) != ("sign", sign):
            _refuse(f"expected {sign!r}, got {word!r}" if kind != "end" else f"expected {sign!r}, got the end")
        self.place += 1

    def _expanded(self, text: str) -> tuple[Term, ...]:
        """Expand sums and crossings of the names that were made here into terms."""
        if not text:
            return ()
        try:
            from formulaic.parser import DefaultFormulaParser
        except ImportError:
            raise ImportError("a formula in a study needs formulaic: pip install 'mpmtl-prob[data]'") from None
        terms = DefaultFormulaParser(include_intercept=False).get_terms(text)
        return tuple(tuple(self.factors[int(str(factor.expr)[1:])] for factor in term.factors) for term in terms)


_TIGHT = {("sign", "+"): 0, ("sign", "-"): 0, ("sign", "*"): 1, ("sign", "/"): 1, ("sign", "**"): 2}
_POWERS = tuple("23456789")


def _factor(name: str, column: str, arguments: dict[str, float | tuple[float, ...]]) -> Factor:
    """Return the factor of a call. Raises ValueError for unknown or missing arguments."""
    known = {"bs": ("knots", "degree"), "poly": ("degree",)}.get(name, ())
    if others := [key for key in arguments if key not in known]:
        hint = f"; levels and the reference stand in [columns.{column}]" if name == "C" else ""
        hint = "; name its knots, as places that follow from rows differ between hospitals" if name == "bs" else hint
        _refuse(f"{name}: expected {' and '.join(known) or 'a column alone'}, got {others[0]!r}{hint}")
    if name == "C":
        return Plain(column, category=True)
    if name == "log":
        return Log(column)
    if name == "poly":
        return Powers(column, _degree(name, arguments.get("degree")))
    knots = arguments.get("knots")
    if not isinstance(knots, tuple) or list(knots) != sorted(set(knots)):
        _refuse(f"bs: expected knots in ascending order, such as {CALLS['bs']}, got {knots!r}")
    return Spline(column, knots, _degree(name, arguments.get("degree", 3.0)))


def _degree(name: str, degree: float | Sequence[float] | None) -> int:
    if not isinstance(degree, float) or degree not in (1, 2, 3, 4, 5):
        _refuse(f"{name}: expected a degree from 1 to 5, such as {CALLS[name]}, got {degree!r}")
    return int(degree)
