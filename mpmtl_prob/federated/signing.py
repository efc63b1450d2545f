"""Long-term keys of sites that know each other: a server passes on what they signed, or is found out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from mpmtl_prob.federated.account import RunRefused
from mpmtl_prob.federated.secure_sum import Advert


def new_key() -> tuple[bytes, bytes]:
    """A private key, to be kept, and the public one, to be told to the others by a way that the server is not on."""
    key = Ed25519PrivateKey.generate()
    return key.private_bytes_raw(), key.public_key().public_bytes_raw()


@dataclass(frozen=True, repr=False)
class Signer:
    """A site's own key, and those of the sites that it answers with.

    What is signed is who was invited to what, and the public keys of this run: so whoever checks it knows that its partners
    are who they say, in the same run by the same terms, and that nobody put keys of its own in place of theirs. Later, whose
    vectors arrived: everybody signs one list, and opens masks by no list that fewer have signed than have to be in the sum.

    Source: Bonawitz et al. (2017), CCS, figure 4, what is underlined there.

    Attributes:
        private: its own, 32 bytes.
        known: the public ones of all sites, 32 bytes each, by their numbers.

    Raises:
        ValueError: what is no key.
    """

    private: bytes
    known: Mapping[int, bytes]

    def __post_init__(self) -> None:
        for name, key in (("private", self.private), *((f"known[{i}]", key) for i, key in self.known.items())):
            if not isinstance(key, bytes) or len(key) != 32:
                raise ValueError(f"{name}: expected a key of 32 bytes")

    def __repr__(self) -> str:
        return f"Signer(knows {len(self.known)} sites)"

    def sign(self, invited: bytes, number: int, said: Advert | Arrived) -> bytes:
        """A signature, 64 bytes.

        Args:
            invited: to what, :attr:`Invitation.digest`.
            number: of this site.
            said: its public keys of the run, or whose vectors arrived.
        """
        return Ed25519PrivateKey.from_private_bytes(self.private).sign(_text(invited, number, said))

    def check(self, invited: bytes, number: int, said: Advert | Arrived, signature: bytes) -> None:
        """Say nothing if the site of that number signed it for this run.

        Raises:
            RunRefused: it did not, or is not known.
        """
        if number not in self.known:
            raise RunRefused(f"{_what(said)}: expected sites that this one knows, got one numbered {number}")
        try:
            Ed25519PublicKey.from_public_bytes(self.known[number]).verify(signature, _text(invited, number, said))
        except InvalidSignature:
            raise RunRefused(f"{_what(said)}: that of site {number} is not signed by it for this run") from None


class Arrived(NamedTuple):
    """A list of those whose vectors arrived, as it was sent."""

    text: bytes


def _what(said: Advert | Arrived) -> str:
    return "arrived" if isinstance(said, Arrived) else "advert"


def _text(invited: bytes, number: int, said: Advert | Arrived) -> bytes:
    return b"mpmtl_prob %s " % _what(said).encode() + invited + number.to_bytes(4) + b"".join(said)
