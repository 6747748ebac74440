"""A document root beside its web server: the server says what may be shown, the disk gives the bytes.

A file is *judged* by asking the server for its first bytes (a range, RFC 9110 14). If the answer is just that
range of just that file - its length, its time, its beginning - the rest is read from the disk. Whatever else
the server answers is the answer: a redirect, a refusal, a page that a program made. Where every file is to be
judged by itself, this pays for large ones only, and small ones are simply asked for.
"""

from http import HTTPStatus

from msgspec.structs import replace

from sterna.model import Record
from sterna.web.clock import Clock
from sterna.web.document_root import DocumentRoot, PathKind, RootEntry, answer_of, names_of
from sterna.web.http import Fetcher, Request, Response
from sterna.web.urls import path_of

PROOF_BYTES = 256
WORTH_BYTES = 128 * 1024  # below this an answer costs less than a judgement and a look at the disk
TRUST_SECONDS = 300.0  # so long a judgement holds for files of the same kind
MAX_TRUSTED = 10_000
MAX_SUFFIX = 5  # letters: `.tar.gz`, `.de.html`; a longer one belongs to the name

# What a judged file's answer tells of others of its kind.
_SHARED = frozenset({"content-type", "content-language", "x-robots-tag"})
_OF_THE_RANGE = frozenset({"content-range", "content-length"})

Fields = tuple[tuple[str, str], ...]


class _Trust(Record, frozen=True):
    """That files of one kind in one folder are shown as they are, and with which headers."""

    headers: Fields
    until: float


class RootedFetcher:
    """Reads from the disk what the web server shows as it lies there, and asks the server for all else."""

    def __init__(
        self, root: DocumentRoot, server: Fetcher, clock: Clock, *, judges_every: bool = True
    ) -> None:
        self._root = root
        self._server = server
        self._clock = clock
        self._judges_every = judges_every
        self._trusted: dict[tuple[str, str], _Trust] = {}  # by folder and suffixes; changed by _trust() alone

    async def fetch(self, request: Request) -> Response:
        names = _plain_names(request)
        if names is None:
            return await self._server.fetch(request)
        with self._root.find(names) as entry:
            is_fit = entry.kind is PathKind.FILE and 0 < entry.size <= request.max_bytes
            answer = await self._answer(entry, request) if is_fit else None
        return answer or await self._server.fetch(request)

    async def _answer(self, entry: RootEntry, request: Request) -> Response | None:
        """The file, or what the server says of it; None if that does not settle it."""
        kind = _kind_of(request)
        trust = self._trusted.get(kind) if kind and not self._judges_every else None
        if trust and trust.until > self._clock.now():
            body = await entry.read(entry.size)
            return _unasked(entry, body, trust) if body else None
        if self._judges_every and entry.size < WORTH_BYTES:
            return None
        answer = await self._server.fetch(_for_beginning(request))
        if answer.status != HTTPStatus.PARTIAL_CONTENT:
            return answer if answer.status != HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE else None
        body = await entry.read(entry.size)
        if not body or not _is_of(answer, entry, body):
            return None
        if kind:
            self._trust(kind, answer)
        return _whole(answer, body)

    def _trust(self, kind: tuple[str, str], answer: Response) -> None:
        if len(self._trusted) >= MAX_TRUSTED:
            self._trusted.clear()
        shared = tuple(field for field in answer.headers if field[0] in _SHARED)
        self._trusted[kind] = _Trust(shared, self._clock.now() + TRUST_SECONDS)


def _plain_names(request: Request) -> list[bytes] | None:
    """The names in the URL's path; None where the web server has more to say than of one file."""
    names = names_of(path_of(request.url).partition("?")[0])
    return None if names is None or b"" in names or request.may_cut else names


def _kind_of(request: Request) -> tuple[str, str] | None:
    """Folder and suffixes; None for a URL of which a file of the same kind says nothing."""
    path = path_of(request.url)
    if "?" in path or any(name.lower().startswith("if-") for name, _ in request.headers):
        return None
    folder, _, name = path.rpartition("/")
    return folder, ".".join(suffix for suffix in name.split(".")[1:] if len(suffix) <= MAX_SUFFIX)


def _for_beginning(request: Request) -> Request:
    return replace(request, headers=(*request.headers, ("Range", f"bytes=0-{PROOF_BYTES - 1}")))


def _is_of(answer: Response, entry: RootEntry, body: bytes) -> bool:
    """Whether the server shows this file, as it lies there."""
    size = min(PROOF_BYTES, entry.size)
    return (
        answer.header("content-range") == f"bytes 0-{size - 1}/{entry.size}"
        and answer.header("last-modified") == entry.modified
        and not answer.header("content-encoding")
        and answer.body == body[:size]
    )


def _whole(answer: Response, body: bytes) -> Response:
    """What the server would have answered without a range."""
    fields = [field for field in answer.headers if field[0] not in _OF_THE_RANGE]
    whole = answer_of(HTTPStatus.OK, body, (*fields, ("content-length", str(len(body)))))
    return replace(whole, seconds=answer.seconds, wire_bytes=answer.wire_bytes, is_http2=answer.is_http2)


def _unasked(entry: RootEntry, body: bytes, trust: _Trust) -> Response:
    fields = (("last-modified", entry.modified), ("content-length", str(len(body))))
    return answer_of(HTTPStatus.OK, body, (*trust.headers, *fields))
