"""Thresholds of the secure sum: how many shares must open a secret, so that a lying server gets one sum or none."""

from __future__ import annotations

import math

from mpmtl_prob.federated.secure_sum import Agreed


def undivided(owners: int, colluders: int = 0) -> int:
    """Return the smallest threshold with which no lie about dropouts opens both secrets of one owner, with all as partners.

    A server may tell some owners that one of them has arrived, and tell others that it has dropped out. Of the n owners, c
    collude with the server and tell it all that they know. Each of the n - c others gives it one share that belongs to that
    owner: a share of its seed if it was told the first, a share of its key if it was told the second. So the server has at
    most n - c + 2 c = n + c shares of the two secrets together, and opens both only if 2 threshold <= n + c.

    That alone is not enough. The server also reads an owner's vector if it opens its seed, and the keys of all partners of
    that owner, by telling most owners that these partners have dropped out. Therefore an owner reveals nothing before
    ``least`` owners, the number that must be in the sum, have confirmed the same list of arrivals to it. An honest owner
    confirms one list, so that two lists have enough confirmations only if 2 least <= n + c. Let L be the one list, let F be
    the honest owners who confirm it, let the server read the sum over the owners in a set S, and let j be in S.

    - F has at least least - c owners. All other owners have at most n + c - least < threshold shares of any secret. So they
      open no key of an owner on L, and no seed of an owner who is not on L. Hence j is on L.
    - Owner j masks with ``least`` owners, itself included, and so with at least one owner in F, say i. The key of i is not
      opened, so i is in S.
    - Owner i masks with all honest owners on L, whose keys are not opened. Hence F is in S.

    So the sum is over at least least - c honest owners. The proof assumes that the server passes on the public keys of a run
    unaltered, or that owners sign them, and that least >= threshold > (n + c) / 2.

    Source: Bonawitz et al. (2017), CCS, section 6 and theorem 6.5, where signatures confirm the list.
    """
    return (owners + colluders) // 2 + 1


def unbroken(partners: int, colluders: int = 0) -> int:
    """Return the threshold with which a circle of few partners gives one sum or none, whoever drops out.

    Two gaps in the circle, across which nobody shares a mask, would give the server one sum for either side. A gap is a row
    of at least k / 2 of the k partners of the owner at its edge, all of whom have dropped out or collude. Say that c of them
    collude. If none of the others wrote letters, the owner at the edge has at most k / 2 + c letters, and it continues only
    with at least threshold - 1 of them. If one of the others did write, its key must be opened, and there are at most
    k / 2 + 1 + c shares of that key. A larger threshold rules out both. One of the two gaps has at most half of the
    colluders.
    """
    return partners // 2 + 2 + colluders // 2


def risk(agreed: Agreed, owners: int, gone: int) -> float:
    """Bound the probability that no sum can be opened, if ``gone`` owners drop out independently of their places.

    An owner's mask cannot be opened if fewer holders of its shares stay than the threshold. The holders are the owner itself,
    if it stays, and its partners. The number of the k partners who stay is hypergeometric. The bound adds up the probability
    over all owners.

    Source: Bell et al. (2020), CCS, section 3.2, which uses binomial bounds.
    """
    n, k, t = owners, agreed.partners, agreed.threshold
    if k is None or k >= n - 1:
        return float(n - gone < t)
    vanished = gone * _fewer(t, n - 1, n - gone, k) if gone else 0.0
    stayed = (n - gone) * _fewer(t - 1, n - 1, n - gone - 1, k) if gone < n else 0.0
    return float(min(1.0, vanished + stayed))


def _fewer(than: int, owners: int, there: int, drawn: int) -> float:
    """Return P(X < than), where X is how many of the owners drawn without replacement are there (hypergeometric)."""
    ways = sum(math.comb(there, x) * math.comb(owners - there, drawn - x) for x in range(min(than, drawn + 1)))
    return ways / math.comb(owners, drawn)
