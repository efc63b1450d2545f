"""The room keeps the conventions of arguments that CONTRIBUTING.md has a table of."""

import inspect

from test_conventions import table, written

import mpmtl_prob as mp

ROOM = mp.adaptation


def callables():
    for name in ROOM.__all__:
        thing = getattr(ROOM, name)
        members = vars(thing).items() if inspect.ismodule(thing) else [(name, thing)]
        for called, each in members:
            home = getattr(each, "__module__", "")
            if not called.startswith("_") and home.startswith("mpmtl_prob.adaptation") and callable(each):
                yield called, each


def test_arguments_of_the_table_have_its_defaults():
    seen, conventions = set(), table()
    for called, each in callables():
        for name, argument in inspect.signature(each).parameters.items():
            if name in conventions and argument.default is not argument.empty:
                seen.add(name)
                default, others = conventions[name]
                assert written(argument.default) in {default, *others.values()}, (called, name)
    assert {"epsilon", "delta", "seed", "ledger", "unsafe_seed", "draws", "chains", "warmup", "progress_bar"} <= seen


def test_public_names_are_described_and_estimators_agree():
    """Every public name has a description, and estimators have the same methods."""
    for name in ROOM.__all__:
        assert getattr(ROOM, name).__doc__, name
    estimators = [each for _, each in callables() if inspect.isclass(each) and hasattr(each, "fit")]
    assert len(estimators) == 11
    for kind in estimators:
        assert {"get_params", "set_params", "predict"} <= set(dir(kind))
        assert repr(kind()).startswith(kind.__name__ + "(")
        assert kind(**kind().get_params()).get_params() == kind().get_params()
