"""The source of a host's pages: its own site, over HTTP or from the disk, and nothing else."""

import logging
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache
from http import HTTPStatus

from msgspec.structs import replace

from sterna.errors import ConfigError, FetchError
from sterna.host.config import HostConfig
from sterna.host.site.closed import Closed
from sterna.host.site.upstream import Upstream, UpstreamFetcher
from sterna.model import Record
from sterna.web.clock import Clock
from sterna.web.curl import CurlConfig, CurlFetcher
from sterna.web.document_root import (
    INDEX,
    DocumentRoot,
    PathKind,
    RootEntry,
    check_open,
    names_of,
    resolved_names_of,
)
from sterna.web.http import Fetcher, Request, Response
from sterna.web.kinds import Kinds
from sterna.web.root_fetcher import RootFetcher, answer_of
from sterna.web.urls import Canonical, hostname_of, path_of

# Which files of a document root are checked against the web server: each of them, the first of each kind in a
# folder, or none because there is no web server.
CHECKS = ("every", "folder", "never")
PROOF_BYTES = 256
WORTH_BYTES = 128 * 1024  # below this a request costs less than a check and a read from the disk
TRUST_SECONDS = 300.0  # that a check is valid for files of the same kind
MAX_TRUSTED = 10_000
MAX_SUFFIX = 5  # characters: `.tar.gz`, `.de.html`; a longer one belongs to the name

# What servers are often told to read for a folder, and for `/name` where only `name.html` exists (`try_files`
# of nginx, MultiViews of Apache). Nothing is read under these names here; they are looked at for links.
SERVED_INDEX = (
    *INDEX,
    *(b"index.xhtml", b"index.shtml", b"index.php", b"index.cgi", b"default.html", b"default.htm"),
)
ENDINGS = (
    b".html",
    b".htm",
    b".xhtml",
    b".shtml",
    b".php",
    b".cgi",
    b".txt",
    b".md",
    b".xml",
    b".json",
    b".pdf",
)

_log = logging.getLogger(__name__)
_PRINTABLE = re.compile("[!-~]+")

# Headers of a checked file that hold for others of its kind.
_SHARED = frozenset({"content-type", "content-language", "x-robots-tag"})
_OF_THE_RANGE = frozenset({"content-range", "content-length"})

_closed_by = lru_cache(maxsize=256)(Closed)


class SiteFetcher:
    """Passes on requests for pages of the site that are not closed; refuses all others."""

    def __init__(self, fetcher: Fetcher, *, site: str, closed: Closed) -> None:
        self._fetcher = fetcher
        self._closed = closed
        self._site = site

    async def fetch(self, request: Request) -> Response:
        url = request.url
        # With the slash the origin is complete: no user, port or longer name can follow it.
        if not url.startswith(f"{self._site}/") or not _PRINTABLE.fullmatch(url):
            raise FetchError("refused", f"{url!r} is not a page of {self._site}")
        return await self._fetcher.fetch(_open_to(request, self._closed))


class ShieldedFetcher:
    """Refuses what is closed to one visit at the time of a request: that may change while it is here."""

    def __init__(self, fetcher: Fetcher, closed: Callable[[], tuple[str, ...]]) -> None:
        self._fetcher = fetcher
        self._closed = closed

    async def fetch(self, request: Request) -> Response:
        return await self._fetcher.fetch(_open_to(request, _closed_by(self._closed())))


def _open_to(request: Request, closed: Closed) -> Request:
    """The request, to which the same is closed if a link leads there; FetchError if its URL is closed."""
    if request.url in closed:
        raise FetchError("refused", f"{request.url} is closed to crawlers")
    return replace(request, closed=(*request.closed, closed))


class LoopbackResolver:
    """Resolves one name, without a name server."""

    def __init__(self, hostname: str, address: str) -> None:
        self._hostname = hostname
        self._address = address

    async def resolve(self, hostname: str) -> tuple[str, ...]:
        if hostname != self._hostname:
            raise FetchError("refused", f"a crawler at {self._hostname} may not reach {hostname}")
        return (self._address,)

    def prefer(self, hostname: str, address: str) -> None:
        """Does nothing: there is one address."""


def resolver_of(config: HostConfig) -> LoopbackResolver:
    return LoopbackResolver(hostname_of(config.site), Upstream.of(config.site, config.upstream).address)


def check_source(config: HostConfig) -> None:
    """ConfigError if the configuration is invalid; makes no request."""
    if Canonical()(config.site) != f"{config.site}/":
        raise ConfigError(f"site {config.site!r} is not an origin: write it as https://www.example.org")
    if config.check not in ("", *CHECKS):
        raise ConfigError(f"unknown check {config.check!r}: one of {', '.join(CHECKS)}")
    if config.root:
        DocumentRoot(config.root, config.aliases)
        Kinds(config.kinds)
    elif config.check or config.aliases:
        raise ConfigError("check and aliases need a document root: name it with --root")
    if config.kinds and config.check != "never":
        raise ConfigError("kinds need --check never: otherwise the web server decides what is shown")
    Upstream.of(config.site, config.upstream)


@asynccontextmanager
async def open_source(config: HostConfig, clock: Clock) -> AsyncIterator[Fetcher]:
    """The site's pages; ConfigError if the configuration is invalid."""
    check_source(config)
    upstream, closed = Upstream.of(config.site, config.upstream), Closed(config.policy.closed)
    if config.root and config.check == "never":
        if await upstream.is_there():
            _log.warning("a web server answers for %s but is not asked: its rules do not apply", config.site)
        files = RootFetcher(config.root, config.aliases, kinds=config.kinds)
        yield SiteFetcher(files, site=config.site, closed=closed)
        return
    curl = CurlFetcher(CurlConfig(connections=config.limits.connections, ca_file=config.ca_file))
    try:
        fetcher: Fetcher = UpstreamFetcher(curl, site=config.site, upstream=upstream)
        if config.root:
            root = DocumentRoot(config.root, config.aliases)
            fetcher = RootedFetcher(root, fetcher, clock, checks_every=config.check != "folder")
        yield SiteFetcher(fetcher, site=config.site, closed=closed)
    finally:
        await curl.close()


# -- a document root beside its web server ------------------------------------------------------------------


_Kind = tuple[str, tuple[bytes, ...], str]


class _Trust(Record, frozen=True):
    """Files of one kind in one folder are served unchanged, with these headers."""

    headers: tuple[tuple[str, str], ...]
    until: float


class RootedFetcher:
    """Reads files from the disk that the web server serves unchanged; all else comes from the server.

    A file is checked by asking the server for its first bytes (a range, RFC 9110 14). If the answer is that
    range of that file - its length, its time, its beginning - the rest is read from the disk. Any other
    answer of the server is final: a redirect, a refusal, a page that a program made. Where every file is
    checked by itself, this pays off for large ones only, and small ones are simply requested.
    """

    def __init__(
        self, root: DocumentRoot, server: Fetcher, clock: Clock, *, checks_every: bool = True
    ) -> None:
        self._root = root
        self._server = server
        self._clock = clock
        self._checks_every = checks_every
        self._trusted: dict[_Kind, _Trust] = {}  # changed by _trust() alone

    async def fetch(self, request: Request) -> Response:
        path = path_of(request.url).partition("?")[0]
        plain = names_of(path)
        names = resolved_names_of(path) if plain is None else plain
        # Otherwise it may be more than a file.
        is_plain = names is plain and b"" not in names and not request.may_cut
        with self._root.find(names) as entry:
            check_open(entry, request)
            is_fit = is_plain and entry.kind is PathKind.FILE and 0 < entry.size <= request.max_bytes
            answer = await self._answer(entry, request) if is_fit else None
        if entry.kind is PathKind.FOLDER:
            self._check_index(names, request)
        if entry.kind in (PathKind.FOLDER, PathKind.MISSING):
            self._check_endings(names, request)
        return answer or await self._server.fetch(request)

    def _check_index(self, names: Sequence[bytes], request: Request) -> None:
        """FetchError if the server would show a folder's index that is a link to a closed path."""
        for index in SERVED_INDEX:
            with self._root.find([*names, index]) as entry:
                if entry.links:  # otherwise it lies in the folder, which is open
                    check_open(entry, request)

    def _check_endings(self, names: Sequence[bytes], request: Request) -> None:
        """FetchError if the server would show a closed file of this name with an ending."""
        *above, last = [name for name in names if name] or [b""]
        for ending in ENDINGS if last else ():
            with self._root.find([*above, last + ending]) as entry:
                if entry.kind is not PathKind.MISSING or entry.links:
                    check_open(entry, request)

    async def _answer(self, entry: RootEntry, request: Request) -> Response | None:
        """The file, or the server's answer for it; None if that decides nothing."""
        kind = _kind_of(request, entry)
        trust = self._trusted.get(kind) if kind and not self._checks_every else None
        if trust and trust.until > self._clock.now():
            body = await entry.read(entry.size, request.claim)
            fields = (("last-modified", entry.modified), ("content-length", str(entry.size)))
            return answer_of(HTTPStatus.OK, body, (*trust.headers, *fields)) if body else None
        if self._checks_every and entry.size < WORTH_BYTES:
            return None
        beginning = ("Range", f"bytes=0-{PROOF_BYTES - 1}")
        answer = await self._server.fetch(replace(request, headers=(*request.headers, beginning)))
        if answer.status != HTTPStatus.PARTIAL_CONTENT:
            return answer if answer.status != HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE else None
        body = await entry.read(entry.size, request.claim)
        if not body or not _is_of(answer, entry, body):
            return None
        if kind:
            self._trust(kind, answer)
        return _whole(answer, body)

    def _trust(self, kind: _Kind, answer: Response) -> None:
        if len(self._trusted) >= MAX_TRUSTED:
            self._trusted.clear()
        shared = tuple(field for field in answer.headers if field[0] in _SHARED)
        self._trusted[kind] = _Trust(shared, self._clock.now() + TRUST_SECONDS)


def _kind_of(request: Request, entry: RootEntry) -> _Kind | None:
    """Folder, the folder where it really lies, and suffixes; None for a URL that no other file stands for."""
    path = path_of(request.url)
    # Servers follow all links, none, or those of some owners.
    if entry.links or "?" in path or any(name.lower().startswith("if-") for name, _ in request.headers):
        return None
    folder, _, name = path.rpartition("/")
    suffixes = ".".join(suffix for suffix in name.split(".")[1:] if len(suffix) <= MAX_SUFFIX)
    return folder, entry.names[:-1], suffixes


def _is_of(answer: Response, entry: RootEntry, body: bytes) -> bool:
    """Whether the server serves this file unchanged."""
    size = min(PROOF_BYTES, entry.size)
    return (
        answer.header("content-range") == f"bytes 0-{size - 1}/{entry.size}"
        and answer.header("last-modified") == entry.modified
        and not answer.header("content-encoding")
        and answer.body == body[:size]
    )


def _whole(answer: Response, body: bytes) -> Response:
    """The server's answer as it would be without a range."""
    fields = [field for field in answer.headers if field[0] not in _OF_THE_RANGE]
    whole = answer_of(HTTPStatus.OK, body, (*fields, ("content-length", str(len(body)))))
    return replace(whole, seconds=answer.seconds, wire_bytes=answer.wire_bytes, is_http2=answer.is_http2)
