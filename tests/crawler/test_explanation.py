"""The plan of a crawler as a reader sees it."""

from pathlib import Path

import pytest

from sterna.crawler.compiler import crawler_of_fields
from sterna.crawler.explanation import WIDTH, explain
from sterna.crawler.spec import Budget, Css, Keep, Politeness, Scope, Select, Spec
from sterna.model import Crawler, Program, Source

RULES = """(deftemplate clinic (slot url) (slot title))

(defrule found
   (page (url ?url) (title ?title) (selected TRUE))
   =>
   (assert (clinic (url ?url) (title ?title)))
   (keep))

(defrule polite
   (request (url ?url) (depth ?depth&:(> ?depth 9)))
   =>
   (refuse ?url))
"""

FULL = Spec(
    name="health",
    seeds=("https://www.example.org/", "clinic.example.net"),
    facts=({"template": "topic", "values": ["health"]},),
    journey=True,
    rules=("health.clp",),
    gather=("gather.clp",),
    order="best",
    scope=Scope(
        stay="domain",
        include=("/health/", "/care/"),
        exclude=(r"\.pdf$",),
        subtrees=("/health/",),
        depth=4,
        pages=1000,
        sitemaps=False,
    ),
    select=Select(
        keywords_any=("clinic", "hospital"),
        languages=("en", "pt-BR"),
        content_types=("text/html",),
        where="depth <= 2 AND size > 100",
        least_change=0.25,
    ),
    keep=Keep(
        fields=("title", "text"),
        selectors={"price": ".price", "picture": Css(css="img", attribute="src")},
        share=0.3,
    ),
    politeness=Politeness(delay=2, response_factor=10, block=("ads.example.org",)),
    budget=Budget(cpu_seconds=10, wall_seconds=300.5, memory_bytes=64_000_000),
)

FULL_PLAN = r"""The crawler 'health'

 1. It starts at:
      - https://www.example.org/
      - https://clinic.example.net/
    It visits the sites one after the other and carries its facts along: https://www.example.org,
    https://clinic.example.net. It starts with 1 fact.
 2. It follows links within the domains of the sites it starts from. It goes at most 4 links deep.
    URLs that its rules rank highest come first. It does not read the sitemaps that robots.txt
    names.
 3. A URL is fetched only if:
      - it is below /health/
      - it matches /health/ or /care/
      - it does not match \.pdf$
      - its depth is at most 2
      - its rules do not refuse it
    Start pages are always fetched.
 4. A page is wanted if all of these hold:
      - its type is one of "text/html"
      - its language is one of "en", "pt-BR"
      - the page has a word of "clinic", "hospital"
      - its depth is at most 2
      - its size is more than 100
    A known page counts as unchanged if less than 25 % of its words changed.
 5. These fields of a wanted page travel home: URL and status, title, text. Only the first 30 % of
    its text and html travels. So do the results of these CSS selectors:
      - picture: the attribute src of img
      - price: the text of .price
    Of an unwanted page home learns only that it was seen.
 6. Its rules see every page:
      - health.clp: rules found, polite; templates clinic
    They decide last: within its scope they may keep, drop and follow anything.
 7. At home, rules process the returned facts and create facts and start pages for later visits:
      - gather.clp: rules more
 8. Between requests to a site it waits 2 seconds, or 10 times the last response time if that is
    longer. It obeys robots.txt. It never contacts ads.example.org.
 9. The crawl ends at 1,000 pages. At each site it may use at most:
      - 10 seconds of CPU time
      - 300.5 seconds of elapsed time
      - 64,000,000 bytes of memory for its rules
    What it found by then is kept.

health.clp:

    (deftemplate clinic (slot url) (slot title))

    (defrule found
       (page (url ?url) (title ?title) (selected TRUE))
       =>
       (assert (clinic (url ?url) (title ?title)))
       (keep))

    (defrule polite
       (request (url ?url) (depth ?depth&:(> ?depth 9)))
       =>
       (refuse ?url))

gather.clp:

    (defrule more (clinic (url ?url)) => (follow ?url))"""

SHORT_PLAN = """The crawler 'news'

 1. It starts at:
      - https://www.example.org/
 2. It follows links within the sites it starts from: the same scheme, host and port. It goes at
    most 64 links deep. Pages fewer links away come first. It reads the sitemaps that robots.txt
    names.
 3. Every URL that it finds is fetched.
 4. Every page is wanted.
 5. These fields of a wanted page travel home: URL and status, title, text, language, links.
 6. Between requests to a site it waits 1 second, or 5 times the last response time if that is
    longer. It obeys robots.txt."""

DEFAULT_PLAN = """The crawler 'default'

 1. It starts where it is sent.
 2. It follows links within the sites it starts from: the same scheme, host and port. It goes at
    most 64 links deep. Pages fewer links away come first. It reads the sitemaps that robots.txt
    names.
 3. Every URL that it finds is fetched.
 4. Every page is wanted.
 5. These fields of a wanted page travel home: URL and status, language, links."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "health.clp").write_text(RULES)
    (tmp_path / "gather.clp").write_text("(defrule more (clinic (url ?url)) => (follow ?url))\n")
    return tmp_path


def test_whole_plan_is_told_in_words_and_then_the_rules(folder: Path) -> None:
    assert explain(FULL, folder) == FULL_PLAN


def test_short_spec_has_a_short_plan() -> None:
    assert explain(Spec(name="news", seeds=("https://www.example.org/",))) == SHORT_PLAN


def test_crawler_without_its_spec_is_explained_as_far_as_it_goes() -> None:
    assert explain(crawler_of_fields("links")) == DEFAULT_PLAN


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (Spec(name="h", scope=Scope(stay="any")), "It follows links wherever they lead."),
        (Spec(name="h", scope=Scope(depth=1)), "It goes at most 1 link deep."),
        (
            Spec(name="h", select=Select(languages=("en",))),
            'A page is wanted if: - its language is one of "en"',
        ),
        (Spec(name="h", politeness=Politeness(gentle=True)), "it waits 30 seconds, or 5 times"),
        (
            Spec(name="h", politeness=Politeness(delay=0)),
            "It does not wait between requests: use this only for",
        ),
        (Spec(name="h", politeness=Politeness(delay=3, response_factor=0)), "it waits 3 seconds. It obeys"),
        (
            Spec(name="h", politeness=Politeness(strict_robots=True)),
            "It obeys robots.txt. It keeps away from a site whose robots.txt is refused.",
        ),
        (Spec(name="h", politeness=Politeness(robots=False)), "It ignores robots.txt: use this only"),
        (Spec(name="h", scope=Scope(pages=10)), "The crawl ends at 10 pages."),
        (Spec(name="h", budget=Budget(facts=10)), "may use at most: - 10 facts of its own"),
        (
            Spec(name="h", rules=("health.clp",), loading="rules"),
            "It follows no links by itself: it fetches only what its rules load.",
        ),
    ],
)
def test_each_part_of_a_spec_is_said(folder: Path, spec: Spec, said: str) -> None:
    assert said in " ".join(explain(spec, folder).split())


def test_lines_are_as_long_as_a_screen_is_wide_but_for_what_cannot_be_broken(folder: Path) -> None:
    url = "https://www.example.org/" + "a" * 150
    words = tuple(f"word{number}" for number in range(60))
    lines = explain(Spec(name="h", seeds=(url,), select=Select(keywords_any=words))).splitlines()
    assert [line.strip() for line in lines if len(line) > WIDTH] == [f"- {url}"]


def test_rules_of_a_stranger_give_a_terminal_nothing_to_obey() -> None:
    rules = (Source("a.clp", '(defrule a (page) => (log-line "\x1b[2J"))'),)
    text = explain(Crawler(program=Program(rules=rules)))
    assert r'(log-line "\x1b[2J")' in text
    assert "\x1b" not in text
