"""Who may see the desk: whoever opened the one-time link, from the page itself, at this address.

The desk listens on the loopback address, which all users of this machine and all pages in a browser reach.
So nothing is told without a cookie, which is given once, for a link. A browser sends a cookie to all ports of
a host; therefore it is bound to a path that nobody else knows, and no other server of this machine gets it.
"""

import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

HOSTS = ("127.0.0.1", "localhost")
_SESSIONS = 8  # browsers that opened a link; the oldest is forgotten


@dataclass(frozen=True)
class Session:
    """One browser: its path and its cookie, both secret, and the secret of its forms."""

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
        return f"unpooled-review-{self.port}"

    def new_link(self) -> str:
        """A link that opens the desk once; an earlier one that was not used opens nothing any more."""
        self._link = secrets.token_urlsafe(32)
        return f"http://{HOSTS[0]}:{self.port}/open/{self._link}"

    def used(self, link: str) -> Session | None:
        """The session of whoever has the link, once; None for anything else."""
        if not self._link or not _same(link, self._link):
            return None
        self._link = ""
        session = Session(secrets.token_urlsafe(16), secrets.token_urlsafe(32), secrets.token_urlsafe(32))
        self._sessions = [*self._sessions[-_SESSIONS + 1 :], session]
        return session

    def session(self, path_token: str, cookies: str) -> Session | None:
        """The session of a path and of one of the cookies in a header; None if they are not of one.

        There may be several of this name: another server of this machine can set them, but not the right one.
        """
        given = [
            value
            for name, _, value in (part.strip().partition("=") for part in cookies.split(";"))
            if name == self.cookie_name
        ]
        found = None
        for session in self._sessions:  # all of them: the time taken says nothing
            for cookie in given[:_SESSIONS]:
                if _same(path_token, session.path_token) & _same(cookie, session.cookie):
                    found = session
        return found

    # ------------------------------------------------------------ where a request comes from

    def known_host(self, headers: Mapping[str, str]) -> bool:
        """True if the request names this desk: a name of somebody else that leads here is none."""
        return headers.get("Host", "").lower() in self._hosts

    def from_here(self, headers: Mapping[str, str]) -> bool:
        """True unless the browser says that another page than the desk's asked for this."""
        return headers.get("Sec-Fetch-Site", "none") in ("none", "same-origin")

    def posted_here(self, headers: Mapping[str, str]) -> bool:
        """True if the desk's own page posted this.

        Browsers hide the origin ("null") where no referrer is sent; then they must say that it is the same.
        """
        origin, site = headers.get("Origin", ""), headers.get("Sec-Fetch-Site")
        if site is not None and site != "same-origin":
            return False
        return origin == f"http://{headers.get('Host', '')}" or (origin == "null" and site == "same-origin")


def right_secret(session: Session, given: str) -> bool:
    """True if a form is one that was sent to this session."""
    return _same(given, session.form)


def is_prefetched(headers: Mapping[str, str]) -> bool:
    """True if a browser only looks ahead: a link is not used up by that."""
    said = f"{headers.get('Sec-Purpose', '')} {headers.get('Purpose', '')} {headers.get('X-Moz', '')}"
    return "prefetch" in said.lower() or "prerender" in said.lower()


def _same(given: str, right: str) -> bool:
    return hmac.compare_digest(given.encode(errors="replace"), right.encode())
