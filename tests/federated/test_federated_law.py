"""A release over sites has the law of a curator's, and owners learn as much from it."""

import numpy as np
import pytest
from scipy.stats import ks_2samp, t

import mpmtl_prob as mp
from mpmtl_prob import federated
from mpmtl_prob.privacy.mechanisms import Gaussian
from mpmtl_prob.releases.messages import messages

STATISTICS = 4
SURPRISE = 1e-6 / STATISTICS


def differ(one, other):
    """Test whether four numbers of every draw tell noise (n, d, d) of two kinds apart; false alarm below 1e-6."""
    off = np.triu_indices(one.shape[1], 1)
    numbers = lambda E: [
        np.trace(E, axis1=1, axis2=2), E[:, *off].sum(axis=1), np.linalg.norm(E, axis=(1, 2)), np.linalg.eigvalsh(E)[:, -1]
    ]  # fmt: skip
    pairs = list(zip(numbers(one), numbers(other), strict=True))
    assert len(pairs) == STATISTICS
    return any(ks_2samp(a, b).pvalue < SURPRISE for a, b in pairs)


def both(W, trust, sites, draws):
    """Noise of as many federated and central releases of messages W, (draws, d, d) each."""
    parts, noise = np.array_split(W, sites, axis=1), []
    for _ in range(draws):
        invitation = federated.invite(1.0, W.shape[1], len(W), sites=sites, trust=trust)
        everybody = [federated.Site(k, part) for k, part in enumerate(parts)]
        release = federated.run(invitation, everybody, progress_bar=False).release
        (law,) = release.mechanisms
        central = mp.release(W, 1.0, mechanism=Gaussian(len(W), law.sd) if trust == "no_curator" else law)
        V = invitation.terms.bounded(W)
        noise.append((release.sigma[0] - V @ V.T, central.sigma[0] - V @ V.T))
    return np.array(noise).swapaxes(0, 1)


@pytest.mark.parametrize("trust", ["secure_sum", "no_curator"])
def test_the_noise_has_the_curators_law(trust):
    here, there = both(np.random.default_rng(0).standard_normal((4, 12)), trust, 3, draws=50)
    assert not differ(here, there)
    assert differ(here, 2 * there)


def school():
    try:
        return mp.datasets.school().split(0.3, seed=0)
    except FileNotFoundError as error:
        pytest.skip(str(error))


@pytest.mark.evidence
@pytest.mark.parametrize("trust", ["secure_sum", "no_curator"])
def test_on_school_the_noise_has_the_curators_law(trust):
    W, _, _ = messages(school()[0], "pareto")
    here, there = both(W, trust, 6, draws=200)
    assert not differ(here, there)
    assert differ(here, 1.1 * there)


@pytest.mark.evidence
def test_on_school_owners_learn_as_much():
    """Mean error over releases of fresh noise: federated against central with noise of the same law; false alarm < 1e-6."""
    train, test = school()
    m, releases = train.num_tasks, 6
    parts = [
        mp.TaskData.from_lists(*zip(*map(train.rows_of, part), strict=True)) for part in np.array_split(np.arange(m), 6)
    ]
    error = {"federated": [], "central": []}
    for _ in range(releases):
        invitation = federated.invite(1.0, m, train.features, sites=6, trust="no_curator", dropouts=1)
        everybody = [federated.Site(k, part) for k, part in enumerate(parts)]
        release = federated.run(invitation, everybody, progress_bar=False).release
        law = Gaussian(train.num_features, release.mechanisms[0].sd)
        for name, each in (("federated", release), ("central", mp.release(train, 1.0, mechanism=law))):
            shared = mp.inference.shared_covariance(each, chains=2, warmup=200, draws=150, progress_bar=False)
            own = mp.inference.task_posteriors(train, shared)
            error[name].append(mp.evaluation.nmse_within(own.predict(test), test))
    one, other = map(np.array, error.values())
    print(f"nMSE within, mean and sd of {releases}: federated {one.mean():.4f}, {one.std(ddof=1):.4f}; "
          f"central {other.mean():.4f}, {other.std(ddof=1):.4f}")  # fmt: skip
    spread = np.sqrt((one.var(ddof=1) + other.var(ddof=1)) / releases)
    assert abs(one.mean() - other.mean()) < t.isf(0.5e-6, 2 * releases - 2) * spread
    assert max(one.max(), other.max()) < 0.8  # single-task ridge has .826


@pytest.mark.parametrize(("epsilon", "most"), [(0.1, 1e-9), (1.0, 1e-9), (10.0, 1e-9), (50.0, 1e-8)])
def test_discrete_shares_add_as_little_delta_as_the_page_says(epsilon, most):
    """With delta up to .1, docs/federated.md says below 1e-9 up to eps = 10, and below 1e-8 up to eps = 50."""
    for features in (2, 3, 4, 5, 9, 17, 40):
        for adjacency in ("replace", "zero_out"):
            for delta in (0.1, 1e-3, 1e-6):
                spec = {"num_tasks": 30, "features": features, "trust": "no_curator", "delta": delta}
                invitation = federated.invite(epsilon, **spec, adjacency=adjacency)
                assert 0 < invitation.share.slack < most
