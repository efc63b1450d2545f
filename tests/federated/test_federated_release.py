"""A release over many sites is the one that a curator would have made, and every site answers for itself."""

from dataclasses import replace

import numpy as np
import pytest

import mpmtl_prob as mp
from mpmtl_prob import federated
from mpmtl_prob.privacy.mechanisms import exact
from mpmtl_prob.releases import message


@pytest.fixture(scope="module")
def tasks():
    return mp.datasets.synthetic_low_rank(num_tasks=12, num_features=3, rows=8).train


def part(tasks, chosen):
    return mp.TaskData.from_lists(*zip(*map(tasks.rows_of, chosen), strict=True))


def sites(tasks, per_site=1, **options):
    parts = [part(tasks, range(i, i + per_site)) for i in range(0, tasks.num_tasks, per_site)]
    return [federated.Site(k, part, **options) for k, part in enumerate(parts)]


def invite(tasks, **options):
    return federated.invite(1.0, tasks.num_tasks, tasks.features, **options)


@pytest.mark.parametrize("trust", ["curator", "secure_sum"])
@pytest.mark.parametrize("per_site", [1, 3])
def test_equal_noise_gives_the_curators_release_bit_for_bit(tasks, trust, per_site):
    """With the same noise, the release is the curator's, bit for bit."""
    central = mp.release(tasks, 1.0, unsafe_seed=3)
    invitation = invite(tasks, trust=trust, sites=tasks.num_tasks // per_site)
    outcome = federated.run(invitation, sites(tasks, per_site), unsafe_seed=3, progress_bar=False)
    np.testing.assert_array_equal(outcome.release.sigma, central.sigma)
    assert outcome.release.mechanisms == central.mechanisms
    assert outcome.release.num_tasks == 12


@pytest.mark.parametrize(("tasks_there", "sites_there", "partners"), [(3, 3, None), (139, 139, 10), (512, 16, None)])
def test_the_sum_is_exact_for_many_tasks(tasks_there, sites_there, partners):
    W = np.random.default_rng(0).standard_normal((5, tasks_there))
    options = {"sites": sites_there, "partners": partners, "scaling": "none", "trust": "secure_sum"}
    invitation = federated.invite(1.0, tasks_there, 5, **options)
    parts = np.array_split(W, sites_there, axis=1)
    leave = {1: "mask"} if invitation.dropouts else {}
    server = [federated.Site(k, each) for k, each in enumerate(parts)]
    release = federated.run(invitation, server, unsafe_seed=1, leave=leave, progress_bar=False).release
    V = invitation.terms.bounded(np.hstack([each for k, each in enumerate(parts) if k not in leave]))
    noise = invitation.terms.mechanisms[0].draw(invitation.terms.lattice**2, exact.source(1, 0))
    np.testing.assert_array_equal(release.sigma[0], V @ V.T + noise)
    assert release.num_tasks == V.shape[1]


@pytest.mark.parametrize(
    "leave", [{}, {2: "advertise"}, {2: "share", 5: "mask"}, {1: "mask", 7: "reveal", 8: "reveal"}]
)
def test_shares_of_those_who_stay_and_no_others_are_in_the_sum(tasks, leave):
    invitation = invite(tasks, trust="no_curator", colluders=2)
    outcome = federated.run(invitation, sites(tasks, unsafe_seed=4), unsafe_seed=4, leave=leave, progress_bar=False)
    inside = [i for i in range(12) if leave.get(i, "reveal") == "reveal"]
    V = message(tasks, invitation.terms)[:, inside]
    shares = [invitation.share.draw_share(exact.source(4, i)) for i in inside]
    np.testing.assert_array_equal(outcome.release.sigma[0], V @ V.T + np.sum(shares, axis=0))
    assert outcome.release.num_tasks == outcome.sites == len(inside)
    assert outcome.release.mechanisms[0].owners == len(inside)


def test_without_a_curator_it_keeps_the_promise_however_few_stay(tasks):
    invitation = invite(tasks, delta=1e-3, trust="no_curator", dropouts=4, colluders=3)
    least = federated.run(
        invitation, sites(tasks), leave=dict.fromkeys(range(4), "mask"), progress_bar=False
    ).release.guarantee
    most = federated.run(invitation, sites(tasks), progress_bar=False).release.guarantee
    assert least.proved.delta <= 1e-3
    assert least.proved.delta == pytest.approx(1e-3, rel=1e-5)
    assert most.proved.delta < least.proved.delta
    assert "discrete" in least.explain()
    with pytest.raises(federated.TooFewOwners, match="mask: 7 owners are there, and it takes 8"):
        federated.run(invitation, sites(tasks), leave=dict.fromkeys(range(5), "mask"), progress_bar=False)


def test_the_promise_counts_the_share_of_noise_each_site_knows(tasks):
    """The promise says that a site which added noise knows its share of it."""
    promise = {}
    for colluders in (0, 2):
        invitation = invite(tasks, delta=1e-3, trust="no_curator", colluders=colluders)
        leave = dict.fromkeys(range(4), "mask")
        outcome = federated.run(invitation, sites(tasks), leave=leave, progress_bar=False)
        promise[colluders] = outcome.release.guarantee
        for knowing in (0, 1, 2):  # who subtract their shares
            left = mp.privacy.Gaussian(3, invitation.share.share * np.sqrt(8 - knowing))
            assert (mp.privacy.compute_delta(1.0, left, "replace") < 1e-3) == (knowing <= colluders)
    assert "against whoever added no noise to it and nobody else" in str(promise[0])
    assert (
        "It holds against whoever added no noise to it, with 2 at most of the 8 owners who did" in promise[2].explain()
    )


def test_a_release_without_a_curator_can_be_kept_and_read(tasks, tmp_path):
    release = federated.run(invite(tasks, trust="no_curator"), sites(tasks), progress_bar=False).release
    release.save(tmp_path / "r.nc")
    again = mp.Release.load(tmp_path / "r.nc")
    assert again.mechanisms == release.mechanisms
    assert again.guarantee.proved == release.guarantee.proved
    assert again.guarantee.adversary == release.guarantee.adversary
    looks = [mp.inference.first_look(each) for each in (again, release)]
    np.testing.assert_array_equal(looks[0].omega, looks[1].omega)


@pytest.mark.parametrize("trust", federated.Trust)
def test_a_run_is_answered_once(tasks, trust, tmp_path):
    invitation = invite(tasks, trust=trust, dropouts=0)
    ledgers = [mp.privacy.Ledger(epsilon=5.0, delta=1e-2) for _ in range(12)]
    accounts = [federated.RunLog(tmp_path / f"{i}.db", runs=2, ledger=each) for i, each in enumerate(ledgers)]
    run = lambda: federated.run(
        invitation,
        [federated.Site(i, part(tasks, [i]), account) for i, account in enumerate(accounts)],
        progress_bar=False,
    )
    run()
    with pytest.raises(federated.TooFewOwners):
        run()
    for i, ledger in enumerate(ledgers):
        assert len(ledger.charges()) == (trust == "no_curator")
        assert [row[1] for row in federated.RunLog(tmp_path / f"{i}.db").answered()] == [trust]


def test_a_site_bounds_how_many_sums_are_seen(tasks):
    pays = lambda: mp.privacy.Ledger(epsilon=5.0, delta=1e-2)
    accounts = [federated.RunLog(runs=2, ledger=pays()) for _ in range(12)]
    run = lambda trust: federated.run(
        invite(tasks, trust=trust, dropouts=0),
        [federated.Site(i, part(tasks, [i]), account) for i, account in enumerate(accounts)],
        progress_bar=False,
    )
    run("secure_sum")
    run("curator")
    with pytest.raises(federated.TooFewOwners):
        run("secure_sum")
    run("no_curator")  # nobody sees that sum


def test_without_a_ledger_every_run_counts(tasks):
    accounts = [federated.RunLog(runs=2) for _ in range(12)]
    run = lambda: federated.run(
        invite(tasks, trust="no_curator", dropouts=2),
        [federated.Site(i, part(tasks, [i]), account) for i, account in enumerate(accounts)],
        progress_bar=False,
    )
    assert run().sites == run().sites == 12
    accounts[3] = federated.RunLog(runs=3)
    with pytest.raises(federated.TooFewOwners, match="mask: 1 owners are there"):
        run()
    with pytest.raises(federated.RunRefused, match="2 runs were answered, and no ledger pays, of 2 at most"):
        accounts[0].enter(b"another", "no_curator", seen=False)


def test_a_ledger_that_is_spent_keeps_its_site_out(tasks):
    mine = federated.RunLog(ledger=mp.privacy.Ledger(epsilon=0.1, delta=1e-3))
    all_sites = sites(tasks)
    all_sites[5] = federated.Site(5, part(tasks, [5]), mine)
    outcome = federated.run(invite(tasks, trust="no_curator"), all_sites, progress_bar=False)
    assert outcome.sites == 11
    assert outcome.refused == {5: "BudgetExceeded"}
    assert "the declared total" in all_sites[5].failure
    assert not mine.ledger.charges()


@pytest.mark.parametrize("trust", ["curator", "secure_sum", "no_curator"])
def test_a_site_that_fails_has_vanished(tasks, trust):
    """Its error is named to the others, and what the error says of its rows is its own."""

    def broken():
        raise ValueError("row 7 of Jane Roe has an income of 123456")

    all_sites = sites(tasks)
    all_sites[5] = federated.Site(5, broken)
    invitation = invite(tasks, trust=trust, **({} if trust == "curator" else {"dropouts": 2}))
    outcome = federated.run(invitation, all_sites, progress_bar=False)
    assert outcome.sites == outcome.release.num_tasks == 11
    assert outcome.refused == {5: "ValueError"}
    assert "123456" not in repr(outcome)
    assert all_sites[5].failure == "ValueError: row 7 of Jane Roe has an income of 123456"
    assert all_sites[4].failure is None
    with pytest.raises(federated.TooFewOwners) as error:
        federated.run(invite(tasks, trust=trust), [federated.Site(i, broken) for i in range(12)], progress_bar=False)
    assert "site 0: ValueError" in "".join(error.value.__notes__)
    assert "123456" not in "".join([str(error.value), *error.value.__notes__])


def test_the_server_pays_where_it_adds_the_noise(tasks):
    ledger = mp.privacy.Ledger(epsilon=1.5, delta=1e-1)
    federated.run(invite(tasks), sites(tasks), ledger=ledger, progress_bar=False)
    assert len(ledger.charges()) == 1
    with pytest.raises(ValueError, match="ledger: expected none where sites add the noise"):
        federated.run(invite(tasks, trust="no_curator"), sites(tasks), ledger=ledger, progress_bar=False)


@pytest.mark.parametrize("trust", ["secure_sum", "no_curator"])
def test_a_site_sends_nothing_unmasked_but_to_a_curator(tasks, trust):
    site = sites(tasks)[0]
    with pytest.raises(ValueError, match="stage: 'send' is out of turn"):
        site.answer(invite(tasks, trust=trust), "send", {})
    assert not site.run_log.answered()


def test_a_site_keeps_to_the_invitation_that_it_has_answered(tasks):
    site = sites(tasks)[0]
    site.answer(invite(tasks), "advertise", {})
    with pytest.raises(ValueError, match="invitation: expected the one that this site has answered before"):
        site.answer(invite(tasks, trust="curator"), "send", {})


def test_few_partners_need_enough_shares_to_open_one_sum_only(tasks):
    """Few partners open with so many shares that nobody sees two sums."""
    assert invite(tasks, partners=4).agreed.threshold == 4
    assert invite(tasks, partners=4, colluders=2).agreed.threshold == 5
    assert invite(tasks, partners=12).agreed.partners is None  # all others
    outcome = federated.run(invite(tasks, partners=4), sites(tasks), progress_bar=False)
    assert outcome.sites == 12
    with pytest.raises(federated.TooFewOwners):
        federated.run(
            invite(tasks, partners=2), sites(tasks), leave=dict.fromkeys((0, 5, 9), "share"), progress_bar=False
        )


@pytest.mark.parametrize(
    ("sites", "partners", "gone"), [(139, 20, 11), (1000, 20, 40), (1000, 40, 113), (10000, 40, 942)]
)
def test_few_partners_come_with_as_many_dropouts_as_they_bear(sites, partners, gone):
    invitation = federated.invite(1.0, sites, 3, partners=partners)
    assert invitation.dropouts == gone  # as the guide says
    assert invitation.risk <= 1e-6
    assert federated.invite(1.0, sites, 3, partners=partners, dropouts=gone + 1).risk > 1e-6
    with pytest.raises(ValueError, match=f"of {sites} sites with {partners} partners, or more partners, got"):
        federated.invite(1.0, sites, 3, partners=partners, dropouts=sites // 3)


@pytest.mark.parametrize(
    ("sites", "colluders", "gone", "threshold"),
    [(2, 1, 0, 2), (3, 1, 0, 3), (3, 0, 1, 2), (4, 1, 1, 3), (6, 1, 2, 4), (7, 1, 2, 5), (12, 1, 4, 8), (5, 4, 0, 5)],
)
def test_few_sites_may_lose_as_many_as_leave_more_than_half(sites, colluders, gone, threshold):
    invitation = federated.invite(1.0, 12, 2, sites=sites, colluders=colluders, scaling="none")
    assert (invitation.dropouts, invitation.agreed.threshold) == (gone, threshold)
    W = np.random.default_rng(0).standard_normal((2, sites))
    outcome = federated.run(invitation, [federated.Site(i, W[:, [i]]) for i in range(sites)],
                          leave=dict.fromkeys(range(gone), "reveal"), progress_bar=False)  # fmt: skip
    assert outcome.sites == sites


@pytest.mark.parametrize("stage", ["share", "mask", "reveal"])
def test_as_many_may_vanish_as_the_invitation_says(stage):
    W = np.random.default_rng(0).standard_normal((2, 60))
    invitation = federated.invite(1.0, 60, 2, partners=20, scaling="none")
    leave = dict.fromkeys(range(invitation.dropouts), stage)
    assert len(leave) > 3
    outcome = federated.run(
        invitation, [federated.Site(i, W[:, [i]]) for i in range(60)], leave=leave, progress_bar=False
    )
    assert outcome.sites == 60 - len(leave) * (stage != "reveal")


def test_noise_of_a_seed_guarantees_nothing_whoever_has_it(tasks):
    invitation = invite(tasks, trust="no_curator")
    mixed = [*sites(tasks)[:-1], sites(tasks, unsafe_seed=1)[-1]]
    assert federated.run(invitation, mixed, progress_bar=False).release.guarantee.proved is None
    assert federated.run(invite(tasks), sites(tasks, unsafe_seed=1), progress_bar=False).release.guarantee.proved


def test_nothing_of_the_rows_is_shown(tasks):
    site = sites(tasks)[0]
    assert repr(site) == "Site(0)"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"trust": "everybody"}, "trust: expected"),
        ({"dropouts": 6}, "dropouts: expected at most 5 of 12 sites with 1 who collude"),
        ({"dropouts": 40, "partners": 4}, "dropouts: expected at most 10 of 12 sites"),
        ({"dropouts": 3, "partners": 4}, "dropouts: expected at most 1 of 12 sites with 4 partners"),
        ({"dropouts": 4, "colluders": 5}, "dropouts: expected at most 3 of 12 sites with 5 who collude"),
        ({"colluders": 12}, "colluders: expected fewer than the 12 sites"),
        ({"sites": 1}, "sites: expected two at least"),
        ({"mechanism": "paper"}, "mechanism: expected"),
        ({"partners": 3}, "partners: expected an even number"),
        ({"partners": 0}, "partners: expected"),
        ({"partners": 2, "colluders": 2}, "partners: expected more of them with 2 colluders"),
    ],
)
def test_bad_arguments_are_named(tasks, options, said):
    with pytest.raises(ValueError, match=said):
        federated.run(invite(tasks, **options), sites(tasks), progress_bar=False)


def hospitals():
    """Twelve tasks in natural units, with an intercept, and the reference values of their study."""
    rng = np.random.default_rng(5)
    X = [np.stack([rng.normal(60, 15, 9), rng.integers(0, 2, 9)], axis=1) for _ in range(12)]
    y = [5 + 0.05 * rows[:, 0] + rng.normal(0, 2, 9) for rows in X]
    tasks = mp.TaskData.from_lists(X, y, features=["age", "male"]).with_intercept()
    return tasks, mp.Reference({"age": (60, 15), "male": (0.5, 0.5)}, target=(7, 5), effects={"age": 0.05})


def of_hospitals(tasks, **options):
    """A site for each, with its rows as they are."""
    rows = [tasks.rows_of(i) for i in range(tasks.num_tasks)]
    one = lambda X, y: mp.TaskData.from_lists([X[:, :-1]], [y], features=["age", "male"]).with_intercept()
    return [federated.Site(i, one(*each), **options) for i, each in enumerate(rows)]


def test_effects_over_sites_are_the_curators_release():
    """Messages of effects over sites give the curator's release, bit for bit."""
    tasks, reference = hospitals()
    central = mp.release(tasks, 1.0, reference=reference, unsafe_seed=3)
    invitation = invite(tasks, reference=reference, trust="secure_sum")
    release = federated.run(invitation, of_hospitals(tasks), unsafe_seed=3, progress_bar=False).release
    np.testing.assert_array_equal(release.sigma, central.sigma)
    assert release.effects == central.effects == invitation.terms.effects
    assert release.effects.reference == reference
    assert release.mechanisms == central.mechanisms
    V = message(tasks, invitation.terms)
    noise = invitation.terms.mechanisms[0].draw(invitation.terms.lattice**2, exact.source(3, 0))
    np.testing.assert_array_equal(release.sigma[0], V @ V.T + noise)


@pytest.mark.parametrize("trust", ["curator", "secure_sum", "no_curator"])
def test_sites_may_bring_rows_or_estimates(trust):
    """Some sites may bring rows, and others an estimate that was made elsewhere."""
    tasks, reference = hospitals()
    invitation = invite(tasks, reference=reference, trust=trust, delta=1e-3)
    rng = np.random.default_rng(0)
    own = [
        mp.Estimate(rng.normal(0, 1, 3), np.diag([1e-4, 0.3, 0.5]), ["age", "male", "(Intercept)"]) for _ in range(6)
    ]
    seeds = {"unsafe_seed": 4} if trust == "no_curator" else {}
    with_estimates = [federated.Site(i, mp.Estimates([each]), **seeds) for i, each in enumerate(own)]
    mixed = with_estimates + of_hospitals(tasks, **seeds)[6:]
    release = federated.run(invitation, mixed, unsafe_seed=4, progress_bar=False).release
    V = message(mp.Estimates(own), invitation.terms), message(tasks, invitation.terms)[:, 6:]
    if trust == "no_curator":
        noise = np.sum([invitation.share.draw_share(exact.source(4, i)) for i in range(12)], axis=0)
    else:
        noise = invitation.terms.mechanisms[0].draw(invitation.terms.lattice**2, exact.source(4, 0))
    np.testing.assert_array_equal(release.sigma[0], np.hstack(V) @ np.hstack(V).T + noise)


def test_effects_without_a_curator_sum_over_those_who_stay(tmp_path):
    """Without a curator, the sum of effects has the messages and noise of those who stay."""
    tasks, reference = hospitals()
    invitation = invite(tasks, reference=reference, trust="no_curator", delta=1e-3, colluders=2)
    sites_there = of_hospitals(tasks, unsafe_seed=4)
    outcome = federated.run(invitation, sites_there, unsafe_seed=4, leave={2: "share", 5: "mask"}, progress_bar=False)
    inside = [i for i in range(12) if i not in (2, 5)]
    V = message(tasks, invitation.terms)[:, inside]
    shares = [invitation.share.draw_share(exact.source(4, i)) for i in inside]
    np.testing.assert_array_equal(outcome.release.sigma[0], V @ V.T + np.sum(shares, axis=0))
    assert outcome.release.num_tasks == len(inside)
    assert outcome.release.effects.coefficients == ("age", "male", "intercept")
    outcome.release.save(tmp_path / "release.nc")
    assert mp.Release.load(tmp_path / "release.nc").effects == invitation.terms.effects
    proved = federated.run(invitation, of_hospitals(tasks), progress_bar=False).release.guarantee.proved
    assert proved.delta <= 1e-3  # of six coordinates, not of three features


def test_reference_values_are_signed_as_all_that_was_agreed():
    tasks, reference = hospitals()
    other = mp.Reference(reference.features, target=(7, 6), effects=reference.effects)
    invitation = invite(tasks, reference=reference)
    terms = mp.releases.ReleaseSpec(1.0, reference=other).terms(12, tasks.features)
    assert replace(invitation, terms=terms).digest != invitation.digest
    with pytest.raises(
        ValueError, match=r"reference: expected values of the columns .* none of 'sex' and values of 'male'"
    ):
        federated.invite(1.0, 12, ["age", "sex", "intercept"], reference=reference)
