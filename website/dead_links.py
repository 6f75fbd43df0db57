"""Links of a built site that lead nowhere: to a file that is not there, or to a place that its page lacks."""

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class _Links(HTMLParser):
    """What a page points to, and the places in it that others may point to."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.places: set[str] = {"", "__top"}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value is not None:
                self.targets.append(value)
            elif name == "id" or (name == "name" and tag == "a"):
                self.places.add(value or "")


def dead_links(site: Path, root: str = "/") -> list[str]:
    """One line for every link of the site's pages that leads nowhere; ``root`` is its path at its host."""
    read: dict[Path, _Links] = {}
    for page in sorted(site.rglob("*.html")):
        read[page.resolve()] = links = _Links()
        links.feed(page.read_text(encoding="utf-8"))
    found = []
    for page, links in read.items():
        for target in sorted(set(links.targets)):
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            path = unquote(parts.path)
            start = site if path.startswith(root) else page.parent
            goal = (start / path.removeprefix(root)).resolve() if path else page
            if goal.is_dir():
                goal /= "index.html"
            if not goal.is_file():
                found.append(f"{page.relative_to(site.resolve())}: {target}")
            elif goal in read and unquote(parts.fragment) not in read[goal].places:
                found.append(f"{page.relative_to(site.resolve())}: {target} (no such place)")
    return found
