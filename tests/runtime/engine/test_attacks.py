"""What rules may try: the host survives, the crawler is stopped or refused, and the report says at what."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sterna.crawler.facts import Fact, decode
from sterna.errors import EngineEnded
from sterna.model import Budget, Program, Source, State
from sterna.runtime.cell import seccomp
from sterna.runtime.cell.pool import Forker
from sterna.runtime.engine import client
from sterna.runtime.engine.client import Engine, Engines
from sterna.runtime.engine.messages import PageView, Verdict

pytestmark = pytest.mark.asyncio(loop_scope="module")

PAGE_SECONDS = 0.25
MEMORY_BYTES = 64 * 1024**2
PAGE = PageView(url="https://a.example/", title="T", text="x" * 1000)
SPIN = "(deffunction spin () (while TRUE do (bind ?x 1)))"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def forker() -> AsyncIterator[Forker]:
    async with Forker(client.ENTRY) as forker:
        yield forker


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hasty(forker: Forker) -> AsyncIterator[Engines]:
    """Engines for rules that use all the time that they get."""
    is_jailed = not seccomp.why_not()
    async with Engines(is_jailed=is_jailed, starter=forker, page_seconds=PAGE_SECONDS) as engines:
        yield engines


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engines(forker: Forker) -> AsyncIterator[Engines]:
    """Engines whose time is no limit, however busy the machine is."""
    async with Engines(is_jailed=not seccomp.why_not(), starter=forker, page_seconds=60.0) as engines:
        yield engines


async def opened(engines: Engines, rules: str, **budget: float) -> Engine:
    limits = Budget(**{"memory_bytes": MEMORY_BYTES, **budget})  # type: ignore[arg-type]
    return await engines.open(Program(rules=(Source("bad.clp", rules),)), budget=limits)


async def judged(engines: Engines, rules: str, **budget: float) -> Verdict:
    """The verdict on one page; a good crawler runs afterwards as if nothing had been."""
    engine = await opened(engines, rules, **budget)
    try:
        return await engine.judge(PAGE)
    finally:
        await engine.close()
        good = await opened(engines, "(defrule good (page) => (keep))")
        assert (await good.judge(PAGE)).is_kept
        await good.close()


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param("(defrule a (page) => (while TRUE do (bind ?x 1)))", id="in a rule"),
        pytest.param(f"{SPIN} (defrule a (page) => (spin))", id="in a function"),
        pytest.param(f"{SPIN} (defrule a (page) (test (spin)) => )", id="on a left side"),
        pytest.param(f"{SPIN} (defrule a (page (title ?t&:(spin))) => )", id="in a pattern"),
        pytest.param(
            "(defrule a (page) => (assert (t))) (defrule b ?t <- (t) => (retract ?t) (assert (t)))",
            id="rules in a circle",
        ),
        pytest.param(
            "(defrule a (page) => (loop-for-count (?i 1 9999999999) (bind ?x ?i)))", id="a long count"
        ),
        pytest.param(
            "(deffunction lt (?a ?b) (while TRUE do (bind ?x 1))) (defrule a (page) => (sort lt 3 2 1))",
            id="while sorting",
        ),
        pytest.param(
            "(defrule a (page) => (loop-for-count (?i 1 300) (assert (x ?i)))"
            " (do-for-all-facts ((?a x) (?b x) (?c x) (?d x)) FALSE (bind ?z 1)))",
            id="a query over a query",
        ),
        pytest.param("(defrule a (page) => (while TRUE do (log-line x)))", id="while logging"),
    ],
)
async def test_an_endless_loop_is_stopped_softly(hasty: Engines, rules: str) -> None:
    found = '(defrule found (declare (salience 99)) (page (url "https://a.example/")) => (emit found))'
    verdict = await judged(hasty, f"{found} {rules}")
    assert verdict.ended == "wall_seconds"
    assert "0.25 seconds" in verdict.detail
    is_before_any_rule = "test (spin)" in rules or "?t&:(spin)" in rules
    assert [decode(row) for row in verdict.rows] == ([] if is_before_any_rule else [Fact("found")])


@pytest.mark.parametrize(
    "rules",
    [
        "(defrule a => (emit begun) (while TRUE do (bind ?x 1)))",
        "(defrule a (not (page)) => (emit begun) (assert (page (url x))))",
    ],
)
async def test_a_loop_before_any_page_is_stopped_softly(hasty: Engines, rules: str) -> None:
    engine = await opened(hasty, rules)
    assert engine.first.ended == "wall_seconds"
    assert engine.first.rows
    with pytest.raises(EngineEnded) as end:
        await engine.judge(PAGE)
    assert end.value.ended == "wall_seconds"
    await engine.close()


async def test_an_endless_chain_of_facts_ends_at_their_limit_and_they_come_home(engines: Engines) -> None:
    rules = "(defrule a (page) => (assert (n 0))) (defrule b (n ?x) => (assert (n (+ ?x 1))))"
    engine = await opened(engines, rules, facts=500)
    verdict = await engine.judge(PAGE)
    assert verdict.ended == "facts"
    assert len((await engine.change()).added) == 501
    await engine.close()


async def test_computing_ends_at_its_limit(engines: Engines) -> None:
    slow = "(defrule a (page) => (loop-for-count (?i 1 300000) (bind ?x ?i)))"
    engine = await opened(engines, slow, cpu_seconds=0.2)
    verdicts = [Verdict()]
    while not verdicts[-1].ended and len(verdicts) < 500:
        verdicts.append(await engine.judge(PAGE))
    assert verdicts[-1].ended == "cpu_seconds"
    assert engine.cpu_seconds >= 0.2
    await engine.close()


async def test_a_join_explosion_that_heeds_nothing_is_killed(hasty: Engines) -> None:
    engine = await opened(
        hasty,
        """
        (defrule make (page (title "T")) => (loop-for-count (?i 1 3000) (assert (x ?i))))
        (defrule explode (page (title "boom")) (x ?a) (x ?b&:(= ?b (+ ?a ?b 1))) (x ?c) => )
        (defrule explode-too (page (title "boom")) (x ?a) (x ?b) (test (= 0 (+ ?a ?b))) => )
        """,
    )
    assert (await engine.judge(PAGE)).ended == ""
    begun = asyncio.get_running_loop().time()
    with pytest.raises(EngineEnded) as end:
        verdict = await engine.judge(PageView(url="https://a.example/2", title="boom"))
        raise EngineEnded(verdict.ended)  # a fast machine may be through with it until it is looked at
    assert end.value.ended == "wall_seconds"
    assert asyncio.get_running_loop().time() - begun < 10
    with pytest.raises(EngineEnded):
        await engine.judge(PAGE)
    await engine.close()


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param(
            '(defrule a (page) => (bind ?s "0123456789") (while TRUE do (bind ?s (str-cat ?s ?s))))',
            id="a string",
        ),
        pytest.param(
            "(defrule a (page) => (bind ?s (create$ a b)) (while TRUE do (bind ?s (create$ ?s ?s))))",
            id="a multifield",
        ),
        pytest.param(
            '(defrule a (page) => (bind ?s "x") (while TRUE do (bind ?s (str-replace ?s "x" "xxxx"))))',
            id="by replacing",
        ),
        pytest.param(
            f"(defrule a {' '.join(f'(or (a{n}) (b{n}))' for n in range(20))} => )",
            id="alternatives of a rule",
        ),
    ],
)
async def test_what_grows_without_end_ends_at_its_memory(engines: Engines, rules: str) -> None:
    with pytest.raises(EngineEnded) as end:
        await judged(engines, rules)
    assert end.value.ended == "memory_bytes"


async def test_matches_without_end_end_at_their_memory(hasty: Engines) -> None:
    rules = """
        (defrule make (page) => (loop-for-count (?i 1 2000) (assert (x ?i))))
        (defrule pairs (page (title "boom")) (x ?a) (x ?b) (x ?c) => )
        """
    engine = await opened(hasty, rules, memory_bytes=32 * 1024**2)
    await engine.judge(PAGE)
    with pytest.raises(EngineEnded) as end:
        await engine.judge(PageView(url="https://a.example/2", title="boom"))
    assert end.value.ended in ("memory_bytes", "wall_seconds")
    await engine.close()


@pytest.mark.parametrize(
    "function",
    ["(deffunction f (?x) (+ 1 (f ?x)))", "(deffunction f (?x) (if TRUE then (progn (f (+ ?x 1)))))"],
)
async def test_deep_recursion_ends_its_own_process_only(engines: Engines, function: str) -> None:
    with pytest.raises(EngineEnded) as end:
        await judged(engines, f"{function} (defrule a (page) => (f 1))")
    assert end.value.ended in ("crash", "memory_bytes")


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ("(defrule a (page) => (exit))", "'exit'"),
        ('(defrule a (page) => (format nil "%250d" 1))', "'format'"),
        ('(defrule a (page) => (system "touch /tmp/x"))', "'system'"),
        ('(defrule a (page) => (open "/etc/passwd" f))', "'open'"),
        ('(defrule a (page) => (load "/etc/passwd"))', "'load'"),
        ('(defrule a (page) => (eval "(exit)"))', "'eval'"),
        ('(defrule a (page) => (build "(defrule b => (exit))"))', "'build'"),
        ('(defrule a (page) => (assert-string "(b)"))', "'assert-string'"),
        ("(defrule a (page) => (bind ?f exit) (funcall ?f))", "'funcall'"),
        ("(defrule a (page) => (make-instance x of USER))", "'make-instance'"),
        ("(defclass A (is-a USER))", "defclass A: is not allowed"),
        (f'(defrule a (page) => (log-line "{"x" * 100_000}"))', "characters"),
        ("(defrule a " + "(not " * 5000 + "(page)" + ")" * 5000 + " => )", "deep"),
        ("(defrule a (page) => " + "(progn " * 90 + ")" * 90 + " (exit))", "'exit'"),
    ],
)
async def test_what_is_forbidden_is_refused_with_its_line(engines: Engines, rules: str, words: str) -> None:
    with pytest.raises(EngineEnded) as end:
        await judged(engines, rules)
    assert end.value.ended == "rules"
    assert end.value.detail.startswith("bad.clp:1: ")
    assert words in end.value.detail


async def test_nobody_calls_by_sorting_what_is_not_there(engines: Engines) -> None:
    verdict = await judged(engines, "(defrule a (page) => (sort exit 2 1))")
    assert verdict.error_count == 1
    assert "'sort' expected" in verdict.log[0]


@pytest.mark.parametrize(
    "rules",
    [
        '(defrule a (page) => (emit x (matches "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab" "^(a|aa)+$")))',
        '(defrule a (page) => (emit x (text-like "' + "%x" * 400 + '%y")))',
        '(defrule a (page) => (emit x (text-matches "' + "(x?)" * 30 + 'x{30}")))',
    ],
)
async def test_patterns_that_others_take_for_ever_take_no_time(hasty: Engines, rules: str) -> None:
    verdict = await judged(hasty, rules)
    assert verdict.ended == ""


async def test_a_pattern_that_is_too_large_is_a_fault_of_its_rule(hasty: Engines) -> None:
    verdict = await judged(hasty, '(defrule a (page) => (text-matches "((a{900}){900}){900}"))')
    assert (verdict.error_count, verdict.ended) == (1, "")


GROWING = "(do-for-all-facts ((?a x)) TRUE (assert (x (+ 100 (nth$ 1 ?a:implied)))))"


@pytest.mark.parametrize(
    "action",
    [
        "(bind ?y (div -9223372036854775808 -1))",
        "(bind ?y (mod -9223372036854775808 -1))",
        "(bind ?y (/ 1 0))",
        "(bind ?y (** 10 400))",
        "(bind ?y (abs -9223372036854775808))",
        "(bind ?y (integer 1e300))",
        "(bind ?y (implode$ (create$ ?p 1)))",
        "(bind ?y (nth$ 99999999999 (create$ a)))",
        '(bind ?y (sub-string -5 99999999999 "héllo"))',
        '(bind ?y (str-replace "aaa" "" "b"))',
        "(bind ?y (insert$ (create$ a) 99 b))",
        "(bind ?y (delete$ (create$ a b) 2 1))",
        '(bind ?y (explode$ "a (b \\" ?x [z] 1e5 ;"))',
        '(bind ?y (string-to-field "[a]"))',
        "(retract ?p) (modify ?p (url x))",
        "(retract ?p) (bind ?y (fact-slot-value ?p url))",
        "(retract ?p ?p *)",
        "(do-for-all-facts ((?a x) (?b x)) TRUE (retract ?a ?b))",
        GROWING,
        "(bind ?y (fact-slot-value ?p nothing))",
        "(bind ?p 1) (modify ?p (url x))",
        "(return) (exit-that-is-not-there)",
    ],
)
async def test_odd_calls_crash_nothing(hasty: Engines, action: str) -> None:
    rules = f"(deffacts x (x 1) (x 2) (x 3)) (defrule a ?p <- (page (url ?u)) => {action})"
    try:
        verdict = await judged(hasty, rules)
    except EngineEnded as error:
        # What grows without end may meet its memory before its time.
        assert (error.ended, action) in {
            ("rules", "(return) (exit-that-is-not-there)"),
            ("memory_bytes", GROWING),
        }
    else:
        assert verdict.ended in ("", "wall_seconds", "facts")


async def test_a_saved_state_of_garbage_is_refused(engines: Engines) -> None:
    rules = Program(rules=(Source("good.clp", "(deftemplate t (slot n (type INTEGER)))"),))
    broken = (
        State(((1, b"garbage"),), b"\x93\x02\x80\x80"),
        State((), b"garbage"),
        State(((1, b"\x92\xa1t\x81\xa1n\xa1x"),), b"\x93\x02\x80\x80"),
        State(((1, b"\x92\xa4page\x81\xa3url\xa1x"),), b"\x93\x02\x80\x80"),
        State(((-(2**62), b"\x92\xa1x\x90"), (2**62, b"\x92\xa1x\x91\x01")), b"\x93\x02\x80\x80"),
        State((), b"\x93\x02\x81\xa1g\xa1x\x80"),
    )
    for state in broken:
        with pytest.raises(EngineEnded) as end:
            await engines.open(rules, state=state)
        assert end.value.ended == "rules"


async def test_many_engines_fail_side_by_side_and_one_that_is_good_goes_on(engines: Engines) -> None:
    good = await opened(engines, "(defrule good (page) => (keep))")
    bad = [await opened(engines, "(deffunction f () (+ 1 (f))) (defrule a (page) => (f))") for _ in range(4)]
    outcomes = await asyncio.gather(
        *(engine.judge(PAGE) for engine in bad),
        *(good.judge(PAGE) for _ in range(50)),
        return_exceptions=True,
    )
    assert sum(isinstance(each, EngineEnded) for each in outcomes) == 4
    assert sum(isinstance(each, Verdict) and bool(each.is_kept) for each in outcomes) == 50
    for engine in (good, *bad):
        await engine.close()
