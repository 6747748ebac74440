"""What the API answers, as JSON: `Found` as it is, and these."""

import json
from http import HTTPStatus

import msgspec

from sterna.model import Record
from sterna.search.results import Found

JSON_TYPE = "application/json"
PROBLEM_TYPE = "application/problem+json"


class Problem(Record, frozen=True, array_like=False, kw_only=True):
    """Why there is no answer (RFC 9457)."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str


class Health(Record, frozen=True, array_like=False, kw_only=True):
    """That pages can be searched, and how many."""

    status: str = "ok"
    pages: int


def problem_of(status: int, detail: str) -> Problem:
    """The problem of an HTTP status."""
    return Problem(title=HTTPStatus(status).phrase, status=status, detail=detail)


def encode(answer: Found | Problem | Health) -> bytes:
    """The answer as JSON, also where a text holds half a surrogate."""
    try:
        return msgspec.json.encode(answer)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(answer), ensure_ascii=False).encode("utf-8", "replace")
