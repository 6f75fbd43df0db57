"""The primitives taken from ``cryptography``: X25519, HKDF-SHA256, ChaCha20, ChaCha20-Poly1305, Ed25519.

Every key is bound to its purpose: the run, the request, the sum and its sites. A site's secret of a run, like
its identity, comes from the operating system's entropy; its keys and seeds in that run are derived from it,
so that a site that was killed gives the same bytes again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import numpy as np

from unpooled.errors import InputError, install_hint
from unpooled.privacy.secure_sum import stage_messages
from unpooled.privacy.secure_sum.fixed_point import Words
from unpooled.protocol.crypto_labels import Label
from unpooled.protocol.messages import SiteId

try:
    from cryptography.exceptions import InvalidSignature, InvalidTag
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
    from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand
except ImportError as missing:  # pragma: no cover
    raise InputError(
        f"secure sums and summary files need the package cryptography. {install_hint('secure')}"
    ) from missing

_NONCE = b"\0" * 12  # every sealing key is used once


@dataclass(frozen=True, eq=False)
class Identity:
    """A site's long-lived signing key. Others pin its ``public`` half, 32 bytes."""

    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.secret) != stage_messages.KEY:
            raise InputError(f"an identity is a secret of {stage_messages.KEY} bytes, got {len(self.secret)}")

    @classmethod
    def new(cls) -> "Identity":
        """Return a new identity, from the operating system's entropy."""
        return cls(Ed25519PrivateKey.generate().private_bytes_raw())

    @property
    def public(self) -> bytes:
        return Ed25519PrivateKey.from_private_bytes(self.secret).public_key().public_bytes_raw()

    def sign(self, statement: bytes) -> bytes:
        return Ed25519PrivateKey.from_private_bytes(self.secret).sign(statement)


def is_signed(public: bytes, statement: bytes, signature: bytes) -> bool:
    """Return whether the owner of this identity signed this statement."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, statement)
    except (InvalidSignature, ValueError):
        return False
    return True


def derived(secret: bytes, label: Label, context: bytes = b"", length: int = stage_messages.KEY) -> bytes:
    """Return secret bytes for one purpose and context, from a secret of 32 bytes."""
    key = HKDFExpand(SHA256(), stage_messages.KEY, info=label + context).derive(secret)
    return key if length == stage_messages.KEY else _stream(key, length)


def _stream(key: bytes, length: int) -> bytes:
    cipher: Any = Cipher(ChaCha20(key, b"\0" * 16), mode=None)  # every key is used for one stream
    return bytes(cipher.encryptor().update(bytes(length)))


class KeyAgreement:
    """A site's half of the key agreement, for one run: its secret never leaves, not even in shares."""

    def __init__(self, secret: bytes) -> None:
        self._secret = X25519PrivateKey.from_private_bytes(secret)
        self.public = self._secret.public_key().public_bytes_raw()

    def root(self, peer: bytes, about: bytes) -> bytes | None:
        """Return the secret that only this site and the peer know; None for an invalid key."""
        try:
            agreed = self._secret.exchange(X25519PublicKey.from_public_bytes(peer))
        except ValueError:  # a point of small order: all-zero secret
            return None
        low, high = sorted((self.public, peer))
        info = Label.PAIR_ROOT + about + low + high
        return HKDF(SHA256(), stage_messages.KEY, salt=None, info=info).derive(agreed)


def pair_keys(root: bytes, context: bytes) -> tuple[bytes, bytes, bytes]:
    """Return the seed of a pair's mask in a sum, and its keys to seal shares: to later and earlier sites."""
    length = stage_messages.SEED + 2 * stage_messages.KEY
    out = HKDFExpand(SHA256(), length, info=Label.PAIR_KEYS + context).derive(root)
    return (
        out[: stage_messages.SEED],
        out[stage_messages.SEED : stage_messages.SEED + stage_messages.KEY],
        out[stage_messages.SEED + stage_messages.KEY :],
    )


def from_seed(label: Label, context: bytes, seed: bytes) -> bytes:
    """Return a key or a commitment from a seed, for one purpose in one sum."""
    return sha256(label + context + seed).digest()


def mask(seed: bytes, context: bytes, shape: tuple[int, int]) -> Words:
    """Return the keystream of a seed as words (limbs, N)."""
    stream = _stream(from_seed(Label.MASK_KEY, context, seed), 8 * shape[0] * shape[1])
    return np.frombuffer(stream, dtype="<u8").astype(np.uint64, copy=False).reshape(shape)


def seal(key: bytes, text: bytes, about: bytes) -> bytes:
    return ChaCha20Poly1305(key).encrypt(_NONCE, text, about)


def unseal(key: bytes, sealed: bytes, about: bytes) -> bytes | None:
    """Return the plaintext, or None if it was not sealed with this key and this context."""
    try:
        return ChaCha20Poly1305(key).decrypt(_NONCE, sealed, about)
    except InvalidTag:
        return None


PRIME = 2**130 - 5
_TERM = 33  # bytes of a coefficient before it is reduced: 134 bits more than needed, so no bias is left


def stream_length(threshold: int) -> int:
    """Return the number of random bytes that the shares of one secret need."""
    return _TERM * (threshold - 1)


def share(secret: bytes, threshold: int, count: int, stream: bytes) -> list[int]:
    """Return ``count`` shares of a secret, any ``threshold`` of which restore it.

    ``stream``: secret random bytes, ``stream_length(threshold)`` of them.

    >>> shares = share(b"sixteen bytes ab", 2, 3, bytes(range(stream_length(2))))
    >>> restore([shares[2], shares[0]], weights([2, 0]))
    b'sixteen bytes ab'
    """
    if len(stream) != stream_length(threshold):
        raise ValueError(f"{len(stream)} bytes for the shares of {threshold}")
    parts = (stream[i : i + _TERM] for i in range(0, len(stream), _TERM))
    terms = [int.from_bytes(part, "little") % PRIME for part in parts]
    terms.append(int.from_bytes(secret, "little"))
    shares = []
    for x in range(1, count + 1):
        value = 0
        for term in terms:
            value = (value * x + term) % PRIME
        shares.append(value)
    return shares


def weights(indices: Sequence[int]) -> list[int]:
    """Return the Lagrange weights for the value at 0, for the shares of the sites at ``indices``."""
    points = [i + 1 for i in indices]
    out = []
    for a in points:
        numerator = denominator = 1
        for b in points:
            if b != a:
                numerator = numerator * b % PRIME
                denominator = denominator * (b - a) % PRIME
        out.append(numerator * pow(denominator, -1, PRIME) % PRIME)
    return out


def restore(shares: Sequence[int], weights: Sequence[int]) -> bytes | None:
    """Return the secret that these shares restore; None if it is not a seed of 128 bits."""
    value = sum(s * w for s, w in zip(shares, weights, strict=True)) % PRIME
    return value.to_bytes(stage_messages.SEED, "little") if value < 2 ** (8 * stage_messages.SEED) else None


@dataclass(frozen=True, eq=False)
class SumSeeds:
    """A site's secrets in one sum, derived from the secret of the run, and its reply with shares of them."""

    context: bytes
    shares: stage_messages.Shares
    own: tuple[int, int]  # its own shares of its own seeds: self mask, table
    self_seed: bytes = field(repr=False)
    pair_seeds: dict[SiteId, bytes] = field(repr=False)
    unsealing: dict[SiteId, bytes] = field(repr=False)


def derive_seeds(
    secret: bytes, terms: stage_messages.SumParameters, name: SiteId, roots: dict[SiteId, bytes]
) -> SumSeeds:
    """Return the secrets of a site in a sum, from its secret for that sum and its roots with its peers."""
    sites, context, me = terms.sites, terms.context, terms.sites.index(name)
    self_seed, table_seed = (
        derived(secret, label)[: stage_messages.SEED] for label in (Label.SELF_SEED, Label.TABLE_SEED)
    )
    length = stream_length(terms.threshold)
    of_self, of_table = (
        share(seed, terms.threshold, len(sites), derived(secret, label, length=length))
        for seed, label in ((self_seed, Label.SELF_SHARES), (table_seed, Label.TABLE_SHARES))
    )
    pair_seeds, unsealing, sealed = {}, {}, []
    for i, site in enumerate(sites):
        if i == me:
            continue
        seed, up, down = pair_keys(roots[site], context)
        pair_seeds[site], unsealing[site] = seed, down if me < i else up
        two = b"".join(part[i].to_bytes(stage_messages.SHARE, "little") for part in (of_self, of_table))
        sealed.append(seal(up if me < i else down, two, context))
    table = seal(from_seed(Label.TABLE_KEY, context, table_seed), b"".join(pair_seeds.values()), context)
    check = from_seed(Label.SEED_COMMITMENT, context, self_seed)[: stage_messages.SEED]
    shares = stage_messages.Shares(stage_messages.as_array(check + table + b"".join(sealed)))
    return SumSeeds(context, shares, (of_self[me], of_table[me]), self_seed, pair_seeds, unsealing)
