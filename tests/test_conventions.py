"""One argument, one meaning, one default, throughout the public interface: CONTRIBUTING.md has the table, this reads it."""

import dataclasses
import inspect
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mpmtl_prob as mp
from mpmtl_prob import federated, scikit
from mpmtl_prob.privacy import audit

PAGE = Path(__file__).parents[1] / "CONTRIBUTING.md"
threats = mp.threat_models
PACKAGES = (mp, mp.desk, mp.schema, mp.privacy, audit, mp.releases, mp.inference, mp.estimators, mp.evaluation, mp.models,
            mp.plots, federated, mp.adaptation, threats, threats.audits, threats.odds, threats.posterior)  # fmt: skip


def public() -> Iterator[tuple[str, Any]]:
    """Functions, estimators (with ``fit``), the specification of a release, and methods, by the name that users call them."""
    for package in PACKAGES:
        home = package.__name__.removeprefix("mpmtl_prob").removeprefix(".")
        names = getattr(package, "__all__", None) or [k for k, v in vars(package).items() if inspect.isfunction(v)]
        for name in names:
            thing, called = getattr(package, name), f"{home}.{name}".removeprefix(".")
            if name.startswith("_") or (package is not mp and getattr(mp, name, None) is thing):
                continue
            if inspect.isfunction(thing) or (
                inspect.isclass(thing) and (hasattr(thing, "fit") or thing is mp.ReleaseSpec)
            ):
                yield called, thing
            if inspect.isclass(thing):
                for method, kind in written_for(thing).items():
                    function = getattr(kind, "__func__", kind)
                    if inspect.isfunction(function) and not method.startswith("_"):
                        yield f"{called}.{method}", function


def written_for(thing: type) -> dict[str, Any]:
    """Return the attributes that are a class's own, or of a base that users cannot name: posteriors have some in common."""
    named = {each for package in PACKAGES for each in vars(package).values() if inspect.isclass(each)}
    bases = [base for base in thing.__mro__[1:] if dataclasses.is_dataclass(base) and base not in named]
    return {name: kind for base in (*reversed(bases), thing) for name, kind in vars(base).items()}


def defaults() -> dict[str, dict[str, Any]]:
    """By argument and callable, the default, where there is one. What a class inherits counts once."""
    by_argument: dict[str, dict[str, Any]] = defaultdict(dict)
    for called, thing in public():
        inherited = inspect.signature(thing.__base__).parameters if inspect.isclass(thing) else {}
        for name, argument in inspect.signature(thing).parameters.items():
            new = name not in inherited or written(inherited[name].default) != written(argument.default)
            if argument.default is not argument.empty and new:
                by_argument[name][called] = argument.default
    return by_argument


def table() -> dict[str, tuple[str, dict[str, str]]]:
    """By argument, the default, and the callables that have another; as they are written on the page."""
    text = PAGE.read_text(encoding="utf-8").split("## Conventions of the public interface")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \|[^|]*\|([^|]*)\|([^|]*)\|$", text, flags=re.MULTILINE)
    return {
        name: ("".join(re.findall(r"`([^`]*)`", default)[:1]), dict(re.findall(r"`([\w.]+)`: `([^`]*)`", others)))
        for name, default, others in rows
    }


def estimators() -> Iterator[tuple[str, type]]:
    """Return classes with ``fit``, by the name that users call them."""
    for called, thing in public():
        if inspect.isclass(thing) and hasattr(thing, "fit"):
            yield called, thing
    yield "scikit.MultiTaskRegressor", scikit.MultiTaskRegressor
    yield "scikit.MultiTaskClassifier", scikit.MultiTaskClassifier


def test_an_estimator_is_of_one_of_two_kinds():
    """Estimators of tasks are frozen, with results; those of tables return themselves, as scikit-learn needs it."""
    kinds = defaultdict(set)
    for called, thing in estimators():
        frozen = dataclasses.is_dataclass(thing) and thing.__dataclass_params__.frozen
        returns = inspect.signature(thing.fit).return_annotation
        kinds[frozen, returns == "Self"].add(called)
        assert frozen or hasattr(thing, "get_params"), called
    assert set(kinds) == {(True, False), (False, True)}
    assert {called.split(".")[0] for called in kinds[False, True]} == {"adaptation", "scikit"}


def written(default: Any) -> str:
    """Write a default as the page does: a value made anew by every call is "new"."""
    return "new" if "factory" in repr(default) else repr(default).replace("'", '"')


def test_an_argument_has_the_default_that_the_table_says():
    by_argument, conventions = defaults(), table()
    assert len(conventions) > 20
    for name, (default, others) in conventions.items():
        differ = {called: written(value) for called, value in by_argument[name].items() if written(value) != default}
        assert differ == others, name
        assert by_argument[name], f"{name}: an argument that nothing has"


def test_an_argument_of_more_than_one_default_is_in_the_table():
    drifting = {name for name, values in defaults().items() if len(set(map(written, values.values()))) > 1}
    assert drifting <= table().keys()


def test_a_seed_is_a_whole_number():
    for called, thing in public():
        argument = inspect.signature(thing).parameters.get("seed")
        assert argument is None or argument.annotation in (int, "int"), called
