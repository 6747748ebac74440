"""The description of the API (OpenAPI 3.1), made from the records that it answers."""

from typing import Any

import msgspec

from sterna import __version__
from sterna.search.page.answers import JSON_TYPE, PROBLEM_TYPE, Health, Problem
from sterna.search.page.interface import Bounds
from sterna.search.results import Found

_SYNTAX = 'Words; "a phrase", title:word, site:host and -word are understood.'


def describe(name: str, bounds: Bounds) -> dict[str, Any]:
    """The document, as data."""
    (found, health, problem), components = msgspec.json.schema_components(
        (Found, Health, Problem), ref_template="#/components/schemas/{name}"
    )
    wrong = {
        "400": _answer("A parameter is missing or out of bounds", PROBLEM_TYPE, problem),
        "503": _answer("The search took too long, or too many are waiting", PROBLEM_TYPE, problem),
        "default": _answer("Anything else that is wrong", PROBLEM_TYPE, problem),
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": f"Search in {name}", "version": __version__},
        "paths": {
            "/api/search": {
                "get": {
                    "operationId": "search",
                    "summary": "Pages in which the words are found, the best first",
                    "parameters": _parameters(bounds),
                    "responses": {"200": _answer("What was found", JSON_TYPE, found), **wrong},
                }
            },
            "/healthz": {
                "get": {
                    "operationId": "health",
                    "summary": "Whether pages can be searched",
                    "responses": {"200": _answer("They can", JSON_TYPE, health), **wrong},
                }
            },
        },
        "components": {"schemas": components},
    }


def _parameters(bounds: Bounds) -> list[dict[str, Any]]:
    text = {"type": "string", "minLength": 1, "maxLength": bounds.letters}
    return [
        _parameter("q", _SYNTAX, text, is_required=True),
        _parameter("limit", "How many hits at most.", _integer(1, bounds.api_hits, bounds.hits)),
        _parameter("offset", "How many hits to leave out before.", _integer(0, bounds.reach, 0)),
    ]


def _integer(least: int, most: int, default: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": least, "maximum": most, "default": default}


def _parameter(name: str, told: str, schema: dict[str, Any], *, is_required: bool = False) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": is_required, "description": told, "schema": schema}


def _answer(told: str, media_type: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": told, "content": {media_type: {"schema": schema}}}
