"""A file, by convention data.toml, with the options for reading and preparing data: ``--data-config``.

Its keys and values are those of the arguments of ``unpooled.cluster``; options of the command replace them.
"""

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from unpooled.errors import InputError
from unpooled.options.declaration import Option, OptionGroup
from unpooled.options.preparation import PreparationChoices
from unpooled.options.reading import Reading
from unpooled.options.values import SwitchValue

GROUPS: tuple[type[OptionGroup], ...] = (Reading, PreparationChoices)


def read_data_file(path: Path) -> dict[str, Any]:
    """Return what a command would be called with, by its options; InputError for a wrong file."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not TOML: {error}") from error
    known = dict(_declared())
    unknown = [key for key in content if key not in known]
    if unknown:
        raise InputError(f"{path}: there is no option {unknown[0]}. The file may hold {', '.join(known)}.")
    given: dict[str, Any] = {}
    for key, value in content.items():
        kind, own = known[key].kind, known[key].name or key
        try:
            texts = kind.texts(kind.converted(key, value))
        except InputError as error:
            raise InputError(f"{path}: {error}") from error
        if key == "scales":  # the command has them in --scale
            given["scale"] = ",".join([*([content["scale"]] if "scale" in content else []), *texts])
        elif texts and (key != "scale" or "scales" not in content):
            given[own] = texts if kind.several else texts[0]
    return given


def data_file(*groups: OptionGroup) -> str:
    """Return the text of a file with the options of these groups that differ from their defaults."""
    lines = ["# How unpooled reads and prepares the data: --data-config data.toml"]
    for group in groups:
        defaults = group.defaults()
        for name, declared in group.declared().items():
            if name in dict(_declared()) and (value := getattr(group, name)) != defaults[name]:
                lines.append(f"{name} = {_toml(declared.kind.plain(value))}")
    return "\n".join(lines) + "\n"


def _declared() -> Iterator[tuple[str, Option]]:
    for group in GROUPS:
        for name, declared in group.declared().items():
            if not isinstance(declared.kind, SwitchValue):
                yield name, declared


def _toml(value: Any) -> str:
    """Return a value of TOML.

    >>> _toml({"sex": {"M": "male"}}), _toml(("a", 1.5))
    ('{"sex" = {"M" = "male"}}', '["a", 1.5]')
    """
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_toml(str(key))} = {_toml(one)}" for key, one in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
