"""The pictures of the gallery: what its code saves, made small and fit for light and dark pages.

docs/gallery/index.md saves its pictures with ``savefig("name.svg")`` and shows them as ``![...](name.svg)``.
``python tests/pages.py`` keeps them beside the page; the tests compare what is written in them.
"""

import contextlib
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

ROOT = Path(__file__).parent.parent
GALLERY = ROOT / "docs" / "gallery"
LARGEST = 100_000  # bytes of a picture

_STYLE = (
    "<style>:root{--ink:#30343b;--grid:#b6bcc6}"
    "@media (prefers-color-scheme:dark){:root{--ink:#dfe3e8;--grid:#5a616b}}"
    "text{font-family:system-ui,'Segoe UI',Roboto,Arial,sans-serif}</style>"
)


@contextlib.contextmanager
def drawing(page: Path) -> Iterator[None]:
    """Where pictures of a page are drawn: without a screen, in the gallery's style."""
    if page.parent != GALLERY:
        yield
        return
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    with pyplot.style.context(str(GALLERY / "gallery.mplstyle")):
        try:
            yield
        finally:
            pyplot.close("all")


def pictures(page: Path) -> list[str]:
    """The pictures that a page shows, by name."""
    return re.findall(r"!\[[^\]]*\]\(([\w-]+\.svg)\)", page.read_text(encoding="utf-8"))


def small(svg: str) -> str:
    """A picture of matplotlib: ink and grid follow the page, fonts are the reader's, few digits."""
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->|<\?xml.*?\?>|<!DOCTYPE.*?>", "", svg, flags=re.S)
    svg = re.sub(r"(font: [^;\"]*?px) [^;\"]*", r"\1 sans-serif", svg)
    svg = re.sub(r"-?\d+\.\d{3,}", lambda m: f"{float(m[0]):.2f}".rstrip("0").rstrip("."), svg)
    svg = svg.replace("#30343b", "var(--ink)").replace("#b6bcc6", "var(--grid)")
    svg = re.sub(r"\n\s*", "\n", svg).strip()
    svg = re.sub(r' (?:width|height)="[\d.]+pt"', "", svg, count=2)
    return re.sub(r"(<svg .*?>)", lambda m: f"{m[1]}{_STYLE}", svg, count=1, flags=re.S) + "\n"


def words(svg: str) -> list[str]:
    """What is written in a picture."""
    return [unescape(text).strip() for text in re.findall(r"<text [^>]*>(.*?)</text>", svg, re.S)]


def keep(page: Path, folder: Path) -> None:
    """Keep the pictures that a run of the page saved in ``folder`` beside the page."""
    if page.parent == GALLERY:
        for name in pictures(page):
            text = small((folder / name).read_text(encoding="utf-8"))
            (GALLERY / name).write_text(text, encoding="utf-8")


def check(page: Path, folder: Path) -> None:
    """The run saved the pictures that the page shows and no others; kept ones say the same and are small."""
    names = pictures(page)
    assert {path.name for path in folder.glob("*.svg")} == set(names), names
    for name in names:
        kept = (GALLERY / name).read_text(encoding="utf-8")
        assert len(kept.encode()) <= LARGEST, name
        assert words(kept) == words(small((folder / name).read_text(encoding="utf-8"))), name
