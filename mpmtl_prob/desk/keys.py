"""Keys of a study: a curator's, to whom messages are encrypted, and a participant's, who signs them."""

from __future__ import annotations

import base64
import binascii
import os
import stat
from pathlib import Path
from typing import Any

#: What a key is for, and how its text begins.
KINDS = {"curator": "x25519", "participant": "ed25519"}
_LENGTH = 32


def cryptography() -> Any:
    """The modules that are needed. Raises ImportError where they are not installed, with the extra that has them."""
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
    """The class of private keys of "x25519" or "ed25519"."""
    modules = cryptography()
    return modules["x25519"].X25519PrivateKey if kind == "x25519" else modules["ed25519"].Ed25519PrivateKey


def write_key(path: str | os.PathLike[str], role: str) -> str:
    """Write a new private key to a PEM file for its owner alone (mode 0600), and return the text of the public one.

    Args:
        path: of a file that is not there yet: others may have been told the public key of one that is.
        role: "curator" or "participant".

    Raises:
        FileExistsError: there is a file of that name.
        ImportError: cryptography is not installed.
    """
    kind = KINDS[role]
    key, forms = private_class(kind).generate(), cryptography()["serialization"]
    text = key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption())
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(text)
    return public_text(kind, key)


def read_key(path: str | os.PathLike[str], role: str) -> Any:
    """Read a private key that :func:`write_key` wrote.

    Raises:
        ValueError: what is no such key, or a file that others may read.
        FileNotFoundError: none.
    """
    place, kind = Path(path), KINDS[role]
    if os.name == "posix" and stat.S_IMODE(place.stat().st_mode) & 0o077:
        raise ValueError(f"key: expected a file that its owner alone can read, got {str(place)!r} (chmod 600)")
    key, forms = None, cryptography()["serialization"]
    try:
        key = forms.load_pem_private_key(place.read_bytes(), None)
    except Exception:  # whose text would be of the key
        key = None
    if not isinstance(key, private_class(kind)):
        raise ValueError(f"key: expected a {role}'s private key, as mpmtl-prob keys writes it, got {str(place)!r}")
    return key


def public_text(kind: str, private: Any) -> str:
    """The public key of a private one, as a study's file has it."""
    return f"{kind}:{base64.b64encode(private.public_key().public_bytes_raw()).decode()}"


def public_key(text: str, role: str) -> Any:
    """The public key of a study's text. Raises ValueError for text that is none."""
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
