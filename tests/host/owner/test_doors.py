"""The doors of a host: a file that every process sees."""

from pathlib import Path

import pytest

from sterna.errors import StorageError
from sterna.host.owner.control import BY_OWNER, CLOSED, MAX_REASON, Closure, Doors


def test_doors_are_open_until_they_are_closed(tmp_path: Path) -> None:
    doors = Doors(tmp_path)
    assert doors.closure() is None
    doors.close("  too much\n today ")
    assert Doors(tmp_path).closure() == Closure("too much today")
    assert (tmp_path / CLOSED).stat().st_mode & 0o777 == 0o600
    doors.close("another reason")
    assert doors.closure() == Closure("another reason")
    doors.open()
    assert Doors(tmp_path).closure() is None
    doors.open()


def test_a_file_that_somebody_made_by_hand_closes_them(tmp_path: Path) -> None:
    (tmp_path / CLOSED).touch()
    assert Doors(tmp_path).closure() == Closure(BY_OWNER)


def test_reason_is_one_line_and_short(tmp_path: Path) -> None:
    Doors(tmp_path).close("x\r\ny " * 500)
    closure = Doors(tmp_path).closure()
    assert closure
    assert len(closure.reason) <= MAX_REASON
    assert "\n" not in closure.reason
    (tmp_path / CLOSED).write_bytes(b"\xff" * 10_000)
    assert Doors(tmp_path).closure()


def test_what_cannot_be_read_counts_as_closed(tmp_path: Path) -> None:
    (tmp_path / CLOSED).mkdir()
    closure = Doors(tmp_path).closure()
    assert closure
    assert "cannot read" in closure.reason


def test_folder_is_made_where_there_is_none(tmp_path: Path) -> None:
    Doors(tmp_path / "state").close("early")
    assert Doors(tmp_path / "state").closure() == Closure("early")


def test_doors_that_cannot_be_closed_say_so(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("no folder")
    with pytest.raises(StorageError, match="cannot create folder"):
        Doors(tmp_path / "state").close("x")


def test_link_in_the_folder_leads_nowhere(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("mine")
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / CLOSED).symlink_to(other)
    Doors(tmp_path / "state").close("x")
    assert other.read_text() == "mine"
    assert Doors(tmp_path / "state").closure() == Closure("x")
