"""The kinds of values that options have: what texts of a command and arguments in Python stand for."""

import codecs
from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from pathlib import Path
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
    documented = "str or None"
    typed: Any = str  # of the command's option

    def default_in_python(self, default: object) -> Any:
        """Return the default of the argument in Python, given that of the field."""
        return default

    def parsed(self, option: str, given: str) -> Any:
        """Return the value that the command's text stands for; raise InputError if it stands for none."""
        return given

    def converted(self, argument: str, given: object) -> Any:
        """Return the value that an argument in Python stands for."""
        if given is not None and not isinstance(given, str):
            raise InputError(f"{argument} must be text or None, got {given!r}")
        return None if given is None else self.parsed(argument, given)

    def texts(self, value: object) -> list[str]:
        """Return the texts that the command reads back as this value."""
        return [] if value is None else [str(value)]

    def plain(self, value: object) -> Any:
        """Return the value as an argument in Python has it, which a file may hold."""
        return value

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

    def default_in_python(self, default: object) -> Any:
        return None

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
        pairs = (
            self.parsed(argument, f"{name}:{'<'.join(map(str, order))}") for name, order in given.items()
        )
        return sum(pairs, ())

    def texts(self, value: Any) -> list[str]:
        return [f"{column}:{'<'.join(order)}" for column, order in value]

    def plain(self, value: Any) -> Any:
        return dict(value)

    def in_python(self, argument: str, given: str) -> str:
        column, _, categories = given.partition(":")
        return f'{argument}={{"{column}": {categories.split("<")}}}'.replace("'", '"')


class SpellingsValue(TextValue):
    """(column, spelling, category) triples; the command's option is repeated."""

    several = True
    documented = "mapping or None"

    def default_in_python(self, default: object) -> Any:
        return None

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

    def plain(self, value: Any) -> Any:
        by_column: dict[str, dict[str, str]] = {}
        for column, old, new in value:
            by_column.setdefault(column, {})[old] = new
        return by_column

    def in_python(self, argument: str, given: str) -> str:
        column, _, pairs = given.partition(":")
        listed = ", ".join(
            '"{}": "{}"'.format(*pair.split("=", 1)) for pair in pairs.split(",") if "=" in pair
        )
        return f'{argument}={{"{column}": {{{listed}}}}}'


class WordValue(TextValue):
    """A text that is never missing, such as the name of a method."""

    documented = "str"

    def converted(self, argument: str, given: object) -> Any:
        if not isinstance(given, str):
            raise InputError(f"{argument} must be text, got {given!r}")
        return given


class OptionalWordValue(TextValue):
    """A text; None stands for "", which means none."""

    def default_in_python(self, default: object) -> Any:
        return default or None

    def converted(self, argument: str, given: object) -> Any:
        return super().converted(argument, given) or ""

    def texts(self, value: Any) -> list[str]:
        return [value] if value else []


class PathValue(OptionalWordValue):
    """The path of a file or folder; "" means none."""

    typed = Path

    def parsed(self, option: str, given: object) -> Any:
        return str(given)


class NumberValue(TextValue):
    """A number, or None where ``optional``."""

    typed: Any = float
    noun, kind = "a number", Real

    def __init__(self, *, optional: bool = False) -> None:
        self.optional = optional
        self.documented = f"{self.typed.__name__}{' or None' if optional else ''}"

    def parsed(self, option: str, given: object) -> Any:
        return given

    def converted(self, argument: str, given: object) -> Any:
        if given is None and self.optional:
            return None
        if not isinstance(given, self.kind) or isinstance(given, bool):
            raise InputError(
                f"{argument} must be {self.noun}{' or None' if self.optional else ''}, got {given!r}"
            )
        return self.typed(given)

    def texts(self, value: Any) -> list[str]:
        return [] if value is None else [str(value)]

    def in_python(self, argument: str, given: str) -> str:
        return f"{argument}={given}"


class WholeNumberValue(NumberValue):
    """A whole number, or None where ``optional``."""

    typed = int
    noun, kind = "a whole number", Integral


class SwitchValue(TextValue):
    """On or off."""

    documented = "bool"
    typed = bool

    def parsed(self, option: str, given: object) -> Any:
        return bool(given)

    def converted(self, argument: str, given: object) -> Any:
        return bool(given)

    def in_python(self, argument: str, given: str) -> str:
        return f"{argument}=True" + (f" {given}" if given else "")


class ListedNamesValue(ColumnsValue):
    """Names, one for every time that the command's option is given."""

    several = True

    def parsed(self, option: str, given: str) -> Any:
        return (given,)

    def texts(self, value: Any) -> list[str]:
        return list(value)


class ChosenColumnsValue(ColumnsValue):
    """ "same", "common" or "any", or names of columns."""

    def parsed(self, option: str, given: str) -> Any:
        return given if given in ("same", "common", "any") else super().parsed(option, given)

    def converted(self, argument: str, given: object) -> Any:
        if isinstance(given, str) and given in ("same", "common", "any"):
            return given
        return super().converted(argument, given)

    def texts(self, value: Any) -> list[str]:
        return [value] if isinstance(value, str) else super().texts(value)


class ScaleValue(WordValue):
    """One scale of all columns; in a command also those of single columns: robust,crp=rank."""

    def converted(self, argument: str, given: object) -> Any:
        if isinstance(given, str) and "=" in given:
            raise InputError(f"scale is one scale for all columns. Use --scale '{given}'.")
        return super().converted(argument, given)

    def in_python(self, argument: str, given: str) -> str:
        if "=" not in given:
            return super().in_python(argument, given)
        parts = [part.rpartition("=") for part in given.split(",")]
        common = [f'scale="{scale}", ' for column, _, scale in parts if not column]
        own = ", ".join(f'"{column}": "{scale}"' for column, _, scale in parts if column)
        return f"{''.join(common)}scales={{{own}}}"


class ScalesValue(TextValue):
    """(column, scale) pairs, which a command has in ``--scale``."""

    documented = "mapping or None"

    def default_in_python(self, default: object) -> Any:
        return None

    def converted(self, argument: str, given: object) -> Any:
        given = {} if given is None else given
        if not isinstance(given, Mapping):
            raise InputError(f'{argument} must be a mapping such as {{"income": "log"}}, got {given!r}')
        return tuple((plain_name(name), scale) for name, scale in given.items())

    def texts(self, value: Any) -> list[str]:
        return [f"{name}={scale}" for name, scale in value]

    def plain(self, value: Any) -> Any:
        return dict(value)


class BoundsValue(TextValue):
    """(column, low, high) triples; in a command low:high alone stands for all columns that are named."""

    several = True
    documented = "mapping or None"

    def default_in_python(self, default: object) -> Any:
        return None

    def parsed(self, option: str, given: str) -> Any:
        """Return the triples of a text; the column is "" if none is named.

        >>> BoundsValue().parsed("--bounds", "age=0:110,bmi=10:60"), BoundsValue().parsed("--bounds", "0:1")
        ((('age', 0.0, 110.0), ('bmi', 10.0, 60.0)), (('', 0.0, 1.0),))
        """
        return tuple(self._bound(option, one) for one in given.split(","))

    @staticmethod
    def _bound(option: str, given: str) -> tuple[str, float, float]:
        name, _, span = given.rpartition("=")
        low, _, high = span.partition(":")
        try:
            return name.strip(), float(low), float(high)
        except ValueError:
            raise InputError(f"{option} must have the form column=low:high, got {given!r}") from None

    def converted(self, argument: str, given: object) -> Any:
        try:
            pairs = {} if given is None else given
            assert isinstance(pairs, Mapping)
            return tuple((plain_name(name), float(low), float(high)) for name, (low, high) in pairs.items())
        except (TypeError, ValueError, AttributeError, AssertionError):
            raise InputError(
                f'{argument} must be a mapping such as {{"age": (0, 110)}}, got {given!r}'
            ) from None

    def texts(self, value: Any) -> list[str]:
        return [f"{name}={low:g}:{high:g}" for name, low, high in value]

    def plain(self, value: Any) -> Any:
        return {name: (low, high) for name, low, high in value}

    def in_python(self, argument: str, given: str) -> str:
        if "=" not in given:
            return super().in_python(argument, given)
        bounds = [one.partition("=")[::2] for one in given.split(",")]
        items = ", ".join(f'"{column}": ({span.replace(":", ", ")})' for column, span in bounds)
        return f"{argument}={{{items}}}"
