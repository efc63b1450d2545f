"""Noise in shares: each is a discrete Gaussian, their sum is one too, and gives away what real Gaussian noise would."""

import numpy as np
import pytest
from flint import arb
from helpers.tolerances import RARE
from scipy.stats import chisquare, norm

from mpmtl_prob.models.noise import GaussianNoise, of_law
from mpmtl_prob.privacy import compute_delta
from mpmtl_prob.privacy.mechanisms import Gaussian, GaussianShares, exact
from mpmtl_prob.privacy.mechanisms.closed_forms import delta_gaussian
from mpmtl_prob.privacy.mechanisms.shares import slack


def discrete(s, reach):
    k = np.arange(-reach, reach + 1)
    weights = np.exp(-(k**2) / (2 * s**2))
    return k, weights / weights.sum()


@pytest.mark.parametrize("sd", [0.6, 3.0, 40.5])
def test_the_sampler_draws_the_law(sd):
    source, n = exact.seeded(1), 4000
    drawn = np.array(exact.rounded(lambda draws: [draws.discrete_normal(arb(sd)) for _ in range(n)], source))
    k, p = discrete(sd, int(12 * sd) + 3)
    edges = np.searchsorted(np.cumsum(p), np.arange(1, 20) / 20)
    cells = np.unique(edges)
    expected = n * np.add.reduceat(p, [0, *(cells + 1)])
    seen = np.bincount(np.searchsorted(k[cells], drawn), minlength=len(expected))
    assert chisquare(seen, expected).pvalue > RARE


@pytest.mark.parametrize("sds", [(4.0, 4.0), (2.0, 5.0), (3.0, 3.0, 3.0, 3.0)])
def test_a_sum_of_shares_is_a_share_of_the_summed_variance(sds):
    total = np.ones(1)
    for s in sds:
        total = np.convolve(total, discrete(s, 80)[1])
    one = discrete(np.linalg.norm(sds), 80 * len(sds))[1]
    np.testing.assert_allclose(total, one, rtol=1e-9, atol=1e-20)


@pytest.mark.parametrize("s", [4.0, 16.0, 60.0])
def test_shares_are_almost_rounded_real_normal_numbers(s):
    """A discrete normal number has nearly the probabilities of a rounded real one."""
    k, p = discrete(s, int(8 * s))
    real = norm.cdf((k + 0.5) / s) - norm.cdf((k - 0.5) / s)
    tail = np.abs(k) <= 6 * s  # where differences of cdf have digits
    assert (p[tail] >= (1 - 12**2 / (24 * s**2)) * real[tail] * (1 - 1e-9)).all()


@pytest.mark.parametrize("s", [2.0, 5.0, 16.0])
@pytest.mark.parametrize("shift", [0.25, 1.0, 3.0, 8.0])
def test_delta_exceeds_that_of_real_noise_by_the_slack_at_most(s, shift):
    moved = max(1, round(shift * s))
    _, p = discrete(s, int(40 * s))
    other = np.roll(p, moved)
    for epsilon in (-60.0, -3.0, 0.0, 0.3, 1.0, 3.0, 8.0, 30.0, 60.0):
        true = np.maximum(p - np.exp(epsilon) * other, 0).sum()
        assert true <= delta_gaussian(epsilon, moved / s) + slack(1, s, moved / s)


@pytest.mark.parametrize("mu", [0.1, 1.0, 8.0])
def test_the_slack_is_for_every_eps(mu):
    most = mu**2 / 2 + 40 * mu
    c = np.sqrt(2 * (most + 74))
    assert np.log(4) + norm.logsf(c - 1 / 32) + most < np.log(1e-31)  # both tails, (1 + e^eps) times
    assert delta_gaussian(most, mu) < 1e-300
    assert slack(1, 1e3, mu) >= 2 * c**2 / (24 * 1e6)


@pytest.mark.parametrize("d", [2, 5])
def test_every_number_of_a_matrix_costs_its_slack(d):
    assert slack(d, 50.0, 0.7) == pytest.approx(d * (d + 1) / 2 * slack(1, 50.0, 0.7))


def test_many_rounds_cost_the_slack_of_all_that_they_give_away():
    law, rounds = GaussianShares(3, 40.0, 4, 0.01, colluders=1), 400
    lost = rounds * slack(3, 40.0 * np.sqrt(3) / 0.01, np.sqrt(rounds) * law.mu("replace"))
    assert lost > 1.01 * rounds * law.slack
    # beyond so large an eps real noise gives away nothing
    assert compute_delta(200.0, [law] * rounds) == pytest.approx(lost, rel=1e-3)


def test_who_colludes_does_not_protect():
    law = GaussianShares(3, 0.5, 9, 2.0**-20, colluders=5)
    alone = Gaussian(3, 1.0)  # of the four others
    for adjacency in ("replace", "zero_out"):
        assert law.mu(adjacency) == pytest.approx(alone.mu(adjacency))
        assert 0 <= compute_delta(1.0, law, adjacency) - compute_delta(1.0, alone, adjacency) <= 2 * law.slack
    assert law.sd == pytest.approx(1.5)
    assert law.slack < 1e-9


def test_the_likelihood_is_that_of_everybody_who_is_in_the_sum():
    law = GaussianShares(3, 0.5, 9, 2.0**-20, colluders=5)
    read = of_law(law, np.eye(3))
    assert isinstance(read, GaussianNoise)
    assert read.sd == law.sd


def test_its_shares_have_its_size():
    law, n = GaussianShares(4, 0.5, 2, 2.0**-16), 400
    shares = np.array([law.draw_share(exact.seeded(i)) for i in range(n)])
    assert (np.mod(shares, law.step) == 0).all()
    assert (shares == np.swapaxes(shares, 1, 2)).all()
    off, on = shares[:, *np.tril_indices(4, -1)].ravel(), shares[:, range(4), range(4)].ravel()
    for values, sd in ((off, 0.5), (on, np.sqrt(0.5))):
        z = (np.mean((values / sd) ** 2) - 1) * np.sqrt(values.size / 2)
        assert abs(z) < norm.isf(RARE / 2)


def test_a_share_is_drawn_exactly_whatever_the_step(monkeypatch):
    law = GaussianShares(2, 40.0, 4, 0.01)  # of 0.01 as a double; in 53 bits one cannot tell whether that is 4000 steps

    def few(number, first, last):
        assert max(number, last) < 1000, "nothing is accepted, or ever decided"
        return exact.seeded(2)(number, first, last)

    share = law.draw_share(few)
    for size in (1, 2, 64):
        monkeypatch.setattr(exact.rounded, "__defaults__", (size,))
        assert np.array_equal(law.draw_share(few), share)


def test_shares_of_badly_known_size_are_not_drawn():
    """Nothing is drawn of a size that is not known well enough."""
    with pytest.raises(exact.Undecided):
        exact.Draws(lambda *_: pytest.fail("drawn")).discrete_normal(arb(4000, 1e-12))


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="colluders: expected fewer than the 3 owners"):
        GaussianShares(3, 0.5, 3, 2.0**-20, colluders=3)
    with pytest.raises(ValueError, match="step: expected at most"):
        GaussianShares(3, 0.5, 3, 0.25)
    with pytest.raises(ValueError, match="unit: expected the step"):
        GaussianShares(3, 0.5, 3, 2.0**-20).draw(2.0**-10, exact.seeded(0))
