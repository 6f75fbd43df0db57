"""Names that a user gives to columns and clusters, for tables and reports; they change no result."""

import json
import tomllib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from unpooled.errors import InputError

_EXAMPLE = (
    '[columns] with lines such as bmi = "Body mass index", and [clusters] with A = "Younger, no angina"'
)


@dataclass(frozen=True)
class Names:
    """The names of columns, and of clusters by their letter."""

    columns: dict[str, str] = field(default_factory=dict)
    clusters: dict[str, str] = field(default_factory=dict)

    def column(self, name: str) -> str:
        """Return the name of a column, its own if it was given none."""
        return self.columns.get(name, name)

    def cluster(self, letter: str) -> str:
        """Return the name of a cluster, its letter if it was given none."""
        return self.clusters.get(letter, letter)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: Any) -> "Names":
        """Return the names of these values; InputError for anything but two tables of texts."""
        if not isinstance(values, dict) or (unknown := sorted(values.keys() - {"columns", "clusters"})):
            what = "" if not isinstance(values, dict) else f"there is no section {unknown[0]!r}; "
            raise InputError(f"{what}names are in the sections {_EXAMPLE}")
        sections = {}
        for section in ("columns", "clusters"):
            named = values.get(section, {})
            if not isinstance(named, dict):
                raise InputError(f"{section} is a section: {_EXAMPLE}")
            for key, name in named.items():
                if not isinstance(name, str) or not name.strip() or "\n" in name or len(name) > 200:
                    raise InputError(f"the name of {key} must be one line of at most 200 characters")
            sections[section] = {key: name.strip() for key, name in named.items()}
            if len(set(sections[section].values())) < len(named):
                raise InputError(f"two {section} have the same name")
        return cls(**sections)

    @classmethod
    def read(cls, path: Path) -> "Names":
        """Return the names in a TOML file."""
        try:
            values = tomllib.loads(path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n"))
            return cls.from_json(values)
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}") from None
        except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise InputError(
                f"{path}: not a file of names: {error}. It has the sections {_EXAMPLE}"
            ) from None
        except InputError as error:
            raise InputError(f"{path}: {error}") from None


NO_NAMES = Names()


def load(path: Path) -> Names:
    """Return the names that a run's folder keeps."""
    try:
        return Names.from_json(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return NO_NAMES
    except (ValueError, InputError) as error:
        raise InputError(f"{path}: cannot be read ({error})") from None
