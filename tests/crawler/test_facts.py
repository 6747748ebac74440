"""Facts go out and come back the same, or are refused in one clear line."""

import json
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.crawler.facts import (
    Fact,
    Symbol,
    Value,
    decode,
    decode_value,
    encode,
    encode_value,
    fact_of,
    is_symbol,
    to_json,
)
from sterna.errors import UsageError

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
values = st.one_of(
    texts,
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    texts.map(Symbol),
)
names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]{0,20}", fullmatch=True)
slots = st.dictionaries(names, st.one_of(values, st.lists(values).map(tuple)))
facts = st.one_of(
    st.builds(Fact, names, st.lists(values).map(tuple)),
    st.builds(lambda name, slots: Fact(name, slots=tuple(slots.items())), names, slots),
)


@given(facts)
def test_facts_come_back_the_same(fact: Fact) -> None:
    assert decode(encode(fact)) == fact


@pytest.mark.parametrize(
    "value",
    [
        "",
        'quotes " and \\ backslashes',
        "two\nlines\r\n\ttab",
        "emoji 👩‍🚀 and 漢字",
        "x" * 5_000_000,
        Symbol(""),
        Symbol("with spaces (and parens)"),
        2**63 - 1,
        -(2**63),
        math.inf,
        -math.inf,
        -0.0,
        5e-324,
    ],
)
def test_awkward_values_come_back_the_same(value: Value) -> None:
    assert decode(encode(Fact("t", (value,)))) == Fact("t", (value,))
    assert decode_value(encode_value(value)) == value


def test_not_a_number_comes_back_as_such() -> None:
    (value,) = decode(encode(Fact("t", (math.nan,)))).values
    assert isinstance(value, float)
    assert math.isnan(value)


def test_symbols_and_strings_stay_two_things() -> None:
    fact = decode(encode(Fact("t", (Symbol("a"), "a"))))
    assert fact.values == (Symbol("a"), "a")
    assert len(set(fact.values)) == 2


def test_truth_values_become_symbols() -> None:
    assert decode(encode(Fact("t", (True, False)))).values == (Symbol("TRUE"), Symbol("FALSE"))


@pytest.mark.parametrize(
    ("fact", "words"),
    [
        (Fact("t", ("a\0b",)), "NUL"),
        (Fact("t", (Symbol("a\0b"),)), "NUL"),
        (Fact("t", ("\ud800",)), "surrogate"),
        (Fact("t", (2**63,)), "64 bits"),
        (Fact("t", (-(2**63) - 1,)), "64 bits"),
        (Fact("two words", ()), "a symbol of CLIPS"),
        (Fact("12", ()), "a symbol of CLIPS"),
        (Fact("?x", ()), "a symbol of CLIPS"),
        (Fact("a::b", ()), "a symbol of CLIPS"),
        (Fact("t", slots=(("a b", 1),)), "a symbol of CLIPS"),
        (Fact("t", slots=(("a", 1), ("a", 2))), "duplicate slot"),
        (Fact("t", ((1, 2),)), "tuple"),  # type: ignore[arg-type]
        (Fact("t", (None,)), "NoneType"),  # type: ignore[arg-type]
    ],
)
def test_what_clips_cannot_hold_is_refused_in_one_line(fact: Fact, words: str) -> None:
    with pytest.raises(ValueError, match=words) as refusal:
        encode(fact)
    assert "\n" not in str(refusal.value)


@given(st.binary())
def test_any_bytes_are_a_fact_or_refused(data: bytes) -> None:
    try:
        fact = decode(data)
    except ValueError:
        return
    assert isinstance(fact, Fact)
    encode(fact)


@pytest.mark.parametrize(
    "written",
    [
        ["t", [None]],
        ["t", [[1]]],
        ["t", {"s": {"a": 1}}],
        ["t", [2**64 - 1]],
        ["t", ["a\0b"]],
        ["t", [msgspec.msgpack.Ext(7, b"x")]],
        ["t", [msgspec.msgpack.Ext(1, b"\xff")]],
        [7, []],
        ["t"],
        {"t": []},
    ],
)
def test_well_formed_messages_that_are_no_facts_are_refused(written: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(msgspec.msgpack.encode(written))


def test_deep_nesting_is_refused_and_does_not_crash() -> None:
    with pytest.raises(ValueError, match="malformed"):
        decode(b"\x92\xa1t" + b"\x91" * 1_000_000 + b"\xc0")


@given(facts.filter(lambda fact: all(is_symbol(name) for name in _symbols(fact))))
def test_json_is_read_back_as_the_same_fact(fact: Fact) -> None:
    assert fact_of(json.loads(to_json(fact))) == fact


def _symbols(fact: Fact) -> list[str]:
    values = [value for _, value in fact.slots or ()]
    flat = [*fact.values, *values, *(each for value in values if isinstance(value, tuple) for each in value)]
    return [value.name for value in flat if isinstance(value, Symbol)]


def test_json_shows_symbols_truth_and_numbers_without_end() -> None:
    fact = Fact("t", slots=(("a", Symbol("x")), ("b", (Symbol("TRUE"), math.inf)), ("c", "é")))
    assert json.loads(to_json(fact)) == {
        "template": "t",
        "slots": {"a": {"symbol": "x"}, "b": [True, {"float": "inf"}], "c": "é"},
    }


def test_data_of_toml_describe_facts() -> None:
    assert fact_of({"template": "topic", "values": ["health", {"symbol": "x"}, 1, 2.5, True]}) == Fact(
        "topic", ("health", Symbol("x"), 1, 2.5, Symbol("TRUE"))
    )
    assert fact_of({"template": "topic", "slots": {"name": "health", "words": ["a", "b"]}}) == Fact(
        "topic", slots=(("name", "health"), ("words", ("a", "b")))
    )
    assert fact_of({"template": "go"}) == Fact("go")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("topic", "template"),
        ({"values": ["a"]}, "template"),
        ({"template": "t", "value": ["a"]}, "'value'"),
        ({"template": "t", "values": [], "slots": {}}, "both"),
        ({"template": "t", "values": "a"}, "list"),
        ({"template": "t", "values": [["a"]]}, "lists do not nest"),
        ({"template": "t", "values": [None]}, "not a value"),
        ({"template": "t", "values": [{"symbol": "a b"}]}, "a symbol of CLIPS"),
        ({"template": "t", "values": [{"symbol": 1}]}, "not a value"),
        ({"template": "t", "slots": ["a"]}, "table"),
        ({"template": "a b", "values": []}, "a symbol of CLIPS"),
        ({"template": "t", "values": [2**70]}, "64 bits"),
        ({"template": "t", "values": ["a\0"]}, "NUL"),
    ],
)
def test_data_that_are_no_fact_are_refused_in_one_line(data: object, words: str) -> None:
    with pytest.raises(UsageError, match=words) as refusal:
        fact_of(data)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("text", ["a", "http://a.example/?b=1", "<", "<=", "+", "-", "=>", "$x", "é", "1a"])
def test_symbols_are_known_as_such(text: str) -> None:
    assert is_symbol(text)


@pytest.mark.parametrize(
    "text", ["", "a b", "1", "-1.5", "1e5", '"a"', "a(b", "?x", "$?x", "a;b", "a&b", "a<b", "[a]", "a\nb"]
)
def test_what_clips_reads_otherwise_is_no_symbol(text: str) -> None:
    assert not is_symbol(text)
