"""Numbers and names as people read them: on pages, in the terminal, in figures."""

import math
import re
from collections.abc import Iterable, Sequence


def cluster_letter(label: int) -> str:
    """Return the letter that names a cluster to people; its label, in Python and in files, counts from 0.

    >>> cluster_letter(0), cluster_letter(25), cluster_letter(26)
    ('A', 'Z', 'AA')
    """
    letters = ""
    while label >= 0:
        label, last = label // 26 - 1, label % 26
        letters = chr(ord("A") + last) + letters
    return letters


def listed(names: Sequence[str], max_items: int = 6) -> str:
    """Return the first names, and how many more there are.

    >>> listed(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    more = f" and {len(names) - max_items} more" if len(names) > max_items else ""
    return ", ".join(names[:max_items]) + more


def counted(count: float, noun: str) -> str:
    """Return a number with its noun, in the plural unless the number is 1.

    >>> counted(1, "group"), counted(1200, "group"), counted(1200, "person"), counted(2, "query")
    ('1 group', '1,200 groups', '1,200 people', '2 queries')
    """
    if count != 1:
        plural = f"{noun[:-1]}ies" if re.search("[^aeiou]y$", noun) else f"{noun}s"
        noun = "people" if noun == "person" else plural
    return f"{count:,.0f} {noun}"


def times(count: int) -> str:
    """Return how often something happened.

    >>> times(1), times(1200)
    ('once', '1,200 times')
    """
    return "once" if count == 1 else f"{count:,} times"


def percent(share: float) -> str:
    """Return a share as a percentage; below 9.5% with one decimal.

    >>> percent(0.521), percent(0.0123)
    ('52%', '1.2%')
    """
    digits = 0 if share >= 0.095 or share == 0 else 1
    return f"{100 * share:.{digits}f}%"


def size(n: float) -> str:
    """Return a number of bytes in a unit that people read.

    >>> size(900), size(123_456), size(2_000_000)
    ('900 B', '123 kB', '2.0 MB')
    """
    if n < 1000:
        return f"{n:.0f} B"
    return f"{n / 1e3:.0f} kB" if n < 1e6 else f"{n / 1e6:.1f} MB"


def duration(seconds: float) -> str:
    """Return a rough duration.

    >>> duration(0.2), duration(42), duration(200), duration(9000)
    ('seconds', '40 s', '3 min', '2.5 h')
    """
    if seconds < 8:
        return "seconds"
    if seconds < 90:
        return f"{round(seconds, -1):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.2g} h"


def sentence(parts: Iterable[str]) -> str:
    """Return parts as one sentence.

    >>> sentence(["one cluster is enough", "restarts disagree"])
    'One cluster is enough; restarts disagree.'
    """
    joined = "; ".join(parts)
    return joined[:1].upper() + joined[1:] + "." if joined else ""


def figure(value: float) -> str:
    """Return a number with three digits, or with all digits of its whole part if these are more.

    >>> figure(61.234), figure(4207.4), figure(0.01234), figure(float("nan"))
    ('61.2', '4207', '0.0123', '-')
    >>> figure(-1.2345e120), figure(123456789012345.0)
    ('-1.23e+120', '123456789012345')
    """
    if not math.isfinite(value):
        return "-"
    if abs(value) >= 1e15:
        return f"{value:.3g}"
    if abs(value) >= 1000 or value == 0:
        return f"{value:.0f}"
    digits = 2 - math.floor(math.log10(abs(value)))
    return f"{value:.{min(max(digits, 0), 6)}f}"


def natural(name: str) -> list[tuple[bool, int, str]]:
    """Return the key of natural sorting: numbers within names sort by value.

    >>> sorted(["site 10", "site 9", "10", "a"], key=natural)
    ['10', 'a', 'site 9', 'site 10']
    """
    parts = re.split(r"(\d+)", name)
    return [
        (not part.isdecimal(), int(part) if part.isdecimal() else 0, part.lower()) for part in parts if part
    ]


def natural_order(names: Sequence[str]) -> list[int]:
    """Return the positions of names in natural order.

    >>> natural_order(["site-1", "site-10", "site-2"])
    [0, 2, 1]
    """
    return sorted(range(len(names)), key=lambda i: natural(names[i]))
