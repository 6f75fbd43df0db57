"""What a coordinator remembers of a kind of sum, so that the next one takes one word a number."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from unpooled.core import codec
from unpooled.core.arrays import FloatArray
from unpooled.core.envelope import Part
from unpooled.privacy.secure_sum.packing import exponent

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
