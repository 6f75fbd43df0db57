"""The sections of docs/results.md as text, so that a part of them can be computed anew.

A section, or a row of a table, that is not computed keeps the numbers of the page, which an earlier run
wrote. The head of the page is counted from the sections as they are printed.
"""

import re
from dataclasses import dataclass, replace

import numpy as np
from reproduction.data_sources import Sources
from reproduction.experiment import Experiment, Presentation, Results, Settings
from reproduction.result_table import LEVEL, Verdicts

from unpooled.app.compare.comparison_files import aligned_table
from unpooled.errors import InputError
from unpooled.typing import FloatArray

Cells = list[list[str]]
KINDS = ("matches", "differs", "inconclusive")


@dataclass(frozen=True)
class Section:
    """One experiment of the page."""

    text: str

    @property
    def name(self) -> str:
        return self.text.removeprefix("## ").split(":")[0]

    @property
    def runs(self) -> str:
        return self._found(r"^(\d+) runs? of each configuration")

    @property
    def seconds(self) -> str:
        return self._found(r"(\d+) CPU seconds\.")

    def _found(self, pattern: str) -> str:
        at = re.search(pattern, self.text, flags=re.M)
        if at is None:
            raise InputError(
                f"docs/results.md, {self.name}: there is no {pattern!r}. Restore the generated page."
            )
        return at[1]

    @property
    def tables(self) -> dict[str, Cells]:
        """The cells of every table, the heading first, by its title."""
        out: dict[str, Cells] = {}
        title = ""
        for line in self.text.splitlines():
            if not line.startswith("|"):
                title = line or title
            elif not line.startswith("| --"):
                out.setdefault(title, []).append([cell.strip() for cell in line.strip("|").split("|")])
        return out

    @property
    def verdicts(self) -> list[tuple[float, str]]:
        """(p, verdict) of every number that is judged; derived numbers are judged elsewhere."""
        out = []
        for head, *lines in self.tables.values():
            at = head.index("p"), head.index("verdict")
            for line in lines:
                p, verdict = (line[i] for i in at)
                if _kind(verdict) in KINDS:
                    out.append((1.0 if verdict == "matches" else float(p), verdict))
        return out


def _kind(verdict: str) -> str:
    """
    >>> _kind("differs, note 1"), _kind("inconclusive: at the limit"), _kind("derived: matches")
    ('differs', 'inconclusive', 'derived')
    """
    return verdict.split(",")[0].split(":")[0]


def sections(page: str) -> dict[str, Section]:
    """Return every section of the page by the name of its experiment.

    >>> list(sections("# Head\\n\\n## a: first\\n\\ntext\\n\\n## b: second\\n"))
    ['a', 'b']
    """
    parts = [Section(f"## {part}") for part in re.split(r"^## ", page, flags=re.M)[1:]]
    return {part.name: part for part in parts}


def counted(verdicts: list[tuple[float, str]]) -> Verdicts:
    """Return the number of verdicts of each kind.

    >>> counted([(1.0, "matches"), (0.01, "differs, open"), (0.5, "inconclusive")])
    Verdicts(matches=1, differs=1, inconclusive=1)
    """
    kinds = [_kind(verdict) for _, verdict in verdicts]
    return Verdicts(*map(kinds.count, KINDS))


def still_differing(verdicts: list[tuple[float, str]]) -> int:
    """Return how many differ at the level over all of them together: Holm's method, on p as printed.

    >>> still_differing([(0.001, "differs, open"), (0.04, "differs, note 1"), (1.0, "matches")])
    1
    """
    judged = sorted(pair for pair in verdicts if _kind(pair[1]) != "inconclusive")
    for i, (p, verdict) in enumerate(judged):
        if verdict == "matches" or p > LEVEL / (len(judged) - i):
            return i
    return len(judged)


# ---------------------------------------------------------------- some rows anew


class _Some(Results):
    """Results of some configurations; those of the others are not known."""

    def __init__(self, found: Results) -> None:
        super().__init__([])
        self._by = found._by

    def values(self, settings: Settings, name: str) -> FloatArray:
        try:
            return super().values(settings, name)
        except InputError:
            return np.array([np.nan])


def only_some(experiment: Experiment, where: tuple[str, ...]) -> Experiment:
    """Return the experiment with some of its configurations; the numbers of the others are nan.

    ``where`` has settings as text, "method=unpooled"; several values of one setting are alternatives, and a
    configuration without a setting is not left out because of it.
    """
    allowed: dict[str, set[str]] = {}
    for setting in where:
        name, _, value = setting.partition("=")
        allowed.setdefault(name, set()).add(value)

    def configurations(sources: Sources, quick: bool) -> list[Settings]:
        return [s for s in experiment.configurations(sources, quick) if _fits(s, allowed)]

    def present(results: Results, sources: Sources, quick: bool) -> Presentation:
        with np.errstate(all="ignore"):
            return experiment.present(_Some(results), sources, quick)

    return replace(experiment, configurations=configurations, present=present)


def _fits(settings: Settings, allowed: dict[str, set[str]]) -> bool:
    """
    >>> _fits({"method": "k-FED", "beta": 1.0}, {"method": {"k-FED"}, "beta": {"1", "10"}, "k_local": {"16"}})
    True
    >>> _fits({"method": "k-FED", "beta": 0.1}, {"method": {"k-FED"}, "beta": {"1", "10"}})
    False
    """
    texts = {name: f"{v:g}" if isinstance(v, float) else str(v) for name, v in settings.items()}
    return all(texts[name] in values for name, values in allowed.items() if name in texts)


def merged(new: Section, old: Section) -> Section:
    """Return ``new``, with the rows and notes of ``old`` where it has none of its own."""
    kept = old.tables
    parts, title, at = [], "", 0
    lines = new.text.splitlines()
    while at < len(lines):
        line = lines[at]
        if not line.startswith("|"):
            title = line or title
            parts.append(_kept_line(line, old))
            at += 1
            continue
        while at < len(lines) and lines[at].startswith("|"):
            at += 1
        parts.append(_merged_table(new.tables[title], kept.get(title, [[]]), f"{new.name}, {title}").rstrip())
    text = "\n".join(parts) + "\n"
    judged = counted(Section(text).verdicts).text
    of_runs = next(line for line in old.text.splitlines() if "CPU seconds." in line).split("CPU seconds.")[0]
    line = f"{of_runs}CPU seconds. {judged[0].upper()}{judged[1:]}."
    return Section(re.sub(r"^.*CPU seconds\. .*$", lambda _: line, text, count=1, flags=re.M))


def _unknown(text: str) -> bool:
    return re.search(r"\bnan\b", text) is not None


def _kept_line(line: str, old: Section) -> str:
    if not line.startswith("Note ") or not _unknown(line):
        return line
    number = line.split(".")[0]
    return next(other for other in old.text.splitlines() if other.startswith(f"{number}."))


def _merged_table(new: Cells, old: Cells, where: str) -> str:
    head, was = new[0], old[0]
    left = head.index("published")
    known = {tuple(line[:left]): dict(zip(was, line, strict=True)) for line in old[1:]}
    out = [head]
    for line in new[1:]:
        if _unknown(" ".join(line)):
            key = tuple(line[:left])
            if key not in known:
                raise InputError(f"{where}: the page has no row {', '.join(key)}. Run this method too.")
            line = [known[key].get(name, "-") for name in head]
        out.append(line)
    return aligned_table(out, left)
