"""Crawlers as files: what is written comes back, and what is no crawler is refused."""

import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from sterna.crawler import pack
from sterna.crawler.compiler import compile_spec
from sterna.crawler.facts import Fact, encode
from sterna.crawler.pack import (
    PackedCrawler,
    SavedProgress,
    decode,
    describe,
    digest_of,
    program_digest,
    read,
    signed_part,
    to_json,
)
from sterna.crawler.spec import Keep, Politeness, Scope, Select, Spec
from sterna.errors import SpecError
from sterna.model import Budget, Crawler, Predicate, Program, Selector, Source, State, Target
from sterna.model import Keep as Kept

RULES = """(deftemplate clinic (slot url))
(deffunction twice (?n) (* 2 ?n))
(defrule found (page (url ?url)) (test (text-has clinic)) => (assert (clinic (url ?url))) (keep))
(defrule other (page (status 404)) => (drop))
"""
SPEC = Spec(
    name="health",
    seeds=("https://www.example.org/",),
    scope=Scope(depth=4, subtrees=("/docs/",), exclude=(r"\.pdf$",)),
    select=Select(keywords_any=("clinic", "hospital")),
    keep=Keep(fields=("title", "text"), selectors={"price": ".price"}, share=0.3),
    facts=({"template": "topic", "values": ["health"]},),
    politeness=Politeness(delay=0, robots=False),
)


def packed(*, is_under_way: bool = False) -> PackedCrawler:
    crawler = compile_spec(SPEC, Path())
    program = msgspec.structs.replace(crawler.program, rules=(Source("health.clp", RULES),))
    fact = encode(Fact("clinic", slots=(("url", "https://www.example.org/a"),)))
    progress = SavedProgress(
        state=State(((7, fact), (9, fact)), b"memory"),
        frontier=(Target("https://www.example.org/b", 1, "https://www.example.org/"),),
        seen=struct.pack(">3q", -5, 0, 12),
    )
    return PackedCrawler(
        crawler=msgspec.structs.replace(crawler, program=program),
        progress=progress if is_under_way else SavedProgress(),
        options=SPEC.options(),
        budget=Budget(cpu_seconds=5),
        journey=("https://www.example.org",),
        gather=(Source("gather.clp", "(defrule more (clinic (url ?url)) => (follow ?url))"),),
    )


def made(raw: bytes, *, size: int | None = None) -> bytes:
    """A file with these contents and a head that fits them."""
    whole = len(raw) if size is None else size
    head = pack._HEAD.pack(pack._VERSION, whole, pack._checksum(raw))
    return pack._MAGIC + head + zstandard.ZstdCompressor().compress(raw)


@pytest.mark.parametrize("is_under_way", [False, True])
def test_crawler_comes_back_as_it_was_written(tmp_path: Path, is_under_way: bool) -> None:
    path = tmp_path / "health.crawler"
    path.write_bytes(pack.encode(packed(is_under_way=is_under_way)))
    assert read(path) == packed(is_under_way=is_under_way)


def test_same_crawler_gives_the_same_bytes() -> None:
    options = dict(reversed(packed().options.items()))
    other = msgspec.structs.replace(packed(), options=options)
    assert list(other.options) != list(packed().options)
    assert pack.encode(other) == pack.encode(packed())


def test_spec_is_packed_to_the_same_bytes_in_every_process() -> None:
    code = (
        "from pathlib import Path; from sterna import Spec, Select\n"
        "from sterna.crawler.compiler import compile_spec; from sterna.crawler import pack\n"
        "spec = Spec(name='h', select=Select(weights={'b': 1, 'a': 2}, threshold=1))\n"
        "packed = pack.PackedCrawler(crawler=compile_spec(spec, Path()), options=spec.options())\n"
        "print(pack.encode(packed).hex())"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1
    assert decode(bytes.fromhex(printed.pop())).crawler.name == "h"


def test_digest_tells_crawlers_apart() -> None:
    assert digest_of(packed().crawler) == digest_of(packed(is_under_way=True).crawler)
    assert digest_of(packed().crawler) != digest_of(Crawler(name="health"))


class LaterSelector(Selector, frozen=True):
    is_nested: bool = False


class LaterProgram(Program, frozen=True, kw_only=True):
    least_age: float = 0.0
    tags: tuple[str, ...] = ()


def test_fields_that_a_later_version_adds_leave_signatures_and_permissions_valid() -> None:
    css = ("title", "h1")
    now = Program(select=Predicate("eq", "status", (200,)), keep=Kept(selectors=(Selector(*css),)))
    later = LaterProgram(select=now.select, keep=Kept(selectors=(LaterSelector(*css),)))
    assert signed_part(Crawler(program=now)) == signed_part(Crawler(program=later))

    used = [
        msgspec.structs.replace(later, least_age=1.0),
        msgspec.structs.replace(later, tags=("",)),
        msgspec.structs.replace(later, keep=Kept(selectors=(LaterSelector(*css, is_nested=True),))),
        msgspec.structs.replace(later, select=None),
        msgspec.structs.replace(later, keep=Kept(selectors=(LaterSelector(*css), LaterSelector(*css)))),
    ]
    parts = {signed_part(Crawler(program=each)) for each in (now, *used)}
    assert len(parts) == len(used) + 1


def test_every_cut_of_a_file_is_refused() -> None:
    content = pack.encode(packed(is_under_way=True))
    for end in range(len(content)):
        with pytest.raises(SpecError, match=r"truncated|not a crawler file|damaged"):
            decode(content[:end])


def test_every_byte_that_is_another_is_noticed() -> None:
    content = pack.encode(packed(is_under_way=True))
    for place in range(len(content)):
        broken = bytearray(content)
        broken[place] ^= 0x55
        with pytest.raises(SpecError):
            decode(bytes(broken))


def test_something_after_the_end_is_refused() -> None:
    with pytest.raises(SpecError, match="damaged"):
        decode(pack.encode(packed()) + b"x")


@given(st.binary(max_size=300))
def test_contents_that_are_no_crawler_are_refused_in_one_line(raw: bytes) -> None:
    with pytest.raises(SpecError) as caught:
        decode(made(raw))
    assert "\n" not in str(caught.value)


@given(st.binary(max_size=100).filter(lambda content: not content.startswith(pack._MAGIC)))
def test_file_that_is_something_else_is_refused(content: bytes) -> None:
    with pytest.raises(SpecError, match="is not a crawler file: 'sterna pack' writes one"):
        decode(content)


def test_other_format_is_named() -> None:
    content = bytearray(pack.encode(packed()))
    content[len(pack._MAGIC) + 1] = 9
    with pytest.raises(SpecError, match="has format 9: this Sterna reads format 1"):
        decode(bytes(content))


def test_bomb_is_not_unpacked() -> None:
    raw = bytes(pack.MAX_PACKED_BYTES + 1)
    with pytest.raises(SpecError, match="is too large: the limit is 67,108,864 bytes"):
        decode(made(raw))
    with pytest.raises(SpecError, match="its size does not match"):
        decode(made(raw, size=100))


def test_crawler_that_is_too_large_is_not_written() -> None:
    huge = PackedCrawler(crawler=Crawler(name="huge", facts=(bytes(pack.MAX_PACKED_BYTES),)))
    with pytest.raises(SpecError, match="the crawler 'huge' is too large for a file"):
        pack.encode(huge)


@pytest.mark.parametrize(
    ("packed", "said"),
    [
        (
            PackedCrawler(crawler=Crawler(program=Program(select=Predicate("shout")))),
            "unknown operator 'shout'",
        ),
        (PackedCrawler(crawler=Crawler(program=Program(rules=(Source("a.clp", "(x"),)))), "a.clp:1"),
        (PackedCrawler(crawler=Crawler(), gather=(Source("g.clp", "(defmodule X)"),)), "g.clp:1"),
        (PackedCrawler(crawler=Crawler(facts=(b"\xc1",))), "malformed fact"),
        (
            PackedCrawler(crawler=Crawler(), progress=SavedProgress(seen=b"123")),
            "its list of seen URLs is truncated",
        ),
        (PackedCrawler(crawler=Crawler(), options={"proxy": "http://example.org"}), "unknown field `proxy`"),
        (PackedCrawler(crawler=Crawler(), options={"delay": "soon"}), "delay"),
    ],
)
def test_crawler_that_cannot_be_is_refused_with_the_reason(packed: PackedCrawler, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        decode(pack.encode(packed))


def test_predicate_that_nests_without_end_is_refused() -> None:
    part = Predicate("true")
    for _ in range(100):
        part = Predicate("not", parts=(part,))
    with pytest.raises(SpecError, match="levels deep"):
        decode(pack.encode(PackedCrawler(crawler=Crawler(program=Program(select=part)))))
    deep = b"\x91" * 100_000
    with pytest.raises(SpecError, match="does not contain a crawler"):
        decode(made(deep))


def test_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"cannot read .*none\.crawler: No such file"):
        read(tmp_path / "none.crawler")
    (tmp_path / "page.crawler").write_text("<html>")
    with pytest.raises(SpecError, match=r"page\.crawler is not a crawler file"):
        read(tmp_path / "page.crawler")


def test_description_names_every_part() -> None:
    text = re.sub(r"(program|progress) \d+\b(?! facts)", r"\1 N", describe(packed(is_under_way=True)))
    digest = digest_of(packed().crawler)
    assert text.splitlines() == [
        "crawler  health",
        f"digest   {digest}",
        f"program  {program_digest(packed().crawler)}",
        "bytes    program N, facts 15, progress N",
        "start    https://www.example.org/",
        "journey  https://www.example.org",
        r"scope    stay site, depth 4, subtrees /docs/, exclude \.pdf$",
        "fetch    every URL of the scope",
        'select   the page has a word of "clinic", "hospital"',
        "keep     url, title, text, price (.price); of text and html 30%",
        r'options  exclude ["\\.pdf$"], max_depth 4, delay 0.0, ignore_robots true',
        "budget   cpu_seconds 5",
        "rules    health.clp: rules found, other; templates clinic; functions twice",
        "gather   gather.clp: rules more",
        "facts    1",
        "progress 2 facts, 1 URLs to fetch, 3 seen",
    ]


def test_description_of_the_default_crawler_says_that_it_takes_all() -> None:
    text = describe(PackedCrawler(crawler=Crawler()))
    assert "select   every page\n" in text
    assert text.endswith("progress none yet")


def test_description_gives_a_terminal_nothing_to_obey() -> None:
    text = describe(PackedCrawler(crawler=Crawler(name="\x1b[2Jhealth\u202e")))
    assert "\\x1b[2Jhealth\\u202e" in text
    assert text.replace("\n", "").isprintable()


def test_summary_is_plain_json() -> None:
    summary = msgspec.json.decode(to_json(packed(is_under_way=True)))
    assert summary["name"] == "health"
    assert summary["rules"] == [
        {
            "file": "health.clp",
            "rules": ["found", "other"],
            "templates": ["clinic"],
            "functions": ["twice"],
            "facts": [],
        }
    ]
    assert (summary["facts"], summary["own_facts"], summary["to_fetch"], summary["seen"]) == (1, 2, 1, 3)
    assert summary["scope"]["subtrees"] == ["/docs/"]
    assert summary["selectors"] == {"price": ".price"}
    assert summary["options"]["ignore_robots"] is True
    assert summary["budget"] == {"cpu_seconds": 5}
