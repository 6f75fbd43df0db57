"""A site's numbers as words of a sum, and the sum's words as numbers.

Where nobody has declared a bound, the first sum of a kind takes two words a number, and the coordinator
learns from it how large its fields are. Later sums of that kind take one: every field has its own scale, a
power of two. For both to give the same bits, a site rounds each field to ``BITS`` bits of its largest number
first, whatever the words; what one word then cannot hold exactly does not fit, and the sum is made again in
two. So the result never depends on which scales somebody tried before, e.g. before a crash.
"""

import math
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from unpooled.core import codec
from unpooled.core.arrays import FloatArray
from unpooled.core.exchange import Part
from unpooled.privacy.secure_sum.fixed import Fixed, Words
from unpooled.privacy.secure_sum.messages import Layout, SumTerms

FINEST = -64  # the last bit of two words: no field is rounded to less


def spans(layout: Layout) -> list[slice]:
    """Where in the vector each field of each reply lies."""
    sizes = [int(np.prod(shape, dtype=np.int64)) for _, shapes in layout for shape in shapes]
    return [slice(a, b) for a, b in pairwise(np.cumsum([0, *sizes]).tolist())]


def exponent(values: FloatArray) -> int | None:
    """The least e with all numbers below 2^e by size; None if all are 0."""
    largest = float(np.abs(values).max(initial=0.0))
    return math.frexp(largest)[1] if largest > 0 else None


def one_word(sites: int) -> Fixed:
    """Numbers of size 1 or less, in one word, that so many sites may add."""
    return Fixed(1, 62 - max(sites - 1, 1).bit_length())


def packed(terms: SumTerms, layout: Layout, vector: FloatArray) -> Words:
    """The vector as words, and one more: 1 if it does not fit, and random words stand in its place.

    Whose numbers do not fit must not be seen, else a coordinator could search for their size by bounds. And
    the sum must tell nothing: without this site's part it would be that of the others, and the same sum with
    a larger bound would show by subtraction what this site adds.
    """
    scaled = _scaled(terms, layout, vector) if terms.rounded else vector
    fits = scaled is not None and terms.fixed.fits(scaled, len(terms.sites))
    words = terms.fixed.encode(
        np.append(scaled if fits and scaled is not None else np.zeros(len(vector)), 0.0)
    )
    if not fits:
        noise = secrets.token_bytes(words[:, :-1].nbytes)
        words[:, :-1] = np.frombuffer(noise, dtype=np.uint64).reshape(len(words), -1)
        words[0, -1] = 1
    return words


def unpacked(terms: SumTerms, layout: Layout, words: Words) -> FloatArray:
    """The sum that the words are."""
    values = terms.fixed.decode(words)
    if terms.scales:
        for span, scale in zip(spans(layout), terms.scales, strict=True):
            values[span] = np.ldexp(values[span], scale)
    return values


def _scaled(terms: SumTerms, layout: Layout, vector: FloatArray) -> FloatArray | None:
    """Every field rounded, and over its scale; None if a scale is too coarse or too fine for it."""
    if not np.isfinite(vector).all():
        return None
    fields = spans(layout)
    scales = terms.scales or (0,) * len(fields)
    if len(scales) != len(fields):
        return None
    out = np.empty_like(vector)
    for span, scale in zip(fields, scales, strict=True):
        top = exponent(vector[span])
        if top is None:
            out[span] = 0.0
            continue
        last = max(top - terms.rounded, FINEST)  # the field becomes multiples of 2^last
        if terms.scales and (top > scale or last < scale - terms.fixed.fraction):
            return None
        out[span] = np.ldexp(np.rint(np.ldexp(vector[span], -last)), last - scale)
    return out


def narrowed(terms: SumTerms, scales: tuple[int, ...]) -> SumTerms:
    """The same sum in one word a number, each field over its scale."""
    return replace(terms, fixed=one_word(len(terms.sites)), scales=scales)


_MISFITS = 2  # sums of a kind that did not fit, after which it is not tried again
_GROWTH = 3  # bits by which a field that is never negative may grow from one sum to the next


@dataclass(eq=False)
class Scales:
    """How large the fields of one kind of sum were so far in a run. It changes how sums travel, never what
    they are (see packing)."""

    latest: dict[tuple[int, str], int | None] = field(default_factory=dict)  # exponents, by part and field
    largest: dict[tuple[int, str], int | None] = field(default_factory=dict)
    asked: int = 0  # how many numbers the latest questions sent for one start
    misfits: int = 0

    def learn(self, parts: Sequence[Part], sums: tuple[Any, ...]) -> None:
        """From the opened sums of the questions in ``parts``."""
        fields = [(i, name) for i, one in enumerate(sums) for name in codec.field_names(type(one))]
        before, self.latest = self.largest, {(i, f): exponent(getattr(sums[i], f)) for i, f in fields}
        self.largest = {
            key: max((e for e in (now, before.get(key)) if e is not None), default=None)
            for key, now in self.latest.items()
        }
        self.asked = _numbers_for_one_start(parts)

    def scales(self, parts: Sequence[Part], slack: int) -> tuple[int, ...]:
        """A scale for every field of the replies, () if one word is not to be tried.

        ``slack`` is by how many bits the largest number of a site may be below its field's scale. What is
        never negative is largest in the sum. What may be cancels in it, and more so from round to round, so
        the largest sum so far is taken, and the middle of the slack. Coarser cells than the latest are not
        tried: their numbers are larger ones.
        """
        if not self.asked or self.misfits >= _MISFITS or _numbers_for_one_start(parts) < self.asked:
            return ()
        out = []
        for (i, name), now in self.latest.items():
            least = parts[i].question.figures()[name].least
            most = self.largest[i, name]
            if most is None:
                return ()
            out.append(now + _GROWTH if least > -1 and now is not None else most + slack // 2)
        return tuple(out)


def _numbers_for_one_start(parts: Sequence[Part]) -> int:
    """At least 1; the arrays of a question hold a set of centres for each of its starts."""
    sizes = (a.size // max(len(a), 1) if a.ndim > 2 else a.size for part in parts for a in _arrays(part))
    return max(1, sum(sizes))


def _arrays(part: Part) -> Iterator[FloatArray]:
    for name in codec.field_names(type(part.question)):
        value = getattr(part.question, name)
        if isinstance(value, np.ndarray):
            yield value
