"""Files and folders that are published whole or not at all.

An export is made on a *bench*, a hidden folder beside its place and so on the same disk; when it is done it
is flushed and renamed. Benches are locked: an unlocked one was left by a killed export, and the next export
to the same place removes it. A command that confines itself has another process rename what it made.
"""

import fcntl
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from sterna.archive.disk import new_id, storage_errors, sync_folder
from sterna.errors import StorageError, UsageError
from sterna.export.publisher import Publisher, output_paths, pinned_paths

_BENCH = ".part"
_DESCRIPTORS = re.compile(r"/proc/\d+(/task/\d+)?/fd")
_publisher: Publisher | None = None  # changed by publish_apart() and end_publishers()
_pinner: Publisher | None = None  # changed by pin_apart() and end_publishers()


def is_stream(path: Path) -> bool:
    """True for what is written to and never replaced: `-`, /dev/stdout and the like, a pipe, a terminal."""
    if path == Path("-"):
        return True
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) or _is_descriptor(path)


def _is_descriptor(path: Path) -> bool:
    """True if the path, which exists, stands for an open file: /dev/stdout may be redirected to any."""
    while path.is_symlink():
        folder = path.parent.resolve()
        if _DESCRIPTORS.fullmatch(str(folder)):
            return True
        path = folder / path.readlink()
    return False


def check_file(path: Path, *, force: bool) -> None:
    """UsageError if the path is a folder or a device, or exists and must not be overwritten."""
    _check_parent(path)
    if path.is_dir():
        raise UsageError(f"{path} is a folder: name a file")
    if path.is_block_device() or path.is_socket():
        raise UsageError(f"{path} is a device or a socket: name a file")
    if not force and os.path.lexists(path):
        raise UsageError(f"{path} exists: name another file with --out, or overwrite it with --force")


def check_folder(path: Path, *, force: bool = False) -> None:
    """UsageError if the path is a file, or a folder with contents that must not be replaced.

    With `force` a folder of Markdown alone, as an earlier export made it, may be replaced.
    """
    _check_parent(path)
    if os.path.lexists(path) and not path.is_dir():
        raise UsageError(f"{path} is a file: name a folder")
    if not (path.is_dir() and any(path.iterdir())):
        return
    if not force:
        raise UsageError(f"{path} is not empty: name another folder with --out, or remove it first")
    if other := next((each for each in path.rglob("*") if not _is_markdown(each)), None):
        raise UsageError(f"{other} is no Markdown of an earlier export: name another folder with --out")


def _is_markdown(path: Path) -> bool:
    mode = path.lstat().st_mode
    return stat.S_ISDIR(mode) or (stat.S_ISREG(mode) and path.suffix == ".md")


def _check_parent(path: Path) -> None:
    if not path.absolute().parent.is_dir():
        raise UsageError(f"cannot write {path}: the folder {path.parent} does not exist, make it first")


@contextmanager
def bench(place: Path) -> Iterator[Path]:
    """A folder for unfinished output of this place; removed at the end with its contents."""
    place = place.absolute()
    if _publisher and _publisher.place == place:
        yield _publisher.bench
        return
    with storage_errors(place.parent):
        for entry in place.parent.iterdir():
            if entry.name.startswith(f".{place.name}.") and entry.name.endswith(_BENCH) and entry.is_dir():
                left = _locked(entry)
                if left is not None:  # by an export that was killed
                    shutil.rmtree(entry, ignore_errors=True)
                    os.close(left)
        folder = place.parent / f".{place.name}.{new_id()}{_BENCH}"
        folder.mkdir(mode=0o700)
        handle = _locked(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if handle is not None:
            os.close(handle)


def publish(made: Path, place: Path, *, force: bool = False) -> None:
    """Moves what was made to its place, flushed to the disk first."""
    place = place.absolute()
    with storage_errors(place.parent):
        if made.is_dir():
            # One sync, since flushing a million files one by one takes a disk access each.
            os.sync()
        else:
            with made.open("rb") as file:
                os.fsync(file.fileno())
    (_publisher.move if _publisher else _move)(made, place, force)


def _move(made: Path, place: Path, force: bool) -> None:
    with storage_errors(place.parent):
        if made.is_dir():
            check_folder(place, force=force)
            if place.is_dir() and any(place.iterdir()):
                place.rename(made.with_name("replaced"))  # removed with the bench
        else:
            check_file(place, force=force)
        made.rename(place)
        sync_folder(place.parent)


def publish_apart(place: Path) -> Path:
    """From now on a process of its own gives the output its place; this one needs the bench alone."""
    global _publisher  # noqa: PLW0603 - it is a state of the process, as its confinement is
    place = place.absolute()
    _check_parent(place)
    _publisher = Publisher(place, bench, _move, paths_of=output_paths)
    return _publisher.bench


def pin_apart(folder: Path) -> None:
    """From now on a process of its own pins files of this folder; this one need not write beside it."""
    global _pinner  # noqa: PLW0603 - as above
    if folder.is_symlink():
        return  # files elsewhere are none of the collection's
    with suppress(StorageError):  # nothing can be written there, so nothing is removed either
        _pinner = Publisher(folder.absolute(), bench, _link, paths_of=pinned_paths)


def _link(path: Path, other: Path, _force: bool) -> None:
    with storage_errors(other.parent):
        os.link(path, other, follow_symlinks=False)


def end_publishers() -> None:
    """Ends the other processes, if there are any, and with them their benches."""
    global _publisher, _pinner  # noqa: PLW0603
    for each in (_publisher, _pinner):
        if each:
            each.close()
    _publisher = _pinner = None


@contextmanager
def whole_file(place: Path, *, stdout: BinaryIO) -> Iterator[BinaryIO]:
    """A file that appears under its name, or replaces another, when all of it is written; or a stream."""
    if is_stream(place):
        try:
            with open_stream(place, stdout=stdout) as stream:
                yield stream
        except BrokenPipeError as error:
            raise StorageError(f"the reader of {place} is gone: stopped") from error
        return
    check_file(place, force=True)
    with bench(place) as folder:
        made = folder / "made"
        with storage_errors(place), made.open("xb") as file:
            yield file
        publish(made, place, force=True)


@contextmanager
def open_stream(place: Path, *, stdout: BinaryIO) -> Iterator[BinaryIO]:
    """The open stream; errors are those of `storage_errors`, except of a reader that closed the pipe."""
    try:
        if place == Path("-"):
            yield stdout
            stdout.flush()
        else:
            with place.open("wb") as stream:
                yield stream
    except BrokenPipeError:
        raise
    except OSError as error:
        with storage_errors(place):
            raise error from None


@contextmanager
def pinned(tables: Mapping[str, Sequence[Path]], *, beside: Path) -> Iterator[Mapping[str, Sequence[Path]]]:
    """The same files under names of their own, by hard links, which stay as long as the context is open.

    Without write access to the folder no crawl can run in it either, and the files are used as they are.
    """
    with ExitStack() as stack:
        try:
            folder = _pinner.bench if _pinner else stack.enter_context(bench(beside))
            links = {name: [folder / path.name for path in paths] for name, paths in tables.items()}
            for path in chain.from_iterable(tables.values()):
                (_pinner.move if _pinner else _link)(path, folder / path.name, False)
        except (StorageError, OSError):
            yield tables
            return
        yield links


def _locked(folder: Path) -> int | None:
    """The handle that keeps the folder locked; None if another process holds it."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except NotADirectoryError:
        return None  # somebody's link
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle
