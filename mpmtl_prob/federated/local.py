"""Federated run with all sites in one process, for tests, demonstrations, and counting bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tqdm.auto import tqdm

from mpmtl_prob._util.protocols import implements
from mpmtl_prob.federated.invitation import Invitation, Trust
from mpmtl_prob.federated.protocol import Message, Sending, serve, settle
from mpmtl_prob.federated.secure_sum import TooFewOwners
from mpmtl_prob.privacy.ledger import Ledger
from mpmtl_prob.releases.release import Release

_SHOWN = 5  # at most so many sites are named in an error
STAGES = {"send": 1, "advertise": 0, "share": 1, "mask": 2, "confirm": 3, "reveal": 4}


@dataclass(frozen=True)
class Outcome:
    """Result of a successful run: the release, and the traffic it took.

    Attributes:
        release: the release, which is public.
        sites: the number of sites in it.
        moved: bytes sent and received, by stage.
        refused: the error's name for every site that did not answer, by site number. The error's text may quote rows, so
            that only the site itself has it, in :attr:`Site.failure`.
    """

    release: Release
    sites: int
    moved: Mapping[str, int]
    refused: Mapping[int, str] = field(default_factory=dict)


class AnySite(Protocol):
    """Protocol class for a site in a run in one process: :class:`Site`, or any class with its methods."""

    @property
    def number(self) -> int:
        """The site's number among the invited sites."""
        ...

    @property
    def seeded(self) -> bool:
        """True if the site draws its noise from a seed, which protects nothing."""
        ...

    def answer(self, invitation: Invitation, stage: str, received: Message) -> Message:
        """Return the site's answer at a stage."""
        ...


def conduct[T](
    server: Generator[Sending, dict[int, Message], T], ask: Callable[[str, dict[int, Message]], dict[int, Message]]
) -> T:
    """Drive a server's generator to its end, and return its result.

    At every stage the generator yields the messages to send, ``ask`` delivers them, and the replies are sent back to it.
    """
    stage, sending = next(server)
    while True:
        replies = ask(stage, sending)
        try:
            stage, sending = server.send(replies)
        except StopIteration as end:
            result: T = end.value
            return result


def size(message: Message) -> int:
    """Return the size of a message in bytes."""
    return sum(map(len, message.values()))


def run(
    invitation: Invitation,
    sites: Sequence[AnySite],
    *,
    unsafe_seed: int | None = None,
    ledger: Ledger | None = None,
    leave: Mapping[int, str] | None = None,
    progress_bar: bool = True,
) -> Outcome:
    """Run the protocol with all sites in this process.

    Args:
        invitation: to the run.
        sites: all invited sites.
        unsafe_seed: draws the server's noise from this seed, for demonstrations. Sites that add the noise have seeds of their
            own; one seeded site is enough for a release without a guarantee.
        ledger: the server's ledger, where the server adds the noise.
        leave: the stage at which a site drops out, by site number: "advertise", "share", "mask", "confirm" (where all share
            masks with all, or keys are signed), "reveal", or "send".
        progress_bar: show one.

    Raises:
        TooFewOwners: too many sites dropped out, refused, or failed with an error of any kind.
        ValueError: the sites are not those that are invited.
    """
    for site in sites:
        implements("sites", site, AnySite)
    by_number = {site.number: site for site in sites}
    if sorted(by_number) != list(range(invitation.sites)) or len(sites) != invitation.sites:
        raise ValueError(f"sites: expected those numbered 0 to {invitation.sites - 1}, each once")
    gone = {i: STAGES[stage] for i, stage in (leave or {}).items()}
    moved: Counter[str] = Counter()
    refused: dict[int, str] = {}
    with tqdm(
        total=len(sites) * (1 if invitation.trust is Trust.CURATOR else 5), miniters=1, disable=not progress_bar
    ) as bar:

        def ask(stage: str, sending: dict[int, Message]) -> dict[int, Message]:
            bar.set_description(stage)
            replies: dict[int, Message] = {}
            for i, received in sending.items():
                bar.update()
                if gone.get(i, 9) <= STAGES[stage] or i in refused:
                    continue
                try:
                    replies[i] = by_number[i].answer(invitation, stage, received)
                except Exception as error:  # a site that fails counts as dropped out, as it does between machines
                    refused[i] = type(error).__name__
                    failed: Any = by_number[i]
                    failed.failure = f"{refused[i]}: {error}"  # for the site's owner only
                    continue
                moved[stage] += size(received) + size(replies[i])
            return replies

        try:
            total, inside = conduct(serve(invitation), ask)
        except TooFewOwners as error:
            if refused:
                said = ", ".join(f"site {i}: {name}" for i, name in sorted(refused.items())[:_SHOWN])
                error.add_note(f"refused or failed were {len(refused)}, among them {said}; Site.failure says why")
            raise
    seeded = any(site.seeded for site in sites)
    release = settle(invitation, total, inside, unsafe_seed=unsafe_seed, seeded=seeded, ledger=ledger)
    return Outcome(release, inside, dict(moved), refused)
