"""``python -m website.check``: the built site in a real browser, desktop and telephone, light and dark.

Every page is opened from a server on this machine: no request to another host, no complaint of the browser,
nothing that sticks out, no violation that axe-core calls serious or critical, no link that leads nowhere; and
a search finds something, from the server and from the folder. ``make site`` fetches axe and runs it.
"""

import argparse
import contextlib
import functools
import json
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from website.pages_of_site import ROOT

sys.path.insert(0, str(ROOT / "tests" / "app"))
from browser import Browser, browser

AXE = ROOT / "build" / "axe" / "axe_playwright_python" / "axe.min.js"
SCREENS = ((1280, False), (390, True))  # width, dark; for every page
OTHERS = ((1280, True), (390, False))  # for those that differ most from each other
FEW = ("index.html", "gallery/index.html", "methods.html", "reports/heart.html", "reports/summary-table.html")
RULES = {
    "resultTypes": ["violations"],
    "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
}
HIDDEN = "document.getAnimations().forEach(a => a.finish())"
LINKS = "[...document.querySelectorAll('a[href], link[href]')].map(a => a.href)"
REACHED = """(async address => {
  const [page, place] = address.split("#"), got = await fetch(page);
  if (!got.ok) return got.status + " " + address;
  if (!place || place === "__top" || !got.headers.get("content-type").includes("html")) return "";
  const there = new DOMParser().parseFromString(await got.text(), "text/html");
  return there.getElementById(decodeURIComponent(place)) ? "" : "no such place: " + address;
})"""
FOUND = """(() => { const box = [...document.querySelectorAll("*")].find(node => node.shadowRoot);
  return box ? box.shadowRoot.querySelectorAll("a[role=option]").length : 0; })()"""


@contextlib.contextmanager
def served(site: Path) -> Iterator[str]:
    """The site at an address of this machine."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *words: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()


def faults_of(tab: Browser, address: str, width: int, *, dark: bool) -> list[str]:
    """What is wrong with one page on one screen."""
    tab.requests.clear()
    tab.complaints.clear()
    tab.open(address, width, dark=dark)
    tab.value(HIDDEN)
    host = address.split("/")[2]
    found = [
        f"asks {url}" for url in tab.requests if not url.startswith((f"http://{host}/", "data:", "blob:"))
    ]
    found += [f"complains: {complaint[:300]}" for complaint in tab.complaints]
    if tab.value("document.documentElement.scrollWidth") > width:
        found.append("is wider than the screen")
    return found + violations(tab)


def violations(tab: Browser) -> list[str]:
    """What axe-core calls serious or critical on the page that is shown."""
    tab.value(f"window.axe || (() => {{ {AXE.read_text(encoding='utf-8')} }})(); 0")
    reported = tab.value(f"axe.run({json.dumps(RULES)}).then(r => JSON.stringify(r.violations))")
    return [
        f"axe {rule['impact']} {rule['id']}: {node['html'][:160]} {node.get('failureSummary', '')[:200]}"
        for rule in json.loads(reported)
        if rule["impact"] in ("serious", "critical")
        for node in rule["nodes"]
    ]


def links_of(tab: Browser) -> set[str]:
    """The addresses at the same host that the page shown points to."""
    return {a for a in tab.value(LINKS) if a.startswith(tab.value("location.origin"))}


def dead(tab: Browser, links: Iterable[str]) -> list[str]:
    """Those of the links that the browser cannot follow."""
    return [fault for link in sorted(links) if (fault := tab.value(f"{REACHED}({json.dumps(link)})"))]


def search_finds(tab: Browser, address: str | Path, words: str = "epsilon") -> int:
    """The number of results that a search shows, as somebody types it; an error if there are none."""
    tab.open(address)
    tab.value("document.querySelector('.md-search__button').click()")
    tab.until("document.activeElement.shadowRoot.activeElement.matches('input')")
    tab.type(words)
    return int(tab.until(FOUND))


def check(site: Path, names: Sequence[str], screens: Iterable[tuple[int, bool]]) -> list[str]:
    """All that is wrong with the pages of a built site, links and search included."""
    found, links = [], set()
    with served(site) as root, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for width, dark in screens:
            with browser(Path(profile) / f"{width}{dark}") as tab:
                for name in names if (width, dark) in SCREENS else [name for name in names if name in FEW]:
                    where = f"{name}, {width} wide, {'dark' if dark else 'light'}"
                    faults = faults_of(tab, root + name, width, dark=dark)
                    print(f"{where}: {len(faults) or 'nothing'} wrong", file=sys.stderr, flush=True)
                    found += [f"{where}: {fault}" for fault in faults]
                    links |= links_of(tab)
        with browser(Path(profile) / "links") as tab:
            tab.open(root)
            found += dead(tab, links)
            for address in (root, site / "index.html"):
                search_finds(tab, address)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="website.check", description="Check the built site in a browser.")
    parser.add_argument("--site", type=Path, default=ROOT / "build" / "site")
    parser.add_argument("pages", nargs="*", help="Pages of the site (default: all).")
    options = parser.parse_args()
    site = options.site.resolve()
    names = options.pages or [page.relative_to(site).as_posix() for page in sorted(site.rglob("*.html"))]
    faults = check(site, names, SCREENS + OTHERS)
    print("\n".join(faults) or f"{len(names)} pages: nothing is wrong")
    sys.exit(bool(faults))
