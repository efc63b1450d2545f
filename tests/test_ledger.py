"""The ledger: what it counts, what it refuses, and what a crash or a second process can do to it."""

import copy
import json
import os
import pickle
import shutil
import sqlite3
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from effort import effort

from mpmtl_prob import TaskData
from mpmtl_prob.estimators import LowRank, RowProtection
from mpmtl_prob.privacy import (
    BudgetExceeded,
    Gaussian,
    Ledger,
    LedgerAltered,
    PaperTaskWishart,
    PaperWishart,
    Quantile,
    VectorLaplace,
    Wishart,
    calibrate,
    draw_vectors,
    epsilon,
)
from mpmtl_prob.privacy.guarantee import Bound
from mpmtl_prob.releases import Terms, buy_clip, release
from mpmtl_prob.releases.release import perturb

W = np.random.default_rng(0).standard_normal((3, 8))
H = 2.0**-10


def ledger(path=None, **change):
    return Ledger(path, **({"epsilon": 1.0, "delta": 1e-3} | change))


@pytest.fixture(scope="module")
def crashes():
    if not hasattr(os, "fork"):
        pytest.skip("the harness forks a process for every place to kill it at, which this system cannot")
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    script = Path(__file__).with_name("crash_harness.py")
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=280, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_no_crash_at_any_line_or_data_base_step_loses_a_charge(crashes):
    assert crashes["faults"] == []
    # the kills did fall before the draw and after it
    assert crashes["lines"] > 200
    assert crashes["instructions"] > 100
    assert 0 < crashes["draws"][0] < crashes["lines"]


def test_the_crash_test_catches_a_library_that_pays_after_drawing(crashes):
    assert any("1 draws, 0 charges" in fault for fault in crashes["control"])


def test_concurrent_processes_cannot_both_spend_the_last_of_the_budget(crashes):
    race = crashes["race"]
    assert race["through"] == race["held"] == race["allowed"] > 1


def test_charges_compose_and_the_one_too_many_is_refused_and_not_written():
    book, law = ledger(), calibrate(0.3, 1e-4, 3)
    refusal, through = None, 0
    while refusal is None:
        try:
            book.charge(law)
            through += 1
        except BudgetExceeded as error:
            refusal = str(error)
    assert refusal.startswith("ledger: at delta = 0.001 the declared total is eps = 1, of which 0.")
    assert refusal.endswith("Nothing was charged.")
    assert len(book.charges()) == through > 3  # more than eps = .3 each allows by plain addition
    assert book.spent.epsilon == pytest.approx(epsilon(1e-3, (law,) * through))
    assert book.spent.epsilon <= 1.0 < epsilon(1e-3, (law,) * (through + 1))


def test_rounds_are_reserved_at_once_or_paid_one_by_one_at_the_same_price():
    law, together, apart = calibrate(1.0, 1e-3, 3, 5), ledger(), ledger()

    on_lattice = np.rint(W / H) * H

    def through_the_door(book, rounds):
        return perturb(
            lambda noise: (on_lattice @ on_lattice.T + noise, None),
            Terms((law,) * rounds, epsilon=1.0, adjacency="replace", num_tasks=8, features=range(3), lattice=H),
            ledger=book,
        )[0]

    assert through_the_door(together, 5).rounds == 5
    for _ in range(5):
        assert through_the_door(apart, 1).rounds == 1
    assert [len(charge.mechanisms) for charge in together.charges()] == [5]
    assert [len(charge.mechanisms) for charge in apart.charges()] == [1] * 5
    assert together.spent == apart.spent
    for book in (together, apart):
        with pytest.raises(BudgetExceeded):
            through_the_door(book, 1)


def test_a_ledger_outlives_the_process_that_made_it(tmp_path):
    path = tmp_path / "ledger"
    first = ledger(path, adjacency="zero_out")
    release(W, 0.5, 1e-3, ledger=first, adjacency="zero_out")
    second = Ledger(path)
    assert (second.epsilon, second.delta, second.adjacency, second.unit) == (1.0, 1e-3, "zero_out", "task")
    assert second.charges() == first.charges()
    assert second.spent == Bound(pytest.approx(0.5, rel=1e-5), 1e-3, "zero_out")
    assert second.fingerprint(W) == first.fingerprint(W) == first.charges()[0].fingerprint
    assert second.fingerprint(W + 1e-12) != first.fingerprint(W)
    assert ledger().fingerprint(W) != first.fingerprint(W)  # under another key


def test_a_copy_is_the_same_account(tmp_path):
    kept = ledger(tmp_path / "ledger")
    assert copy.deepcopy({"ledger": kept})["ledger"] is copy.copy(kept) is kept
    again = pickle.loads(pickle.dumps(kept))
    assert (again.id, again.epsilon) == (kept.id, kept.epsilon)
    release(np.eye(3), 0.1, 1e-3, ledger=again)
    assert len(kept.charges()) == 1
    with pytest.raises(ValueError, match="ledger: expected one with a path"):
        pickle.dumps(ledger())


def test_a_mixture_of_laws_is_counted():
    book = ledger(epsilon=3.0)
    laws = [calibrate(1.0, 1e-4, 3), Gaussian(3, 4.0), Wishart(3, 60.0, 0.9)]
    for law in laws:
        book.charge(law)
    assert [charge.mechanisms[0] for charge in book.charges()] == laws
    bought = buy_clip(W, 0.1, low=0.1, high=10, ledger=book)
    assert book.charges()[-1].mechanisms == (bought.law,)
    assert book.spent.epsilon == pytest.approx(epsilon(1e-3, (*laws, bought.law)))


def test_the_papers_noise_does_not_fit_a_budget_with_a_small_delta():
    book = ledger()
    with pytest.raises(BudgetExceeded, match="no finite eps would hold"):
        release(W, 1.0, 1e-3, mechanism="paper", ledger=book)
    assert book.charges() == []


def test_what_is_not_proved_is_not_sold():
    book = ledger()
    with pytest.raises(ValueError, match="mechanisms: expected mechanisms with a proof"):
        book.charge(PaperTaskWishart(3, 0.1))
    with pytest.raises(ValueError, match="unsafe_seed: expected none with a ledger"):
        release(W, 0.5, 1e-3, ledger=book, unsafe_seed=1)
    with pytest.raises(ValueError, match="unit: expected 'task'"):
        book.charge(PaperWishart(3, 1e-5), unit="row")
    assert book.charges() == []


def test_a_ledger_of_rows_takes_charges_for_tasks():
    book = ledger(unit="row")
    book.charge(calibrate(0.5, 1e-3, 3))
    assert book.charges()[0].unit == "task"
    with pytest.raises(ValueError, match="adjacency: expected 'replace' for the unit 'row'"):
        ledger(unit="row", adjacency="zero_out")


def test_repr_says_what_is_left_and_where_it_is_kept(tmp_path):
    assert "in memory only: it is gone when this process ends" in repr(ledger())
    book = ledger(tmp_path / "book")
    book.charge(calibrate(0.5, 1e-3, 3))
    assert "declared: eps = 1, delta = 0.001 (replace, one task)" in repr(book)
    assert "spent: eps = 0.5 in 1 charge" in repr(book)
    assert str(tmp_path / "book") in repr(book)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": None}, "epsilon and delta"),
        ({"delta": 1.0}, "delta"),
        ({"adjacency": "swap"}, "adjacency"),
        ({"unit": "hospital"}, "unit"),
        ({"timeout": 0}, "timeout"),
        ({"adaptive": 1}, "adaptive"),
    ],
)
def test_a_bad_argument_is_named_and_no_total_is_written(tmp_path, change, name):
    with pytest.raises(ValueError, match=f"^{name}: expected"):
        ledger(tmp_path / "book", **change)
    ledger(tmp_path / "book", epsilon=2.0)  # still free to be declared


def test_a_contradiction_with_the_file_is_named(tmp_path):
    ledger(tmp_path / "book")
    for change, name in (
        ({"epsilon": 2.0}, "epsilon"),
        ({"delta": 0.1}, "delta"),
        ({"adjacency": "zero_out"}, "adjacency"),
        ({"adaptive": True}, "adaptive"),
    ):
        with pytest.raises(ValueError, match=f"^{name}: expected .* as the ledger declares"):
            Ledger(tmp_path / "book", **change)


def test_a_file_that_is_no_ledger_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("chapter one " * 100)
    with pytest.raises(ValueError, match="path: cannot use"):
        ledger(tmp_path / "thesis.txt")
    assert (tmp_path / "thesis.txt").read_text() == "chapter one " * 100
    with pytest.raises(ValueError, match="path: cannot use"):
        ledger(tmp_path / "no folder" / "book")


# -- what was bought ------------------------------------------------------------------------------------------------------


def clipped(book, clip, eps=0.4):
    return release(W, eps, 1e-3, message="clip", clip=clip, ledger=book)


def test_a_clip_norm_that_nobody_paid_for_is_charged_with_the_rounds_and_once():
    book = ledger(epsilon=3.0)
    bought = buy_clip(W, 0.2, low=0.1, high=10)
    first, second = clipped(book, bought), clipped(book, bought)
    laws = [(bought.law,), first.mechanisms, second.mechanisms]
    assert [charge.mechanisms for charge in book.charges()] == laws
    assert book.spent.epsilon == pytest.approx(epsilon(1e-3, (bought.law, *first.mechanisms, *second.mechanisms)))
    clipped(book, buy_clip(W, 0.2, low=0.1, high=10))  # another purchase at the same price
    assert len(book.charges()) == 5


def test_a_clip_norm_that_this_ledger_paid_for_is_not_charged_again(tmp_path):
    bought = buy_clip(W, 0.2, low=0.1, high=10, ledger=ledger(tmp_path / "book"))
    book = Ledger(tmp_path / "book")
    out = clipped(book, bought)
    assert [charge.mechanisms for charge in book.charges()] == [(bought.law,), out.mechanisms]


def test_a_clip_norm_that_another_ledger_paid_for_is_refused():
    book = ledger()
    bought = buy_clip(W, 0.2, low=0.1, high=10, ledger=ledger())
    with pytest.raises(ValueError, match=r"^clip: .* paid for by another ledger"):
        clipped(book, bought)
    assert book.charges() == []


def test_a_clip_norm_with_the_price_of_another_charge_is_refused():
    book = ledger()
    bought = buy_clip(W, 0.2, low=0.1, high=10, ledger=book)
    dear = type(bought)(bought.clip, Quantile(0.4), bought.id, bought.ledger)
    with pytest.raises(ValueError, match=r"^clip: expected the price that the ledger holds"):
        clipped(book, dear)
    assert len(book.charges()) == 1


def test_where_purchase_and_rounds_are_too_much_together_neither_is_charged():
    bought = buy_clip(W, 0.2, low=0.1, high=10)
    alone, book = ledger(epsilon=0.38), ledger(epsilon=0.38)
    alone.charge(clipped(None, bought).mechanisms)  # the rounds without what was bought do fit
    with pytest.raises(BudgetExceeded):
        clipped(book, bought)
    assert book.charges() == []


def test_rounds_of_an_algorithm_pay_for_their_clip_norm_in_both_ledgers():
    rng = np.random.default_rng(1)
    tasks = TaskData.from_lists([rng.standard_normal((5, 3)) for _ in range(6)], [rng.standard_normal(5)] * 6)
    bought = buy_clip(tasks, 0.2, low=0.1, high=10, scaling="none")
    book, rows = ledger(epsilon=5.0), ledger(epsilon=5.0, unit="row")
    LowRank(penalty=0.5, epsilon=1.0, rounds=1, clip=bought, delta=1e-3, step_size=0.1, mechanism="calibrated",
            ledger=book, rows=RowProtection(1.0, 1e-3, rows)).fit(tasks)  # fmt: skip
    assert [charge.mechanisms[0].kind for charge in book.charges()] == ["Quantile", "Wishart"]
    assert [charge.mechanisms[0].kind for charge in rows.charges()] == ["Quantile", "VectorLaplace"]


def test_noise_on_vectors_pays_for_the_norm_that_bounds_them():
    rows, law = ledger(epsilon=2.0, unit="row"), VectorLaplace(3, 0.5, 2.0)
    for bought in (buy_clip(W, 0.2, low=0.1, high=10), buy_clip(W, 0.2, low=0.1, high=10, ledger=ledger())):
        _, guarantee = draw_vectors((law,), 8, epsilon=0.6, lattice=H, ledger=rows, data=W, besides=(bought,))
        _, free = draw_vectors((law,), 8, epsilon=0.6, lattice=H)
        assert guarantee.proved.delta > free.proved.delta
    # a ledger of rows counts for itself: what a ledger of tasks paid is charged here as well
    assert [charge.mechanisms[0].kind for charge in rows.charges()] == ["Quantile", "VectorLaplace"] * 2
    assert [charge.unit for charge in rows.charges()] == ["task", "row"] * 2


# -- what was written stays written ---------------------------------------------------------------------------------------

LAW = Wishart(3, 200.0, 30.0)


def filled(path, charges=3):
    book = ledger(path)
    for _ in range(charges):
        book.charge(LAW)
    return book


def execute(path, *statements):
    with sqlite3.connect(path) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


def test_a_receipt_is_small_json_and_holds_as_the_ledger_grows(tmp_path):
    book = ledger(tmp_path / "book")
    receipts = [book.export_receipt()]
    for _ in range(3):
        book.charge(LAW)
        receipts.append(json.loads(json.dumps(book.export_receipt())))
    assert [each["charges"] for each in receipts] == [0, 1, 2, 3]
    assert len(json.dumps(receipts[-1])) < 250
    for each in receipts:
        Ledger(tmp_path / "book").verify(each)


def test_an_older_copy_in_the_ledgers_place_is_seen_by_whoever_kept_a_receipt(tmp_path):
    path = tmp_path / "book"
    book = filled(path)
    early = book.export_receipt()
    shutil.copy(path, tmp_path / "copy")
    book.charge(LAW)
    late = book.export_receipt()
    shutil.copy(tmp_path / "copy", path)
    restored = Ledger(path)
    restored.verify(early)  # nothing older is missing
    with pytest.raises(LedgerAltered, match="its number of charges is 3, and was 4"):
        restored.verify(late)
    restored.charge(Wishart(3, 300.0, 30.0))  # as many charges as there were, with another at the end
    with pytest.raises(LedgerAltered, match="first 4 charges were changed"):
        restored.verify(late)


def test_a_ledger_that_was_deleted_and_declared_anew_is_seen(tmp_path):
    path = tmp_path / "book"
    for charges in (0, 3):
        receipt = filled(path, charges).export_receipt()
        path.unlink()
        with pytest.raises(LedgerAltered, match="another one is in the place"):
            filled(path, charges).verify(receipt)
        path.unlink()


@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE charge SET mechanisms = replace(mechanisms, '30.0', '90.0') WHERE id = 2",
        "UPDATE charge SET time = '2020-01-01T00:00:00+00:00' WHERE id = 1",
        "UPDATE charge SET token = '' WHERE id = 3",
        "DELETE FROM charge WHERE id = 2",
        "UPDATE total SET epsilon = 1.5",
        "UPDATE total SET adaptive = 1",
    ],
)
def test_an_edited_ledger_is_refused_by_all_that_read_it(tmp_path, edit):
    receipt = filled(tmp_path / "book").export_receipt()
    execute(tmp_path / "book", edit)
    book = Ledger(tmp_path / "book")
    for use in (lambda: book.spent, lambda: book.charge(LAW), book.export_receipt, lambda: book.verify(receipt)):
        with pytest.raises(LedgerAltered, match=r"^ledger: charge [123] is not what was written"):
            use()


@pytest.mark.parametrize(
    "bad", [None, {}, "receipt", {"ledger": 1}, {"ledger": "", "charges": "one", "head": "", "time": ""}]
)
def test_what_is_no_receipt_is_named(bad):
    with pytest.raises(ValueError, match=r"^receipt: "):
        ledger().verify(bad)


@pytest.mark.skipif(os.name != "posix", reason="Windows has no modes: a file there is as open as its folder")
def test_the_file_and_its_journal_are_for_the_owner_alone(tmp_path):
    filled(tmp_path / "book", 1)
    connection = sqlite3.connect(tmp_path / "book", isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("UPDATE total SET epsilon = 2")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    connection.execute("ROLLBACK")
    connection.close()
    assert modes == {"book": 0o600, "book-journal": 0o600}


def test_a_ledger_of_the_first_version_opens_and_is_chained(tmp_path):
    path, old = (
        tmp_path / "book",
        json.dumps([{"kind": "Wishart", "num_features": 3, "df": 200.0, "scale": 30.0, "clip": 1.0}]),
    )
    execute(
        path,
        "CREATE TABLE total (id INTEGER PRIMARY KEY CHECK (id = 1), epsilon REAL, delta REAL, adjacency TEXT, unit TEXT, "
        "salt BLOB)",
        "CREATE TABLE charge (id INTEGER PRIMARY KEY, time TEXT, fingerprint TEXT, unit TEXT, adjacency TEXT, "
        "mechanisms TEXT)",
        "INSERT INTO total VALUES (1, 1.0, 0.001, 'replace', 'task', x'00112233')",
        *[
            f"INSERT INTO charge VALUES ({n}, '2026-01-0{n}T00:00:00+00:00', '', 'task', 'replace', '{old}')"
            for n in (1, 2)
        ],
    )
    path.chmod(0o644)
    book = Ledger(path)
    assert [charge.mechanisms for charge in book.charges()] == [(LAW,)] * 2
    assert (book.epsilon, book.adaptive) == (1.0, False)
    assert os.name != "posix" or stat.S_IMODE(path.stat().st_mode) == 0o600
    receipt = book.export_receipt()
    book.charge(LAW)
    Ledger(path).verify(receipt)
    assert len(Ledger(path).charges()) == 3
    execute(path, "UPDATE charge SET time = '2026-01-05T00:00:00+00:00' WHERE id = 1")
    with pytest.raises(LedgerAltered, match="charge 1"):
        Ledger(path).charges()


def test_a_law_that_no_ledger_can_read_again_is_refused_before_it_is_written():
    @dataclass(frozen=True)
    class Homemade:
        epsilon: float
        kind: ClassVar[str] = "Homemade"
        unproved: ClassVar[str] = ""
        loss_spread: ClassVar[float] = 0.1

        def loss_distribution(self, adjacency, *, interval=None, pessimistic=True):
            return Quantile(self.epsilon).loss_distribution(adjacency, interval=interval, pessimistic=pessimistic)

    class Dearer(Quantile):
        """Reads again as another law."""

    book = ledger()
    for law in (Homemade(0.05), Dearer(0.05), "Wishart", None):
        with pytest.raises(ValueError, match=r"^mechanisms: expected laws that a ledger can read again"):
            book.charge([law])
    book.charge(Wishart(np.int64(3), np.float64(200.0), 30.0))
    assert [charge.mechanisms for charge in book.charges()] == [(LAW,)]


# -- budgets that are chosen by looking -----------------------------------------------------------------------------------


def spend(book, law):
    """Charge until refused; the refusal."""
    try:
        for _ in range(100):
            book.charge(law)
    except BudgetExceeded as refusal:
        return str(refusal)
    raise AssertionError("it never refused")


def test_an_adaptive_ledger_refuses_by_the_filter_and_says_so(tmp_path):
    law, counts = calibrate(effort(0.25, 0.15), 1e-4, 3), {}
    for adaptive in (False, True):
        book = ledger(tmp_path / str(adaptive), adaptive=adaptive)
        refusal = spend(book, law)
        counts[adaptive] = len(book.charges())
        assert ("for budgets chosen by looking" in refusal) == adaptive
        assert Ledger(tmp_path / str(adaptive)).adaptive == adaptive
        assert book.spent.epsilon <= book.spent_adaptively.epsilon
        assert (book.spent_adaptively.epsilon <= 1.0) == adaptive
        assert f"the {'second' if adaptive else 'first'} refuses" in repr(book)
    assert counts[False] / 2 < counts[True] < counts[False]
