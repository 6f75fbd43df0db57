"""``unpooled desk``: a local web page on the folder of a site, or of a federation."""

from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from unpooled.errors import InputError


def desk(
    folder: Annotated[Path, typer.Argument(help="The folder of a site, or of a federation.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on this machine; 0: a free one.")] = 0,
) -> None:
    """Open a desk on this machine: a site's officer decides about studies, a coordinator watches runs.

    It prints a link that opens the page once. Nobody without it sees anything, on this machine or another.

    unpooled site review hospital-a
    """
    import asyncio

    try:
        from unpooled.app.pages.listener import serve
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] != "aiohttp":
            raise
        raise InputError("the desk needs aiohttp; pip install 'unpooled[pages]' brings it") from missing

    from unpooled.app.pages import monitor_page, review_page
    from unpooled.app.pages.folder_watch import Reader
    from unpooled.app.pages.monitor_state import FederationState, is_federation
    from unpooled.app.pages.review_state import SiteState, is_site

    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder")
    reader: Reader
    page: ModuleType
    if is_federation(folder):
        reader, page = FederationState(folder), monitor_page
    elif is_site(folder):
        reader, page = SiteState(folder), review_page
    else:
        raise InputError(f"{folder}: neither the folder of a site nor of a federation")
    asyncio.run(serve(folder.absolute(), reader, page, port, _say))


def _say(text: str) -> None:
    typer.echo(text)
