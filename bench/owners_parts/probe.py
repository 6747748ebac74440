"""Asks a web server for pages at fixed times, whatever it answers: python -m bench.owners_parts.probe.

Each page is asked for by a connection of its own, as by a new visitor. The time of an answer runs from when
it was due to be asked for: who asks the next only after the last one hides how long a queue was. Arguments:
port, file with paths, requests a second, seconds; prints the milliseconds of all answers as JSON.
"""

import json
import select
import socket
import sys
import time
from pathlib import Path

LAST_SECONDS = 10.0  # for answers that are still out when the last request is made
_REQUEST = "GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n"


class Asked:
    """One request under way."""

    def __init__(self, port: int, path: str, due: float) -> None:
        self.due = due
        self.head = b""
        self.socket = socket.socket()
        self.socket.setblocking(False)
        self._request = _REQUEST.format(path=path).encode()
        self.socket.connect_ex(("127.0.0.1", port))

    def send(self) -> None:
        self.socket.send(self._request)

    def read(self) -> bool:
        """Takes what is there; True when the answer is whole."""
        data = self.socket.recv(1 << 20)
        self.head = self.head or data[:32]
        if data:
            return False
        self.socket.close()
        if not self.head.startswith(b"HTTP/1.1 200 "):
            raise SystemExit(f"the web server answers with {self.head!r}")
        return True


def probe(port: int, paths: list[str], *, rate: float, seconds: float) -> list[float]:
    """Milliseconds of each answer."""
    total, number = int(rate * seconds), 0
    took: list[float] = []
    writing: dict[int, Asked] = {}
    reading: dict[int, Asked] = {}
    began = time.perf_counter()
    while number < total or writing or reading:
        now = time.perf_counter()
        while number < total and began + number / rate <= now:
            asked = Asked(port, paths[number % len(paths)], began + number / rate)
            writing[asked.socket.fileno()] = asked
            number += 1
        wait = began + number / rate - time.perf_counter() if number < total else LAST_SECONDS
        readable, writable, _ = select.select(list(reading), list(writing), [], max(0.0, wait))
        if number == total and not readable and not writable:
            raise SystemExit(f"{len(reading) + len(writing)} answers did not come in {LAST_SECONDS:g} s")
        for descriptor in writable:
            asked = reading[descriptor] = writing.pop(descriptor)
            asked.send()
        for descriptor in readable:
            if reading[descriptor].read():
                took.append(1000 * (time.perf_counter() - reading.pop(descriptor).due))
    return took


def main() -> None:
    port, file, rate, seconds = sys.argv[1:]
    paths = Path(file).read_text().splitlines()
    print(json.dumps(probe(int(port), paths, rate=float(rate), seconds=float(seconds))))


if __name__ == "__main__":
    main()
