"""The first tutorial as a program: its commands, and the output that the page shows for them.

The lines of an ``sh`` block are run one after the other; a ``text`` block right after it is what they print.
The officer's page quotes the risks of the table that the officer's tutorial makes.
``python tests/tutorials.py`` runs them and writes the outputs in, so that none is typed by hand.
"""

import re
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from typer.testing import CliRunner

from pages import ROOT, refresh, with_outputs

TUTORIALS = [ROOT / "docs" / "tutorials" / "first-report.md"]
OFFICER_PAGE, OFFICER_TUTORIAL = ROOT / "docs" / "officer.md", ROOT / "docs" / "tutorials" / "officer.md"
_BLOCK = re.compile(r"^```sh\n(?P<code>.*?)^```$(?:\n+^```text\n(?P<output>.*?)^```$)?", re.M | re.S)
_RISK = re.compile(r"(<!-- risk: (\w+) -->\n).*?(<!-- end -->)", re.S)
_ABOUT = re.compile(r"^# .*?^written: ", re.M | re.S)  # the description of an example


@dataclass(frozen=True)
class Commands:
    """One block of commands."""

    lines: tuple[str, ...]
    output: str | None  # what they print according to the page; None if it shows no output


def commands(page: Path) -> list[Commands]:
    """The blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    return [Commands(tuple(m["code"].splitlines()), m["output"]) for m in _BLOCK.finditer(text)]


def printed(page: Path) -> list[str]:
    """Run a page's commands in the current folder, and give what each block prints."""
    from unpooled.app.cli import app

    outputs = []
    for block in commands(page):
        output = ""
        for line in block.lines:
            program, *words = shlex.split(line)
            assert program == "unpooled", line
            done = CliRunner(env={"COLUMNS": "110"}).invoke(app, words)
            assert done.exit_code == 0, (line, done.stderr, done.exception)
            output += _ABOUT.sub("written: ", done.stdout)
        outputs.append("\n".join(row.rstrip() for row in output.splitlines()) + "\n")
    return outputs


def refreshed(page: Path) -> str:
    """The page with every output replaced by what its commands print now."""
    return with_outputs(page, _BLOCK, printed(page))


def with_risks(text: str, sentences: Sequence[str]) -> str:
    """The officer's page with each risk as the page of the table states it; a risk is its first word."""
    stated = {sentence.split()[0].rstrip(":"): sentence for sentence in reversed(sentences)}
    return _RISK.sub(lambda m: f"{m[1]}> {stated[m[2]]}\n{m[3]}", text)


def example_risks() -> tuple[str, ...]:
    """Make the first table of the officer's tutorial in the current folder; its risks in sentences."""
    from unpooled.app.cli import app
    from unpooled.site.table_notes import risks_in

    for block in commands(OFFICER_TUTORIAL):
        for line in block.lines:
            if line.startswith("awk"):
                subprocess.run(line, shell=True, check=True)
                continue
            program, *words = shlex.split(line)
            assert program == "unpooled", line
            done = CliRunner().invoke(app, words)
            assert done.exit_code == 0, (line, done.stderr, done.exception)
            if words[:2] == ["site", "summarize"]:
                return risks_in(Path(words[2]) / "summary")
    raise AssertionError(f"{OFFICER_TUTORIAL} makes no summary table")


if __name__ == "__main__":
    refresh(TUTORIALS, refreshed)
    refresh([OFFICER_PAGE], lambda page: with_risks(page.read_text(encoding="utf-8"), example_risks()))
