"""The words of a sum's replies, and what they say: in the order of the questions, then the number of sites.

A site's reply is rounded to the steps of the words once. What a federation adds to the sum of the one above
it is the sum over its own sites: not rounded again, so a tree of secure sums has the bits of a flat one.
"""

from collections.abc import Sequence

import numpy as np

from unpooled.core.exact_sum import ExactSum
from unpooled.core.messages import Summable
from unpooled.core.subtotal import Subtotal
from unpooled.errors import Refused
from unpooled.privacy.secure_sum import fixed_point
from unpooled.privacy.secure_sum.fixed_point import Words
from unpooled.privacy.secure_sum.messages import Layout, flattened

MOST_SITES = 2**32  # in a sum; a wrong sum has another last number, but for a chance of 2^-96


def worded(replies: Sequence[Summable | Subtotal]) -> tuple[Layout, Words]:
    """Replies, or sums over sites, as words (2, N + 1), and their layout. The last number counts sites."""
    layout: Layout = ()
    columns, counts = [], set()
    for reply in replies:
        if isinstance(reply, Subtotal):
            layout += ((reply.kind, tuple(shape for _, shape in reply.shapes)),)
            columns += [fixed_point.words_of(_flat(part)) for part in reply.sums]
        else:
            one, vector = flattened([reply])
            layout += one
            columns.append(fixed_point.encode(np.where(np.isfinite(vector), vector, 0.0)))
        counts.add(reply.sites if isinstance(reply, Subtotal) else 1)
    if len(counts) != 1:
        raise Refused("the questions of one sum were answered by different sites")
    columns.append(fixed_point.encode(np.array([float(counts.pop())])))
    return layout, np.concatenate(columns, axis=1)


def _flat(part: ExactSum) -> ExactSum:
    return ExactSum(part.low, part.limbs.reshape(len(part.limbs), -1))


def sites_in(words: Words, members: int, federations: int) -> int | None:
    """The number of sites that a sum is over, by its last number; None if that cannot be.

    ``members`` are in the sum, ``federations`` of them with any number of sites each.
    """
    low, high = (int(word) for word in words[:, -1])
    fits = members <= high < MOST_SITES if federations else high == members
    return high if fits and not low else None


def subtotals(layout: Layout, words: Words, sites: int) -> tuple[Subtotal, ...]:
    """The replies in the words of a sum (2, N), unrounded: what a federation passes up."""
    sums, start = [], 0
    for kind, shapes in layout:
        parts = []
        for shape in shapes:
            size = int(np.prod(shape, dtype=np.int64))
            part = fixed_point.exact_of(words[:, start : start + size])
            parts.append(ExactSum(part.low, part.limbs.reshape(len(part.limbs), *shape)))
            start += size
        sums.append(Subtotal.of(kind, sites, parts))
    return tuple(sums)
