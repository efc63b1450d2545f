"""Runs of six sites of one task each, through a server that may change what it passes on, and sites that may lie."""

from dataclasses import replace

import numpy as np

from mpmtl_prob import federated
from mpmtl_prob.federated import RunRefused, Signer

N, D = 6, 2
W = np.random.default_rng(0).standard_normal((D, N)) * 77_712.345


def invite(trust="secure_sum", epsilon=1.0, **options):
    return federated.invite(epsilon, N, D, trust=trust, scaling="none", **options)


def sites(**options):
    return [federated.Site(i, W[:, [i]], **options) for i in range(N)]


def seen(
    change=lambda stage, i, message: message, answers=lambda stage, i, reply: reply, everybody=None, invitation=None
):
    """Run through a server that changes what it passes on, with sites that change what they say.

    Returns:
        The sum with the numbers of those in it, or None; and all errors.
    """
    invitation, everybody = invitation or invite(), everybody or sites()
    server = federated.serve(invitation)
    errors = []
    inside = []
    stage, sending = next(server)
    while True:
        replies = {}
        if stage == "reveal":
            inside = list(sending)
        for i, received in sending.items():
            try:
                reply = everybody[i].answer(invitation, stage, change(stage, i, dict(received)))
                replies[i] = answers(stage, i, dict(reply))
            except (RunRefused, federated.TooFewOwners, ValueError) as error:
                errors.append(error)
        try:
            stage, sending = server.send(replies)
        except StopIteration as end:
            return (end.value[0], inside), errors
        except (federated.TooFewOwners, ValueError) as error:
            return None, [*errors, error]


def plain(inside, invitation):
    """Return the sum over the sites inside, as it should be."""
    V = invitation.terms.bounded(W[:, inside])
    A = (V @ V.T)[np.tril_indices(D)] / invitation.terms.lattice**2
    return np.append(A.astype(np.int64), len(inside)).view(np.uint64)


def lie(invitation, agreed=None, law=None, **terms):
    """Make an invitation that says what is not so."""
    laws = {"mechanisms": (replace(invitation.terms.mechanisms[0], **law),)} if law else {}
    return replace(
        invitation,
        terms=replace(invitation.terms, **laws, **terms),
        agreed=invitation.agreed._replace(**agreed or {}),
    )


def signers():
    """Make a signer for every site, each of which knows all."""
    private, public = zip(*(federated.new_key() for _ in range(N)), strict=True)
    return [Signer(key, dict(enumerate(public))) for key in private]


def signed(signers):
    return [federated.Site(i, W[:, [i]], signer=signer) for i, signer in enumerate(signers)]
