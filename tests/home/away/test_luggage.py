"""What goes to a host by name, what only as a fingerprint, and what goes by name the next time."""

import msgspec
import pytest
import zstandard
from tests.home.away.visits import OFFER, SITE, parcel, target, visit

from sterna.errors import HostGone
from sterna.home.away.luggage import is_negligent, luggage, pack, unpack, with_missed
from sterna.model import Checkpoint, Crawler, Ended, Known, Program, State, Target, Validator, Visit
from sterna.web.urls import fingerprint


def named(trip: Visit) -> list[str]:
    return [start.url.removeprefix(SITE) for start in luggage(trip)[0]]


def marks(*paths: str) -> set[int]:
    return {fingerprint(f"{SITE}{path}") for path in paths}


REFRESH = visit(
    target("/"),
    target("/a", 1),
    target("/b", 1),
    target("/new", 1),
    target("/deep", 2),
    validated=["/", "/a", "/b", "/deep"],
)


def test_new_urls_go_by_name() -> None:
    assert named(visit(target("/"), target("/a", 1))) == ["/", "/a"]


def test_pages_that_were_read_before_go_as_fingerprints_but_for_the_roots() -> None:
    starts, known = luggage(REFRESH)
    assert [start.url.removeprefix(SITE) for start in starts] == ["/", "/new"]
    assert known == REFRESH.known


def test_all_pages_of_the_lowest_depth_are_roots() -> None:
    assert named(visit(target("/a", 3), target("/b", 3), target("/c", 4), validated=["/a", "/b", "/c"])) == [
        "/a",
        "/b",
    ]


def test_page_without_a_digest_is_nothing_that_a_host_could_compare() -> None:
    blank = Validator(fingerprint(f"{SITE}/a"), '"1"')
    trip = msgspec.structs.replace(visit(target("/"), target("/a", 1)), known=Known(b"", (blank,)))
    assert luggage(trip) == (trip.starts, Known())


def test_sitemap_goes_by_name() -> None:
    trip = visit(target("/"), target("/map.xml", 1, kind="sitemap"), validated=["/", "/map.xml"])
    assert named(trip) == ["/", "/map.xml"]


def test_crawler_whose_rules_load_pages_gets_all_by_name() -> None:
    crawler = Crawler(program=Program(drives_loading=True))
    assert len(named(msgspec.structs.replace(REFRESH, crawler=crawler))) == 5


def test_visit_without_starts_takes_none() -> None:
    assert named(visit()) == []


# -- what was missed -------------------------------------------------------------------------------------


def missed(
    trip: Visit, *reported: str, ended: Ended = Ended.FINISHED, again: tuple[Target, ...] = ()
) -> list[str]:
    last = parcel(trip, ended=ended, checkpoint=Checkpoint(again=again))
    done = with_missed(last, trip, reported=marks(*reported))
    return [f"{each.url.removeprefix(SITE)} {each.attempts}" for each in done.checkpoint.again]


def test_start_that_a_finished_visit_did_not_come_by_is_to_be_tried_again() -> None:
    assert missed(REFRESH, "/", "/a", "/new") == ["/b 1", "/deep 1"]


def test_visit_that_ended_early_missed_nothing_yet() -> None:
    assert missed(REFRESH, "/", ended=Ended.BUDGET) == []
    assert missed(REFRESH, "/", ended=Ended.STOPPED) == []


def test_what_the_host_wants_to_try_again_is_left_as_it_says() -> None:
    again = (target("/b", 1, attempts=2),)
    assert missed(REFRESH, "/", "/a", "/new", "/deep", again=again) == ["/b 2"]


def test_what_was_missed_goes_by_name_the_next_time_and_so_it_ends() -> None:
    last = with_missed(parcel(REFRESH, ended=Ended.FINISHED), REFRESH, reported=marks("/", "/a", "/new"))
    second = visit(*last.checkpoint.again, validated=["/b", "/deep"])
    assert named(second) == ["/b", "/deep"]
    assert missed(second, "/b", "/deep") == []


# -- hosts that leave out what they were given -----------------------------------------------------------


def test_host_that_says_nothing_of_a_url_it_was_given_is_negligent() -> None:
    assert is_negligent(REFRESH, reported=marks("/"))
    assert not is_negligent(REFRESH, reported=marks("/", "/new"))


# -- for the outbox --------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", b"rubbish", zstandard.compress(b"\x90"), pack(REFRESH, OFFER)[:-9]])
def test_what_another_version_packed_is_given_up(data: bytes) -> None:
    with pytest.raises(HostGone, match="cannot read the crawler's entry"):
        unpack(data)


def test_packed_visit_is_the_same_when_it_is_unpacked() -> None:
    trip = msgspec.structs.replace(REFRESH, state=State(((1, b"\0fact"),), b"memory"), may_be_private=True)
    assert unpack(pack(trip, OFFER)) == (trip, OFFER, None)
