"""Long-term signing keys of sites that know each other, which reveal a server that alters their messages."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from mpmtl_prob.federated.run_log import RunRefused
from mpmtl_prob.federated.secure_sum import Advert


def new_key() -> tuple[bytes, bytes]:
    """Generate a private and a public key. Give the public one to the other sites by a channel other than the server."""
    key = Ed25519PrivateKey.generate()
    return key.private_bytes_raw(), key.public_key().public_bytes_raw()


def write_key(private: str | os.PathLike[str], public: str | os.PathLike[str]) -> None:
    """Write a new pair of keys as PEM files, like those of ``openssl genpkey -algorithm ed25519``.

    Args:
        private: file of the private key, readable by its owner only (mode 0600).
        public: file of the public key for the other sites, ``NUMBER.pub`` with the site's number.

    Raises:
        FileExistsError: a file of either name exists already. Nothing is overwritten, as other sites may know the key in it.
    """
    if os.path.lexists(public):
        raise FileExistsError(
            f"public: {os.fspath(public)} is there already, and others may know the key in it; give another name"
        )
    key = Ed25519PrivateKey.generate()
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    with open(os.open(private, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(text)
    with open(public, "xb") as file:
        file.write(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))


@dataclass(frozen=True, repr=False)
class Signer:
    """Signing key of a site, with the public keys of all sites in a run.

    A site signs the invitation's digest, its number, and its public keys of the run. The signature proves to its partners who
    it is, that it is in the same run on the same terms, and that nobody has replaced its keys. Later the sites sign the list
    of vectors that arrived. Every site signs one list only, and opens masks only by a list that as many sites have signed as
    must be in the sum.

    Source: Bonawitz et al. (2017), CCS, figure 4, the underlined parts.

    Attributes:
        private: the site's private key, 32 bytes.
        known: the public keys of all sites including this one, 32 bytes each, by site number.

    Raises:
        ValueError: an invalid key, a key that two sites have, or no public key of this site.
    """

    private: bytes
    known: Mapping[int, bytes]

    def __post_init__(self) -> None:
        for name, key in (("private", self.private), *((f"known[{i}]", key) for i, key in self.known.items())):
            if not isinstance(key, bytes) or len(key) != 32:
                raise ValueError(f"{name}: expected a key of 32 bytes")
        if len(set(self.known.values())) < len(self.known):
            raise ValueError("known: expected a key of its own for every site, got one twice")
        if self._public not in self.known.values():
            raise ValueError("known: expected this site's own public key among them")

    def __repr__(self) -> str:
        return f"Signer(knows {len(self.known)} sites)"

    @classmethod
    def read(cls, private: str | os.PathLike[str], known: str | os.PathLike[str]) -> Signer:
        """Read the keys from PEM files, as :func:`write_key` writes them.

        Args:
            private: file of this site's private key, readable by its owner only.
            known: a folder with the public keys of all sites including this one: ``0.pub``, ``1.pub``, and so on.

        Raises:
            FileNotFoundError: a file does not exist.
            ValueError: an invalid key, a private key that others can read, or a folder without this site's public key.
        """
        path = Path(private)
        if os.name == "posix" and stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise ValueError(f"private: expected a file that its owner alone can read, got {path} (chmod 600)")
        private_key = _loaded("private", path, lambda text: load_pem_private_key(text, None), Ed25519PrivateKey)
        keys = {}
        for file in sorted(Path(known).glob("*.pub")):
            if not (file.stem.isascii() and file.stem.isdecimal() and str(int(file.stem)) == file.stem):
                raise ValueError(f"known: expected files by the numbers of sites, such as 0.pub, got {file}")
            keys[int(file.stem)] = _loaded("known", file, load_pem_public_key, Ed25519PublicKey).public_bytes_raw()
        return cls(private_key.private_bytes_raw(), keys)

    @property
    def number(self) -> int:
        """This site's number, under which its public key is known."""
        return next(i for i, key in self.known.items() if key == self._public)

    @property
    def _public(self) -> bytes:
        return Ed25519PrivateKey.from_private_bytes(self.private).public_key().public_bytes_raw()

    def sign(self, invited: bytes, number: int, said: Advert | Arrived) -> bytes:
        """Return a signature, 64 bytes.

        Args:
            invited: the invitation's hash, :attr:`Invitation.digest`.
            number: this site's number.
            said: its public keys of the run, or the list of arrivals.
        """
        return Ed25519PrivateKey.from_private_bytes(self.private).sign(_text(invited, number, said))

    def check(self, invited: bytes, number: int, said: Advert | Arrived, signature: bytes) -> None:
        """Check that the site with this number signed it for this run.

        Raises:
            RunRefused: the signature is wrong, or the site is not known.
        """
        if number not in self.known:
            raise RunRefused(f"{_what(said)}: expected sites that this one knows, got one numbered {number}")
        try:
            Ed25519PublicKey.from_public_bytes(self.known[number]).verify(signature, _text(invited, number, said))
        except InvalidSignature:
            raise RunRefused(f"{_what(said)}: that of site {number} is not signed by it for this run") from None


class Arrived(NamedTuple):
    """List of arrivals, as the bytes that the server sent: the sites whose vectors arrived."""

    text: bytes


def _loaded(name: str, path: Path, load: Callable[[bytes], object], kind: Any) -> Any:
    """Load the key of a PEM file. Errors never quote the file's text."""
    text, key = path.read_bytes(), None
    with suppress(ValueError, TypeError, UnsupportedAlgorithm):
        key = load(text)
    if not isinstance(key, kind):
        raise ValueError(f"{name}: expected an {kind.__name__} in PEM, without a passphrase, got {path}")
    return key


def _what(said: Advert | Arrived) -> str:
    return "arrived" if isinstance(said, Arrived) else "advert"


def _text(invited: bytes, number: int, said: Advert | Arrived) -> bytes:
    return b"mpmtl_prob %s " % _what(said).encode() + invited + number.to_bytes(4) + b"".join(said)
