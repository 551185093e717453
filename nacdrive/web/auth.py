"""Who may look: loopback names on the own machine, a one-time token from elsewhere, no other site's scripts."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from threading import Lock
from urllib.parse import urlsplit

from flask import Request, Response, abort, redirect

from nacdrive.common.net import is_loopback

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


class AccessControl:
    """Checks every request before it is answered."""

    def __init__(self, host: str, announce: Callable[[str], None]) -> None:
        self.local = is_loopback(host)
        self._announce, self._lock = announce, Lock()
        self._token = secrets.token_urlsafe(24)
        self._sessions: set[str] = set()
        self.address = ""
        """The page's address without a token; set once the port is known."""

    def url(self) -> str:
        """The address to open: with the one-time token where the page is reachable from other machines."""
        return self.address if self.local else f"{self.address}?token={self._token}"

    def check(self, request: Request) -> Response | None:
        """Refuse (403) what must not be answered; a valid token is traded for a cookie by a redirect."""
        self._same_site(request)
        if self.local:
            if not is_loopback(urlsplit(f"//{request.host}").hostname or ""):
                abort(403, "This page answers to localhost only.")
            return None
        # A page on another port of the machine has a cookie of its own.
        cookie = f"nacdrive_viewer_{urlsplit(self.address).port}"
        if request.cookies.get(cookie) in self._sessions:
            return None
        if (session := self._trade(request.args.get("token", ""))) is None:
            abort(403, "Open the address with the one-time token that nacdrive printed.")
        answer = redirect("./")
        # Strict would keep it from the redirect of a link that stands on another site.
        answer.set_cookie(cookie, session, httponly=True, samesite="Lax")
        return answer  # type: ignore[return-value]

    def _same_site(self, request: Request) -> None:
        """Refuse what another site's page asks for; following a link to this page is fine."""
        origin = request.headers.get("Origin")
        elsewhere = origin is not None and origin.partition("://")[2] != request.host
        site = request.headers.get("Sec-Fetch-Site", "none")
        link = request.headers.get("Sec-Fetch-Mode") == "navigate" and request.path == "/" and request.method == "GET"
        if elsewhere or (site not in ("same-origin", "none") and not link):
            abort(403, "Another site's page may not read this one.")

    def _trade(self, token: str) -> str | None:
        """A new session for the token, which is used up by it; the next viewer's token is printed."""
        with self._lock:
            if not secrets.compare_digest(token.encode(), self._token.encode()):
                return None
            self._token = secrets.token_urlsafe(24)
            session = secrets.token_urlsafe(24)
            self._sessions.add(session)
        self._announce(f"A viewer has come in; for another one: {self.url()}")
        return session
