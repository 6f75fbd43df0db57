"""Access to a page: only the browser that opened the one-time link, from the page itself, at this address.

The server listens on the loopback address, which all users of this machine and all pages in a browser reach.
Therefore it answers only requests with a cookie, which it gives once, for a link. A browser sends a cookie to
all ports of a host. Therefore the cookie is bound to a secret path, and no other server of this machine
receives it.
"""

import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

HOSTS = ("127.0.0.1", "localhost")
_SESSIONS = 8  # browsers that opened a link; the oldest session is dropped


@dataclass(frozen=True)
class Session:
    """The session of a browser: its path, its cookie and the token of its forms, all secret."""

    path_token: str
    cookie: str
    form: str


class Access:
    """Links, sessions, and checks of where a request comes from."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._link = ""
        self._sessions: list[Session] = []
        self._hosts = tuple(f"{host}:{port}" for host in HOSTS)

    @property
    def cookie_name(self) -> str:
        return f"unpooled-pages-{self.port}"

    def new_link(self) -> str:
        """Return a link that opens the page once; it replaces an earlier link that was not used."""
        self._link = secrets.token_urlsafe(32)
        return f"http://{HOSTS[0]}:{self.port}/open/{self._link}"

    def used(self, link: str) -> Session | None:
        """Return a new session for the link, once; None for anything else."""
        if not self._link or not _same(link, self._link):
            return None
        self._link = ""
        session = Session(secrets.token_urlsafe(16), secrets.token_urlsafe(32), secrets.token_urlsafe(32))
        self._sessions = [*self._sessions[-_SESSIONS + 1 :], session]
        return session

    def session(self, path_token: str, cookies: str) -> Session | None:
        """Return the session with this path and one of the cookies of a header; None if there is none.

        A header may hold several cookies of this name: another server of this machine can set them, but not
        the right one.
        """
        values = [
            value
            for name, _, value in (part.strip().partition("=") for part in cookies.split(";"))
            if name == self.cookie_name
        ]
        match = None
        for session in self._sessions:  # all of them, so that the time taken discloses nothing
            for cookie in values[:_SESSIONS]:
                if _same(path_token, session.path_token) & _same(cookie, session.cookie):
                    match = session
        return match

    # ------------------------------------------------------------ origin of a request

    def known_host(self, headers: Mapping[str, str]) -> bool:
        """Return True if the request names this server; a foreign host name that resolves to it does not."""
        return headers.get("Host", "").lower() in self._hosts

    def from_here(self, headers: Mapping[str, str]) -> bool:
        """Return True unless the browser states that another page made the request."""
        return headers.get("Sec-Fetch-Site", "none") in ("none", "same-origin")

    def posted_here(self, headers: Mapping[str, str]) -> bool:
        """Return True if this server's own page posted the form.

        Browsers send the origin "null" if they send no referrer; then they must state that the origin is the
        same.
        """
        origin, site = headers.get("Origin", ""), headers.get("Sec-Fetch-Site")
        if site is not None and site != "same-origin":
            return False
        return origin == f"http://{headers.get('Host', '')}" or (origin == "null" and site == "same-origin")


def right_secret(session: Session, secret: str) -> bool:
    """Return True if a form belongs to this session."""
    return _same(secret, session.form)


def is_prefetched(headers: Mapping[str, str]) -> bool:
    """Return True if a browser only prefetches the page, which must not use up a link."""
    purpose = f"{headers.get('Sec-Purpose', '')} {headers.get('Purpose', '')} {headers.get('X-Moz', '')}"
    return "prefetch" in purpose.lower() or "prerender" in purpose.lower()


def _same(value: str, right: str) -> bool:
    return hmac.compare_digest(value.encode(errors="replace"), right.encode())
