"""At home: an owner's posterior from a release without a curator and its own rows, and a report if it wants to give one."""

import numpy as np
import pytest
from scipy.stats import chi2, norm

import mpmtl_prob as mp
from mpmtl_prob import federated

SURPRISE = 1e-7


@pytest.fixture(scope="module")
def tasks():
    return mp.datasets.synthetic_low_rank(num_tasks=12, num_features=3, rows=8)


def alone(data, i):
    return mp.TaskData.from_lists(*([part] for part in data.rows_of(i)))


@pytest.mark.parametrize("trust", ["secure_sum", pytest.param("no_curator", marks=pytest.mark.evidence)])
def test_an_owner_reads_the_release_with_its_own_rows_only(tasks, trust):
    """An owner reads the release with its own rows and nothing else."""
    train, test = tasks.train, tasks.test
    invitation = federated.invite(8.0, 12, train.features, trust=trust, dropouts=1)
    sites = [federated.Site(i, alone(train, i)) for i in range(12)]
    release = federated.run(invitation, sites, progress_bar=False).release
    shared = mp.inference.shared_covariance(release, chains=2, warmup=200, draws=20, progress_bar=False)
    together = mp.inference.task_posteriors(train, shared, draws=20)
    for i in (0, 7):
        own = mp.inference.task_posteriors(alone(train, i), shared, draws=20)
        np.testing.assert_allclose(own.W[:, 0], together.W[:, i], rtol=1e-5)
        assert np.isfinite(own.predict(alone(test, i)).mean).all()


@pytest.mark.parametrize("trust", federated.Trust)
def test_a_report_is_the_mean_with_its_noise(trust):
    runs, values = 30, np.random.default_rng(0).uniform(0, 2, 30)
    z = []
    for _ in range(runs):
        sites = [federated.Site(k, federated.report_message(values[k::3], most=2.0)) for k in range(3)]
        invitation = federated.invite_report(1.0, 30, sites=3, trust=trust, dropouts=0)
        report = federated.read_report(federated.run(invitation, sites, progress_bar=False).release, most=2.0)
        assert report.tasks == 30
        assert report.guarantee.proved.epsilon == 1.0
        assert report.guarantee.proved.unit == "task"
        z.append((report.mean - values.mean()) / report.error)
    cut = 4e-3 / report.error  # numbers are cut to the grid
    assert abs(np.mean(z)) < cut + norm.isf(SURPRISE / 2) / np.sqrt(runs)
    assert chi2.ppf(SURPRISE, runs - 1) < runs * np.var(z) < chi2.isf(SURPRISE, runs - 1)


def test_values_are_cut_to_their_range():
    message = federated.report_message([-1.0, 0.5, 3.0], most=2.0)
    np.testing.assert_allclose(message**2, [[0.0, 0.25, 1.0]])


def test_the_error_of_a_report_is_the_sd_of_its_noise():
    sites = [federated.Site(k, federated.report_message([0.5])) for k in range(6)]
    invitation = federated.invite_report(1.0, 6, sites=6, trust="no_curator", dropouts=0)
    release = federated.run(invitation, sites, progress_bar=False).release
    noise = release.mechanisms[0].sample(np.random.default_rng(0), np.zeros((20_000, 1, 1)))
    assert federated.read_report(release).error == pytest.approx(noise.std() / 6, rel=0.05)  # ten standard errors


def test_a_ledger_counts_the_report_beside_the_release(tasks):
    ledger = mp.privacy.Ledger(epsilon=1.2, delta=0.04)
    account = federated.RunLog(ledger=ledger)
    site = lambda i, source: federated.Site(i, source, account if i == 0 else None)
    run = lambda invitation, sources: federated.run(
        invitation, [site(i, source) for i, source in enumerate(sources)], progress_bar=False
    )
    how = {"trust": "no_curator", "dropouts": 1}
    rows = [alone(tasks.train, i) for i in range(12)]
    said = [federated.report_message([0.5])] * 12
    assert not run(federated.invite(0.9, 12, 3, **how), rows).refused
    assert not run(federated.invite_report(0.3, 12, **how), said).refused
    assert run(federated.invite_report(1.0, 12, **how), said).refused.keys() == {0}
    assert len(ledger.charges()) == 2
    assert 0.9 < ledger.spent.epsilon <= 1.2


def test_what_is_no_report_is_named(tasks):
    with pytest.raises(ValueError, match="values: expected finite numbers, one per task"):
        federated.report_message([np.nan])
    with pytest.raises(ValueError, match="most: expected"):
        federated.report_message([1.0], most=0.0)
    with pytest.raises(ValueError, match="release: expected that of a report"):
        federated.read_report(mp.release(tasks.train, 1.0))
