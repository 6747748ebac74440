"""What rules see, what they decide, and what of it is remembered."""

import math

import pytest
from tests.runtime.engine.running import running

from sterna.crawler.facts import FALSE, TRUE, Fact, Symbol, decode, encode
from sterna.errors import RulesError
from sterna.model import Link, Links, StateChange, Target
from sterna.runtime.engine.messages import MAX_FOLLOWS


def test_a_page_is_judged_as_the_rules_say_and_otherwise_as_the_selection_says() -> None:
    crawler = running(
        """
        (defrule wanted (page (status 200) (title ?t)) (test (text-has "clinic")) => (keep) (emit row ?t))
        (defrule unwanted (page (status 404)) => (drop))
        """
    )
    wanted = crawler.judge(status=200, title="A", text="The Clinic, old and new")
    assert wanted.is_kept is True
    assert [decode(row) for row in wanted.rows] == [Fact("row", ("A",))]
    assert crawler.judge(status=404).is_kept is False
    assert crawler.judge(status=200, text="clinical").is_kept is None


def test_the_last_word_on_a_page_counts() -> None:
    crawler = running("(defrule a (declare (salience 1)) (page) => (drop)) (defrule b (page) => (keep))")
    assert crawler.judge().is_kept is True


def test_all_slots_of_a_page_have_what_is_known_of_it() -> None:
    slots = [
        "url",
        "site",
        "status",
        "error",
        "depth",
        "referrer",
        "content-type",
        "size",
        "title",
        "description",
        "language",
        "selected",
    ]
    pattern = " ".join(f"({slot} ?{slot})" for slot in slots)
    crawler = running(
        f"(defrule a (page {pattern} (keywords $?k) (headings $?h)) =>"
        f" (emit all {' '.join('?' + slot for slot in slots)} ?k ?h))"
    )
    verdict = crawler.judge(
        "https://a.example/b",
        site="https://a.example",
        status=200,
        error="",
        depth=3,
        referrer="https://a.example/",
        content_type="text/html",
        size=12,
        title="T",
        description="D",
        language="en",
        selected=False,
        keywords=("a", "b"),
        headings=("c",),
    )
    assert decode(verdict.rows[0]).values == (
        "https://a.example/b", "https://a.example", 200, "", 3, "https://a.example/", "text/html", 12, "T",
        "D", "en", FALSE, "a", "b", "c",
    )  # fmt: skip


def test_pages_are_gone_after_they_are_judged() -> None:
    crawler = running(
        """
        (defrule a (page (url ?u)) => (assert (seen ?u)))
        (defrule b (page) => (emit pages (length$ (find-all-facts ((?p page)) TRUE))))
        """
    )
    for number in range(3):
        assert decode(crawler.judge(f"https://a.example/{number}").rows[0]) == Fact("pages", (1,))
    assert [fact.template for fact in crawler.facts()] == ["seen"] * 3


def test_a_rule_may_wait_for_the_end_of_a_page() -> None:
    crawler = running(
        """
        (defrule a (page (url ?u)) => (assert (seen ?u)))
        (defrule b ?s <- (seen ?u) (not (page)) => (retract ?s) (emit done ?u))
        """
    )
    verdict = crawler.judge("https://a.example/1")
    assert decode(verdict.rows[0]) == Fact("done", ("https://a.example/1",))
    assert crawler.facts() == []


def test_a_page_that_a_rule_asserts_or_changes_goes_with_the_others() -> None:
    crawler = running(
        """
        (defrule a ?p <- (page (url "https://a.example/")) => (assert (page (url "x"))) (modify ?p (url "y")))
        (defrule b (page (url ?u)) => (emit seen ?u))
        """
    )
    rows = {decode(row).values[0] for row in crawler.judge().rows}
    assert {"x", "y"} <= rows
    assert crawler.facts() == []
    assert len(crawler.judge("https://a.example/2").rows) == 1


def test_links_are_facts_where_a_rule_names_them() -> None:
    links = Links.of(Link("https://a.example/1", "One", "next"), Link("https://a.example/2", "Two"))
    crawler = running(
        """(defrule a (page (url ?p)) (link (url ?u) (text ?t) (rel "next") (page ?p)) =>
             (follow ?u 5) (follow-none))"""
    )
    verdict = crawler.judge(links=links)
    assert verdict.follow == (("https://a.example/1", 5),)
    assert not verdict.follows_links
    assert crawler.facts() == []


def test_links_are_followed_unless_the_rules_drive_the_loading() -> None:
    assert running("(defrule a (page) => )").judge().follows_links
    assert not running("(defrule a (page) => )", drives_loading=True).judge().follows_links
    assert running("(defrule a (page) => (follow-links))", drives_loading=True).judge().follows_links


def test_priorities_are_told() -> None:
    verdict = running('(defrule a (page) => (priority "https://a.example/x" 7))').judge()
    assert verdict.priorities == (("https://a.example/x", 7),)


def test_a_request_is_admitted_unless_a_rule_refuses_it() -> None:
    crawler = running('(defrule a (request (url ?u&:(like ?u "%private%"))) => (refuse ?u) (log-line "no"))')
    assert crawler.engine.asks_before_fetch
    assert crawler.engine.admits(Target("https://a.example/private/1")) == (False, ("no",))
    assert crawler.engine.admits(Target("https://a.example/public")) == (True, ())
    assert crawler.facts() == []


def test_what_is_for_pages_is_a_fault_where_a_request_is_judged() -> None:
    crawler = running("(defrule a (request) => (keep))")
    is_admitted, log = crawler.engine.admits(Target("https://a.example/"))
    assert is_admitted
    assert "keep: is for rules on pages" in log[0]


def test_first_facts_of_rules_and_of_the_crawler_are_there_before_any_page() -> None:
    crawler = running(
        """
        (deffacts mine (topic "health"))
        (defrule start => (assert (started)))
        (defrule load (todo ?u) => (load-page ?u))
        """,
        facts=[encode(Fact("todo", ("https://a.example/",)))],
    )
    assert crawler.first.follow == (("https://a.example/", 0),)
    assert {fact.template for fact in crawler.facts()} == {"topic", "todo", "started"}


def test_first_facts_are_not_asserted_again_after_a_move() -> None:
    crawler = running(
        """
        (deffacts mine (topic "health"))
        (defrule start => (assert (started)) (emit started))
        (defrule use (page) ?t <- (topic ?) => (retract ?t))
        """,
        facts=[encode(Fact("topic", ("law",)))],
    )
    crawler.judge()
    moved = crawler.moved()
    assert moved.first.rows == ()
    assert moved.facts() == crawler.facts() == [Fact("started")]


@pytest.mark.parametrize(
    ("fact", "words"),
    [
        (Fact("known", slots=(("n", 1),)), None),
        (Fact("known", slots=(("n", "text"),)), "another type"),
        (Fact("known", slots=(("m", 1),)), "does not exist"),
        (Fact("known", slots=(("n", (1, 2)),)), "."),
        (Fact("known", (1,)), "has slots: n"),
        (Fact("unknown", slots=(("n", 1),)), "no template 'unknown'"),
        (Fact("page", slots=(("url", "x"),)), "given by the crawl"),
    ],
)
def test_first_facts_must_fit_their_templates(fact: Fact, words: str | None) -> None:
    rules = "(deftemplate known (slot n (type INTEGER)))"
    if words is None:
        assert running(rules, facts=[encode(fact)]).facts() == [fact]
    else:
        with pytest.raises(RulesError, match=words):
            running(rules, facts=[encode(fact)])


VALUES = (
    "",
    'quotes " \\ and (parens) ; no comment',
    "two\nlines\r\n\ttab",
    "emoji 👩‍🚀",
    "x" * 300_000,
    Symbol("sym"),
    Symbol("with space"),
    Symbol(""),
    TRUE,
    0,
    2**63 - 1,
    -(2**63),
    0.1,
    1e308,
    math.inf,
    -math.inf,
    -0.0,
)


def test_awkward_values_go_through_clips_unchanged() -> None:
    facts = [Fact("ordered", VALUES), Fact("named", slots=(("one", VALUES[1]), ("many", VALUES)))]
    rules = """
        (deftemplate named (slot one) (multislot many))
        (defrule out (page) (ordered $?o) (named (one ?n) (many $?m)) => (emit ordered ?o) (emit named ?n ?m))
        """
    crawler = running(rules, facts=map(encode, facts))
    assert crawler.facts() == facts
    assert [decode(row) for row in crawler.judge().rows] == facts
    assert crawler.moved().facts() == facts


def test_not_a_number_goes_through_clips() -> None:
    (fact,) = running("", facts=[encode(Fact("n", (math.nan,)))]).facts()
    assert isinstance(fact.values[0], float)
    assert math.isnan(fact.values[0])


def test_a_fault_in_a_rule_is_counted_and_logged_once_and_the_others_go_on() -> None:
    crawler = running(
        """
        (defrule bad (declare (salience 5)) (page (title ?t)) => (bind ?x (+ ?t 1)) (drop))
        (defrule good (page) => (keep))
        """
    )
    first, second = crawler.judge(title="one"), crawler.judge(title="two")
    assert first.is_kept is True
    assert first.error_count == second.error_count == 1
    assert len(first.log) == 1
    assert first.log[0].startswith("rule bad: Function '+' expected argument #1")
    assert second.log == ()
    assert first.ended == ""


def test_a_fault_on_a_left_side_is_counted_and_logged() -> None:
    crawler = running(
        "(defrule bad (page (title ?t)) (test (> ?t 1)) => (drop)) (defrule good (page) => (keep))"
    )
    verdict = crawler.judge(title="one")
    assert verdict.is_kept is True
    assert verdict.error_count == 1
    assert "Function '>'" in verdict.log[0]


def test_a_fault_that_lets_no_rule_fire_is_counted_too() -> None:
    verdict = running("(defrule bad (page (title ?t)) (test (> ?t 1)) => (drop))").judge(title="one")
    assert verdict.error_count == 1
    assert "Function '>'" in verdict.log[0]


def test_a_fault_in_first_facts_is_told() -> None:
    crawler = running("(deffacts bad (n (+ 1 (nth$ 1 (create$ a)))))")
    assert crawler.first.error_count == 1


def test_a_hundred_faults_in_a_row_end_the_visit() -> None:
    crawler = running("(defrule bad (page (title ?t)) => (+ ?t 1))")
    verdicts = [crawler.judge(f"https://a.example/{number}", title="x") for number in range(100)]
    assert verdicts[98].ended == ""
    assert verdicts[99].ended == "rules"
    assert "rule bad" in verdicts[99].detail


def test_a_good_firing_in_between_keeps_the_visit_alive() -> None:
    crawler = running(
        "(defrule bad (page (title ?t)) => (+ ?t 1)) (defrule good (declare (salience 1)) (page) => )"
    )
    assert not any(crawler.judge(f"https://a.example/{number}", title="x").ended for number in range(150))


def test_more_facts_than_allowed_end_the_visit_and_are_not_many_more() -> None:
    crawler = running(
        "(defrule grow (n ?x) => (assert (n (+ ?x 1)))) (defrule go (page) => (assert (n 0)))",
        most_facts=1000,
    )
    verdict = crawler.judge()
    assert verdict.ended == "facts"
    assert "1,000 facts" in verdict.detail
    assert len(crawler.facts()) == 1001


def test_a_full_scratch_store_ends_the_visit() -> None:
    crawler = running(
        '(defrule a (page) => (store a "small") (loop-for-count (?i 1 100) (store ?i (page-text))))',
        scratch_bytes=10_000,
    )
    verdict = crawler.judge(text="x" * 1000)
    assert verdict.ended == "scratch_bytes"


def test_storing_anew_takes_the_place_of_what_was_there() -> None:
    crawler = running("(defrule a (page (title ?t)) => (store a ?t))", scratch_bytes=2000)
    assert not any(crawler.judge(title="x" * 1500).ended for _ in range(5))


def test_urls_rows_and_lines_of_a_page_are_bounded() -> None:
    crawler = running(
        f"""
        (defrule urls (page) => (loop-for-count (?i 1 {MAX_FOLLOWS + 5}) (follow (str-cat "https://a/" ?i))))
        (defrule rows (page) => (loop-for-count (?i 1 5000) (emit row (page-text))))
        (defrule long (page) => (follow (page-text)))
        (defrule lines (page) => (loop-for-count (?i 1 500) (log-line (page-text))))
        """
    )
    verdict = crawler.judge(text="x" * 10_000)
    assert len(verdict.follow) == MAX_FOLLOWS
    assert 500_000 < sum(map(len, verdict.rows)) <= 1024 * 1024
    assert len(verdict.log) == 100
    assert max(map(len, verdict.log)) <= 500
    assert verdict.error_count == 3


def test_facts_that_hold_what_cannot_travel_are_dropped_and_the_author_is_told() -> None:
    crawler = running(
        """
        (defrule a ?p <- (page) => (assert (holds ?p)) (assert (name [thing])) (assert (fine 1)))
        (defrule b (gone) => (emit fired))
        """
    )
    verdict = crawler.judge()
    assert crawler.facts() == [Fact("fine", (1,))]
    assert any("a fact holds was dropped: the address of a fact" in line for line in verdict.log)
    assert any("a fact name was dropped" in line for line in verdict.log)


def test_facts_that_break_their_template_are_dropped_and_the_author_is_told() -> None:
    crawler = running(
        """
        (deftemplate count (slot n (type INTEGER)))
        (defrule a (page (title ?t)) => (assert (count (n ?t))))
        """
    )
    verdict = crawler.judge(title="text")
    assert crawler.facts() == []
    assert verdict.error_count == 1
    assert crawler.moved().facts() == []


def test_globals_are_remembered_and_addresses_in_them_are_not() -> None:
    crawler = running(
        """
        (defglobal ?*n* = 0 ?*p* = nil)
        (defrule a ?p <- (page) => (bind ?*n* (+ ?*n* 1)) (bind ?*p* ?p) (emit n ?*n*))
        """
    )
    verdict = crawler.judge()
    assert any("?*p*" in line for line in verdict.log)
    assert decode(crawler.moved().judge("https://a.example/2").rows[0]) == Fact("n", (2,))


def test_nothing_is_told_of_a_state_that_was_only_gone_on_from() -> None:
    crawler = running(
        "(defglobal ?*g* = 0) (defrule a (page) => (bind ?*g* 1) (store n 2) (store m 3) (assert (x)))"
    )
    crawler.judge()
    assert crawler.moved().engine.change() == StateChange()


def test_the_scratch_store_is_remembered() -> None:
    crawler = running("(defrule a (page) => (store n (+ 1 (recall n 0))) (emit n (recall n)))")
    crawler.judge()
    assert decode(crawler.moved().judge().rows[0]) == Fact("n", (2,))


def test_only_changes_are_told() -> None:
    crawler = running(
        """
        (deftemplate count (slot n))
        (deffacts mine (count (n 0)) (other 1))
        (defrule a (page (title "count")) => (do-for-fact ((?c count)) TRUE (modify ?c (n (+ ?c:n 1)))))
        (defrule b (page (title "drop")) ?o <- (other ?) => (retract ?o))
        (defrule c (page (title "brief")) => (retract (assert (brief))))
        """
    )
    first = crawler.engine.change()
    assert [number for number, _ in first.added] == [1, 2]
    assert crawler.engine.change() == type(first)()
    crawler.judge(title="count")
    counted = crawler.engine.change()
    assert [(number, decode(data)) for number, data in counted.added] == [
        (1, Fact("count", slots=(("n", 1),)))
    ]
    assert counted.removed == (1,)
    assert counted.memory is None
    crawler.judge(title="drop")
    assert crawler.engine.change().removed == (2,)
    crawler.judge(title="brief")
    brief = crawler.engine.change()
    assert (brief.added, brief.removed) == ((), ())


def test_a_fact_keeps_its_number_when_it_is_modified() -> None:
    crawler = running(
        """
        (deftemplate count (slot n))
        (deffacts mine (count (n 0)))
        (defrule a (page) =>
          (do-for-fact ((?c count)) TRUE (modify ?c (n (+ ?c:n 1))) (emit index (fact-index ?c))))
        """
    )
    for number in range(3):
        assert decode(crawler.judge(f"https://a.example/{number}").rows[0]) == Fact("index", (1,))
    assert [number for number, _ in crawler.state().facts] == [1]


def test_a_fact_modified_into_another_that_is_there_is_gone() -> None:
    crawler = running(
        """
        (deftemplate count (slot n))
        (deffacts mine (count (n 1)) (count (n 2)))
        (defrule a (page) ?c <- (count (n 1)) => (modify ?c (n 2)))
        """
    )
    crawler.state()
    crawler.judge()
    assert [number for number, _ in crawler.state().facts] == [2]


def test_a_return_on_a_right_side_does_not_keep_other_rules_from_firing() -> None:
    crawler = running("(defrule a (declare (salience 1)) (page) => (return)) (defrule b (page) => (keep))")
    assert crawler.judge().is_kept is True
    assert crawler.judge().is_kept is True


def test_printing_goes_to_the_log() -> None:
    crawler = running(
        '(defrule a (page (title ?t)) => (printout t "title " ?t crlf "half ") (printout nil "x"))'
    )
    assert crawler.judge(title="T").log == ("title T", "half")


def test_emit_knows_the_slots_of_a_template() -> None:
    crawler = running(
        """
        (deftemplate row (slot a) (multislot b))
        (defrule good (page (title "good")) => (emit row 1 (create$ 2 3)))
        (defrule one (page (title "one")) => (emit row 1 2))
        (defrule bad (page (title "bad")) => (emit row 1))
        """
    )
    assert decode(crawler.judge(title="good").rows[0]) == Fact("row", slots=(("a", 1), ("b", (2, 3))))
    assert decode(crawler.judge(title="one").rows[0]) == Fact("row", slots=(("a", 1), ("b", (2,))))
    bad = crawler.judge(title="bad")
    assert bad.rows == ()
    assert "row has 2 slots, and 1 values were given" in bad.log[0]


def test_a_part_of_a_multifield_is_given_as_that_part() -> None:
    crawler = running("(defrule a (page (keywords ?first $?rest)) => (emit rest ?rest (rest$ ?rest)))")
    row = decode(crawler.judge(keywords=("a", "b", "c", "d")).rows[0])
    assert row == Fact("rest", ("b", "c", "d", "c", "d"))


def test_a_nul_in_a_page_does_not_cut_what_is_behind_it() -> None:
    crawler = running("(defrule a (page (title ?t)) => (emit t ?t))")
    assert decode(crawler.judge(title="a\0b").rows[0]) == Fact("t", ("a\ufffdb",))
