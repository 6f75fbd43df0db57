"""The server of a page: on the loopback address alone, for browsers that opened a one-time link.

``_guarded`` checks every request first (``access``), and refuses one that fails without any other content.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from aiohttp import web

from unpooled.app.pages import documents
from unpooled.app.pages.access import Access, is_prefetched, right_secret
from unpooled.app.pages.folder_watch import Poller, Snapshot
from unpooled.app.pages.layout import POLICY
from unpooled.app.pages.review_page import confirmation, table_confirmation
from unpooled.app.pages.review_state import VERBS, study_values
from unpooled.app.pages.write_table_page import approve_table
from unpooled.errors import InputError, LedgerError, UnpooledError
from unpooled.html.rendering import render
from unpooled.site.study_store import StudyFolder, checked_reason
from unpooled.site.table_store import SummaryFolder
from unpooled.storage.account import account

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_MAX_FORM = 4096  # bytes of a form
_MAX_STREAMS = 12  # pages that are kept up to date at the same time
_BEAT = 15.0  # seconds after which a stream without changes sends a sign of life
_POLL = 0.5  # seconds between checks whether the page is still open
_TIMEOUT = 20.0  # seconds for a browser to send a form, or to read from a stream
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_SESSION = "session"  # key of a request's session


class PageServer:
    """Serves the pages of one folder."""

    def __init__(
        self,
        folder: Path,
        poller: Poller,
        access: Access,
        mark_known: Callable[[Any], None] = lambda connection: None,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._folder, self._poller, self._access = folder, poller, access
        self._mark_known, self._say = mark_known, say
        self._documents = documents.Documents(folder)
        self._streams = 0
        self._deciding = asyncio.Lock()
        self.app = web.Application(middlewares=[self._guarded], client_max_size=_MAX_FORM)
        self.app.on_response_prepare.append(_add_headers)
        self.app.router.add_get("/open/{link}", self._open)
        path_token = "/{path_token}"  # noqa: S105 (a route, not a secret)
        self.app.router.add_get(f"{path_token}/", self._home)
        self.app.router.add_get(f"{path_token}/events", self._events)
        self.app.router.add_get(f"{path_token}/style.css", _fixed(render("style.css"), "text/css"))
        self.app.router.add_get(f"{path_token}/pages.js", _fixed(render("pages.js"), "text/javascript"))
        study = f"{path_token}/study/{{digest:[0-9a-f]{{64}}}}/{{verb:approve|decline|withdraw}}"
        self.app.router.add_get(study, self._confirm)
        self.app.router.add_post(study, self._decide)
        table = f"{path_token}/table/{{digest:[0-9a-f]{{64}}}}/approve"
        self.app.router.add_get(table, self._confirm_table)
        self.app.router.add_post(table, self._approve_table)
        self.app.router.add_get(f"{path_token}/{{name:summary|audit|dpia}}", self._document)
        self.app.router.add_get(f"{path_token}/report/{{run}}", self._report)

    # ------------------------------------------------------------ access

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        headers, access = request.headers, self._access
        if not access.known_host(headers) or request.method not in ("GET", "POST"):
            return _refused()
        if request.match_info.handler == self._open:  # needs no cookie, because it gives one
            return await handler(request)
        session = access.session(request.path.split("/")[1], headers.get("Cookie", ""))
        if session is None or not access.from_here(headers):
            return _refused()
        if request.method == "POST" and not access.posted_here(headers):
            return _refused()
        request[_SESSION] = session
        self._mark_known(request.protocol)
        try:
            return await handler(request)
        except web.HTTPException as error:
            return _line(error.status, error.reason)
        except UnpooledError as error:
            return _line(409, str(error))
        except TimeoutError:
            return _line(408, "too slow")
        except Exception as error:  # a fault of this program: the terminal names it, the browser does not
            self._say(f"A page failed with {type(error).__name__}: {str(error)[:500]!r}")
            return _line(500, f"the {self._poller.page_name} failed; its terminal names the error")

    async def _open(self, request: web.Request) -> web.StreamResponse:
        """Exchange the link for a cookie.

        The answer redirects to the page in a step of its own, so that the browser sends the cookie wherever
        the link was clicked.
        """
        if is_prefetched(request.headers):
            return _refused()
        session = self._access.used(request.match_info["link"])
        if session is None:
            return _refused()
        name = self._poller.page_name
        self._say(f"{datetime.now():%H:%M:%S} a browser opened the {name}")
        target = f"/{session.path_token}/"
        response = _page(render("opened.html", title=name.capitalize(), name=name, target=target))
        response.set_cookie(
            self._access.cookie_name, session.cookie, path=target, httponly=True, samesite="Strict"
        )
        return response

    # ------------------------------------------------------------ reading

    async def _home(self, request: web.Request) -> web.StreamResponse:
        return _page(self._poller.render(await self._poller.now()))

    async def _events(self, request: web.Request) -> web.StreamResponse:
        """Send a stream of changes: first all sections, then those that change."""
        if self._streams >= _MAX_STREAMS:
            return _line(503, f"too many windows of the {self._poller.page_name} are open")
        self._streams += 1
        self._poller.viewers += 1
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        try:
            await response.prepare(request)
            snapshot: Snapshot | None = await self._poller.now()
            marks: dict[str, str] = {}
            number = 0
            while True:
                if snapshot is None:
                    await _send(response, ":\n\n")
                else:
                    changes = self._poller.changes_since(number) if number else []
                    update = {
                        "title": snapshot.title,
                        "where": snapshot.where,
                        "sections": {
                            name: [snapshot.marks[name], html] for name, html in snapshot.since(marks).items()
                        },
                        "changes": " ".join(changes),
                    }
                    await _send(response, f"data: {json.dumps(update)}\n\n")
                    marks, number = snapshot.marks, snapshot.number
                snapshot = await self._next(request, number)
        except (ConnectionError, TimeoutError):
            pass  # the page was closed, or reads too slowly
        finally:
            self._streams -= 1
            self._poller.viewers -= 1
        return response

    async def _next(self, request: web.Request, number: int) -> Snapshot | None:
        """Return the next snapshot, None if there is none for a while; ConnectionError for a closed page."""
        for _ in range(round(_BEAT / _POLL)):
            if (snapshot := await self._poller.next(number, _POLL)) is not None:
                return snapshot
            if request.transport is None or request.transport.is_closing():
                raise ConnectionResetError
        return None

    async def _document(self, request: web.Request) -> web.StreamResponse:
        self._check_role("site")
        return _isolated(await self._documents.site_document(request.match_info["name"]))

    async def _report(self, request: web.Request) -> web.StreamResponse:
        self._check_role("federation")
        return _isolated(await self._documents.report(request.match_info["run"]))

    def _check_role(self, role: str) -> None:
        if self._poller.snapshot is None or self._poller.snapshot.state["role"] != role:
            raise web.HTTPNotFound

    # ------------------------------------------------------------ deciding

    async def _confirm(self, request: web.Request) -> web.StreamResponse:
        return await self._confirmation(request)

    async def _confirmation(
        self, request: web.Request, by: str = "", problem: str = ""
    ) -> web.StreamResponse:
        self._check_role("site")
        snapshot, verb = await self._poller.now(), request.match_info["verb"]
        place = StudyFolder(self._folder)
        if not place.file(request.match_info["digest"]).exists():
            raise web.HTTPNotFound
        study = study_values(await asyncio.to_thread(place.read, request.match_info["digest"]))
        if verb not in study["decisions_open"] and not problem:
            problem = f"the study is {study['state']}"
        form = request[_SESSION].form
        page = confirmation(snapshot.state, study, verb, form, by or account(), problem)
        return _page(page, 409 if problem else 200)

    async def _decide(self, request: web.Request) -> web.StreamResponse:
        """Decide about a study, as ``unpooled site approve`` and ``unpooled site decline`` do."""
        fields = await self._posted(request)
        if fields is None:
            return _refused()
        by, digest, verb = fields.get("by", "").strip(), *(request.match_info[n] for n in ("digest", "verb"))
        self._check_role("site")
        try:
            _check_name(by)
            reason = checked_reason(fields.get("reason", ""))
            if verb == "approve" and reason:
                raise InputError("an approval has no reason")
            place = StudyFolder(self._folder)
            async with self._deciding:  # a double click decides once
                await asyncio.to_thread(place.decide, digest, VERBS[verb], by, reason)
            self._poller.invalidate()
        except (InputError, LedgerError, OSError) as error:
            return await self._confirmation(request, by, str(error))
        return web.Response(status=303, headers={"Location": "../../"})

    async def _posted(self, request: web.Request) -> dict[str, str] | None:
        """Return the fields of a form of this page; None for a form from elsewhere."""
        if request.content_type != "application/x-www-form-urlencoded":
            return None
        async with asyncio.timeout(_TIMEOUT):
            fields = {name: str(value) for name, value in (await request.post()).items()}
        return fields if right_secret(request[_SESSION], fields.get("secret", "")) else None

    async def _confirm_table(self, request: web.Request) -> web.StreamResponse:
        return await self._table_confirmation(request)

    async def _table_confirmation(
        self, request: web.Request, by: str = "", problem: str = ""
    ) -> web.StreamResponse:
        self._check_role("site")
        state = (await self._poller.now()).state
        waiting = (state["summary"] or {}).get("waiting")
        if waiting is None or waiting["digest"] != request.match_info["digest"]:
            raise web.HTTPNotFound  # approved meanwhile, or another table waits
        page = table_confirmation(state, request[_SESSION].form, by or account(), problem)
        return _page(page, 409 if problem else 200)

    async def _approve_table(self, request: web.Request) -> web.StreamResponse:
        """Approve the summary table with this digest, as ``unpooled site approve --table`` does."""
        fields = await self._posted(request)
        if fields is None:
            return _refused()
        by, digest = fields.get("by", "").strip(), request.match_info["digest"]
        self._check_role("site")
        try:
            _check_name(by)
            async with self._deciding:
                await asyncio.to_thread(approve_table, SummaryFolder(self._folder), by, digest)
            self._poller.invalidate()
        except (InputError, LedgerError, OSError) as error:
            return await self._table_confirmation(request, by, str(error))
        return web.Response(status=303, headers={"Location": "../../"})


def _check_name(by: str) -> None:
    """Raise InputError for a name that the log cannot hold."""
    if len(by) > 100 or not by.isprintable():
        raise InputError("the name must be one line of at most 100 characters")


# ---------------------------------------------------------------- answers


def _refused() -> web.Response:
    return _line(403, "refused")


def _line(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=f"{text}\n")


def _page(html: str, status: int = 200) -> web.Response:
    return web.Response(status=status, text=html, content_type="text/html")


def _isolated(html: str) -> web.Response:
    """Return a document that the browser treats like a file: it cannot request anything from this server."""
    response = _page(html)
    response.headers["Content-Security-Policy"] = documents.POLICY
    return response


def _fixed(text: str, kind: str) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(text=text, content_type=kind)

    return answer


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)
    response.headers.popall("Server", None)


async def _send(response: web.StreamResponse, text: str) -> None:
    async with asyncio.timeout(_TIMEOUT):
        await response.write(text.encode())
