"""Which URLs a scope admits."""

import pytest

from sterna.crawler.scope import ScopeRules
from sterna.errors import UsageError
from sterna.model import Scope

SITE = "https://www.example.org"


@pytest.mark.parametrize(
    ("scope", "path", "is_wanted"),
    [
        (Scope(), "/a", True),
        (Scope(include=("/docs/",)), "/docs/a", True),
        (Scope(include=("/docs/",)), "/a", False),
        (Scope(include=("/docs/", "/blog/")), "/blog/a", True),
        (Scope(exclude=(r"\.pdf$",)), "/a.pdf", False),
        (Scope(exclude=(r"\.pdf$",)), "/a.pdf?page=2", True),
        (Scope(include=("/docs/",), exclude=("/docs/old/",)), "/docs/old/a", False),
        (Scope(exclude=(r"(?i)\.PDF$", "(?P<a>x)", "(?P<a>y)")), "/z.pdf", False),
        (Scope(include=(r"^https://www\.example\.org/\d+$",)), "/12", True),
    ],
)
def test_include_and_exclude_are_looked_for_anywhere_in_the_url(
    scope: Scope, path: str, is_wanted: bool
) -> None:
    assert ScopeRules(scope).admits(SITE + path) is is_wanted


@pytest.mark.parametrize(
    ("subtree", "path", "is_wanted"),
    [
        ("/docs/", "/docs/", True),
        ("/docs/", "/docs/a/b?x=1", True),
        ("/docs/", "/docs", True),
        ("/docs", "/docs/a", True),
        ("/docs", "/docs?x=/docs/", True),
        ("/docs/", "/docsify/a", False),
        ("/docs/", "/a?to=/docs/", False),
        ("/docs/", "/", False),
        ("/", "/anything", True),
    ],
)
def test_subtree_admits_what_lies_below_it(subtree: str, path: str, is_wanted: bool) -> None:
    assert ScopeRules(Scope(subtrees=(subtree,))).admits(SITE + path) is is_wanted


def test_one_of_several_subtrees_is_enough() -> None:
    rules = ScopeRules(Scope(subtrees=("/docs/", "/blog/")))
    assert rules.admits(f"{SITE}/blog/1")
    assert not rules.admits(f"{SITE}/shop/1")


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("(", r"--exclude '\(' is not a valid RE2 expression"),
        ("(?=a)", "is not a valid RE2 expression"),
        (r"(a)\1", "is not a valid RE2 expression"),
        ("(?:abcdefgh){1000}", "--exclude .* too large"),
        ("\ud800", "--exclude .* half a surrogate pair"),
    ],
)
def test_expression_that_cannot_be_judged_in_linear_time_is_named(expression: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        ScopeRules(Scope(exclude=(expression,)))


@pytest.mark.parametrize("expression", ["(\n", "(\x1b[2J", "(" * 4_000])
def test_complaint_about_an_expression_is_one_line(expression: str) -> None:
    with pytest.raises(UsageError) as caught:
        ScopeRules(Scope(exclude=(expression,)))
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 2_100


def test_endless_path_is_never_wanted() -> None:
    assert not ScopeRules(Scope(include=("/",))).admits(SITE + "/a/b" * 8)
