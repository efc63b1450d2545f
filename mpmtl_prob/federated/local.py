"""All sites in one process, with every message as it would travel: for tests, demonstrations, and counting bytes."""

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

_SHOWN = 5  # sites in an error
STAGES = {"send": 1, "advertise": 0, "share": 1, "mask": 2, "confirm": 3, "reveal": 4}


@dataclass(frozen=True)
class Outcome:
    """A run that ended well.

    Attributes:
        release: what everybody sees.
        sites: how many are in it.
        moved: bytes by stage, both ways.
        refused: the name of the error because of which a site did not answer, by its number. Its text may tell of rows and
            accounts, and is the site's own: :attr:`Site.failure`.
    """

    release: Release
    sites: int
    moved: Mapping[str, int]
    refused: Mapping[int, str] = field(default_factory=dict)


class AnySite(Protocol):
    """What a run in one process asks of a site: :class:`Site` and whatever answers like one."""

    @property
    def number(self) -> int:
        """Its number among the sites that are invited."""
        ...

    @property
    def seeded(self) -> bool:
        """Whether its noise was drawn from a seed, and protects nothing."""
        ...

    def answer(self, invitation: Invitation, stage: str, received: Message) -> Message:
        """Return what the site says at a stage."""
        ...


def conduct[T](
    server: Generator[Sending, dict[int, Message], T], ask: Callable[[str, dict[int, Message]], dict[int, Message]]
) -> T:
    """What a server returns at the end: at every stage it says what to send to whom, and is told what ``ask`` got back."""
    stage, sending = next(server)
    while True:
        replies = ask(stage, sending)
        try:
            stage, sending = server.send(replies)
        except StopIteration as end:
            found: T = end.value
            return found


def size(message: Message) -> int:
    """Bytes."""
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
    """A run over sites in this process.

    Args:
        invitation: to the run.
        sites: all that are invited, by their numbers.
        unsafe_seed: of the noise, for demonstrations; sites that add it have their own, and one is enough for a release
            that guarantees nothing.
        ledger: of the server, where it adds the noise.
        leave: the stage at which a site vanishes, by its number: "advertise", "share", "mask", "confirm" (where all share
            masks with all, or keys are signed), "reveal", or "send".
        progress_bar: show one.

    Raises:
        TooFewOwners: too many vanished, refused, or failed with an error of any kind.
        ValueError: other sites than are invited.
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
                except Exception as error:  # one that fails is one that vanishes, as between machines
                    refused[i] = type(error).__name__
                    failed: Any = by_number[i]
                    failed.failure = f"{refused[i]}: {error}"  # for its owner alone
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
