"""What everybody knows before a row is read: who is invited, whom it takes to trust with what, and the noise."""

from __future__ import annotations

import hashlib
import json
import secrets
from bisect import bisect
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np

from mpmtl_prob._util.checks import one_of, whole
from mpmtl_prob.federated.secure_sum import RUN, Agreed
from mpmtl_prob.federated.thresholds import risk, unbroken, undivided
from mpmtl_prob.privacy import lattice
from mpmtl_prob.privacy.accounting.calibration import calibrate_gaussian
from mpmtl_prob.privacy.mechanisms import GaussianShares
from mpmtl_prob.privacy.mechanisms.mechanism import write_mechanism
from mpmtl_prob.privacy.mechanisms.shares import slack
from mpmtl_prob.releases.spec import ReleaseSpec, Terms, default_delta

#: The risk of no release that comes with the number of dropouts that nobody chose, and one that nobody may choose.
SAFE, RISKY = 1e-6, 1e-2


class Trust(StrEnum):
    """Who sees what."""

    CURATOR = "curator"
    SECURE_SUM = "secure_sum"
    NO_CURATOR = "no_curator"

    @property
    def seen(self) -> bool:
        """Somebody sees a sum without noise."""
        return self is not Trust.NO_CURATOR


@dataclass(frozen=True)
class Invitation:
    """What everybody knows before a row is read.

    Attributes:
        terms: of the release; ``num_tasks`` is how many there are at most.
        trust: who sees what.
        sites: how many are invited, numbered from 0.
        agreed: on the sum; ``least`` is how many sites have to be in it.
        study: the hash of the study's file, :attr:`mpmtl_prob.Schema.digest`, which the release remembers; None where there
            is none.
    """

    terms: Terms
    trust: Trust
    sites: int
    agreed: Agreed
    study: str | None = None

    @property
    def share(self) -> GaussianShares:
        """The noise where sites add it, if as few stay as may."""
        (law,) = self.terms.mechanisms
        assert isinstance(law, GaussianShares)
        return law

    @property
    def dropouts(self) -> int:
        """How many sites may vanish. With more there is no release."""
        return self.sites - self.agreed.least

    @property
    def risk(self) -> float:
        """At most the probability that there is none though no more vanish than may, whoever they are.

        Zero where all share masks with all; with few partners, too many of one site's may be among those who vanish.
        """
        return 0.0 if self.trust is Trust.CURATOR else risk(self.agreed, self.sites, self.dropouts)

    @property
    def digest(self) -> bytes:
        """A hash of all that was agreed, for signatures: whoever signs it was invited to the same run by the same terms."""
        said = self.terms
        numbers = {"kinds": [write_mechanism(law) for law in said.mechanisms]} | {
            name: getattr(said, name)
            for name in ("epsilon", "adjacency", "num_tasks", "features", "lattice", "message", "scaling")
        }
        if said.effects is not None:
            numbers["effects"] = said.effects.to_dict()
        if self.study is not None:
            numbers["study"] = self.study
        agreed = [self.agreed.run.hex(), *self.agreed[1:]]
        text = json.dumps([numbers, self.trust, self.sites, agreed], sort_keys=True)
        return hashlib.sha256(text.encode()).digest()


def invite(
    epsilon: float | ReleaseSpec,
    num_tasks: int,
    features: Sequence[Hashable] | int,
    delta: float | None = None,
    *,
    sites: int | None = None,
    trust: str = "secure_sum",
    dropouts: int | None = None,
    colluders: int = 1,
    partners: int | None = None,
    study: str | None = None,
    **options: Any,
) -> Invitation:
    """The terms of one release over several sites, from public numbers alone.

    Args:
        epsilon: > 0; or a :class:`ReleaseSpec`, of one round, by name of the mechanism, and with clip = 1 if any,
            as messages of length 1 at most are sent.
        num_tasks: how many there are at all sites together, at most.
        features: their names, or how many there are.
        delta: in (0, 1); default 1 / (m log m).
        sites: how many are invited; default one for every task.
        trust: "curator", "secure_sum" or "no_curator".
        dropouts: how many sites may vanish; default a third of them, rounded down, or fewer where more than half of the sites
            and colluders together have to stay; with few partners as many as leave a ``risk`` of 1e-6. With more there is no
            release.
        colluders: how many sites may tell all they know to whoever attacks. With trust="no_curator" noise is added for that:
            every site knows its own share of it, so that the promise is made against outsiders alone with 0, and against any
            one site with 1.
        partners: of every site, with whom it shares masks; default all others. An even number of order log(sites) will do
            for thousands, the more the more may vanish: see ``Invitation.risk``.
        study: the hash of the study's file, if there is one.
        options: further fields of :class:`ReleaseSpec`: ``mechanism`` ("wishart" or "gaussian", where the server adds the
            noise; shares are Gaussian), ``adjacency``, ``scaling`` (default "pareto"), ``message`` ("clip" shortens
            vectors to length 1 where they are longer), and ``reference``, whose values travel with the invitation: messages
            of effects, for a mixed model.

    Raises:
        ValueError: an argument outside its range.

    >>> from mpmtl_prob.federated import invite
    >>> invitation = invite(1.0, num_tasks=40, features=3, trust="no_curator", dropouts=4, colluders=2)
    >>> law = invitation.share  # of the 36 that stay at least, 34 keep theirs to themselves
    >>> print(f"{law.sd:.2f} for {law.share * 34**0.5:.2f}")
    2.06 for 2.00
    """
    how = Trust(one_of("trust", trust, tuple(each.value for each in Trust)))
    m = whole("num_tasks", num_tasks)
    n = whole("sites", m if sites is None else sites)
    d = whole("features", features) if isinstance(features, int | np.integer) else len(features)
    spec = _spec(epsilon, delta, options)
    if spec.kind == "effects":
        d = len(spec.layout(tuple(range(d)) if isinstance(features, int | np.integer) else tuple(features)).coordinates)
    if d == 1 and spec.kind == "direction":
        raise ValueError("features: expected two or more, as sites send directions and one feature has but one, got 1; a "
                         "curator takes one feature by mpmtl_prob.release with message='clip'")  # fmt: skip
    agreed = _agreed(how, n, d * (d + 1) // 2 + 1, dropouts, whole("colluders", colluders, 0), partners)
    no_curator = how is Trust.NO_CURATOR
    settled = _with_shares(spec, m, features, d, agreed.least, colluders) if no_curator else spec.terms(m, features)
    return Invitation(settled, how, n, agreed, study)


def _spec(epsilon: float | ReleaseSpec, delta: float | None, options: Mapping[str, Any]) -> ReleaseSpec:
    """The specification of what sites can do together. Raises ValueError for another."""
    if options.get("message") == "clip":
        options = {"clip": 1.0, **options}
    spec = ReleaseSpec.of(epsilon, delta, **options)
    if spec.covariates is not None:
        raise ValueError(
            "covariates: expected none of tasks at several sites, of which some may vanish, got some; a curator takes "
            "them, by mp.release"
        )
    one_of("mechanism", spec.mechanism, ("wishart", "gaussian"))
    if spec.clip not in (None, 1.0):
        raise ValueError(
            f"clip: expected 1 where sites send messages, got {spec.clip!r}; send directions (message='direction'), or "
            "vectors that are divided by it"
        )
    if spec.rounds not in (1, "auto"):
        raise ValueError(f"rounds: expected 1, as sites send one message, got {spec.rounds!r}")
    return replace(spec, rounds=1)


def _agreed(how: Trust, n: int, length: int, dropouts: int | None, colluders: int, partners: int | None) -> Agreed:
    """Who shares masks with how many, how many shares open one, and how many have to stay."""
    if partners is not None and whole("partners", partners) % 2:
        raise ValueError(f"partners: expected an even number, as many on either side, got {partners}")
    run, gone = secrets.token_bytes(RUN), None if dropouts is None else whole("dropouts", dropouts, 0)
    if how is Trust.CURATOR:  # who sees everything, and opens nothing
        return Agreed(run, length, max(2, 2 * n // 3), None, n - (n // 3 if gone is None else gone))
    if n < 2:
        raise ValueError(f"sites: expected two at least, as the sum over one is its own, got {n}")
    if colluders >= n:
        raise ValueError(f"colluders: expected fewer than the {n} sites, got {colluders}")
    if partners is not None and partners < n - 1:
        agreed = _among_few(Agreed(run, length, unbroken(partners, colluders), partners), n, gone, colluders)
    else:
        agreed = _among_all(Agreed(run, length, undivided(n, colluders)), n, gone, colluders)
    if how is Trust.NO_CURATOR and colluders >= agreed.least:
        raise ValueError(f"colluders: expected fewer than the {agreed.least} sites that stay at least, got {colluders}")
    if colluders >= agreed.threshold:
        raise ValueError(
            f"colluders: expected fewer than the {agreed.threshold} shares that open a mask, got {colluders}"
        )
    return agreed


def _among_all(agreed: Agreed, n: int, gone: int | None, colluders: int) -> Agreed:
    """Who stays opens the masks: as many as the threshold, and two thirds of all where so many stay."""
    most = n - agreed.threshold
    least = n - (min(n // 3, most) if gone is None else gone)
    if least < agreed.threshold:
        raise ValueError(f"dropouts: expected at most {most} of {n} sites with {colluders} who collude, as more than half of "
                         f"the sites and those have to stay, or fewer colluders, got {gone}")  # fmt: skip
    return agreed._replace(threshold=max(agreed.threshold, min(2 * n // 3, least)), least=least)


def _among_few(agreed: Agreed, n: int, gone: int | None, colluders: int) -> Agreed:
    """So many as leave a risk that is small."""
    few = agreed.partners or 0
    if agreed.threshold > few + 1:
        raise ValueError(f"partners: expected more of them with {colluders} colluders, got {few}")
    gone = min(n // 3, _may_vanish(agreed, n, SAFE)) if gone is None else gone
    if n - gone < 2:
        raise ValueError(f"dropouts: expected at most {n - 2} of {n} sites, so that two are in the sum, got {gone}")
    if risk(agreed, n, gone) > RISKY:
        raise ValueError(f"dropouts: expected at most {_may_vanish(agreed, n, RISKY)} of {n} sites with {few} "
                         f"partners, or more partners, got {gone}")  # fmt: skip
    return agreed._replace(least=n - gone)


def _may_vanish(agreed: Agreed, owners: int, most: float) -> int:
    """How many, at no more than this risk; the more vanish the larger it is."""
    return bisect(range(1, owners + 1), most, key=lambda gone: risk(agreed, owners, gone))


def _with_shares(
    spec: ReleaseSpec, m: int, features: Sequence[Hashable] | int, d: int, least: int, colluders: int
) -> Terms:
    """Terms whose noise, of messages of d coordinates, is private though only ``least - colluders`` shares protect."""
    wanted = default_delta(m) if spec.delta is None else spec.delta
    epsilon, adjacency = spec.epsilon, spec.adjacency
    real = calibrate_gaussian(epsilon, wanted, d, adjacency=adjacency)
    h = lattice.step(1.0, d, m, [real])
    for _ in range(2):  # what discreteness costs is next to nothing, and paid too
        lost = slack(d, real.sd / h**2, real.mu("replace"))
        real = calibrate_gaussian(epsilon, wanted - 1.01 * lost, d, adjacency=adjacency)
    law = GaussianShares(d, float(real.sd / np.sqrt(least - colluders)), least, h**2, colluders)
    settled = replace(spec, delta=wanted, mechanism=law).terms(m, features)
    if settled.lattice != h:
        law = replace(law, step=settled.lattice**2)
        settled = replace(settled, mechanisms=(law,))
    return settled
