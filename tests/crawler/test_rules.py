"""What rules may hold, told from their text alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.crawler.clp import MAX_DEPTH, read_constructs
from sterna.crawler.rules import check_rules, needs_of, uses
from sterna.errors import RulesError
from sterna.model import Source


def of(text: str) -> tuple[Source, ...]:
    return (Source("rules.clp", text),)


GOOD = """
; a comment with ( and " in it
(deftemplate shop "what we look for" (slot url) (multislot goods))
(defglobal ?*found* = 0)
(deffacts first (topic "health ; no comment (here)") (topic clinic))
(deffunction twice (?x) (* 2 ?x))
(defrule keep-shops "keeps them"
  (declare (salience ?*found*))
  (topic ?word)
  ?p <- (page (url ?u&:(like ?u "%shop%")) (title ?t))
  (test (text-has ?word))
  =>
  (bind ?*found* (twice ?*found*))
  (keep) (emit shop ?u (page-links)))
"""


def test_good_rules_are_read_with_kind_name_and_line() -> None:
    found = [(each.kind, each.name, each.form.line) for each in check_rules(of(GOOD))]
    assert found == [
        ("deftemplate", "shop", 3),
        ("defglobal", "?*found*", 4),
        ("deffacts", "first", 5),
        ("deffunction", "twice", 6),
        ("defrule", "keep-shops", 7),
    ]


def test_the_text_of_a_construct_is_its_own() -> None:
    texts = [each.text for each in read_constructs(of('(a "x)") ; (b)\n(c (d))'))]
    assert texts == ['(a "x)")', "(c (d))"]


@pytest.mark.parametrize(
    ("text", "where", "words"),
    [
        ("\n(defclass A (is-a USER))", 2, "defclass A: is not allowed"),
        ("(defmodule A)", 1, "defmodule A: is not allowed"),
        ("(reset)", 1, "reset: is not allowed"),
        ("(defrule a =>)\n(system ls)", 2, "system ls: is not allowed"),
        ("\n\n(defrule a (logical (b)) => )", 3, "logical"),
        ("(defrule a (and (c)\n (not (logical (b)))) => )", 1, "logical"),
        ("(deftemplate page (slot x))", 1, "choose another name"),
        ("(deffunction text-has (?x) TRUE)", 1, "choose another name"),
        ("(deffacts a (b)\n (page (url x)))", 2, "only the crawl asserts"),
        ("(defrule a (b) => )\n(defrule a (c) => )", 2, "twice"),
        ('(defrule "a" (b) => )', 1, "needs a symbol for a name"),
        ("(defrule)", 1, "needs a symbol for a name"),
        ("(defrule a (b) (c))", 1, "=>"),
        ("(defrule a\n (MAIN::page) => )", 2, "modules"),
        ("(defrule a (b) => (c)", 1, r"without '\)'"),
        ("(defrule a (b) => ))", 1, r"without '\('"),
        ('(defrule a\n (b "c) => )', 2, "unterminated string"),
        ("hello (defrule a => )", 1, "outside all constructs"),
        ("(defrule a (b) => (c\0d))", 1, "invalid character"),
        ("(defrule a => ) ; x\0y", 1, "invalid character"),
        ("\n(defrule a (b) => \ud800)", 2, "invalid character"),
        ("(defrule a (b) => \x01)", 1, "invalid character"),
    ],
)
def test_what_is_not_allowed_is_refused_with_file_and_line(text: str, where: int, words: str) -> None:
    with pytest.raises(RulesError, match=words) as refusal:
        check_rules(of(text))
    assert str(refusal.value).startswith(f"rules.clp:{where}: ")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("word", ["follow", "keep", "emit", "store", "log-line", "load-page", "recall"])
def test_a_left_side_neither_acts_nor_remembers(word: str) -> None:
    with pytest.raises(RulesError, match=rf"{word} belongs on a rule's right-hand side"):
        check_rules(of(f"(defrule a (page) (test ({word} x)) => )"))


def test_a_left_side_does_not_act_through_functions_either() -> None:
    functions = "(deffunction one (?x) (two ?x))\n(deffunction two (?x) (one ?x) (bind ?*g* ?x))"
    with pytest.raises(RulesError, match=r"rules.clp:3: defrule a: \?\*g\* \(through one\)"):
        check_rules(of(f"{functions}\n(defrule a (b ?x&:(one ?x)) => )"))


def test_a_left_side_does_not_look_at_globals() -> None:
    with pytest.raises(RulesError, match=r"\?\*limit\*"):
        check_rules(of("(defrule a (b ?x&:(> ?x ?*limit*)) => )"))


@pytest.mark.parametrize(
    "left",
    [
        '(page) (test (text-has "a"))',
        "(word ?w) (page) (test (text-has ?w))",
        '(page (title ?t&:(text-like "%a%")))',
        "(link (url ?u)) (test (eq ?u (nth$ 1 (page-links))))",
        "(page) (test (mine))",
        "(page) (word ?w) (test (text-has ?w))",
        "?p <- (page) (test (or (text-has a) (not (text-has b))))",
    ],
)
def test_a_left_side_may_read_the_page_where_there_is_one(left: str) -> None:
    check_rules(of(f'(deffunction mine () (text-has "a"))\n(defrule a {left} => )'))


@pytest.mark.parametrize(
    "left",
    [
        "(word ?w&:(text-has ?w)) (page)",
        "(word ?w) (test (text-has ?w)) (page)",
        "(page) (word ?w&:(text-has ?w))",
        "(page) (not (and (word ?w) (test (text-has ?w))))",
        "(not (page)) (test (text-has a))",
        "(word ?w&:(mine ?w)) (page)",
        "(page) (not (test (text-has a)))",
    ],
)
def test_a_left_side_may_not_read_a_page_that_may_not_be_there(left: str) -> None:
    with pytest.raises(RulesError, match=r"text-has reads the page.*\(test"):
        check_rules(of(f"(deffunction mine (?w) (text-has ?w))\n(defrule a {left} => )"))


@pytest.mark.parametrize(
    "text",
    [
        "(deffacts a (b (emit x)))",
        "(defglobal ?*a* = (text-count x))",
        "(deftemplate a (slot b (default (keep))))",
    ],
)
def test_only_rules_and_functions_act(text: str) -> None:
    with pytest.raises(RulesError, match="belongs on a rule's right-hand side"):
        check_rules(of(text))


def test_deep_parentheses_are_refused_before_any_parser_sees_them() -> None:
    deep = "(" * (MAX_DEPTH + 1)
    with pytest.raises(RulesError, match="deep"):
        check_rules(of(deep * 1000))


def test_giant_literals_and_giant_files_are_refused() -> None:
    with pytest.raises(RulesError, match=r"rules.clp:2: .*characters"):
        check_rules(of('(defrule a (b) => \n"' + "x" * 100_000 + '")'))
    with pytest.raises(RulesError, match="bytes"):
        check_rules(of("(defrule a (b) => )\n" * 60_000))


def test_many_files_are_bounded_together() -> None:
    part = Source("part.clp", "; " + "x" * 600_000)
    with pytest.raises(RulesError, match="bytes"):
        check_rules((part, part))


@given(st.text(st.sampled_from('()";\\ \n<&|~?$*=>abc1-'), max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        constructs = read_constructs(of(text))
    except RulesError as error:
        assert str(error).startswith("rules.clp:")
    else:
        assert all(each.text.startswith("(") and each.text.endswith(")") for each in constructs)


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("(defrule a (page (url ?u)) => (keep))", ()),
        ("(defrule a (page (title ?t)) => (keep))", ("title",)),
        ("(defrule a (page) => (do-for-fact ((?p page)) TRUE (emit r ?p:title)))", ("title",)),
        ("(defrule a (page (keywords $? x $?) (headings $?h)) => )", ("keywords", "headings")),
        ('(defrule a (page) (test (text-has "x")) => )', ("text",)),
        ("(defrule a (page) => (emit x (page-html)))", ("html",)),
        ("(defrule a (link (url ?u)) => (follow ?u))", ("links",)),
        ('(defrule a (page) => (follow (nth$ 1 (links-like "%x%"))))', ("links",)),
        ("(defrule a (page) => (emit x (page-field description)))", ("description",)),
        ('(defrule a (page) => (emit x (page-field "text")))', ("text",)),
        ("(deffunction f (?x) (text-count ?x))", ("text",)),
        ('(deffacts a (about "title text html"))', ()),
    ],
)
def test_rules_need_the_fields_that_they_read(text: str, fields: tuple[str, ...]) -> None:
    assert needs_of(of(text)) == fields


def test_a_field_that_is_only_known_later_needs_them_all() -> None:
    needs = needs_of(of("(defrule a (page) (want ?f) => (emit x (page-field ?f)))"))
    assert {"title", "text", "html", "links"} <= set(needs)


def test_use_is_told_from_names_not_from_strings_and_comments() -> None:
    rules = of('(defrule a (link (url ?u)) => (emit x "request")) ; (load-page)')
    assert uses(rules, "link")
    assert not uses(rules, "request")
    assert not uses(rules, "load-page")


def test_following_with_a_priority_gives_one() -> None:
    assert uses(of("(defrule a (page) => (priority ?u 3))"), "priority")
    assert uses(of("(defrule a (page) => (follow ?u 3))"), "priority")
    assert not uses(of("(defrule a (page) => (follow ?u))"), "priority")
