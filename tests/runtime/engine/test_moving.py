"""A crawler that is stopped after any page and goes on elsewhere does what it would have done undisturbed."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.runtime.engine.running import Running, running

from sterna.model import Link, Links, Target
from sterna.runtime.engine.messages import PageView, Verdict

PROGRAMS = {
    "counting": """
        (deftemplate count (slot word) (slot n))
        (deffacts words (count (word "a") (n 0)) (count (word "b") (n 0)) (count (word "c") (n 0)))
        (defrule count (page (title ?t)) =>
          (do-for-fact ((?c count)) (eq ?c:word ?t) (modify ?c (n (+ ?c:n 1))))
          (do-for-all-facts ((?c count)) TRUE (emit now ?c:word ?c:n (fact-index ?c))))
    """,
    "figure 8": """
        (defrule load (todo ?url) (not (done ?url)) => (load-page ?url) (assert (done ?url)))
        (defrule find (page) (link (url ?url)) => (assert (todo ?url)))
        (defrule forget (page (title "a")) ?d <- (done ?u) ?t <- (todo ?u) =>
          (retract ?d ?t) (emit forgot ?u))
    """,
    "joins": """
        (defrule topic (page (title ?t) (depth ?d)) => (assert (topic ?t ?d)))
        (defrule pair (page (title ?t)) (topic ?x ?) (topic ?t ?n) => (emit pair ?x ?t ?n))
        (defrule cut (page (depth 3)) ?f <- (topic ?x ?n&:(> ?n 1)) => (retract ?f) (emit cut ?x ?n))
    """,
    "blocked and free again": """
        (defrule work (page (url ?u) (title ?t)) => (assert (work ?u)) (assert (lock ?t)))
        (defrule free (page (depth 1)) ?l <- (lock ?t) => (retract ?l))
        (defrule do (page (title ?t)) (work ?w) (not (lock ?t)) => (emit do ?w ?t))
        (defrule all (page) (forall (work ?w) (lock ?)) (exists (lock "b")) => (emit all))
    """,
    "the same twice": """
        (deftemplate x (slot n) (slot m))
        (defrule make (page (url ?u) (title ?t)) => (assert (x (n ?u) (m ?t))))
        (defrule turn (page (title "b")) ?x <- (x (n ?n) (m "a")) => (modify ?x (m ?n)))
        (defrule two (page (depth ?d&:(> ?d 1))) (x (n ?a)) (x (n ?b&~?a)) => (emit two ?a ?b))
        (defrule three (page (depth 3)) (x (n ?a)) (x (n ?b)) (x (n ?c)) => (emit three ?a ?b ?c))
    """,
    "memory": """
        (defglobal ?*sum* = 0 ?*all* = (create$))
        (defrule add (page (depth ?d) (title ?t)) =>
          (bind ?*sum* (+ ?*sum* ?d)) (bind ?*all* (create$ ?*all* ?t))
          (store (str-cat seen- ?t) ?*sum*) (emit sum ?*sum* ?*all* (recall seen-a none)))
    """,
    "faults": """
        (deftemplate n (slot v (type INTEGER)))
        (defrule bad (page (title ?t) (depth ?d)) => (assert (n (v ?d))) (assert (n (v ?t))) (keep))
        (defrule worse (page) (n (v ?v&:(> ?v 2))) => (assert (late ?v)) (+ ?v (nth$ 1 (create$ a))))
        (defrule look (page) => (do-for-all-facts ((?n n)) TRUE (emit n ?n:v (fact-index ?n))))
    """,
    "strict order": """
        (defrule first (declare (salience 10)) (page (title ?t)) => (assert (step ?t)))
        (defrule chain (step ?t) => (assert (step (str-cat ?t "'"))))
        (defrule stop (declare (salience 5)) ?s <- (step ?t) (test (> (str-length ?t) 4)) =>
          (retract ?s) (emit end ?t))
        (defrule old (declare (salience -5)) ?s <- (step ?t) (not (page)) => (retract ?s) (assert (kept ?t)))
        (defrule refused (request (url ?u) (depth ?d)) (kept ?t) (test (= ?d (str-length ?t))) => (refuse ?u))
    """,
}

views = st.builds(
    lambda number, title, depth, links: PageView(
        url=f"https://a.example/{number}",
        title=title,
        depth=depth,
        links=Links.of(*(Link(f"https://a.example/{link}") for link in links)),
    ),
    st.integers(0, 8),
    st.sampled_from("abc"),
    st.integers(1, 3),
    st.lists(st.integers(0, 8), max_size=4),
)


def step(crawler: Running, view: PageView) -> tuple[Verdict, bool]:
    """What is decided; what goes wrong is logged once where it happens, and so again after a move."""
    verdict = msgspec.structs.replace(crawler.engine.judge(view), log=())
    return verdict, crawler.engine.admits(Target(view.url, view.depth))[0]


@pytest.mark.parametrize("name", PROGRAMS)
@settings(max_examples=25, deadline=None)
@given(pages=st.lists(views, min_size=2, max_size=9), data=st.data())
def test_a_move_after_any_page_changes_nothing(name: str, pages: list[PageView], data: st.DataObject) -> None:
    stops = data.draw(st.sets(st.integers(0, len(pages) - 1), min_size=1))
    undisturbed, moved = running(PROGRAMS[name]), running(PROGRAMS[name])
    for place, view in enumerate(pages):
        if place in stops:
            moved = moved.moved()
        assert step(moved, view) == step(undisturbed, view)
    assert moved.state() == undisturbed.state()


def test_facts_of_a_long_run_are_the_same_after_many_moves() -> None:
    undisturbed, moved = running(PROGRAMS["figure 8"]), running(PROGRAMS["figure 8"])
    for number in range(60):
        links = Links.of(*(Link(f"https://a.example/{(number * 7 + each) % 50}") for each in range(5)))
        view = PageView(url=f"https://a.example/{number}", title="abc"[number % 3], links=links)
        if number % 4 == 3:
            moved = moved.moved()
        assert step(moved, view) == step(undisturbed, view)
    assert moved.state() == undisturbed.state()
    assert len(moved.state().facts) > 10
