"""The witness of a visit: which pages it keeps for a check, and which URLs were mentioned."""

import gzip
from random import Random
from typing import Any

import pytest
from tests.home.away.lying import SITE, page, parcel

from sterna.model import Checkpoint, Ended, Page, Raw, Target
from sterna.trust.sampling import MOST_SAMPLES
from sterna.trust.witness import Witness
from sterna.web.signature import digest_of
from sterna.web.urls import fingerprint

BODY = b"<p>terns"


def witness() -> Witness:
    return Witness(Random(1))


def with_raw(body: bytes, head: bytes = b"HTTP/1.1 200 OK\r\n\r\n", **fields: Any) -> Page:
    raw = Raw(b"", head, body, "10.0.0.1")
    return page("/", **({"raw": raw, "digest": digest_of(BODY)} | fields))


def test_all_that_was_mentioned_is_known() -> None:
    seen = witness()
    seen.see(parcel(1, page("/a"), checkpoint=Checkpoint(found=(Target(f"{SITE}/b"),), done=(7,))))
    seen.see(parcel(2, checkpoint=Checkpoint(again=(Target(f"{SITE}/c"),)), ended=Ended.FINISHED))
    assert seen.mentioned == {7, *(fingerprint(f"{SITE}/{name}") for name in "abc")}
    assert (seen.pages, seen.ended) == (1, Ended.FINISHED)


def test_no_more_pages_are_kept_than_can_be_checked() -> None:
    seen = witness()
    seen.see(parcel(1, *(page(f"/{n}", fetched=100.0 - n) for n in range(99))))
    assert len(seen.draw(1_000)) == MOST_SAMPLES
    assert (seen.checkable, seen.earliest) == (99, 2.0)


def test_what_cannot_be_checked_is_not_drawn() -> None:
    seen = witness()
    seen.see(parcel(1, page("/a", status=0, error="timeout"), page("/b", status=0, error="refused")))
    assert (seen.pages, seen.checkable, seen.draw(5)) == (2, 0, [])


@pytest.mark.parametrize(
    ("told", "is_false"),
    [
        (with_raw(BODY), False),
        (with_raw(b"<p>pills"), True),
        (with_raw(gzip.compress(BODY), b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n"), False),
        (with_raw(gzip.compress(b"<p>pills"), b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\n"), True),
        (with_raw(b"no gzip", b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\n"), False),
        (with_raw(b"", is_unchanged=True), False),
        (page("/", digest=digest_of(BODY)), False),
    ],
)
def test_raw_response_must_be_what_the_digest_is_of(told: Page, is_false: bool) -> None:
    seen = witness()
    seen.see(parcel(1, told))
    (kept,) = seen.draw(1)
    assert (kept.has_false_raw, kept.page.raw) == (is_false, None)
