"""Judging: what is a lie, what is not, and what says nothing."""

from typing import Any

import pytest
from tests import making

from sterna.model import DEFAULT_FIELDS, Link, Links, Page
from sterna.trust.judgement import (
    BAD,
    GOOD,
    RECENT_SECONDS,
    Finding,
    Judgement,
    Manner,
    change,
    cloaked,
    is_plain,
    judge,
    needs_second_look,
    weighed,
)
from sterna.web.signature import digest_of, likeness_of

URL = "https://a.example/page"
READ = 1_700_000_000.0
NOW = READ + 60.0
OLD = "Mon, 01 Jan 2018 00:00:00 GMT"
SINCE = "Tue, 14 Nov 2023 22:13:50 GMT"  # after READ
WORDS = "the arctic tern sees more daylight than any other animal on earth and flies far"
OTHER = "buy cheap pills here now best price only today from our friendly online shop"
MANNER = Manner(fields=DEFAULT_FIELDS)


def page(text: str = WORDS, **fields: Any) -> Page:
    given: dict[str, Any] = {
        "depth": 1,
        "fetched": READ,
        "title": "Terns",
        "text": text,
        "digest": digest_of(text.encode()),
        "links": Links.of(Link("https://a.example/next")),
    }
    return making.page(URL, **(given | fields))


def gone(status: int = 404) -> Page:
    return page("", status=status, title="", links=Links(), digest=digest_of(b"gone"))


def moved(to: str = "https://a.example/new") -> Page:
    return page("", status=301, title="", digest=b"", links=Links.of(Link(to, rel="redirect")))


def verdict(told: Page, seen: Page | None, again: Page | None = None, **fields: Any) -> Judgement:
    return judge(told, seen, again, manner=fields.pop("manner", MANNER), now=fields.pop("now", NOW)).verdict


# -- what one reading settles ----------------------------------------------------------------------------


def test_same_page_is_the_same() -> None:
    assert verdict(page(), page(fetched=NOW, headers=(("date", "x"),))) is Judgement.SAME
    assert not needs_second_look(page(), page(), MANNER)


@pytest.mark.parametrize(
    "lie",
    [
        {"text": OTHER},
        {"title": "Pills"},
        {"links": Links()},
        {"language": "fr"},
        {"extracts": (("price", ("1",)),)},
    ],
)
def test_right_digest_with_another_content_is_a_lie(lie: dict[str, Any]) -> None:
    told = page(**({"digest": digest_of(WORDS.encode())} | lie))
    assert verdict(told, page()) is Judgement.ALTERED
    assert not needs_second_look(told, page(), MANNER)


def test_field_that_the_crawler_does_not_keep_is_not_compared() -> None:
    manner = Manner(fields=("text", "links", "language"))
    assert verdict(page(title=""), page(), manner=manner) is Judgement.SAME


def test_page_that_was_not_wanted_is_compared_by_its_digest() -> None:
    told = page("", title="", links=Links(), is_kept=False, digest=digest_of(WORDS.encode()))
    assert verdict(told, page()) is Judgement.SAME


def test_other_version_of_sterna_may_read_a_little_otherwise_and_no_more() -> None:
    manner = Manner(fields=DEFAULT_FIELDS, is_same_version=False)
    digest = digest_of(WORDS.encode())
    long = " ".join(f"word{n}" for n in range(100))
    told, seen = page(f"{long} more", digest=digest), page(long, digest=digest)
    assert verdict(told, seen, manner=manner) is Judgement.CHANGED
    assert verdict(page(OTHER, digest=digest), page(), manner=manner) is Judgement.ALTERED


def test_unchanged_page_that_the_site_confirms_is_the_same() -> None:
    told = page("", status=304, is_unchanged=True, title="", digest=digest_of(WORDS.encode()))
    assert verdict(told, page("", status=304, is_unchanged=True)) is Judgement.SAME
    assert verdict(told, page()) is Judgement.SAME


@pytest.mark.parametrize(
    "seen",
    [
        None,
        page("", status=500),
        page("", status=403),
        page("", status=0, error="timeout"),
        page("", status=429),
    ],
)
def test_page_that_is_not_to_be_had_from_here_says_nothing(seen: Page | None) -> None:
    assert verdict(page(OTHER), seen, page()) is Judgement.UNSEEN
    assert not needs_second_look(page(OTHER), seen, MANNER)


# -- what differs ----------------------------------------------------------------------------------------


def test_page_that_differs_is_looked_at_twice_before_it_is_judged() -> None:
    assert needs_second_look(page(OTHER), page(), MANNER)
    assert verdict(page(OTHER), page(), None) is Judgement.CHANGED


def test_page_that_the_site_has_not_modified_since_was_altered() -> None:
    seen = page(modified=OLD)
    assert verdict(page(OTHER), seen, seen) is Judgement.ALTERED
    # However little, and however long ago the host says that it read it.
    assert verdict(page(f"{WORDS} pills"), seen, seen, now=READ + 1e6) is Judgement.ALTERED


def test_page_said_to_be_unchanged_that_was_modified_before_is_a_lie() -> None:
    told = page("", status=304, is_unchanged=True, title="", digest=digest_of(b"long ago"))
    seen = page(modified=OLD)
    assert verdict(told, seen, seen) is Judgement.ALTERED


def test_page_that_was_modified_meanwhile_says_nothing() -> None:
    seen = page(modified=SINCE)
    assert verdict(page(OTHER), seen, seen) is Judgement.CHANGED


def test_date_that_is_none_is_no_proof() -> None:
    seen = page(modified="yesterday")
    assert verdict(page(f"{WORDS} pills"), seen, seen) is Judgement.CHANGED


def test_page_that_says_the_same_in_other_bytes_is_alike() -> None:
    told = page(digest=digest_of(b"with a token"))
    assert verdict(told, page(), page()) is Judgement.ALIKE


def test_page_that_is_another_at_each_request_is_alike_if_it_says_as_much() -> None:
    text = " ".join(f"word{n}" for n in range(100))
    readings = [page(f"{text} visitor {n}") for n in (1001, 1002, 1003)]
    assert verdict(*readings) is Judgement.ALIKE
    assert verdict(page(OTHER), *readings[1:]) is Judgement.DOUBTFUL
    near = page(" ".join(f"word{n}" for n in range(90)))
    assert verdict(near, *readings[1:]) is Judgement.CHANGED


def test_page_that_is_all_new_at_each_request_says_nothing() -> None:
    one, two, three = (page(" ".join(f"{n}word{m}" for m in range(50)), title=str(n)) for n in range(3))
    assert verdict(one, two, three) is Judgement.ALIKE  # it differs as they differ from each other
    empty = page("", title="", links=Links(), digest=digest_of(b"x"))
    assert verdict(empty, two, three) is Judgement.CHANGED


def test_page_that_differs_a_little_may_know_its_visitor() -> None:
    seen = page()
    assert verdict(page(f"{WORDS} 10.0.0.1"), seen, seen) is Judgement.CHANGED


def test_page_that_differs_altogether_is_doubtful_while_it_is_fresh() -> None:
    seen = page()
    assert verdict(page(OTHER), seen, seen) is Judgement.DOUBTFUL
    assert verdict(page(OTHER), seen, seen, now=READ + RECENT_SECONDS + 1) is Judgement.CHANGED


def test_page_that_may_not_be_indexed_from_here_says_nothing() -> None:
    seen = page("", digest=b"", title="", links=Links())
    assert verdict(page(), seen, seen) is Judgement.CHANGED


def test_little_change_is_measured_where_the_crawler_measures_it() -> None:
    text = " ".join(f"word{n}" for n in range(200))
    manner = Manner(fields=DEFAULT_FIELDS, least_change=0.2)
    told = page(
        "",
        status=304,
        is_unchanged=True,
        title="",
        links=Links(),
        digest=digest_of(b"before"),
        likeness=likeness_of(text),
    )
    seen = page(f"{text} more", title="", links=Links(), modified=OLD)
    assert verdict(told, seen, seen, manner=manner) is Judgement.ALIKE
    other = page(OTHER, title="", links=Links(), modified=OLD)
    assert verdict(told, other, other, manner=manner) is Judgement.CHANGED


# -- there and not there ---------------------------------------------------------------------------------


def test_page_that_is_not_there_was_invented() -> None:
    assert verdict(page(), gone(), gone()) is Judgement.INVENTED
    assert verdict(page(), gone(410), gone()) is Judgement.INVENTED


def test_page_that_comes_and_goes_says_nothing() -> None:
    assert verdict(page(), gone(), page()) is Judgement.CHANGED
    assert verdict(gone(), page(), gone()) is Judgement.CHANGED


def test_page_that_was_there_long_ago_may_be_gone_now() -> None:
    later = READ + RECENT_SECONDS + 1
    assert verdict(page(), gone(), gone(), now=later) is Judgement.CHANGED
    assert verdict(gone(), page(), page(), now=later) is Judgement.CHANGED


def test_page_that_is_there_was_kept_back() -> None:
    assert verdict(gone(), page(), page()) is Judgement.MISSING
    forbidden = page("", status=0, error="robots", title="", links=Links(), digest=b"")
    assert verdict(forbidden, page(), page()) is Judgement.MISSING


def test_page_that_is_gone_for_both_is_the_same() -> None:
    assert verdict(gone(), gone(410)) is Judgement.SAME
    assert not needs_second_look(gone(), gone(), MANNER)


def test_redirects_lead_to_the_same_place_or_are_doubtful() -> None:
    assert verdict(moved(), moved()) is Judgement.SAME
    elsewhere = moved("https://b.example/")
    assert needs_second_look(elsewhere, moved(), MANNER)
    assert verdict(moved(), page(), page()) is Judgement.DOUBTFUL
    assert verdict(page(), moved(), moved()) is Judgement.CHANGED  # that may depend on who asks


@pytest.mark.parametrize(
    ("told", "is_one"),
    [
        (page(), True),
        (gone(), True),
        (moved(), True),
        (page("", status=0, error="robots"), True),
        (page("", status=0, error="refused"), False),  # the owner closes what it likes
        (page("", status=0, error="timeout"), False),
        (page("", status=500), False),
    ],
)
def test_only_claims_are_checked(told: Page, is_one: bool) -> None:
    assert is_plain(told) is is_one


# -- browsers, doubts, likeness --------------------------------------------------------------------------


def test_page_that_browsers_see_otherwise_is_cloaked() -> None:
    found = cloaked(page(), page(OTHER), page())
    assert found and found.verdict is Judgement.CLOAKED


def test_page_that_is_the_same_for_browsers_or_changes_for_all_is_not_cloaked() -> None:
    assert cloaked(page(), page(f"{WORDS} welcome"), page()) is None
    assert cloaked(page(), page(OTHER), page(OTHER + " x")) is None
    assert cloaked(page(), None, page()) is None
    assert cloaked(page(), gone(), page()) is None


def test_one_doubt_is_none_and_two_are_a_lie() -> None:
    doubt, same = Finding("a", Judgement.DOUBTFUL, "why"), Finding("b", Judgement.SAME)
    assert weighed([doubt, same]) == [doubt, same]
    assert [each.verdict for each in weighed([doubt, same, doubt])] == [
        Judgement.ALTERED,
        Judgement.SAME,
        Judgement.ALTERED,
    ]


def test_every_verdict_counts_for_against_or_not_at_all() -> None:
    assert not GOOD & BAD
    assert set(Judgement) - GOOD - BAD == {
        Judgement.CHANGED,
        Judgement.UNSEEN,
        Judgement.DOUBTFUL,
        Judgement.FOUNDED,
        Judgement.UNFOUNDED,
    }


def test_change_is_the_share_of_words_that_are_others() -> None:
    one, other = (page(text, title="", links=Links()) for text in ("a b c d", "a b c e"))
    assert change(one, other) == pytest.approx(0.4)
    assert change(page("", title="", links=Links()), page()) is None


def test_page_that_the_site_had_long_before_was_kept_back_however_long_ago() -> None:
    later = READ + 10 * RECENT_SECONDS
    there = page(modified=OLD)
    assert verdict(gone(), there, there, now=later) is Judgement.MISSING
    forbidden = page("", status=0, error="robots", title="", links=Links(), digest=b"")
    assert verdict(forbidden, there, there, now=later) is Judgement.CHANGED  # robots.txt may be another now


def test_page_to_which_nothing_led_was_invented_however_long_ago() -> None:
    later = READ + 10 * RECENT_SECONDS
    told = page(referrer="https://a.example/front")
    leading = Links.of(Link("https://a.example/other"), Link(URL))

    def verdict_of(referrer: Page | None) -> Judgement:
        return judge(told, gone(), gone(), manner=MANNER, now=later, referrer=referrer).verdict

    assert verdict_of(page(modified=OLD)) is Judgement.INVENTED
    assert verdict_of(page(modified=OLD, links=leading)) is Judgement.CHANGED  # it may have been there
    assert verdict_of(page(modified=SINCE)) is Judgement.CHANGED  # it may have led there
    assert verdict_of(None) is verdict_of(gone()) is Judgement.CHANGED


def test_file_that_was_read_in_another_charset_is_no_lie_and_another_text_is_one() -> None:
    digest, fields = digest_of(b"bytes"), (*DEFAULT_FIELDS, "headings")
    told = page("Die K�che der Seeschwalbe", digest=digest, language="en", headings=("�",))
    seen = page("Die Küche der Seeschwalbe", digest=digest, language="de", headings=("ü",))
    manner = Manner(fields=fields, is_from_disk=True)
    assert verdict(told, seen, manner=manner) is Judgement.CHANGED
    assert verdict(told, seen, manner=Manner(fields=fields)) is Judgement.ALTERED
    assert verdict(page("Die K�che der Pillen", digest=digest), seen, manner=manner) is Judgement.ALTERED
