"""Declarations of options: what a field of a group of options is in commands, in Python and in messages."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self

from unpooled.options.values import SwitchValue, TextValue

# The panels of --help. `unpooled fit --help` leaves out the last three; --help-all shows them.
HOW, PROTECT, COLUMNS = "Clustering", "Protection", "Columns and preparation"
MORE_HOW, MORE_PROTECT, READING = "Further clustering options", "Further protection options", "Reading files"


@dataclass(frozen=True)
class Option:
    """The declaration of an option: the kind of its value, and what it is for."""

    kind: TextValue
    help: str  # of the command
    doc: str  # of the argument in Python
    panel: str | None = READING
    name: str = ""  # of the command's option, if it is not that of the field: restarts
    python: str = ""  # of the argument, if it is not that of the field: random_state
    of_site: bool = True  # a site of a federation may set it
    of_file: bool = False  # it is about one file: not in a command that names sites in place of files
    of_all: bool = True  # of all commands that take the group; else a command states it itself
    unset: bool = False  # the command's default is "not given", which its help explains
    stated: bool = False  # a command that repeats a run has it even if it is the default


def option(default: Any, kind: TextValue, **declared: Any) -> Any:
    """Return a field that is an option."""
    return field(default=default, metadata={"option": Option(kind, **declared)})


def flag(name: str) -> str:
    """Return the option of a command, e.g. --site-column."""
    return "--" + name.replace("_", "-")


class OptionGroup:
    """Base of groups of options: dataclasses with a field for every option, and perhaps others."""

    @classmethod
    def declared(cls) -> dict[str, Option]:
        """Return the options by the name of their field."""
        return {f.name: f.metadata["option"] for f in fields(cls) if "option" in f.metadata}  # type: ignore[arg-type]

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Return the default of every option."""
        return {f.name: f.default for f in fields(cls) if "option" in f.metadata}  # type: ignore[arg-type]

    @classmethod
    def values_from_command(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of fields that a command was called with; InputError for one without meaning."""
        values: dict[str, Any] = {}
        for name, declared in cls.declared().items():
            own = declared.name or name
            if (texts := given.get(own)) is not None and texts != [] and texts != "":
                listed = texts if isinstance(texts, list | tuple) else [texts]
                parsed = [declared.kind.parsed(flag(own), text) for text in listed]
                values[name] = sum(parsed, ()) if declared.kind.several else parsed[0]
        return values

    @classmethod
    def from_command(cls, given: Mapping[str, Any]) -> Self:
        """Return the options that a command was called with; raise InputError for one that it cannot use."""
        return cls(**cls.values_from_command(given))

    @classmethod
    def values_from_arguments(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of fields by arguments in Python; InputError for one without a meaning."""
        by_argument = {declared.python or name: (name, declared) for name, declared in cls.declared().items()}
        return {
            by_argument[argument][0]: by_argument[argument][1].kind.converted(argument, value)
            for argument, value in given.items()
            if argument in by_argument
        }

    @classmethod
    def from_arguments(cls, given: Mapping[str, Any]) -> Self:
        """Return the options that ``cluster`` was called with; others among the arguments are ignored."""
        return cls(**cls.values_from_arguments(given))

    def words(self, *, of_files: bool = True) -> list[str]:
        """Return the words of a command with these options; ``of_files``: also those of single files."""
        return [word for name in self.declared() for word in self.words_of(name, of_files)]

    def words_of(self, name: str, of_files: bool = True) -> list[str]:
        """Return the words of a command for one option; none if it has its default."""
        declared, value = self.declared()[name], getattr(self, name)
        if (value == self.defaults()[name] and not declared.stated) or (declared.of_file and not of_files):
            return []
        own = flag(declared.name or name)
        if isinstance(declared.kind, SwitchValue):
            return [own]
        return [word for text in declared.kind.texts(value) for word in (own, text)]


def arguments_of(*groups: type[OptionGroup]) -> Iterator[tuple[str, Option, Any]]:
    """Yield the name, the declaration and the default of every argument in Python."""
    for group in groups:
        defaults = group.defaults()
        for name, declared in group.declared().items():
            yield declared.python or name, declared, declared.kind.default_in_python(defaults[name])


def tuples(value: object) -> Any:
    """Return the value of a field from its JSON, which has lists for tuples."""
    return tuple(map(tuples, value)) if isinstance(value, Sequence) and not isinstance(value, str) else value
