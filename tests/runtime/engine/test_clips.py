"""Of CLIPS's own functions only the allowed ones are there; what it cannot read is told with its line."""

import gc
import weakref

import pytest
from clips._clips import ffi, lib
from tests.runtime.engine.running import fresh_clips, running

from sterna.crawler.rules import FUNCTIONS, check_rules
from sterna.errors import RulesError
from sterna.model import Source
from sterna.runtime.engine.library import ALLOWED, HIDDEN, function_names
from sterna.runtime.engine.values import value_of

DANGEROUS = [
    "system",
    "open",
    "close",
    "read",
    "readline",
    "read-number",
    "get-char",
    "put-char",
    "rename",
    "remove",
    "chdir",
    "rewind",
    "seek",
    "tell",
    "flush",
    "with-open-file",
    "print",
    "println",
    "format",
    "load",
    "load*",
    "save",
    "bload",
    "bsave",
    "batch",
    "batch*",
    "exit",
    "eval",
    "build",
    "assert-string",
    "str-assert",
    "load-facts",
    "save-facts",
    "bload-facts",
    "bsave-facts",
    "load-instances",
    "save-instances",
    "dribble-on",
    "fetch",
    "print-region",
    "get-region",
    "halt",
    "reset",
    "clear",
    "run",
    "focus",
    "pop-focus",
    "set-strategy",
    "set-fact-duplication",
    "set-salience-evaluation",
    "set-dynamic-constraint-checking",
    "set-reset-globals",
    "set-break",
    "watch",
    "unwatch",
    "profile",
    "random",
    "seed",
    "gensym",
    "gensym*",
    "setgen",
    "time",
    "timer",
    "local-time",
    "gm-time",
    "operating-system",
    "undefrule",
    "undeftemplate",
    "undeffunction",
    "undefglobal",
    "undeffacts",
    "ppdefrule",
    "facts",
    "agenda",
    "make-instance",
    "send",
    "new",
    "call",
    "funcall",
    "try",
    "get-function-list",
    "constructs-to-c",
    "release-mem",
    "conserve-mem",
    "mem-used",
    "refresh",
    "timetag",
    "set-locale",
]


def own_functions() -> set[str]:
    """What CLIPS itself says that it has."""
    env = lib.CreateEnvironment()
    value = ffi.new("CLIPSValue *")
    assert lib.Eval(env, b"(get-function-list)", value) == lib.EE_NO_ERROR
    names = {name.name for name in value_of(value)}  # type: ignore[union-attr]
    assert names == set(function_names(env))
    lib.DestroyEnvironment(env)
    return names


def test_nothing_is_left_but_what_is_allowed() -> None:
    before = own_functions()
    assert set(DANGEROUS) <= before
    assert before >= ALLOWED, "an allowed function has another name in this CLIPS"
    clips = fresh_clips()
    assert set(function_names(clips._env)) == ALLOWED


def test_a_crawler_has_the_allowed_functions_and_ours() -> None:
    engine = running("").engine
    assert set(function_names(engine._clips._env)) == ALLOWED | FUNCTIONS


@pytest.mark.parametrize(
    "name", [*DANGEROUS, "defclass-module", *sorted(HIDDEN - {"(set-evaluation-error)"})]
)
def test_what_was_taken_away_cannot_be_called(name: str) -> None:
    for text in (f"(defrule a (page) => ({name}))", f"(deffunction f () ({name} 1))"):
        with pytest.raises(RulesError):
            running(text)


def test_a_function_that_is_not_there_is_named_with_file_line_and_construct() -> None:
    with pytest.raises(RulesError) as refusal:
        running('(defrule fine (page) => (keep))\n\n(defrule bad\n  (page)\n =>\n  (system "ls"))')
    assert str(refusal.value) == "rules.clp:6: defrule bad: Missing function declaration for 'system'."


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(defrule a (page (nothing ?x)) => )", "rules.clp:1: defrule a: Invalid slot 'nothing'"),
        ("(defrule a (page) => \n (assert (b ?x)))", "rules.clp:2: defrule a: Undefined variable ?x"),
        ("(deftemplate t (slot a)\n (slotty b))", "rules.clp:2: deftemplate t: Syntax Error"),
        ("\n(deffunction f (?x)\n (bind x 1))", "rules.clp:3: deffunction f: Syntax Error"),
        ("(defrule a (page) => (keep 1))", "rules.clp:1: defrule a: Function 'keep' expected"),
        ("(defglobal ?*a* = (+ 1 a))", "rules.clp:1: defglobal ?*a*: Function '+' expected"),
        ("(defrule a ?x ?y => )", "rules.clp:1: defrule a: "),
    ],
)
def test_what_clips_cannot_read_is_told_with_file_line_and_construct(text: str, message: str) -> None:
    with pytest.raises(RulesError) as refusal:
        running(text)
    assert str(refusal.value).startswith(message)
    assert "\n" not in str(refusal.value)


def test_nothing_is_written_to_the_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    crawler = running(
        '(defrule a (page (title ?t)) => (printout t "x" crlf) (printout stderr "y" crlf) (+ ?t 1))'
    )
    crawler.judge(title="a")
    with pytest.raises(RulesError):
        running("(defrule a (page) => (nothing))")
    assert capfd.readouterr() == ("", "")


def test_clips_reads_no_other_constructs_than_the_check_has_seen() -> None:
    text = '(defrule a "()" ; (defrule b =>)\n (page) => (log-line ")(defrule c => )("))'
    (construct,) = check_rules((Source("rules.clp", text),))
    clips = running("").engine._clips
    clips.load(construct)
    rule = lib.GetNextDefrule(clips._env, ffi.NULL)
    assert ffi.string(lib.DefruleName(rule)) == b"a"
    assert lib.GetNextDefrule(clips._env, rule) == ffi.NULL


def test_an_environment_goes_with_its_engine(capfd: pytest.CaptureFixture[str]) -> None:
    crawler = running("(deftemplate t (slot n)) (defrule a (page) => (assert (t (n 1))) (emit t 2))")
    crawler.judge()
    crawler.moved().judge()
    environment = weakref.ref(crawler.engine._clips)
    del crawler
    gc.collect()
    assert environment() is None
    assert capfd.readouterr() == ("", ""), "CLIPS tells what was not given back"
