"""Hours as owners write them: by the clocks of a zone, over midnight, and over the change of the clocks."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.host.policy.hours import Hours, day_end, day_of, zone_of

VIENNA = ZoneInfo("Europe/Vienna")
ALL_ZONES = ("Europe/Vienna", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "UTC")


def at(text: str, zone: ZoneInfo = VIENNA, *, fold: int = 0) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=zone, fold=fold).timestamp()


def shown(time: float | None, zone: ZoneInfo = VIENNA) -> str:
    return "" if time is None else f"{datetime.fromtimestamp(time, zone):%a %Y-%m-%d %H:%M:%S}"


def hours(*texts: str, zone: ZoneInfo = VIENNA) -> Hours:
    return Hours.parse(texts, zone)


def test_hours_hold_from_their_first_minute_to_their_last() -> None:
    night = hours("Mon 00:00-04:00")
    assert not night.contains(at("2026-11-15 23:59:59"))
    assert night.contains(at("2026-11-16 00:00"))
    assert night.contains(at("2026-11-16 03:59:59"))
    assert not night.contains(at("2026-11-16 04:00"))
    assert not night.contains(at("2026-11-17 02:00"))
    assert shown(night.next_begin(at("2026-11-16 04:00"))) == "Mon 2026-11-23 00:00:00"
    assert shown(night.ends(at("2026-11-16 01:00"))) == "Mon 2026-11-16 04:00:00"


def test_no_hours_are_always() -> None:
    always = hours()
    assert always.contains(0.0)
    assert (always.next_begin(5.0), always.ends(5.0)) == (5.0, None)


def test_hours_over_midnight_belong_to_the_day_on_which_they_begin() -> None:
    weekend = hours("Sat,Sun 22:00-06:00")
    assert weekend.contains(at("2026-11-14 23:00"))
    assert weekend.contains(at("2026-11-15 05:59"))
    assert weekend.contains(at("2026-11-16 05:59"))  # from Sunday into Monday
    assert not weekend.contains(at("2026-11-16 22:30"))
    assert not weekend.contains(at("2026-11-14 05:00"))
    assert shown(weekend.ends(at("2026-11-15 23:00"))) == "Mon 2026-11-16 06:00:00"


def test_hours_that_meet_are_one() -> None:
    long = hours("Mon 20:00-24:00", "Tue 00:00-03:00")
    assert shown(long.ends(at("2026-11-16 21:00"))) == "Tue 2026-11-17 03:00:00"
    assert hours("daily 00:00-24:00").ends(at("2026-11-16 21:00")) is None


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("Mon 10:00-11:00", "Mon"),
        ("mondays 10:00-11:00", "Mon"),
        ("Monday,Wed 10:00-11:00", "Mon Wed"),
        ("Mon-Fri 10:00-11:00", "Mon Tue Wed Thu Fri"),
        ("Fri-Mon 10:00-11:00", "Mon Fri Sat Sun"),
        ("Tue, Thu-Fri 10:00 - 11:00", "Tue Thu Fri"),
        ("daily 10:00-11:00", "Mon Tue Wed Thu Fri Sat Sun"),
    ],
)
def test_days_are_named_alone_in_lists_and_in_spans(text: str, days: str) -> None:
    found = hours(text)
    dates = [at(f"2026-11-{day} 10:30") for day in range(16, 23)]
    assert (
        " ".join(f"{datetime.fromtimestamp(time, VIENNA):%a}" for time in dates if found.contains(time))
        == days
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Mon", "malformed hours"),
        ("00:00-04:00", "malformed hours"),
        ("Mon 00-04", "malformed hours"),
        ("Mon 00:00-04:00 CET", "malformed hours"),
        ("", "malformed hours"),
        ("Moon 00:00-04:00", "'Moon' is not a day"),
        ("Mon-Fr 00:00-04:00", "'Fr' is not a day"),
        ("Mon 24:00-25:00", "invalid time of day"),
        ("Mon 00:60-04:00", "invalid time of day"),
        ("Mon 04:00-04:00", "a whole day is 00:00-24:00"),
    ],
)
def test_what_are_no_hours_is_said(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        hours(text)


# -- when the clocks change (29 March and 25 October 2026 in Vienna) ---------------------------------------


def test_slot_in_the_hour_that_is_left_out_does_not_come() -> None:
    lost = hours("Sun 02:15-02:45")
    assert shown(lost.next_begin(at("2026-03-28 12:00"))) == "Sun 2026-04-05 02:15:00"


def test_slot_that_begins_in_the_hour_that_is_left_out_begins_with_the_change() -> None:
    night = hours("Sun 02:30-05:00")
    begin = night.next_begin(at("2026-03-29 01:00"))
    assert shown(begin) == "Sun 2026-03-29 03:00:00"
    assert begin == at("2026-03-29 01:00") + 3600.0
    assert night.ends(begin) == begin + 2 * 3600.0


def test_slot_that_ends_in_the_hour_that_is_left_out_ends_with_the_change() -> None:
    night = hours("Sun 01:00-02:30")
    assert night.ends(at("2026-03-29 01:30")) == at("2026-03-29 01:30") + 1800.0


def test_hour_that_comes_twice_is_within_twice() -> None:
    night = hours("Sun 02:00-02:30")
    first, second = at("2026-10-25 02:10"), at("2026-10-25 02:10", fold=1)
    assert second == first + 3600.0
    assert night.contains(first)
    assert night.contains(second)
    assert night.ends(first) == first + 20 * 60.0
    assert night.next_begin(first + 21 * 60.0) == second - 10 * 60.0


def test_day_has_the_length_that_the_clocks_give_it() -> None:
    assert day_of(at("2026-10-25 23:59"), VIENNA) == "2026-10-25"
    assert day_end(at("2026-10-25 00:00"), VIENNA) - at("2026-10-25 00:00") == 25 * 3600.0
    assert day_end(at("2026-03-29 12:00"), VIENNA) - at("2026-03-29 00:00") == 23 * 3600.0


_times = st.integers(0, 2**31).map(float)
_texts = st.builds(
    "{} {:02}:{:02}-{:02}:{:02}".format,
    st.sampled_from(["Mon", "Tue-Thu", "Fri,Sun", "daily", "Sat-Sun"]),
    st.integers(0, 22),
    st.sampled_from([0, 15, 30, 45]),
    st.integers(0, 23),
    st.sampled_from([1, 16, 31, 46]),
)


@given(st.lists(_texts, min_size=1, max_size=3), st.sampled_from(ALL_ZONES), _times)
def test_what_is_next_is_the_first_moment_of_its_kind(texts: list[str], zone: str, time: float) -> None:
    """Held against every quarter of an hour in between."""
    found = Hours.parse(texts, ZoneInfo(zone))
    is_within = found.contains(time)
    change = found.ends(time) if is_within else found.next_begin(time)
    step = 900.0
    look = time - time % step + step
    until = time + 9 * 24 * 3600.0 if change is None else change
    while look < until:
        assert found.contains(look) == is_within
        look += step
    if change is not None:
        assert found.contains(change) != is_within
        assert change > time


# -- zones -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Vienna", "Europe", "../etc/passwd", "Europe/Vienna\n", "\x00"])
def test_zone_that_nobody_knows_is_said(name: str) -> None:
    with pytest.raises(ValueError, match="unknown zone"):
        zone_of(name)


def test_zone_is_the_machines_own_unless_it_is_named() -> None:
    assert day_of(0.0, zone_of("")) in ("1970-01-01", "1969-12-31")
    assert day_of(0.0, zone_of("Pacific/Honolulu")) == "1969-12-31"
