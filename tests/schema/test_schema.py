"""A study's file: what it says, what it refuses, and that all columns follow from it alone."""

import json
from datetime import date

import formulaic
import numpy as np
import pandas as pd
import polars as pl
import pytest
from helpers.studies import IDS, STUDY, patients

import mpmtl_prob as mp
from mpmtl_prob.schema import Schema, read_rows
from mpmtl_prob.schema.draft import Example, draft


def study(tmp_path, text=STUDY, name="study.toml"):
    path = tmp_path / name
    path.write_text(text)
    return Schema.read(path)


def changed(*pairs):
    text = STUDY
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new, 1)
    return text


@pytest.fixture
def schema(tmp_path):
    return study(tmp_path)


def test_a_study_has_reference_values_terms_and_a_promise(schema):
    assert schema.coefficients == ("age", "insurance[private]", "intercept")
    assert schema.reference.target == (7.0, 5.0)
    assert schema.reference.features["age"] == (60.0, 15.0)
    centre, scale = schema.reference.features["insurance[private]"]
    assert (centre, scale) == (0.3, pytest.approx(np.sqrt(0.21), rel=1e-5))
    terms = schema.terms()
    assert (terms.num_tasks, terms.epsilon) == (8, 3.0)
    assert schema.terms(without=["a", "b"]).num_tasks == 6
    assert "8 hospitals" in repr(schema)


def test_the_hash_is_of_what_is_said_not_of_how(schema, tmp_path):
    other = "\r\n".join(line + "  # words" if line and line[0] not in "[#" else line for line in STUDY.splitlines())
    assert study(tmp_path, other).digest == schema.digest
    assert study(tmp_path, changed(("scale = 15", "scale = 15.0"))) == schema
    for pair in (
        ("scale = 15", "scale = 16"),
        ('["public", "private"]', '["private", "public"]'),
        ("epsilon = 3", "epsilon = 2"),
        ('"H7"]', '"H8"]'),
        ('"years"', '"months"'),
    ):
        assert study(tmp_path, changed(pair)).digest != schema.digest


def test_a_study_in_json_is_the_same(schema, tmp_path):
    import tomllib

    assert study(tmp_path, json.dumps(tomllib.loads(STUDY)), "study.json") == schema
    with pytest.raises(ValueError, match="'a': expected it once"):
        study(tmp_path, '{"study": {"a": 1, "a": 2}}', "study.json")
    with pytest.raises(ValueError, match="expected finite numbers, got NaN"):
        study(tmp_path, '{"study": NaN}', "study.json")


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        (("scale = 15", "scale = 0"), r"\[columns.age\]: scale: expected .* above 0, in years, got 0.0"),
        (("scale = 15", "scale = nan"), r"\[columns.age\]: scale: expected .*, got nan"),
        (("scale = 15", f"scale = {10**400}"), r"\[columns.age\]: scale: expected .*, up to 1e.100, got a larger one"),
        (("scale = 15", ""), r"\[columns.age\]: scale: .* got none; add it"),
        (("centre = 60", "centre = true"), r"\[columns.age\]: centre: .* got True"),
        (("centre = 60", "center = 60\ncentre = 60"), r"\[columns.age\]: 'center': expected the keys centre,"),
        (('task = "hospital"', 'task = "age"'), "a column of its own for every purpose, got 'age' twice"),
        (('"public", "private"]', '"public"]'), r"levels: expected at least 2, got 1"),
        (('"public", "private"]', '"public", "public"]'), r"levels: expected every name once, got 'public'"),
        (("[0.7, 0.3]", "[0.7, 0.7]"), r"shares: expected one number between 0 and 1 for each of 2 levels"),
        (('kind = "category"', 'kind = "text"'), r"kind: expected 'number' or 'category' or 'date', got 'text'"),
        (("delta = 0.01", ""), r"\[release\]: delta: expected it with fewer than 30 tasks"),
        (("epsilon = 3", "epsilon = -1"), r"\[release\]: epsilon: expected a budget, such as 1.0, got -1"),
        (("[release]", "[releases]"), r"expected the sections .*, got \[releases\]"),
        (('"H7"]', '"H6"]'), "participants: expected every name once, got 'H6' more than once"),
        (('row = "patient"', 'row = "patient"\ntasks = 9'), "tasks: expected 8, as there are participants, got 9"),
        (("[columns.age]", "[columns.age]\nrange = [9, 1]"), "range: expected two numbers, the lower first"),
        (
            ('missing = "drop"\n\n[columns.ins', 'missing = "guess"\n\n[columns.ins'),
            "missing: expected 'error' or 'drop'",
        ),
        (('kind = "number"', 'kind = "survival"'), r"\[target\]: kind: expected 'number' or 'binary' or 'count'"),
        (("[study]", "study = 3\n[stud]"), "expected the sections"),
        (('row = "patient"', 'row = "patient"\nformula = "age + weight"'), "that .columns. declares, .* got 'weight'"),
    ],
)
def test_a_file_that_says_something_else_is_refused_by_its_key(tmp_path, pair, message):
    with pytest.raises(ValueError, match=message):
        study(tmp_path, changed(pair))


def test_every_kind_of_frame_and_of_name_gives_the_same_rows(schema):
    frame = patients("H3")
    own = schema.tasks(frame)
    for other in (
        pl.from_pandas(frame),
        frame.astype({"insurance": "category"}),
        frame.astype(str),
        frame[frame.columns[::-1]],
        pl.from_pandas(frame).to_arrow(),
    ):
        again = schema.tasks(other)
        assert np.array_equal(again.rows, own.rows)
        assert np.array_equal(again.targets, own.targets)
    numbered = Schema.from_dict({**_said(), "study": {"task": "hospital", "participants": [1, 2, 3, 4, 5, 6, 7, 8]}})
    assert numbered.tasks(frame.assign(hospital=3)).tasks == ("3",)
    assert numbered.tasks(frame.assign(hospital=3.0)).tasks == ("3",)
    assert numbered.tasks(frame.assign(hospital="3")).tasks == ("3",)


def _said():
    import tomllib

    return tomllib.loads(STUDY)


def test_columns_do_not_depend_on_which_levels_occur(schema):
    frame = patients("H3")
    every = read_rows(schema, frame)
    for i in range(len(frame)):
        one = read_rows(schema, frame.iloc[i : i + 1])
        assert np.array_equal(one.X, every.X[i : i + 1])


FORMULA = "stay ~ age * C(insurance) + bs(bmi, knots=[20, 25, 30]) + log(income) + poly(age, 3) + I(age / bmi ** 2)"
MORE = """
[columns.bmi]
kind = "number"
centre = 26
scale = 5
range = [10, 60]

[columns.income]
kind = "number"
centre = 2000
scale = 500
range = [1, 1e6]

[release]"""


def test_a_formula_makes_the_columns_that_formulaic_makes(tmp_path):
    text = changed(('row = "patient"', f'row = "patient"\nformula = "{FORMULA}"'), ("[release]", MORE))
    schema, rng = study(tmp_path, text), np.random.default_rng(0)
    frame = patients("H1").assign(bmi=rng.uniform(15, 50, 24).round(1), income=rng.uniform(500, 9000, 24).round())
    rows = read_rows(schema, frame)
    built = {one.name: rows.X[:, j] for j, one in enumerate(schema.design.built)}
    theirs = formulaic.model_matrix(
        "age + C(insurance, contr.treatment(base='public'), levels=['public', 'private'])"
        "+ bs(bmi, knots=[20, 25, 30], lower_bound=10, upper_bound=60) + np.log(income) + I(age / bmi ** 2)",
        frame,
        context={"np": np},
    )
    ours = ["age", "insurance[private]", *(f"bs(bmi)[{k}]" for k in range(1, 7)), "log(income)", "I(age/bmi**2)"]
    np.testing.assert_allclose(np.column_stack([built[name] for name in ours]), np.asarray(theirs)[:, 1:], rtol=1e-12)
    z = (frame["age"] - 60) / 15
    np.testing.assert_allclose(built["poly(age)[3]"], z**3, rtol=1e-12)
    private = (frame["insurance"] == "private") - 0.3
    np.testing.assert_allclose(built["age:insurance[private]"], (frame["age"] - 60) * private, rtol=1e-12)


def test_signs_and_powers_bind_as_in_python(tmp_path):
    formula = "stay ~ I(bmi / -age * 100) + I(-age ** 2 / 100) + I(2 - -age - 1)"
    text = changed(('row = "patient"', f'row = "patient"\nformula = "{formula}"'), ("[release]", MORE))
    schema = study(tmp_path, text)
    frame = patients("H1").assign(bmi=np.linspace(15, 50, 24), income=2000.0)
    age, bmi = frame["age"], frame["bmi"]
    expected = np.column_stack([bmi / -age * 100, -(age**2) / 100, 2 - -age - 1])
    np.testing.assert_allclose(read_rows(schema, frame).X, expected, rtol=1e-12)


def test_built_columns_are_centred_like_the_rows_they_describe(tmp_path):
    """Centres and scales of built columns are near those of rows as described."""
    text = changed(('row = "patient"', f'row = "patient"\nformula = "{FORMULA}"'), ("[release]", MORE))
    schema = study(tmp_path, text)
    rng = np.random.default_rng(1)
    n = 20_000
    frame = pd.DataFrame(
        {"hospital": "H1", "stay": 1.0, "age": rng.normal(60, 15, n), "bmi": rng.normal(26, 5, n).clip(10, 60)}
    )
    frame["insurance"], frame["income"] = (
        rng.choice(["public", "private"], n, p=[0.7, 0.3]),
        rng.normal(2000, 500, n).clip(1, 1e6),
    )
    X = read_rows(schema, frame).X
    for one, column in zip(schema.design.built, X.T, strict=True):
        assert abs(one.centre - column.mean()) < 0.35 * one.scale, one.name
        assert 0.6 < one.scale / max(column.std(), 0.05) < 1.8, one.name


BREAK_OUT = [
    "I(age ** 2 ** 3)",
    "I(__import__('os').system('touch broken'))",
    "__import__('os')",
    "I(().__class__.__bases__)",
    "age.__class__",
    "exec(age)",
    "eval(age)",
    "open(age)",
    "I(exec(age))",
    "C(age, contr.treatment)",
    "C(age, levels=open('x'))",
    "bs(age, knots=__import__)",
    "bs(age, knots=[exit()])",
    "lambda: age",
    "`age`.real",
    "`__import__('os').system('touch broken')`",
    "{age}",
    "age[0]",
    "age; age",
    "age\nimport os",
    "I(age if age else age)",
    "f'{age}'",
    "age @ age",
    "I(age ** 9999999999)",
    "I(age := 3)",
    "\u0061ge + ｅxec(age)",
    "(" * 3000 + "age" + ")" * 3000,
    "*".join(["age"] * 40),
]


@pytest.mark.parametrize("text", BREAK_OUT, ids=range(len(BREAK_OUT)))
def test_nothing_in_a_formula_is_run(tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    said = _said()
    said["study"]["formula"] = text
    with pytest.raises(ValueError, match="formula"):
        Schema.from_dict(said)
    assert not (tmp_path / "broken").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("age + (1 + age || hospital)", "with || effects would be independent"),
        ("age + (1 | hospital)", "all effects vary between tasks"),
        ("age + (1 + age | region / hospital)", "a study has one kind of task; nested"),
        ("age + (age | hospital) + (age | hospital)", "expected one"),
        ("age - 1", "the intercept, which every study has"),
        ("age / insurance", "expected . - . or : between terms, got '/'; write a . a:b for a / b"),
        ("(age / insurance)", "expected . - . or : between terms, got '/'; write a . a:b for a / b"),
        ("C(insurance)" + "*age" * 8 + "*insurance", "expected at most 1000 terms"),
        ("bs(age, df=4)", "name its knots"),
        ("bs(age, knots=[30])", r"\[columns.age\]: range: expected it for bs\(age\)"),
        ("age:insurance", "expected age beside it too; write age . insurance"),
        ("log(insurance)", "expected a column of numbers, got a category"),
        ("age + stay", "expected columns that the target is explained by, got 'stay'"),
        ("C(age, levels=[1])", r"levels and the reference stand in \[columns.age\]"),
        ("", "expected text"),
    ],
)
def test_what_a_formula_cannot_say_is_said(text, message):
    said = _said()
    said["study"]["formula"] = text
    with pytest.raises(ValueError, match=message):
        Schema.from_dict(said)


def test_varying_effects_may_be_written_out():
    said = _said()
    plain = Schema.from_dict(said).coefficients
    said["study"]["formula"] = "stay ~ age + insurance + (1 + age + insurance | hospital)"
    assert Schema.from_dict(said).coefficients == plain


def rows(frame, *pairs, participant=None):
    import tomllib

    return read_rows(Schema.from_dict(tomllib.loads(changed(*pairs))), frame, participant)


def test_errors_name_columns_rows_and_kinds_and_never_a_cell():
    frame = patients("H2").astype(object)
    frame.loc[[3, 5], "age"] = "sixty-something"
    frame.loc[7, "insurance"] = "secret plan"
    frame.loc[8, "insurance"] = None
    with pytest.raises(ValueError, match="rows: expected cells") as raised:
        rows(frame)
    said = str(raised.value)
    assert "age: 2 of 24 patients: no number (the first is row 4)" in said
    assert "insurance: 1 of 24 patients: an unknown level (the first is row 8); levels are public, private" in said
    assert (
        'insurance: 1 of 24 patients: empty (the first is row 9); set missing = "drop", "indicator" or a level' in said
    )
    assert "sixty" not in said
    assert "secret" not in said


DROPPED = 'scale = 15\nmissing = "drop"'
CLIPPED = 'scale = 15\nmissing = "indicator"\nrange = [0, 120]\nout_of_range = "clip"'


def test_bad_cells_become_what_the_study_says():
    """Missing, unknown and out-of-range cells become what the study says."""
    frame = patients("H2").astype(object)
    frame.loc[0, "age"], frame.loc[1, "age"], frame.loc[2, "insurance"], frame.loc[3, "stay"] = (
        None,
        150,
        "other",
        float("nan"),
    )
    read = rows(frame, (DROPPED, CLIPPED), ("shares", 'unknown = "drop"\nshares'))
    assert list(read.kept) == [i for i in range(24) if i not in (2, 3)]
    assert (read.X[0, 0], read.X[0, -1], read.X[1, 0], read.X[1, -1]) == (60, 1, 120, 0)
    assert read.told == (
        "1 of 24 patients are dropped for their insurance",
        "1 of 24 patients are dropped for their stay",
    )
    counted = rows(frame.drop(index=[0, 1]), ("shares", 'unknown = "public"\nshares'))
    assert (len(counted.kept), counted.X[0, 1]) == (21, 0)
    instead = rows(frame.drop(index=[1, 2]), ('missing = "drop"\n\n[columns.ins', "missing = 55\n\n[columns.ins"))
    assert instead.X[0, 0] == 55


def test_dates_are_days_since_their_origin():
    said = _said()
    said["columns"]["came"] = {"kind": "date", "origin": date(2024, 1, 1), "centre": 180, "scale": 100}
    frame = patients("H2")
    schema, days = Schema.from_dict(said), pd.Series(pd.date_range("2024-01-01", periods=24))
    for column in (days, days.dt.strftime("%Y-%m-%d"), days.dt.date, pl.Series(days.dt.date.tolist())):
        X = read_rows(schema, pl.from_pandas(frame).with_columns(came=pl.Series(list(column)))).X
        assert np.array_equal(X[:, 2], np.arange(24))
    with pytest.raises(ValueError, match="came: 24 of 24 patients: no date such as 2024-05-31"):
        read_rows(schema, frame.assign(came="31.05.2024"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.drop(columns="age"), "got none called age among 3; rename"),
        (lambda f: f.rename(columns={"age": "Age"}), "got none called age among 4"),
        (lambda f: pd.concat([f, f[["age"]]], axis=1), "expected 'age' once, got it 2 times"),
        (lambda f: f.assign(hospital=["H2", "H3"] * 12), "expected rows of one hospital, got those of 2"),
        (lambda f: f.assign(hospital="H9"), "expected one of the study's 8 participants, got another name"),
        (lambda f: f.drop(columns="hospital"), "no column 'hospital' that says whose they are"),
        (lambda f: f.assign(hospital=[None, *["H2"] * 23]), "hospital: 1 of 24 patients have none, the first is row 1"),
    ],
)
def test_tables_of_other_columns_or_of_others_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        rows(change(patients("H2")))


def test_a_table_of_another_hospital_is_refused_by_name():
    with pytest.raises(ValueError, match="expected rows of 'H2', got those of H3; is it another participant's table"):
        rows(patients("H3"), participant="H2")
    with pytest.raises(ValueError, match="expected one of the study's 8, got 'H9'"):
        rows(patients("H3"), participant="H9")
    both = pd.concat([patients("H2"), patients("H3")])
    assert rows(both, participant="H3").told == ("24 of 48 rows are of others, and are left out",)


def test_several_rows_of_a_person_are_refused_with_what_to_do():
    frame = patients("H2").assign(id=[100, 100, 101, 101, *range(20)])
    with pytest.raises(
        ValueError, match=r"got 2 persons with more: such rows are nested, .* summarise them per person"
    ):
        rows(frame, ('row = "patient"', 'row = "patient"\nperson = "id"'))


def test_a_draft_of_an_example_is_a_study_once_settled(tmp_path):
    """A draft of a public example is a study once what it left open is settled."""
    frame = pd.concat([patients(name) for name in IDS]).assign(
        admitted="2024-03-01", name=[f"N{i}" for i in range(192)], region=np.repeat(list("ab"), 96)
    )
    columns = {name: frame[name].astype(str).tolist() for name in frame}
    text = draft(Example(columns, "hospital", "stay", 30, public=True), epsilon=1.0, row="patient")
    drafted = study(tmp_path, text)
    assert drafted.num_tasks == 30
    names = ("age", "insurance", "admitted", "region")
    assert drafted.unsettled == ("[study]", "[target]", "[release]", *(f"[columns.{name}]" for name in names))
    assert drafted.columns["age"].centre == pytest.approx(60, abs=3)
    assert "the same in all rows of a hospital" in text
    assert '# [columns.name]  # 192 levels, as of names: leave it out, or say person = "name"' in text


def test_a_draft_of_a_private_table_has_levels_and_types_alone(tmp_path):
    frame = patients("H1")
    columns = {name: frame[name].astype(str).tolist() for name in frame}
    text = draft(Example(columns, "hospital", "stay", 8), epsilon=1.0)
    assert 'levels = ["private", "public"]' in text
    lines = [line for line in text.splitlines() if line.startswith(("centre", "scale", "range", "origin"))]
    assert lines == []
    with pytest.raises(ValueError, match=r"centre: .* got none; add it"):
        study(tmp_path, text)
    assert "delta = 0.001  # of fewer than 30 tasks it has no default" in text


def test_the_schema_is_where_users_look():
    assert mp.Schema is Schema


def outcome(said):
    return Schema.from_dict({**_said(), "target": {"column": "stay", **said}})


@pytest.mark.parametrize("labels", [["no", "yes"], [0, 1], ["False", "True"]])
def test_labels_are_those_of_the_study_in_its_order(labels):
    schema = outcome({"kind": "binary", "labels": labels, "baseline": 0.2})
    assert (schema.reference.outcome, schema.reference.baseline) == ("binary", 0.2)
    frame = patients("H2")
    truth = np.arange(24) % 3 == 0
    cells = np.where(truth, labels[1], labels[0]) if labels[1] != "True" else truth
    tasks = schema.tasks(frame.assign(stay=cells))
    assert np.array_equal(tasks.targets, np.where(truth, 1.0, -1.0))
    only_one = schema.tasks(frame.assign(stay=labels[0]))
    assert set(only_one.targets) == {-1.0}


def test_counts_have_the_exposure_of_their_rows():
    schema = outcome({"kind": "count", "baseline": 0.3, "exposure": "days"})
    frame = patients("H2").assign(stay=np.arange(24) % 4, days=np.linspace(1, 9, 24))
    tasks = schema.tasks(frame)
    assert np.array_equal(tasks.targets, np.arange(24) % 4)
    assert np.array_equal(tasks.exposure, np.linspace(1, 9, 24))
    assert np.array_equal(read_rows(schema, frame.drop(columns="stay"), targets=False).exposure, tasks.exposure)


COUNT = {"kind": "count", "baseline": 0.3, "exposure": "days"}


@pytest.mark.parametrize(
    ("said", "change", "message"),
    [
        ({"kind": "binary", "labels": ["a"], "baseline": 0.2}, {}, "labels: expected at least 2"),
        ({"kind": "binary", "labels": ["a", "b", "c"], "baseline": 0.2}, {}, "labels: expected two, .* got 3"),
        ({"kind": "binary", "labels": ["a", "b"], "baseline": 1.2}, {}, "baseline: expected a probability"),
        ({"kind": "binary", "labels": ["a", "b"]}, {}, "baseline: expected a public guess .* got none"),
        ({"kind": "binary", "labels": ["a", "b"], "baseline": 0.2, "scale": 3}, {}, "'scale': expected the keys"),
        ({"kind": "binary", "labels": ["a", "b"], "baseline": 0.2}, {"stay": ["a", "b", "c"] * 8},
         "stay: 8 of 24 patients: an unknown level .the first is row 3.; labels are a and b"),
        ({"kind": "count"}, {}, "baseline: expected a public guess of the rate"),
        (COUNT, {"stay": -1}, "stay: 24 of 24 patients: no whole number of at least 0"),
        (COUNT, {"stay": 0.5}, "stay: 24 of 24 patients: no whole number of at least 0"),
        (COUNT, {"stay": "many"}, "stay: 24 of 24 patients: no whole number of at least 0"),
        (COUNT, {"days": 0}, "days: 24 of 24 patients: out of range .*; an exposure is above 0"),
        (COUNT, {"days": "x"}, "days: 24 of 24 patients: no number"),
        (COUNT, {"days": None}, 'days: 24 of 24 patients: empty .*; set missing = "drop" in .target.'),
    ],
)  # fmt: skip
def test_targets_that_are_none_are_refused(said, change, message):
    frame = patients("H2").assign(**{"stay": 1, "days": 2} | change)
    with pytest.raises(ValueError, match=message):
        outcome(said).tasks(frame)


def test_more_columns_than_a_release_could_be_of_are_refused():
    said = _said()
    levels = {"kind": "category", "levels": [f"L{i}" for i in range(60)]}
    said["columns"] |= {"a": levels, "b": levels}
    said["study"]["formula"] = "a * b"
    with pytest.raises(ValueError, match="expected at most 1000 columns of the model, got 3599"):
        Schema.from_dict(said)
