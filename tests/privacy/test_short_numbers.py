"""A budget or a bound that is a short NumPy number buys what the number it stands for buys, to the last bit."""

import numpy as np
import pytest

import mpmtl_prob as mp
from mpmtl_prob import TaskData, estimators, federated, privacy, releases, threat_models
from mpmtl_prob.adaptation import (
    AdaSSP,
    CnvxAdap,
    MomentAdaptation,
    NCnvxAdap,
    NetworkAdap,
    NoisyGradient,
    WarmDescent,
    release_moments,
)
from mpmtl_prob.adaptation.data import problems
from mpmtl_prob.adaptation.paper import accounting
from mpmtl_prob.adaptation.paper.discrepancy import Ball, private_discrepancy
from mpmtl_prob.privacy import Gaussian, VectorGaussian
from mpmtl_prob.privacy.charge_and_draw import draw_each, draw_matrices, draw_vectors
from mpmtl_prob.threat_models import calibration, views

W = np.eye(3)
LAW = privacy.calibrate(1.0, 1e-6, 3, adjacency="zero_out")
MATRIX = Gaussian(3, 5.0)
VECTOR = VectorGaussian(3, 5.0, 1.0)
RNG = np.random.default_rng(0)
TASKS = TaskData.from_lists(RNG.standard_normal((4, 6, 3)), RNG.standard_normal((4, 6)))
DATA = problems.two_sources((60, 20), num_features=3, tests=2, seed=3)
PUBLIC = {"rounds": 2, "clip": 1.0, "curvature": 40.0, "alpha": 0.0}
SHORT = {"steps": 3, "discrepancy": 0.0}
LABELS = [(each.X, (each.y > 0).astype(float)) for each in (DATA.source, DATA.target)]


def released(**options):
    def at(epsilon, delta):
        release = mp.release(W, epsilon, delta, **options)
        return release.guarantee, release.mechanisms, release.lattice

    return at


def aggregated(**options):
    def at(epsilon, _):
        return estimators.DPAggr(epsilon=epsilon, rows=(2, 12), target_bound=3.0, **options).fit(TASKS).guarantee

    return at


def learnt(kind, data, **options):
    return lambda epsilon, delta: kind(epsilon, delta, **options).fit(*data).guarantee_


DOORS = {
    "release": released(),
    "release, zeroed": released(adjacency="zero_out"),
    "release, Gaussian": released(mechanism="gaussian"),
    "release, printed": released(mechanism="paper"),
    "release, two rounds": released(rounds=2, respond=lambda _: W, adjacency="zero_out"),
    "terms": lambda epsilon, delta: mp.releases.terms(epsilon, 3, 3, delta),
    "invite": lambda epsilon, delta: federated.invite(epsilon, 3, 3, delta).terms,
    "conditions": lambda epsilon, delta: federated.SitePolicy(epsilon=epsilon, delta=delta),
    "calibrate": lambda epsilon, delta: privacy.calibrate(epsilon, delta, 3, adjacency="zero_out"),
    "calibrate_gaussian": lambda epsilon, delta: privacy.calibrate_gaussian(epsilon, delta, 3),
    "delta": lambda epsilon, _: privacy.compute_delta(epsilon, LAW, "zero_out"),
    "epsilon": lambda _, delta: privacy.compute_epsilon(delta, LAW, "zero_out"),
    "schedule": lambda epsilon, delta: privacy.schedule(epsilon, delta, 3).tolist(),
    "curve": lambda epsilon, _: released(adjacency="zero_out")(1.0, 1e-6)[0].delta(epsilon),
    "clip norm": lambda epsilon, _: releases.private_clip_norm(W, epsilon, low=0.1, high=10.0).law,
    "door": lambda epsilon, _: draw_matrices([MATRIX], epsilon=epsilon, adjacency="zero_out", lattice=0.1)[1],
    "door of vectors": lambda epsilon, _: draw_vectors([VECTOR], 2, epsilon=epsilon, lattice=0.1)[1],
    "door of each": lambda epsilon, _: draw_each([VECTOR], lattices=[0.1], epsilon=epsilon, unit="row")[1],
    "low rank": lambda epsilon, delta: estimators.LowRank(
        0.5, epsilon, delta=delta, mechanism="calibrated", adjacency="zero_out", **PUBLIC
    ).plan(TASKS).mechanisms,
    "average": aggregated(penalty=0.5),
    "average, tight": aggregated(penalty=0.5, noise="tight", level="row"),
    "AdaSSP": learnt(AdaSSP, (DATA.source, DATA.target)),
    "one release": learnt(MomentAdaptation, (DATA.source, DATA.target), draws=5),
    "warm descent": learnt(WarmDescent, (DATA.source, DATA.target), **SHORT),
    "descent": learnt(CnvxAdap, (DATA.source, DATA.target), **SHORT, variant="rescaled"),
    "noisy gradient": learnt(NoisyGradient, (DATA.source, DATA.target), steps=3),
    "classifier": learnt(NCnvxAdap, LABELS, **SHORT),
    "network": learnt(NetworkAdap, LABELS, **SHORT, hidden=2),
    "moments": lambda epsilon, delta: release_moments(
        DATA.target, centre=np.zeros(3), residual_bound=1.0, epsilon=epsilon, delta=delta
    ).guarantee,
    "discrepancy": lambda epsilon, _: private_discrepancy(
        DATA.source, DATA.target, ball=Ball(None, 0.5), epsilon=epsilon
    ).guarantee,
    "calibrated mu": accounting.calibrated_mu,
    "printed epsilon": accounting.printed_epsilon,
    "mu within": calibration.mu_within,
    "rho within": calibration.rho_within,
    "epsilon of": calibration.epsilon_of,
    "means": lambda epsilon, delta: threat_models.NoisyMeans.within(epsilon, delta, 10, 3, view=views.single()),
    "plan": lambda epsilon, delta: threat_models.Plan(epsilon, delta, 10, error=0.1).to_dict(),
    "newcomers": lambda epsilon, delta: threat_models.newcomers_error(0.1, epsilon, delta),
}  # fmt: skip
BUDGETS = [
    (np.float16(0.3), np.float16(1e-3)),
    (np.float32(0.3), np.float32(1e-6)),
    (np.float16(1.0), 1e-6),
    (np.int8(1), 1e-6),
    (np.uint8(3), np.float32(1e-3)),
]


#: What takes long is the search behind the door: two kinds of short numbers come through it as the others would.
LONG = {"release, two rounds", "low rank"}
CASES = [
    pytest.param(
        *(door, budget),
        id=f"{door}-{budget[0]!r}, {budget[1]!r}",
        marks=[pytest.mark.evidence] if door in LONG and place not in (0, 3) else [],
    )
    for door in DOORS
    for place, budget in enumerate(BUDGETS)
]


@pytest.mark.parametrize(("door", "budget"), CASES)
def test_a_short_budget_is_the_number_it_stands_for(door, budget):
    assert DOORS[door](*budget) == DOORS[door](*map(float, budget))


@pytest.mark.parametrize("short", [np.float16, np.float32, np.longdouble])
def test_a_released_delta_is_the_one_that_the_noise_has(short):
    release = mp.release(W, short(1.0), 1e-6, adjacency="zero_out")
    assert release.guarantee.proved.delta == privacy.compute_delta(1.0, release.mechanisms, "zero_out")
    assert release.guarantee.proved.delta == pytest.approx(1e-6, rel=1e-6)


@pytest.mark.parametrize("short", [np.float16, np.float32])
@pytest.mark.parametrize("loss", [estimators.LeastSquares(), estimators.Logistic()], ids=["squared", "logistic"])
def test_an_average_with_short_bounds_has_the_same_noise(short, loss):
    """An average with short bounds has the noise of the numbers that they stand for."""
    labels = TaskData.from_lists(TASKS.X, np.sign(TASKS.y))
    bounds = {"penalty": short(0.3), "row_norm": short(0.7), "target_bound": short(1.3)}
    guarantees = [
        estimators.DPAggr(**given, loss=loss, rows=(2, 12)).fit(labels).guarantee
        for given in (bounds, {name: float(value) for name, value in bounds.items()})
    ]
    assert guarantees[0] == guarantees[1]


@pytest.mark.parametrize("short", [np.float16, np.float32, np.int8])
def test_a_ball_of_short_numbers_is_the_ball_of_their_values(short):
    """A ball of short numbers is the ball of the numbers that they stand for."""
    sizes = [short(7), short(3), short(5)] if short is np.int8 else [short(0.3), short(0.7), short(1.1)]
    ball, same = Ball(None, *sizes), Ball(None, *map(float, sizes))
    assert ball == same
    assert ball.loss_range == same.loss_range == (float(sizes[1]) + float(sizes[0]) * float(sizes[2])) ** 2
