"""A task as target whose other tasks are private too: their released covariance as a prior, and a promise in each unit."""

from functools import cache

import numpy as np
import pytest
import xarray as xr
from helpers.effort import effort
from helpers.tolerances import FAR, RARE

import mpmtl_prob as mp
from mpmtl_prob.adaptation import Domain, MomentAdaptation, release_moments
from mpmtl_prob.adaptation.data import problems
from mpmtl_prob.adaptation.moments import task_prior
from mpmtl_prob.adaptation.moments.feature_moment import shape
from mpmtl_prob.adaptation.moments.grid_posterior import Prior, posterior
from mpmtl_prob.privacy import Ledger, lattice
from mpmtl_prob.sampling.calibration import uniformity

#: bounds of data that are made to keep to them, so that weights and release are in their units
AS_THEY_COME = {"row_bound": 1.0, "target_bound": 1.0}

D = 5
OMEGA = np.outer(DIRECTION := np.array([0.8, -0.6, 0, 0, 0]), DIRECTION) * 4.6 + 0.08 * np.eye(D)
ROOT = np.linalg.cholesky(OMEGA)


@cache
def shared(tasks=400, scaling="none", features=tuple(range(D))):
    """A posterior of the covariance of so many tasks whose messages are their weights, as good as without noise."""
    rng = np.random.default_rng(0)
    W = ROOT @ rng.standard_normal((D, tasks))
    sent = W / np.linalg.norm(W, axis=0).max()
    made = mp.release(sent, epsilon=1.0, delta=1e-3, message="clip", clip=1.0)
    sigma = lattice.cut(sent @ sent.T + np.eye(D), made.lattice**2)[None]  # with the guarantee, and without chance
    release = mp.Release(
        sigma, made.mechanisms, tasks, features, made.guarantee, "clip", scaling, "0", lattice=made.lattice
    )
    A = np.broadcast_to(W @ W.T, (2, 5, D, D))
    square = ("chain", "draw", "feature", "feature_other")
    draws = {"A": (square, A), "Omega": (square, A / tasks), "prior_scale": (square[:3], np.ones((2, 5, D)))}
    draws |= {name: (square[:2], np.full((2, 5), value)) for name, value in (("kappa", 5.0), ("log_phi", 0.0))}
    groups = {
        "posterior": xr.Dataset(draws),
        "sample_stats": xr.Dataset(),
        "observed_data": xr.Dataset(),
        "release": release.to_xarray(),
    }
    tree = xr.DataTree.from_dict(groups)
    tree.attrs |= {"seat": "public", "structure": "full"}
    return mp.inference.SharedPosterior.from_tree(tree)


def records(seed, n=100, tau=0.5, sigma=0.2, root=ROOT):
    """Simulate records of a task whose weights are like the others'."""
    rng = np.random.default_rng(seed)
    w = tau * root @ rng.standard_normal(D) / np.sqrt(D)
    X = 0.3 * rng.standard_normal((n, D))
    X /= np.maximum(1, np.linalg.norm(X, axis=1))[:, None]
    return w, Domain(X, X @ w + sigma * rng.standard_normal(n))


def test_little_noise_gives_the_ridge_posterior():
    """With little noise, it is the ridge posterior with that covariance."""
    _, target = records(1, n=60, sigma=0.4)
    X, y, flat = target.X, target.y, np.eye(D) / (2 * D)
    release = release_moments(target, centre=np.zeros(D), residual_bound=5.0, epsilon=1e5, delta=0.5)

    def by_the_release(T):
        prior = Prior(
            np.zeros((1, D)),
            np.zeros((1, D, D)),
            T[None],
            np.array([1.0]),
            0.4,
            flat,
            *np.zeros((2, 1)),
            np.zeros((1, D)),
        )
        draws = posterior(release, prior).draw(np.random.default_rng(0), 5000)[0]
        return draws.mean(0), np.cov(draws.T)

    def by_hand(T):  # p(w | y) = sum over tau and sigma of p(tau, sigma | y) N(ridge, its covariance)
        total, first, second = 0.0, np.zeros(D), np.zeros((D, D))
        size, U = np.linalg.eigh(X @ T @ X.T / D)
        along = U.T @ y
        for tau in np.geomspace(0.02, 50, 30):
            for log_sigma in np.linspace(-1.0, 1.0, 17):
                sigma, P = 0.4 * np.exp(log_sigma), tau**2 * T / D
                variance = tau**2 * size + sigma**2  # of y = N(0, X P X' + sigma^2 I), along its axes
                evidence = -0.5 * np.sum(np.log(variance) + along**2 / variance)
                weight = np.exp(evidence - 0.5 * (log_sigma / 0.6) ** 2) * tau / (1 + tau**2)
                C = np.linalg.inv(X.T @ X / sigma**2 + np.linalg.inv(P))
                m = C @ X.T @ y / sigma**2
                total, first, second = total + weight, first + weight * m, second + weight * (C + np.outer(m, m))
        return first / total, second / total - np.outer(first, first) / total**2

    T = task_prior.covariance(OMEGA, X.T @ X / 60, 0.0)
    (mean, C), (wanted, wanted_C), (other, _) = by_the_release(T), by_hand(T), by_hand(np.eye(D))
    sd = np.sqrt(np.diag(wanted_C))
    off, apart = (np.max(np.abs(x - wanted) / sd) for x in (mean, other))
    assert (
        off < apart / 2
    )  # without the others' covariance it is another; the grid is .05 to .23 off, of eight data sets
    np.testing.assert_allclose(np.sqrt(np.diag(C)), sd, rtol=0.25)


def test_a_prior_has_the_identitys_scale_whatever_the_scaling():
    """A prior has the scale of the identity, whatever the scaling is."""
    moment = np.diag([1.0, 4.0, 0.25, 1.0, 2.0]) + 0.1
    for power in (0.0, -0.5, -0.25):
        T = task_prior.covariance(OMEGA, moment, power)
        assert np.trace(T @ moment) == pytest.approx(np.trace(moment))
        S = np.diag(np.diag(moment) ** power)
        np.testing.assert_allclose(T / T[0, 0], S @ OMEGA @ S / (S @ OMEGA @ S)[0, 0])
    with_one = task_prior.covariance(OMEGA, np.pad(moment, (0, 1), constant_values=0.3), -0.25)
    assert np.all(with_one[-1] == 0)
    np.testing.assert_allclose(with_one[:D, :D], T)


def test_other_tasks_share_the_odds_of_one_domain(monkeypatch):
    """Other tasks share the odds of one domain, in proportion to their power's weights."""
    omegas, weights = np.stack([np.eye(D), OMEGA, OMEGA**2]), np.array([1.0, 2.0, 5.0])
    monkeypatch.setattr("mpmtl_prob.inference.owner.methods.raised_shapes", lambda *_: (omegas, weights))
    release = release_moments(records(1)[1], centre=np.zeros(D), residual_bound=5.0, epsilon=1.0, delta=0.01)
    two = np.stack(2 * [np.eye(D)])  # a public domain, and none
    prior = Prior(np.zeros((2, D)), 0 * two, two, np.ones(2), 0.4, np.eye(D), *np.zeros((2, 2)), np.zeros((2, D)))
    beside, count = task_prior.beside(prior, shared(), release, power=None, intercept=False, target_bound=1.0)
    assert count == 3
    np.testing.assert_allclose(np.exp(beside.log_odds), [0.49, *(0.49 * weights / 8), 0.02])
    xx, noise = release.xx, release.sd * release.row_bound**2
    moment = shape(xx, noise, release.num_records, prior.second_moment).mean / release.num_records
    np.testing.assert_allclose(beside.shapes[1:4], [task_prior.covariance(omega, moment, 0.0) for omega in omegas])
    assert not np.any(beside.means)
    assert not np.any(beside.covariances)
    assert not np.any(beside.same)  # as the public domain above; a task's weights are never the others' own


def drawn(seed, power=None):
    """A truth of the model, and its records: weights are sharper than messages by something unknown, or as said."""
    rng = np.random.default_rng(1000 + seed)
    p = 1.5 * np.exp(0.5 * rng.standard_normal()) if power is None else power
    values, U = np.linalg.eigh(OMEGA)
    spectrum = (values / values[-1]) ** p
    tau = np.sqrt(2 * D) * min(abs(rng.standard_t(3)), 3.0)  # scores as large as targets may be, in the median
    sigma = 0.25 * np.exp(0.6 * rng.standard_normal())
    return records(seed, n=80, tau=tau, sigma=sigma, root=U * np.sqrt(D * spectrum / spectrum.sum()))


def ranks(power, assumed, seeds):
    ranks_of_truth = []
    for seed in range(seeds):
        w, target = drawn(seed, power)
        model = MomentAdaptation(
            row_bound=1.0,
            target_bound=1.0,
            epsilon=4.0,
            delta=1e-2,
            power=assumed,
            draws=399,
            chains=1,
            unsafe_seed=seed,
        )
        ranks_of_truth.append((model.fit(shared(), target).posterior_.w < w).sum(0))
    return np.array(ranks_of_truth)


@pytest.mark.parametrize("power", [None, pytest.param(1.0, marks=pytest.mark.evidence)])
def test_intervals_cover_for_tasks_like_the_others(power):
    ranks_of_truth = ranks(power, power, effort(26, 40))
    for column in range(D):
        assert uniformity(ranks_of_truth[:, column], draws=399, bins=effort(4, 8)) > RARE
    inside = (ranks_of_truth >= 20) & (ranks_of_truth < 380)
    assert inside.mean() > 0.9 - FAR * 0.17 / np.sqrt(len(ranks_of_truth))  # shares of one target's weights vary by .17


def test_calibration_catches_a_covariance_that_is_too_sharp():
    """The test of calibration sees a covariance that is too sharp."""
    ranks_of_truth = ranks(1.0, 3.0, effort(24, 40))
    assert np.mean((ranks_of_truth >= 20) & (ranks_of_truth < 380)) < 0.75


@pytest.mark.evidence  # it is their covariance that a prior has the shape of, and its intervals are as wide as errors are
def test_what_others_share_helps_and_costs_only_their_unit():
    """Other tasks' release is worth having, and costs their unit alone."""
    fits = {"others": shared(), "nobody": None}
    errors = {
        name: np.mean(
            [
                np.sum(
                    (
                        MomentAdaptation(**AS_THEY_COME, epsilon=3.0, residual_bound=0.7, unsafe_seed=seed, draws=50)
                        .fit(source, target)
                        .coef_
                        - w
                    )
                    ** 2
                )
                for seed in range(30)
                for w, target in [records(seed)]
            ]
        )
        for name, source in fits.items()
    }
    assert errors["others"] < 0.8 * errors["nobody"]


def test_two_promises_each_in_its_unit_and_no_ledger_adds_them():
    _, target = records(3)
    book = Ledger(epsilon=1.5, delta=1e-2, unit="target record")
    model = MomentAdaptation(**AS_THEY_COME, epsilon=1.0, delta=5e-3, draws=20, ledger=book).fit(shared(), target)
    assert [str(each.proved) for each in model.guarantees_.values()] == [
        "eps = 1, delta = 0.005 (replace, one target record)",
        "eps = 1, delta = 0.001 (replace, one task)",
    ]
    assert model.guarantee_ is model.guarantees_["target record"]
    assert len(book.charges()) == 1
    assert 0.8 < book.spent.epsilon < 1.0  # at the ledger's delta; the tasks' eps is not in it
    tasks = Ledger(epsilon=9.0, delta=0.1)
    with pytest.raises(ValueError, match="unit: expected 'task' in a ledger of tasks"):
        MomentAdaptation(**AS_THEY_COME, ledger=tasks).fit(shared(), target)
    with pytest.raises(ValueError, match="unit: expected"):
        book.charge(shared().release.mechanisms[0], unit="task")
    assert tasks.charges() == []
    # a record of a task that was among the others is promised both together
    laws = [law for each in model.guarantees_.values() for law in each.mechanisms]
    assert 1.0 < mp.privacy.compute_epsilon(6e-3, laws) < 2.0


def test_tasks_beside_domains_keep_both_promises_in_files(tmp_path):
    """Other tasks may stand beside public domains, and a file keeps both promises."""
    rng = np.random.default_rng(4)
    _, target = records(4, n=300)
    far = Domain(
        target.X[:80], np.clip(target.X[:80] @ np.array([-0.9, 0.9, 0.9, 0, 0]), -1, 1) + 0.1 * rng.standard_normal(80)
    )
    model = MomentAdaptation(epsilon=5.0, delta=1e-3, unsafe_seed=1).fit({"registry": far, "clinics": shared()}, target)
    domain_weights = model.posterior_.domain_weights
    assert list(domain_weights) == ["registry", "clinics", "none"]
    assert sum(domain_weights.values()) == pytest.approx(1.0)
    assert domain_weights["clinics"] > domain_weights["registry"]
    model.save(tmp_path / "model.nc")
    again = MomentAdaptation.load(tmp_path / "model.nc")
    assert again.guarantees_ == model.guarantees_
    assert again.posterior_.domain_weights == domain_weights


@pytest.mark.filterwarnings("ignore:features. those of source .* have no names")
def test_intercepts_are_the_targets_own_and_messages_rescaled():
    """An intercept is the target's own, and scaled messages are rescaled."""
    w, target = records(5, n=400)
    moved = Domain(target.X, target.y + 0.4, tuple("abcde"))
    model = MomentAdaptation(epsilon=20.0, delta=1e-3, intercept=True, row_bound=1.0, target_bound=2.0, unsafe_seed=2)
    model.fit(shared(scaling="pareto"), moved)
    assert model.intercept_ == pytest.approx(0.4, abs=0.1)
    assert np.linalg.norm(model.coef_ - w) < 0.2
    assert model.posterior_.w.shape[1] == D + 1


def test_mistakes_are_named_and_cost_nothing():
    data = problems.shifted((50, 20), 0.1, num_features=D, tests=1)
    book = Ledger(epsilon=1.0, delta=1e-2, unit="target record")
    fit = lambda source, target: MomentAdaptation(**AS_THEY_COME, ledger=book, delta=1e-3).fit(source, target)
    wide = Domain(np.ones((9, 6)), np.ones(9))
    named = Domain(data.target.X, data.target.y, tuple("abcde"))
    wrong = [
        (shared(), wide, "source 'other tasks': expected a release of 6 features, got 5"),
        (
            {"clinics": shared(), "more": shared(scaling="pareto")},
            data.target,
            "source: expected at most one posterior",
        ),
        ({"none": shared()}, data.target, "source: expected other names than 'none'"),
        (shared(features=tuple("vwxyz")), named, "source 'other tasks': expected a release of the target's features"),
        (shared().release, data.target, "source: expected a Domain"),
    ]
    for source, target, message in wrong:
        with pytest.raises(ValueError, match=message):
            fit(source, target)
    assert book.charges() == []
