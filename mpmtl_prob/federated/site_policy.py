"""Site policy: conditions that an invitation must meet before a site takes part."""

from __future__ import annotations

from dataclasses import dataclass

from mpmtl_prob._util.checks import fraction, normalise_fields, one_of, positive, whole
from mpmtl_prob._util.former import former_names
from mpmtl_prob.federated.invitation import Invitation, Trust
from mpmtl_prob.federated.run_log import RunRefused
from mpmtl_prob.federated.thresholds import unbroken, undivided
from mpmtl_prob.privacy.accounting.composition import compute_delta as true_delta
from mpmtl_prob.privacy.mechanisms import GaussianShares
from mpmtl_prob.privacy.units import Adjacency
from mpmtl_prob.releases.spec import default_delta

_EXACT = 2.0**52  # whole numbers that doubles add without rounding
_ROUNDING = 1 + 1e-9  # delta is worked out on another machine than the invitation's


@dataclass(frozen=True)
class SitePolicy:
    """Conditions that a site sets for every run. The privacy of the noise is computed from its distribution, not believed.

    Attributes:
        trust: the trust model with the most trust in others that the site accepts: "curator", "secure_sum" or "no_curator".
        epsilon: the largest epsilon of one run, > 0; default the one that the invitation states.
        delta: the largest delta at that epsilon, in (0, 1); default 1 / (m log m) for the m announced tasks, and 1 / m if
            epsilon is not given either. An invitation that announces few tasks may then have little noise, so a site that
            does not believe m should give its own delta.
        adjacency: "replace" or "zero_out", for which epsilon and delta must hold; default the invitation's.
        least: the least number of sites in the sum.
        colluders: the number of other sites that may collude without learning more about this one.

    Raises:
        ValueError: an argument outside its range.

    >>> from mpmtl_prob import federated
    >>> careful = federated.SitePolicy(trust="no_curator", epsilon=1.0, adjacency="replace", least=20)
    >>> careful.check(federated.invite(3.0, num_tasks=40, features=3, trust="no_curator"))
    Traceback (most recent call last):
    mpmtl_prob.federated.run_log.RunRefused: epsilon: at 1 this site accepts delta up to 0.00678, and that of the noise is ...
    """

    trust: str = "curator"
    epsilon: float | None = None
    delta: float | None = None
    adjacency: str | None = None
    least: int = 2
    colluders: int = 0

    def __post_init__(self) -> None:
        one_of("trust", self.trust, tuple(Trust))
        if self.epsilon is not None:
            normalise_fields(self, positive, "epsilon")
        if self.delta is not None:
            normalise_fields(self, fraction, "delta")
        if self.adjacency is not None:
            Adjacency.of(self.adjacency)
        whole("least", self.least)
        whole("colluders", self.colluders, 0)

    def check(self, invitation: Invitation, *, signed: bool = False) -> None:
        """Check that an invitation meets the conditions.

        Args:
            invitation: to the run.
            signed: True if sites sign the keys of the run and the list of arrivals.

        Raises:
            RunRefused: the invitation does not meet them, or contradicts itself.
        """
        asked = list(Trust).index(invitation.trust)
        if asked < list(Trust).index(Trust(self.trust)):
            raise RunRefused(f"trust: this site accepts {self.trust!r}, and was asked for {invitation.trust.value!r}")
        self._of_the_noise(invitation)
        if invitation.trust is not Trust.CURATOR:
            self._of_the_sum(invitation)
            self._of_the_masks(invitation, signed)

    def _of_the_noise(self, invitation: Invitation) -> None:
        terms = invitation.terms
        shares = [law for law in terms.mechanisms if isinstance(law, GaussianShares)]
        if len(terms.mechanisms) != 1 or len(shares) != (invitation.trust is Trust.NO_CURATOR) or terms.purchases:
            raise RunRefused("mechanisms: expected the noise of one release, in shares if nobody is to see the sum")
        units = terms.num_tasks * terms.clip**2 / terms.lattice**2
        if units > _EXACT or any(law.step != terms.lattice**2 for law in shares):
            raise RunRefused(f"lattice: expected one on which the sum of {terms.num_tasks} tasks is exact, "
                             f"got {terms.lattice:.3g}")  # fmt: skip
        for law in shares:
            if law.owners > invitation.agreed.least:
                raise RunRefused(
                    f"least: the noise takes {law.owners} shares, and {invitation.agreed.least} sites may be enough"
                )
            if law.colluders < self.colluders:
                raise RunRefused(f"colluders: this site expects noise against {self.colluders}, got {law.colluders}")
        epsilon = terms.epsilon if self.epsilon is None else self.epsilon
        usual = default_delta(terms.num_tasks) if self.epsilon else 1 / terms.num_tasks
        delta = usual if self.delta is None else self.delta
        true = true_delta(epsilon, terms.mechanisms, self.adjacency or terms.adjacency)
        if not true <= delta * _ROUNDING:
            raise RunRefused(f"epsilon: at {epsilon:.3g} this site accepts delta up to {delta:.3g}, and that of the noise "
                             f"is {true:.3g}")  # fmt: skip

    def _of_the_sum(self, invitation: Invitation) -> None:
        agreed, d = invitation.agreed, len(invitation.terms.features)
        if agreed.length != d * (d + 1) // 2 + 1:
            raise RunRefused(f"length: expected that of a second moment of {d} features, got {agreed.length}")
        if not max(2, self.least) <= agreed.least <= invitation.sites:
            raise RunRefused(f"least: this site expects {max(2, self.least)} sites in the sum, got {agreed.least}")
        if invitation.terms.num_tasks < agreed.least:
            raise RunRefused(
                f"num_tasks: expected one for each of {agreed.least} sites, got {invitation.terms.num_tasks}"
            )

    def _of_the_masks(self, invitation: Invitation, signed: bool) -> None:
        """Check that a server which lies about dropouts opens no mask that it should not; :func:`undivided` has the proof.

        At most one of two lists of arrivals is confirmed by ``least`` sites, as an honest site confirms one list and only
        colluders may confirm both. Sites that do not sign may also have been sent different terms for the same run.
        Therefore they require that even with two lists nobody opens both secrets of one of them.
        """
        agreed, sites = invitation.agreed, invitation.sites
        colluders = max(self.colluders, *(getattr(law, "colluders", 0) for law in invitation.terms.mechanisms))
        if agreed.partners is not None:
            enough = unbroken(agreed.partners, colluders)
        else:
            enough = 2 if signed else undivided(sites, colluders)
        if agreed.threshold < max(enough, colluders + 1):
            raise RunRefused(f"threshold: this site expects that {max(enough, colluders + 1)} shares open a mask of "
                             f"{sites} sites of whom {colluders} may collude, got {agreed.threshold}")  # fmt: skip
        if (signed or agreed.partners is None) and 2 * agreed.least <= sites + colluders:
            raise RunRefused(f"least: this site expects more than {(sites + colluders) // 2} of {sites} in the sum, so "
                             f"that no two lists of arrivals find enough who vouch for them, got {agreed.least}")  # fmt: skip


__getattr__ = former_names(__name__, {"Conditions": "SitePolicy"})
