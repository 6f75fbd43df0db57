"""``python -m website``: the documentation site, into build/site. Any warning or dead link is an error.

The pages are the Markdown of the tree (pages_of_site.py), a reference from docstrings (reference.py) and from
the help of the commands (commands.py), and pages that the package itself makes of the data that it ships: the
report and the summary table of the heart example.
"""

import argparse
import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from unittest import mock
from urllib.parse import urlsplit

from unpooled.app.cli import app
from website.commands import write_commands
from website.dead_links import dead_links
from website.pages_of_site import ROOT, lay_out, navigation
from website.reference import write_reference

HERE = Path(__file__).parent
SHIM = "https://unpkg.com/iframe-worker/shim"  # what the generator would have every page load; ours is local
CODES = ("--exclude", "num", "--na", "chol=0", "--categorical", "cp,restecg,slope,thal")
COMMANDS = (
    ("example", "heart"),
    ("fit", "heart_disease.csv", "--site-column", "site", *CODES, "-k", "3", "--report", "heart.html"),
    (
        "site",
        "summarize",
        "heart",
        "--no-sensitive-columns",
        "--data",
        "heart_disease.csv",
        *CODES,
        "--one-row-per-person",
    ),
    ("site", "review", "heart", "--html", "summary-table.html"),
)
SETTINGS = """
[project]
site_name = "unpooled"
site_description = "Cluster data that cannot be pooled: federated k-means that equals pooling"
site_url = {url}
docs_dir = "docs"
site_dir = "site"
use_directory_urls = false
extra_css = ["assets/site.css"]
extra_javascript = ["assets/keys.js"]
nav = {nav}

[project.theme]
font = false
language = "en"
features = [
  "content.code.copy", "navigation.sections", "navigation.top", "search.highlight",
  "toc.follow",
]

[[project.theme.palette]]
media = "(prefers-color-scheme: light)"
scheme = "default"
toggle = {{ icon = "lucide/sun", name = "Switch to dark mode" }}

[[project.theme.palette]]
media = "(prefers-color-scheme: dark)"
scheme = "slate"
toggle = {{ icon = "lucide/moon", name = "Switch to light mode" }}

[project.plugins.offline]
enabled = true

[project.markdown_extensions]
admonition = {{}}
attr_list = {{}}
md_in_html = {{}}
tables = {{}}
toc = {{ permalink = true, permalink_title = "Link to this place" }}
"pymdownx.highlight" = {{ anchor_linenums = false }}
"pymdownx.superfences" = {{}}
"""


def build(site: Path, url: str = "") -> list[Path]:
    """Build the site into a folder of its own; its pages. ``url`` is where it will be, if that is known."""
    source = site.parent / "site-source"
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir(parents=True)
    docs = source / "docs"
    lay_out(docs)
    write_reference(docs / "reference")
    write_commands(docs / "reference")
    shutil.copytree(HERE / "assets", docs / "assets", dirs_exist_ok=True)
    write_reports(docs / "reports")
    settings = SETTINGS.format(nav=_toml(navigation(docs)), url=json.dumps(url))
    (source / "zensical.toml").write_text(settings, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict", "--clean"],
        cwd=source,
        env={**os.environ, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
    )
    output = done.stdout + done.stderr
    if done.returncode or "arning" in output:
        raise SystemExit(f"The site was not built without a warning:\n{output}")
    shutil.rmtree(site, ignore_errors=True)
    shutil.move(source / "site", site)
    pages = sorted(site.rglob("*.html"))
    for page in pages:
        _finish(page, site)
    dead = dead_links(site, urlsplit(url).path.rstrip("/") + "/")
    if dead:
        raise SystemExit("dead links:\n" + "\n".join(dead))
    return pages


def write_reports(folder: Path) -> None:
    """The heart example, made by the commands themselves: its report, and the summary table of one site."""
    folder.mkdir()
    work = folder.parent.parent / "heart"
    work.mkdir()
    register = {
        "UNPOOLED_REGISTER": str(work / "register")
    }  # a site of this example, and of nobody's machine
    with (
        contextlib.chdir(work),
        contextlib.redirect_stdout(io.StringIO()),
        mock.patch.dict(os.environ, register),
    ):
        for words in COMMANDS:
            if code := app(list(words), prog_name="unpooled", standalone_mode=False):
                raise SystemExit(f"unpooled {' '.join(words)} ended with exit code {code}")
    for name in ("heart.html", "summary-table.html"):
        shutil.copyfile(work / name, folder / name)


def _finish(page: Path, site: Path) -> None:
    """Nothing is loaded from another host."""
    text = page.read_text(encoding="utf-8")
    up = "../" * (len(page.relative_to(site).parts) - 1) or "./"
    text = text.replace(SHIM, f"{up}assets/worker.js")  # search from a folder needs it
    page.write_text(text, encoding="utf-8")


def _toml(nav: list[dict[str, list[str]]]) -> str:
    """The navigation as TOML."""
    return (
        "["
        + ", ".join(f"{{{json.dumps(k)} = {json.dumps(v)}}}" for part in nav for k, v in part.items())
        + "]"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="website", description="Build the documentation site.")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "site")
    parser.add_argument("--url", default="", help="Address of the site, for the links of its error page.")
    options = parser.parse_args()
    made = build(options.out.resolve(), options.url)
    print(f"{len(made)} pages, no warning, no dead link")
