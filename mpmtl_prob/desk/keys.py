"""Keys of a study: the curator's, to which messages are encrypted, and the participants', which sign messages."""

from __future__ import annotations

import base64
import binascii
import os
import stat
from pathlib import Path
from typing import Any

#: Kind of key of each role, with which its text begins.
KINDS = {"curator": "x25519", "participant": "ed25519"}
_LENGTH = 32


def cryptography() -> Any:
    """Import the modules of cryptography. Raises ImportError, with the extra that has them, if it is not installed."""
    try:
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519, x25519
        from cryptography.hazmat.primitives.ciphers import aead
        from cryptography.hazmat.primitives.kdf import hkdf
    except ImportError:
        raise ImportError("a study with keys needs cryptography: pip install 'mpmtl-prob[federated]'") from None
    return {
        "hashes": hashes,
        "serialization": serialization,
        "ed25519": ed25519,
        "x25519": x25519,
        "aead": aead,
        "hkdf": hkdf,
    }


def private_class(kind: str) -> Any:
    """Return the class of private keys of the kind "x25519" or "ed25519"."""
    modules = cryptography()
    return modules["x25519"].X25519PrivateKey if kind == "x25519" else modules["ed25519"].Ed25519PrivateKey


def write_key(path: str | os.PathLike[str], role: str) -> str:
    """Write a new private key to a PEM file that only its owner can read (mode 0600); return the public key as text.

    Args:
        path: path of a new file: the public key of an existing one may already be in use.
        role: "curator" or "participant".

    Raises:
        FileExistsError: the file exists already.
        ImportError: cryptography is not installed.
    """
    kind = KINDS[role]
    key = private_class(kind).generate()
    forms = cryptography()["serialization"]
    text = key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption())
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(text)
    return public_text(kind, key)


def read_key(path: str | os.PathLike[str], role: str) -> Any:
    """Read a private key that :func:`write_key` wrote.

    Raises:
        ValueError: another kind of file, or one that others may read.
        FileNotFoundError: the file does not exist.
    """
    place = Path(path)
    if os.name == "posix" and stat.S_IMODE(place.stat().st_mode) & 0o077:
        raise ValueError(f"key: expected a file that its owner alone can read, got {str(place)!r} (chmod 600)")
    kind = KINDS[role]
    forms = cryptography()["serialization"]
    try:
        key = forms.load_pem_private_key(place.read_bytes(), None)
    except Exception:  # its text could contain a part of the key
        key = None
    if not isinstance(key, private_class(kind)):
        raise ValueError(f"key: expected a {role}'s private key, as mpmtl-prob keys writes it, got {str(place)!r}")
    return key


def public_text(kind: str, private: Any) -> str:
    """Return the public key of a private one, in the form of a study's file."""
    return f"{kind}:{base64.b64encode(private.public_key().public_bytes_raw()).decode()}"


def public_key(text: str, role: str) -> Any:
    """Parse a public key of a study's file. Raises ValueError for other text."""
    kind, modules = KINDS[role], cryptography()
    try:
        name, _, encoded = text.partition(":")
        raw = base64.b64decode(encoded, validate=True)
        if name != kind or len(raw) != _LENGTH:
            raise ValueError(name)
        of = modules["x25519"].X25519PublicKey if kind == "x25519" else modules["ed25519"].Ed25519PublicKey
        return of.from_public_bytes(raw)
    except (ValueError, binascii.Error):
        raise ValueError(f"[keys]: expected the public key of a {role}, {kind}:..., got {text!r}") from None
