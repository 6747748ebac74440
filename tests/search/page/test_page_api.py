"""The API's description is true: every answer is one that it names, and fits it."""

from typing import Any

import pytest
from tests.search.page.fakes import BrokenSearcher, FakeSearcher, many_pages
from tests.search.page.hostile_hits import hostile_hits
from tests.search.page.page_requests import app_of, ask

from sterna.search.page.api import Bounds, describe
from sterna.search.results import Searches

_TYPES: dict[str, Any] = {
    "string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict
}  # fmt: skip
_KNOWN = {
    "$ref", "type", "properties", "required", "items", "title", "description", "default", "minimum",
    "maximum", "minLength", "maxLength",
}  # fmt: skip
DOCUMENT = describe("Terns", Bounds())


def check(value: Any, schema: dict[str, Any], where: str = "answer") -> None:
    """Fails unless the value fits and has nothing else, and if the schema has words that we do not know."""
    if "$ref" in schema:
        schema = DOCUMENT["components"]["schemas"][schema["$ref"].removeprefix("#/components/schemas/")]
    assert set(schema) <= _KNOWN, f"{where}: {schema}"
    assert isinstance(value, _TYPES[schema["type"]]), f"{where}: {value!r} is no {schema['type']}"
    assert schema["type"] == "boolean" or not isinstance(value, bool), where
    if isinstance(value, list):
        for number, item in enumerate(value):
            check(item, schema["items"], f"{where}[{number}]")
    elif isinstance(value, dict):
        assert set(schema["required"]) <= set(value) <= set(schema["properties"]), where
        for name, item in value.items():
            check(item, schema["properties"][name], f"{where}.{name}")


GOOD, BAD = FakeSearcher(many_pages(25)), BrokenSearcher(many_pages(1))


@pytest.mark.parametrize(
    ("searcher", "target", "status"),
    [
        (GOOD, "/api/search?q=select", 200),
        (GOOD, "/api/search?q=select&limit=100&offset=1000", 200),
        (GOOD, "/api/search?q=nothing", 200),
        (GOOD, "/api/search", 400),
        (GOOD, "/api/search?q=a&limit=x", 400),
        (BAD, "/api/search?q=a", 503),
        (FakeSearcher(hostile_hits()), "/api/search?q=word&limit=100", 200),
        (GOOD, "/healthz", 200),
    ],
    ids=["found", "bounds", "nothing", "no-q", "wrong-limit", "broken", "hostile", "health"],
)
async def test_answer_fits(searcher: Searches, target: str, status: int) -> None:
    answer = await ask(app_of(searcher), target)
    told = DOCUMENT["paths"][target.partition("?")[0]]["get"]["responses"][str(status)]["content"]
    assert (answer.status, [answer.headers["content-type"]]) == (status, list(told))
    check(answer.json, told[answer.headers["content-type"]]["schema"])


async def test_refusals_that_have_no_line_of_their_own_fit_the_default() -> None:
    answer = await ask(app_of(GOOD), "/api/search", method="POST")
    told = DOCUMENT["paths"]["/api/search"]["get"]["responses"]["default"]["content"]
    check(answer.json, told["application/problem+json"]["schema"])


async def test_document_is_served_and_names_the_bounds_in_force() -> None:
    bounds = Bounds(letters=7, api_hits=3, hits=2, pages=5)
    document = (await ask(app_of(GOOD, bounds=bounds), "/openapi.json")).json
    assert document["openapi"] == "3.1.0"
    words, limit, offset = document["paths"]["/api/search"]["get"]["parameters"]
    assert (words["required"], words["schema"]["maxLength"]) == (True, 7)
    assert (limit["schema"]["maximum"], limit["schema"]["default"]) == (3, 2)
    assert offset["schema"]["maximum"] == 10


def test_a_wrong_answer_would_be_noticed() -> None:
    schema = DOCUMENT["paths"]["/healthz"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    check({"status": "ok", "pages": 1}, schema)
    for wrong in ({"status": "ok"}, {"status": "ok", "pages": "1"}, {"status": "ok", "pages": 1, "more": 1}):
        with pytest.raises(AssertionError):
            check(wrong, schema)
