"""Nobody has to be believed: what a site insists upon."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.federated_runs import D, N, invite, lie, sites

from mpmtl_prob import federated
from mpmtl_prob.federated import RunRefused, SitePolicy
from mpmtl_prob.privacy.mechanisms import PaperWishart


@pytest.mark.parametrize(
    ("conditions", "options", "said"),
    [
        ({"trust": "secure_sum"}, {"trust": "curator"}, "trust: this site accepts 'secure_sum', and was asked for"),
        ({"trust": "no_curator"}, {}, "trust: this site accepts 'no_curator'"),
        ({"epsilon": 1.0}, {"epsilon": 1.1}, "epsilon: at 1 this site accepts delta up to 0.093, and that of the noise is"),
        ({"delta": 1e-3}, {"delta": 1.1e-3}, "epsilon: at 1 this site accepts delta up to 0.001"),
        ({"adjacency": "replace"}, {"adjacency": "zero_out"}, "epsilon: at 1 this site accepts"),
        ({"least": 5}, {}, "least: this site expects 5 sites in the sum, got 4"),
        ({"colluders": 2}, {"trust": "no_curator"}, "colluders: this site expects noise against 2, got 1"),
        ({"colluders": 4}, {}, "threshold: this site expects that 6 shares open a mask of 6 sites of whom 4 may"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("stage", ["advertise", "send"])
def test_an_invitation_that_asks_for_more_is_refused_at_once(conditions, options, said, stage):
    """An invitation that asks for more is refused before anything leaves the site."""
    site = sites(policy=SitePolicy(**conditions))[0]
    with pytest.raises(RunRefused, match=said):
        site.answer(invite(**options), stage, {})
    assert not site.run_log.answered()


@pytest.mark.parametrize("trust", federated.Trust)
def test_an_invitation_that_asks_for_no_more_is_answered(trust):
    for conditions in (
        SitePolicy(),
        SitePolicy(trust, 1.0, 0.1, "replace", least=4, colluders=1),
        SitePolicy(epsilon=2.0),
    ):
        outcome = federated.run(invite(trust), sites(policy=conditions), progress_bar=False)
        assert outcome.sites == N
    outcome = federated.run(invite(adjacency="zero_out"), sites(policy=SitePolicy(epsilon=3.0, adjacency="replace")),
                          progress_bar=False)  # fmt: skip
    assert outcome.sites == N  # which is private enough in either sense


@pytest.mark.parametrize(
    ("invitation", "said"),
    [
        (lie(invite(), law={"scale": 1e-3}), "epsilon: at 1 this site accepts"),
        (lie(invite(), mechanisms=(PaperWishart(D, 1.0),)), "epsilon: at 1 this site accepts"),
        (lie(invite("no_curator"), law={"share": 0.1}), "epsilon: at 1 this site accepts"),
        (lie(invite("no_curator"), agreed={"least": 3}), "least: the noise takes 4 shares, and 3 sites may be enough"),
        (lie(invite("no_curator"), agreed={"least": 7}), "least: this site expects 2 sites in the sum, got 7"),
        (lie(invite(), agreed={"least": 1}), "least: this site expects 2 sites in the sum, got 1"),
        (lie(invite(), agreed={"threshold": 1}), "threshold: this site expects that 4 shares"),
        (lie(invite(), agreed={"threshold": 3}), "threshold: this site expects that 4 shares"),
        (lie(invite(), agreed={"least": 3}), "least: this site expects more than 3 of 6 in the sum"),
        (lie(federated.invite(1.0, 30, D), agreed={"threshold": 2}), "threshold: this site expects that 16 shares"),
        (lie(invite("no_curator", colluders=2), agreed={"threshold": 4}), "threshold: this site expects that 5 shares"),
        (lie(invite(), agreed={"partners": 4, "threshold": 3}), "threshold: this site expects that 4 shares"),
        (lie(invite(), num_tasks=3), "num_tasks: expected one for each of 4 sites, got 3"),
        (lie(invite(), agreed={"length": 3}), "length: expected that of a second moment of 2 features, got 3"),
        (lie(invite(), lattice=2.0**-25), "lattice: expected one on which the sum of 6 tasks is exact"),
        (lie(invite("no_curator"), lattice=2.0**-12), "lattice: expected one on which"),
        (replace(invite(), trust=federated.Trust.NO_CURATOR), "mechanisms: expected the noise of one release, in shares"),
        (replace(invite("no_curator"), trust=federated.Trust.CURATOR), "mechanisms: expected the noise of one release"),
    ],
)  # fmt: skip
def test_contradictory_invitations_are_refused_by_every_site(invitation, said):
    """An invitation that contradicts itself is refused by every site."""
    with pytest.raises(RunRefused, match=said):
        sites()[0].answer(invitation, "advertise", {})


def test_a_site_of_more_tasks_than_were_announced_sends_nothing():
    account = federated.RunLog()
    many = federated.Site(0, np.eye(D, 7), account)
    with pytest.raises(ValueError, match="source: expected at most the 6 tasks of the invitation, got 7"):
        many.answer(invite("curator"), "send", {})
    assert not account.answered()


@pytest.mark.parametrize(
    ("argument", "value"),
    [("trust", "all"), ("epsilon", 0), ("delta", 1.0), ("adjacency", "add"), ("least", 0), ("colluders", -1)],
)
def test_conditions_that_are_none_are_named(argument, value):
    with pytest.raises(ValueError, match=argument):
        SitePolicy(**{argument: value})
