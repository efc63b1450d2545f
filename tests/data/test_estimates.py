"""Estimates made elsewhere: names find their numbers, what is no estimate is refused, and nothing shows its numbers."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest

import mpmtl_prob as mp
from mpmtl_prob import Estimate, Estimates, Reference

MEAN = np.array([2.1, 0.5, -0.3])
ROOT = np.array([[0.3, 0.0, 0.0], [0.1, 0.2, 0.0], [-0.05, 0.04, 0.1]])
COVARIANCE = ROOT @ ROOT.T
NAMES = ("intercept", "age", "male")
ORDERED = ("age", "male", "intercept")


def same(one, other):
    assert one.coefficients == other.coefficients
    assert np.array_equal(one.mean, other.mean)
    assert np.array_equal(one.covariance, other.covariance)


def frame(names=NAMES, order=(0, 1, 2)):
    """A covariance with its names, rows in another order than columns."""
    whole = pd.DataFrame(COVARIANCE, columns=names, index=names)
    return whole.iloc[list(order)]


GIVEN = {
    "arrays with names": lambda: Estimate(MEAN, COVARIANCE, NAMES),
    "a series, and an array in its order": lambda: Estimate(pd.Series(MEAN, NAMES), COVARIANCE),
    "a series and a frame": lambda: Estimate(pd.Series(MEAN, NAMES), frame()),
    "a frame whose rows are in another order": lambda: Estimate(pd.Series(MEAN, NAMES), frame(order=(2, 0, 1))),
    "a mapping and a frame of polars": lambda: Estimate(
        dict(zip(NAMES, MEAN, strict=True)), pl.DataFrame(COVARIANCE, schema=NAMES, orient="row")
    ),
    "as R calls the intercept": lambda: Estimate(MEAN, COVARIANCE, ("(Intercept)", "age", "male")),
    "as statsmodels calls it": lambda: Estimate(pd.Series(MEAN, ("const", *NAMES[1:])), frame(("const", *NAMES[1:]))),
    "as SAS and formulas call it": lambda: Estimate(MEAN, frame(("Intercept", *NAMES[1:]))),
    "as Stata calls it": lambda: Estimate(list(MEAN), COVARIANCE.tolist(), ["_cons", "age", "male"]),
    "text of numbers": lambda: Estimate([repr(x) for x in MEAN.tolist()], COVARIANCE, NAMES),
    "objects": lambda: Estimate(MEAN.astype(object), COVARIANCE.astype(object), NAMES),
}


@pytest.mark.parametrize("given", GIVEN)
def test_names_find_their_numbers(given):
    same(GIVEN[given](), Estimate(MEAN, COVARIANCE, NAMES))


def test_what_was_adjusted_for_is_left_out_by_name():
    """The marginal law of some coefficients is theirs, with the others integrated out."""
    some = Estimate(pd.Series(MEAN, NAMES), frame(), ["male", "age"])
    same(some, Estimate(MEAN[[2, 1]], COVARIANCE[np.ix_([2, 1], [2, 1])], ["male", "age"]))
    scale_too = pd.DataFrame(np.eye(4), columns=[*NAMES, "Log(scale)"])  # of survival's, whose coefficients are without
    assert Estimate(pd.Series(MEAN, NAMES), scale_too).covariance.shape == (3, 3)


def test_bare_numbers_are_numbered_and_one_is_one_coefficient():
    """Numbers without names are numbered, and a single number is one coefficient."""
    assert Estimate(MEAN, COVARIANCE).coefficients == (0, 1, 2)
    same(Estimate(0.5, 0.04, ["treatment"]), Estimate([0.5], [[0.04]], ["treatment"]))


def test_nobody_can_write_to_it_nor_changes_what_was_given():
    mean = MEAN.copy()
    estimate = Estimate(mean, COVARIANCE, NAMES)
    mean[0] = 5
    with pytest.raises(ValueError, match="read-only"):
        estimate.mean[0] = 5
    same(estimate, Estimate(MEAN, COVARIANCE, NAMES))
    same(pickle.loads(pickle.dumps(estimate)), estimate)


SECRET = 77_712.345
BAD = {
    "a number that is none": (
        lambda: Estimate([SECRET, np.nan], np.eye(2)),
        r"mean: expected finite numbers, got 1 that",
    ),
    "a text": (lambda: Estimate([SECRET, "no"], np.eye(2)), r"mean: expected finite numbers, got 1 that"),
    "a covariance that is none": (
        lambda: Estimate([1, 2], [[1, 0], [0, np.inf]]),
        "covariance: expected finite numbers",
    ),
    "too large": (lambda: Estimate([1e200, 2], np.eye(2)), "mean: expected numbers up to 1e[+]150, got 1 beyond"),
    "of another size": (lambda: Estimate([1, 2], np.eye(3)), "covariance: expected numbers of 2 coefficients, got 3"),
    "not square": (
        lambda: Estimate([1, 2], np.ones((2, 3))),
        "covariance: expected as many rows as columns, got shape",
    ),
    "a vector": (lambda: Estimate([1, 2], [1.0, 1.0]), "covariance: expected"),
    "a matrix": (lambda: Estimate(np.eye(2), np.eye(2)), "mean: expected one number for every coefficient, got shape"),
    "not symmetric": (lambda: Estimate([1, 2], [[SECRET, 1.0], [2.0, 1.0]]), "covariance: expected a symmetric matrix"),
    "no variance": (
        lambda: Estimate([1, 2], [[1.0, 0.0], [0.0, 0.0]]),
        "covariance: expected variances above 0, got 1",
    ),
    "standard errors": (lambda: Estimate([1, 2], [[1.0, 2.0], [2.0, 1.0]]), "covariance: expected a positive definite"),
    "perfectly correlated": (
        lambda: Estimate([1, 2], np.full((2, 2), SECRET)),
        "covariance: expected a positive definite",
    ),
    "a name twice": (lambda: Estimate([1, 2], np.eye(2), ["a", "a"]), "coefficients: expected distinct names"),
    "two intercepts": (lambda: Estimate([1, 2], np.eye(2), ["const", "intercept"]), "coefficients: expected distinct"),
    "names too few": (lambda: Estimate([1, 2], np.eye(2), ["a"]), "mean: expected numbers of 1 coefficients, got 2"),
    "text for names": (lambda: Estimate([1, 2], np.eye(2), "ab"), "coefficients: expected a list of names"),
    "no names": (lambda: Estimate([], np.zeros((0, 0))), "mean: expected numbers of one coefficient at least"),
    "names that are not there": (
        lambda: Estimate(pd.Series([1, 2], ["a", "b"]), np.eye(2), ["a", "c"]),
        "mean: expected those of the estimate, got others: 'c'",
    ),
    "a covariance of others": (
        lambda: Estimate(pd.Series([1, 2], ["a", "b"]), pd.DataFrame(np.eye(2), columns=["a", "c"])),
        "covariance: expected those of the estimate, got others: 'b'",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_malformed_estimates_are_refused_and_not_shown(what):
    """A malformed estimate is refused in words that show none of it."""
    make, words = BAD[what]
    with pytest.raises(ValueError, match=words) as error:
        make()
    assert "777" not in str(error.value)


@pytest.mark.filterwarnings("error")
def test_numbers_at_the_ends_of_double_precision_make_no_warning():
    for size in (1e-150, 1e149):
        assert Estimate(size * MEAN, size * COVARIANCE, NAMES).coefficients == NAMES


def test_nothing_that_is_printed_shows_a_number():
    estimate = Estimate([SECRET, 1.0], [[SECRET, 0.0], [0.0, 1.0]], ["age", "male"])
    for each in (estimate, Estimates({"A": estimate, "B": estimate})):
        for text in (repr(each), str(each), f"{each}", repr([each]), repr({"a": each})):
            assert "777" not in text
    assert repr(Estimates([estimate])) == "Estimates(1 task, 2 coefficients: age, male)"


def test_an_intercept_is_the_last_and_tasks_agree_by_name():
    other = Estimate(MEAN[[2, 0, 1]], COVARIANCE[np.ix_([2, 0, 1], [2, 0, 1])], ["male", "_cons", "age"])
    both = Estimates({"A": Estimate(MEAN, COVARIANCE, NAMES), "B": other})
    assert both.features == ORDERED
    assert both.intercept
    assert both.tasks == ("A", "B")
    same(*both.estimates)
    assert Estimates([other, other]).tasks == (0, 1)
    assert Estimates([other, other], tasks=["x", "y"]).tasks == ("x", "y")
    assert Estimates(both.estimates, coefficients=["age"]).features == ("age",)


ONE = Estimate([0.5], [[0.04]], ["age"])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Estimates([]), "estimates: expected an Estimate of every task, got none"),
        (lambda: Estimates([ONE, 3.0]), "estimates: expected an Estimate of every task, got float"),
        (lambda: Estimates({"A": ONE}, tasks=["B"]), "tasks: expected none with a mapping"),
        (lambda: Estimates([ONE, ONE], tasks=["B"]), "tasks: expected 2 names"),
        (lambda: Estimates({"A": ONE, 1.5: ONE}), "tasks: expected names that are text"),
        (
            lambda: Estimates({"A": ONE, "B": Estimate([0.5], [[0.04]], ["sex"])}),
            "estimates: task 'B': coefficients: expected those of the estimate, got others: 'age'",
        ),
        (
            lambda: Estimates({"A": ONE, "B": Estimate([0.5, 1], np.eye(2), ["age", "sex"])}),
            r"estimates: task 'B': expected the coefficients \['age'\] of the first, got \['age', 'sex'\]; say which",
        ),
        (lambda: Estimates([ONE]).ordered(["age", "sex"], "it"), r"got none of \['sex'\]"),
        (lambda: Estimates([ONE]).ordered(["sex"], "it"), r"got none of \['sex'\] and others: \['age'\]"),
    ],
)
def test_what_are_no_estimates_of_one_study_is_named(make, words):
    with pytest.raises(ValueError, match=words):
        make()


@pytest.fixture
def table():
    """Build a table as R writes coef and vcov of two fits, one below the other."""
    parts = []
    for name, shift in (("B", 0.0), ("A", 1.0)):
        part = pd.DataFrame({"task": name, "coefficient": ["(Intercept)", "age", "male"], "estimate": MEAN + shift})
        parts.append(part.join(pd.DataFrame(COVARIANCE, columns=["(Intercept)", "age", "male"])))
    return pd.concat(parts, ignore_index=True)


@pytest.mark.parametrize("kind", [lambda frame: frame, pl.from_pandas], ids=["pandas", "polars"])
def test_a_table_has_a_row_for_every_task_and_coefficient(table, kind):
    estimates = Estimates.from_pandas(kind(table))
    assert estimates.tasks == ("B", "A")
    same(estimates.estimates[1], Estimate(MEAN + 1, COVARIANCE, NAMES).take(ORDERED))
    mixed = Estimates.from_pandas(kind(table.sample(frac=1, random_state=0)))
    same(mixed.estimates[mixed.tasks.index("A")].take(ORDERED), estimates.estimates[1])
    renamed = table.rename(columns={"task": "hospital", "coefficient": "term", "estimate": "b"})
    again = Estimates.from_pandas(kind(renamed), task="hospital", coefficient="term", estimate="b")
    same(again.estimates[0], estimates.estimates[0])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.drop(columns="task"), "task: no column 'task'"),
        (lambda t: t.drop(columns="estimate"), "estimate: expected one column 'estimate' in the frame, got 0"),
        (
            lambda t: t.drop(columns="male"),
            "frame: task 'B': covariance: expected those of the estimate, got others: 'male'",
        ),
        (lambda t: t.drop(index=5), "estimates: task 'A': expected the coefficients"),
        (lambda t: t.assign(estimate="x"), "frame: task 'B': mean: expected finite numbers, got 3"),
        (lambda t: pd.concat([t, t]), "frame: task 'B': coefficient: expected distinct names"),
        (lambda t: t.to_dict(), "frame: expected a data frame"),
    ],
)
def test_what_a_table_lacks_is_named(table, change, words):
    with pytest.raises(ValueError, match=words):
        Estimates.from_pandas(change(table))


def test_a_fingerprint_recognises_a_study_and_tells_two_apart():
    """A fingerprint tells two studies apart and recognises one that it has seen."""
    ledger = mp.privacy.Ledger(epsilon=1.0, delta=0.1)
    one, again, other = (Estimates({"A": Estimate([b], [[0.04]], ["age"])}) for b in (0.5, 0.5, 0.6))
    assert ledger.fingerprint(one) == ledger.fingerprint(again) != ledger.fingerprint(other)


@pytest.mark.parametrize("intercept", [True, False])
def test_units_take_estimates_there_and_back(intercept):
    """Beside least squares of rows in these units, whose estimate and covariance these are."""
    rng = np.random.default_rng(0)
    names = ["a", "b", "intercept"][: 2 + intercept]
    X, y = rng.standard_normal((40, 2)) * [3, 0.5] + [60, 1], rng.standard_normal(40) * 2 + 7
    units = Reference({"a": (58, 15), "b": (0.5, 0.2)}, target=(6, 5) if intercept else (0, 5)).units(names)
    X = np.column_stack([X, np.ones(40)]) if intercept else X

    def least_squares(rows, targets):
        inverse = np.linalg.inv(rows.T @ rows)
        return inverse @ rows.T @ targets, inverse

    if intercept:
        b, V = least_squares(units.rows(X), units.targets(y))
        moved, covariance = units.from_table(*least_squares(X, y))
        assert np.allclose(moved, b)
        assert np.allclose(covariance, V / 25)  # of targets in units of 5
    moved, _ = units.from_table(np.arange(1.0, 3 + intercept), np.eye(2 + intercept))
    assert np.allclose(units.to_table(moved), np.arange(1.0, 3 + intercept))
