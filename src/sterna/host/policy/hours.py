"""Weekly hours in a time zone, as an owner writes them: "Mon-Fri 01:00-05:00", "Sat,Sun 22:00-06:00"."""

import re
from bisect import bisect
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

LOCALTIME = Path("/etc/localtime")
_DAY_MINUTES = 24 * 60
_WEEK_MINUTES = 7 * _DAY_MINUTES
_LOOK_DAYS = 15  # a slot that a change of the clocks skips comes again a week later

_SLOT = re.compile(r"([A-Za-z]+(?:\s*[-,]\s*[A-Za-z]+)*)\s+(\d\d?):(\d\d)\s*-\s*(\d\d?):(\d\d)")
_SHAPE = 'write it as "Mon 00:00-04:00", "Mon-Fri 01:00-05:00", "Sat,Sun 22:00-06:00" or "daily 01:00-05:00"'


@lru_cache(maxsize=16)
def zone_of(name: str) -> tzinfo:
    """The time zone of that name, or the machine's own for ""; ValueError if it is unknown here."""
    try:
        if name:
            return ZoneInfo(name)
        with LOCALTIME.open("rb") as file:
            return ZoneInfo.from_file(file, key="local")
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        if not name:
            return UTC
        raise ValueError(f"unknown zone {name!r}: write it as Europe/Vienna, or install tzdata") from error


def day_of(time: float, zone: tzinfo) -> str:
    """The day of the zone, as 2026-11-16."""
    return datetime.fromtimestamp(time, zone).date().isoformat()


def day_end(time: float, zone: tzinfo) -> float:
    return _midnight(datetime.fromtimestamp(time, zone).date() + timedelta(days=1), zone)


class Hours:
    """Slots of a week in a zone's local time, or all of it; pure."""

    def __init__(self, slots: Sequence[tuple[int, int]], zone: tzinfo) -> None:
        self._slots = tuple(slots)  # minutes from Monday 00:00, begin and end; none: always
        self._zone = zone
        self._edges = {minute % _WEEK_MINUTES for slot in self._slots for minute in slot}

    @classmethod
    def parse(cls, texts: Sequence[str], zone: tzinfo) -> "Hours":
        """The hours in these texts; ValueError if one is malformed."""
        return cls([slot for text in texts for slot in _slots_of(text)], zone)

    def contains(self, time: float) -> bool:
        """Whether this moment is within; a local time that occurs twice counts both times."""
        if not self._slots:
            return True
        local = datetime.fromtimestamp(time, self._zone)
        minute = local.weekday() * _DAY_MINUTES + local.hour * 60 + local.minute
        return any(begin <= minute < end for begin, end in self._slots)

    def next_begin(self, time: float) -> float | None:
        """The first moment within, from this one on; None if there is none in two weeks."""
        if self.contains(time):
            return time
        return next((moment for moment in self._moments(time) if self.contains(moment)), None)

    def ends(self, time: float) -> float | None:
        """The first moment that is not within, from this one on; None if all are."""
        if not self.contains(time):
            return time
        return next((moment for moment in self._moments(time) if not self.contains(moment)), None)

    def _moments(self, after: float) -> Iterator[float]:
        """Every moment at which a slot may begin or end, in order."""
        first = datetime.fromtimestamp(after, self._zone).date()
        for number in range(_LOOK_DAYS):
            found = set(self._moments_of(first + timedelta(days=number)))
            yield from sorted(moment for moment in found if moment > after)

    def _moments_of(self, day: date) -> Iterator[float]:
        begin, end = _midnight(day, self._zone), _midnight(day + timedelta(days=1), self._zone)
        yield from self._clock_change(begin, end)
        for edge in self._edges:
            if edge // _DAY_MINUTES == day.weekday():
                hour, minute = divmod(edge % _DAY_MINUTES, 60)
                local = datetime(day.year, day.month, day.day, hour, minute, tzinfo=self._zone)
                yield local.timestamp()
                yield local.replace(fold=1).timestamp()  # its second occurrence, if any

    def _clock_change(self, begin: float, end: float) -> Iterator[float]:
        """The second at which the clocks changed in between, if they did."""
        before = self._offset(begin)
        if self._offset(end) != before:
            seconds = range(int(begin), int(end) + 1)
            yield float(seconds[bisect(seconds, False, key=lambda second: self._offset(second) != before)])

    def _offset(self, time: float) -> timedelta | None:
        return datetime.fromtimestamp(time, self._zone).utcoffset()


def _midnight(day: date, zone: tzinfo) -> float:
    return datetime(day.year, day.month, day.day, tzinfo=zone).timestamp()


def _slots_of(text: str) -> Iterator[tuple[int, int]]:
    found = _SLOT.fullmatch(text.strip())
    if not found:
        raise ValueError(f"malformed hours {text!r}: {_SHAPE}")
    names, *numbers = found.groups()
    hour, minute, last_hour, last_minute = map(int, numbers)
    begin, end = hour * 60 + minute, last_hour * 60 + last_minute
    if max(minute, last_minute) > 59 or begin >= _DAY_MINUTES or end > _DAY_MINUTES:
        raise ValueError(f"{text!r} has an invalid time of day (00:00 to 24:00)")
    if begin == end:
        raise ValueError(f"{text!r} has no length: a whole day is 00:00-24:00")
    for day in _days_of(names, text):
        start = day * _DAY_MINUTES + begin
        stop = day * _DAY_MINUTES + end + (_DAY_MINUTES if end < begin else 0)
        yield start, min(stop, _WEEK_MINUTES)
        if stop > _WEEK_MINUTES:  # from Sunday into Monday
            yield 0, stop - _WEEK_MINUTES


def _days_of(names: str, text: str) -> Iterator[int]:
    if names.lower() == "daily":
        yield from range(7)
        return
    for part in names.split(","):
        first, _, last = part.partition("-")
        begin = _day(first, text)
        end = _day(last, text) if last else begin
        yield from ((begin + step) % 7 for step in range((end - begin) % 7 + 1))


def _day(name: str, text: str) -> int:
    word = name.strip().lower()
    for number, full in enumerate(
        ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
    ):
        if word in (full[:3], full, f"{full}s"):
            return number
    raise ValueError(f"{text!r}: {name.strip()!r} is not a day: {_SHAPE}")
