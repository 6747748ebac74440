"""What runs in a reader's cell that does what a body tells it to: an entry for `Readers`."""

import os
import signal
import socket
import time

from sterna.runtime import reader
from sterna.runtime.cell.jail import JailLimits
from sterna.web.document import Fetched

ENTRY = f"{__name__}:serve"
LIMITS = JailLimits(memory_bytes=128 * 1024**2, cpu_seconds=600)

PARENT = os.getpid()  # of the warm parent, which imports this
_read_well = reader.read


def read(task: Fetched) -> reader.Outcome:
    """Hangs or dies if it is asked to."""
    if b"please hang" in task.body:
        time.sleep(600)
    if b"please die" in task.body:
        os.abort()
    if b"please open" in task.body:
        os.open(task.url, os.O_RDONLY)
    if b"please signal" in task.body:
        os.kill(PARENT, signal.SIGTERM)
    return _read_well(task)


warm = reader.warm


def serve(sock: socket.socket) -> None:
    reader.read = read
    reader.serve(sock)
