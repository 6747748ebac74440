"""A small read-only web application: routing, refusals and security headers of every page that Sterna serves.

It is plain ASGI because a host is installed without a web framework; `web/http_server` runs it. A page brings
its routes, what its Content-Security-Policy allows, and how it shows an error.
"""

from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from importlib.resources import files
from ipaddress import ip_address
from typing import Any
from urllib.parse import parse_qsl

from sterna.model import Record

HTML_TYPE = "text/html; charset=utf-8"
TEXT_TYPE = "text/plain; charset=utf-8"

Headers = tuple[tuple[str, str], ...]
Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_METHODS = ("GET", "HEAD")
_SECURITY_HEADERS: Headers = (
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
)
_INTERNAL = "This page has an internal error. Your request is not the cause."
_CACHE = "cache-control"
_FOR_EVER = "public, max-age=31536000, immutable"


class HttpRequest(Record, frozen=True, kw_only=True):
    """What a client asks for; of a parameter that comes twice the last one counts."""

    method: str
    path: str
    query: dict[str, str]
    headers: Headers  # names in lower case

    def values(self, name: str) -> list[str]:
        """The values of a header, one for each time that it was sent."""
        return [value for each, value in self.headers if each == name]


class HttpResponse(Record, frozen=True, kw_only=True):
    """What the client gets; it is not cached unless its headers say so."""

    status: int = 200
    body: bytes
    media_type: str = HTML_TYPE
    headers: Headers = ()


class HttpError(Exception):
    """A request that is answered with an error status; the text is for the person who asked."""

    def __init__(self, status: int, detail: str, headers: Headers = ()) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = headers


Handler = Callable[[HttpRequest], Awaitable[HttpResponse]]
ShowError = Callable[[HttpRequest, HttpError], HttpResponse]


def plain_error(_request: HttpRequest, error: HttpError) -> HttpResponse:
    body = f"{error.detail}\n".encode()
    return HttpResponse(status=error.status, body=body, media_type=TEXT_TYPE, headers=error.headers)


class App:
    """The ASGI callable."""

    def __init__(
        self,
        routes: Mapping[str, Handler],
        *,
        policy: str,  # what the Content-Security-Policy allows beyond nothing
        is_local: bool,  # on the loopback interface: it answers to the machine's own names only
        show_error: ShowError = plain_error,
    ) -> None:
        self._routes = routes
        self._is_local = is_local
        self._show_error = show_error
        allowed = f"default-src 'none'; {policy}; base-uri 'none'; frame-ancestors 'none'"
        self._headers: Headers = (("content-security-policy", allowed), *_SECURITY_HEADERS)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answers one request; an unexpected exception is answered with 500 and then raised for the log."""
        assert scope["type"] == "http"
        request = HttpRequest(
            method=scope["method"],
            path=scope["path"],
            query=dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)),
            headers=tuple(
                (name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]
            ),
        )
        try:
            response = await self._answer(request)
        except HttpError as error:
            response = self._show_error(request, error)
        except Exception:
            await self._send(send, request, self._show_error(request, HttpError(500, _INTERNAL)))
            raise
        await self._send(send, request, response)

    async def _answer(self, request: HttpRequest) -> HttpResponse:
        # DNS rebinding: a foreign page whose name resolves to this machine must not read what is here.
        if self._is_local and not all(map(_is_own_name, request.values("host") or [""])):
            refusal = "This page is served under this machine's own names only: open it as localhost."
            return plain_error(request, HttpError(403, refusal))
        # The time an answer takes tells another site what is found here: other sites may link, not embed.
        if not _may_ask(request):
            refusal = "This page cannot be embedded in pages of other sites."
            return plain_error(request, HttpError(403, refusal))
        handler = self._routes.get(request.path)
        if handler is None:
            raise HttpError(404, "There is nothing at this address.")
        if request.method not in _METHODS:
            raise HttpError(
                405, "This page is read-only: use GET or HEAD.", (("allow", ", ".join(_METHODS)),)
            )
        return await handler(request)

    async def _send(self, send: Send, request: HttpRequest, response: HttpResponse) -> None:
        length = str(len(response.body))
        headers = [("content-length", length), ("content-type", response.media_type), *response.headers]
        headers += self._headers
        # What people look at is private: no proxy and no disk keeps it.
        if not any(name == _CACHE for name, _ in headers):
            headers.append((_CACHE, "no-store"))
        encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        await send({"type": "http.response.start", "status": response.status, "headers": encoded})
        body = b"" if request.method == "HEAD" else response.body
        await send({"type": "http.response.body", "body": body})


def _may_ask(request: HttpRequest) -> bool:
    """Whether the browser asks on behalf of its user, not of another site (Fetch Metadata)."""
    site, mode, dest = (
        (request.values(f"sec-fetch-{name}") or [default])[0]
        for name, default in (("site", "none"), ("mode", ""), ("dest", ""))
    )
    return site in ("none", "same-origin") or (mode == "navigate" and dest == "document")


def _is_own_name(host: str) -> bool:
    name = host[1 : host.find("]")] if host.startswith("[") else host.partition(":")[0]
    return name.lower() == "localhost" or is_loopback(name)


def is_loopback(address: str) -> bool:
    """Whether an address can be reached from this machine alone."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    mapped = getattr(parsed, "ipv4_mapped", None)  # as a server that listens on both sees IPv4
    return (mapped or parsed).is_loopback


# -- files -------------------------------------------------------------------------------------------------


class Asset(Record, frozen=True, kw_only=True):
    """A file of a page; its path holds its hash, so that browsers may keep it for ever."""

    path: str
    media_type: str
    content: bytes

    async def answer(self, _request: HttpRequest) -> HttpResponse:
        return HttpResponse(body=self.content, media_type=self.media_type, headers=((_CACHE, _FOR_EVER),))


def read_asset(package: str, name: str, media_type: str) -> Asset:
    content = (files(package) / name).read_bytes()
    stem, _, ending = name.rpartition(".")
    path = f"/{stem}-{sha256(content).hexdigest()[:16]}.{ending}"
    return Asset(path=path, media_type=media_type, content=content)
