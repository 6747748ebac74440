"""What is left of a predicate where little is known: it never loses a page."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.crawler.predicates import COMPARISONS, cases, grown, leaf, listed
from tests.crawler.rows import FIXED

from sterna.crawler.algebra import negated, prunable_of, prune_of, restricted
from sterna.crawler.grammar import COLUMNS, PageRow, columns_of
from sterna.crawler.predicate import Judge
from sterna.model import Predicate


@settings(FIXED, max_examples=60)
@given(case=cases(4), names=st.sets(st.sampled_from(list(COLUMNS)), min_size=3))
def test_what_few_columns_say_never_loses_a_page(
    case: tuple[list[PageRow], list[Predicate]], names: set[str]
) -> None:
    rows, several = case
    for predicate in several:
        weaker = restricted(predicate, names)
        if weaker:
            assert columns_of(weaker) <= names
            judge, weaker_judge = Judge(predicate), Judge(weaker)
            assert all(weaker_judge.judge(row) for row in rows if judge.judge(row))


depth_leaves = st.one_of(
    *(leaf(op, ["depth"], st.none() | st.integers(-1, 4)) for op in COMPARISONS),
    leaf("between", ["depth"], st.integers(-1, 4), st.integers(-1, 4)),
    listed(["depth"], st.none() | st.integers(-1, 4)),
    leaf("is_null", ["depth"]),
    leaf("=", ["site"], st.sampled_from(["https://a.org", "https://b.org"])),
    leaf("like", ["url"], st.sampled_from(["/a%", "%b%", "%"])),
)


@settings(FIXED, max_examples=150)
@given(
    predicate=depth_leaves | st.recursive(depth_leaves, grown, max_leaves=6),
    depth=st.integers(0, 5),
    url=st.sampled_from(["/a", "/b"]),
    site=st.sampled_from(["https://a.org", "https://b.org"]),
)
def test_pruning_loses_neither_a_page_nor_the_way_to_it(
    predicate: Predicate, depth: int, url: str, site: str
) -> None:
    wanted = PageRow(url=url, site=site, depth=depth)
    if Judge(predicate).judge(wanted) is True:
        if prunable := prunable_of(predicate):
            assert Judge(prunable).judge(wanted) is True
            assert Judge(prunable).judge(wanted._replace(depth=0, url="/start")) is True
        if prune := prune_of(predicate):
            assert all(
                Judge(prune).judge(PageRow(url="/way", site=site, depth=each)) for each in range(depth + 1)
            )


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (Predicate("<", "depth", (4,)), Predicate("<", "depth", (4,))),
        (Predicate("=", "depth", (2,)), Predicate("<=", "depth", (2,))),
        (Predicate("between", "depth", (2, 3)), Predicate("<=", "depth", (3,))),
        (Predicate(">", "depth", (1,)), None),
        (Predicate("not", parts=(Predicate(">", "depth", (3,)),)), Predicate("<=", "depth", (3,))),
        (Predicate("like", "url", ("%/docs/%",)), None),
        (Predicate("in", "site", ("https://a.org",)), Predicate("in", "site", ("https://a.org",))),
        (Predicate("or", parts=(Predicate("<", "depth", (4,)), Predicate("=", "status", (200,)))), None),
    ],
)
def test_only_depths_and_sites_prune(predicate: Predicate, expected: Predicate | None) -> None:
    assert prune_of(predicate) == expected


@pytest.mark.parametrize(
    "op", ["true", "false", "null", "=", "<>", "<", "<=", ">", ">=", "is_null", "is_distinct"]
)
def test_not_turns_everything_round(op: str) -> None:
    values = (2,) if op in COMPARISONS else ()
    predicate = Predicate(op, "depth" if values or op == "is_null" else "", values)
    assert negated(negated(predicate)) == predicate
    for depth in (None, 1, 2, 3):
        verdict = Judge(predicate).judge(PageRow(depth=depth))
        assert Judge(negated(predicate)).judge(PageRow(depth=depth)) is (
            None if verdict is None else not verdict
        )


def test_what_is_known_before_reading_can_spare_the_reading() -> None:
    select = Predicate(
        "and", parts=(Predicate("like", "url", ("%/docs/%",)), Predicate("contains", "text", ("clinic",)))
    )
    before_reading = frozenset({"url", "site", "depth", "referrer", "status", "content_type"})
    assert restricted(select, before_reading) == Predicate("like", "url", ("%/docs/%",))
