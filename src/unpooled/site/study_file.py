"""The study of signed summary files: a small text file in which the recipient states purpose and columns.

::

    title = "Types of heart disease"
    purpose = "Find groups of patients with similar findings"
    contact = "Ada Example, data@example.org"
    columns = ["age", "chol"]
    expires = 2027-06-30

The sites get it by e-mail beside the recipient's key. Line ends, comments and order do not count: the digest
is that of the values.
"""

import json
import tomllib
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from unpooled.errors import InputError
from unpooled.options.values import plain_name
from unpooled.site.study import is_strange

_TEXTS = ("title", "purpose", "contact")
_KEYS = (*_TEXTS, "columns", "expires")
_MAX_TEXT, _MAX_COLUMNS = 500, 10_000
_EXAMPLE = 'title = "...", purpose = "...", contact = "...", columns = ["age", "bmi"], expires = 2027-06-30'


@dataclass(frozen=True)
class StudyFile:
    """The study that summary files are for: its purpose, who answers for it, its columns and its last day."""

    title: str
    purpose: str
    contact: str
    columns: tuple[str, ...]  # (): all columns of the summary table
    expires: str  # the last day, as 2027-06-30

    @property
    def digest(self) -> str:
        """A digest of the values, whatever their layout in the file."""
        return sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()

    @property
    def expired(self) -> bool:
        return datetime.now(UTC).date() > date.fromisoformat(self.expires)

    @classmethod
    def read(cls, path: Path) -> "StudyFile":
        """Return the study in a text file; InputError names what is wrong in it.

        The file may have the line ends and the mark at its beginning that editors on Windows write.
        """
        try:
            values = tomllib.loads(path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n"))
        except UnicodeDecodeError:
            raise InputError(f"{path}: not a text file in UTF-8. Save it as UTF-8.") from None
        except tomllib.TOMLDecodeError as error:
            raise InputError(f"{path}: not a study: {error}. A study has the lines {_EXAMPLE}.") from None
        try:
            return cls.from_json(values)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None

    @classmethod
    def from_json(cls, values: Any) -> "StudyFile":
        """Return the study of these values; InputError if one is missing, unknown or wrong."""
        if not isinstance(values, dict):
            raise InputError("not a study")
        if unknown := sorted(values.keys() - set(_KEYS)):
            raise InputError(f"a study has no entry {unknown[0]!r}; its entries are {', '.join(_KEYS)}")
        if missing := [key for key in (*_TEXTS, "expires") if not values.get(key)]:
            raise InputError(f"the study lacks {', '.join(missing)}. A study has the lines {_EXAMPLE}.")
        for key in _TEXTS:
            text = values[key]
            if not isinstance(text, str) or not text.strip() or len(text) > _MAX_TEXT or is_strange(text):
                raise InputError(f"{key} must be one line of at most {_MAX_TEXT} characters")
        columns = values.get("columns", [])
        if not isinstance(columns, list | tuple) or not all(_is_name(name) for name in columns):
            raise InputError('columns must be a list of names, such as ["age", "bmi"]')
        names = tuple(map(plain_name, columns))
        if len(names) > _MAX_COLUMNS or len(set(names)) < len(names):
            raise InputError("columns must name each column once")
        title, purpose, contact = (values[key].strip() for key in _TEXTS)
        return cls(title, purpose, contact, names, _day(values["expires"]))


def _is_name(name: object) -> bool:
    return isinstance(name, str) and bool(name.strip()) and len(name) <= _MAX_TEXT and not is_strange(name)


def _day(value: object) -> str:
    try:
        day = value if isinstance(value, date) else date.fromisoformat(str(value))
    except ValueError:
        raise InputError(f"expires must be a day, such as 2027-06-30, got {value!r}") from None
    return day.isoformat()[:10]
