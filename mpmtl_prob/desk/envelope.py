"""A message as a file: bound to a study, a participant and a nonce; signed and encrypted where the study has keys.

    {"format": ..., "study": hash, "participant": id, "nonce": hex, "body": {...}, "checksum": sha256, "signature": hex}

Without keys the checksum finds a file that was damaged, cut short or edited by somebody who did not know of it; it does not
find one that was edited on purpose, or written in somebody else's name, and whoever has the file reads what is in it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any

from mpmtl_prob._util.files import each_once, text_of_file
from mpmtl_prob.data.cells import label_text
from mpmtl_prob.desk.keys import cryptography, private_class, public_key, public_text
from mpmtl_prob.schema.schema import Schema
from mpmtl_prob.schema.sections import UNSAID

FORMAT = "mpmtl-prob message 1"
_HEAD = ("format", "study", "participant", "nonce")
_SALT = b"mpmtl-prob message"
#: Bytes of the largest file that is read: a message of a thousand coefficients takes a twentieth of it.
_LARGEST = 1_000_000
#: Bytes that a number of an encrypted message has room for, with what stands between two of them.
_NUMBER = 26


def packed(
    schema: Schema, head: Mapping[str, str], vector: list[float], key: Any = None, *, sealed: bool = True
) -> str:
    """Return a message's text.

    Args:
        schema: of the study, which names public keys or none.
        head: study, participant and nonce.
        vector: of the message.
        key: the participant's private one, where the study has its public one.
        sealed: encrypt it to the curator, where the study has its key; the sender's own copy is not.

    Raises:
        ValueError: no key, or another one than the study has of this participant.
    """
    said: dict[str, Any] = {"format": FORMAT, **head, "body": {"vector": vector}}
    if sealed and "curator" in schema.keys:
        said["body"] = _sealed(schema.keys["curator"], said)
    said["checksum"] = _checksum(said)
    known = schema.keys.get(f"participant {head['participant']}")
    if known is not None:
        if key is None:
            raise ValueError(
                "key: expected this participant's private key, as the study has its public one, got none (--key)"
            )
        if public_text("ed25519", key) != known:
            raise ValueError(
                f"key: expected that of {head['participant']!r}, whose public one the study has, got another"
            )
        said["signature"] = key.sign(_bytes(said)).hex()
    return json.dumps(said, indent=1) + "\n"


def unpacked(schema: Schema, path: str | os.PathLike[str], key: Any = None) -> dict[str, Any]:
    """Return what a message's file holds, its vector a list, after all checks that the study's keys allow.

    Args:
        schema: of the study.
        path: of the file.
        key: the curator's private one, where messages are encrypted.

    Raises:
        ValueError: a file that is none of this study's, was edited, or is encrypted and there is no key.
    """
    name = repr(os.fspath(path))
    said = _read(path, name)
    if said["study"] != schema.digest:
        raise ValueError(
            f"{name}: made with another study file (its hash is {said['study'][:12]}, this one's {schema.digest[:12]}); "
            "make the message anew with this one"
        )
    if said["checksum"] != _checksum({name: said[name] for name in (*_HEAD, "body")}):
        raise ValueError(
            f"{name}: it was edited or damaged since it was made; ask {said['participant']!r} for it again"
        )
    _check_participant(schema, said, name)
    body = said["body"]
    if "sealed" in body:
        if key is None:
            raise ValueError(
                f"{name}: it is encrypted to the curator, whose key opens it (--key); a participant's own copy is the file "
                "beside it that ends in .own.json"
            )
        body = _opened(said, key, name)
    vector = body.get("vector")
    if not isinstance(vector, list) or not all(type(one) in (int, float) and abs(one) <= 1 for one in vector):
        raise ValueError(f"{name}: expected a vector of length 1 at most in it, got something else")
    return {**said, "vector": [float(one) for one in vector]}


def _read(path: str | os.PathLike[str], name: str) -> dict[str, Any]:
    try:
        said = json.loads(text_of_file(path, _LARGEST), object_pairs_hook=each_once)
        if said["format"] != FORMAT or not isinstance(said["body"], dict):
            raise ValueError(name)
        if not all(isinstance(said[key], str) for key in (*_HEAD, "checksum")):
            raise ValueError(name)
        who = said["participant"]
        if any(UNSAID.search(said[key]) for key in _HEAD) or not who or who != label_text(who):
            raise ValueError(name)
    except FileNotFoundError:
        raise
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError(f"{name} holds no message of mpmtl-prob") from None
    found: dict[str, Any] = said
    return found


def _check_participant(schema: Schema, said: dict[str, Any], name: str) -> None:
    who = said["participant"]
    if schema.participants and who not in schema.participants:
        raise ValueError(f"{name}: expected one of the study's {len(schema.participants)} participants, got {who!r}")
    known = schema.keys.get(f"participant {who}")
    if known is None:
        return
    from cryptography.exceptions import InvalidSignature

    try:
        signed = {key: said[key] for key in (*_HEAD, "body", "checksum")}
        public_key(known, "participant").verify(bytes.fromhex(said["signature"]), _bytes(signed))
    except (InvalidSignature, KeyError, ValueError, TypeError):
        raise ValueError(
            f"{name}: it is not signed by {who!r}, or was edited since; ask {who!r} for it again"
        ) from None


def _bytes(said: Mapping[str, Any]) -> bytes:
    return json.dumps(said, sort_keys=True, ensure_ascii=True).encode()


def _checksum(said: Mapping[str, Any]) -> str:
    return hashlib.sha256(_bytes(said)).hexdigest()


def _sealed(curator: str, said: Mapping[str, Any]) -> dict[str, str]:
    """The body, encrypted so that the curator alone reads it, and bound to the head."""
    public, once = public_key(curator, "curator"), private_class("x25519").generate()
    number = os.urandom(12)
    cipher = cryptography()["aead"].AESGCM(_shared(once.exchange(public)))
    head = _bytes({name: said[name] for name in _HEAD})
    return {
        "key": public_text("x25519", once),
        "number": number.hex(),
        "sealed": base64.b64encode(cipher.encrypt(number, _padded(said["body"]), head)).decode(),
    }


def _padded(body: Mapping[str, Any]) -> bytes:
    """The body with blanks behind it: its length would else tell how many digits its numbers have, or that they are zeros."""
    return _bytes(body).ljust(_NUMBER * (len(body["vector"]) + 1))


def _opened(said: Mapping[str, Any], key: Any, name: str) -> dict[str, Any]:
    body = said["body"]
    try:
        cipher = cryptography()["aead"].AESGCM(_shared(key.exchange(public_key(body["key"], "curator"))))
        head = _bytes({part: said[part] for part in _HEAD})
        text = cipher.decrypt(bytes.fromhex(body["number"]), base64.b64decode(body["sealed"]), head)
        found: dict[str, Any] = json.loads(text)
        return found if isinstance(found, dict) else {}
    except Exception:  # of whatever was edited
        raise ValueError(f"{name}: it is not encrypted to this curator's key, or was edited since") from None


def _shared(secret: bytes) -> bytes:
    modules = cryptography()
    hashed: bytes = modules["hkdf"].HKDF(modules["hashes"].SHA256(), 32, _SALT, b"").derive(secret)
    return hashed
