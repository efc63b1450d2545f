"""Federated site whose process may end between stages: its secrets are kept on its own disk."""

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

_DAY = 86_400  # seconds after which the state of an unfinished run is deleted


class PersistentSite(Site):
    """A :class:`Site` that keeps its state on disk, so that every stage may be answered by another process.

    Between two stages the site's keys, and its shares of the other sites' keys, are in a file that only its owner can read
    (mode 0600), named by the run. A process that answers removes the file first, so that no two processes answer the same
    stage. The state for the next stage is on disk before the answer leaves. After the last stage there is no file. A process
    that dies during a stage loses the file: the site has dropped out of that run, and its run log still counts the run.

    Args:
        number: the site's number among the invited sites, from 0.
        source: as for :class:`Site`; a function is called only at the stage that needs the rows.
        folder: for the state files and the run log, on a disk that nobody else can read; created if it does not exist.
        runs: as for :class:`RunLog`; the log is in the folder.
        ledger: pays for runs in which the sites add the noise.
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
        """Answer a stage as :meth:`Site.answer` does, from the state that the stage before has saved.

        Raises:
            ValueError: also if a stage was left out or answered before, or the state belongs to another invitation.
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
        taken = path.with_suffix(f".{secrets.token_hex(4)}.state")
        try:
            os.rename(path, taken)  # atomic: of several processes only one succeeds
        except FileNotFoundError:
            raise ValueError("stage: out of turn, this site has no saved state of the stage before") from None
        try:
            return taken.read_text()
        finally:
            taken.unlink()

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
        if (shared_fields := fields["shared"]) is not None:
            adverts = {int(i): Advert(*_bytes(both)) for i, both in shared_fields["adverts"].items()}
            seed, (first, second) = bytes.fromhex(shared_fields["seed"]), shared_fields["own"]
            self._shared = Shared(seed, (first, second), tuple(shared_fields["partners"]), adverts)
        if (masked_fields := fields["masked"]) is not None:
            shares: Mapping[int, tuple[int, int]] = {j: (seed, key) for j, (seed, key) in masked_fields["shares"]}
            words = {int(i): bytes.fromhex(key) for i, key in masked_fields["words"].items()}
            self._masked = Masked(
                shares, words, tuple(masked_fields["silent"]), bytes.fromhex(masked_fields["confirmed"])
            )

    def _of(self, invitation: Invitation) -> str:
        """Return a hash of the site's number and the invitation, to which a state file belongs."""
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
