"""The kinds of values that options have: what texts of a command and arguments in Python stand for."""

import codecs
from collections.abc import Iterable, Mapping
from numbers import Real
from typing import Any
from unicodedata import normalize

from unpooled.errors import InputError


def plain_name(name: str) -> str:
    """Return the name of a column without surplus blanks; an umlaut is one character, however written.

    >>> plain_name("  body   mass "), len(plain_name("gro\\u0308\\u00dfe"))
    ('body mass', 5)
    """
    return normalize("NFC", " ".join(name.split()))


class TextValue:
    """A text, or nothing."""

    several = False  # the command's option may be repeated
    default: Any = None  # of the argument in Python
    documented = "str or None"

    def parsed(self, option: str, given: str) -> Any:
        """Return the value that the command's text stands for; raise InputError if it stands for none."""
        return given

    def converted(self, argument: str, given: object) -> Any:
        """Return the value that an argument in Python stands for."""
        if given is not None and not isinstance(given, str):
            raise InputError(f"{argument} must be text or None, got {given!r}")
        return None if given is None else self.parsed(argument, given)

    def texts(self, value: Any) -> list[str]:
        """Return the texts that the command reads back as this value."""
        return [] if value is None else [value]

    def in_python(self, argument: str, given: str) -> str:
        """Return a text of the command as an argument in Python, for messages."""
        return f'{argument}="{given}"'


class CharacterValue(TextValue):
    """One character; ``\\t`` stands for a tab."""

    def parsed(self, option: str, given: str) -> Any:
        given = "\t" if given == "\\t" else given
        if len(given) != 1:
            raise InputError(f"{option} must be one character, got {given!r}")
        return given


class DecimalMarkValue(TextValue):
    """A point or a comma."""

    def parsed(self, option: str, given: str) -> Any:
        if given not in (".", ","):
            raise InputError(f"{option} must be '.' or ',', got {given!r}")
        return given


class EncodingValue(TextValue):
    """The name of an encoding."""

    def parsed(self, option: str, given: str) -> Any:
        try:
            return codecs.lookup(given).name
        except LookupError:
            raise InputError(
                f"{option}: there is no encoding {given!r}; e.g. utf-8, cp1252, utf-16"
            ) from None


class ColumnValue(TextValue):
    """The name of one column."""

    def parsed(self, option: str, given: str) -> Any:
        return plain_name(given)


class ColumnsValue(TextValue):
    """Names of columns, separated by commas."""

    default: Any = ()
    documented = "str or list of str"

    def parsed(self, option: str, given: str) -> Any:
        return tuple(plain_name(name) for name in given.split(",") if name.strip())

    def converted(self, argument: str, given: object) -> Any:
        names = [given] if isinstance(given, str) else list(given) if isinstance(given, Iterable) else [None]
        if not all(isinstance(name, str) for name in names):
            raise InputError(f"{argument} must be the name of a column, or a list of names, got {given!r}")
        return tuple(map(plain_name, names))

    def texts(self, value: Any) -> list[str]:
        return [",".join(value)] if value else []


class ThreeColumnsValue(ColumnsValue):
    """The names of three columns, or nothing."""

    default = None
    documented = "tuple of str or None"

    def parsed(self, option: str, given: str) -> Any:
        names = super().parsed(option, given)
        if len(names) != 3 or len(set(names)) != 3:
            raise InputError(f"{option} must name three columns (person, feature, value), got {given!r}")
        return names

    def converted(self, argument: str, given: object) -> Any:
        if given is None:
            return None
        three = super().converted(argument, given)
        if len(three) != 3 or len(set(three)) != 3:
            raise InputError(
                f"{argument} must name three columns, of person, feature and value, got {given!r}"
            )
        return three


class TextsValue(TextValue):
    """Texts or numbers that mean missing; the command's option is repeated."""

    several = True
    default = ()
    documented = "object"

    def parsed(self, option: str, given: str) -> Any:
        return (given,)

    def converted(self, argument: str, given: object) -> Any:
        """Return the texts; numbers as they are written.

        >>> TextsValue().converted("na", -9), TextsValue().converted("na", ["chol=0", -9.5])
        (('-9',), ('chol=0', '-9.5'))
        """
        many: list[Any] = (
            list(given) if isinstance(given, Iterable) and not isinstance(given, str) else [given]
        )
        if not all(isinstance(one, str | Real) and not isinstance(one, bool) for one in many):
            raise InputError(
                f"{argument} must be a text or a number that means missing, or a list, got {given!r}"
            )
        return tuple(one if isinstance(one, str) else f"{float(one):.17g}" for one in many)

    def texts(self, value: Any) -> list[str]:
        return list(value)


class OrdersValue(TextValue):
    """(column, its categories from the lowest) pairs; the command's option is repeated."""

    several = True
    documented = "mapping or None"

    def parsed(self, option: str, given: str) -> Any:
        """Return a pair for a column.

        >>> OrdersValue().parsed("--ordinal", "grade: low < mid < high")
        (('grade', ('low', 'mid', 'high')),)
        """
        column, _, categories = given.partition(":")
        order = tuple(category.strip() for category in categories.split("<"))
        if not column.strip() or not all(order) or len(set(order)) != len(order) or len(order) < 2:
            raise InputError(f"{option} must have the form column:low<mid<high, got {given!r}")
        return ((plain_name(column), order),)

    def converted(self, argument: str, given: object) -> Any:
        given = {} if given is None else given
        if not isinstance(given, Mapping) or any(isinstance(order, str) for order in given.values()):
            raise InputError(
                f'{argument} must be a mapping such as {{"grade": ["low", "mid", "high"]}}, got {given!r}'
            )
        pairs = (self.parsed(argument, f"{name}:{'<'.join(map(str, order))}") for name, order in given.items())
        return sum(pairs, ())

    def texts(self, value: Any) -> list[str]:
        return [f"{column}:{'<'.join(order)}" for column, order in value]

    def in_python(self, argument: str, given: str) -> str:
        column, _, categories = given.partition(":")
        return f'{argument}={{"{column}": {categories.split("<")}}}'.replace("'", '"')


class SpellingsValue(TextValue):
    """(column, spelling, category) triples; the command's option is repeated."""

    several = True
    documented = "mapping or None"

    def parsed(self, option: str, given: str) -> Any:
        """Return a triple for every pair.

        >>> SpellingsValue().parsed("--recode", "sex: M=male, F=female")
        (('sex', 'M', 'male'), ('sex', 'F', 'female'))
        """
        column, _, pairs = given.partition(":")
        found = [pair.partition("=") for pair in pairs.split(",")]
        if not column.strip() or not all(old.strip() and new.strip() for old, _, new in found):
            raise InputError(
                f"{option} must have the form column:spelling=category,spelling=category, got {given!r}"
            )
        (name,) = ColumnsValue().parsed(option, column.split(",")[0])
        return tuple((name, old.strip(), new.strip()) for old, _, new in found)

    def converted(self, argument: str, given: object) -> Any:
        given = {} if given is None else given
        if not isinstance(given, Mapping) or not all(isinstance(one, Mapping) for one in given.values()):
            raise InputError(
                f'{argument} must be a mapping such as {{"sex": {{"M": "male"}}}}, got {given!r}'
            )
        return tuple(
            (plain_name(column), str(old), str(new))
            for column, pairs in given.items()
            for old, new in pairs.items()
        )

    def texts(self, value: Any) -> list[str]:
        return [f"{column}:{old}={new}" for column, old, new in value]

    def in_python(self, argument: str, given: str) -> str:
        column, _, pairs = given.partition(":")
        listed = ", ".join(
            '"{}": "{}"'.format(*pair.split("=", 1)) for pair in pairs.split(",") if "=" in pair
        )
        return f'{argument}={{"{column}": {{{listed}}}}}'
