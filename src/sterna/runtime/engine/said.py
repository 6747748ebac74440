"""What rules have said so far: of the page that is being judged, and into the scratch store."""

from sterna.crawler.facts import Value, Values, encode_value
from sterna.runtime.engine.clips import RuleFault
from sterna.runtime.engine.messages import (
    MAX_FOLLOW_CHARS,
    MAX_FOLLOWS,
    MAX_LINE_CHARS,
    MAX_LOG_LINES,
    MAX_ROW_BYTES,
    Verdict,
)

MAX_URL_CHARS = 8 * 1024


class Said:
    """Decisions on one page, within bounds; made anew for each page and changed by the functions of rules."""

    def __init__(self, *, follows_links: bool = True) -> None:
        self.is_kept: bool | None = None
        self.follows_links = follows_links
        self.refused: set[str] = set()
        self._follow: dict[str, int] = {}
        self._priorities: dict[str, int] = {}
        self._url_chars = 0
        self._rows: list[bytes] = []
        self._row_bytes = 0
        self._log: list[str] = []
        self._line = ""  # what was printed without an end

    def follow(self, url: str, priority: int) -> None:
        """The URL is to be fetched."""
        self._note(self._follow, url, priority)

    def raise_to(self, url: str, priority: int) -> None:
        """The URL has this priority wherever it waits."""
        self._note(self._priorities, url, priority)

    def _note(self, notes: dict[str, int], url: str, priority: int) -> None:
        if len(url) > MAX_URL_CHARS:
            raise RuleFault(f"a URL of {len(url):,} characters is too long")
        if url not in notes:
            self._url_chars += len(url)
            if len(notes) >= MAX_FOLLOWS or self._url_chars > MAX_FOLLOW_CHARS:
                raise RuleFault(f"too many URLs for one page: {MAX_FOLLOWS:,} are allowed")
        notes[url] = priority

    def emit(self, row: bytes) -> None:
        """The row goes home."""
        if self._row_bytes + len(row) > MAX_ROW_BYTES:
            raise RuleFault(f"more than {MAX_ROW_BYTES:,} bytes of rows for one page")
        self._row_bytes += len(row)
        self._rows.append(row)

    def print(self, text: str) -> None:
        """Adds to the log; a line is one when it ends."""
        *lines, self._line = (self._line + text[: MAX_LINE_CHARS * MAX_LOG_LINES]).split("\n")
        for line in lines:
            self.log(line)

    def log(self, line: str) -> None:
        """Adds a line to the log, as long as there is room."""
        if len(self._log) < MAX_LOG_LINES:
            self._log.append(" ".join(line.split())[:MAX_LINE_CHARS])

    def lines(self) -> tuple[str, ...]:
        """The log."""
        if self._line:
            self.print("\n")
        return tuple(self._log)

    def verdict(self, *, error_count: int, ended: str, detail: str) -> Verdict:
        """All of it."""
        return Verdict(
            is_kept=self.is_kept,
            follows_links=self.follows_links,
            follow=tuple(self._follow.items()),
            priorities=tuple(self._priorities.items()),
            rows=tuple(self._rows),
            log=self.lines(),
            error_count=error_count,
            ended=ended,
            detail=detail,
        )


class Scratch:
    """What rules store under names, up to so many bytes."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._values: dict[str, tuple[Value | Values, int]] = {}  # with their sizes
        self._size = 0
        self.is_full = False  # somebody wanted to store more
        self.is_changed = False  # since whoever looks at it set it back

    def store(self, name: str, value: Value | Values) -> None:
        """Puts the value in the place of what was there; RuleFault if that is too much."""
        size = len(name.encode()) + len(encode_value(value))
        before = self._values[name][1] if name in self._values else 0
        if self._size - before + size > self._most_bytes:
            self.is_full = True
            raise RuleFault(f"the scratch store would have more than {self._most_bytes:,} bytes")
        self._size += size - before
        self._values[name] = value, size
        self.is_changed = True

    def recall(self, name: str, default: Value | Values) -> Value | Values:
        """What was stored under the name."""
        return self._values[name][0] if name in self._values else default

    def contents(self) -> dict[str, bytes]:
        """All of it, to be saved."""
        return {name: encode_value(value) for name, (value, _) in self._values.items()}
