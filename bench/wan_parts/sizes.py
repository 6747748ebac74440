"""What stands beside the crawls: the same pages through xz, and the CPU time of a handshake."""

import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from sterna.model import Budget
from sterna.wire.handshake import SESSION_BYTES, TICKET_BYTES, Greeting, read_hello, welcome
from sterna.wire.keys import Identity

HANDSHAKES = 300


def xz_bytes(files: Iterable[Path]) -> int:
    """All pages one after the other through `xz -9e`."""
    process = subprocess.Popen(["xz", "-9e", "-c", "-T1"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    whole = b"".join(file.read_bytes() for file in files)
    packed, _ = process.communicate(whole)
    if process.returncode:
        raise SystemExit("xz failed: is it installed?")
    return len(packed)


def handshake_ms() -> float:
    """CPU milliseconds of one handshake, both sides together."""
    home, host = Identity.new(), Identity.new()
    began = time.process_time()
    for _ in range(HANDSHAKES):
        greeting = Greeting.begin(
            home, home="bench", audience="http://www.example.org", wants=Budget(), now=time.time()
        )
        reply, _ = welcome(
            read_hello(greeting.body),
            host,
            grants=Budget(),
            platform={},
            ticket=bytes(TICKET_BYTES),
            session=bytes(SESSION_BYTES),
        )
        greeting.finish(reply, host.public)
    return 1000 * (time.process_time() - began) / HANDSHAKES
