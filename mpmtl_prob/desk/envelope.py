"""Envelope of a message as a file: bound to a study, a participant and a nonce; signed and encrypted if there are keys.

    {"format": ..., "study": hash, "participant": id, "nonce": hex, "body": {...}, "checksum": sha256, "signature": hex}

Without keys, the checksum detects damaged and truncated files, and edits by somebody who did not update it. It does not
detect deliberate edits or messages in somebody else's name, and whoever has the file can read the message.
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
#: Size in bytes of the largest file that is read: twenty times that of a message of a thousand coefficients.
_LARGEST = 1_000_000
#: Bytes reserved for a number in an encrypted message, with its separator.
_NUMBER = 26


def packed(
    schema: Schema, head: Mapping[str, str], vector: list[float], key: Any = None, *, sealed: bool = True
) -> str:
    """Write a message as text.

    Args:
        schema: schema of the study, with its public keys if it has any.
        head: study, participant and nonce.
        vector: vector of the message.
        key: the participant's private key, if the study has its public key.
        sealed: encrypt to the curator, if the study has its key; False for the sender's own copy.

    Raises:
        ValueError: no key, or one that does not belong to this participant.
    """
    content: dict[str, Any] = {"format": FORMAT, **head, "body": {"vector": vector}}
    if sealed and "curator" in schema.keys:
        content["body"] = _sealed(schema.keys["curator"], content)
    content["checksum"] = _checksum(content)
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
        content["signature"] = key.sign(_bytes(content)).hex()
    return json.dumps(content, indent=1) + "\n"


def unpacked(schema: Schema, path: str | os.PathLike[str], key: Any = None) -> dict[str, Any]:
    """Read a message's file, with its vector as a list, after all checks that the study's keys allow.

    Args:
        schema: schema of the study.
        path: path of the file.
        key: the curator's private key, if messages are encrypted.

    Raises:
        ValueError: a file of another study, an edited one, or an encrypted one without a key.
    """
    name = repr(os.fspath(path))
    content = _read(path, name)
    if content["study"] != schema.digest:
        raise ValueError(
            f"{name}: made with another study file (its hash is {content['study'][:12]}, this one's {schema.digest[:12]}); "
            "make the message anew with this one"
        )
    if content["checksum"] != _checksum({name: content[name] for name in (*_HEAD, "body")}):
        raise ValueError(
            f"{name}: it was edited or damaged since it was made; ask {content['participant']!r} for it again"
        )
    _check_participant(schema, content, name)
    body = content["body"]
    if "sealed" in body:
        if key is None:
            raise ValueError(
                f"{name}: it is encrypted to the curator, whose key opens it (--key); a participant's own copy is the file "
                "beside it that ends in .own.json"
            )
        body = _opened(content, key, name)
    vector = body.get("vector")
    if not isinstance(vector, list) or not all(type(entry) in (int, float) and abs(entry) <= 1 for entry in vector):
        raise ValueError(f"{name}: expected a vector of length 1 at most in it, got something else")
    return {**content, "vector": [float(entry) for entry in vector]}


def _read(path: str | os.PathLike[str], name: str) -> dict[str, Any]:
    try:
        content = json.loads(text_of_file(path, _LARGEST), object_pairs_hook=each_once)
        if content["format"] != FORMAT or not isinstance(content["body"], dict):
            raise ValueError(name)
        if not all(isinstance(content[key], str) for key in (*_HEAD, "checksum")):
            raise ValueError(name)
        who = content["participant"]
        if any(UNSAID.search(content[key]) for key in _HEAD) or not who or who != label_text(who):
            raise ValueError(name)
    except FileNotFoundError:
        raise
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError(f"{name} holds no message of mpmtl-prob") from None
    message: dict[str, Any] = content
    return message


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
    """Encrypt the body so that only the curator can read it, and bind it to the head."""
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
    """Pad the body with blanks, as its length would reveal the number of digits, or that there are only zeros."""
    return _bytes(body).ljust(_NUMBER * (len(body["vector"]) + 1))


def _opened(said: Mapping[str, Any], key: Any, name: str) -> dict[str, Any]:
    body = said["body"]
    try:
        cipher = cryptography()["aead"].AESGCM(_shared(key.exchange(public_key(body["key"], "curator"))))
        head = _bytes({part: said[part] for part in _HEAD})
        text = cipher.decrypt(bytes.fromhex(body["number"]), base64.b64decode(body["sealed"]), head)
        body_read: dict[str, Any] = json.loads(text)
        return body_read if isinstance(body_read, dict) else {}
    except Exception:  # edited files can fail in many ways
        raise ValueError(f"{name}: it is not encrypted to this curator's key, or was edited since") from None


def _shared(secret: bytes) -> bytes:
    modules = cryptography()
    hashed: bytes = modules["hkdf"].HKDF(modules["hashes"].SHA256(), 32, _SALT, b"").derive(secret)
    return hashed
