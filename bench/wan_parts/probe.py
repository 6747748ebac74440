"""What the line is really like: round trips and the speed of one transfer, told before anything is measured.

As a program it is both ends: `serve PORT` at the site, `ask ADDRESS PORT BYTES` at home, which prints JSON.
"""

import json
import socket
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from time import perf_counter

from bench.wan_parts.forwarder import MTU, Line
from bench.wan_parts.places import Places, running

PORT = 7000
ROUND_TRIPS = 15
TRANSFER_SECONDS = 3.0
CABLE_BYTES = 200_000_000
BLOCK = b"\0" * 65_536
TRIES = 50
HEADER_BYTES = 52  # of IP, and of TCP with its time stamps


@dataclass(frozen=True, slots=True)
class Reached:
    """What the line gave."""

    round_trip_ms: float
    longest_ms: float
    megabits: float

    def __str__(self) -> str:
        return (
            f"round trip {self.round_trip_ms:.2f} ms (longest {self.longest_ms:.2f}),"
            f" a transfer {self.megabits:.2f} Mbit/s"
        )


def probe(places: Places) -> Reached:
    """Asks the line itself, with a connection of TCP as the crawlers have."""
    module = [sys.executable, "-m", "bench.wan_parts.probe"]
    size = transfer_bytes(places.line)
    with running(places.site.start([*module, "serve", str(PORT)])):
        process = places.home.start(
            [*module, "ask", places.site.address, str(PORT), str(size)], output=subprocess.PIPE
        )
        output, _ = process.communicate(timeout=120)
        if process.returncode:
            raise SystemExit(f"nothing crosses the line:\n{output}")
        told = json.loads(output)
    megabits = 8 * size / 2 / told["seconds"] / 1e6 * MTU / (MTU - HEADER_BYTES)
    return Reached(told["round_trip_ms"], told["longest_ms"], megabits)


def transfer_bytes(line: Line | None) -> int:
    return int(line.bytes_per_second * TRANSFER_SECONDS) if line else CABLE_BYTES


def serve(port: int) -> None:
    """Answers each number with as many bytes."""
    with socket.create_server(("", port)) as server:
        while True:
            connection, _ = server.accept()
            with connection, connection.makefile("rb") as stream:
                for line in stream:
                    left = int(line)
                    while left:
                        left -= connection.send(BLOCK[:left])


def ask(address: str, port: int, size: int) -> None:
    with _connected(address, port) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        trips = [_round_trip(connection) for _ in range(ROUND_TRIPS)]
        connection.sendall(b"%d\n" % size)
        _read(connection, size // 2)  # the beginning, in which TCP finds out how fast it may be
        began = perf_counter()
        _read(connection, size - size // 2)
        seconds = perf_counter() - began
    middle, longest = statistics.median(trips), max(trips)
    print(json.dumps({"round_trip_ms": 1e3 * middle, "longest_ms": 1e3 * longest, "seconds": seconds}))


def _connected(address: str, port: int) -> socket.socket:
    for _ in range(TRIES):
        try:
            return socket.create_connection((address, port), timeout=10)
        except ConnectionRefusedError:
            time.sleep(0.1)
    raise SystemExit(f"nobody listens at {address}:{port}")


def _round_trip(connection: socket.socket) -> float:
    began = perf_counter()
    connection.sendall(b"1\n")
    _read(connection, 1)
    return perf_counter() - began


def _read(connection: socket.socket, size: int) -> None:
    while size:
        size -= len(connection.recv(min(size, 1 << 20)))


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(int(sys.argv[2]))
    else:
        ask(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
