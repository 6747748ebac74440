"""Sums of receipts by home and day, and what the access log says of before and after."""

from datetime import UTC, date
from typing import Any
from xml.etree import ElementTree as Xml
from zoneinfo import ZoneInfo

import pytest
from tests.host.owner.test_host_receipts import HOME, HOST, receipt

from sterna.host.owner.access_log import Hit
from sterna.host.owner.receipts import KeptReceipt, by_home, by_home_and_day, total_of
from sterna.host.owner.savings import (
    EVERYBODY,
    TEXT_WIDTH,
    Comparison,
    Side,
    Traffic,
    compare,
    days_of,
    is_this_machine,
    product,
    svg_of,
    text_of,
)
from sterna.wire.keys import Identity
from sterna.wire.receipts import SignedReceipt

DAY = 86_400.0
FIRST = 1_700_000_000.0  # 2023-11-14 22:13:20 UTC
OTHER = Identity(bytes([5]) * 32)
UTC_DAYS = days_of(UTC)


def kept(
    day: float = 0, *, home: Identity = HOME, name: str = "ada", agent: str = "Tern/1", **fields: Any
) -> KeptReceipt:
    began = FIRST + day * DAY
    made = receipt(f"v{day}", home=home.public.data, began=began, over=began + 10, **fields)
    signed = SignedReceipt.make(made, HOST)
    return KeptReceipt(made, signed.countersign(home) if day else signed, name, agent)


def hit(day: float, agent: str | None = "Tern/2", client: str = "203.0.113.7", size: int = 1_000) -> Hit:
    return Hit(client, FIRST + day * DAY, 200, size, agent)


def traffic(*hits: Hit, agents: tuple[str, ...] = ("Tern/1",), **fields: Any) -> Traffic:
    counted = Traffic(agents, UTC_DAYS, **fields)
    for each in hits:
        counted.add(each)
    return counted


# -- sums --------------------------------------------------------------------------------------------------


def test_receipts_are_summed_by_home_and_day() -> None:
    rows = [kept(0), kept(0.01, pages=5), kept(3), kept(1, home=OTHER, name="bob")]
    sums = by_home_and_day(rows, UTC_DAYS)
    assert [(each.home, each.day, each.total.visits, each.total.pages) for each in sums] == [
        ("ada", date(2023, 11, 14), 2, 15),
        ("ada", date(2023, 11, 17), 1, 10),
        ("bob", date(2023, 11, 15), 1, 10),
    ]
    assert sums[0].total.countersigned == 1
    whole = total_of(rows)
    assert (whole.visits, whole.countersigned, whole.spared_bytes, whole.cpu_seconds) == (4, 3, 16_000, 2.0)
    assert [(each.home, each.total.visits, each.key) for each in by_home(rows)] == [
        ("ada", 3, HOME.public.text),
        ("bob", 1, OTHER.public.text),
    ]


def test_days_are_those_of_the_zone() -> None:
    assert UTC_DAYS(FIRST) == date(2023, 11, 14)
    assert days_of(ZoneInfo("Asia/Kathmandu"))(FIRST) == date(2023, 11, 15)
    vienna = days_of(ZoneInfo("Europe/Vienna"))  # summer time ended on 2023-10-29
    assert (vienna(1_698_530_399), vienna(1_698_530_400)) == (date(2023, 10, 28), date(2023, 10, 29))
    assert (vienna(1_698_620_399), vienna(1_698_620_400)) == (date(2023, 10, 29), date(2023, 10, 30))


def test_home_that_was_renamed_is_one_home_and_nameless_ones_have_their_id() -> None:
    rows = [kept(0, name="old"), kept(1, name="new"), kept(2, home=OTHER, name="")]
    assert {each.home for each in by_home(rows)} == {"new", OTHER.public.id}


def test_no_receipts_are_no_sums() -> None:
    assert (by_home([]), total_of([]).visits, compare(traffic(hit(0)), [], UTC_DAYS)) == ([], 0, [])


# -- before and after --------------------------------------------------------------------------------------


def compared(*hits: Hit, rows: list[KeptReceipt] | None = None, **fields: Any) -> dict[str, Comparison]:
    found = compare(traffic(*hits, **fields), rows or [kept(0)], UTC_DAYS)
    return {each.agent: each for each in found}


def test_requests_of_a_home_are_compared_by_its_first_visit() -> None:
    before = [hit(day) for day in (-3, -2, -2, -1) for _ in range(50)]
    after = [hit(1), hit(2, size=500)]
    found = compared(*before, hit(0), *after, hit(-1, "Mozilla/5.0 (X11)"), hit(2, "Other/1"))
    tern = found["Tern"]
    assert (tern.homes, tern.first) == (("ada",), date(2023, 11, 14))
    assert (tern.before, tern.after) == (Side(3, 200, 200_000), Side(2, 2, 1_500))
    assert "before  66.7 requests," in text_of(tern, has_blocks=False)[-3]
    assert [bar.requests for bar in tern.bars] == [50, 100, 50, 1, 1, 1]
    everybody = found[EVERYBODY]
    assert (everybody.before.requests, everybody.after.requests) == (201, 3)


def test_days_without_a_request_of_the_home_count_if_the_log_has_them() -> None:
    found = compared(hit(-2), hit(-1, "Other"), hit(1, "Other"), hit(2, "Other"))
    assert (found["Tern"].before, found["Tern"].after) == (Side(2, 1, 1_000), Side(2, 0, 0))


def test_what_the_crawler_asks_at_the_site_itself_is_no_traffic() -> None:
    hits = [hit(1, client="127.0.0.1"), hit(1, client="10.0.0.5"), hit(1, "curl/8", client="127.0.0.1")]
    counted = traffic(*hits, here=("10.0.0.5",))
    (tern, everybody) = compare(counted, [kept(0)], UTC_DAYS)
    assert (tern.after.requests, everybody.after.requests) == (0, 1)
    assert (counted.local_requests, counted.has_outsiders) == (2, False)


def test_what_the_host_asks_for_itself_is_no_traffic() -> None:
    hits = [
        hit(1, agent, client="::1")
        for agent in ("Sterna/9 (index of it by its own host)", "Sterna (load probe)")
    ]
    counted = traffic(*hits, hit(1, "Sterna/9"))  # the last one is a stranger's
    everybody = compare(counted, [kept(0)], UTC_DAYS)[-1]
    assert (everybody.after.requests, counted.local_requests) == (1, 2)


def test_log_without_agents_compares_everybody() -> None:
    found = compared(hit(-1, None), hit(1, None))
    assert list(found) == [EVERYBODY]
    assert (found[EVERYBODY].before.requests, found[EVERYBODY].after.requests) == (1, 1)


def test_homes_of_one_agent_are_taken_together_from_the_first_of_them() -> None:
    rows = [kept(2), kept(0, home=OTHER, name="bob", agent="TERN/7")]
    (tern, _) = compare(traffic(hit(-1)), rows, UTC_DAYS)
    assert (tern.homes, tern.first) == (("ada", "bob"), date(2023, 11, 14))


def test_picture_shows_the_last_days_of_each_side() -> None:
    hits = [hit(day) for day in range(-40, 40)]
    (tern, _) = compare(traffic(*hits), [kept(0)], UTC_DAYS, some_days=5)
    assert [(bar.day - tern.first).days for bar in tern.bars] == [*range(-5, 1), *range(35, 40)]
    assert (tern.before.days, tern.after.days) == (40, 39)


@pytest.mark.parametrize(
    ("agent", "expected"),
    [
        ("Tern/1 (+mailto:a@b)", "tern"),
        ("Tern", "tern"),
        (" tern bot", "tern"),
        ("", ""),
        ("Mozilla/5.0 (compatible; Tern)", "mozilla/5.0 (compatible; tern)"),
    ],
)
def test_agent_is_known_by_its_product(agent: str, expected: str) -> None:
    assert product(agent) == expected


@pytest.mark.parametrize(
    ("client", "expected"),
    [
        *((client, True) for client in ("127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "unix:")),
        *((client, False) for client in ("203.0.113.7", "2001:db8::1", "a.example.org", "", "\0")),
    ],
)
def test_this_machine_is_known_by_its_address(client: str, expected: bool) -> None:
    assert is_this_machine(client) is expected


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [(4, 1, "75.0% fewer requests"), (1, 2, "100.0% more requests"), (0, 5, "no requests before")],
)
def test_share_by_which_it_became_less(before: int, after: int, said: str) -> None:
    hits = [*[hit(-1)] * before, hit(-1, "Other/1"), *[hit(1)] * after]
    (tern, _) = compare(traffic(*hits), [kept(0)], UTC_DAYS)
    assert text_of(tern, has_blocks=False)[-1].startswith(f"  change  {said}, ")


# -- the picture -------------------------------------------------------------------------------------------


def test_bars_are_as_long_as_days_are_busy() -> None:
    (tern, _) = compare(traffic(*[hit(-2)] * 80, *[hit(-1)] * 40, hit(0), hit(1)), [kept(0)], UTC_DAYS)
    plain = text_of(tern, has_blocks=False)
    assert plain[0] == "requests of Tern (ada); first visit at the host: 2023-11-14"
    assert [line.count("#") for line in plain[1:5]] == [TEXT_WIDTH, TEXT_WIDTH // 2, 1, 1]
    assert "2023-11-14 *" in plain[3]
    assert plain[-3:] == [
        "  before  60.0 requests, 60.0 kB a day (2 days)",
        "  after   1.0 requests, 1.0 kB a day (1 day)",
        "  change  98.3% fewer requests, 98.3% fewer bytes",
    ]
    blocks = text_of(tern, has_blocks=True)
    assert [line.count("█") for line in blocks[1:5]] == [TEXT_WIDTH, TEXT_WIDTH // 2, 0, 0]
    assert not any("#" in line for line in blocks)


def test_picture_says_where_the_log_has_no_day_to_compare() -> None:
    (tern, _) = compare(traffic(hit(1)), [kept(0)], UTC_DAYS)
    lines = text_of(tern, has_blocks=False)
    assert "  before  the log covers no day of it" in lines
    assert not any("change" in line for line in lines)


def test_more_after_than_before_is_said_too() -> None:
    (tern, _) = compare(traffic(hit(-1), hit(1), hit(1), hit(1)), [kept(0)], UTC_DAYS)
    assert "  change  200.0% more requests, 200.0% more bytes" in text_of(tern, has_blocks=False)


def test_drawing_is_xml_whatever_the_names_hold() -> None:
    evil = "<script>alert(1)</script>&\"'\0\x1b[31m"
    rows = [kept(0, name=evil, agent=f"{evil}/1")]
    comparisons = compare(traffic(hit(-1, f"{evil}/2"), agents=(f"{evil}/1",)), rows, UTC_DAYS)
    assert len(comparisons) == 2
    drawn = svg_of(comparisons, f"http://{evil}")
    root = Xml.fromstring(drawn)
    assert {element.tag.partition("}")[2] for element in root.iter()} == {
        "svg", "title", "style", "rect", "text", "line",
    }  # fmt: skip
    assert "<script" not in drawn


def test_drawing_of_nothing_is_a_drawing() -> None:
    assert Xml.fromstring(svg_of([], "")).tag.endswith("svg")
