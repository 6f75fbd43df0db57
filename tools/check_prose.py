"""Check the mechanical part of the writing style, and that no banned word is left in a name.

``make lint`` runs it; ``python tools/check_prose.py PATH...`` checks single files or folders.

- Prose: Markdown outside of code, the texts of notebooks, the templates of pages, and the string literals of
  ``src/``, docstrings included.
- Names: identifiers and module names in Python files, split at underscores and capitals.
"""

import ast
import io
import json
import keyword
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent

_START = r"(?:^|(?<=[.!?:;)] )|(?<=[*|>#-] ))"  # of a sentence, a heading, a list item or a cell of a table
PROSE = (
    (
        re.compile(rf"{_START}(?:Who|Whoever)\b(?![^.!?]*\?)", re.M),
        "name the actor; no sentence starts with Who",
    ),
    (re.compile(r"(?<!\b[Tt]here\s)\bis\s+no\b(?!\s+longer\b)"), 'write "is not a" (or "there is no")'),
    (re.compile(r"\b(?:he|his|him)\b", re.I), 'write "they"'),
    (re.compile(r"\bshall\b", re.I), 'write "must"'),
    (re.compile(r"\balso\s+(?:if|while)\b", re.I), 'write "even if" or "even while"'),
    (re.compile(r"(?<=[ (])\.\d"), "write the zero before the decimal point: 0.90"),
    (re.compile(r"(?<=\d) %(?!\()"), "write 34%, without a space"),
)

BANNED = {
    "desk": "review page or monitor",
    "desks": "review pages or monitors",
    "dossier": "dpia",
    "hole": "missing",
    "holes": "missing",
    "lean": "the noun for what it is",
    "purse": "budget",
    "said": "the noun for the value",
    "tied": "the noun for what it is",
    "told": "the noun for the value",
    "trusted": "raw",
    "twin": "collinear",
    "twins": "collinear",
    "wish": "options",
    "wishes": "options",
}
# "copy" alone is numpy's and shutil's word, before its object a verb. As a noun it named the summary table.
COPY = "summary_table; as a verb it stands before its object"
OBJECTS = frozenset({"array", "arrays", "file", "files", "folder", "row", "rows", "tree"})

# What stays, with the reason. Names: anywhere. Prose: in the file of that path, in lines that hold that text.
ALLOWED_NAMES = {"zero_copy_only": "a parameter of pyarrow"}
ALLOWED_PROSE = {("src/unpooled/app/compare/inertia_bound.py", "He"): "an author of a paper"}

_CODE = re.compile(r"^(```|~~~).*?^\1[^\n]*$|<!--.*?-->|(`+)(?!`).*?(?<!`)\2(?!`)", re.M | re.S)
_TAGS = re.compile(r"\{%.*?%\}|<[^>]*>", re.S)
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


class Finding(NamedTuple):
    """One place where the style is not kept."""

    path: str
    line: int
    text: str
    advice: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text!r}: {self.advice}"


def prose_findings(path: str, text: str, line: int = 1) -> Iterator[Finding]:
    """Yield what the rules of prose find in a text that begins at ``line`` of a file."""
    lines = text.split("\n")
    for rule, advice in PROSE:
        for match in rule.finditer(text):
            number = text.count("\n", 0, match.start())
            if not any(path == where and words in lines[number] for where, words in ALLOWED_PROSE):
                yield Finding(path, line + number, match[0].strip() or match[0], advice)


def markdown_prose(text: str) -> str:
    """Return a Markdown text with code and comments blanked; lines keep their numbers."""
    return _CODE.sub(lambda m: re.sub(r"[^\n]", "x", m[0]), text)


def template_prose(text: str) -> str:
    """Return the text of a template, with its values as the number 0; lines keep their numbers."""
    text = re.sub(r"\{\{.*?\}\}", "0", text)
    return _TAGS.sub(lambda m: re.sub(r"[^\n]", "", m[0]), text)


def literals(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of every string literal; a field of an f-string counts as the number 0."""
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    inner = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    formats = {id(node.format_spec) for node in nodes if isinstance(node, ast.FormattedValue)}
    for node in nodes:
        if isinstance(node, ast.JoinedStr) and id(node) not in formats:
            yield node.lineno, "".join(p.value if isinstance(p, ast.Constant) else "0" for p in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
            yield node.lineno, node.value


def notebook_texts(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of every cell of a notebook that is not code."""
    for cell in json.loads(source)["cells"]:
        if cell["cell_type"] == "markdown" and cell["source"]:
            first = json.dumps(cell["source"][0], ensure_ascii=False)
            yield source[: source.find(first)].count("\n") + 1, "".join(cell["source"])


def _without_doctests(text: str) -> str:
    return re.sub(r"^\s*(?:>>>|\.\.\.) .*$", "", text, flags=re.M)


def names(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of every identifier."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME and not keyword.iskeyword(token.string):
            yield token.start[0], token.string


def name_advice(name: str) -> str | None:
    """Return what to write instead of a name with a banned word in it; None if there is none."""
    if name in ALLOWED_NAMES:
        return None
    words = [word.lower() for word in _WORDS.findall(name)]
    for word in words:
        if word in BANNED:
            return f"{word}: use {BANNED[word]}"
    after = [words[i + 1 : i + 2] for i, word in enumerate(words) if word == "copy" and len(words) > 1]
    if "copies" in words or any(not OBJECTS.intersection(following) for following in after):
        return f"copy: use {COPY}"
    return None


def name_findings(path: str, source: str) -> Iterator[Finding]:
    """Yield the banned words in the names of a Python file, each name once, and in the file's own name."""
    advice = name_advice(Path(path).stem)
    if advice:
        yield Finding(path, 1, Path(path).stem, advice)
    seen: set[str] = set()
    for line, name in names(source):
        advice = name_advice(name)
        if advice and name not in seen:
            seen.add(name)
            yield Finding(path, line, name, advice)


def check(path: Path, root: Path = ROOT) -> list[Finding]:
    """Return what is found in one file."""
    name = path.relative_to(root).as_posix()
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return list(prose_findings(name, markdown_prose(text)))
    if path.suffix == ".ipynb":
        cells = notebook_texts(text)
        return [one for line, cell in cells for one in prose_findings(name, markdown_prose(cell), line)]
    if path.suffix == ".html":
        return list(prose_findings(name, template_prose(text)))
    found = list(name_findings(name, text))
    if name.startswith("src/"):
        for line, literal in literals(text):
            found += prose_findings(name, _without_doctests(literal), line)
    return sorted(found, key=lambda one: one.line)


def tracked(root: Path = ROOT) -> list[Path]:
    """Return the pages, notebooks, templates and Python files of the working tree, ignored ones excepted."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard",
         "*.md", "*.py", "*.ipynb", "*.html"],
        cwd=root, capture_output=True, check=True, text=True,
    ).stdout  # fmt: skip
    return [root / name for name in sorted(set(listed.split("\0"))) if name and (root / name).is_file()]


def main(arguments: list[str]) -> int:
    """Check the given files and folders, or all tracked ones; print what is found."""
    within = [Path(argument).resolve() for argument in arguments] or [ROOT]
    files = [path for path in tracked() if any(path.is_relative_to(place) for place in within)]
    found = [finding for path in files for finding in check(path)]
    for finding in found:
        print(finding)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
