"""The key of an address is the one that the Internet Archive's own package makes."""

import pytest
import surt as judge  # type: ignore[import-untyped]
from hypothesis import given, settings
from hypothesis import strategies as st

from sterna.export.cdxj import surt
from sterna.web.urls import Canonical

canonical = Canonical(drop_params=())

ADDRESSES = [
    "http://www.Example.org/",
    "https://www2.example.org:443/A/B/?b=2&a=1&A=0",
    "http://example.org:8080/x//y/../z/",
    "http://127.0.0.1:8000/lang_select.html",
    "http://[::1]:81/a",
    "http://example.org./a.",
    "http://bücher.example/ä?ö=ü",
    "http://example.org/%7Ea/%2525/%c3%a4%20b",
    "http://example.org/a%2fb%3fc%23d",
    "http://example.org/?",
    "http://example.org/?&&a",
    "http://example.org/a;b=c?d;e",
    "http://example.org/x?jsessionid=0123456789abcdef0123456789ABCDEF&a=1",
    "http://example.org/x?a=1&PHPSESSID=0123456789abcdef0123456789abcdef",
    "http://example.org/x?sid=0123456789abcdef0123456789abcdef",
    "http://example.org/x?ASPSESSIONIDABCDEFGH=ABCDEFGHIJKLMNOPQRSTUVWX&z",
    "http://example.org/x?q=1&cfid=12&cftoken=34&r=2",
    "http://example.org/(S(4hqa0555fwsecu455xqckv45))/mileg.aspx",
    "http://example.org/(4hqa0555fwsecu455xqckv45)/mileg.aspx?a=b",
    "http://example.org/a|b^c`d{e}[f]\"<g>",
    "http://example.org/a+b,c:d@e!f$g'h(i)*j",
    "http://example.org/%ff%fe",
    "http://example.org/?a=%26&b=%3D",
    "http://example.org:65535/",
    "http://www.www2.example.org/www.",
]  # fmt: skip


@pytest.mark.parametrize("address", ADDRESSES)
def test_key_is_that_of_the_judge(address: str) -> None:
    url = canonical(address)
    assert url is not None
    assert surt(url) == judge.surt(url)


def test_key_turns_the_host_round_and_drops_www() -> None:
    assert surt("https://www.example.org/A?b=2&a=1") == "org,example)/a?a=1&b=2"


path = st.text(st.sampled_from("abAB09%2f5E./;=&?+~_-()äß %25"), max_size=30)
label = st.text(st.sampled_from("abwww019-"), min_size=1, max_size=8).filter(
    lambda text: text.strip("-") == text
)


@settings(max_examples=200, deadline=None)
@given(st.lists(label, min_size=1, max_size=3), path, st.sampled_from(["", ":80", ":443", ":8080"]))
def test_key_of_any_address_is_that_of_the_judge(labels: list[str], rest: str, port: str) -> None:
    url = canonical(f"http://{'.'.join(labels)}.org{port}/{rest}")
    if url is not None:
        assert surt(url) == judge.surt(url)
