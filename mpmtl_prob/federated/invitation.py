"""Invitation to a federated run: the public terms on which all sites agree before any row is read."""

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

#: Probability that a run fails though no more sites drop out than may: at most SAFE for the default number of dropouts, and
#: a number of dropouts with more than RISKY is refused.
SAFE, RISKY = 1e-6, 1e-2


class Trust(StrEnum):
    """Trust model: who sees a site's sum, and who adds the noise."""

    CURATOR = "curator"
    SECURE_SUM = "secure_sum"
    NO_CURATOR = "no_curator"

    @property
    def seen(self) -> bool:
        """True if somebody sees a sum without noise."""
        return self is not Trust.NO_CURATOR


@dataclass(frozen=True)
class Invitation:
    """The public terms of one federated run.

    Attributes:
        terms: the terms of the release; ``num_tasks`` is the largest possible number of tasks.
        trust: the trust model.
        sites: the number of invited sites, which are numbered from 0.
        agreed: the parameters of the secure sum; ``least`` is the smallest number of sites in it.
        study: the hash of the study's file, :attr:`mpmtl_prob.Schema.digest`, which the release remembers; None without
            a study.
    """

    terms: Terms
    trust: Trust
    sites: int
    agreed: Agreed
    study: str | None = None

    @property
    def share(self) -> GaussianShares:
        """The noise that the sites add, with the smallest number of sites in the sum."""
        (law,) = self.terms.mechanisms
        assert isinstance(law, GaussianShares)
        return law

    @property
    def dropouts(self) -> int:
        """The number of sites that may drop out. With more dropouts there is no release."""
        return self.sites - self.agreed.least

    @property
    def risk(self) -> float:
        """A bound on the probability that the run fails though no more than ``dropouts`` sites drop out.

        It is zero where all sites share masks with all others. With few partners, too many partners of one site may be among
        the dropouts.
        """
        return 0.0 if self.trust is Trust.CURATOR else risk(self.agreed, self.sites, self.dropouts)

    @property
    def digest(self) -> bytes:
        """A hash of all terms. Sites sign it, which proves that they were invited to the same run on the same terms."""
        terms = self.terms
        numbers = {"kinds": [write_mechanism(law) for law in terms.mechanisms]} | {
            name: getattr(terms, name)
            for name in ("epsilon", "adjacency", "num_tasks", "features", "lattice", "message", "scaling")
        }
        if terms.effects is not None:
            numbers["effects"] = terms.effects.to_dict()
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
    """Invite sites to one federated release. Only public numbers enter the terms.

    Args:
        epsilon: > 0; or a :class:`ReleaseSpec` with one round, with the mechanism's name, and with clip 1 if it has one, as
            messages have length 1 at most.
        num_tasks: the number of tasks at all sites together, at most.
        features: the features' names, or their number.
        delta: in (0, 1); default 1 / (m log m).
        sites: the number of invited sites; default one for every task.
        trust: "curator", "secure_sum" or "no_curator".
        dropouts: the number of sites that may drop out. The default is a third of them, rounded down, or fewer where more
            than half of sites and colluders together have to stay; with few partners, as many as leave a ``risk`` of 1e-6.
            With more dropouts there is no release.
        colluders: the number of sites that may tell an attacker all they know. With trust="no_curator" it costs noise, as
            every site knows its own share of the noise: 0 protects against outsiders only, 1 also against any one site.
        partners: the number of other sites with which every site shares masks; default all. For thousands of sites an even
            number of order log(sites) is enough; more partners allow more dropouts, see ``Invitation.risk``.
        study: the hash of the study's file, if there is one.
        options: further fields of :class:`ReleaseSpec`: ``mechanism`` ("wishart" or "gaussian", where the server adds the
            noise; shares are Gaussian), ``adjacency``, ``scaling`` (default "pareto"), ``message`` ("clip" shortens
            vectors to length 1 where they are longer), and ``reference``, whose values travel with the invitation; messages
            are then effects, for a mixed model (random effects).

    Raises:
        ValueError: an argument outside its range.

    >>> from mpmtl_prob.federated import invite
    >>> invitation = invite(1.0, num_tasks=40, features=3, trust="no_curator", dropouts=4, colluders=2)
    >>> law = invitation.share  # at least 36 sites stay, and 34 of them do not collude
    >>> print(f"{law.sd:.2f} for {law.share * 34**0.5:.2f}")
    2.06 for 2.00
    """
    trust_model = Trust(one_of("trust", trust, tuple(model.value for model in Trust)))
    m = whole("num_tasks", num_tasks)
    n = whole("sites", m if sites is None else sites)
    d = whole("features", features) if isinstance(features, int | np.integer) else len(features)
    spec = _spec(epsilon, delta, options)
    if spec.kind == "effects":
        d = len(spec.layout(tuple(range(d)) if isinstance(features, int | np.integer) else tuple(features)).coordinates)
    if d == 1 and spec.kind == "direction":
        raise ValueError("features: expected two or more, as sites send directions and one feature has but one, got 1; a "
                         "curator takes one feature by mpmtl_prob.release with message='clip'")  # fmt: skip
    agreed = _agreed(trust_model, n, d * (d + 1) // 2 + 1, dropouts, whole("colluders", colluders, 0), partners)
    no_curator = trust_model is Trust.NO_CURATOR
    terms = _with_shares(spec, m, features, d, agreed.least, colluders) if no_curator else spec.terms(m, features)
    return Invitation(terms, trust_model, n, agreed, study)


def _spec(epsilon: float | ReleaseSpec, delta: float | None, options: Mapping[str, Any]) -> ReleaseSpec:
    """Return the specification of the release. Raises ValueError for one that sites cannot compute together."""
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
    """Return the parameters of the secure sum: partners, the threshold of shares, and the least number of sites."""
    if partners is not None and whole("partners", partners) % 2:
        raise ValueError(f"partners: expected an even number, as many on either side, got {partners}")
    run, gone = secrets.token_bytes(RUN), None if dropouts is None else whole("dropouts", dropouts, 0)
    if how is Trust.CURATOR:  # the curator sees every sum, so that there are no masks to open
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
    """Return the parameters where all sites share masks with all others.

    The threshold is the smallest safe one, or two thirds of the sites where so many stay.
    """
    most = n - agreed.threshold
    least = n - (min(n // 3, most) if gone is None else gone)
    if least < agreed.threshold:
        raise ValueError(f"dropouts: expected at most {most} of {n} sites with {colluders} who collude, as more than half of "
                         f"the sites and those have to stay, or fewer colluders, got {gone}")  # fmt: skip
    return agreed._replace(threshold=max(agreed.threshold, min(2 * n // 3, least)), least=least)


def _among_few(agreed: Agreed, n: int, gone: int | None, colluders: int) -> Agreed:
    """Return the parameters where every site has few partners, with so few dropouts that the risk is small."""
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
    """Return the largest number of dropouts whose risk is at most ``most``; the risk grows with the dropouts."""
    return bisect(range(1, owners + 1), most, key=lambda gone: risk(agreed, owners, gone))


def _with_shares(
    spec: ReleaseSpec, m: int, features: Sequence[Hashable] | int, d: int, least: int, colluders: int
) -> Terms:
    """Return terms whose noise, for messages of d coordinates, is private with ``least - colluders`` shares alone."""
    delta = default_delta(m) if spec.delta is None else spec.delta
    epsilon, adjacency = spec.epsilon, spec.adjacency
    real = calibrate_gaussian(epsilon, delta, d, adjacency=adjacency)
    h = lattice.step(1.0, d, m, [real])
    for _ in range(2):  # rounding to the lattice adds a very small delta, which is paid for here
        rounding_delta = slack(d, real.sd / h**2, real.mu("replace"))
        real = calibrate_gaussian(epsilon, delta - 1.01 * rounding_delta, d, adjacency=adjacency)
    law = GaussianShares(d, float(real.sd / np.sqrt(least - colluders)), least, h**2, colluders)
    terms = replace(spec, delta=delta, mechanism=law).terms(m, features)
    if terms.lattice != h:
        law = replace(law, step=terms.lattice**2)
        terms = replace(terms, mechanisms=(law,))
    return terms
