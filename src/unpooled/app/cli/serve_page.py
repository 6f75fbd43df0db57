"""Serve a page on this machine: the review page of a site, or the monitor of a federation."""

from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated

import typer

from unpooled.errors import InputError, install_hint

if TYPE_CHECKING:
    from unpooled.app.pages.folder_watch import Reader

Port = Annotated[
    int, typer.Option(min=0, max=65535, help="Port of the page on this machine (default 0: a free one).")
]


def serve_page(folder: Path, reader: "Reader", page: ModuleType, port: int, otherwise: str = "") -> None:
    """Serve the page of a folder until Ctrl-C; ``otherwise`` names what to do without the page."""
    import asyncio

    try:
        from unpooled.app.pages.listener import serve
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] != "aiohttp":
            raise
        raise InputError(
            f"the page needs aiohttp, which is not installed. {install_hint('pages')}{otherwise}"
        ) from missing
    asyncio.run(serve(folder.absolute(), reader, page, port, typer.echo))
