"""What runs in a reader's cell that does what a body tells it to: an entry for `Readers`."""

import os
import socket
import time

from sterna.runtime import reader
from sterna.runtime.cell.jail import JailLimits
from sterna.web.document import Fetched

ENTRY = f"{__name__}:serve"
LIMITS = JailLimits(memory_bytes=128 * 1024**2, cpu_seconds=600)

_read_well = reader.read


def read(task: Fetched) -> reader.Outcome:
    """Hangs or dies if it is asked to."""
    if b"please hang" in task.body:
        time.sleep(600)
    if b"please die" in task.body:
        os.abort()
    return _read_well(task)


def serve(sock: socket.socket) -> None:
    reader.read = read
    reader.serve(sock)
