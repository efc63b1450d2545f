"""Demonstration of one release over many sites, all in this process: test errors, and what each party saw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mpmtl_prob import federated
from mpmtl_prob._util.tables import aligned
from mpmtl_prob.cli import demo
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.evaluation import Comparison, compare, standard_fits
from mpmtl_prob.inference import shared_covariance, task_posteriors
from mpmtl_prob.sampling.extent import WARMUP

#: Name of the method in the table, by trust. Only if owners add the noise, nobody acts as a curator.
ARMS = {
    "curator": "several sites, a curator",
    "secure_sum": "secure sum, noise by the server",
    "no_curator": "without a curator",
}
#: Description of what the server is trusted with.
TRUSTED = {
    "curator": "the server is trusted with every owner's second moment, and to add the noise",
    "secure_sum": "the server is trusted with the sum over all owners, and to add the noise",
    "no_curator": "nobody is trusted with a sum without noise, and owners are to add their shares of it",
}


@dataclass(frozen=True)
class Shown:
    """Results of the demonstration.

    Attributes:
        data: name of the data set.
        epsilon: budget of the release.
        invitation: invitation to the run.
        outcome: outcome of the run, whose release is in the last row of the table.
        comparison: test errors of every method.
    """

    data: str
    epsilon: float
    invitation: federated.Invitation
    outcome: federated.Outcome
    comparison: Comparison

    @property
    def seen(self) -> dict[str, str]:
        """Description of what each party saw, in words."""
        n, d = self.invitation.sites, len(self.invitation.terms.features)
        total = f"{d} x {d} second moment of {self.outcome.release.num_tasks} owners together"
        by_trust = {
            "curator": f"{n} second moments, one of every owner; adds the noise",
            "secure_sum": f"{n} vectors under masks, and the {total}, without noise; adds the noise",
            "no_curator": f"{n} vectors under masks, and the {total}, with noise in it",
        }
        letters = "" if self.invitation.trust == "curator" else "public keys and letters it cannot open for others, "
        added = ", and its own share of the noise" if self.invitation.trust == "no_curator" else ""
        return {
            "the server": by_trust[self.invitation.trust],
            "an owner": f"its own rows, {letters}the release{added}",
            "everybody else": "the release",
        }

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers and strings, for JSON."""
        return {
            "data": self.data,
            "epsilon": self.epsilon,
            "trust": str(self.invitation.trust),
            "owners": self.outcome.sites,
            "seen": self.seen,
            "bytes": dict(self.outcome.moved),
            "fits": self.comparison.to_dicts(),
        }

    def __str__(self) -> str:
        moved, n = self.outcome.moved, self.invitation.sites
        sizes = [(stage, f"{size / 1000:.1f} kB", f"{size / n / 1000:.2f} kB") for stage, size in moved.items()]
        total = sum(moved.values())
        seen = "\n".join(f"{who:<16}{what}" for who, what in self.seen.items())
        sizes.append(("together", f"{total / 1000:.1f} kB", f"{total / n / 1000:.2f} kB"))
        return (
            f"{self.data}: test error, honesty of the 90 % intervals, and what protects a task (zero-out adjacency)\n\n"
            f"{self.comparison}\n\n{demo.NOT_COVERED}\n\n"
            f"who saw what of {n} owners, trust = {self.invitation.trust.value}: {TRUSTED[self.invitation.trust]}\n\n"
            f"{seen}\n\nbytes moved, both ways\n\n"
            f"{aligned([('stage', 'all owners', 'one owner'), *sizes])}\n\n{self.outcome.release}"
        )


def run(
    data: str, epsilon: float, *, trust: str = "secure_sum", draws: int = 300, seed: int = 0, progress_bar: bool = True
) -> Shown:
    """Fit every method of the demonstration at one budget, and the posterior of a release that owners made by themselves.

    Args:
        data: one of ``demo.DATA``.
        epsilon: budget, > 0.
        trust: as in :func:`mpmtl_prob.federated.invite`.
        draws: draws of NUTS per chain; warmup takes as many, up to 140.
        seed: seed of splits, folds and samplers; never of the release.
        progress_bar: show one.
    """
    train, test, _ = demo.load(data, seed)
    invitation = federated.invite(epsilon, train.num_tasks, train.features, trust=trust, adjacency="zero_out")
    owners = [federated.Site(i, _one(train, i)) for i in range(train.num_tasks)]
    outcome = federated.run(invitation, owners, progress_bar=progress_bar)
    fits = standard_fits(
        train, [epsilon], adjacency="zero_out", chains=demo.CHAINS, draws=draws, folds=demo.FOLDS, seed=seed,
        progress_bar=progress_bar,
    )  # fmt: skip
    public = shared_covariance(
        outcome.release,
        chains=demo.CHAINS,
        warmup=min(draws, WARMUP),
        draws=draws,
        seed=seed,
        progress_bar=progress_bar,
    )
    # In a real study, every owner does this with its own rows at home.
    own = task_posteriors(train, public, seed=seed, progress_bar=progress_bar)
    named = f"{ARMS[invitation.trust]}, eps = {epsilon:g}"
    return Shown(data, epsilon, invitation, outcome, compare({**fits, named: own}, test))


def _one(tasks: TaskData, i: int) -> TaskData:
    X, y = tasks.rows_of(i)
    return TaskData.from_lists([X], [y], features=tasks.features)
