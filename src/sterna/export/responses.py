"""Pages as their servers sent them, found in WARC files by address and time."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from sterna.errors import ReadError
from sterna.export.members import content
from sterna.export.progress import Progress
from sterna.export.records import read_heads
from sterna.export.spill import Lookup
from sterna.export.warc import WarcFile, entries
from sterna.web.charset import charset_of, decode_html
from sterna.web.content_coding import decode_body

_MAX_BYTES = 32 << 20  # of a page: more than that is not read by anybody
_RECORD_END = b"\r\n\r\n"


class Responses:
    """Where each response lies; none is known before the files were looked through."""

    def __init__(self, path: Path) -> None:
        self._places = Lookup(path)
        self._files: Sequence[WarcFile] = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._places.close()

    def find(self, files: Sequence[WarcFile], *, progress: Progress) -> None:
        """Looks through the files, once."""
        self._files = files
        progress.begin("WARC files", total=sum(file.committed_bytes for file in files), unit="bytes")
        for number, file in enumerate(files):
            for entry in entries(file, progress=progress):
                if entry.heads.kind == "response":
                    place = f"{entry.heads.date} {number} {entry.offset} {entry.length}"
                    self._places.put_newest(entry.heads.url, place)

    def html(self, url: str, fetched: datetime) -> str | None:
        """The page as it was then; None where no response is left of it, or it cannot be read.

        A later response is as good: had the page changed, it would not be the one of that time.
        """
        date, number, offset, length = (self._places.get(url) or " 0 0 0").split(" ")
        if date < fetched.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"):  # as `archive/records` writes it
            return None
        with self._files[int(number)].open() as file:
            record = content(file, offset=int(offset), length=int(length), max_bytes=_MAX_BYTES)
        heads = read_heads(record)
        packed = record[heads.block_start :].removesuffix(_RECORD_END)
        try:
            body = decode_body(packed, heads.http_fields.get("content-encoding", ""), max_bytes=_MAX_BYTES)
        except ReadError:
            return None
        return decode_html(body, charset_of(heads.http_fields.get("content-type", "")))[0]
