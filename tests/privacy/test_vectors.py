"""Noise on vectors: the law, what it gives away, and the door it comes through."""

import json

import numpy as np
import pytest
from helpers.effort import effort
from helpers.tolerances import FAR, RARE
from scipy import special, stats

from mpmtl_prob.privacy import (
    Bound,
    BudgetExceeded,
    IndependentLaplace,
    Ledger,
    VectorLaplace,
    calibrate,
    composition_bound,
    compute_delta,
    compute_epsilon,
    delta_bracket,
    draw_vectors,
    schedule,
)
from mpmtl_prob.privacy.mechanisms import read_mechanism, write_mechanism

LAWS = [VectorLaplace(3, 0.8, 2.0), IndependentLaplace(3, 0.8, 2.0)]


def test_the_length_is_gamma_and_the_direction_uniform():
    b = VectorLaplace(3, 0.8, 2.0).sample(np.random.default_rng(0), np.zeros((20_000, 3)))
    length = np.linalg.norm(b, axis=1)
    assert stats.kstest(length, stats.gamma(3, scale=2.0 / 0.8).cdf).pvalue > RARE
    # the first coordinate of a uniform direction in three dimensions is itself uniform (Archimedes)
    assert stats.kstest(b[:, 0] / length, stats.uniform(-1, 2).cdf).pvalue > RARE
    assert abs(stats.spearmanr(length, b[:, 1] / length).statistic) < FAR / np.sqrt(len(b))


def test_the_test_of_the_length_catches_the_inverted_exponent():
    # one version of the papers prints exp(-(s / eps) ||b||): of scale eps / s
    wrong = VectorLaplace(3, 2.0, 0.8).sample(np.random.default_rng(0), np.zeros((20_000, 3)))
    assert stats.kstest(np.linalg.norm(wrong, axis=1), stats.gamma(3, scale=2.0 / 0.8).cdf).pvalue < 1e-6


def test_independent_laplace_noise_is_laplace_in_every_entry():
    b = IndependentLaplace(3, 0.8, 2.0).sample(np.random.default_rng(1), np.zeros((5_000, 3)))
    assert stats.kstest(b.ravel(), stats.laplace(scale=2.0 / 0.8).cdf).pvalue > RARE


@pytest.mark.parametrize("law", [VectorLaplace(2, 1.5, 1.0), IndependentLaplace(2, 1.5, 1.0)], ids=lambda law: law.kind)
def test_densities_integrate_to_one(law):
    at, step = np.linspace(-12, 12, 801, retstep=True)
    density = np.exp(law.log_prob(np.stack(np.meshgrid(at, at), axis=-1), np.zeros(2)))
    assert density.sum() * step**2 == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.kind)
def test_no_release_separates_near_vectors_by_more_than_eps(law):
    """No release tells two vectors that are one sensitivity apart by more than eps."""
    rng = np.random.default_rng(2)
    move = rng.standard_normal((4000, 3))
    order = 2 if law.kind == "VectorLaplace" else 1
    move *= law.sensitivity / np.linalg.norm(move, order, axis=1, keepdims=True)
    w = rng.standard_normal((4000, 3))
    released = law.sample(rng, w)
    loss = law.log_prob(released, w) - law.log_prob(released, w + move)
    assert np.abs(loss).max() <= law.epsilon * (1 + 1e-12)
    far = w - 50 * move  # behind the first vector, seen from the second: the bound is attained
    assert np.allclose(law.log_prob(far, w) - law.log_prob(far, w + move), law.epsilon)


@pytest.mark.parametrize("d", [1, 2, 5, 40])
@pytest.mark.parametrize("eps", [0.3, 4.0])
def test_the_loss_of_a_vector_is_that_of_its_draws(d, eps):
    law = VectorLaplace(d, eps, 2.0)
    rng = np.random.default_rng(4)
    n = effort(60_000, 200_000)
    w, moved = np.zeros((n, d)), np.zeros(d)
    moved[0] = 2.0
    released = law.sample(rng, w)
    loss = law.log_prob(released, w) - law.log_prob(released, moved)
    for at in (0.05 * eps, 0.2 * eps, 0.6 * eps):
        share = np.maximum(0, -np.expm1(at - loss))
        low, high = delta_bracket(at, law)
        assert 0 <= low <= high
        assert high - low <= 2e-3 * high + 2e-4
        assert abs(share.mean() - high) < FAR * share.std() / np.sqrt(n) + 1e-4 * high + 1e-6
    assert compute_delta(eps, law) == 0


def test_the_figure_in_the_documentation():
    assert compute_delta(0.3, VectorLaplace(27, 1, 1)) == pytest.approx(0.0053, abs=5e-5)


def test_a_shorter_move_gives_away_less():
    for d in (1, 3, 20):
        curves = [
            [compute_delta(at, VectorLaplace(d, 1.0 * share, 1.0)) for at in (0.02, 0.1, 0.3)]
            for share in (0.4, 0.7, 1.0)
        ]
        assert np.all(np.diff(curves, axis=0) >= 0)


def test_rounds_of_vectors_compose_as_their_draws_do():
    laws = tuple(VectorLaplace(8, eps, 1.0) for eps in (0.3, 0.5, 0.5, 0.8))
    rng = np.random.default_rng(6)
    n = 100_000
    total, moved = np.zeros(n), np.eye(8)[0]
    for law in laws:
        released = law.sample(rng, np.zeros((n, 8)))
        total += law.log_prob(released, np.zeros(8)) - law.log_prob(released, moved)
    for at in (0.2, 0.6, 1.0):
        share = np.maximum(0, -np.expm1(at - total))
        assert compute_delta(at, laws) == pytest.approx(share.mean(), abs=FAR * share.std() / np.sqrt(n) + 1e-6)
    as_if_pure = tuple(IndependentLaplace(8, law.epsilon, 1.0) for law in laws)
    assert compute_delta(0.6, laws) < 0.2 * compute_delta(0.6, as_if_pure)


def test_equal_rounds_compose_as_the_theorem_says():
    # Kairouz et al., Theorem 3.3, as printed: at eps = (T - 2i) eps_0 for every i
    each, T = 0.3, 7
    rounds = (IndependentLaplace(4, each, 1.0),) * T
    for i in range(T // 2 + 1):
        printed = (
            sum(special.binom(T, j) * (np.exp((T - j) * each) - np.exp((T - 2 * i + j) * each)) for j in range(i))
            / (1 + np.exp(each)) ** T
        )
        assert compute_delta((T - 2 * i) * each, rounds) == pytest.approx(printed, rel=1e-9, abs=1e-15)


def test_unequal_rounds_are_bracketed_within_the_papers_bound():
    """Unequal rounds are bracketed, and are never worse than the papers' bound."""
    budgets = schedule(2.0, 1e-4, 12, alpha=0.4)
    rounds = tuple(IndependentLaplace(4, each, 1.0) for each in budgets)
    assert compute_delta(2.0, rounds) <= 1e-4
    assert compute_epsilon(1e-4, rounds) <= composition_bound(budgets, 1e-4)
    # randomised responses, every pattern of 12 rounds
    patterns = np.array(np.meshgrid(*[[-1, 1]] * 12)).reshape(12, -1)
    loss = budgets @ patterns
    exact = np.exp(-np.log1p(np.exp(-budgets[:, None] * patterns)).sum(0)) @ np.maximum(0, 1 - np.exp(1.0 - loss))
    low, high = delta_bracket(1.0, rounds)
    assert low <= exact <= high
    assert high == pytest.approx(exact, rel=0.05)
    assert compute_delta(budgets.sum(), rounds) == 0


def test_zeroing_is_half_a_replacement():
    """Zeroing costs half a replacement, and mixtures with whole tasks are counted."""
    law = IndependentLaplace(3, 0.4, 2.0)
    assert compute_epsilon(1e-12, law, "zero_out") == pytest.approx(0.2, rel=1e-3)
    assert compute_epsilon(1e-12, law) == pytest.approx(0.4, rel=1e-3)
    other = calibrate(0.5, 1e-3, 3)
    mixed = compute_epsilon(1e-3, (law, other))
    assert compute_epsilon(1e-3, other) < mixed < 1.02 * (0.4 + 0.5)


H = 2.0**-12


def test_a_ledger_of_rows_holds_them_and_refuses_one_too_many(tmp_path):
    book = Ledger(tmp_path / "rows", epsilon=1.0, delta=1e-6, unit="row")
    for law in LAWS[:1]:
        draw_vectors((law,), 5, lattice=H, epsilon=0.8, ledger=book, data=np.ones(3))
    with pytest.raises(BudgetExceeded):
        draw_vectors((LAWS[1],), 5, lattice=H, epsilon=0.8, ledger=book)
    held = Ledger(tmp_path / "rows").charges()
    assert [(charge.unit, charge.adjacency, charge.mechanisms) for charge in held] == [("row", "replace", (LAWS[0],))]
    assert 0.5 < book.spent.epsilon < 0.8  # less than in the worst case, at a delta
    assert book.spent.unit == "row"
    with pytest.raises(ValueError, match="what protects a row does not protect a task"):
        draw_vectors((LAWS[0],), 5, lattice=H, epsilon=0.8, ledger=Ledger(epsilon=1.0, delta=1e-6))


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.kind)
def test_laws_outlive_a_file(law):
    assert read_mechanism(json.loads(json.dumps(write_mechanism(law)))) == law


def test_every_vector_gets_fresh_noise_and_true_statements():
    """Every vector is published with fresh noise, and with a statement of what holds."""
    fine = 2.0**-40  # on which two numbers are never the same by chance
    noise, guarantee = draw_vectors(LAWS[:1] * 2, 4, lattice=fine, epsilon=1.6)
    assert noise.shape == (2, 3, 4)
    assert np.unique(noise).size == noise.size
    assert not np.intersect1d(noise, draw_vectors(LAWS[:1] * 2, 4, lattice=fine, epsilon=1.6)[0]).size
    assert guarantee.proved == Bound(1.6, 0.0, "replace", "row")
    words = guarantee.explain()
    assert "Take any one row of any one task" in words
    assert "had one row of this task been another row" in words
    assert "recognise the row" in words
    assert "so is the task as a whole" in words
    assert str(guarantee).startswith("proved: eps = 1.6, delta = 0 (replace, one row)")
    assert draw_vectors(LAWS[:1], 4, lattice=H, epsilon=0.8, unit="task")[1].proved == Bound(0.8, 0.0, "replace")


def test_noise_that_leaves_the_lattices_range_is_not_let_out(monkeypatch):
    monkeypatch.setattr(VectorLaplace, "draw", lambda *_: np.array([0.0, 0.0, 2.0**52 * H]))
    with pytest.raises(OverflowError, match="left the lattice's range"):
        draw_vectors(LAWS[:1], 1, lattice=H, epsilon=1.0)


def test_the_door_pays_before_it_touches_any_randomness(monkeypatch):
    from mpmtl_prob.privacy import charge_and_draw as door

    def crash(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(door.exact, "system", crash)
    book = Ledger(epsilon=1.0, delta=1e-6, unit="row")
    with pytest.raises(KeyboardInterrupt):
        draw_vectors(LAWS[:1], 4, lattice=H, epsilon=0.8, ledger=book)
    assert len(book.charges()) == 1


def test_a_fixed_seed_or_a_false_sensitivity_proves_nothing():
    """A fixed seed, or a sensitivity that is no bound, proves nothing."""
    claimed = Bound(0.8, 0.0, "replace", "row")
    one, other = (draw_vectors(LAWS[:1], 4, lattice=H, epsilon=0.8, claimed=claimed, unsafe_seed=5) for _ in range(2))
    assert np.array_equal(one[0], other[0])
    assert one[1].proved is None
    assert one[1].claimed == claimed
    reason = "The sensitivity is a guess."
    _, guarantee = draw_vectors(LAWS[:1], 4, lattice=H, epsilon=0.8, claimed=claimed, unproved=reason)
    assert (guarantee.claimed, guarantee.proved, guarantee.reason) == (claimed, None, reason)
    book = Ledger(epsilon=1.0, delta=1e-6, unit="row")
    with pytest.raises(ValueError, match=r"ledger: expected none, .* The sensitivity is a guess\."):
        draw_vectors(LAWS[:1], 4, lattice=H, epsilon=0.8, unproved=reason, ledger=book)
    assert book.charges() == []


def test_the_door_refuses_noise_that_doubles_cannot_add_to():
    book = Ledger(epsilon=1.0, delta=1e-6, unit="row")
    for law in (VectorLaplace(3, 1e-13, 2.0), IndependentLaplace(3, 1e-13, 2.0)):
        with pytest.raises(ValueError, match="lattice: expected at least"):
            draw_vectors([law], 1, lattice=2.0**-11, epsilon=1.0, ledger=book)
    assert book.charges() == []


@pytest.mark.parametrize(
    ("arguments", "change", "message"),
    [
        (((), 4), {}, "mechanisms: expected one per round"),
        ((LAWS, 0), {}, "vectors: expected a whole number >= 1, got 0"),
        ((LAWS, 4), {"epsilon": 0.0}, "epsilon: expected a positive number"),
        ((LAWS, 4), {"lattice": 0.0}, "lattice: expected a positive number"),
        ((LAWS, 4), {"unit": "team"}, "unit: expected one of 'task', 'row', 'person', 'target record', got 'team'"),
        ((LAWS, 4), {"unsafe_seed": 1.5}, "unsafe_seed: expected a whole number"),
        ((LAWS, 4), {"unsafe_seed": 1, "ledger": Ledger(epsilon=9.0, delta=0.1)}, "unsafe_seed: expected none"),
        (([LAWS[0], VectorLaplace(2, 1.0, 1.0)], 4), {}, r"mechanisms: expected one dimension, got \[2, 3\]"),
        (([calibrate(1.0, 1e-3, 3)], 4), {}, "mechanisms: expected noise on vectors, got Wishart"),
    ],
)
def test_bad_arguments_are_named(arguments, change, message):
    with pytest.raises(ValueError, match=message):
        draw_vectors(*arguments, **({"epsilon": 1.0, "lattice": H} | change))


@pytest.mark.parametrize(
    ("change", "name"),
    [({"num_features": 0}, "num_features"), ({"epsilon": -1.0}, "epsilon"), ({"sensitivity": np.inf}, "sensitivity")],
)
def test_a_law_names_its_bad_argument(change, name):
    with pytest.raises(ValueError, match=f"^{name}: expected"):
        VectorLaplace(**({"num_features": 3, "epsilon": 1.0, "sensitivity": 1.0} | change))
