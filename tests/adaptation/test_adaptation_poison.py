"""Whatever is in a private record: no error, no warning, nothing that is not finite, and no other record feels it."""

import numpy as np
import pandas as pd
import pytest

from mpmtl_prob.adaptation import (
    KMM,
    AdaSSP,
    CnvxAdap,
    DiscrepancyMinimisation,
    Domain,
    MomentAdaptation,
    NCnvxAdap,
    NetworkAdap,
    NoisyGradient,
    SourceOnly,
    Unprotected,
    WarmDescent,
    tilted,
)
from mpmtl_prob.adaptation.adapt import adapt
from mpmtl_prob.adaptation.data import problems
from mpmtl_prob.adaptation.data.domain import pair
from mpmtl_prob.cli import main
from mpmtl_prob.privacy import Ledger

DATA = problems.two_sources((60, 20), num_features=3, tests=2, seed=3)
SHORT = {"steps": 3, "discrepancy": 0.0}  # a noisy one is slow to account for, and one arm has it
PRIVATE = {
    "one release": (MomentAdaptation, {"draws": 20}),
    "one release, an intercept": (MomentAdaptation, {"draws": 20, "intercept": True}),
    "AdaSSP": (AdaSSP, {}),
    "AdaSSP, labels": (AdaSSP, {"residuals": False}),
    "printed": (CnvxAdap, SHORT | {"variant": "printed", "discrepancy": "global"}),
    "rescaled": (CnvxAdap, SHORT | {"variant": "rescaled"}),
    "frozen": (CnvxAdap, SHORT | {"variant": "frozen"}),
    "profiled": (CnvxAdap, SHORT),
    "warm": (WarmDescent, SHORT),
    "noisy gradient": (NoisyGradient, {"steps": 3}),
    "printed classifier": (NCnvxAdap, SHORT | {"variant": "printed"}),
    "profiled classifier": (NCnvxAdap, SHORT),
    "classifier with a discrepancy": (NCnvxAdap, {"steps": 3}),
    "network": (NetworkAdap, SHORT | {"hidden": 2}),
}
CLASSIFIERS = (NCnvxAdap, NetworkAdap)


def records(kind):
    label = (
        (lambda each: Domain(each.X, (each.y > 0).astype(float)))
        if issubclass(kind, CLASSIFIERS)
        else lambda each: each
    )
    return label(DATA.source), label(DATA.target)


def replaced(target, x, y):
    X, labels = target.X.copy(), target.y.copy()
    X[4], labels[4] = x, y
    return X, labels


# a network's records of no number and of no label are records of zeros in test_adaptation_network.py
@pytest.mark.parametrize("name", [*list(PRIVATE)[:-1], pytest.param("network", marks=pytest.mark.evidence)])
def test_a_record_that_is_no_number_is_one_record(name):
    """A record that is no number is one record, whatever it holds."""
    kind, options = PRIVATE[name]
    source, target = records(kind)
    fit = lambda rows: kind(epsilon=1.0, delta=1e-2, unsafe_seed=1, **options).fit(source, rows).coef_
    nothing = [([np.nan] * 3, 0.0), ([1.0, np.inf, 0.0], 0.0), ([-np.inf, np.nan, 1e300], 0.0)]
    first, *others = (fit(replaced(target, *each)) for each in nothing)
    assert all(np.array_equal(first, other) for other in others)
    for y in (np.nan, np.inf, -np.inf):  # a label that is none
        assert np.all(np.isfinite(fit(replaced(target, 0.1, y))))


class Hostile:
    def __float__(self):
        raise RuntimeError("4711 Main Street")


CELLS = ["4711 Main Street", None, "", 10**400, -(10**400), 1 + 2j, Hostile(), [1.0, 2.0], {}, np.ma.masked, pd.NA, pd.NaT,
         np.longdouble("1e4000"), b"no"]  # fmt: skip


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: type(cell).__name__)
def test_any_object_in_a_cell_changes_one_record_alone(cell):
    """Any object in a cell becomes one record of zeros, and no other cell is read otherwise."""
    others = [0.1, np.float32(0.1), 2**62 + 1, True, "0.1", np.longdouble("0.1"), 3]
    spoilt = np.empty((8, 2), dtype=object)
    spoilt[:, 0], spoilt[:, 1] = 1.0, [*others, 0.25]
    spoilt[7, 0] = cell
    clean = spoilt.copy()
    clean[7, 0] = 0.5
    shapes = (lambda cells: cells, pd.DataFrame, lambda cells: pd.DataFrame(cells).infer_objects())
    for shape in (*shapes, *([] if isinstance(cell, list) else [lambda cells: cells.tolist()])):
        one, other = (Domain(shape(cells), np.ones(8)) for cells in (clean, spoilt))
        assert np.array_equal(one.X[:7], other.X[:7])
        assert one.X[:7, 1].tolist() == [float(each) for each in others]
        assert not np.any(other.bounded(1e30, 1.0).X[7])
        assert other.bounded(1e30, 1.0).y[7] == 0
        of = Domain(np.ones((8, 1)), shape(spoilt)[0] if isinstance(shape(spoilt), pd.DataFrame) else spoilt[:, 0])
        assert of.y[:7].tolist() == [1.0] * 7
        assert not np.isfinite(of.y[7])
        assert (of.bounded(1e30, 1.0).X[7], of.bounded(1e30, 1.0).y[7]) == (0, 0)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("cell", ["unknown", None, 7.0, pd.Timedelta("3D"), np.timedelta64(3, "ns")], ids=repr)
def test_one_text_among_durations_changes_no_other_record(cell):
    """A duration is no number, in a column of durations and in one of anything."""
    days = np.arange(260, 268).astype("m8[D]")
    spoilt = days.astype(object)
    spoilt[5] = cell
    for container in (list, pd.Series, lambda values: values):
        clean, other = (Domain(np.ones((8, 1)), container(y)).bounded(1.0, 300.0).y for y in (days, spoilt))
        assert np.array_equal(np.delete(clean, 5), np.delete(other, 5))
        assert np.array_equal(np.delete(clean, 5), np.zeros(7))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("row", [[], [1.0], [1.0, 2.0, 3.0, 4.0], None, 7.0, "4711 Main Street"], ids=repr)
def test_a_row_of_another_length_is_one_record_of_zeros(row):
    source, X = DATA.source, DATA.target.X.tolist()
    spoilt = [row, *X[1:]]
    for others in (X, spoilt):
        _, private = pair(source, (others, DATA.target.y))
        assert np.array_equal(private.X[1:], DATA.target.X[1:])
    assert not private.bounded(1.0, 1.0).X[0].any()
    assert np.array_equal(Domain(spoilt, DATA.target.y).X[1:], DATA.target.X[1:])
    fit = lambda rows: AdaSSP(epsilon=1.0, delta=1e-2, unsafe_seed=1).fit(source, (rows, DATA.target.y)).coef_
    assert np.array_equal(fit(spoilt), fit([[np.nan] * 3, *X[1:]]))


def test_no_error_shows_the_names_of_a_private_table():
    """In a table without a head they are its first record."""
    source = pd.DataFrame(DATA.source.X, columns=["a", "b", "c"])
    private = pd.DataFrame(DATA.target.X, columns=["4711 Main Street", "0.25", "1"])
    with pytest.raises(
        ValueError, match=r"^target: expected the source's features \['a', 'b', 'c'\] in this order"
    ) as error:
        pair((source, DATA.source.y), (private, DATA.target.y))
    assert "4711" not in str(error.value)


@pytest.mark.parametrize("name", PRIVATE)
def test_any_table_has_an_answer_and_costs_what_it_says(name):
    kind, options = PRIVATE[name]
    source, target = records(kind)
    X, y = target.X, target.y
    last = np.column_stack([X[:, :2], np.full(20, 0.1)])
    tables = {
        "long": (X * 1e300, y),
        "one long": replaced(target, 1e300, 1.0),
        "alike": (np.repeat(X[:1], 20, axis=0), np.repeat(y[:1], 20)),
        "none": (X[:0], y[:0]),
        "one": (X[:1], y[:1]),
        "constant": (last, y),
        "zeros": (0 * X, 0 * y),
        "short": (X * 1e-300, y),
        "nowhere": (X * np.nan, y * np.nan),
    }
    book = Ledger(epsilon=50.0, delta=0.5, unit="target record")
    for called, table in tables.items():
        model = kind(epsilon=1.0, delta=1e-2, ledger=book, **options).fit(source, table)
        assert np.all(np.isfinite(model.coef_)), called
        assert model.guarantee_.proved.epsilon == 1.0
    one = slice(0, 1)
    for public, private in [
        ((source.X[:, one], source.y), (X[:, one], y)),  # one feature
        ((np.column_stack([source.X[:, :2], np.full(60, 0.1)]), source.y), (last, y)),  # one that never varies
        ((0 * source.X, source.y), (X, y)),  # public rows that say nothing
    ]:
        assert np.all(np.isfinite(kind(epsilon=1.0, delta=1e-2, ledger=book, **options).fit(public, private).coef_))
    assert len(book.charges()) == len(tables) + 3


@pytest.mark.parametrize("model", [Unprotected(), Unprotected("pooled"), KMM(), DiscrepancyMinimisation()], ids=repr)
def test_yardsticks_without_a_promise_say_what_they_cannot_read(model):
    for value, message in ((np.nan, "target: expected finite numbers, got 1 records"), (1e200, "numbers up to 1e")):
        with pytest.raises(ValueError, match=message):
            model.fit(DATA.source, replaced(DATA.target, value, 0.0))
    assert np.all(np.isfinite(model.fit(DATA.source, (DATA.target.X[:0], DATA.target.y[:0])).coef_))


def test_public_records_may_be_spoken_of():
    for model in (SourceOnly(), MomentAdaptation(), CnvxAdap(), AdaSSP()):
        with pytest.raises(ValueError, match="source: expected numbers up to 1e"):
            model.fit((DATA.source.X * 1e300, DATA.source.y), DATA.target)


def test_what_is_free_after_a_release_of_anything_is_finite():
    for table in ((DATA.target.X * np.nan, DATA.target.y), (DATA.target.X[:0], DATA.target.y[:0])):
        release = MomentAdaptation(epsilon=0.1, delta=1e-2, draws=5).fit(DATA.source, table).release_
        assert np.all(np.isfinite(release.ridge()))
        assert np.isfinite(release.discrepancy(DATA.source, 0.1).value)
        assert np.all(np.isfinite(tilted(release, DATA.source, draws=3).weights))


def test_the_command_has_an_answer_for_any_table(tmp_path, capsys):
    names = ["a", "b", "c"]
    public = pd.DataFrame(DATA.source.X, columns=names).assign(y=DATA.source.y)
    public.to_csv(tmp_path / "public.csv", index=False)
    private = pd.DataFrame(DATA.target.X, columns=names).assign(y=DATA.target.y)
    tables = {
        "none": private[:0],
        "alike": private.iloc[[0] * 20],
        "constant": private.assign(c=1.0),
        "words": private.assign(b="4711 Main Street"),
        "long": private.assign(a=1e300),
    }
    for name, table in tables.items():
        table.to_csv(tmp_path / f"{name}.csv", index=False)
        asked = [
            "--source",
            "public.csv",
            "--target",
            f"{name}.csv",
            "--label",
            "y",
            "--epsilon",
            "1",
            "--delta",
            "1e-2",
        ]
        assert main(["adapt", *(str(tmp_path / each) if each.endswith("csv") else each for each in asked)]) == 0, name
        said, error = capsys.readouterr()
        assert len(error.splitlines()) == 1  # the features
        assert "nan" not in said
        assert "4711" not in said
    one = Domain(DATA.source.X[:, :1], DATA.source.y), Domain(DATA.target.X[:, :1], DATA.target.y)
    assert np.all(np.isfinite(adapt(*one, label="y", epsilon=1.0, intercept=False).posterior.mean))
