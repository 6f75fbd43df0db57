"""Documents that a page opens: summary table, log and DPIA report of a site, and the reports of runs.

They are the pages of ``unpooled site review --html``, ``site log --html``, ``site dpia`` and
``federation run``. Nothing is written. The browser isolates them from the page: they run the report's script
only, and can make no request.
"""

import asyncio
import os
import stat
from pathlib import Path

from unpooled.app.pages import audit_page, dpia, table_page
from unpooled.errors import InputError
from unpooled.federation.provisioning.federation_folder import FederationFolder
from unpooled.html.rendering import script_digest
from unpooled.site.audit import overview
from unpooled.site.table_notes import rare_categories_in, risks_in
from unpooled.site.table_store import ReadOnlySummaryFolder

_LARGEST = 64 << 20  # bytes of a report
# a link is not followed, and a pipe not waited for; Windows has neither flag
_PLAIN_FILE: int = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
POLICY = (
    f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{script_digest()}'; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'; "
    "sandbox allow-scripts allow-downloads allow-modals"
)


class Documents:
    """The documents of a folder, rendered one at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._rendering = asyncio.Lock()

    async def site_document(self, name: str) -> str:
        """Return a document about a site: summary, audit or dpia."""
        render = {"summary": self._summary, "audit": self._audit, "dpia": self._dpia}[name]
        async with self._rendering:
            return await asyncio.to_thread(render)

    def _summary(self) -> str:
        place = ReadOnlySummaryFolder(self._folder)
        update = place.pending  # which the officer decides on next
        path = place.renewal if update else place.path
        return table_page.page(
            place.read(renewed=update),
            place.settings(),
            "" if update else place.approved,
            place.renewal_digest if update else place.digest,
            renewal=update,
            rare=rare_categories_in(path),
            risks=risks_in(path),
        )

    def _audit(self) -> str:
        return audit_page.page(overview.read(self._folder, only_look=True))

    def _dpia(self) -> str:
        return dpia.page(dpia.read(self._folder, only_look=True))

    async def report(self, run: str) -> str:
        """Return the report of a run in the federation's list."""
        return await asyncio.to_thread(self._report, run)

    def _report(self, run: str) -> str:
        place = FederationFolder.read(self._folder).noted_runs().get(run)
        if place is None:
            raise InputError("the federation has no such run")
        return read_page(place / "report.html")


def read_page(path: Path) -> str:
    """Return a page that unpooled wrote; raise InputError for a link, and for any other file."""
    try:
        handle = os.open(path, os.O_RDONLY | _PLAIN_FILE)
    except OSError:
        raise InputError("the run has no report") from None
    with os.fdopen(handle, "rb") as file:
        opened = os.fstat(handle)
        if not stat.S_ISREG(opened.st_mode) or opened.st_size > _LARGEST:
            raise InputError("the run has no report")
        text = file.read().decode("utf-8", errors="replace")
    if not text.startswith("<!doctype html>"):
        raise InputError("the file is not a report of unpooled")
    return text
