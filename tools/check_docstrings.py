"""Check the docstrings of the public names: numpydoc sections, and every parameter with its type.

The type is in the docstring or in the signature.

``make lint`` runs it. The public names are those of the reference that ``website/reference.py`` makes.
"""

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from website.reference import public_names

_SECTION = re.compile(r"^(\w+)\n-{3,}\n(.*?)(?=^\w+\n-{3,}$|\Z)", re.M | re.S)


def faults(thing: Any) -> Iterator[str]:
    """Yield what the docstring of a class or function lacks."""
    documentation = inspect.getdoc(thing) or ""
    sections = dict(_SECTION.findall(documentation))
    entries = re.findall(r"^(\S.*)$", sections.get("Parameters", ""), re.M)
    documented = {
        name.strip(" *"): kind for one in entries for names, _, kind in [one.partition(" : ")]
        for name in names.split(",")
    }  # fmt: skip
    parameters = inspect.signature(thing).parameters
    typed = {name for name, one in parameters.items() if one.annotation is not inspect.Parameter.empty}
    yield from (f"parameter {name} is not documented" for name in parameters if name not in documented)
    yield from (
        f"there is no parameter {name}" for name in documented if name not in parameters and name != "y"
    )
    yield from (
        f"parameter {name} has no type"
        for name in parameters
        if name not in typed and not documented.get(name)
    )
    wanted = ["Examples", *(["Returns"] if inspect.isfunction(thing) else [])]
    yield from (f"the section {name} is missing" for name in wanted if name not in sections)


def main() -> int:
    """Check all public names, and print what is found."""
    found = [f"{name}: {fault}" for name, thing in public_names().items() for fault in faults(thing)]
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
