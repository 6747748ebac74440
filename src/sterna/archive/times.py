"""Times that came from outside, made safe to keep."""

from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_END_SECONDS = datetime(2200, 1, 1, tzinfo=UTC).timestamp()
_FIRST_PAGE = datetime(1990, 12, 20, tzinfo=UTC)  # nothing on the web is older than the web
_CLOCK_ERROR = timedelta(days=1)


def moment(seconds: float) -> datetime:
    """The time of a fetch; the epoch where a runtime sent a number that is no time."""
    # NaN fails both comparisons, so it is caught here too.
    return datetime.fromtimestamp(seconds, UTC) if 0 <= seconds < _END_SECONDS else EPOCH


def last_modified(header: str, *, fetched: datetime) -> datetime | None:
    """What a Last-Modified header says, or None where it says nothing that can be true."""
    if not header:
        return None
    try:
        stated = parsedate_to_datetime(header)
        stated = stated.replace(tzinfo=UTC) if stated.tzinfo is None else stated.astimezone(UTC)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return stated if _FIRST_PAGE <= stated <= fetched + _CLOCK_ERROR else None
