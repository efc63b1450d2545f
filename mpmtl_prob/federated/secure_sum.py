"""Secure aggregation: the sum of many data owners' vectors, of which nobody sees a single one.

The module has pure functions of keys, shares and masks. Every owner hides its vector under one mask of its own and one mask
that it shares with each partner; the shared masks cancel in the sum. The masks' secrets are split into shares among the
partners, so that an owner may drop out at any stage. If an owner's vector arrived, its own mask is opened. If it did not, its
shared masks are opened. Both are never opened. Vectors are whole numbers modulo 2^64.

There are four stages. At each of them every owner sends a message to the server, which passes on what is for others:

    advertise    two public keys
    share        an encrypted letter to every partner, with a share of both secrets
    mask         the vector under its masks
    reveal       one share for every partner: of its own mask if its vector arrived, of its key if not

If everybody follows the protocol, fewer than ``threshold`` owners together, with the server or without it, learn only the sum
and what follows from it. Where all owners share masks with all others, this holds even if the server lies about who has
dropped out: before the last stage the owners confirm one list of arrivals to each other (:func:`vouch`). The function
:func:`mpmtl_prob.federated.thresholds.undivided` proves that this is enough, and says how many shares it takes.

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
#: A function that returns the given number of random bytes.
Random = Callable[[int], bytes]

PRIME = 2**256 + 297  # shares of 32 bytes are numbers modulo this
RUN = 16  # bytes of a run's name
_SECRET, _SHARE, _TAG = 32, 33, 16  # bytes of a secret, of a share of it, and of a confirmation code


class TooFewOwners(RuntimeError):
    """Too many owners have dropped out, so that there is no sum. No mask was opened.

    Attributes:
        stage: the stage at which too few owners were left.
        have: the number of owners left.
        need: the number of owners needed.
    """

    def __init__(self, stage: str, have: int, need: int) -> None:
        super().__init__(f"{stage}: {have} owners are there, and it takes {need}")
        self.stage, self.have, self.need = stage, have, need

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.stage, self.have, self.need)


class Agreed(NamedTuple):
    """Public parameters of a secure sum, fixed before the first stage."""

    run: bytes  #: name of this run, unique
    length: int  #: of every vector
    threshold: int  #: number of shares that open a secret; see :mod:`mpmtl_prob.federated.thresholds`
    partners: int | None = None  #: number of partners of every owner; None for all others
    least: int = 2  #: least number of owners in the sum


class Keys(NamedTuple):
    """An owner's private keys for one run."""

    encryption: bytes
    masks: bytes


class Advert(NamedTuple):
    """An owner's public keys for one run."""

    encryption: bytes
    masks: bytes


class Shared(NamedTuple):
    """An owner's secret state after the stage "share"."""

    seed: bytes  #: seed of its own mask
    own: tuple[int, int]  #: the shares of its seed and of its key that it keeps itself
    partners: tuple[int, ...]
    adverts: Mapping[int, Advert]


class Masked(NamedTuple):
    """An owner's secret state after the stage "mask": a share of the seed and of the key of every partner who wrote."""

    shares: Mapping[int, tuple[int, int]]
    words: Mapping[int, bytes] = {}  #: keys shared with each partner, to confirm a list of arrivals
    silent: tuple[int, ...] = ()  #: partners who sent no letter
    confirmed: bytes = b""  #: the list of arrivals that it confirmed, if any


class Sent(NamedTuple):
    """A masked vector, and a hash of the seed of its owner's own mask."""

    vector: Vector
    seal: bytes


class Revealed(NamedTuple):
    """The shares that an owner reveals, by the owner whose secret they open."""

    seeds: Mapping[int, int]
    keys: Mapping[int, int]


for _secret_kind in (Keys, Shared, Masked, Revealed):  # logs and errors show the class name only
    _secret_kind.__repr__ = lambda self: f"{type(self).__name__}(...)"  # type: ignore[method-assign]


def partners_of(agreed: Agreed, adverts: Mapping[int, Advert]) -> dict[int, tuple[int, ...]]:
    """Return every owner's partners: all others, or its neighbours on a circle.

    The order on the circle is a hash of all public keys, so that nobody can choose a place on it.
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
    """Do an owner's first stage: generate its keys for one run."""
    keys = Keys(random(_SECRET), random(_SECRET))
    return keys, Advert(_public(keys.encryption), _public(keys.masks))


def share(
    agreed: Agreed, me: int, keys: Keys, adverts: Mapping[int, Advert], random: Random = secrets.token_bytes
) -> tuple[Shared, dict[int, bytes]]:
    """Do an owner's second stage: write an encrypted letter to every partner.

    Args:
        agreed: the public parameters.
        me: the owner's number.
        keys: its private keys.
        adverts: the public keys of its partners, and its own.
        random: returns the given number of random bytes.

    Raises:
        TooFewOwners: too few partners to split a secret among.
        ValueError: keys that were altered in transit, or a key that two owners have.
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
    letters, private_key = {}, _private(keys.encryption)
    for j in partners:
        text = seeds[j].to_bytes(_SHARE) + masks[j].to_bytes(_SHARE)
        letters[j] = _box(agreed, _exchanged(private_key, adverts[j].encryption), me, j).encrypt(bytes(12), text, None)
    return Shared(seed, (seeds[me], masks[me]), partners, dict(adverts)), letters


def mask(
    agreed: Agreed, me: int, keys: Keys, shared: Shared, encrypted_shares: Mapping[int, bytes], vector: Vector
) -> tuple[Masked, Sent]:
    """Do an owner's third stage: mask its vector.

    Args:
        agreed: the public parameters.
        me: the owner's number.
        keys: its private keys.
        shared: its state after the second stage.
        encrypted_shares: the letters to this owner, by their writers' numbers, from every partner who has not dropped out.
        vector: whole numbers modulo 2^64, (length,).

    Raises:
        TooFewOwners: too few letters to open a secret.
        ValueError: a vector of another length, or a letter that is not from a partner or was altered in transit.
    """
    if vector.dtype != np.uint64 or vector.shape != (agreed.length,):
        raise ValueError(f"vector: expected {agreed.length} unsigned whole numbers of 64 bits, got {vector.dtype} "
                         f"{vector.shape}")  # fmt: skip
    if strangers := set(encrypted_shares) - set(shared.partners):
        raise ValueError(f"letters: expected those of partners, got some of {sorted(strangers)}")
    _enough("mask", len(encrypted_shares) + 1, agreed)
    shares, words, hidden = {me: shared.own}, {}, vector + stream(agreed, shared.seed)
    private_key, masks = _private(keys.encryption), _private(keys.masks)
    for j, letter in encrypted_shares.items():
        both = _exchanged(private_key, shared.adverts[j].encryption)
        words[j] = _derived(agreed, both, b"word")
        try:
            text = _box(agreed, both, j, me).decrypt(bytes(12), letter, None)
        except InvalidTag:
            text = b""
        if len(text) != 2 * _SHARE:
            raise ValueError(f"letters: that of {j} was altered in transit")
        shares[j] = (int.from_bytes(text[:_SHARE]), int.from_bytes(text[_SHARE:]))
        pair = stream(agreed, _secret(agreed, masks, shared.adverts[j].masks, b"mask"))
        hidden = hidden + pair if me < j else hidden - pair
    silent = tuple(j for j in shared.partners if j not in encrypted_shares)
    return Masked(shares, words, silent), Sent(hidden, _seal(agreed, shared.seed))


def vouch(masked: Masked, me: int, said: bytes) -> dict[int, bytes]:
    """Return a confirmation code (HMAC) of a text for every partner. Only the two of them can compute it."""
    return {j: _word(key, me, said) for j, key in masked.words.items()}


def vouched(masked: Masked, by: int, said: bytes, word: bytes) -> bool:
    """Return True if ``word`` is the partner's confirmation code of this text for this owner."""
    return by in masked.words and hmac.compare_digest(_word(masked.words[by], by, said), word)


def unmask(agreed: Agreed, me: int, masked: Masked, arrived: Collection[int]) -> Revealed:
    """Do an owner's last stage: reveal shares, of seeds of those who arrived and of keys of those who did not.

    Call it once per run only.

    Raises:
        TooFewOwners: fewer vectors arrived than a sum must have.
        ValueError: this owner is not on the list of arrivals, or an owner is who had dropped out before.
    """
    there = frozenset(arrived)
    if me not in there:
        raise ValueError("arrived: expected this owner among those whose vector arrived")
    # A server could hold back letters from some owners and say later that their writers arrived, to get small sums.
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
    """Do the server's last stage: return the sum of all vectors that arrived, modulo 2^64, (length,).

    Args:
        agreed: the public parameters.
        adverts: public keys of the owners who were there at the second stage.
        wrote: the owners who sent letters.
        sent: the masked vectors that arrived, by owner.
        revealed: the shares that the remaining owners revealed, by owner.

    Raises:
        TooFewOwners: fewer vectors than a sum must have, or too few shares to open a mask.
        ValueError: shares that do not open the secret that they belong to.
    """
    if len(sent) < max(agreed.least, 2):
        raise TooFewOwners("mask", len(sent), max(agreed.least, 2))
    partners, vector_sum = partners_of(agreed, adverts), np.zeros(agreed.length, dtype=np.uint64)
    opener = _Opener(agreed.threshold)
    for i, (vector, seal) in sent.items():
        seed = opener.secret({k: shares.seeds[i] for k, shares in revealed.items() if i in shares.seeds})
        if _seal(agreed, seed) != seal:
            raise ValueError(f"revealed: the shares of {i} do not open its mask")
        vector_sum = vector_sum + vector - stream(agreed, seed)
    for i in set(wrote) - set(sent):
        arrived_partners = [j for j in partners[i] if j in sent]
        if not arrived_partners:
            continue
        key = opener.secret({k: shares.keys[i] for k, shares in revealed.items() if i in shares.keys})
        if _public(key) != adverts[i].masks:
            raise ValueError(f"revealed: the shares of {i} do not open its key")
        masks = _private(key)
        for j in arrived_partners:
            pair = stream(agreed, _secret(agreed, masks, adverts[j].masks, b"mask"))
            vector_sum = vector_sum - pair if j < i else vector_sum + pair
    return vector_sum


def stream(agreed: Agreed, seed: bytes) -> Vector:
    """Return the mask of a seed: uniform numbers modulo 2^64, as many as a vector has."""
    cipher = Cipher(ChaCha20(hashlib.sha256(b"stream" + agreed.run + seed).digest(), bytes(16)), None).encryptor()
    return np.frombuffer(cipher.update(bytes(8 * agreed.length)), dtype="<u8").astype(np.uint64)


def split(secret: int, threshold: int, holders: Sequence[int], random: Random) -> dict[int, int]:
    """Split a number below 2^256 into shares, one per holder; any ``threshold`` shares recover it (secret sharing).

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
    """Recovery of secrets from shares. The Lagrange weights are cached, as many secrets have the same holders."""

    def __init__(self, threshold: int) -> None:
        self._threshold = threshold
        self._weights: dict[tuple[int, ...], list[int]] = {}

    def secret(self, shares: Mapping[int, int]) -> bytes:
        """Return the secret as bytes. Raises TooFewOwners for fewer shares than the threshold."""
        holders = tuple(sorted(shares)[: self._threshold])
        if len(holders) < self._threshold:
            raise TooFewOwners("reveal", len(holders), self._threshold)
        if holders not in self._weights:
            self._weights[holders] = lagrange([_place(holder) for holder in holders])
        value = sum(w * shares[holder] for w, holder in zip(self._weights[holders], holders, strict=True)) % PRIME
        return (value % 2**256).to_bytes(_SECRET)


def lagrange(places: Iterable[int]) -> list[int]:
    """Return the Lagrange weights: the value at 0 is the weighted sum of the values at these places."""
    places = list(places)
    product = math.prod(places) % PRIME
    weights = []
    for x in places:
        below = x
        for other in places:
            if other != x:
                below = below * (other - x) % PRIME
        weights.append(product * pow(below, -1, PRIME) % PRIME)
    return weights


def _enough(stage: str, there: int, agreed: Agreed) -> None:
    """Raise TooFewOwners if too few are there: the sum's least number, or with few partners the threshold of shares."""
    need = agreed.threshold if agreed.partners is not None else max(agreed.threshold, agreed.least)
    if there < need:
        raise TooFewOwners(stage, there, need)


def _place(holder: int) -> int:
    """Return the point at which a holder's share is evaluated. It is never 0, where the value is the secret."""
    return holder + 1


def _private(text: bytes) -> X25519PrivateKey:
    """Load a private key. Load it once for all partners, as loading costs as much as one key exchange."""
    return X25519PrivateKey.from_private_bytes(text)


def _public(private: bytes) -> bytes:
    return _private(private).public_key().public_bytes_raw()


def _secret(agreed: Agreed, private: X25519PrivateKey, public: bytes, use: bytes) -> bytes:
    """Return a secret for one use, which only the two owners of these keys can derive."""
    return _derived(agreed, _exchanged(private, public), use)


def _exchanged(private: X25519PrivateKey, public: bytes) -> bytes:
    """Return the shared secret of a key exchange, which is the same for both sides. Keys for all uses derive from it."""
    try:
        return private.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:  # another length, or a weak point, for which the secret is the same for everybody
        raise ValueError("adverts: expected valid public keys, got an invalid one") from None


def _derived(agreed: Agreed, both: bytes, use: bytes) -> bytes:
    return HKDF(SHA256(), _SECRET, salt=agreed.run, info=use).derive(both)


def _box(agreed: Agreed, both: bytes, writer: int, reader: int) -> ChaCha20Poly1305:
    """Return the cipher for one letter. Its key is used once."""
    return ChaCha20Poly1305(_derived(agreed, both, b"letter %d %d" % (writer, reader)))


def _word(key: bytes, writer: int, said: bytes) -> bytes:
    return hmac.digest(key, b"%d " % writer + said, "sha256")[:_TAG]


def _seal(agreed: Agreed, seed: bytes) -> bytes:
    return hashlib.sha256(b"seal" + agreed.run + seed).digest()
