"""The guard around the app: who may ask, and the headers that every answer carries."""

from ipaddress import ip_address

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none';"
        b" frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)
# What people search for is theirs: no proxy and no disk keeps it.
_UNLESS_SAID = (b"cache-control", b"no-store")


class Guard:
    """The ASGI callable; `is_local`: it listens on this machine alone, and answers to its own names alone."""

    def __init__(self, app: ASGIApp, *, is_local: bool) -> None:
        self._app = app
        self._is_local = is_local

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        assert scope["type"] == "http"

        async def send_guarded(message: Message) -> None:
            await send(_guarded(message) if message["type"] == "http.response.start" else message)

        refusal = self._refusal(Headers(scope=scope))
        app = PlainTextResponse(f"{refusal}\n", 403) if refusal else self._app
        await app(scope, receive, send_guarded)

    def _refusal(self, headers: Headers) -> str:
        # A name that somebody else lets point here (DNS rebinding) must not show it to a page of his.
        if self._is_local and not all(map(is_here, headers.getlist("host") or [""])):
            return "This page is shown by the machine's own name only."
        # How long an answer takes would tell a page of somebody else's what is found here: it may only link.
        if not may_ask(headers):
            return "This page is not shown as a part of others."
        return ""


def _guarded(message: Message) -> Message:
    headers = [*message["headers"], *_HEADERS]
    if not any(name == _UNLESS_SAID[0] for name, _ in headers):
        headers.append(_UNLESS_SAID)
    return {**message, "headers": headers}


def may_ask(headers: Headers) -> bool:
    """Whether a browser asks for its user, and not for a page of another origin (Fetch Metadata)."""
    if headers.get("sec-fetch-site", "none") in ("none", "same-origin"):
        return True
    return headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"


def is_here(host: str) -> bool:
    """Whether a Host header names this machine by itself."""
    name = host[1 : host.find("]")] if host.startswith("[") else host.partition(":")[0]
    return name.lower() == "localhost" or is_loopback(name)


def is_loopback(address: str) -> bool:
    """Whether this is an address of this machine alone."""
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False
