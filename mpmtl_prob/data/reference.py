"""Reference values of a study: public units in which effects of different tasks can share a mean."""

from __future__ import annotations

import json
import os
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mpmtl_prob._util.checks import one_of, whole
from mpmtl_prob._util.files import each_once
from mpmtl_prob.data.cells import check_spelling, file_name, label_text
from mpmtl_prob.data.contrasts import NAME
from mpmtl_prob.data.matching import match_names
from mpmtl_prob.data.outcomes import OUTCOMES, link
from mpmtl_prob.data.units import Units

#: Example of a file of reference values.
EXAMPLE_FILE = '{"features": {"age": [60, 15]}, "target": [7, 5], "effects": {"age": 0.05}}'
_KEYS = ("features", "target", "effects", "outcome", "baseline")
_WHAT = "a centre and a positive scale, such as (60.0, 15.0)"


@dataclass(frozen=True, init=False)
class Reference:
    """Reference values: a centre and a scale of every column and of the target, declared before anybody looks at a row.

    A hospital's effects can be averaged with those of others only in common units. Reference values declare these units:
    "age 60 plus or minus 15 years, stay 7 plus or minus 5 days", from earlier studies or common knowledge. They are public,
    are part of the release, and cost no budget. A bad guess costs accuracy, never privacy.

    Attributes:
        features: centre and scale of every column, by name.
        target: centre and scale of the target, default (0, 1). For other outcomes than numbers these are the centre and scale
            of the linear predictor, which follow from the baseline.
        effects: guesses of average effects from earlier studies, by name, each the change of the target, or of its linear
            predictor, for one unit of the feature, in the units of the table. Messages contain deviations from these, which
            are shorter, so that the release is more accurate. Columns without a guess have 0.
        outcome: kind of target: "number"; "binary" for events, with effects that are log odds ratios; or "count" for numbers
            of events, with effects that are log rate ratios.
        baseline: for "binary" the probability, for "count" the rate per unit of exposure, where every column is at its
            centre. It is a guess, which need not be close. Default for "binary" 0.5. Not allowed for a number.
        covariates: centre and scale of public numbers of every task, such as a hospital's size, by name, with which effects
            may differ. Their values are given to :func:`mpmtl_prob.release` as ``covariates``.

    Raises:
        ValueError: no columns, a scale that is not positive, a number that is not finite, a guess for an unknown column, a
            column named "intercept" (its reference is the target's centre or the baseline), an unknown outcome, an impossible
            baseline, or a covariate with the name of a column.

    >>> reference = mp.Reference({"age": (60, 15), "male": (0.5, 0.5)}, target=(7, 5), effects={"age": 0.05})
    >>> reference
    Reference(target 7 +- 5; age 60 +- 15, effect 0.05; male 0.5 +- 0.5)
    >>> mp.Reference({"age": (60, 15)}, outcome="binary", baseline=0.1)
    Reference(binary, baseline 0.1; age 60 +- 15)
    """

    features: Mapping[Hashable, tuple[float, float]]
    target: tuple[float, float] = (0.0, 1.0)
    effects: Mapping[Hashable, float] = field(default_factory=dict)
    outcome: str = "number"
    baseline: float | None = None
    covariates: Mapping[Hashable, tuple[float, float]] = field(default_factory=dict)

    def __init__(
        self,
        features: Mapping[Hashable, tuple[float, float]],
        target: tuple[float, float] | None = None,
        effects: Mapping[Hashable, float] | None = None,
        *,
        outcome: str = "number",
        baseline: float | None = None,
        covariates: Mapping[Hashable, tuple[float, float]] | None = None,
    ) -> None:
        if not isinstance(features, Mapping) or not features:
            raise ValueError(
                f"features: expected a mapping from every column to {_WHAT}, got {type(features).__name__}; of columns that "
                "have common units already, Reference.standard(columns)"
            )
        if NAME in features:
            raise ValueError(
                f"features: expected none named {NAME!r}, whose reference is the target's centre, got {list(features)}"
            )
        check_spelling("features", "feature", tuple(features))
        known = {file_name(name): _pair(f"features: {name!r}", value) for name, value in features.items()}
        if effects is not None and not isinstance(effects, Mapping):
            raise ValueError(f"effects: expected a mapping from columns to numbers, got {type(effects).__name__}")
        one_of("outcome", outcome, OUTCOMES)
        if outcome == "number":
            if baseline is not None:
                raise ValueError(f"baseline: expected none of a number, whose target has a centre, got {baseline!r}")
            target = (0.0, 1.0) if target is None else target
        elif target is not None:
            raise ValueError(
                f"target: expected none with outcome={outcome!r}, whose baseline determines it, got {target!r}"
            )
        else:
            if baseline is None and outcome == "count":
                raise ValueError("baseline: expected the rate for one unit of exposure with outcome='count', got none")
            baseline = _number("baseline", 0.5 if baseline is None else baseline)
            target = (link("baseline", outcome, baseline), 1.0)
        guesses = {} if effects is None else {file_name(name): value for name, value in effects.items()}
        if others := [name for name in guesses if name not in known]:
            raise ValueError(f"effects: expected names of the columns {list(known)}, got {others}")
        for name, value in guesses.items():
            guesses[name] = _number(f"effects: {name!r}", value)
            if not np.isfinite(guesses[name] * (known[name][1] / _pair("target", target)[1])):
                raise ValueError(
                    f"effects: {name!r}: expected one of an ordinary size in units of the scales, got {value!r}"
                )
        object.__setattr__(self, "covariates", _of_covariates(covariates, (*known, NAME)))
        object.__setattr__(self, "features", known)
        object.__setattr__(self, "target", _pair("target", target))
        object.__setattr__(self, "effects", guesses)
        object.__setattr__(self, "outcome", outcome)
        object.__setattr__(self, "baseline", baseline)

    @classmethod
    def standard(
        cls, features: Sequence[Hashable] | int, *, outcome: str = "number", baseline: float | None = None
    ) -> Reference:
        """Return reference values for columns and a target that already have common units: centre 0, scale 1.

        Args:
            features: names of the columns, or their number.
            outcome: kind of target, as in the class.
            baseline: baseline of the outcome, as in the class.
        """
        if isinstance(features, str | bool):
            raise ValueError(f"features: expected names of columns, or how many there are, got {features!r}")
        names = range(whole("features", features)) if isinstance(features, int | np.integer) else features
        return cls(dict.fromkeys(names, (0.0, 1.0)), outcome=outcome, baseline=baseline)

    def units(self, columns: Sequence[Hashable]) -> Units:
        """Return the units of these columns, in this order; "intercept" has centre 0 and scale 1.

        Raises:
            ValueError: a column that was not declared, or a declared one that is not among the columns.
        """
        columns, known = [file_name(name) for name in columns], list(self.features)
        named = [name for name in columns if name != NAME]
        undeclared, unused = (
            [name for name in here if label_text(name) not in set(map(label_text, there))]
            for here, there in ((named, known), (known, named))
        )
        if undeclared or unused:
            got = [f"none of {_listed(undeclared)}"] if undeclared else []
            got += [f"values of {_listed(unused)}"] if unused else []
            raise ValueError(
                "reference: expected values of the columns of the data, and of no others, got "
                f"{' and '.join(got)}; declare every column by its name in the data"
            )
        places = match_names("reference", named, known, of="the reference", advice="declare every column once")
        pairs = {name: self.features[known[place]] for name, place in zip(named, places, strict=True)}
        guess = {name: self.effects.get(known[place], 0.0) for name, place in zip(named, places, strict=True)}
        centre, scale = np.array([pairs.get(name, (0.0, 1.0)) for name in columns]).T
        target_scale = self.target[1]
        effects = np.array([guess.get(name, 0.0) for name in columns]) * scale / target_scale
        return Units(centre, scale, *self.target, effects, intercept=NAME in columns)

    def to_dict(self) -> dict[str, Any]:
        """Return the reference values in types that JSON can hold."""
        entries: dict[str, Any] = {
            "features": [[name, *pair] for name, pair in self.features.items()],
            "target": list(self.target),
            "effects": [[name, value] for name, value in self.effects.items()],
        }
        if self.outcome != "number":
            entries |= {"outcome": self.outcome, "baseline": self.baseline}
        if self.covariates:
            entries["covariates"] = [[name, *pair] for name, pair in self.covariates.items()]
        return entries

    @classmethod
    def from_dict(cls, meta: Mapping[str, Any]) -> Reference:
        """Restore reference values from what :meth:`to_dict` returns. Raises ValueError, KeyError or TypeError otherwise."""
        features = {name: (centre, scale) for name, centre, scale in meta["features"]}
        effects = dict(meta["effects"])
        covariates = {name: (centre, scale) for name, centre, scale in meta.get("covariates", ())}
        if "outcome" in meta:
            of_outcome = {"outcome": meta["outcome"], "baseline": meta["baseline"]}
            return cls(features, effects=effects, covariates=covariates, **of_outcome)
        return cls(features, tuple(meta["target"]), effects, covariates=covariates)

    def __hash__(self) -> int:
        by_name = [frozenset(mapping.items()) for mapping in (self.features, self.effects, self.covariates)]
        return hash((*by_name, self.target, self.outcome, self.baseline))

    def __repr__(self) -> str:
        guess = {name: f", effect {value:g}" for name, value in self.effects.items()}
        columns = [f"{name} {c:g} +- {s:g}{guess.get(name, '')}" for name, (c, s) in self.features.items()]
        target = f"target {self.target[0]:g} +- {self.target[1]:g}"
        first = target if self.outcome == "number" else f"{self.outcome}, baseline {self.baseline:g}"
        of_tasks = [f"of tasks {name} {c:g} +- {s:g}" for name, (c, s) in self.covariates.items()]
        return f"Reference({first}; {'; '.join(columns + of_tasks)})"


def _of_covariates(given: Any, taken: Sequence[Hashable]) -> dict[Hashable, tuple[float, float]]:
    """Return centres and scales of covariates by name. Raises ValueError for another type or a name that is taken."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ValueError(f"covariates: expected a mapping from every covariate to {_WHAT}, got {type(given).__name__}")
    check_spelling("covariates", "covariate", (*taken, *given))
    known = {file_name(name): _pair(f"covariates: {name!r}", value) for name, value in given.items()}
    if twice := [name for name in known if name in taken]:
        raise ValueError(
            f"covariates: expected names that no column has, got {twice[0]!r}; a column varies within tasks, a covariate "
            "between them"
        )
    return known


def _listed(names: Sequence[Hashable]) -> str:
    return ", ".join(map(repr, names[:5])) + (f" and {len(names) - 5} more" if names[5:] else "")


def read_reference(path: str | os.PathLike[str], name: str) -> Reference:
    """Read reference values from a JSON file such as ``EXAMPLE_FILE``.

    Args:
        path: path of the file.
        name: name of the argument, for errors.

        Raises:
            ValueError: a file that holds something else; the error names the key.
            FileNotFoundError: the file does not exist.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
        entries = json.loads(text, object_pairs_hook=each_once)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{name}: {str(path)!r} is no JSON: {error}") from None
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    if not isinstance(entries, dict):
        raise ValueError(f"{name}: expected an object such as {EXAMPLE_FILE}, got {type(entries).__name__}")
    if others := [key for key in entries if key not in _KEYS]:
        raise ValueError(f"{name}: {others[0]!r}: expected the keys {', '.join(_KEYS)}, got this one")
    needed = ("features",) if entries.get("outcome", "number") != "number" else ("features", "target")
    if missing := [key for key in needed if key not in entries]:
        raise ValueError(f"{name}: {missing[0]!r}: expected it, such as {EXAMPLE_FILE}, got none")
    if not isinstance(entries.get("effects", {}), dict):
        raise ValueError(f"{name}: 'effects': expected numbers by column, got {entries['effects']!r}")
    try:
        of_outcome = {key: entries[key] for key in ("outcome", "baseline") if key in entries}
        return Reference(entries["features"], entries.get("target"), entries.get("effects"), **of_outcome)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not -1e300 < value < 1e300:
        raise ValueError(f"{name}: expected a finite number, got {value!r}")
    return float(value)


def _pair(name: str, value: object) -> tuple[float, float]:
    if isinstance(value, str) or not isinstance(value, Sequence | np.ndarray) or np.shape(value) != (2,):
        raise ValueError(f"{name}: expected {_WHAT}, got {value!r}")
    centre, scale = (_number(name, part) for part in value)
    if not 1e-100 < scale < 1e100:
        raise ValueError(f"{name}: expected {_WHAT}, got the scale {scale!r}")
    return centre, scale
