"""Walks: how many files of the package a call passes through. ``python -m benchmarks.walks`` prints them.

Counted are files in which a function is called while the walk runs, imports aside: what a reader who follows
the call has to open.
"""

import contextlib
import io
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import unpooled

HOME = str(Path(unpooled.__file__).parent)
MOST = {"fit(X, sites=)": 14, "unpooled fit --report": 32, "one secure exchange": 22}


@contextlib.contextmanager
def walked() -> Iterator[dict[str, int]]:
    """Files of the package in which functions are called, with how many calls."""
    found: dict[str, int] = {}

    def seen(frame: FrameType, event: str, arg: Any) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(HOME) and frame.f_code.co_name != "<module>":
            place = name.removeprefix(HOME + "/")
            found[place] = found.get(place, 0) + 1

    sys.setprofile(seen)
    try:
        yield found
    finally:
        sys.setprofile(None)


def rows() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {name: rng.normal(size=(60, 2)) + 6 * rng.integers(0, 3, (60, 1)) for name in "abc"}


def estimator() -> dict[str, int]:
    X, sites = np.concatenate(list(rows().values())), np.repeat(list("abc"), 60)
    model = unpooled.FederatedKMeans(3, random_state=0)
    with walked() as found:
        model.fit(X, sites=sites)
    return found


def command() -> dict[str, int]:
    from unpooled.app.cli import app

    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        for name, X in rows().items():
            np.savetxt(home / f"{name}.csv", X, delimiter=",", header="x,y", comments="")
        files = [str(home / f"{name}.csv") for name in "abc"]
        words = ["fit", *files, "-k", "3", "--report", str(home / "report.html")]
        with contextlib.redirect_stdout(io.StringIO()), walked() as found:
            app(words, standalone_mode=False)
    return found


def secure_exchange() -> dict[str, int]:
    """One total over sites with a policy and a log, by secure sums; an engine's part is done here."""
    from unpooled.core.exchange import conduct
    from unpooled.core.protocol import total
    from unpooled.privacy.secure_sum import SecureSums
    from unpooled.questions.clusters import AskClusterSums
    from unpooled.runtimes.remote import RemoteFederation
    from unpooled.site.open_site import open_site
    from unpooled.site.policy import parse

    class Wire:
        def __init__(self, sites: dict[str, Any]) -> None:
            self._sites, self.sites = sites, tuple(sites)

        def carry(self, posts: Any) -> dict[str, bytes]:
            return {site: self._sites[site].respond(data) for site, data in posts.items()}

    with tempfile.TemporaryDirectory() as folder:
        sites = {
            name: open_site(name, X, parse("version = 2\n[protect]\nauto = true"), Path(folder) / name)
            for name, X in rows().items()
        }
        federation = RemoteFederation(Wire(sites), secure=SecureSums())
        centers = np.array([[[0.0, 0.0], [6.0, 6.0]]])
        conduct(total(("a", "b", "c"), AskClusterSums(centers)), federation, run="first")
        with walked() as found:
            conduct(total(("a", "b", "c"), AskClusterSums(centers + 1)), federation, run="first", number=1)
        for site in sites.values():
            site.close()
    return found


WALKS: dict[str, Callable[[], dict[str, int]]] = {
    "fit(X, sites=)": estimator,
    "unpooled fit --report": command,
    "one secure exchange": secure_exchange,
}


def main() -> None:
    for name, walk in WALKS.items():
        walk()  # what is worked out once is not part of the walk
        found = walk()
        print(f"{name}: {len(found)} files (at most {MOST[name]}), {sum(found.values())} calls")
        for place in sorted(found):
            print(f"  {place}")


if __name__ == "__main__":
    main()
