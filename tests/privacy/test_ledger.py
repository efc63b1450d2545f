"""The ledger: what it counts, what it refuses, and what a crash or a second process can do to it."""

import copy
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers.effort import effort
from helpers.ledgers import ledger

from mpmtl_prob.privacy import (
    BudgetExceeded,
    Gaussian,
    Ledger,
    PaperTaskWishart,
    PaperWishart,
    Quantile,
    VectorLaplace,
    Wishart,
    calibrate,
    calibrate_gaussian,
    compute_epsilon,
)
from mpmtl_prob.privacy.guarantee import Bound
from mpmtl_prob.releases import Terms, private_clip_norm, release
from mpmtl_prob.releases.publish import publish_rounds

W = np.random.default_rng(0).standard_normal((3, 8))
H = 2.0**-10


@pytest.fixture(scope="module")
def crashes():
    if not hasattr(os, "fork"):
        pytest.skip("the harness forks a process for every place to kill it at, which this system cannot")
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    script = Path(__file__).parents[1] / "helpers" / "crash_harness.py"
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


def test_the_crash_test_catches_paying_after_drawing(crashes):
    """The crash test catches a library that pays after it has drawn."""
    assert any("1 draws, 0 charges" in fault for fault in crashes["control"])


def test_processes_at_once_cannot_overspend_the_last_budget(crashes):
    """Processes that run at once cannot both spend the last of the budget."""
    race = crashes["race"]
    assert race["through"] == race["held"] == race["allowed"] > 1


def test_charges_compose_and_one_too_many_is_not_written():
    """Charges compose; the one that is too many is refused and not written."""
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
    assert book.spent.epsilon == pytest.approx(compute_epsilon(1e-3, (law,) * through))
    assert book.spent.epsilon <= 1.0 < compute_epsilon(1e-3, (law,) * (through + 1))


def test_rounds_cost_the_same_at_once_or_one_by_one():
    """Rounds cost the same whether they are reserved at once or paid one by one."""
    law = calibrate(1.0, 1e-3, 3, 5)
    together = ledger()
    apart = ledger()

    on_lattice = np.rint(W / H) * H

    def through_the_door(book, rounds):
        return publish_rounds(
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
    bought = private_clip_norm(W, 0.1, low=0.1, high=10, ledger=book)
    assert book.charges()[-1].mechanisms == (bought.law,)
    assert book.spent.epsilon == pytest.approx(compute_epsilon(1e-3, (*laws, bought.law)))


@pytest.mark.parametrize("law", [Gaussian(3, 5e-3), Gaussian(3, 2e-4), Quantile(2e4), VectorLaplace(3, 9e3, 1.0)])
def test_what_was_let_through_is_spent_in_finite_numbers(law):
    book = ledger(epsilon=1e12)
    book.charge(law)
    assert book.spent.epsilon < 1e9
    assert book.spent.epsilon == pytest.approx(compute_epsilon(1e-3, law))


def test_what_costs_more_than_can_be_counted_is_refused():
    book = ledger(epsilon=1e12)
    with pytest.raises(BudgetExceeded, match="no finite eps would hold"):
        book.charge(Gaussian(3, 2e-5))
    assert book.charges() == []


def test_the_papers_noise_does_not_fit_a_small_delta():
    """The papers' noise does not fit a budget with a small delta."""
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
    assert "spent: eps = 0.5, counted at this delta, in 1 charge; budgets settled beforehand" in repr(book)
    assert str(tmp_path / "book") in repr(book)


@pytest.mark.parametrize("adaptive", [False, True])
@pytest.mark.parametrize("adjacency", ["replace", "zero_out"])
@pytest.mark.parametrize("make", [calibrate, calibrate_gaussian])
def test_a_release_of_the_remaining_budget_is_accepted(adaptive, adjacency, make):
    """A release of what is left of the budget is accepted, and a larger one is refused."""
    book = ledger(epsilon=2.0, delta=5e-3, adaptive=adaptive, adjacency=adjacency)
    book.charge(make(0.9, 5e-3, 4, adjacency=adjacency))
    left = book.left.epsilon
    assert f"left: one release at eps {left:.3g}, delta 0.005" in repr(book)
    with pytest.raises(BudgetExceeded):
        book.charge(make(left * 1.01, 5e-3, 4, adjacency=adjacency))
    book.charge(make(left, 5e-3, 4, adjacency=adjacency))
    assert book.left is None or book.left.epsilon < left / 10
    assert ("left: nothing" in repr(book)) == (book.left is None)


def test_the_rest_of_gaussian_noise_is_the_rest_of_mu_squared():
    """The budget left for Gaussian noise is what is left of mu squared.

    Dong, Roth and Su (2022), Corollary 3.3: mu^2 adds up.
    """
    book = ledger(epsilon=2.0, delta=5e-3)
    total, first = calibrate_gaussian(2.0, 5e-3, 3), calibrate_gaussian(0.9, 5e-3, 3)
    book.charge(first)
    mu = np.sqrt(total.mu("replace") ** 2 - first.mu("replace") ** 2)
    sd = total.sd * total.mu("replace") / mu
    exact = compute_epsilon(5e-3, Gaussian(3, sd))
    assert exact * 0.99 < book.left.epsilon <= exact


def test_an_untouched_ledger_has_its_total_and_a_spent_one_zero():
    """An untouched ledger has its total left, and a spent one has nothing."""
    assert ledger().left == Bound(1.0, 1e-3, "replace")
    assert ledger(delta=1e-30).left is None  # no noise reaches it
    book = ledger()
    book.charge(calibrate(1.0, 1e-3, 3))
    assert book.left is None
    assert "left: nothing" in repr(book)
    rows = ledger(unit="row")
    assert rows.left.unit == "row"
    large = ledger(epsilon=1e6)
    assert large.left is None
    assert "left: not worked out for so large a total" in repr(large)


def test_charges_at_another_delta_count_at_the_declared_one():
    """A charge at another delta is counted at the declared one, and the printed ledger says so."""
    book = ledger(epsilon=3.0, delta=1e-2)
    book.charge(calibrate(1.5, 1e-3, 3))
    assert book.spent.epsilon < 1.2
    assert "counted at this delta" in repr(book)


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
        counted = book.spent_adaptively if adaptive else book.spent
        assert f"spent: eps = {counted.epsilon:.3g}, counted at this delta" in repr(book)
        assert repr(book).count("spent") == 1
        assert ("may be chosen by looking" in repr(book)) == adaptive
    assert counts[False] / 2 < counts[True] < counts[False]
