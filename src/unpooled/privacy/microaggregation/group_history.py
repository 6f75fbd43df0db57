"""The history of all groups that a site ever disclosed, and the four rules for new groups.

R1. A group has at least g people with a value in every column that it discloses.
R2. No two people are ever together in two groups.
R3. A group from which somebody returns into another one has, for every column that it discloses, a withheld
    person: a person with a value in it who is not in another group, and never will be.
R4. A group is never changed: if a person of it changes or leaves, the whole group is withdrawn, and the
    others return by R2 and R3.

Then every combination of disclosed sums is about at least g people; see ``docs/summary-table.md`` for the
proof. People are keyed digests, columns are bits of a whole number; bit 0 is the number of people, which
everybody has.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from unpooled.errors import InputError

PEOPLE = ""  # stands for the number of people among the columns of a group
# by disclosed column: the number of people with a value, then the mean, or the people by category
Cells = dict[str, list[float]]


@dataclass(frozen=True)
class ReleasedGroup:
    """A group as it was disclosed: its people, the columns with a value of each, the disclosed columns."""

    members: Mapping[str, int]  # columns with a value, as bits, by person
    disclosed: int  # columns, as bits
    values: Mapping[str, str] = field(default_factory=dict)  # a digest of the values, by person
    cells: Cells | None = field(default_factory=dict)  # None: erased
    # people by class of every diverse column; None: erased
    classes: Mapping[str, Sequence[int]] | None = field(default_factory=dict)


def disclosed_columns(has: Iterable[int], min_group_size: int) -> int:
    """Return the columns, as bits, in which at least g of these people have a value.

    >>> bin(disclosed_columns([0b111, 0b111, 0b101], 3))
    '0b101'
    """
    counts: dict[int, int] = {}
    for bits in has:
        while bits:
            low = bits & -bits
            counts[low] = counts.get(low, 0) + 1
            bits ^= low
    return sum(bit for bit, count in counts.items() if count >= min_group_size)


class History:
    """All groups of one registry: those that are disclosed now, and those that were withdrawn."""

    def __init__(self, min_group_size: int) -> None:
        self.min_group_size = min_group_size
        self.groups: dict[int, ReleasedGroup] = {}
        self.live: set[int] = set()  # groups that are disclosed now
        self.withheld: dict[int, frozenset[str]] = {}  # by group from which people may return
        self.erased: set[str] = set()
        self._groups_of: dict[str, tuple[int, ...]] = {}
        self._last = 0  # number of a group

    def groups_of(self, person: str) -> tuple[int, ...]:
        """Return the numbers of all groups that a person was ever in, the latest last."""
        return self._groups_of.get(person, ())

    def live_group(self, person: str) -> int | None:
        """Return the group in which a person is disclosed now, or None."""
        groups = self.groups_of(person)
        return groups[-1] if groups and groups[-1] in self.live else None

    @property
    def people(self) -> Collection[str]:
        """Everybody who was ever disclosed."""
        return self._groups_of.keys()

    def restore(self, number: int, group: ReleasedGroup, *, live: bool) -> None:
        """Add a group that was disclosed before, from a registry."""
        self.groups[number] = group
        self._last = max(self._last, number)
        for person in group.members:
            self._groups_of[person] = (*self.groups_of(person), number)
        if live:
            self.live.add(number)

    def add(self, group: ReleasedGroup) -> int:
        """Disclose a new group, if the rules allow it; returns its number."""
        self.check(group)
        number = self._last + 1
        self.restore(number, group, live=True)
        return number

    def retire(self, number: int) -> None:
        """Withdraw a group, for ever."""
        self.live.discard(number)

    def check(self, group: ReleasedGroup) -> None:
        """Raise InputError if a rule forbids this group. It takes time by its members, not by the history."""
        if len(group.members) < self.min_group_size or group.disclosed & ~disclosed_columns(
            group.members.values(), self.min_group_size
        ):
            raise InputError(f"R1: a group discloses a column of fewer than {self.min_group_size} people")
        met: set[int] = set()
        for person in group.members:
            before = self.groups_of(person)
            if not met.isdisjoint(before):
                raise InputError("R2: two people of a group were together before")
            met.update(before)
            if not self.may_return(person):
                raise InputError("R3: a person of a group is disclosed already, is withheld, or was erased")

    def may_return(self, person: str) -> bool:
        """Return whether a person may be in a new group: not if disclosed, withheld or erased."""
        return person not in self.erased and all(
            number in self.withheld and number not in self.live and person not in self.withheld[number]
            for number in self.groups_of(person)
        )

    def open_groups(self, present: Iterable[str]) -> None:
        """Choose the withheld people of withdrawn groups, so that others may return from these groups.

        People who have left are chosen first. Of those who are ``present`` as few as possible are chosen, and
        among equals the first one there.
        """
        place = {person: i for i, person in enumerate(present)}
        for number in sorted(set(self.groups) - self.live - set(self.withheld)):
            members = self.groups[number].members
            if any(person in place and person not in self.erased for person in members):
                chosen = self._choose_withheld(number, place)
                if chosen is not None:
                    self.withheld[number] = chosen

    def _choose_withheld(self, number: int, place: dict[str, int]) -> frozenset[str] | None:
        group = self.groups[number]
        able = [person for person in group.members if self.groups_of(person) == (number,)]
        away = {person for person in able if person not in place or person in self.erased}
        chosen: list[str] = []
        open_columns = group.disclosed | 1
        while open_columns:
            left = [person for person in able if group.members[person] & open_columns]
            if not left:
                return None
            best = min(
                left,
                key=lambda p: (
                    p not in away,
                    -(group.members[p] & open_columns).bit_count(),
                    place.get(p, -1),
                    p,
                ),
            )
            chosen.append(best)
            open_columns &= ~group.members[best]
        return frozenset(chosen)
