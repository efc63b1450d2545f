"""Reference values: what they refuse, and how rows and effects go to their units and back."""

import numpy as np
import pytest

import mpmtl_prob as mp
from mpmtl_prob import Reference
from mpmtl_prob.data.units import own_units

REFERENCE = Reference({"age": (60, 15), "male": (0.5, 0.5)}, target=(7, 5), effects={"age": 0.05})


def test_rows_and_effects_predict_the_same_in_either_units():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(60, 15, 8), rng.integers(0, 2, 8), np.ones(8)])
    units = REFERENCE.units(["age", "male", "intercept"])
    effects = rng.standard_normal(3)
    here = units.target_centre + units.target_scale * (units.rows(X) @ effects)
    assert np.allclose(here, X @ units.to_table(effects))


def test_without_an_intercept_the_centres_are_an_offset():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(60, 15, 8), rng.integers(0, 2, 8)])
    units = REFERENCE.units(["age", "male"])
    effects = rng.standard_normal(2)
    here = units.target_centre + units.target_scale * (units.rows(X) @ effects)
    assert np.allclose(here, X @ units.to_table(effects) + units.offset(effects))


def test_a_guess_is_in_the_tables_units():
    assert np.allclose(REFERENCE.units(["age", "male"]).guess, [0.05 * 15 / 5, 0.0])


def test_columns_are_found_by_name_in_any_order():
    units = REFERENCE.units(["male", "age"])
    assert units.scale.tolist() == [0.5, 15.0]


def test_reference_is_the_same_after_a_file_and_as_a_key():
    again = Reference.from_dict(REFERENCE.to_dict())
    assert again == REFERENCE
    assert {REFERENCE: 1}[again] == 1


def test_own_units_are_root_mean_squares_whatever_the_size():
    X = np.array([[1e200, 0.0], [-1e200, 0.0]])
    units = own_units(X, np.array([3.0, -3.0]))
    assert np.allclose(units.scale, [1e200, 1.0])
    assert units.target_scale == 3.0


@pytest.mark.parametrize(
    ("features", "options", "words"),
    [
        ({}, {}, "features: expected a mapping"),
        ([1.0], {}, "Reference.standard"),
        ({"age": 60}, {}, "'age': expected a centre and a positive scale"),
        ({"age": (60, 0)}, {}, "got the scale 0"),
        ({"age": (60, -1)}, {}, "got the scale -1"),
        ({"age": (60, 0)}, {}, "'age': expected a centre and a positive scale.*got the scale 0"),
        ({"age": (60, float("nan"))}, {}, "'age': expected a finite number, got nan"),
        ({"age": 60}, {}, "'age': expected a centre and a positive scale.*got 60"),
        ({"age": (60,)}, {}, "'age': expected a centre and a positive scale"),
        ({"age": (60, 15)}, {"target": (7,)}, "target: expected a centre and a positive scale"),
        ({"age": (float("nan"), 1)}, {}, "'age': expected a finite number, got nan"),
        ({"age": (60, float("inf"))}, {}, "expected a finite number"),
        ({"age": (60, 15, 1)}, {}, "a centre and a positive scale"),
        ({"age": ("60", "15")}, {}, "expected a finite number, got '60'"),
        ({"age": (60, True)}, {}, "expected a finite number, got True"),
        ({"intercept": (0, 1)}, {}, "the target's centre"),
        ({"age": (60, 15)}, {"effects": {"weight": 1.0}}, "effects: expected names of the columns"),
        ({"age": (60, 15)}, {"effects": {"age": float("nan")}}, "effects: 'age'"),
        ({"age": (60, 15)}, {"target": (0, 0)}, "target: expected a centre and a positive scale"),
    ],
)
def test_what_is_no_reference_is_named(features, options, words):
    with pytest.raises(ValueError, match=words):
        Reference(features, **options)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (["age"], "got values of 'male'; declare every column"),
        (["age", "male", "weight"], "got none of 'weight'; declare"),
        (["age", "weight"], "got none of 'weight' and values of 'male'"),
    ],
)
def test_undeclared_columns_are_refused_before_a_charge(columns, words):
    """Columns other than those declared are refused before anything is charged."""
    rng = np.random.default_rng(0)
    rows = [rng.standard_normal((5, len(columns))) for _ in range(6)]
    tasks = mp.TaskData.from_lists(rows, [rng.standard_normal(5) for _ in range(6)], features=columns)
    ledger = mp.privacy.Ledger(epsilon=1.0, delta=0.1)
    with pytest.raises(ValueError, match=words):
        mp.release(tasks, 1.0, reference=REFERENCE, ledger=ledger)
    assert ledger.spent.epsilon == 0
