"""What follows from a changed errand, by what changed."""

from typing import Any

import pytest
from msgspec.structs import replace

from sterna.crawler.compiler import crawler_of_fields
from sterna.home.changes import Changes, Errand, changes_between
from sterna.model import Keep, Predicate, Program, Scope, Selector, Source

TERNS = Predicate("like", "title", ("%tern%",))
KEYWORDS = Predicate("=", "description", ("tern",))
ALL = crawler_of_fields("all").program


def errand(program: Program = ALL, name: str = "terns", **scope: Any) -> Errand:
    return Errand(name, Scope(**scope), program)


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ({"stay": "site"}, {"stay": "domain"}),
        ({"include": ("a",)}, {"include": ("a", "b")}),
        ({"include": ("a",)}, {}),
        ({"include": ("a",)}, {"include": ("b",)}),
        ({"exclude": ("a", "b")}, {"exclude": ("b",)}),
        ({"subtrees": ("/a",)}, {"subtrees": ("/a", "/b")}),
        ({"use_sitemaps": False}, {}),
    ],
)
def test_wider_scope_follows_what_was_left_out_and_a_narrower_one_nothing(
    before: dict[str, Any], now: dict[str, Any]
) -> None:
    assert changes_between(errand(**before), errand(**now)).follows_links
    if set(before.get("include", ())) != {"a"} or now != {"include": ("b",)}:
        narrowed = changes_between(errand(**now), errand(**before))
        assert (narrowed.names, len(narrowed.narrowed), narrowed.has_work) == ((), 1, False)


def test_greater_depth_needs_the_ledger_alone() -> None:
    found = changes_between(errand(max_depth=1), errand(max_depth=2))
    assert found == Changes(names=("--max-depth",), goes_deeper=True)


def test_links_that_the_archive_lacks_are_found_by_fetching() -> None:
    old: dict[str, Any] = {"include": ("a",)}
    new: dict[str, Any] = {"include": ("a", "b")}
    for program in (Program(keep=Keep(fields=("title",))), replace(ALL, rules=(Source("r", ""),))):
        found = changes_between(errand(program, **old), errand(program, **new))
        assert (found.follows_links, found.fetches_all) == (False, True)
    found = changes_between(errand(drop_params=("utm",)), errand())
    assert (found.follows_links, found.fetches_all) == (False, True)
    selective = replace(ALL, select=TERNS)
    found = changes_between(errand(selective, **old), errand(selective, **new))
    assert (found.follows_links, found.fetches_unkept, found.fetches_all) == (True, True, False)


def test_condition_is_judged_by_the_archive_if_it_has_enough() -> None:
    found = changes_between(errand(), errand(replace(ALL, select=TERNS)))
    assert (found.judges_pages, found.fetches_unkept, found.fetches_all) == (True, False, False)
    found = changes_between(errand(replace(ALL, select=TERNS)), errand())
    assert (found.judges_pages, found.fetches_unkept, found.fetches_all) == (False, True, False)
    titles = replace(ALL, keep=Keep(fields=("title",)))
    assert changes_between(errand(titles), errand(replace(titles, select=KEYWORDS))).fetches_all


def test_more_to_keep_is_fetched_and_less_is_not() -> None:
    few = replace(ALL, keep=Keep(fields=("title", "links"), share=0.5))
    for more in (Keep(fields=("title", "html", "links")), Keep(selectors=(Selector("a", "a"),))):
        assert changes_between(errand(few), errand(replace(few, keep=more))).fetches_all
    assert changes_between(errand(ALL), errand(few)) == Changes()


def test_other_crawler_leaves_the_pages_of_the_first_one_alone() -> None:
    other = errand(replace(ALL, select=TERNS), name="other")
    assert changes_between(errand(), other) == Changes()
