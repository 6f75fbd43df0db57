"""Write the page of a summary table, and approve the table: for the commands and the review page."""

from pathlib import Path

from unpooled.app.pages.table_page import page
from unpooled.site.table_notes import rare_categories_in, risks_in
from unpooled.site.table_store import PAGE, SummaryFolder
from unpooled.storage.atomic_files import write_atomically


def write_page(place: SummaryFolder, html: Path | None = None, *, update: bool = False) -> Path:
    """Write the page of the summary table, or of its pending update, by default beside the table."""
    path = place.renewal if update else place.path
    target = html or path / PAGE
    approved, digest = ("", place.renewal_digest) if update else (place.approved, place.digest)
    table, settings = place.read(renewed=update), place.settings()
    rare, risks = rare_categories_in(path), risks_in(path)
    text = page(table, settings, approved, digest, renewal=update, rare=rare, risks=risks)
    write_atomically(target, text.encode())
    return target


def approve_table(place: SummaryFolder, by: str, digest: str) -> str:
    """Approve the table with this digest and, if it has a page, write the page again; returns the digest."""
    approved = place.approve(by, digest=digest)
    if (place.path / PAGE).exists():
        write_page(place)
    return approved
