"""Crawlers that no honest author writes, in orders that can be read: what a host judges and runs."""

from random import Random
from typing import Any

import msgspec
from bench.fuzz_parts.spoiling import SITE, garbage, spoil_bytes, spoil_fields, tree_of

from sterna.model import (
    DEFAULT_FIELDS,
    Crawler,
    Keep,
    Known,
    Predicate,
    Program,
    Scope,
    Selector,
    Source,
    State,
    Target,
    Validator,
)
from sterna.wire.known import pack_known
from sterna.wire.orders import Agent, Send

EXPRESSIONS = (
    *("(a+)+$", "(.*)*x", "((((a{30}){30}){30}){30})", "a{1000}{1000}", "(?:a?){500}a{500}", ".{1000}" * 3),
    *(r"(.a|.b|a.)*.{300}q$", "(" * 900 + ")" * 900, "[", "(?P<n>", r"\x{110000}", r"\C", "(?i)ſ" * 500),
    *(
        "x*" * 900,
        "(?:x{0,900}){0,900}",
        "[^\\x{0}-\\x{10ffff}]",
        "|" * 1_900,
        "\0",
        "é" * 900,
        ".*" * 500 + "q",
    ),
)
SELECTORS = (
    *(
        "*" * 400,
        "a " * 100,
        ":not(" * 80 + "a" + ")" * 80,
        "a:nth-child(99999999999999999999n+1)",
        "[a='" + "x" * 400,
    ),
    *(
        ":is(a,b,:is(a,b))",
        ":has(a)",
        "a~b~c~d~e~f~g~h~i~j",
        "\\",
        "\\0",
        "a\\110000 ",
        "#",
        ".",
        "a,,b",
        "é" * 200,
    ),
    *(
        ":nth-child(0n)",
        ":nth-last-of-type(-n+3)",
        "[" * 400,
        "*|*",
        "::before",
        "@import",
        "a{",
        "\0",
        "a" * 500,
    ),
)
RULES = (
    "(defrule a (page) => (while TRUE do (bind ?x 1)))",
    "(defrule a => (while TRUE do (bind ?x 1)))",
    '(defrule a (page) => (bind ?s "0123456789") (while TRUE do (bind ?s (str-cat ?s ?s))))',
    "(defrule a (page) => (bind ?s (create$ a b)) (while TRUE do (bind ?s (create$ ?s ?s))))",
    "(deffunction f (?n) (f (+ ?n 1))) (defrule a (page) => (f 1))",
    "(defrule a (page) => (while TRUE do (log-line x)))",
    "(defrule a (page) => (loop-for-count (?n 1 100000000) do (emit row ?n)))",
    "(defrule a (page) => (loop-for-count (?n 1 1000000) do (assert (own ?n))))",
    '(defrule a (page) => (loop-for-count (?n 1 100000) do (follow (str-cat "/x" ?n))))',
    '(defrule a (page) => (loop-for-count (?n 1 100000) do (priority (str-cat "/x" ?n) ?n)))',
    '(defrule a (page) => (load-page "http://127.0.0.1:22/") (load-page "http://169.254.169.254/"))',
    '(defrule a (page) => (follow "file:///etc/passwd") (follow "//evil.test/") (follow "\\\\evil.test"))',
    "(defrule a (own ?n) => (assert (own (+ ?n 1)))) (deffacts f (own 0))",
    "(deffacts f (n 1)) (defrule a (n $?x) (n $?y) (n $?z) => (assert (n $?x $?y $?z)))",
    '(defrule a (page) => (system "id"))',
    '(defrule a (page) => (load "/etc/passwd"))',
    "(defrule a (page) => (exit))",
    '(defrule a (page) => (store "k" (page-text)) (store (page-text) (page-html)))',
    "(deftemplate page (slot url))",
    "(" * 99 + ")" * 99,
    "(" * 20_000,
    '(defrule a "' + "x" * 60_000 + '" (page) => (keep))',
    "(defrule a (page) => (printout t " + "x " * 20_000 + "))",
    "(defglobal ?*a* = (while TRUE do (bind ?x 1)))",
    "(defrule a (test (while TRUE do (bind ?x 1))) => )",
    "\0",
    "; nothing",
)
_OPERATORS = (
    "and",
    "or",
    "not",
    "regexp",
    "regexp_full",
    "like",
    "ilike",
    "in",
    "between",
    "score",
    "phrase",
    "x",
    "",
)
_COLUMNS = (
    "url",
    "title",
    "text",
    "html",
    "lower(text)",
    "length(text)",
    "status",
    "keywords",
    "",
    "etag",
    "x",
)


ASPECTS = ("scope", "prune", "select", "keep", "rules", "facts", "starts", "known", "state", "name", "odds")


def send(chance: Random) -> bytes:
    """A `Send`, packed, in which one thing is hostile, or several; most of them can be read."""
    hurts = {chance.choice(ASPECTS)} if chance.random() < 0.8 else set(chance.choices(ASPECTS, k=4))
    order = tree_of(
        Send(
            visit=f"f{chance.randrange(10**9)}",
            agent=Agent("Tern/1", "Tern"),
            crawler=crawler(chance, hurts),
            starts=starts(chance) if "starts" in hurts else (Target(f"{SITE}/"),),
            known=known(chance) if "known" in hurts else b"",
            state=state(chance) if "state" in hurts else State(),
            level=chance.choice((1, 3, 9, 22)),
        )
    )
    # Now and then a field that is not even of the right kind.
    return msgspec.msgpack.encode(spoil_fields(order, chance, times=1) if chance.random() < 0.1 else order)


def crawler(chance: Random, hurts: set[str]) -> Crawler:
    """One in which these things are meant to hurt."""
    return Crawler(
        name=chance.choice(("\x1b[2J", "x" * 100, "x" * 101, "é\n", " ", "")) if "name" in hurts else "fuzz",
        scope=scope(chance) if "scope" in hurts else Scope(),
        program=program(chance, hurts),
        facts=tuple(garbage(chance) for _ in range(3)) if "facts" in hurts else (),
        keeps_raw=chance.random() < 0.2,
    )


def scope(chance: Random) -> Scope:
    many = chance.choice((1, 1, 3, 40))
    return Scope(
        stay=chance.choice(("site", "domain", "any")),
        include=tuple(chance.choice(EXPRESSIONS) for _ in range(chance.choice((0, many)))),
        exclude=tuple(chance.choice(EXPRESSIONS) for _ in range(chance.choice((0, many)))),
        subtrees=tuple(
            chance.choice(("/", "", "/a", "/..", "//", "\0")) for _ in range(chance.choice((0, 1, 3)))
        ),
        max_depth=chance.choice((0, 1, 64, -1, 2**40)),
        drop_params=tuple(
            chance.choice(("*", "utm_*", "", "a" * 500, "[")) for _ in range(chance.choice((0, 1, 3)))
        ),
        use_sitemaps=chance.random() < 0.5,
        seed_sites=tuple(
            chance.choice(("http://evil.test", SITE, "", "\0")) for _ in range(chance.choice((0, 2)))
        ),
    )


def program(chance: Random, hurts: set[str]) -> Program:
    is_odd = "odds" in hurts
    return Program(
        prune=predicate(chance) if "prune" in hurts else None,
        select=predicate(chance) if "select" in hurts else None,
        keep=keep(chance) if "keep" in hurts else Keep(),
        rules=rules(chance) if "rules" in hurts or "state" in hurts else (),
        needs=chance.choice(((), ("html", "headers", "links"))) if is_odd else DEFAULT_FIELDS,
        is_best_first=is_odd and chance.random() < 0.5,
        drives_loading=is_odd and chance.random() < 0.5,
        least_change=chance.choice((0.0, 0.5, 1.0, -1.0, 2.0)) if is_odd else 0.0,
    )


def rules(chance: Random) -> tuple[Source, ...]:
    return (Source(chance.choice(("a.clp", "a.clp", "", "../a", "\0")), chance.choice(RULES)),)


def keep(chance: Random) -> Keep:
    chosen = tuple(
        Selector(
            chance.choice(("a", "", "\0", "b")), chance.choice(SELECTORS), chance.choice(("", "href", "\0"))
        )
        for _ in range(chance.choice((0, 0, 1, 5)))
    )
    return Keep(
        fields=chance.choice((("title",), ("html", "headers", "keywords", "headings"), ())),
        selectors=chosen,
        share=chance.choice((1.0, 0.0, 0.5, 1e-300, -1.0)),
    )


def predicate(chance: Random, depth: int = 0) -> Predicate:
    """A condition; some nest deeper than any host follows."""
    op = chance.choice(_OPERATORS)
    if op in ("and", "or", "not") and depth < chance.choice((1, 3, 40)):
        parts = tuple(
            predicate(chance, depth + 1) for _ in range(1 if depth > 3 else chance.choice((1, 2, 5)))
        )
        return Predicate(op, parts=parts)
    values = tuple(_value(chance) for _ in range(chance.choice((0, 1, 1, 2, 3, 50))))
    return Predicate(op, chance.choice(_COLUMNS), values)


def _value(chance: Random) -> Any:
    return chance.choice(
        (chance.choice(EXPRESSIONS), "%" * 500, "_" * 500, "a", 0, -1, 2**63 - 1, 1e308, None, True)
    )


def starts(chance: Random) -> tuple[Target, ...]:
    """Start URLs, of this site and not."""
    paths = ("/", "/1.html", "/nowhere", "/?a=1&utm_x=2", "/loop")
    usual = tuple(Target(SITE + path, chance.choice((0, 1, 3))) for path in paths[: chance.choice((1, 1, 5))])
    odd = Target(
        chance.choice((f"{SITE}/a", f"{SITE}/../a", "http://evil.test/", f"{SITE}:80/", "x", "")),
        chance.choice((0, -1, 10**9)),
        chance.choice(("", "\r\nX-More: yes", "x" * 3_000)),
        chance.choice(("page", "sitemap")),
        hops=chance.choice((0, 11, -5, 2**40)),
        attempts=chance.choice((0, 3, -1, 2**40)),
        not_before=chance.choice((0.0, 1e18, -1e18)),
        priority=chance.choice((0, 2**63 - 1, -(2**63))),
    )
    return (*usual, odd)


def known(chance: Random) -> bytes:
    """F, as it is packed, or something else."""
    validators = tuple(
        Validator(
            chance.randrange(-(2**63), 2**63),
            digest=chance.randbytes(5),
            likeness=chance.choice((b"", b"8" * 8)),
        )
        for _ in range(chance.choice((0, 1, 30)))
    )
    packed = pack_known(Known(b"", validators))
    match chance.randrange(4):
        case 0:
            return garbage(chance)
        case 1:
            return spoil_bytes(packed, chance)
        case 2:
            return msgspec.msgpack.encode(spoil_fields(msgspec.msgpack.decode(packed), chance))
        case _:
            return packed


def state(chance: Random) -> State:
    """What a crawler remembers, in which nobody can have been."""
    facts = tuple(
        (chance.choice((1, 1, 2, 0, -1, 2**62)), garbage(chance)) for _ in range(chance.choice((1, 3, 50)))
    )
    return State(facts, chance.choice((b"", garbage(chance))))
