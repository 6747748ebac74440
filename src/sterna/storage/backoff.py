"""How long to wait before the next try."""

FIRST_SECONDS = 0.5
LONGEST_SECONDS = 60.0
ROW_FIRST_SECONDS = 60.0
ROW_LONGEST_SECONDS = 6 * 3600.0
_MOST_DOUBLINGS = 40


def delay(attempts: int, *, first: float = FIRST_SECONDS, longest: float = LONGEST_SECONDS) -> float:
    """The seconds after so many failures in a row: twice as many each time, up to the longest."""
    return min(longest, first * 2.0 ** min(max(attempts - 1, 0), _MOST_DOUBLINGS))


def row_delay(attempts: int) -> float:
    """The same for a row that the database refused: it waits for somebody to mend something."""
    return delay(attempts, first=ROW_FIRST_SECONDS, longest=ROW_LONGEST_SECONDS)
