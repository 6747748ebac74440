"""What a start does with visits that it cannot take up: nothing is deleted because of a guess.

A visit of another site keeps the host from starting. One that cannot be read now stays where it is. One that
is damaged or of another version is moved into a folder beside the visits, from where its owner can take it
back; there it is kept for a while, within bounds.
"""

import os
import shutil
import time
from pathlib import Path

from sterna.errors import StorageError, UsageError
from sterna.host.files import make_folder, sync_folder
from sterna.host.visiting.logbook import Logbook

ASIDE = "aside"  # the folder beside that of the visits
ASIDE_SECONDS = 30 * 24 * 3600.0  # that a visit stays there, at least until the next start


def visits_left(folder: Path) -> list[Path]:
    """What an earlier process left in the folder of visits; StorageError if it cannot be read."""
    try:
        return sorted(folder.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StorageError(f"cannot read {folder}: {error.strerror}") from error


def refuse_other_site(folder: Path, site: str) -> None:
    """UsageError if visits of another site are kept there.

    Its rations, receipts and audit log lie beside them, and must not be mixed with those of this site.
    """
    for path in visits_left(folder):
        if (other := Logbook(path).site()) not in ("", site):
            raise UsageError(
                f"{folder} keeps visits of {other}, not of {site}: name another folder with --state,"
                f" or move {folder} away if that site is no more"
            )


def never_began(path: Path) -> bool:
    """True if the host was killed before the visit was on the disk: its home was told nothing."""
    try:
        return {each.name for each in path.iterdir()} <= {"log.new"}
    except OSError:
        return False


def set_aside(path: Path, *, most_bytes: int) -> Path:
    """Where the visit is from now on; older ones there are deleted if all are larger. OSError if it fails."""
    aside = path.parent.with_name(ASIDE)
    make_folder(aside)
    name, number = path.name, 1
    while os.path.lexists(place := aside / name):
        number += 1
        name = f"{path.name}.{number}"
    path.rename(place)
    os.utime(place, follow_symlinks=False)  # since when it is there
    sync_folder(aside)
    sync_folder(path.parent)
    _bound(aside, most_bytes=most_bytes)
    return place


def clear_aside(state: Path, *, now: float | None = None) -> None:
    """Deletes what was set aside long ago."""
    now = time.time() if now is None else now
    for since, _, path in _set_aside(state / ASIDE):
        if now - since > ASIDE_SECONDS:
            _delete(path)


def _bound(aside: Path, *, most_bytes: int) -> None:
    """Deletes the oldest, so that the others take no more than this; the newest stays."""
    found = _set_aside(aside)
    total = sum(size for _, size, _ in found)
    for _, size, path in found[:-1]:
        if total > most_bytes:
            _delete(path)
            total -= size


def _set_aside(aside: Path) -> list[tuple[float, int, Path]]:
    """Since when each is there, its size and its path; the oldest first."""
    if not aside.is_dir():
        return []
    return sorted((path.lstat().st_mtime, _size_of(path), path) for path in aside.iterdir())


def _size_of(path: Path) -> int:
    inside = [Path(place, name) for place, _, names in os.walk(path) for name in names]
    return sum(each.lstat().st_size for each in (path, *inside))


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
