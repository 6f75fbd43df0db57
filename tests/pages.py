"""The Markdown pages as programs: their Python blocks, and the output that each page shows for them.

A ``python`` block is run; a ``text`` block right after it is what it prints. ``python tests/pages.py`` runs
all pages, or those that are named, and writes the outputs into them, so that no number in a page is typed by
hand. Pictures that a page of the gallery saves are kept beside it (figures.py).
"""

import contextlib
import io
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import figures
from unpooled.algorithms import METHODS
from unpooled.algorithms.dwf import WEIGHTINGS
from unpooled.protocol import codec

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```$(?:\n+^```text\n(?P<output>.*?)^```$)?", re.M | re.S)

_METHODS = re.compile(r"(<!-- methods: make docs -->\n).*?(<!-- end -->)", re.S)
_THREATS = re.compile(r"(<!-- threats: make docs -->\n).*?(<!-- end -->)", re.S)


@dataclass(frozen=True)
class Block:
    """One Python block of a page."""

    code: str
    output: str | None  # what it prints according to the page; None if the page shows no output
    line: int


def blocks(page: Path) -> list[Block]:
    """The Python blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(m["code"], m["output"], text.count("\n", 0, m.start("code"))) for m in _BLOCK.finditer(text)
    ]


def printed(page: Path) -> list[str]:
    """Run a page's blocks in one namespace, in the current folder, and give what each of them prints."""
    namespace: dict[str, Any] = {"__name__": page.stem}
    outputs = []
    with _known_here() as modules, figures.drawing(page):
        for block in blocks(page):
            out = io.StringIO()
            code = compile("\n" * block.line + block.code, str(page), "exec")
            named = re.match(r"# module: (\w+)\n", block.code)  # a block that stands for a file of its own
            with contextlib.redirect_stdout(out):
                if named:
                    module = sys.modules[named[1]] = ModuleType(named[1])
                    modules.append(named[1])
                    exec(code, module.__dict__)
                    namespace.update({k: v for k, v in vars(module).items() if not k.startswith("__")})
                else:
                    exec(code, namespace)
            outputs.append(out.getvalue())
    return outputs


@contextlib.contextmanager
def _known_here() -> Iterator[list[str]]:
    """What a page defines is known on that page only: modules, methods, weightings, messages."""
    modules: list[str] = []  # those that stand on the page
    messages = codec.registered()
    tables: list[dict[str, Any]] = [METHODS, WEIGHTINGS]
    before = [dict(table) for table in tables]
    try:
        yield modules
    finally:
        for name in modules:
            del sys.modules[name]
        for table, kept in zip(tables, before, strict=True):
            table.clear()
            table.update(kept)
        learnt = {k: v for k, v in codec.registered().items() if v.__module__.startswith("unpooled.")}
        codec._register.clear()
        codec._register.update(messages | learnt)  # modules of the package that the page was first to import
        codec._wire_names.clear()


def refreshed(page: Path) -> str:
    """The page with every output replaced by what its block prints now, and with the tables that are made."""
    return with_threats(with_methods(with_outputs(page, _BLOCK, printed(page))))


def with_methods(text: str) -> str:
    """A page with the table of methods, from what each declares, where the page has room for it."""
    from unpooled.algorithms.registry import list_methods

    rows = ["| use it when | method | the coordinator needs |", "|---|---|---|"]
    for method in list_methods():
        if method.__module__.startswith("unpooled."):
            page = f"methods/{method.__module__.rpartition('.')[2]}.md"
            if not (ROOT / "docs" / page).exists():
                page = f"methods/published.md#{method.method}"
            rows.append(f"| {method.advice} | [`{method.method}`]({page}) | {method.visibility} |")
    table = "\n".join(rows)
    return _METHODS.sub(lambda m: f"{m[1]}{table}\n{m[2]}", text)


def with_threats(text: str) -> str:
    """A page with the table of threats to a site, from those of the DPIA report, where it has room for it."""
    from unpooled.app.pages.dpia.threats import ALL, THREATS

    rows = ["| mode of the site | threat | measure | what remains | test |", "|---|---|---|---|---|"]
    for threat in THREATS:
        modes = "all" if threat.modes == ALL else ", ".join(f"`{mode}`" for mode in threat.modes)
        rows.append(f"| {modes} | {threat.threat} | {threat.measure} | {threat.remains} | `{threat.test}` |")
    table = "\n".join(rows)
    return _THREATS.sub(lambda m: f"{m[1]}{table}\n{m[2]}", text)


def with_outputs(page: Path, block: re.Pattern[str], outputs: list[str]) -> str:
    """The page with the ``output`` of every match of ``block`` replaced, where it shows one."""
    left = iter(outputs)

    def replaced(match: re.Match[str]) -> str:
        output, whole = next(left), match[0]
        if match["output"] is None:
            return whole
        start = match.start("output") - match.start()
        return whole[:start] + output + whole[start + len(match["output"]) :]

    return block.sub(replaced, page.read_text(encoding="utf-8"))


def refresh(pages: list[Path], refreshed: Callable[[Path], str]) -> None:
    """Write the pages anew, each made in an empty folder; print which of them changed."""
    for page in pages:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            os.environ["UNPOOLED_REGISTER"] = f"{folder}/register"  # not that of this account
            text = refreshed(page)
            os.chdir(ROOT)
            figures.keep(page, Path(folder))
        if text != page.read_text(encoding="utf-8"):
            page.write_text(text, encoding="utf-8")
            print(f"{page.relative_to(ROOT)}: outputs refreshed", file=sys.stderr)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))  # for the package ``reproduction``, as in the tests
    refresh([Path(name).resolve() for name in sys.argv[1:]] or PAGES, refreshed)
