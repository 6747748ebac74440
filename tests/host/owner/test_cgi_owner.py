"""A CGI host has no process that stays: its log and its doors are files, and hold all the same."""

import time
from pathlib import Path

from tests.host.knocking import NAME, SITE, Stream, send
from tests.host.test_cgi import Cgi, answered, cgi

from sterna.host.calls import Reply
from sterna.host.owner.audit import AUDIT
from sterna.host.owner.control import Doors
from sterna.host.owner.verification import verify
from sterna.model import Budget
from sterna.web.clock import SystemClock
from sterna.wire.handshake import Greeting, Session
from sterna.wire.orders import seal_order

SLOW = "delay_seconds = 1\nconnections = 1\n[load]\nmachine = 0\n"

__all__ = ["cgi"]  # the fixture


def ending_of(out: bytes, session: Session) -> Stream:
    """What came of a visit, read to its signed end."""
    stream = Stream(Reply(200, "", (), b""), session)
    stream.came += stream._reader.feed(answered(out).body)
    return stream


def test_processes_write_one_log(cgi: Cgi) -> None:
    for number in range(2):
        reply, _ = cgi.order(send(visit=f"v{number}"))
        assert reply.status == 200
    report = verify(cgi.folder / "state" / AUDIT)
    assert report.is_whole, report.faults
    assert {name: report.events[name] for name in ("visit-taken", "visit-began", "visit-ended")} == {
        "visit-taken": 2,
        "visit-began": 2,
        "visit-ended": 2,
    }
    assert (report.homes[NAME].visits, report.homes[NAME].pages) == (2, 26)


def test_closed_doors_refuse_and_end_what_is_under_way(cgi: Cgi) -> None:
    (cgi.folder / "policy.toml").write_text(SLOW)
    session = cgi.greet()
    visit = cgi.start("POST", "/order", seal_order(session.keys, session.ticket, send()))
    until = time.monotonic() + 30
    while not _has_begun(cgi.folder / "state" / AUDIT) and time.monotonic() < until:
        time.sleep(0.1)
    Doors(cgi.folder / "state").close("enough")
    began = time.monotonic()
    out, _ = visit.communicate(timeout=60)
    assert time.monotonic() - began < 12  # all thirteen pages would take longer
    assert ending_of(out, session).ending.ended == "stopped"
    now = SystemClock().now()
    hello = Greeting.begin(cgi.identity, home=NAME, audience=SITE, wants=Budget(), now=now)
    refused = cgi.ask("POST", "/hello", hello.body)
    assert refused.status == 503
    assert b"enough" in refused.body
    assert refused.headers["retry-after"] == "3600"


def _has_begun(path: Path) -> bool:
    return path.exists() and b"visit-began" in path.read_bytes()
