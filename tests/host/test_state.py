"""The one SQLite file of a host: shared by processes, damaged or full, and made from the files of old."""

import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
from base64 import b64encode
from pathlib import Path

import msgspec
import pytest
from tests.host.owner.test_host_receipts import HOME, HOST, receipt

from sterna.errors import Refused, StorageError
from sterna.host.owner.receipts import read_book
from sterna.host.policy.policy import DayCaps
from sterna.host.state import NAME, OLD_FILES, Rations, Session, Sessions, may_note_refusal, open_state
from sterna.model import Budget, Usage
from sterna.wire.receipts import SignedReceipt

DAY = "2026-11-16"
SESSION = Session(b"i" * 16, "ed25519:x", b"keys", b"t" * 32, Budget(pages=5), 1000.0)


def test_many_processes_create_and_use_it_at_once(tmp_path: Path) -> None:
    program = (
        "import os\n"
        "from pathlib import Path\n"
        "from sterna.host.state import Rations, Sessions, open_state\n"
        "from sterna.model import Usage\n"
        "all(os.fork() for _ in range(15))\n"  # a child forks no more: from here on there are 16
        f"state = open_state(Path({str(tmp_path)!r}))\n"
        "for number in range(5):\n"
        "    Sessions(state).note('ada', os.urandom(16))\n"
        f"    Rations(state).spend('ada', {DAY!r}, Usage(pages=1))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=120, check=True)
    assert done.stderr == b""  # of all of them: it ends with the last
    assert Rations(open_state(tmp_path)).left("ada", DayCaps(pages=1000), DAY).pages == 920


def test_new_file_waits_for_the_process_that_is_just_writing_it(tmp_path: Path) -> None:
    first = sqlite3.connect(tmp_path / NAME, isolation_level=None, check_same_thread=False)
    first.execute("BEGIN IMMEDIATE")
    later = threading.Timer(0.1, first.rollback)
    later.start()
    open_state(tmp_path)
    later.join()
    first.close()


def test_refusals_are_noted_once_a_second(tmp_path: Path) -> None:
    state = open_state(tmp_path)
    assert [may_note_refusal(state, now=now) for now in (100.0, 100.5, 101.0, 50.0)] == [
        True,
        False,
        True,
        True,  # the clock was set back
    ]


# -- trouble -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"no database at all" * 100, b"SQLite format 3\0" + b"\xff" * 4096])
def test_damaged_file_is_named_in_one_line_with_what_to_do(tmp_path: Path, content: bytes) -> None:
    (tmp_path / NAME).write_bytes(content)
    with pytest.raises(StorageError, match=r"move it away and start the host again") as raised:
        open_state(tmp_path)
    assert str(tmp_path / NAME) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_file_of_another_format_is_not_touched(tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / NAME)
    other.execute("PRAGMA user_version = 99")
    other.close()
    before = (tmp_path / NAME).read_bytes()
    with pytest.raises(StorageError, match="has format 99"):
        open_state(tmp_path)
    assert (tmp_path / NAME).read_bytes()[100:] == before[100:]


def test_full_disk_is_said_and_changes_nothing(tmp_path: Path) -> None:
    state = open_state(tmp_path)
    rations = Rations(state)
    rations.spend("ada", DAY, Usage(pages=1))
    with state.snapshot() as db:
        pages = db.execute("PRAGMA page_count").fetchone()[0]
        db.execute(f"PRAGMA max_page_count = {pages}")  # there is no room left for any page
    with pytest.raises(StorageError, match=r"disk of .* is full"):
        for number in range(1000):
            rations.spend(f"home-{number}", DAY, Usage(pages=1))
    assert rations.left("ada", DayCaps(pages=10), DAY).pages == 9
    assert not may_note_refusal(state, now=5.0) or may_note_refusal(state, now=9.0)  # never raises


@pytest.mark.parametrize("name", [NAME, f"{NAME}-wal"])
def test_folder_in_its_place_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(StorageError, match=NAME):
        open_state(tmp_path)


def test_file_in_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    with pytest.raises(StorageError, match="cannot create folder"):
        open_state(tmp_path / "state")


# -- the files of earlier versions -------------------------------------------------------------------------


def write_old_files(folder: Path) -> None:
    """What a host of version 0.1 left."""
    for name in ("sessions", "nonces", "ration"):
        (folder / name).mkdir(parents=True)
    session = folder / "sessions" / SESSION.id.hex()
    session.write_bytes(msgspec.msgpack.encode(SESSION))
    spent = folder / "sessions" / (b"s" * 16).hex()
    spent.write_bytes(msgspec.msgpack.encode(msgspec.structs.replace(SESSION, id=b"s" * 16)))
    spent.with_suffix(".spent").touch()
    (folder / "nonces" / f"ada-{(b'n' * 16).hex()}").touch()
    (folder / "ration" / ".lock").write_text(DAY)
    used = {"day": DAY, "visits": 1, "pages": 60, "cpu_seconds": 1.5, "read_bytes": 9, "sent_bytes": 0}
    (folder / "ration" / "ada").write_text(json.dumps(used))
    (folder / "ration" / "bob").write_bytes(b"\xff{")
    (folder / "swept").touch()
    (folder / "refused").touch()
    signed = SignedReceipt.make(receipt("v1"), HOST)
    lines = [
        line_of(signed),
        line_of(signed.countersign(HOME)),
        "{ rubbish",
        line_of(SignedReceipt.make(receipt("v2"), HOST)),
    ]
    (folder / "receipts.jsonl").write_text("\n".join(lines) + "\n")


def line_of(signed: SignedReceipt) -> str:
    fields = {"receipt": signed.payload, "by_host": signed.by_host, "by_home": signed.by_home}
    encoded = {name: b64encode(data).decode() for name, data in fields.items()}
    return json.dumps({"time": "2023-11-14T22:13:30Z", "name": "ada", "agent": "Tern/1", **encoded})


def test_old_files_are_taken_over_and_retired(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_old_files(tmp_path)
    state = open_state(tmp_path)
    sessions = Sessions(state)
    assert sessions.find(SESSION.id) == SESSION
    sessions.claim(SESSION, SESSION.ticket, now=SESSION.opened)
    with pytest.raises(Refused, match="ticket-spent"):
        sessions.claim(sessions.find(b"s" * 16), SESSION.ticket, now=SESSION.opened)
    with pytest.raises(Refused, match="replayed"):
        sessions.note("ada", b"n" * 16)
    assert Rations(state).left("ada", DayCaps(pages=100, visits=3), DAY).pages == 40
    assert "bob is damaged; its home starts the day anew" in caplog.text
    assert "receipts.jsonl:3: not taken over" in caplog.text
    kept = read_book(tmp_path)
    assert [(each.receipt.visit, each.is_countersigned) for each in kept.rows] == [
        ("v1", True),
        ("v2", False),
    ]
    assert (kept.rows[0].name, kept.rows[0].agent, kept.bad_lines) == ("ada", "Tern/1", 0)
    assert not any((tmp_path / name).exists() for name in OLD_FILES)
    (evidence,) = tmp_path.glob("receipts-until-*.jsonl")
    assert len(evidence.read_text().splitlines()) == 4


def test_taking_over_twice_changes_nothing(tmp_path: Path) -> None:
    write_old_files(tmp_path)
    Rations(open_state(tmp_path)).spend("ada", DAY, Usage(pages=5))
    write_old_files(tmp_path)  # as if the first time had been killed before it retired the files
    state = open_state(tmp_path)
    assert Rations(state).left("ada", DayCaps(pages=100), DAY).pages == 35
    assert [each.is_countersigned for each in read_book(tmp_path).rows] == [True, False]


def test_old_receipts_are_read_before_a_host_started(tmp_path: Path) -> None:
    write_old_files(tmp_path)
    assert len(read_book(tmp_path).rows) == 2


def test_old_sessions_expire_by_their_files_times(tmp_path: Path) -> None:
    write_old_files(tmp_path)
    long_ago = time.time() - 7 * 24 * 3600
    os.utime(tmp_path / "sessions" / SESSION.id.hex(), (long_ago, long_ago))
    sessions = Sessions(open_state(tmp_path))
    sessions.note("bob", b"n" * 16)
    with pytest.raises(Refused, match="ticket-expired"):
        sessions.find(SESSION.id)


def test_takeover_that_fails_leaves_the_old_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_old_files(tmp_path)
    (tmp_path / "sessions" / (b"x" * 16).hex()).mkdir()  # cannot be read as a file
    with pytest.raises(StorageError, match="cannot take over"):
        open_state(tmp_path)
    assert (tmp_path / "ration" / "ada").exists()
