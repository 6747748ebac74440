"""Sessions and nonces: one winner for each ticket and each nonce, and nothing that grows for ever."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from sterna.errors import Refused
from sterna.host import state as module
from sterna.host.files import Database
from sterna.host.state import (
    KEPT_SECONDS,
    NAME,
    NONCE_SECONDS,
    TICKET_SECONDS,
    Session,
    Sessions,
    open_state,
)
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


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = open_state(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def sessions(database: Database) -> Sessions:
    return Sessions(database)


def test_session_is_found_by_another_process(sessions: Sessions, tmp_path: Path) -> None:
    sessions.open(session())
    assert Sessions(open_state(tmp_path)).find(session().id) == session()


def test_unknown_and_damaged_sessions_are_refused(sessions: Sessions, database: Database) -> None:
    sessions.open(session())
    with database.transaction() as db:
        db.execute("UPDATE session SET data = x'c1'")
    for id, problem in (
        (session().id, "ticket-expired"),
        (b"\xff" * 16, "ticket-expired"),
        (b"", "malformed"),
    ):
        assert refusal_of(partial(sessions.find, id)) == problem


def test_forty_claims_at_once_have_one_winner(sessions: Sessions, tmp_path: Path) -> None:
    sessions.open(session())

    def claim(_: int) -> str:
        mine = Sessions(open_state(tmp_path))
        return refusal_of(lambda: mine.claim(session(), b"t" * 32, now=NOW))

    with ThreadPoolExecutor(40) as pool:
        results = sorted(pool.map(claim, range(40)))
    assert results == ["", *["ticket-spent"] * 39]


def test_wrong_ticket_spends_nothing(sessions: Sessions) -> None:
    sessions.open(session())
    assert refusal_of(lambda: sessions.claim(session(), b"x" * 32, now=NOW)) == "malformed"
    assert refusal_of(lambda: sessions.claim(session(), b"t" * 32, now=NOW)) == ""


@pytest.mark.parametrize("late", [TICKET_SECONDS + 1, -TICKET_SECONDS - 1])
def test_ticket_expires(sessions: Sessions, late: float) -> None:
    sessions.open(session())
    assert refusal_of(lambda: sessions.claim(session(), b"t" * 32, now=NOW + late)) == "ticket-expired"


def test_nonce_is_taken_once_from_each_home(sessions: Sessions, tmp_path: Path) -> None:
    sessions.note("ada", b"n" * 16)
    other = Sessions(open_state(tmp_path))
    assert refusal_of(lambda: other.note("ada", b"n" * 16)) == "replayed"
    assert refusal_of(lambda: other.note("bob", b"n" * 16)) == ""


def test_nobody_else_can_read_the_keys(tmp_path: Path) -> None:
    Sessions(open_state(tmp_path / "state")).open(session())
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "state").iterdir()}
    assert modes == dict.fromkeys((NAME, f"{NAME}-wal", f"{NAME}-shm"), 0o600)


def test_what_is_over_is_swept_and_what_is_used_stays(database: Database) -> None:
    now = [NOW]
    sessions = Sessions(database, now=lambda: now[0])

    def is_kept(number: int) -> bool:
        return not refusal_of(partial(sessions.find, session(number).id))

    for number in (1, 2, 3):
        sessions.open(session(number))
    for number in (2, 3):
        sessions.claim(session(number), b"t" * 32, now=NOW)
    sessions.note("ada", b"o" * 16)
    now[0] = NOW + max(NONCE_SECONDS, 2 * TICKET_SECONDS) + 1
    sessions.use(session(3))
    sessions.open(session(4))
    assert [is_kept(number) for number in (1, 2, 3, 4)] == [False, True, True, True]  # 1 was never claimed
    sessions.note("ada", b"o" * 16)  # long ago: its greeting would be refused as stale
    now[0] = NOW + KEPT_SECONDS + 2
    sessions.open(session(5))
    assert [is_kept(number) for number in (2, 3)] == [False, True]


def test_sessions_and_nonces_are_bounded(sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SESSIONS", 2)
    monkeypatch.setattr(module, "MAX_NONCES", 2)
    for number in (1, 2):
        sessions.open(session(number))
        sessions.note("ada", bytes([number]) * 16)
    assert refusal_of(lambda: sessions.open(session(3))) == "busy"
    assert refusal_of(lambda: sessions.note("ada", b"n" * 16)) == "busy"
    sessions.claim(session(1), b"t" * 32, now=NOW)
    sessions.open(session(3))  # replaces the one that was used longest ago
    assert refusal_of(partial(sessions.find, session(1).id)) == "ticket-expired"


def test_one_home_cannot_shut_the_others_out(sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_NONCES_OF_A_HOME", 1)
    sessions.note("ada", b"1" * 16)
    assert refusal_of(lambda: sessions.note("ada", b"2" * 16)) == "busy"
    assert refusal_of(lambda: sessions.note("bob", b"2" * 16)) == ""
