"""``unpooled desk``: a local web page on the folder of a site, or of a federation."""

from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from unpooled.errors import BadInput


def desk(
    folder: Annotated[Path, typer.Argument(help="The folder of a site, or of a federation.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on this machine; 0: a free one.")] = 0,
) -> None:
    """Open a desk on this machine: a site's officer decides about studies, a coordinator watches runs.

    It prints a link that opens the page once. Nobody without it sees anything, on this machine or another.

    unpooled desk hospital-a
    """
    import asyncio

    try:
        from unpooled.app.desk.doors import keep
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] != "aiohttp":
            raise
        raise BadInput("the desk needs aiohttp; pip install 'unpooled[desk]' brings it") from missing

    from unpooled.app.desk import federation_page, site_page
    from unpooled.app.desk.federation_state import FederationState, is_federation
    from unpooled.app.desk.site_state import SiteState, is_site
    from unpooled.app.desk.watch import Reader

    if not folder.is_dir():
        raise BadInput(f"{folder}: no such folder")
    reader: Reader
    page: ModuleType
    if is_federation(folder):
        reader, page = FederationState(folder), federation_page
    elif is_site(folder):
        reader, page = SiteState(folder), site_page
    else:
        raise BadInput(f"{folder}: neither the folder of a site nor of a federation")
    asyncio.run(keep(folder.absolute(), reader, page, port, _say))


def _say(text: str) -> None:
    typer.echo(text)
