"""Study files that somebody has written to stop, confuse or deceive whoever reads them; and what of a table errors show."""

import json
import tomllib

import numpy as np
import pandas as pd
import pytest
from helpers.studies import STUDY, patients

from mpmtl_prob.schema import Schema, read_rows
from mpmtl_prob.schema.draft import Example, draft


def said(*path, value):
    """The sections of a study, one value of which is another."""
    whole = tomllib.loads(STUDY)
    place = whole
    for name in path[:-1]:
        place = place.setdefault(name, {})
    place[path[-1]] = value
    return whole


HUGE = 10**400  # which no double holds


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("columns", "age", "centre"), HUGE),
        (("columns", "age", "missing"), -HUGE),
        (("columns", "age", "range"), [0, HUGE]),
        (("release", "epsilon"), HUGE),
        (("study",), {"task": "hospital", "tasks": HUGE}),
    ],
)
def test_numbers_of_no_ordinary_size_are_refused_by_their_key(path, value):
    with pytest.raises(ValueError, match=rf"^\[.*\]: {'tasks' if path == ('study',) else path[-1]}: expected"):
        Schema.from_dict(said(*path, value=value))


def sums(number, each, between):
    """Sums of so many columns, multiplied."""
    names = [[f"x{i}y{j}" for j in range(each)] for i in range(number)]
    return between.join(f"({' + '.join(one)})" for one in names)


@pytest.mark.parametrize(
    "formula",
    [sums(40, 4, ":"), sums(6, 30, "*"), "*".join(f"x{i}" for i in range(9)) + "*(a+b+c+d)"],
    ids=["products", "crossings", "both"],
)
def test_a_formula_of_too_many_terms_is_refused_early(formula):
    """A formula of too many terms is refused before the terms are worked out."""
    with pytest.raises(ValueError, match=r"formula: expected at most 1000 terms"):
        Schema.from_dict(said("study", "formula", value=formula))


@pytest.mark.parametrize("formula", ["I(" + "+".join("a" * 990) + ")", "I(" + "*1+".join(["age"] * 100) + ")"])
def test_long_arithmetic_is_refused(formula):
    with pytest.raises(ValueError, match=r"formula: I: expected at most 50 operations"):
        Schema.from_dict(said("study", "formula", value=formula))


def test_too_many_columns_are_refused_before_they_are_made():
    """More columns than anybody reads are refused before they are made."""
    levels = [f"level {i}" for i in range(400)]
    columns = {name: {"kind": "category", "levels": levels} for name in ("a", "b", "c", "d")}
    whole = said("columns", value=columns)
    with pytest.raises(ValueError, match=r"expected at most 1000 columns of the model, got 1596"):
        Schema.from_dict(whole)
    whole["study"]["formula"] = "a * b * c * d"
    with pytest.raises(ValueError, match=r"expected at most 1000 columns of the model, got \d{11}"):
        Schema.from_dict(whole)


def test_names_are_compared_as_fast_as_they_are_read():
    """Names are compared in no more time than it takes to read them.

    A hundred thousand levels, or keys, compared each with each would take minutes.
    """
    with pytest.raises(ValueError, match="expected at most 1000 columns of the model, got 100000"):
        Schema.from_dict(said("columns", "insurance", value={"kind": "category", "levels": list(range(100_000))}))
    with pytest.raises(ValueError, match=r"expected every name once, got 'a' more than once"):
        Schema.from_dict(
            said("columns", "insurance", value={"kind": "category", "levels": ["a", *range(100_000), "a"]})
        )


@pytest.mark.parametrize("character", ["\x1b", "\0", "\x9b", "\u202e", "\u2028", "\ud800", "\n"])
@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("study", "title"), "Length of stay{}[2J"),
        (("study", "row"), "patient{}"),
        (("columns", "weight{}"), {"kind": "number", "centre": 0, "scale": 1}),
        (("columns", "insurance", "levels"), ["public{}", "private"]),
        (("target", "unit"), "days{}"),
        (("study", "participants"), ["H0", "H1{}x"]),
        (("ends{}",), 1),
    ],
)
def test_nothing_in_a_study_moves_the_cursor_of_whoever_is_asked(path, value, character):
    """Nothing in a study moves the cursor: what a hospital agrees to is shown on its terminal in the study's words."""
    whole = said(*path, value=value)
    whole = json.loads(json.dumps(whole).replace("{}", json.dumps(character)[1:-1]))
    with pytest.raises(ValueError, match="expected text without") as raised:
        Schema.from_dict(whole)
    assert character not in str(raised.value)


def test_a_formula_may_be_on_several_lines():
    one = Schema.from_dict(said("study", "formula", value="age + insurance"))
    assert Schema.from_dict(said("study", "formula", value="\n  age\r\n\t+ insurance\n")).digest == one.digest


def test_two_formulas_of_different_columns_have_different_hashes():
    """Blanks inside the name of a column are part of it."""
    number = {"kind": "number", "centre": 0, "scale": 1}
    whole = said("columns", value={"a b": number, "a  b": number})
    one, two = ({**whole, "study": {**whole["study"], "formula": name}} for name in ("`a b`", "`a  b`"))
    assert Schema.from_dict(one).coefficients != Schema.from_dict(two).coefficients
    assert Schema.from_dict(one).digest != Schema.from_dict(two).digest


@pytest.mark.parametrize("name", [" age", "age ", "e\u0301tage"])
def test_a_column_is_named_as_tables_are_read(name):
    """Names in tables count without blanks around them, in one form of Unicode: another would never be there."""
    with pytest.raises(ValueError, match="expected names without blanks around them, in Unicode's normal form C"):
        Schema.from_dict(said("columns", name, value={"kind": "number", "centre": 0, "scale": 1}))


@pytest.mark.parametrize("formula", ["C(age)", "age + C(age)", "insurance * C(age)"])
def test_a_number_is_no_category(formula):
    """It would else go in as a number, without a word."""
    with pytest.raises(ValueError, match=r"C\(age\): expected a category, got a column of numbers"):
        Schema.from_dict(said("study", "formula", value=formula))


@pytest.mark.parametrize("cell", [-9, -9.0, "-9", " -9 ", np.int64(-9), np.float32(-9), "-9.0"])
def test_what_means_empty_is_empty_whatever_its_type(cell):
    whole = said("study", "missing_values", value=["-9"])
    frame = patients("H1").astype({"age": object})
    frame.loc[2, "age"] = cell
    read = read_rows(Schema.from_dict(whole), frame)
    assert read.told == ("1 of 24 patients are dropped for their age",)


def test_errors_of_whole_tables_show_no_cell_of_the_task_column():
    """Errors show no cell of the task column: where columns were mixed up, no hospital's name stands there."""
    schema = Schema.from_dict(tomllib.loads(STUDY))
    frame = pd.concat([patients("H1"), patients("H2").assign(hospital="Mrs Miller")])
    with pytest.raises(ValueError, match="expected") as raised:
        schema.tasks(frame)
    assert "Miller" not in str(raised.value)


@pytest.mark.parametrize("levels", [[1, 2, 3], ["1", "2", "3"]])
def test_levels_that_are_whole_numbers_are_read_from_any_type(levels):
    """Pandas makes 1 a 1.0 where another cell of the column is empty, and writes it so."""
    whole = said(
        "columns", "insurance", value={"kind": "category", "levels": levels, "missing": "drop", "unknown": "drop"}
    )
    schema, frame = Schema.from_dict(whole), patients("H1").assign(insurance=[*range(1, 4)] * 8)
    expected = read_rows(schema, frame.iloc[1:]).X
    number = frame["insurance"].astype(float)
    number.iloc[0] = np.nan
    for column in (
        number,
        number.astype(object),
        number.astype(str),
        number.astype("Int64"),
        number.astype("category"),
    ):
        assert np.array_equal(read_rows(schema, frame.assign(insurance=column)).X, expected)
    assert len(read_rows(schema, frame.assign(insurance="01")).X) == 0
    assert len(read_rows(schema, frame.assign(insurance="1.5")).X) == 0


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (
            ("columns", "age", "missing"),
            -1,
            r"\[columns.age\]: missing: expected a number in the range \[1.0, 99.0\], got -1.0",
        ),
        (
            ("columns", "age", "centre"),
            0,
            r"\[columns.age\]: centre: expected a number in the range \[1.0, 99.0\], got 0.0",
        ),
    ],
)
def test_what_stands_in_for_an_empty_cell_is_possible(path, value, message):
    """Its logarithm would else be none, and only hospitals with an empty cell would be refused: which they are is private."""
    whole = said("columns", "age", "range", value=[1, 99])
    whole["study"]["formula"] = "log(age)"
    whole["columns"]["age"]["missing"] = "indicator"
    whole["columns"]["age"][path[-1]] = value
    with pytest.raises(ValueError, match=message):
        Schema.from_dict(whole)


def test_earlier_studies_speak_of_coefficients_that_exist():
    """Results of earlier studies must be about a coefficient that the study has.

    It was left out without a word where the column has no effect of its own.
    """
    whole = said("columns", "age", "effect", value=0.05)
    assert Schema.from_dict(whole).reference.effects == {"age": 0.05}
    whole["study"]["formula"] = "poly(age, 2)"
    with pytest.raises(
        ValueError, match=r"\[columns.age\]: effect: expected none, as the formula has no age by itself"
    ):
        Schema.from_dict(whole)


def test_texts_that_mean_empty_are_few():
    """Every cell is compared with each of them."""
    with pytest.raises(ValueError, match="missing_values: expected at most 100 texts, got 100000"):
        Schema.from_dict(said("study", "missing_values", value=[str(i) for i in range(100_000)]))


class Teller:
    """A cell whose error tells what it is."""

    def __str__(self):
        raise RuntimeError("Mrs Miller")

    __repr__ = __ne__ = __eq__ = __hash__ = __str__


@pytest.mark.parametrize("column", ["hospital", "person", "age", "insurance", "stay"])
def test_a_cell_whose_own_error_tells_of_it_tells_nobody(column):
    whole = said("study", "person", value="person")
    frame = patients("H1").assign(person=range(24)).astype(object)
    frame.at[3, column] = Teller()
    told = ""
    try:
        read_rows(Schema.from_dict(whole), frame)
    except ValueError as error:
        told = str(error)
    assert "Miller" not in told


@pytest.mark.parametrize("formula", ["I((age - 60.7) ** 3)", "I((age - 60.7) ** 5 / 7)", "log(age)", "I(age ** 3)"])
def test_centres_and_scales_survive_rounding_of_other_machines(monkeypatch, formula):
    """Centres and scales are the same where powers and logarithms end in another bit.

    Libraries of different machines may differ there, and sites would then refuse each other's columns.
    """
    whole = said("study", "formula", value=formula)
    whole["columns"]["age"] |= {"centre": 60.7, "scale": 14.3, "range": [1, 130]}
    here = Schema.from_dict(whole).design.built
    power = np.power
    log = np.log
    monkeypatch.setattr(np, "power", lambda *of: np.nextafter(power(*of), np.inf))
    monkeypatch.setattr(np, "log", lambda *of: np.nextafter(log(*of), np.inf))
    assert Schema.from_dict(whole).design.built == here


def test_a_draft_of_a_private_table_has_no_names_of_patients():
    """A draft has no names of patients: in few rows, names are as few as levels are, and the draft is public."""
    frame = patients("H1", 12).assign(name=[f"Mrs Miller {i}" for i in range(12)])
    columns = {name: frame[name].astype(str).tolist() for name in frame}
    text = draft(Example(columns, "hospital", "stay", 30), epsilon=1.0)
    assert "Miller" not in text
    assert "[columns.name]  # 12 levels, as of names" in text
    assert 'levels = ["private", "public"]' in text
