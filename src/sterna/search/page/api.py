"""The JSON API: what a request may ask, what it answers, and its description (OpenAPI 3.1) made from both."""

import json
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from sterna.model import Record
from sterna.search.results import Found
from sterna.version import __version__
from sterna.web.http_app import HttpError

JSON_TYPE = "application/json"
PROBLEM_TYPE = "application/problem+json"

_NUMBER = re.compile(r"[0-9]{1,9}")
_SYNTAX = 'Words; "a phrase", title:word, site:host and -word are understood.'


class Bounds(Record, frozen=True, kw_only=True):
    """Limits of one request, and of all requests together."""

    letters: int = 500  # of a query
    hits: int = 10  # on a page
    pages: int = 100  # of results
    api_hits: int = 100  # in an answer of the API
    seconds: float = 5.0  # from the request to its answer
    searches: int = 4  # at once
    waiting: int = 32  # requests whose search has not begun

    @property
    def reach(self) -> int:
        """How many hits can be seen, over all pages."""
        return self.pages * self.hits


# -- what a request asks -----------------------------------------------------------------------------------


class SearchRequest(Record, frozen=True, kw_only=True):
    """Words, and which part of the hits is wanted."""

    words: str
    limit: int
    offset: int = 0


def page_request(params: Mapping[str, str], bounds: Bounds) -> SearchRequest | None:
    """What `/?q=WORDS&page=N` asks; None if there are no words."""
    words = _words(params, bounds)
    if not words:
        return None
    number = _number(params, "page", least=1, most=bounds.pages, default=1)
    return SearchRequest(words=words, limit=bounds.hits, offset=(number - 1) * bounds.hits)


def api_request(params: Mapping[str, str], bounds: Bounds) -> SearchRequest:
    """What `/api/search?q=WORDS&limit=N&offset=N` asks."""
    words = _words(params, bounds)
    if not words:
        raise HttpError(400, "q is missing: say what to search for, such as q=tern")
    limit = _number(params, "limit", least=1, most=bounds.api_hits, default=bounds.hits)
    offset = _number(params, "offset", least=0, most=bounds.reach, default=0)
    return SearchRequest(words=words, limit=limit, offset=offset)


def _words(params: Mapping[str, str], bounds: Bounds) -> str:
    words = params.get("q", "")
    if len(words) > bounds.letters:
        raise HttpError(400, f"The query has {len(words):,} letters; the limit is {bounds.letters}.")
    return " ".join(words.replace("\0", " ").split())


def _number(params: Mapping[str, str], name: str, *, least: int, most: int, default: int) -> int:
    written = params.get(name)
    if written is None:
        return default
    # int() alone also accepts signs, spaces and digits of all scripts.
    if not _NUMBER.fullmatch(written) or not least <= int(written) <= most:
        raise HttpError(400, f"{name} must be a number from {least} to {most:,}.")
    return int(written)


# -- what it answers ---------------------------------------------------------------------------------------


class Problem(Record, frozen=True, array_like=False, kw_only=True):
    """Why a request failed (RFC 9457)."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str


class Health(Record, frozen=True, array_like=False, kw_only=True):
    """The index can be searched, with the number of its pages."""

    status: str = "ok"
    pages: int


def encode(answer: Found | Problem | Health) -> bytes:
    """The answer as JSON; lone surrogates in a text are replaced."""
    try:
        return msgspec.json.encode(answer)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(answer), ensure_ascii=False).encode("utf-8", "replace")


# -- its description ---------------------------------------------------------------------------------------


def describe(name: str, bounds: Bounds) -> dict[str, Any]:
    """The OpenAPI document, as data."""
    (found, health, problem), components = msgspec.json.schema_components(
        (Found, Health, Problem), ref_template="#/components/schemas/{name}"
    )
    errors = {
        "400": _response("A parameter is missing or out of bounds", PROBLEM_TYPE, problem),
        "503": _response("The search took too long, or too many are waiting", PROBLEM_TYPE, problem),
        "default": _response("Any other error", PROBLEM_TYPE, problem),
    }
    words = {"type": "string", "minLength": 1, "maxLength": bounds.letters}
    limit = {"type": "integer", "minimum": 1, "maximum": bounds.api_hits, "default": bounds.hits}
    offset = {"type": "integer", "minimum": 0, "maximum": bounds.reach, "default": 0}
    parameters = [
        {"name": "q", "required": True, "description": _SYNTAX, "schema": words},
        {"name": "limit", "required": False, "description": "Maximum number of hits.", "schema": limit},
        {"name": "offset", "required": False, "description": "Number of hits to skip.", "schema": offset},
    ]
    search = {
        "operationId": "search",
        "summary": "Pages that match the words, best first",
        "parameters": [{"in": "query", **each} for each in parameters],
        "responses": {"200": _response("The hits", JSON_TYPE, found), **errors},
    }
    check = {
        "operationId": "health",
        "summary": "Whether the index can be searched",
        "responses": {"200": _response("It can be searched", JSON_TYPE, health), **errors},
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": f"Search in {name}", "version": __version__},
        "paths": {"/api/search": {"get": search}, "/healthz": {"get": check}},
        "components": {"schemas": components},
    }


def _response(description: str, media_type: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {media_type: {"schema": schema}}}
