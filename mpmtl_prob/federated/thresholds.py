"""How many shares open a secret of the secure sum, such that a server that lies about who is there gets one sum or none."""

from __future__ import annotations

import math

from mpmtl_prob.federated.secure_sum import Agreed


def undivided(owners: int, colluders: int = 0) -> int:
    """Return the threshold from which on no lie about who vanished opens both secrets of one owner, where all share masks.

    A server may tell some owners that one of them has arrived, and others that it has vanished. Of the n owners c tell it
    all that they know. Each of the n - c others gives it one share of that owner: of its seed if it was told the first, of
    its key if it was told the second. So it has at most n - c + 2 c = n + c shares of the two together, and opens both only
    if 2 threshold <= n + c.

    That alone is not enough: an owner's vector is as open if, beside its seed, the keys of all with whom it masks are, each
    of whom has vanished as most owners are told. Therefore an owner reveals nothing before as many as have to be in the sum,
    ``least``, have vouched to it for the same list of arrivals. An honest owner vouches for one list, so that two find enough
    only if 2 least <= n + c. With one list L, vouched for by the honest owners F, let the server read the sum over owners S
    and no other, and let j be in S.

    - F has at least least - c owners. All others have at most n + c - least < threshold shares of any secret, so that of who
      is on L no key is opened by them, and of who is not no seed: j is on L.
    - Owner j masks with ``least``, itself among them, and so with one of F, say i. The key of i is closed, so i is in S.
    - Owner i masks with all honest owners on L, whose keys are closed: F is in S.

    The sum is over no fewer than least - c honest owners. It asks that the server passes on the public keys of a run as they
    are, or that owners sign them; with least >= threshold > (n + c) / 2 all that is said above holds.

    Source: Bonawitz et al. (2017), CCS, section 6 and theorem 6.5, where signatures vouch for the list.
    """
    return (owners + colluders) // 2 + 1


def unbroken(partners: int, colluders: int = 0) -> int:
    """The threshold from which on a circle of few partners gives one sum or none, whoever vanishes.

    Two gaps across which nobody shares a mask would leave a sum of either side. A gap has at least half of the k partners of
    the owner at its edge, in a row, who are gone or collude. Say c of these collude. If no other of them wrote letters, that
    owner has k / 2 + c letters at most, and goes on with no fewer than the threshold less one; if another did, its key must
    be opened, and k / 2 + 1 + c shares of it are there at most. A threshold above that is enough for both; and at one of two
    gaps are at most half of the colluders.
    """
    return partners // 2 + 2 + colluders // 2


def risk(agreed: Agreed, owners: int, gone: int) -> float:
    """A bound on the probability that no sum is opened, if so many of the owners vanish whatever their places on the circle.

    Somebody's mask is not opened where fewer than the threshold stay of those who hold a share of it: an owner who stays
    and its partners, or the partners of one who vanished. Of k partners a hypergeometric number stays; owners add up.

    Source: Bell et al. (2020), CCS, section 3.2, whose bound is by binomials.
    """
    n, k, t = owners, agreed.partners, agreed.threshold
    if k is None or k >= n - 1:
        return float(n - gone < t)
    vanished = gone * _fewer(t, n - 1, n - gone, k) if gone else 0.0
    stayed = (n - gone) * _fewer(t - 1, n - 1, n - gone - 1, k) if gone < n else 0.0
    return float(min(1.0, vanished + stayed))


def _fewer(than: int, owners: int, there: int, drawn: int) -> float:
    """P(fewer than so many of those drawn, without replacement, are there)."""
    ways = sum(math.comb(there, x) * math.comb(owners - there, drawn - x) for x in range(min(than, drawn + 1)))
    return ways / math.comb(owners, drawn)
