"""WARC files: appended to, synced, and brought back to what the manifest knows after a crash.

A file is called `<name>.open` until it is complete, then `<name>`; the manifest knows it by `<name>`, with
its committed length and whether it is open. The file and the manifest cannot change at the same instant, so
`recover` accepts either order:

- A file that became full during an append is handed back as closed first and renamed by the next call. After
  a crash between the two the manifest says closed and the file is still called open: it is renamed.
- `close` renames first and hands back after. After a crash between the two the manifest says open and the
  file has its final name: it gets the open name back, and is written on.
- Bytes beyond the committed length were never acknowledged: they are moved to the folder `aside` of the
  collection. So is an `.open` file that the manifest does not know: it was never acknowledged at all. A file
  with a final name is not even looked at while the manifest calls it closed: an owner may move such files.
"""

import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from itertools import repeat
from pathlib import Path

from sterna.archive.disk import (
    ASIDE,
    TEMPORARY,
    OnStep,
    begin_file,
    free_path,
    ignore_step,
    make_folder,
    new_id,
    path_in,
    set_aside,
    storage_errors,
    sync_folder,
)
from sterna.archive.manifest import Original, WarcPosition
from sterna.archive.warc_records import page_records, warcinfo
from sterna.errors import StorageError, command
from sterna.model import Page

MAX_BYTES = 1 << 30
OPEN = ".open"  # the ending of a file that is still written


@dataclass(slots=True)
class _Part:
    """What one append adds to one file."""

    name: str
    offset: int
    end: int
    members: list[bytes] = field(default_factory=list)

    def add(self, member: bytes) -> None:
        self.members.append(member)
        self.end += len(member)


@dataclass(eq=False, repr=False)
class WarcStore:
    """The folder of WARC files; the manifest decides how much of each counts."""

    folder: Path
    _: KW_ONLY
    software: str
    user_agent: str = ""
    collection: str = ""  # its id, by which a file says whose it is
    max_bytes: int = MAX_BYTES
    on_step: OnStep = ignore_step
    # Changed by recover, append and close only, and only after the disk has done its part.
    _open: list[WarcPosition] = field(default_factory=list)  # the last is written on
    _full: list[str] = field(default_factory=list)  # handed back as closed, not yet renamed

    def __post_init__(self) -> None:
        make_folder(self.folder)

    def append(
        self, pages: Sequence[Page], originals: Sequence[Original | None] | None = None
    ) -> list[WarcPosition]:
        """The files that grew, now durable: the last is open, others are full; none where no page is raw.

        `originals` has, for each page, the response to which it refers if it is unchanged.
        """
        members = [
            page_records(page, page.raw, original)
            for page, original in zip(pages, originals or repeat(None, len(pages)), strict=True)
            if page.raw is not None
        ]
        if not members:
            return []
        self._rename_full()
        parts = self._spread(members)
        self._write(parts)
        closed = [WarcPosition(part.name, part.end, is_open=False) for part in parts[:-1]]
        grown = WarcPosition(parts[-1].name, parts[-1].end, is_open=True)
        self._full = [position.name for position in closed]
        self._open[-1:] = [grown]
        return [*closed, grown]

    def recover(self, positions: Sequence[WarcPosition]) -> None:
        """Makes the folder what the manifest says; called at the start, before anything else."""
        known = {position.name + OPEN for position in positions}
        with storage_errors(self.folder):
            present = [position for position in positions if self._restore(position)]
            for path in self.folder.glob("*.warc.gz" + OPEN):
                if path.name not in known:
                    set_aside(path, self._aside)
            sync_folder(self.folder)
        self._open = [position for position in present if position.is_open]
        self._full = []

    def close(self) -> list[WarcPosition]:
        """Renames what is open, and hands it back as closed."""
        self._rename_full()
        with storage_errors(self.folder):
            for position in self._open:
                # A failed append may have left a tail, which must not become part of a complete file.
                self._cut(self._open_path(position.name), position.committed_bytes)
                self._open_path(position.name).rename(self.path(position.name))
            sync_folder(self.folder)
        closed, self._open = self._open, []
        return [WarcPosition(each.name, each.committed_bytes, is_open=False) for each in closed]

    @property
    def _aside(self) -> Path:
        return self.folder.parent / ASIDE

    def path(self, name: str) -> Path:
        return path_in(self.folder, name)

    def _open_path(self, name: str) -> Path:
        return path_in(self.folder, name + OPEN)

    def _rename_full(self) -> None:
        """The manifest lists these files as closed by now: its commit lies between two calls."""
        with storage_errors(self.folder):
            for name in self._full:
                self._open_path(name).rename(self.path(name))
            if self._full:
                sync_folder(self.folder)
        self._full = []

    def _spread(self, members: Sequence[bytes]) -> list[_Part]:
        """Which bytes go to which file; a page too large for any file gets one of its own."""
        parts = [
            _Part(each.name, each.committed_bytes, each.committed_bytes) for each in self._open[-1:]
        ] or [self._begin()]
        has_pages = bool(self._open)
        for member in members:
            if has_pages and parts[-1].end + len(member) > self.max_bytes:
                parts.append(self._begin())
            parts[-1].add(member)
            has_pages = True
        return parts

    def _begin(self) -> _Part:
        now = datetime.now(UTC)
        name = f"sterna-{now:%Y%m%d%H%M%S}-{new_id()}.warc.gz"
        info = {
            "software": self.software,
            "robots": "classic",
            "http-header-user-agent": self.user_agent,
            "isPartOf": self.collection,
        }
        part = _Part(name, 0, 0)
        part.add(warcinfo(name, info, now=now))
        return part

    def _write(self, parts: Sequence[_Part]) -> None:
        """All the parts, durable, or none."""
        try:
            with storage_errors(self.folder):
                for part in parts:
                    with self._open_path(part.name).open("r+b" if part.offset else "xb") as file:
                        file.truncate(part.offset)  # what an earlier append could neither finish nor undo
                        file.seek(part.offset)
                        file.writelines(part.members)
                        file.flush()
                        self.on_step("warc-written")
                        os.fsync(file.fileno())
                if any(part.offset == 0 for part in parts):
                    sync_folder(self.folder)
        except StorageError:
            for part in parts:
                with suppress(OSError):
                    if part.offset:
                        os.truncate(self._open_path(part.name), part.offset)
                    else:
                        self._open_path(part.name).unlink(missing_ok=True)
            raise
        self.on_step("warc-synced")

    def _restore(self, position: WarcPosition) -> bool:
        """Restores the name and length that the manifest states; False if the file is missing."""
        complete, unfinished = self.path(position.name), self._open_path(position.name)
        if not position.is_open and complete.exists():
            return True
        if complete.exists():
            complete.rename(unfinished)
        if not unfinished.exists():
            return False
        self._cut(unfinished, position.committed_bytes)
        if not position.is_open:
            unfinished.rename(complete)
        return True

    def _cut(self, path: Path, committed_bytes: int) -> None:
        size_bytes = path.stat().st_size
        if size_bytes < committed_bytes:
            raise StorageError(
                f"'{path}' has lost data: it holds {size_bytes} of {committed_bytes} bytes; "
                f"run '{command('repair', self.folder.parent)}'"
            )
        if size_bytes > committed_bytes:
            cut_off(path, committed_bytes, into=self._aside)


def cut_off(path: Path, length: int, *, into: Path) -> None:
    """Moves what lies beyond this length of the file into a file of its own in the folder `into`, durably."""
    make_folder(into)
    tail = free_path(into, f"{path.name}.from-{length}")
    begun = tail.with_name(tail.name + TEMPORARY)
    with storage_errors(into), path.open("r+b") as file:
        file.seek(length)
        with begin_file(begun) as copy:
            shutil.copyfileobj(file, copy, 1 << 20)
            copy.flush()
            os.fsync(copy.fileno())
        begun.replace(tail)
        sync_folder(into)
        file.truncate(length)
        os.fsync(file.fileno())
