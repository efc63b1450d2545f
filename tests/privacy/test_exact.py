"""The published draw: correctly rounded real numbers, of the law that is stated, on a lattice where sums are exact."""

import threading

import numpy as np
import pytest
from flint import arb, ctx
from helpers.effort import effort
from helpers.tolerances import RARE
from scipy import stats

from mpmtl_prob.privacy import Gaussian, IndependentLaplace, PaperWishart, Quantile, VectorLaplace, Wishart, lattice
from mpmtl_prob.privacy.lattice import sent
from mpmtl_prob.privacy.mechanisms import exact

LAWS = [
    Wishart(3, 9.3, 0.4),
    PaperWishart(3, 0.7),
    Gaussian(3, 0.8),
    VectorLaplace(3, 1.0, 2.0),
    IndependentLaplace(3, 1.0, 2.0),
]


PUBLISHED = effort(1500, 3000)


def draws(law, count, unit=2.0**-26):
    return np.array([law.draw(unit, exact.source(1, i)) for i in range(count)])


@pytest.mark.parametrize("law", LAWS, ids=lambda law: type(law).__name__)
def test_more_bits_change_nothing(law, monkeypatch):
    # the same bits, of which a draw is shown so few at first that it has to ask for more, many times
    drawn = [law.draw(2.0**-26, exact.seeded(2, i)) for i in range(5)]
    for size in (1, 2, 64):
        monkeypatch.setattr(exact.rounded, "__defaults__", (size,))
        for i, draw in enumerate(drawn):
            assert np.array_equal(law.draw(2.0**-26, exact.seeded(2, i)), draw)


def test_few_bits_are_not_enough():
    # else the test above would not have been one
    asked = []

    def counting(number, first, last):
        asked.append(last)
        return exact.seeded(2, 0)(number, first, last)

    exact.rounded(lambda draws: [z * 2**26 for z in draws.normals(3)], counting, 1)
    assert max(asked) >= 4


@pytest.mark.parametrize(
    "law",
    # the papers' noise is drawn by Wishart's code, and by itself in test_conformance.py
    [LAWS[0], pytest.param(LAWS[1], marks=pytest.mark.evidence), LAWS[2]],
    ids=lambda law: type(law).__name__,
)
def test_published_matrices_have_the_law_of_simulations(law):
    """Published matrices have the law that simulations draw from."""
    published = draws(law, PUBLISHED)
    simulated = law.sample(np.random.default_rng(0), np.zeros((20_000, 3, 3)))
    assert np.array_equal(published, np.swapaxes(published, 1, 2))
    assert np.all(published / 2.0**-26 % 1 == 0)
    direction = np.array([0.6, -0.48, 0.64])
    for statistic in (
        lambda E: E[:, 0, 0],
        lambda E: E[:, 2, 1],
        lambda E: np.linalg.eigvalsh(E)[:, 0],
        lambda E: np.einsum("i,nij,j->n", direction, E, direction),
    ):
        assert stats.ks_2samp(statistic(published), statistic(simulated)).pvalue > RARE


@pytest.mark.parametrize("law", LAWS[3:], ids=lambda law: type(law).__name__)
def test_published_vectors_have_the_law_of_simulations(law):
    """Published vectors have the law that simulations draw from."""
    published, simulated = draws(law, PUBLISHED), law.sample(np.random.default_rng(0), np.zeros((20_000, 3)))
    for statistic in (lambda b: b[:, 0], lambda b: np.linalg.norm(b, axis=1), lambda b: b @ [0.6, -0.48, 0.64]):
        assert stats.ks_2samp(statistic(published), statistic(simulated)).pvalue > RARE


@pytest.mark.parametrize("shape", [1.0, 1.3, 7.5, 3000.0])
def test_gamma_numbers_follow_their_law(shape):
    drawn = [exact.rounded(lambda d: [d.gamma(shape) * 2**30], exact.seeded(3, i))[0] / 2**30 for i in range(3000)]
    assert stats.kstest(drawn, stats.gamma(shape).cdf).pvalue > RARE


def test_a_clip_norm_follows_the_exponential_mechanism():
    """A clip norm is drawn with the probabilities of the exponential mechanism."""
    law = Quantile(1.0)
    norms = np.array([0.5, 1.5, 1.6, 3.5])
    grid = np.array([1.0, 2.0, 4.0])
    weights = np.exp(-0.5 * np.abs(np.array([1, 3, 4]) - 2))
    drawn = [law.draw(norms, grid, 0.5, exact.seeded(4, i)) for i in range(4000)]
    counts = [drawn.count(value) for value in grid]
    assert stats.chisquare(counts, 4000 * weights / weights.sum()).pvalue > RARE


def test_a_norm_on_a_point_of_the_grid_is_not_above_it():
    grid = np.array([1.0, 4.0])
    assert Quantile(100.0).draw(np.repeat(grid, 5), grid, 0.5, exact.seeded(0)) == 1.0


def test_an_interval_that_holds_two_roundings_is_not_rounded():
    assert exact.nearest(arb(2.4, 0.05)) == 2
    assert exact.nearest(arb(-2.6, 0.05)) == -3
    with pytest.raises(exact.Undecided):
        exact.nearest(arb(2.5, 1e-30))
    with pytest.raises(exact.Undecided):
        exact.certainly(arb(0, 1) > 0, arb(0, 1) <= 0)


def test_a_seed_gives_the_same_draw_and_other_rounds_another():
    law = Wishart(3, 9.0, 1.0)
    assert np.array_equal(law.draw(2.0**-26, exact.source(5, 0)), law.draw(2.0**-26, exact.source(5, 0)))
    assert not np.array_equal(law.draw(2.0**-26, exact.source(5, 0)), law.draw(2.0**-26, exact.source(5, 1)))
    assert exact.source(None) is exact.system


def test_the_systems_bits_are_asked_for_once_each(monkeypatch):
    import secrets

    given = []
    monkeypatch.setattr(secrets, "token_bytes", lambda n: given.append(n) or bytes(range(1, n + 1)))
    exact.rounded(lambda d: [d.uniform() * 2**10, d.uniform() * 2**10], exact.system)
    assert given == [exact.BYTES] * 2  # no seed, nothing shorter


@pytest.mark.parametrize(("clip", "d", "m"), [(1.0, 27, 139), (0.7, 5, 40), (3.3, 293, 41), (1e-8, 3, 8)])
def test_lattice_messages_are_close_and_within_the_clip_norm(clip, d, m):
    """Messages on the lattice are close to the given ones and never longer than the clip norm."""
    law = Wishart(d, d + 99.0, clip**2)
    h = lattice.step(clip, d, m, [law])
    W = np.random.default_rng(0).standard_normal((d, m)) * clip
    W[:, 0], W[:, 1], W[:, 2] = 0, 1e300, clip * np.eye(d)[0]
    W[:, 3] = clip / np.sqrt(d) * (1 + 2e-16)
    cut = sent(W, clip, h)
    whole = cut / h
    assert np.all(whole == np.rint(whole))
    squares = [sum(int(q) ** 2 for q in column) for column in whole.T]  # in whole numbers, without rounding
    assert max(squares) <= int(lattice.bound(clip, h) / h) ** 2
    assert lattice.bound(clip, h) <= clip
    short = np.delete(W, 1, axis=1)
    short = short / np.maximum(1, np.linalg.norm(short, axis=0) / clip)
    assert np.linalg.norm(np.delete(cut, 1, axis=1) - short, axis=0).max() <= (lattice.ERROR + h / clip) * clip


def test_lattice_second_moments_ignore_the_order_of_tasks():
    """Second moments on the lattice do not depend on the order of the tasks."""
    rng = np.random.default_rng(1)
    W, h = rng.standard_normal((27, 139)), 2.0**-13
    cut = sent(W, 1.0, h)
    A = cut @ cut.T
    for _ in range(5):
        order = rng.permutation(139)
        assert np.array_equal(A, cut[:, order] @ cut[:, order].T)
    assert not np.array_equal(W @ W.T, W[:, order] @ W[:, order].T)  # as sums of doubles do
    E = Wishart(27, 100.0, 1.0).draw(h**2, exact.seeded(0))
    assert np.array_equal((A + E) - E, A)


def test_what_is_not_finite_counts_as_nothing():
    assert np.array_equal(lattice.cut(np.array([np.nan, np.inf, -np.inf, 0.3]), 0.25), [0, 0, 0, 0.25])


def test_noise_beyond_what_doubles_hold_is_refused():
    with pytest.raises(OverflowError, match="nothing was published"):
        Wishart(2, 5.0, 1.0).draw(2.0**-60, exact.seeded(0))


@pytest.fixture
def chosen_precision():
    """FLINT's, as somebody has set it."""
    before, ctx.prec = ctx.prec, 77
    yield 77
    ctx.prec = before


def test_flints_precision_is_put_back_even_after_an_error(chosen_precision):
    def failing(number, first, last):
        raise KeyboardInterrupt

    law = Wishart(2, 9.0, 1.0)
    law.draw(2.0**-26, exact.seeded(0))
    assert ctx.prec == chosen_precision
    with pytest.raises(KeyboardInterrupt):
        law.draw(2.0**-26, failing)
    assert ctx.prec == chosen_precision


def test_flints_precision_is_put_back_by_two_threads(chosen_precision):
    """One draw begins while another is at work, and ends after it."""
    law = Wishart(2, 9.0, 1.0)
    began = threading.Event()
    ended = threading.Event()

    def second():
        def source(number, first, last):
            began.set()
            ended.wait(0.2)
            return exact.seeded(1)(number, first, last)

        law.draw(2.0**-26, source)

    thread = threading.Thread(target=second)

    def source(number, first, last):
        if not thread.ident:
            thread.start()
            began.wait(0.2)
        return exact.seeded(2)(number, first, last)

    law.draw(2.0**-26, source)
    ended.set()
    thread.join()
    assert ctx.prec == chosen_precision
