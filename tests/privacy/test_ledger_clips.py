"""The ledger: a clip norm that was bought is paid for once."""

import numpy as np
import pytest
from helpers.ledgers import ledger

from mpmtl_prob import TaskData
from mpmtl_prob.estimators import LowRank, RowProtection
from mpmtl_prob.privacy import BudgetExceeded, Ledger, Quantile, VectorLaplace, compute_epsilon, draw_vectors
from mpmtl_prob.releases import private_clip_norm, release

W = np.random.default_rng(0).standard_normal((3, 8))
H = 2.0**-10


def clipped(book, clip, eps=0.4):
    return release(W, eps, 1e-3, message="clip", clip=clip, ledger=book)


def test_an_unpaid_clip_norm_is_charged_once_with_its_rounds():
    """A clip norm that nobody has paid for is charged once, with the rounds."""
    book = ledger(epsilon=3.0)
    bought = private_clip_norm(W, 0.2, low=0.1, high=10)
    first, second = clipped(book, bought), clipped(book, bought)
    laws = [(bought.law,), first.mechanisms, second.mechanisms]
    assert [charge.mechanisms for charge in book.charges()] == laws
    assert book.spent.epsilon == pytest.approx(
        compute_epsilon(1e-3, (bought.law, *first.mechanisms, *second.mechanisms))
    )
    clipped(book, private_clip_norm(W, 0.2, low=0.1, high=10))  # another purchase at the same price
    assert len(book.charges()) == 5


def test_a_paid_clip_norm_is_not_charged_again(tmp_path):
    """A clip norm that this ledger has paid for is not charged again."""
    bought = private_clip_norm(W, 0.2, low=0.1, high=10, ledger=ledger(tmp_path / "book"))
    book = Ledger(tmp_path / "book")
    out = clipped(book, bought)
    assert [charge.mechanisms for charge in book.charges()] == [(bought.law,), out.mechanisms]


def test_a_clip_norm_that_another_ledger_paid_for_is_refused():
    book = ledger()
    bought = private_clip_norm(W, 0.2, low=0.1, high=10, ledger=ledger())
    with pytest.raises(ValueError, match=r"^clip: .* paid for by another ledger"):
        clipped(book, bought)
    assert book.charges() == []


def test_a_clip_norm_with_the_price_of_another_charge_is_refused():
    book = ledger()
    bought = private_clip_norm(W, 0.2, low=0.1, high=10, ledger=book)
    dear = type(bought)(bought.clip, Quantile(0.4), bought.id, bought.ledger)
    with pytest.raises(ValueError, match=r"^clip: expected the price that the ledger holds"):
        clipped(book, dear)
    assert len(book.charges()) == 1


def test_purchase_and_rounds_beyond_the_budget_both_stay_unpaid():
    """Neither the purchase nor the rounds are charged where they are too much together."""
    bought = private_clip_norm(W, 0.2, low=0.1, high=10)
    alone, book = ledger(epsilon=0.38), ledger(epsilon=0.38)
    alone.charge(clipped(None, bought).mechanisms)  # the rounds without what was bought do fit
    with pytest.raises(BudgetExceeded):
        clipped(book, bought)
    assert book.charges() == []


def test_both_ledgers_of_an_algorithm_pay_for_the_clip_norm():
    """The rounds of an algorithm pay for their clip norm in both ledgers."""
    rng = np.random.default_rng(1)
    tasks = TaskData.from_lists([rng.standard_normal((5, 3)) for _ in range(6)], [rng.standard_normal(5)] * 6)
    bought = private_clip_norm(tasks, 0.2, low=0.1, high=10, scaling="none")
    book, rows = ledger(epsilon=5.0), ledger(epsilon=5.0, unit="row")
    LowRank(penalty=0.5, epsilon=1.0, rounds=1, clip=bought, delta=1e-3, step_size=0.1, mechanism="calibrated",
            ledger=book, rows=RowProtection(1.0, 1e-3, rows)).fit(tasks)  # fmt: skip
    assert [charge.mechanisms[0].kind for charge in book.charges()] == ["Quantile", "Wishart"]
    assert [charge.mechanisms[0].kind for charge in rows.charges()] == ["Quantile", "VectorLaplace"]


def test_noise_on_vectors_pays_for_the_norm_that_bounds_them():
    rows, law = ledger(epsilon=2.0, unit="row"), VectorLaplace(3, 0.5, 2.0)
    for bought in (
        private_clip_norm(W, 0.2, low=0.1, high=10),
        private_clip_norm(W, 0.2, low=0.1, high=10, ledger=ledger()),
    ):
        _, guarantee = draw_vectors((law,), 8, epsilon=0.6, lattice=H, ledger=rows, data=W, purchases=(bought,))
        _, free = draw_vectors((law,), 8, epsilon=0.6, lattice=H)
        assert guarantee.proved.delta > free.proved.delta
    # a ledger of rows counts for itself: what a ledger of tasks paid is charged here as well
    assert [charge.mechanisms[0].kind for charge in rows.charges()] == ["Quantile", "VectorLaplace"] * 2
    assert [charge.unit for charge in rows.charges()] == ["task", "row"] * 2
