"""A host that dies by kill -9 at a named step; the test starts it again and again in the same folder."""

import asyncio
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.host.knocking import GatedSite, config_of, limits_of
from tests.killing import fork_on_demand

from sterna.host import asgi
from sterna.host.keyring import Keyring
from sterna.host.owner.receipts import Receipts
from sterna.host.policy.load import LoadMeter
from sterna.host.policy.policy import DayCaps, Policy
from sterna.host.service import Service
from sterna.host.state import Rations
from sterna.host.visiting import logbook, room
from sterna.host.visiting.hosted import HostedVisit
from sterna.host.visiting.logbook import Logbook
from sterna.host.visiting.room import Spool
from sterna.host.visiting.workshop import Workshop
from sterna.runtime import visit as runtime_visit
from sterna.web.clock import SystemClock
from sterna.web.http import Request, Response

PAGES = 60
FATAL = "fatal"  # the file that names the step, and how often it comes before the host dies
PORT = "port"

# Each is a function after which, in its n-th call, the host dies.
STEPS: dict[str, tuple[Any, str]] = {
    "admitted": (Logbook, "begin"),
    "rationed": (Rations, "spend"),
    "parcel-written": (room, "write_private"),
    "entry-appended": (Logbook, "append"),
    "log-rewritten": (logbook, "write_private"),
    "piece-sent": (HostedVisit, "count_sent"),
    "acknowledged": (Spool, "acknowledge"),
    "finished": (HostedVisit, "finish"),
    "receipt-kept": (Receipts, "note"),
}
HALF = "entry-half-written"


class SlowSite(GatedSite):
    """Its pages come one after the other, so that they fill many parcels."""

    async def fetch(self, request: Request) -> Response:
        self.let(1)
        await asyncio.sleep(0.01)
        return await super().fetch(request)


def main(folder: Path) -> None:
    runtime_visit.FIRST_FLUSH_SECONDS = runtime_visit.FLUSH_SECONDS = 0.05
    logbook.REWRITE_BYTES = 2_000
    if (folder / FATAL).exists():
        step, _, count = (folder / FATAL).read_text().partition(":")
        _die_at(step, int(count))
    asyncio.run(_serve(folder))


def _die_at(step: str, count: int) -> None:
    if step == HALF:
        _replace(logbook, "append_private", _append_half, count)
    else:
        owner, name = STEPS[step]
        _replace(owner, name, getattr(owner, name), count)


def _append_half(path: Path, data: bytes) -> int:
    with path.open("ab") as file:
        return file.write(data[:-5])


def _replace(owner: Any, name: str, last: Callable[..., Any], count: int) -> None:
    usual, left = getattr(owner, name), count

    def counting(*words: Any, **fields: Any) -> Any:
        nonlocal left
        left -= 1
        done = (usual if left else last)(*words, **fields)
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    setattr(owner, name, counting)


async def _serve(folder: Path) -> None:
    policy = Policy(day=DayCaps(pages=10 * PAGES))
    config = config_of(folder, limits=limits_of(), policy=policy)
    workshop = Workshop(config, SystemClock(), open_source=SlowSite(PAGES).open)
    service = Service(
        config,
        identity=Keyring(config.keys).read("host"),
        clock=SystemClock(),
        workshop=workshop,
        meter=LoadMeter(machine=lambda: None),
    )
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", int((folder / PORT).read_text())))
        listener.listen()
        await asgi.serve(service, listener=listener)


if __name__ == "__main__":
    fork_on_demand(main)
