"""A site whose stages are answered by a process each: its secrets wait on its own disk."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from mpmtl_prob._util.former import former_names
from mpmtl_prob.federated.invitation import Invitation
from mpmtl_prob.federated.protocol import Message, Site, Source
from mpmtl_prob.federated.run_log import RunLog
from mpmtl_prob.federated.secure_sum import Advert, Keys, Masked, Shared
from mpmtl_prob.privacy.ledger import Ledger

_DAY = 86_400  # seconds after which what a run left behind is removed: nobody comes back for it


class PersistentSite(Site):
    """A :class:`Site` that forgets nothing when its process ends.

    Between two stages its keys, and its shares of those of others, are in a file that is the owner's alone (mode 0600), named
    by the run. Whoever answers takes the file away first, so that no stage is answered twice, by however many processes; what
    is needed for the next one is on disk before the answer leaves. After the last there is no file. A process that dies on
    its way loses the file: the site has vanished from that run, and what its account says stands.

    Args:
        number: among the sites that are invited.
        source: as of a :class:`Site`; a function is called where the rows are needed, and not at the other stages.
        folder: for these files and the account, on a disk that nobody else reads; made if it is not there.
        runs: as of an :class:`RunLog`, which is in the folder.
        ledger: pays for runs whose noise is in the sum.
        options: further arguments of :class:`Site`.

    Raises:
        ValueError: an argument outside its range.
    """

    def __init__(
        self,
        number: int,
        source: Source,
        folder: str | os.PathLike[str],
        *,
        runs: int = 1,
        ledger: Ledger | None = None,
        **options: Any,
    ) -> None:
        self._folder = Path(folder)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        super().__init__(number, source, RunLog(self._folder / "account.db", runs=runs, ledger=ledger), **options)

    def answer(self, invitation: Invitation, stage: str, received: Message) -> Message:
        """As :meth:`Site.answer`, with what the stage before has left.

        Raises:
            ValueError: also where a stage was left out or answered before, or the file is of another invitation.
        """
        self._sweep()
        if stage not in ("send", "advertise"):
            self._resume(invitation, self._take(invitation))
        reply = super().answer(invitation, stage, received)
        if stage not in ("send", "reveal"):
            self._leave(invitation)
        return reply

    def _path(self, invitation: Invitation) -> Path:
        return self._folder / f"{invitation.agreed.run.hex()}.state"

    def _take(self, invitation: Invitation) -> str:
        path = self._path(invitation)
        mine = path.with_suffix(f".{secrets.token_hex(4)}.state")
        try:
            os.rename(path, mine)  # of several processes one succeeds
        except FileNotFoundError:
            raise ValueError("stage: out of turn, this site keeps nothing of the one before") from None
        try:
            return mine.read_text()
        finally:
            mine.unlink()

    def _leave(self, invitation: Invitation) -> None:
        shared, masked = self._shared, self._masked
        fields = {
            "of": self._of(invitation),
            "keys": _hex(self._keys),
            "shared": shared and {
                "seed": shared.seed.hex(), "own": shared.own, "partners": shared.partners,
                "adverts": {i: _hex(advert) for i, advert in shared.adverts.items()},
            },
            "masked": masked and {
                "shares": list(masked.shares.items()), "words": {i: key.hex() for i, key in masked.words.items()},
                "silent": masked.silent, "confirmed": masked.confirmed.hex(),
            },
        }  # fmt: skip
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        try:
            handle = os.open(self._path(invitation), flags, 0o600)
        except FileExistsError:
            raise ValueError("stage: out of turn, this site has answered it before") from None
        with open(handle, "w") as file:
            json.dump(fields, file)
            file.flush()
            os.fsync(file.fileno())

    def _resume(self, invitation: Invitation, text: str) -> None:
        fields = json.loads(text)
        if fields["of"] != self._of(invitation):
            raise ValueError("invitation: expected the one that this site has answered before")
        self._invitation = invitation
        self._keys = Keys(*_bytes(fields["keys"]))
        if (kept := fields["shared"]) is not None:
            adverts = {int(i): Advert(*_bytes(both)) for i, both in kept["adverts"].items()}
            seed, (first, second) = bytes.fromhex(kept["seed"]), kept["own"]
            self._shared = Shared(seed, (first, second), tuple(kept["partners"]), adverts)
        if (held := fields["masked"]) is not None:
            shares: Mapping[int, tuple[int, int]] = {j: (seed, key) for j, (seed, key) in held["shares"]}
            words = {int(i): bytes.fromhex(key) for i, key in held["words"].items()}
            self._masked = Masked(shares, words, tuple(held["silent"]), bytes.fromhex(held["confirmed"]))

    def _of(self, invitation: Invitation) -> str:
        """Whose and of which run."""
        return hashlib.sha256(b"%d " % self.number + invitation.digest).hexdigest()

    def _sweep(self) -> None:
        for path in self._folder.glob("*.state"):
            with suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > _DAY:
                    path.unlink()


def _hex(keys: tuple[bytes, bytes] | None) -> list[str] | None:
    return keys and [key.hex() for key in keys]


def _bytes(keys: list[str]) -> tuple[bytes, ...]:
    return tuple(bytes.fromhex(key) for key in keys)


__getattr__ = former_names(__name__, {"KeptSite": "PersistentSite"})
