"""What a host does for its owner's sake, in microseconds: a policy check, a line of audit, a receipt.

Beside each stands the least that the same guarantee could cost: whoever runs a host as CGI has no memory but
files; a line is only there when it is on the disk; two sign a receipt.
"""

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sterna.host.keyring import ALLOWED, allow
from sterna.host.owner.audit import AUDIT, Audit
from sterna.host.owner.receipts import Receipts
from sterna.host.policy.hours import day_of, zone_of
from sterna.host.policy.policy import PolicyFile, read_policy
from sterna.host.policy.terms import AllowedHomes, check_open, decide
from sterna.host.state import Rations, open_state
from sterna.model import Usage
from sterna.web.clock import SystemClock
from sterna.wire.keys import Identity
from sterna.wire.receipts import Receipt

TIMES = 200
BATCH = 100  # of what takes less than a clock can tell
HOMES = 50  # that the policy names
POLICY = """
zone = "Europe/Vienna"
hours = ["daily 00:00-24:00"]
closed = ["/intranet/"]
[day]
pages = 50_000
"""
LINE = b'{"n":1,"time":"2026-11-16T00:00:00.000Z","event":"visit-ended"}' * 4 + b"\n"


@dataclass(frozen=True, slots=True)
class Costs:
    """One thing, and the least that it could cost."""

    what: str
    micros: float
    beside: str
    beside_micros: float


def measure_costs(folder: Path) -> list[Costs]:
    folder.mkdir()
    return [_policy_check(folder), _audit_line(folder), _receipt(folder)]


def _micros(call: Callable[[], object], *, batch: int = 1) -> float:
    """The median over many turns, which a disk that is busy elsewhere does not change."""
    took = []
    for _ in range(TIMES):
        began = time.perf_counter()
        for _ in range(batch):
            call()
        took.append(1e6 * (time.perf_counter() - began) / batch)
    return statistics.median(took)


def _policy_check(folder: Path) -> Costs:
    """Whether a home may come now: is the file as it was, who is it, its hours, what it used today."""
    path = folder / "policy.toml"
    path.write_text(POLICY + "".join(_home(number) for number in range(HOMES)))
    policy = read_policy(path)
    rules, homes, ration = PolicyFile(path, policy), AllowedHomes(folder, policy), Rations(open_state(folder))
    home, wall = Identity.new().public, time.time()
    allow(folder / ALLOWED, home, "archive")
    ration.spend(home.id, day_of(wall, zone_of(policy.zone)), Usage(pages=10))

    def may_come() -> None:
        rules.look()
        terms = homes.terms(home)
        assert terms
        left = ration.left(home.id, terms.day, day_of(wall, terms.zone))
        check_open(terms, left, wall=wall, keeps=False)
        assert decide(terms, left, wall=wall, busy="").does == "work"

    def least() -> None:
        (folder / ALLOWED).stat()
        path.read_bytes()

    micros, beside = _micros(may_come, batch=BATCH), _micros(least, batch=BATCH)
    return Costs("a policy check", micros, "a file looked at, one read", beside)


def _home(number: int) -> str:
    key = Identity.new().public.text
    return f'[homes.home-{number}]\nkey = "{key}"\nhours = ["Mon 00:00-04:00", "Sat,Sun 22:00-06:00"]\n'


def _append(path: Path) -> None:
    """The bare line: appended, and on the disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, LINE)
    os.fsync(descriptor)
    os.close(descriptor)


def _audit_line(folder: Path) -> Costs:
    audit = Audit(folder / AUDIT, clock=SystemClock())

    def note() -> None:
        audit.note(
            "visit-ended", visit="v1", home="archive", crawler="news", pages=1000, requests=1010,
            read_bytes=12_000_000, sent_bytes=400_000, cpu_seconds=3.25, ended="finished", root="0" * 64,
        )  # fmt: skip

    bare = folder / "bare"
    return Costs("a line of audit", _micros(note), "a line appended, fsync", _micros(lambda: _append(bare)))


def _receipt(folder: Path) -> Costs:
    """Signed and kept by the host, signed by the home, verified and kept again."""
    host, home = Identity.new(), Identity.new()
    receipts = Receipts(open_state(folder), host)
    number = 0

    def whole() -> None:
        nonlocal number
        number += 1
        signed = receipts.sign(_of_visit(f"v{number}", host=host, home=home))
        receipts.note(signed, name="archive", agent="Tern/1")
        receipts.countersign(f"v{number}", home.public, signed.countersign(home).by_home)

    bare = folder / "bare-receipt"

    def least() -> None:
        host.sign("receipt", LINE)
        _append(bare)
        home.sign("receipt-home", LINE)
        _append(bare)

    return Costs("a receipt, signed by both", _micros(whole), "2 signatures, 2 lines", _micros(least))


def _of_visit(visit: str, *, host: Identity, home: Identity) -> Receipt:
    return Receipt(
        visit=visit,
        site="https://www.example.org",
        home=home.public.data,
        host=host.public.data,
        began=1.0,
        over=60.0,
        ended="finished",
        pages=1000,
        requests=1010,
        read_bytes=12_000_000,
        sent_bytes=400_000,
        cpu_seconds=3.25,
        spared_requests=1000,
        spared_bytes=11_600_000,
        root=bytes(32),
    )
