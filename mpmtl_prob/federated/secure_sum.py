"""The sum of many owners' vectors, of which nobody sees one: pure functions of keys, shares and masks.

Every owner hides its vector under one mask of its own and one that it shares with each partner, and the shared ones cancel in
the sum. The seeds are shared out among partners, so that an owner may vanish at any stage: of those whose vector arrived the
own mask is opened, of those whose vector did not the shared ones, and never both. Vectors are whole numbers modulo 2^64.

Four stages, each with a message to the server, which passes on what is for others:

    advertise    two public keys
    share        to every partner a letter with a share of both secrets, which only that partner can read
    mask         the vector under its masks
    reveal       of every partner one share: of the own mask of one who arrived, of the key of one who did not

Fewer than ``threshold`` owners together, with the server or without, see nothing but the sum and what follows from it, if
everybody does as agreed. A server may lie about who is there, if all share masks with all: before the last stage owners
vouch to each other for one list of arrivals (:func:`vouch`), and :func:`mpmtl_prob.federated.thresholds.undivided` says why
that is enough, and how many shares it takes.

Source: Bonawitz et al. (2017), CCS, figure 4; Bell et al. (2020), CCS, for few partners instead of all.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

Vector = NDArray[np.uint64]
#: So many random bytes.
Random = Callable[[int], bytes]

PRIME = 2**256 + 297  # shares of 32 bytes are numbers modulo this
RUN = 16  # bytes of a run's name
_SECRET, _SHARE, _TAG = 32, 33, 16  # bytes of a secret, of a share of it, and of a word that vouches


class TooFewOwners(RuntimeError):
    """Too many owners have vanished for a sum. Nothing was opened.

    Attributes:
        stage: at which they were missed.
        have: how many there were.
        need: how many it takes.
    """

    def __init__(self, stage: str, have: int, need: int) -> None:
        super().__init__(f"{stage}: {have} owners are there, and it takes {need}")
        self.stage, self.have, self.need = stage, have, need

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.stage, self.have, self.need)


class Agreed(NamedTuple):
    """What everybody knows before the first stage."""

    run: bytes  #: of this sum and no other
    length: int  #: of a vector
    threshold: int  #: shares that open a secret; see :mod:`mpmtl_prob.federated.thresholds`
    partners: int | None = None  #: of every owner; None for all others
    least: int = 2  #: owners in a sum


class Keys(NamedTuple):
    """An owner's private keys, of one run."""

    encryption: bytes
    masks: bytes


class Advert(NamedTuple):
    """The public ones."""

    encryption: bytes
    masks: bytes


class Shared(NamedTuple):
    """What an owner keeps when its letters are out."""

    seed: bytes  #: of its own mask
    own: tuple[int, int]  #: its own share of its seed and of its key
    partners: tuple[int, ...]
    adverts: Mapping[int, Advert]


class Masked(NamedTuple):
    """What it keeps when its vector is out: a share of the seed and of the key of every partner who sent one."""

    shares: Mapping[int, tuple[int, int]]
    words: Mapping[int, bytes] = {}  #: keys that it shares with each of these, to vouch for a list of arrivals
    silent: tuple[int, ...] = ()  #: partners who sent none
    confirmed: bytes = b""  #: the list of arrivals that it signed, if it signs any


class Sent(NamedTuple):
    """A vector under its masks, and a hash of the seed of the owner's own."""

    vector: Vector
    seal: bytes


class Revealed(NamedTuple):
    """An owner's shares, by whose they are."""

    seeds: Mapping[int, int]
    keys: Mapping[int, int]


for _secret_kind in (Keys, Shared, Masked, Revealed):  # in logs and errors their names will do
    _secret_kind.__repr__ = lambda self: f"{type(self).__name__}(...)"  # type: ignore[method-assign]


def partners_of(agreed: Agreed, adverts: Mapping[int, Advert]) -> dict[int, tuple[int, ...]]:
    """Who shares masks with whom: all with all, or neighbours on a circle whose order the public keys settle.

    Nobody can choose a place on the circle, which is known when all keys are.
    """
    everybody = sorted(adverts)
    if agreed.partners is None or agreed.partners >= len(everybody) - 1:
        return {i: tuple(j for j in everybody if j != i) for i in everybody}
    if agreed.partners % 2 or agreed.partners < 2:
        raise ValueError(f"partners: expected an even number, as many on either side, got {agreed.partners}")
    table = hashlib.sha256(agreed.run + b"".join(b"%d," % i + b"".join(adverts[i]) for i in everybody)).digest()
    circle = sorted(everybody, key=lambda i: hashlib.sha256(table + b"%d" % i).digest())
    n, half = len(circle), agreed.partners // 2
    near = [offset for offset in range(-half, half + 1) if offset]
    return {circle[k]: tuple(sorted(circle[(k + offset) % n] for offset in near)) for k in range(n)}


def advertise(random: Random = secrets.token_bytes) -> tuple[Keys, Advert]:
    """An owner's first stage: keys for one run."""
    keys = Keys(random(_SECRET), random(_SECRET))
    return keys, Advert(_public(keys.encryption), _public(keys.masks))


def share(
    agreed: Agreed, me: int, keys: Keys, adverts: Mapping[int, Advert], random: Random = secrets.token_bytes
) -> tuple[Shared, dict[int, bytes]]:
    """An owner's second stage: a letter to every partner.

    Args:
        agreed: what everybody knows.
        me: the owner's number.
        keys: its private ones.
        adverts: of its partners, and its own.
        random: so many random bytes.

    Raises:
        TooFewOwners: fewer than a secret is shared among.
        ValueError: keys that were changed on their way, or two owners of one key.
    """
    if adverts.get(me) != Advert(_public(keys.encryption), _public(keys.masks)):
        raise ValueError("adverts: expected this owner's own keys among them, as they were sent")
    if len({key for advert in adverts.values() for key in advert}) < 2 * len(adverts):
        raise ValueError("adverts: expected every key once, got some of them twice")
    partners = tuple(sorted(set(adverts) - {me}))
    _enough("share", len(partners) + 1, agreed)
    seed, holders = random(_SECRET), (me, *partners)
    seeds = split(int.from_bytes(seed), agreed.threshold, holders, random)
    masks = split(int.from_bytes(keys.masks), agreed.threshold, holders, random)
    letters, own = {}, _private(keys.encryption)
    for j in partners:
        text = seeds[j].to_bytes(_SHARE) + masks[j].to_bytes(_SHARE)
        letters[j] = _box(agreed, _exchanged(own, adverts[j].encryption), me, j).encrypt(bytes(12), text, None)
    return Shared(seed, (seeds[me], masks[me]), partners, dict(adverts)), letters


def mask(
    agreed: Agreed, me: int, keys: Keys, shared: Shared, encrypted_shares: Mapping[int, bytes], vector: Vector
) -> tuple[Masked, Sent]:
    """An owner's third stage: its vector, under masks.

    Args:
        agreed: what everybody knows.
        me: the owner's number.
        keys: its private ones.
        shared: what it kept.
        encrypted_shares: to this owner, by who wrote them: from every partner who is still there.
        vector: whole numbers modulo 2^64, (length,).

    Raises:
        TooFewOwners: fewer than open a secret.
        ValueError: a vector of another length, or a letter that is not from a partner or was changed on its way.
    """
    if vector.dtype != np.uint64 or vector.shape != (agreed.length,):
        raise ValueError(f"vector: expected {agreed.length} unsigned whole numbers of 64 bits, got {vector.dtype} "
                         f"{vector.shape}")  # fmt: skip
    if strangers := set(encrypted_shares) - set(shared.partners):
        raise ValueError(f"letters: expected those of partners, got some of {sorted(strangers)}")
    _enough("mask", len(encrypted_shares) + 1, agreed)
    shares, words, hidden = {me: shared.own}, {}, vector + stream(agreed, shared.seed)
    own, masks = _private(keys.encryption), _private(keys.masks)
    for j, letter in encrypted_shares.items():
        both = _exchanged(own, shared.adverts[j].encryption)
        words[j] = _derived(agreed, both, b"word")
        try:
            text = _box(agreed, both, j, me).decrypt(bytes(12), letter, None)
        except InvalidTag:
            text = b""
        if len(text) != 2 * _SHARE:
            raise ValueError(f"letters: that of {j} was changed on its way")
        shares[j] = (int.from_bytes(text[:_SHARE]), int.from_bytes(text[_SHARE:]))
        pair = stream(agreed, _secret(agreed, masks, shared.adverts[j].masks, b"mask"))
        hidden = hidden + pair if me < j else hidden - pair
    silent = tuple(j for j in shared.partners if j not in encrypted_shares)
    return Masked(shares, words, silent), Sent(hidden, _seal(agreed, shared.seed))


def vouch(masked: Masked, me: int, said: bytes) -> dict[int, bytes]:
    """Return a word for every partner by which it knows that this owner said so: nobody else but these two can make it."""
    return {j: _word(key, me, said) for j, key in masked.words.items()}


def vouched(masked: Masked, by: int, said: bytes, word: bytes) -> bool:
    """Return whether a partner said so to this owner."""
    return by in masked.words and hmac.compare_digest(_word(masked.words[by], by, said), word)


def unmask(agreed: Agreed, me: int, masked: Masked, arrived: Collection[int]) -> Revealed:
    """An owner's last stage, once a run and no more: what opens the masks of those who arrived, and of those who did not.

    Raises:
        TooFewOwners: fewer arrived than may be summed.
        ValueError: this owner is not among them, or somebody is who was not there before.
    """
    there = frozenset(arrived)
    if me not in there:
        raise ValueError("arrived: expected this owner among those whose vector arrived")
    # who holds letters back from some owners, and says later that those who wrote them arrived, makes small sums
    strangers = there - set(masked.shares) if agreed.partners is None else there & set(masked.silent)
    if strangers:
        raise ValueError(f"arrived: expected owners who wrote letters, got some of {sorted(strangers)[:3]}")
    if len(there) < max(agreed.least, 2):
        raise TooFewOwners("reveal", len(there), max(agreed.least, 2))
    seeds = {j: seed for j, (seed, _) in masked.shares.items() if j in there}
    return Revealed(seeds, {j: key for j, (_, key) in masked.shares.items() if j not in there})


def total(
    agreed: Agreed,
    adverts: Mapping[int, Advert],
    wrote: Collection[int],
    sent: Mapping[int, Sent],
    revealed: Mapping[int, Revealed],
) -> Vector:
    """The server's last stage: the sum of all vectors that arrived, modulo 2^64, (length,).

    Args:
        agreed: what everybody knows.
        adverts: of all who were there at the second stage.
        wrote: who sent letters.
        sent: the masked vectors of those who did.
        revealed: what those who were there at the end revealed.

    Raises:
        TooFewOwners: fewer than may be summed, or than open a mask.
        ValueError: shares that do not open what was sealed. Nothing is returned.
    """
    if len(sent) < max(agreed.least, 2):
        raise TooFewOwners("mask", len(sent), max(agreed.least, 2))
    partners, found = partners_of(agreed, adverts), np.zeros(agreed.length, dtype=np.uint64)
    opener = _Opener(agreed.threshold)
    for i, (vector, seal) in sent.items():
        seed = opener.secret({k: own.seeds[i] for k, own in revealed.items() if i in own.seeds})
        if _seal(agreed, seed) != seal:
            raise ValueError(f"revealed: the shares of {i} do not open its mask")
        found = found + vector - stream(agreed, seed)
    for i in set(wrote) - set(sent):
        left = [j for j in partners[i] if j in sent]
        if not left:
            continue
        key = opener.secret({k: own.keys[i] for k, own in revealed.items() if i in own.keys})
        if _public(key) != adverts[i].masks:
            raise ValueError(f"revealed: the shares of {i} do not open its key")
        masks = _private(key)
        for j in left:
            pair = stream(agreed, _secret(agreed, masks, adverts[j].masks, b"mask"))
            found = found - pair if j < i else found + pair
    return found


def stream(agreed: Agreed, seed: bytes) -> Vector:
    """A mask: as many uniform numbers as a vector has, of a seed."""
    cipher = Cipher(ChaCha20(hashlib.sha256(b"stream" + agreed.run + seed).digest(), bytes(16)), None).encryptor()
    return np.frombuffer(cipher.update(bytes(8 * agreed.length)), dtype="<u8").astype(np.uint64)


def split(secret: int, threshold: int, holders: Sequence[int], random: Random) -> dict[int, int]:
    """Shares of a number below 2^256, one for every holder, any ``threshold`` of which give it back.

    Source: Shamir (1979).
    """
    coefficients = [secret, *(int.from_bytes(random(_SECRET + 16)) % PRIME for _ in range(threshold - 1))]
    shares = {}
    for holder in holders:
        value, x = 0, _place(holder)
        for coefficient in reversed(coefficients):
            value = (value * x + coefficient) % PRIME
        shares[holder] = value
    return shares


class _Opener:
    """Secrets from shares; holders often are the same for many of them, and so are their weights."""

    def __init__(self, threshold: int) -> None:
        self._threshold = threshold
        self._weights: dict[tuple[int, ...], list[int]] = {}

    def secret(self, shares: Mapping[int, int]) -> bytes:
        """The secret as bytes. Raises TooFewOwners for fewer shares than it takes."""
        holders = tuple(sorted(shares)[: self._threshold])
        if len(holders) < self._threshold:
            raise TooFewOwners("reveal", len(holders), self._threshold)
        if holders not in self._weights:
            self._weights[holders] = lagrange([_place(holder) for holder in holders])
        value = sum(w * shares[holder] for w, holder in zip(self._weights[holders], holders, strict=True)) % PRIME
        return (value % 2**256).to_bytes(_SECRET)


def lagrange(places: Iterable[int]) -> list[int]:
    """By how much each place's value counts in that at 0."""
    places = list(places)
    product = math.prod(places) % PRIME
    found = []
    for x in places:
        below = x
        for other in places:
            if other != x:
                below = below * (other - x) % PRIME
        found.append(product * pow(below, -1, PRIME) % PRIME)
    return found


def _enough(stage: str, there: int, agreed: Agreed) -> None:
    """All that hear of each other are as many as have to be in the sum; few partners are as many as open a secret."""
    need = agreed.threshold if agreed.partners is not None else max(agreed.threshold, agreed.least)
    if there < need:
        raise TooFewOwners(stage, there, need)


def _place(holder: int) -> int:
    """Where a holder's share is read off: never at 0, where the secret is."""
    return holder + 1


def _private(text: bytes) -> X25519PrivateKey:
    """Made once for many partners: it costs as much as what is done with one of them."""
    return X25519PrivateKey.from_private_bytes(text)


def _public(private: bytes) -> bytes:
    return _private(private).public_key().public_bytes_raw()


def _secret(agreed: Agreed, private: X25519PrivateKey, public: bytes, use: bytes) -> bytes:
    """What two owners share, and nobody else knows."""
    return _derived(agreed, _exchanged(private, public), use)


def _exchanged(private: X25519PrivateKey, public: bytes) -> bytes:
    """The same from either side; keys for any use are derived from it."""
    try:
        return private.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:  # of another length, or one of the few with which everybody shares the same
        raise ValueError("adverts: expected public keys, got one that is none") from None


def _derived(agreed: Agreed, both: bytes, use: bytes) -> bytes:
    return HKDF(SHA256(), _SECRET, salt=agreed.run, info=use).derive(both)


def _box(agreed: Agreed, both: bytes, writer: int, reader: int) -> ChaCha20Poly1305:
    """For one letter: its key is used once."""
    return ChaCha20Poly1305(_derived(agreed, both, b"letter %d %d" % (writer, reader)))


def _word(key: bytes, writer: int, said: bytes) -> bytes:
    return hmac.digest(key, b"%d " % writer + said, "sha256")[:_TAG]


def _seal(agreed: Agreed, seed: bytes) -> bytes:
    return hashlib.sha256(b"seal" + agreed.run + seed).digest()
