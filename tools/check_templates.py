"""Check that nothing can reach a page unescaped, and that every attribute is quoted.

``make lint`` runs it. In templates: no ``safe`` filter, no block without escaping, quotes around the value of
an attribute, no values in scripts, styles and event handlers. In the Python files of the package and of
``reproduction``: no ``Markup`` and no ``__html__``, except in ``html/svg.py``, which builds charts of escaped
values, and no environment but that of ``html/rendering.py``, which escapes.
"""

import re
import sys
import tokenize
from collections.abc import Collection, Iterator
from pathlib import Path

from jinja2 import Environment, nodes

ROOT = Path(__file__).parent.parent
CODE = ("src/unpooled", "reproduction")
_UNESCAPED = ("Markup", "__html__", "MarkSafe", "MarkSafeIfAutoescape")
ALLOWED = {"src/unpooled/html/svg.py": _UNESCAPED, "src/unpooled/html/rendering.py": ("jinja2",)}
_FILTERS = ("safe", "forceescape", "xmlattr", "tojson", "urlize")  # their results count as markup
_FAULTS = (
    (re.compile(r"\s[\w-]+=\{\{"), "the value of an attribute is not quoted"),
    (re.compile(r"\son\w+\s*=[^>]*\{\{", re.IGNORECASE), "an event handler has a value"),
    (re.compile(r"<(script|style)\b[^>]*>((?!</\1).)*\{\{", re.IGNORECASE | re.DOTALL), "code has a value"),
)


def in_template(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the fault of everything in a template that could render unescaped."""
    tree = Environment(autoescape=True).parse(source)
    for used in tree.find_all(nodes.Filter):
        applied = used.args if used.name == "map" else []
        for name in (used.name, *(one.value for one in applied if isinstance(one, nodes.Const))):
            if name in _FILTERS:
                yield used.lineno, f"the filter {name} renders markup"
    for block in tree.find_all(nodes.FilterBlock):
        yield block.lineno, "the result of a filter of a block is not escaped"
    for block in tree.find_all((nodes.EvalContextModifier, nodes.ScopedEvalContextModifier)):
        yield block.lineno, "a block decides about escaping"
    for pattern, fault in _FAULTS:
        for match in pattern.finditer(source):
            yield source.count("\n", 0, match.end()) + 1, fault


def in_script(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line of every value in a script or a style sheet, where escaping for HTML does not help."""
    for number, line in enumerate(source.splitlines(), start=1):
        if "{{" in line or "{%" in line:
            yield number, "a script or a style sheet has a value"


def in_code(path: Path, allowed: Collection[str] = ()) -> Iterator[tuple[int, str]]:
    """Yield the line and the fault of every name in a Python file that marks text as markup."""
    with tokenize.open(path) as file:
        words = [token for token in tokenize.generate_tokens(file.readline) if token.type == tokenize.NAME]
    for token in words:
        if token.string in _UNESCAPED and token.string not in allowed:
            yield token.start[0], f"{token.string} marks text as markup; use a template"
        if token.string == "jinja2" and token.string not in allowed:
            yield token.start[0], "use the environment of html/rendering.py, which escapes"
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
            elif path.suffix in (".js", ".css") and path.parent.name == "templates":
                found += [(name, *fault) for fault in in_script(path.read_text(encoding="utf-8"))]
            elif path.suffix == ".py":
                found += [(name, *fault) for fault in in_code(path, ALLOWED.get(name, ()))]
    for name, line, fault in found:
        print(f"{name}:{line}: {fault}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
