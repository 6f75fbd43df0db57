"""Messages of a secure sum: a question and a reply per stage, small ones packed as bytes.

=========  ==============================================  ==================================================
stage      down                                            up
=========  ==============================================  ==================================================
keys       the epoch                                       a signed key for key agreement; once an epoch
shares     terms of the sum, the participants, all keys    shares of two fresh seeds, sealed for every peer
masked     the question itself, the peers' sealed shares   the reply, masked
consistent the sites in the sum                            a signature on them
unmask     the others' signatures                          one share of every peer: of either seed, not both
=========  ==============================================  ==================================================
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Annotated

import numpy as np
import numpy.typing as npt

from unpooled.errors import QueryRefusedError
from unpooled.privacy.secure_sum import fixed_point
from unpooled.privacy.secure_sum.fixed_point import Words
from unpooled.privacy.secure_sum.sum_settings import MIN_SITES
from unpooled.protocol import codec
from unpooled.protocol.crypto_labels import Label
from unpooled.protocol.declarations import Bytes, Numbers, Setting, Text
from unpooled.protocol.exact_sum import ExactSum
from unpooled.protocol.exchange import RequestId
from unpooled.protocol.limits import MAX_SITES
from unpooled.protocol.messages import Message, Question, Reply, SiteId, Summable
from unpooled.protocol.partial_sum import PartialSum
from unpooled.typing import IntArray

KEY = 32  # X25519 and Ed25519, public and secret; ChaCha20
SIGNATURE = 64  # Ed25519
TAG = 16  # Poly1305
SEED = 16  # of a mask: 128 bits
SHARE = 17  # of a seed, modulo 2^130 - 5
SIGNED_KEY = 2 * KEY + SIGNATURE  # the site's identity, its key for key agreement, a signature on that
SEALED = 2 * SHARE + TAG  # a peer's shares of a site's two seeds


def table(n: int) -> int:
    """Bytes of a site's sealed table: its pair seeds with its n - 1 peers."""
    return SEED * (n - 1) + TAG


def shares(n: int) -> int:
    """Bytes that one of n sites sends in the shares stage: a commitment, its table, its sealed shares."""
    return SEED + table(n) + SEALED * (n - 1)


ByteArray = npt.NDArray[np.uint8]


def threshold_for(sites: int, min_sites: int = MIN_SITES) -> int:
    """Return the fewest sites in a sum that must sign its list of sites before its masks are removed.

    A lying coordinator needs this many signatures under each of two different lists to read one site's reply.
    Honest sites sign one list, colluding ones both: safe while 2 t > n + colluding. More than two thirds of n
    is therefore safe against the coordinator and any third of the sites together.

    >>> [threshold_for(n) for n in (3, 4, 5, 10, 100)]
    [3, 3, 4, 7, 67]
    """
    return max(2 * sites // 3 + 1, min_sites)


@dataclass(frozen=True)
class SumParameters(Message):
    """The terms of a sum: exchange, participants, sites, questions. Keys and signatures bind to them."""

    request_id: RequestId  # of which it is the only sum
    epoch: str
    participants: str  # digest of the run's participant list
    sites: tuple[SiteId, ...]  # in order: the participants that have not left the run
    threshold: int
    asked: str  # digest of the questions whose replies are summed, the same at every site

    @property
    def context(self) -> bytes:
        return sha256(codec.encode(self)).digest()


# ---------------------------------------------------------------- the participant list


@dataclass(frozen=True)
class Participants(Message):
    """The sites of a run and their identities, fixed when it starts, signed by the federation's authority."""

    run: str
    sites: tuple[SiteId, ...]  # in order
    identities: tuple[str, ...]  # Ed25519, hexadecimal
    signature: str = ""  # hexadecimal; "": no authority, as in simulation

    @property
    def statement(self) -> bytes:
        """The bytes that the authority signs."""
        return Label.PARTICIPANTS + codec.encode(replace(self, signature=""))

    @property
    def digest(self) -> str:
        return sha256(self.statement).hexdigest()

    @property
    def keys(self) -> dict[SiteId, bytes]:
        return {site: bytes.fromhex(key) for site, key in zip(self.sites, self.identities, strict=True)}

    @property
    def fingerprint(self) -> str:
        """The fingerprint of all sites and identities, the same in every run, to be read out in a call."""
        listed = codec.encode(Participants("", self.sites, self.identities))
        text = sha256(Label.PARTICIPANTS_FINGERPRINT + listed).hexdigest()[:40]
        return " ".join(text[i : i + 4] for i in range(0, len(text), 4))


# ---------------------------------------------------------------- keys


@dataclass(frozen=True, eq=False)
class KeyStatement(Message):
    """The statement that a site signs about its key."""

    run: str
    epoch: str
    site: SiteId
    key: str

    @property
    def bytes(self) -> bytes:
        return Label.SITE_KEY + codec.encode(self)


@dataclass(frozen=True, eq=False)
class Keys(Reply):
    data: Annotated[ByteArray, Bytes("128")]  # Ed25519 identity, X25519 key, signature
    departed: Annotated[tuple[SiteId, ...], Text("departed")]  # sites that left this run, as this site knows
    participants: Annotated[ByteArray, Bytes("known")]  # that of this run, encoded, if the site has seen it


@dataclass(frozen=True, eq=False)
class AskKeys(Question[Keys]):
    reads = "nothing"
    asks_for = "public keys for secure sums; nothing about rows"

    epoch: str


# ---------------------------------------------------------------- shares


@dataclass(frozen=True, eq=False)
class Shares(Reply):
    # commitment to the own seed, sealed pair seeds, n - 1 sealed pairs of shares
    data: Annotated[ByteArray, Bytes("length")]


@dataclass(frozen=True, eq=False)
class AskShares(Question[Shares]):
    reads = "nothing"
    asks_for = "encrypted shares of the keys for secure sums; nothing about rows"

    terms: Annotated[SumParameters, Setting()]
    participants: Annotated[Participants, Setting()]
    keys: Annotated[ByteArray, Bytes("sites 128", max_length=MAX_SITES)]  # in the order of terms.sites


# ---------------------------------------------------------------- masked

Layout = tuple[tuple[str, tuple[tuple[int, ...], ...]], ...]


@dataclass(frozen=True, eq=False)
class Masked(Reply):
    """The replies to all questions of a sum, masked: their kinds, their shapes, and words of 64 bits."""

    layout: Annotated[Layout, Text("parts")]
    data: Annotated[IntArray, Bytes("2 words")]  # the last is the number of sites


@dataclass(frozen=True, eq=False)
class AskMasked(Question[Masked]):
    reads = "nothing"
    asks_for = "the site's answers, masked: only the sum over all sites can be read"

    epoch: str
    sharers: Annotated[tuple[SiteId, ...], Text("sharers")]
    sealed: Annotated[ByteArray, Bytes("others 50")]  # ciphertexts of the others' shares for this site
    # positions in the exchange of the questions whose replies are summed
    parts: Annotated[tuple[int, ...], Numbers("parts")]


def flatten(replies: Sequence[Summable]) -> tuple[Layout, npt.NDArray[np.float64]]:
    """Return replies as one vector, and the layout that ``unflatten`` needs to split it again."""
    layout, columns = [], [np.zeros(0)]
    for reply in replies:
        arrays = [getattr(reply, f) for f in codec.field_names(type(reply))]
        layout.append((codec.name_of(type(reply)), tuple(tuple(map(int, a.shape)) for a in arrays)))
        columns += [np.asarray(a, dtype=np.float64).reshape(-1) for a in arrays]
    return tuple(layout), np.concatenate(columns)


def is_valid_layout(layout: Layout, parts: int) -> bool:
    """Return whether a layout names a Summable with its fields' shapes for every part."""
    for name, shapes in layout:
        kind = codec.class_named(name)
        if kind is None or not issubclass(kind, Summable) or len(codec.field_names(kind)) != len(shapes):
            return False
        if not all(len(shape) <= 8 and 0 <= n < 2**32 for shape in shapes for n in shape):
            return False
    return len(layout) == parts


def unflatten(layout: Layout, values: npt.NDArray[np.float64]) -> tuple[Summable, ...]:
    """Return the replies in a vector, by their layout: the inverse of ``flatten``."""
    sums, start = [], 0
    for name, shapes in layout:
        fields = []
        for shape in shapes:
            size = int(np.prod(shape, dtype=np.int64))
            fields.append(values[start : start + size].reshape(shape))
            start += size
        kind = codec.class_named(name)
        assert kind is not None  # a layout is read only with the names of sums that exist
        sums.append(kind(*fields))
    return tuple(sums)


def length(layout: Layout) -> int:
    """Return the number of values in replies of this layout."""
    return sum(int(np.prod(shape, dtype=np.int64)) for _, shapes in layout for shape in shapes)


MAX_SITES_IN_SUM = 2**32  # in a sum; a wrong sum has another last number, but for a chance of 2^-96


def as_words(replies: Sequence[Summable | PartialSum]) -> tuple[Layout, Words]:
    """Return replies or sums as words (2, N + 1), and their layout. The last number counts sites."""
    layout: Layout = ()
    columns, counts = [], set()
    for reply in replies:
        if isinstance(reply, PartialSum):
            layout += ((reply.kind, tuple(shape for _, shape in reply.shapes)),)
            columns += [fixed_point.words_of(_flat(part)) for part in reply.sums]
        else:
            one, vector = flatten([reply])
            layout += one
            columns.append(fixed_point.encode(np.where(np.isfinite(vector), vector, 0.0)))
        counts.add(reply.sites if isinstance(reply, PartialSum) else 1)
    if len(counts) != 1:
        raise QueryRefusedError("different sites answered the queries of one sum")
    columns.append(fixed_point.encode(np.array([float(counts.pop())])))
    return layout, np.concatenate(columns, axis=1)


def _flat(part: ExactSum) -> ExactSum:
    """A sum as one of shape (N,); it may have no limbs, or no numbers."""
    return ExactSum(part.low, part.limbs.reshape(len(part.limbs), int(np.prod(part.shape))))


def sites_in(words: Words, members: int, federations: int) -> int | None:
    """Return the number of sites in a sum, by its last number; None if that is not possible.

    ``members`` are in the sum, ``federations`` of them with any number of sites each.
    """
    low, high = (int(word) for word in words[:, -1])
    fits = members <= high < MAX_SITES_IN_SUM if federations else high == members
    return high if fits and not low else None


def subtotals(layout: Layout, words: Words, sites: int) -> tuple[PartialSum, ...]:
    """Return the unrounded replies in the words of a sum (2, N), which a relay sends upstream."""
    sums, start = [], 0
    for kind, shapes in layout:
        parts = []
        for shape in shapes:
            size = int(np.prod(shape, dtype=np.int64))
            part = fixed_point.exact_of(words[:, start : start + size])
            parts.append(ExactSum(part.low, part.limbs.reshape(len(part.limbs), *shape)))
            start += size
        sums.append(PartialSum.from_sums(kind, sites, parts))
    return tuple(sums)


# ---------------------------------------------------------------- consistency, unmask


@dataclass(frozen=True, eq=False)
class ConsistencyStatement(Message):
    """The statement that a site signs about the list of sites in a sum."""

    context: str
    sharers: tuple[SiteId, ...]
    survivors: tuple[SiteId, ...]

    @property
    def bytes(self) -> bytes:
        return Label.SURVIVORS + codec.encode(self)


@dataclass(frozen=True, eq=False)
class ConsistencySignature(Reply):
    data: Annotated[ByteArray, Bytes("64")]  # signature


@dataclass(frozen=True, eq=False)
class AskConsistency(Question[ConsistencySignature]):
    reads = "nothing"
    asks_for = "a signature that all sites sum over the same sites; nothing about rows"

    epoch: str
    survivors: Annotated[tuple[SiteId, ...], Text("survivors")]


@dataclass(frozen=True, eq=False)
class UnmaskShares(Reply):
    data: Annotated[ByteArray, Bytes("length")]  # for every sharer, one share of one of its two seeds


@dataclass(frozen=True, eq=False)
class AskUnmask(Question[UnmaskShares]):
    reads = "nothing"
    asks_for = "shares that remove the masks from the sum over all sites; nothing about rows"

    epoch: str
    survivors: Annotated[tuple[SiteId, ...], Text("survivors")]  # whose own masks are removed
    dropped: Annotated[tuple[SiteId, ...], Text("dropped")]  # whose pair masks are removed
    signers: Annotated[tuple[SiteId, ...], Text("signers")]
    signatures: Annotated[ByteArray, Bytes("signers 64")]


STAGES = (AskKeys, AskShares, AskMasked, AskConsistency, AskUnmask)


def as_array(data: bytes) -> ByteArray:
    return np.frombuffer(data, dtype=np.uint8)


def check_list(
    some: tuple[SiteId, ...], whole: tuple[SiteId, ...], what: str, min_count: int, me: SiteId | None = None
) -> None:
    """Refuse a list that is unsorted, not within ``whole``, shorter than ``min_count``, or without ``me``."""
    if list(some) != sorted(set(some)) or not set(some) <= set(whole):
        raise QueryRefusedError(f"the {what} are not in order, or not among the allowed sites")
    if len(some) < min_count:
        raise QueryRefusedError(f"{len(some)} {what}, and the threshold is {min_count}")
    if me is not None and me not in some:
        raise QueryRefusedError(f"this site is not among the {what}")
