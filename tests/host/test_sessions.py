"""Sessions as files: one winner for each ticket and each nonce, and nothing that grows for ever."""

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from sterna.errors import Refused, StorageError
from sterna.host.entrance import sessions as module
from sterna.host.entrance.sessions import KEPT_SECONDS, NONCE_SECONDS, TICKET_SECONDS, Session, Sessions
from sterna.model import Budget

NOW = 1000.0


def session(number: int = 1) -> Session:
    return Session(bytes([number]) * 16, "ed25519:x", b"keys", b"t" * 32, Budget(pages=5), NOW)


def refusal_of(call: Callable[[], object]) -> str:
    try:
        call()
    except Refused as refused:
        return refused.problem
    return ""


def test_session_is_found_by_another_process(tmp_path: Path) -> None:
    Sessions(tmp_path).open(session())
    assert Sessions(tmp_path).find(session().id) == session()


def test_unknown_and_damaged_sessions_are_refused(tmp_path: Path) -> None:
    sessions = Sessions(tmp_path)
    sessions.open(session())
    (tmp_path / "sessions" / session().id.hex()).write_bytes(b"\xc1")
    for id, problem in (
        (session().id, "ticket-expired"),
        (b"\xff" * 16, "ticket-expired"),
        (b"", "malformed"),
    ):
        assert refusal_of(partial(sessions.find, id)) == problem


def test_forty_claims_at_once_have_one_winner(tmp_path: Path) -> None:
    Sessions(tmp_path).open(session())

    def claim(_: int) -> str:
        sessions = Sessions(tmp_path)
        return refusal_of(lambda: sessions.claim(session(), b"t" * 32, now=NOW))

    with ThreadPoolExecutor(40) as pool:
        results = sorted(pool.map(claim, range(40)))
    assert results == ["", *["ticket-spent"] * 39]


def test_wrong_ticket_spends_nothing(tmp_path: Path) -> None:
    sessions = Sessions(tmp_path)
    sessions.open(session())
    assert refusal_of(lambda: sessions.claim(session(), b"x" * 32, now=NOW)) == "malformed"
    assert refusal_of(lambda: sessions.claim(session(), b"t" * 32, now=NOW)) == ""


@pytest.mark.parametrize("late", [TICKET_SECONDS + 1, -TICKET_SECONDS - 1])
def test_ticket_expires(tmp_path: Path, late: float) -> None:
    sessions = Sessions(tmp_path)
    sessions.open(session())
    assert refusal_of(lambda: sessions.claim(session(), b"t" * 32, now=NOW + late)) == "ticket-expired"


def test_nonce_is_taken_once_from_each_home(tmp_path: Path) -> None:
    Sessions(tmp_path).note("ada", b"n" * 16)
    assert refusal_of(lambda: Sessions(tmp_path).note("ada", b"n" * 16)) == "replayed"
    assert refusal_of(lambda: Sessions(tmp_path).note("bob", b"n" * 16)) == ""


def test_nobody_else_can_read_the_keys(tmp_path: Path) -> None:
    Sessions(tmp_path / "state").open(session())
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "state" / "sessions").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "state" / "sessions" / session().id.hex()).stat().st_mode & 0o777 == 0o600


def age(path: Path, seconds: float) -> None:
    os.utime(path, (time.time() - seconds,) * 2)


def test_what_is_over_is_swept_and_what_is_used_stays(tmp_path: Path) -> None:
    sessions = Sessions(tmp_path)
    folder = tmp_path / "sessions"
    for number in (1, 2, 3, 4):
        sessions.open(session(number))
    for number in (2, 3):
        sessions.claim(session(number), b"t" * 32, now=NOW)
    sessions.note("ada", b"o" * 16)
    age(next((tmp_path / "nonces").iterdir()), NONCE_SECONDS + 1)
    age(folder / session(1).id.hex(), 2 * TICKET_SECONDS + 1)  # never claimed
    for path in folder.glob(f"{session(2).id.hex()}*"):
        age(path, KEPT_SECONDS + 1)
    for path in folder.glob(f"{session(3).id.hex()}*"):
        age(path, KEPT_SECONDS + 1)
    sessions.use(session(3))
    age(tmp_path / "swept", 3600)
    sessions.note("ada", b"n" * 16)
    left = {path.name for path in folder.iterdir()}
    assert left == {session(3).id.hex(), f"{session(3).id.hex()}.spent", session(4).id.hex()}
    assert [path.name for path in (tmp_path / "nonces").iterdir()] == [f"ada-{(b'n' * 16).hex()}"]


def test_sessions_and_nonces_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SESSIONS", 2)
    monkeypatch.setattr(module, "MAX_NONCES", 2)
    sessions = Sessions(tmp_path)
    for number in (1, 2):
        sessions.open(session(number))
        sessions.note("ada", bytes([number]) * 16)
    assert refusal_of(lambda: sessions.open(session(3))) == "busy"
    assert refusal_of(lambda: sessions.note("ada", b"n" * 16)) == "busy"


def test_folder_that_cannot_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    with pytest.raises(StorageError, match="cannot hold a host's state"):
        Sessions(tmp_path / "state")
