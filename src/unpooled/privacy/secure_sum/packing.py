"""A site's numbers as words of a sum, and the sum's words as numbers.

Benefit: one word a number instead of two, which halves the bytes of a secure sum.

Without a declared bound, the first sum of a kind takes two words a number, and the coordinator learns from it
how large its fields are. Later sums of that kind take one word: every field has its own scale, a power of
two. Both forms must give the same bits. So a site always rounds each field to ``BITS`` bits of its largest
number first, before it encodes in one word or two. If one word cannot hold a rounded number exactly, the
number does not fit, and the sum is retried in two words. So the result never depends on the scales that were
tried before, e.g. before a crash.
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
from unpooled.privacy.secure_sum.fixed_point import Fixed, Words
from unpooled.privacy.secure_sum.messages import Layout, SumTerms

FINEST = -64  # exponent of the last bit of two words: nothing is rounded to finer steps


def spans(layout: Layout) -> list[slice]:
    """Slices of the vector, one for each field of each reply."""
    sizes = [int(np.prod(shape, dtype=np.int64)) for _, shapes in layout for shape in shapes]
    return [slice(a, b) for a, b in pairwise(np.cumsum([0, *sizes]).tolist())]


def exponent(values: FloatArray) -> int | None:
    """The least e with all absolute values below 2^e; None if all are 0."""
    largest = float(np.abs(values).max(initial=0.0))
    return math.frexp(largest)[1] if largest > 0 else None


def one_word(sites: int) -> Fixed:
    """The one-word format for numbers of absolute value at most 1, summed over so many sites."""
    return Fixed(1, 62 - max(sites - 1, 1).bit_length())


def packed(terms: SumTerms, layout: Layout, vector: FloatArray) -> Words:
    """The vector as words, and a last word: 0, or 1 if a number does not fit and the others are random.

    The coordinator must not see which site's numbers do not fit, else it could search for their size by
    trying bounds. Nor may it use the failed sum: if this site added zeros, the sum would be that of the other
    sites, and subtracting it from a retry with a larger bound would show this site's part.
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
    """The sum, decoded from its words and multiplied by the fields' scales."""
    values = terms.fixed.decode(words)
    if terms.scales:
        for span, scale in zip(spans(layout), terms.scales, strict=True):
            values[span] = np.ldexp(values[span], scale)
    return values


def _scaled(terms: SumTerms, layout: Layout, vector: FloatArray) -> FloatArray | None:
    """Every field rounded and divided by its scale; None if a scale is too coarse or too fine for it."""
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
        last = max(top - terms.rounded, FINEST)  # numbers are rounded to multiples of 2^last
        if terms.scales and (top > scale or last < scale - terms.fixed.fraction):
            return None
        out[span] = np.ldexp(np.rint(np.ldexp(vector[span], -last)), last - scale)
    return out


def narrowed(terms: SumTerms, scales: tuple[int, ...]) -> SumTerms:
    """The same terms with one word a number, each field divided by its scale."""
    return replace(terms, fixed=one_word(len(terms.sites)), scales=scales)


_MISFITS = 2  # after so many sums of a kind that did not fit, one word is not tried again
_GROWTH = 3  # bits by which a field that is never negative may grow from one sum to the next


@dataclass(eq=False)
class Scales:
    """The sizes of the fields of one kind of sum so far in a run. They decide how sums are encoded, never
    their results (see packing)."""

    latest: dict[tuple[int, str], int | None] = field(default_factory=dict)  # exponents, by part and field
    largest: dict[tuple[int, str], int | None] = field(default_factory=dict)
    asked: int = 0  # numbers that the latest questions sent for one start
    misfits: int = 0

    def learn(self, parts: Sequence[Part], sums: tuple[Any, ...]) -> None:
        """Record the field sizes in the opened sums of the questions in ``parts``."""
        fields = [(i, name) for i, summed in enumerate(sums) for name in codec.field_names(type(summed))]
        before, self.latest = self.largest, {(i, f): exponent(getattr(sums[i], f)) for i, f in fields}
        self.largest = {
            key: max((e for e in (now, before.get(key)) if e is not None), default=None)
            for key, now in self.latest.items()
        }
        self.asked = _numbers_for_one_start(parts)

    def scales(self, parts: Sequence[Part], slack: int) -> tuple[int, ...]:
        """A scale for every field of the replies, () if one word is not to be tried.

        ``slack``: the bits by which a site's largest number may lie below its field's scale. In a field that
        is never negative no site's number exceeds the sum, so its scale is the latest sum plus room to grow.
        Numbers of both signs cancel in the sum, more so from round to round; their scale is the largest sum
        so far plus half of the slack. If the questions send fewer numbers than the latest did, cells are
        coarser and their sums larger, so one word is not tried.
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
    """Numbers sent for one start, at least 1; arrays hold a set of centres for each start."""
    sizes = (a.size // max(len(a), 1) if a.ndim > 2 else a.size for part in parts for a in _arrays(part))
    return max(1, sum(sizes))


def _arrays(part: Part) -> Iterator[FloatArray]:
    for name in codec.field_names(type(part.question)):
        value = getattr(part.question, name)
        if isinstance(value, np.ndarray):
            yield value
