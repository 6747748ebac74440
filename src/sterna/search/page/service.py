"""The search page as a web service: HTML for people, JSON for programs, and bounds that no request breaks."""

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import TypeVar

import msgspec

from sterna.errors import SternaError
from sterna.search.page import api
from sterna.search.page.api import JSON_TYPE, Bounds, SearchRequest, encode
from sterna.search.page.html import ICON, STYLE, Face, problem_page, results_page, start_page
from sterna.search.page.sql import Queries, Schema
from sterna.search.page.sql_html import sql_page
from sterna.search.results import Found, Searches
from sterna.web.http_app import TEXT_TYPE, App, Handler, Headers, HttpError, HttpRequest, HttpResponse
from sterna.web.http_server import Server, make_server

MAX_CONNECTIONS = 256
KEEP_ALIVE_SECONDS = 15
HEAD_SECONDS = 15.0
GRACE_SECONDS = 6  # longer than a search may take
RETRY_SECONDS = 5

_POLICY = "style-src 'self'; img-src 'self'; form-action 'self'"
_FOR_PROGRAMS = ("/api/", "/healthz", "/openapi.json", "/sql.")
_LATER: Headers = (("retry-after", str(RETRY_SECONDS)),)
_ROBOTS = b"User-agent: *\nDisallow: /\n"  # the links of result pages never end

_log = logging.getLogger(__name__)
T = TypeVar("T")


def make_app(
    searcher: Searches,
    *,
    name: str,
    is_local: bool,
    bounds: Bounds | None = None,
    queries: Queries | None = None,
) -> App:
    """The app for a collection of this name; with a page for SQL if there are `queries`."""
    face = Face(name=name, bounds=bounds or Bounds(), has_sql=queries is not None)
    service = _Service(searcher, face, queries)
    return App(service.routes(), policy=_POLICY, is_local=is_local, show_error=service.show_error)


def page_server(app: App) -> Server:
    return make_server(
        app,
        head_seconds=HEAD_SECONDS,
        connections=MAX_CONNECTIONS,
        keep_alive_seconds=KEEP_ALIVE_SECONDS,
        grace_seconds=GRACE_SECONDS,
    )


def _sql_of(request: HttpRequest) -> str:
    if not (sql := request.query.get("sql", "").strip()):
        raise HttpError(400, "sql is missing: write a query, such as sql=SELECT+url+FROM+page")
    return sql


class _Service:
    def __init__(self, searcher: Searches, face: Face, queries: Queries | None) -> None:
        bounds = face.bounds
        self._searcher = searcher
        self._face = face
        self._queries = queries
        self._schema = Schema(queries) if queries else None
        self._free = asyncio.Semaphore(bounds.searches)
        self._waiting = 0  # requests whose search has not begun; changed by `_do` alone
        self._description = msgspec.json.encode(api.describe(face.name, bounds))

    def routes(self) -> dict[str, Handler]:
        sql: dict[str, Handler] = {}
        if self._queries:
            sql = {"/sql": self.sql, "/sql.csv": self.sql_csv, "/sql.json": self.sql_json}
        return {
            **sql,
            "/": self.page,
            "/api/search": self.search_api,
            "/openapi.json": self.description,
            "/healthz": self.health,
            "/robots.txt": self.robots,
            **{asset.path: asset.answer for asset in (STYLE, ICON)},
        }

    async def page(self, request: HttpRequest) -> HttpResponse:
        wanted = api.page_request(request.query, self._face.bounds)
        if wanted is None:
            count = await self._do(self._searcher.page_count)
            return HttpResponse(body=start_page(self._face, page_count=count).encode())
        return HttpResponse(body=results_page(self._face, await self._search(wanted)).encode())

    async def search_api(self, request: HttpRequest) -> HttpResponse:
        wanted = api.api_request(request.query, self._face.bounds)
        return HttpResponse(body=encode(await self._search(wanted)), media_type=JSON_TYPE)

    async def sql(self, request: HttpRequest) -> HttpResponse:
        assert self._queries and self._schema
        sql, table, error, status = request.query.get("sql", "").strip(), None, "", 200
        reading = asyncio.ensure_future(self._schema.tables())
        if sql:
            try:
                table = await self._queries.table(sql)
            except HttpError as wrong:
                error, status = wrong.detail, wrong.status
        tables = await reading
        page = sql_page(self._face, self._queries.bounds, sql=sql, tables=tables, table=table, error=error)
        return HttpResponse(status=status, body=page.encode(errors="replace"))

    async def sql_csv(self, request: HttpRequest) -> HttpResponse:
        assert self._queries
        body = await self._queries.csv(_sql_of(request))
        shown = (("content-disposition", 'attachment; filename="query.csv"'),)
        return HttpResponse(body=body, media_type="text/csv; charset=utf-8", headers=shown)

    async def sql_json(self, request: HttpRequest) -> HttpResponse:
        assert self._queries
        return HttpResponse(body=await self._queries.json(_sql_of(request)), media_type=JSON_TYPE)

    async def description(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse(body=self._description, media_type=JSON_TYPE)

    async def health(self, request: HttpRequest) -> HttpResponse:
        count = await self._do(self._searcher.page_count)
        return HttpResponse(body=encode(api.Health(pages=count)), media_type=JSON_TYPE)

    async def robots(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse(body=_ROBOTS, media_type=TEXT_TYPE)

    def show_error(self, request: HttpRequest, error: HttpError) -> HttpResponse:
        """The error as a page with the form, or as JSON where programs ask."""
        title = HTTPStatus(error.status).phrase
        if request.path.startswith(_FOR_PROGRAMS):
            body = encode(api.Problem(title=title, status=error.status, detail=error.detail))
            media_type = api.PROBLEM_TYPE
            return HttpResponse(status=error.status, body=body, media_type=media_type, headers=error.headers)
        words = request.query.get("q", "")[: self._face.bounds.letters]
        page = problem_page(self._face, title, error.detail, words=words)
        return HttpResponse(status=error.status, body=page.encode(), headers=error.headers)

    async def _search(self, wanted: SearchRequest) -> Found:
        return await self._do(
            partial(self._searcher.search, wanted.words, limit=wanted.limit, offset=wanted.offset)
        )

    # -- threads: some searches at once, some waiting, none for longer than its time

    async def _do(self, work: Callable[[], T]) -> T:
        """The result of blocking work; HttpError if it takes too long, fails, or too many are waiting."""
        bounds = self._face.bounds
        if self._free.locked() and self._waiting >= bounds.waiting:
            raise HttpError(503, "Too many searches are waiting: try again in a few seconds.", _LATER)
        try:
            async with asyncio.timeout(bounds.seconds):
                self._waiting += 1
                try:
                    await self._free.acquire()
                finally:
                    self._waiting -= 1
                return await self._start(work)
        except TimeoutError:
            detail = f"The search timed out after {bounds.seconds:g} seconds: try fewer or rarer words."
            raise HttpError(503, detail, _LATER) from None
        except SternaError as error:
            _log.error("a search failed: %s", error)  # for the operator alone: it names files
            detail = (
                "The index cannot be searched now. The operator finds the reason in the log of this page."
            )
            raise HttpError(503, detail, _LATER) from error

    def _start(self, work: Callable[[], T]) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def finish(settle: Callable[[], None]) -> None:
            self._free.release()
            if not answer.done():
                settle()

        def run() -> None:
            try:
                settle = partial(answer.set_result, work())
            except BaseException as error:  # a Rust panic is no Exception; it too belongs to the request
                settle = partial(answer.set_exception, error)
            with suppress(RuntimeError):  # the loop is closed: nobody waits for the result
                loop.call_soon_threadsafe(finish, settle)

        # A thread cannot be cancelled: its place stays taken until it ends, even if nobody waits for it any
        # more. As a daemon it does not delay the end of the process.
        threading.Thread(target=run, name="search", daemon=True).start()
        return answer
