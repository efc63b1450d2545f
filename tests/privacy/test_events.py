"""Releases as dp-accounting's events, and Gaussian noise in the numbers of other definitions: beside its accountants."""

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from scipy.integrate import quad
from scipy.stats import norm

import mpmtl_prob as mp
from mpmtl_prob.privacy import Gaussian, VectorGaussian, Wishart, compute_epsilon
from mpmtl_prob.privacy.accounting.events import dp_event
from mpmtl_prob.privacy.guarantee import Guarantee, of_release

TRAIN = mp.datasets.synthetic_low_rank(num_tasks=30, num_features=3, rows=8).train


def release(adjacency="replace", **options):
    return mp.release(TRAIN, 1.0, delta=1e-3, adjacency=adjacency, **options)


def proved(laws, adjacency="replace"):
    return of_release(laws, epsilon=1.0, adjacency=adjacency, claimed=None, seeded=False)


@pytest.mark.parametrize("adjacency", ["replace", "zero_out"])
@pytest.mark.parametrize("rounds", [1, 3])
def test_dp_accountings_epsilon_of_a_gaussian_release_is_ours(adjacency, rounds):
    respond = {} if rounds == 1 else {"respond": mp.inference.posterior_draws(TRAIN)}
    one = release(adjacency, mechanism="gaussian", rounds=rounds, **respond)
    event = one.to_dp_event()
    assert type(event).__name__ == ("GaussianDpEvent" if rounds == 1 else "SelfComposedDpEvent")
    for delta in (1e-3, 1e-6):
        there = PLDAccountant().compose(event).get_epsilon(delta)
        assert there == pytest.approx(one.guarantee.epsilon(delta), rel=1e-6)


def test_releases_with_different_noise_compose_there_as_here():
    laws = [Gaussian(3, 2.0), Gaussian(3, 2.0), Gaussian(3, 4.0)]
    event = dp_event(laws, "replace", 1.0, 0.1)
    assert isinstance(event, dp_accounting.ComposedDpEvent)
    alone = [dp_event([law], "replace", 1.0, 0.1) for law in laws]
    for accountant in (PLDAccountant().compose(event), PLDAccountant().compose(dp_accounting.ComposedDpEvent(alone))):
        assert accountant.get_epsilon(1e-4) == pytest.approx(compute_epsilon(1e-4, laws), rel=1e-6)
    vector = VectorGaussian(3, 2.0, 1.0)
    there = PLDAccountant().compose(dp_event([vector], "replace", 1.0, 0.1)).get_epsilon(1e-4)
    assert there == pytest.approx(compute_epsilon(1e-4, vector), rel=1e-6)


def test_wishart_noise_is_a_point_of_its_curve_in_dp_accounting(monkeypatch):
    """Wishart noise becomes a point of its curve where dp-accounting has such an event.

    Version 0.6.0 has no event of (eps, delta), and of no other noise than the accountants know.
    """
    one = release()
    monkeypatch.delattr(dp_accounting.dp_event, "EpsilonDeltaDpEvent", raising=False)
    with pytest.raises(ValueError, match="expected Gaussian noise, of which dp-accounting has an event, got Wishart"):
        one.to_dp_event()
    monkeypatch.setattr(dp_accounting.dp_event, "EpsilonDeltaDpEvent", lambda *point: point, raising=False)
    assert one.to_dp_event() == (1.0, one.guarantee.proved.delta)
    assert dp_event([Gaussian(3, 2.0), Wishart(3, 20.0, 1.0)], "replace", 2.0, 0.25) == (2.0, 0.25)


def test_other_definitions_agree_for_the_two_normal_laws():
    """Numbers under other definitions of privacy are those of the two normal laws."""
    guarantee = proved([Gaussian(3, 2.0), Gaussian(3, 3.0)])
    mu = guarantee.gdp()
    assert guarantee.curve.gdp == mu == pytest.approx(np.hypot(1 / 2.0, 1 / 3.0))  # sqrt(2) K^2 / (sqrt(2) sd)
    assert guarantee.delta(0.7) == pytest.approx(  # Balle and Wang (2018), Theorem 8
        norm.cdf(mu / 2 - 0.7 / mu) - np.exp(0.7) * norm.cdf(-mu / 2 - 0.7 / mu)
    )
    for order in (1.5, 4.0, 20.0):
        powers = lambda x, a=order: np.exp(a * norm.logpdf(x, mu) + (1 - a) * norm.logpdf(x))
        moment = quad(powers, -20, 40, epsabs=0)[0]
        assert guarantee.renyi(order) == pytest.approx(np.log(moment) / (order - 1), rel=1e-6)
        assert guarantee.renyi(order) == pytest.approx(guarantee.zcdp() * order)
    there = RdpAccountant().compose(guarantee.to_dp_event()).get_epsilon(1e-3)
    assert there > guarantee.epsilon(1e-3)  # Renyi's numbers say less than the whole curve
    assert there == pytest.approx(guarantee.epsilon(1e-3), rel=0.2)


def test_what_is_not_proved_says_so():
    wishart = release().guarantee
    for call in (wishart.gdp, wishart.zcdp, lambda: wishart.renyi(2.0)):
        with pytest.raises(
            ValueError, match=r"guarantee: expected one of Gaussian noise, which alone is proved .* got Wishart"
        ):
            call()
    seeded = release(mechanism="gaussian", unsafe_seed=0).guarantee
    for call in (seeded.gdp, seeded.to_dp_event):
        with pytest.raises(ValueError, match="guarantee: expected one of which something is proved"):
            call()
    written = Guarantee.from_dict(proved([Gaussian(3, 2.0)]).to_dict())
    with pytest.raises(ValueError, match="guarantee: expected one that knows its noise laws"):
        written.to_dp_event()
    with pytest.raises(ValueError, match="order: expected a number in"):
        proved([Gaussian(3, 2.0)]).renyi(1.0)
