"""The page's service: a request comes in, HTML or JSON goes out, and nothing that is asked breaks it."""

import logging
from collections.abc import Mapping
from functools import partial

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from sterna.errors import SternaError
from sterna.search.page.answers import JSON_TYPE, PROBLEM_TYPE, Health, encode, problem_of
from sterna.search.page.api import describe
from sterna.search.page.asking import BadQuestion, Question, api_question, page_question
from sterna.search.page.files import FOR_EVER, ICON, STYLE, Asset
from sterna.search.page.guard import Guard
from sterna.search.page.html import Face, problem_page, results_page, start_page
from sterna.search.page.interface import Bounds, Searches
from sterna.search.page.pool import Busy, Desk, TooSlow
from sterna.search.results import Found

RETRY_SECONDS = 5
_FOR_PROGRAMS = ("/api/", "/healthz", "/openapi.json")
_HTML_TYPE = "text/html; charset=utf-8"

_log = logging.getLogger(__name__)


def make_app(searcher: Searches, *, name: str, is_local: bool, bounds: Bounds | None = None) -> ASGIApp:
    """The app for a collection of this name; called inside a running loop."""
    bounds = bounds or Bounds()
    service = _Service(searcher, Face(name=name, bounds=bounds))
    app = Starlette(
        routes=service.routes(),
        exception_handlers={
            HTTPException: service.on_http_error,
            BadQuestion: service.on_bad_question,
            Busy: service.on_busy,
            TooSlow: service.on_too_slow,
            SternaError: service.on_sterna_error,
            Exception: service.on_mistake,
        },
    )
    app.router.redirect_slashes = False  # what is not there is not there
    return Guard(app, is_local=is_local)


class _Service:
    def __init__(self, searcher: Searches, face: Face) -> None:
        bounds = face.bounds
        self._searcher = searcher
        self._face = face
        self._desk = Desk(at_once=bounds.searches, waiting=bounds.waiting, seconds=bounds.seconds)
        self._description = msgspec.json.encode(describe(face.name, bounds))

    def routes(self) -> list[Route]:
        return [
            Route("/", self.page),
            Route("/api/search", self.api),
            Route("/openapi.json", self.description),
            Route("/healthz", self.health),
            Route("/robots.txt", self.robots),
            *(Route(each.path, partial(self.file, asset=each)) for each in (STYLE, ICON)),
        ]

    # -- what is asked for ---------------------------------------------------------------------------------

    async def page(self, request: Request) -> Response:
        question = page_question(request.query_params, self._face.bounds)
        if question is None:
            count = await self._desk.do(self._searcher.page_count)
            return _html(start_page(self._face, page_count=count))
        return _html(results_page(self._face, await self._search(question)))

    async def api(self, request: Request) -> Response:
        question = api_question(request.query_params, self._face.bounds)
        return Response(encode(await self._search(question)), media_type=JSON_TYPE)

    async def description(self, request: Request) -> Response:
        return Response(self._description, media_type=JSON_TYPE)

    async def health(self, request: Request) -> Response:
        count = await self._desk.do(self._searcher.page_count)
        return Response(encode(Health(pages=count)), media_type=JSON_TYPE)

    async def robots(self, request: Request) -> Response:
        return PlainTextResponse("User-agent: *\nDisallow: /\n")  # a crawler would never come to an end here

    async def file(self, request: Request, *, asset: Asset) -> Response:
        headers = {"Cache-Control": FOR_EVER, "Content-Type": asset.media_type}
        return Response(asset.content, headers=headers)

    async def _search(self, question: Question) -> Found:
        search = partial(self._searcher.search, question.words, limit=question.limit, offset=question.offset)
        return await self._desk.do(search)

    # -- what goes wrong -----------------------------------------------------------------------------------

    async def on_http_error(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        told = {404: "There is nothing at this address.", 405: "Here one can only read: GET or HEAD."}
        return self._wrong(
            request, error.status_code, told.get(error.status_code, error.detail), error.headers
        )

    async def on_bad_question(self, request: Request, error: Exception) -> Response:
        return self._wrong(request, 400, str(error))

    async def on_busy(self, request: Request, error: Exception) -> Response:
        return self._wrong(
            request, 503, "Too many searches are waiting: try again in some seconds.", _later()
        )

    async def on_too_slow(self, request: Request, error: Exception) -> Response:
        seconds = self._face.bounds.seconds
        told = f"The search was given up after {seconds:g} seconds: try it with fewer or rarer words."
        return self._wrong(request, 503, told, _later())

    async def on_sterna_error(self, request: Request, error: Exception) -> Response:
        _log.error("a search failed: %s", error)  # it names files, which are the owner's business
        told = (
            "The index cannot be searched now. Whoever runs this page finds the reason where it was started."
        )
        return self._wrong(request, 503, told, _later())

    async def on_mistake(self, request: Request, error: Exception) -> Response:
        return self._wrong(request, 500, "That is a mistake of this page, not yours.")

    def _wrong(
        self, request: Request, status: int, detail: str, headers: Mapping[str, str] | None = None
    ) -> Response:
        problem = problem_of(status, detail)
        if request.scope["path"].startswith(_FOR_PROGRAMS):
            return Response(encode(problem), status, headers, media_type=PROBLEM_TYPE)
        words = request.query_params.get("q", "")[: self._face.bounds.letters]
        return _html(problem_page(self._face, problem.title, detail, words=words), status, headers)


def _html(text: str, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(text.encode(), status, headers, media_type=_HTML_TYPE)


def _later() -> Mapping[str, str]:
    return {"Retry-After": str(RETRY_SECONDS)}
