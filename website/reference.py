"""Pages of reference for the public names: signatures, docstrings and public members, from the modules."""

import dataclasses
import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import unpooled

# the public names by page: the modules from which they are imported, and the names
GROUPS: dict[str, tuple[str, dict[str, str]]] = {
    "tables": (
        "Files and tables",
        {"unpooled": "cluster read_summary", "unpooled.app.cluster": "Result", "unpooled.data": "Database"},
    ),
    "estimators": ("Estimators", {"unpooled": "FederatedKMeans FederatedFuzzyCMeans"}),
    "methods": (
        "Methods",
        {
            "unpooled.algorithms": "Method Lloyd Restarts KFed FKM DWF EWF MiniBatch Fuzzy Robust Private "
            "Dual citation"
        },
    ),
    "federations": (
        "Sites and federations",
        {
            "unpooled.site.open_site": "open_site",
            "unpooled.site": "Site",
            "unpooled.federation": "Simulation LocalFederation",
            "unpooled.protocol": "run Run",
        },
    ),
    "protection": ("Protection", {"unpooled.privacy": "SummarySettings Gaussian SecureSums"}),
    "optimality": ("How far from the best", {"unpooled": "exact_kmeans certify"}),
}
_NOISE = re.compile(r"numpy\.ndarray\[[^\]]*\[[^\]]*\], [^\]]*\[[^\]]*\]\]|<function .*?>|<factory>")
_MODULES = re.compile(r"\b(?:unpooled|collections|pathlib|typing|numpy)(?:\.[a-z_]+)*\.(?=[A-Z])")
_SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}$", re.M)
_LINES = 96


def public_names() -> dict[str, Any]:
    """Return what every public name means, by the name with its module."""
    return {
        f"{module}.{name}": thing for _, names in GROUPS.values() for module, name, thing in _imported(names)
    }


def _imported(names: dict[str, str]) -> list[tuple[str, str, Any]]:
    """Return modules, names and what they mean."""
    return [
        (module, name, getattr(import_module(module), name))
        for module, listed in names.items()
        for name in listed.split()
    ]


def write_reference(folder: Path) -> None:
    """Write a page for every group of names, and one that lists all."""
    folder.mkdir()
    for name in {*unpooled.__all__} - {"__version__"}:
        if f"unpooled.{name}" not in public_names() and not inspect.ismodule(getattr(unpooled, name)):
            raise SystemExit(f"a public name without a page of reference: {name}")
    rows = []
    for file, (title, names) in GROUPS.items():
        text = [f"# {title}", "Made from the docstrings of the package."]
        for module, name, thing in _imported(names):
            text.append(described(name, thing, f"from {module} import {name}"))
            first = (inspect.getdoc(thing) or "").split("\n\n")[0].replace("\n", " ")
            rows.append(f"| [`{module}.{name}`]({file}.md#{name.lower()}) | {plain(first)} |")
        (folder / f"{file}.md").write_text("\n\n".join(text) + "\n", encoding="utf-8")
    intro = (
        f"# Reference\n\nThe public names of `unpooled` {unpooled.__version__}; other modules may change.\n\n"
    )
    table = "| name | what it is |\n|---|---|\n" + "\n".join(rows)
    (folder / "index.md").write_text(f"{intro}{table}\n", encoding="utf-8")


def described(name: str, thing: Any, imported: str) -> str:
    """One name: how it is called, what its docstring says, and its public members."""
    parts = [
        f"## {name} {{ #{name.lower()} }}",
        f"`{imported}`",
        called(name, thing),
        markdown(inspect.getdoc(thing) or ""),
    ]
    if inspect.isclass(thing):
        for member, of in members(thing):
            full = f"{name}.{member}"
            head = f"### {full} {{ #{full.lower()} }}"
            doc = markdown(inspect.getdoc(of) or "")
            parts += [head, doc] if isinstance(of, property) else [head, called(full, of), doc]
    return "\n\n".join(part for part in parts if part)


def members(thing: type) -> list[tuple[str, Any]]:
    """What a class has for others: methods and properties with a docstring, inherited ones of ours too."""
    fields = {field.name for field in dataclasses.fields(thing)} if dataclasses.is_dataclass(thing) else set()
    found = []
    ours = [base for base in reversed(thing.__mro__) if base.__module__.startswith("unpooled.")]
    for name, raw in {name: raw for base in ours for name, raw in vars(base).items()}.items():
        of = raw.__func__ if isinstance(raw, (classmethod, staticmethod)) else raw
        public = not name.startswith("_") and name not in fields
        if public and (inspect.isfunction(of) or isinstance(of, property)) and of.__doc__:
            found.append((name, raw.__get__(None, thing) if isinstance(raw, classmethod) else of))
    return found


def called(name: str, thing: Any) -> str:
    """A signature in a block of code, one argument a line if it is long."""
    signature = inspect.signature(thing)
    kept = [p for p in signature.parameters.values() if p.name != "self"]
    words = _short(str(signature.replace(parameters=kept)))
    if len(name + words) > _LINES and kept:
        lines, star = [], False
        for p in kept:
            if p.kind is p.KEYWORD_ONLY and not star:
                lines.append("*")
                star = True
            lines.append(_short(str(p)))
        end = words[words.rindex(")") :]
        words = "(\n" + "".join(f"    {line},\n" for line in lines) + end
    return f"```py\n{name}{words.removesuffix(' -> None')}\n```"


def _short(text: str) -> str:
    return _MODULES.sub("", _NOISE.sub(lambda m: "ndarray" if m[0].startswith("numpy") else "...", text))


def markdown(doc: str) -> str:
    """A docstring as Markdown: sections as bold lines, parameters as lists, examples as code."""
    blocks, out, in_section = re.split(r"\n{2,}", _SECTION.sub(r"**\1**\n", doc)), [], False
    for block in blocks:
        if block.lstrip().startswith(">>>"):
            out.append(f"```pycon\n{block}\n```")
            continue
        for piece in re.split(r"(?<=\*\*)\n", block):
            if re.fullmatch(r"\*\*[\w ]+\*\*", piece.strip()):
                in_section = True
                out.append(piece.strip())
            elif in_section:
                out.append(_entries(piece))
            else:
                out.append(plain(piece))
    return "\n\n".join(out)


def _entries(text: str) -> str:
    """``name : type`` with indented lines below it, as a list."""
    items: list[str] = []
    for line in text.splitlines():
        if line and not line[0].isspace():
            head, _, kind = line.partition(" : ")
            items.append(f"- **{plain(head)}**" + (f" ({plain(kind)})" if kind else ""))
        elif items:
            items[-1] += (" " if items[-1].count("\n") else ": ") + plain(line.strip()) + "\n"
    return "\n".join(" ".join(item.split("\n")) for item in items)


def plain(text: str) -> str:
    """Double backticks are code; what Markdown or HTML would read as markup is kept as it is."""
    parts = re.split(r"(``.*?``|`[^`]+`)", text)
    return "".join(
        f"`{part.strip('`')}`" if part.startswith("`") else re.sub(r"([*_<>|\[\]])", r"\\\1", part)
        for part in parts
    )
