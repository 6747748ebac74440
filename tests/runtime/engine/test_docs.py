"""The page on rules: all is documented, and its examples do what it says they do."""

import re
from pathlib import Path

import pytest
from tests.runtime.engine.running import running

from sterna.crawler.clp import read_constructs, tokens
from sterna.crawler.facts import Fact, Symbol, Value, decode
from sterna.crawler.rules import CONSTRUCTS, FUNCTIONS, TEMPLATES
from sterna.model import Link, Links, Source, Target
from sterna.runtime.engine.library import ALLOWED, HIDDEN
from sterna.runtime.engine.messages import PageView, Verdict

PAGE = (Path(__file__).parents[3] / "docs" / "rules.md").read_text()
EXAMPLES = re.findall(r"^```clips\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
VIEW = PageView(
    url="https://www.example.org/help/",
    site="https://www.example.org",
    status=200,
    content_type="text/html",
    size=4123,
    depth=2,
    referrer="https://www.example.org/",
    title="Help for patients",
    description="Where to go",
    language="en",
    keywords=("clinic", "doctor"),
    headings=("Help", "Our clinic"),
    text="Our clinic has two doctors. Ask the CLINIC by phone: 555-0100.",
    html="<h1>Help</h1>",
    links=Links.of(
        Link("https://www.example.org/doctors.html", "Doctors"),
        Link("https://www.example.org/map.pdf", "Map", "nofollow"),
        Link("https://other.example.com/", "Elsewhere"),
    ),
    extracts=(("phone", ("555-0100",)),),
)


def wanted(example: str) -> list[str]:
    """What the lines after the arrows say."""
    said = [line.removeprefix("; =>").strip() for line in example.splitlines() if line.startswith("; =>")]
    return [line for line in said if line]


def shown(value: Value) -> str:
    if isinstance(value, Symbol):
        return value.name
    return f'"{value}"' if isinstance(value, str) else str(value)


def written(fact: Fact) -> str:
    """A fact as CLIPS writes it."""
    fields = [shown(value) for value in fact.values]
    for name, value in fact.slots or ():
        fields.append(f"({' '.join([name, *map(shown, value if isinstance(value, tuple) else (value,))])})")
    return f"({' '.join([fact.template, *fields])})"


def told(verdict: Verdict) -> list[str]:
    """A verdict in lines as the page has them."""
    kept = {True: ["keep"], False: ["drop"], None: []}[verdict.is_kept]
    return [
        *kept,
        *([] if verdict.follows_links else ["follow-none"]),
        *(f"follow {url} {priority}" for url, priority in verdict.follow),
        *(f"priority {url} {priority}" for url, priority in verdict.priorities),
        *(f"row {written(decode(row))}" for row in verdict.rows),
        *(f"log {line}" for line in verdict.log),
    ]


@pytest.mark.parametrize("example", EXAMPLES, ids=[each.split("\n(")[-1][:40] for each in EXAMPLES])
def test_an_example_does_what_the_page_says(example: str) -> None:
    assert "; =>" in example
    crawler = running(example)
    lines = []
    for line in wanted(example):
        if line.startswith("request "):
            url = line.split()[1]
            is_admitted, _ = crawler.engine.admits(Target(url))
            lines.append(f"request {url} {'admitted' if is_admitted else 'refused'}")
    verdict = crawler.engine.judge(VIEW)
    assert verdict.error_count == 0
    assert sorted([*lines, *told(verdict)]) == sorted(wanted(example))


def test_every_function_has_a_heading_and_an_example() -> None:
    headings = set(re.findall(r"`\((\S+?)[ )]", "\n".join(re.findall(r"^### .*$", PAGE, re.MULTILINE))))
    assert headings == FUNCTIONS
    used = {
        token.text
        for example in EXAMPLES
        for construct in read_constructs((Source("rules.md", example),))
        for token in tokens(construct.form)
    }
    assert used >= FUNCTIONS


def test_every_template_slot_construct_and_builtin_is_named() -> None:
    prose = re.sub(r"^```.*?^```$", "", PAGE, flags=re.MULTILINE | re.DOTALL)
    named = set(re.findall(r"`([^`]+)`", prose))
    for template, slots in TEMPLATES.items():
        assert {template, *slots} <= named
    assert set(CONSTRUCTS) <= named
    table = PAGE.partition("## Functions of CLIPS")[2].partition("\nThere is nothing else")[0]
    assert set(re.findall(r"`([^`]+)`", table)) == ALLOWED - HIDDEN


def test_every_decision_point_is_named() -> None:
    for point in ("schedule", "fetch", "parse", "follow", "keep"):
        assert re.search(rf"^\| {point} \|", PAGE, re.MULTILINE)
