"""Check that nothing can reach a page unescaped, and that every attribute is quoted.

``make lint`` runs it. In templates: no ``safe`` filter, no block without escaping, quotes around the value of
an attribute. In the Python files of the package and of ``reproduction``: no ``Markup`` and no ``__html__``,
except in ``html/svg.py``, which builds charts of escaped values, and no environment without escaping.
"""

import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

from jinja2 import Environment, nodes

ROOT = Path(__file__).parent.parent
CODE = ("src/unpooled", "reproduction")
MARKS_MARKUP = frozenset({"src/unpooled/html/svg.py"})
_UNESCAPED = ("Markup", "__html__", "MarkSafe", "MarkSafeIfAutoescape")
_FILTERS = ("safe", "forceescape", "xmlattr", "tojson", "urlize")  # their results count as markup
_UNQUOTED = re.compile(r"\s[\w-]+=\{\{")


def in_template(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the fault of everything in a template that could render unescaped."""
    tree = Environment(autoescape=True).parse(source)
    for used in tree.find_all(nodes.Filter):
        if used.name in _FILTERS:
            yield used.lineno, f"the filter {used.name} renders markup"
    for block in tree.find_all((nodes.EvalContextModifier, nodes.ScopedEvalContextModifier)):
        yield block.lineno, "a block decides about escaping"
    for match in _UNQUOTED.finditer(source):
        yield source.count("\n", 0, match.start()) + 1, "the value of an attribute is not quoted"


def in_code(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and the fault of every name in a Python file that marks text as markup."""
    with tokenize.open(path) as file:
        words = [token for token in tokenize.generate_tokens(file.readline) if token.type == tokenize.NAME]
    for token in words:
        if token.string in _UNESCAPED:
            yield token.start[0], f"{token.string} marks text as markup; use a template"
    for match in re.finditer(r"autoescape\s*=\s*(?!True)", path.read_text(encoding="utf-8")):
        yield path.read_text(encoding="utf-8").count("\n", 0, match.start()) + 1, "an environment must escape"


def main() -> int:
    """Check all files, and print what is found."""
    found = []
    for folder in CODE:
        for path in sorted((ROOT / folder).rglob("*")):
            name = path.relative_to(ROOT).as_posix()
            if path.suffix == ".html":
                found += [(name, *fault) for fault in in_template(path.read_text(encoding="utf-8"))]
            elif path.suffix == ".py" and name not in MARKS_MARKUP:
                found += [(name, *fault) for fault in in_code(path)]
    for name, line, fault in found:
        print(f"{name}:{line}: {fault}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
