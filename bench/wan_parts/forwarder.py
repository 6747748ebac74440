"""The emulated line: carries packets between two TUN devices, late, no faster than it may, and not all.

Each way has its own clock of when it is free again, so a packet that is handed over late by the scheduler
makes no later one late. What would wait longer than the queue is long is dropped, as routers do it.
"""

import errno
import fcntl
import gc
import json
import os
import random
import select
import struct
import sys
from collections import deque
from dataclasses import dataclass, field
from time import monotonic

TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
MTU = 1500
BATCH = 64  # packets of one way before the other has its turn
QUEUE_DELAYS = 2.0  # the queue, in products of bandwidth and round trip
LEAST_QUEUE_BYTES = 64_000
IDLE_SECONDS = 1.0
SEED = 20


@dataclass(frozen=True, slots=True)
class Line:
    """What a line is like."""

    round_trip_ms: float
    megabits: float
    loss: float = 0.0

    @property
    def bytes_per_second(self) -> float:
        return self.megabits * 1e6 / 8

    @property
    def queue_bytes(self) -> float:
        product = self.bytes_per_second * self.round_trip_ms / 1000
        return max(LEAST_QUEUE_BYTES, QUEUE_DELAYS * product)

    def __str__(self) -> str:
        lost = f", {100 * self.loss:g} % lost" if self.loss else ""
        return f"{self.round_trip_ms:g} ms, {self.megabits:g} Mbit/s{lost}"


@dataclass(slots=True)
class Way:
    """One direction; changed by the loop alone."""

    source: int
    target: int
    line: Line
    chance: random.Random
    free_at: float = 0.0
    under_way: deque[tuple[float, bytes]] = field(default_factory=deque)
    dropped: int = 0

    def take(self) -> None:
        """Takes what waits at the source, and says of each packet when it will arrive."""
        line = self.line
        for _ in range(BATCH):
            try:
                packet = os.read(self.source, MTU)
            except BlockingIOError:
                return
            now = monotonic()
            waiting_bytes = (self.free_at - now) * line.bytes_per_second
            if waiting_bytes > line.queue_bytes or (line.loss and self.chance.random() < line.loss):
                self.dropped += 1
                continue
            self.free_at = max(now, self.free_at) + len(packet) / line.bytes_per_second
            self.under_way.append((self.free_at + line.round_trip_ms / 2000, packet))

    def give(self) -> None:
        """Hands over what has arrived."""
        while self.under_way and self.under_way[0][0] <= monotonic():
            try:
                os.write(self.target, self.under_way.popleft()[1])
            except OSError as error:
                if error.errno != errno.EIO:  # that device is not up yet: nobody is there to lose anything
                    raise


def open_device(name: str) -> int:
    """A new TUN device that lives as long as its file is open."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    return device


def forward(home: int, site: int, line: Line) -> None:
    """Carries packets until standard input ends: with whoever started it."""
    chance = random.Random(SEED)
    ways = {home: Way(home, site, line, chance), site: Way(site, home, line, chance)}
    while True:
        dues = [way.under_way[0][0] for way in ways.values() if way.under_way]
        wait = max(0.0, min(dues) - monotonic()) if dues else IDLE_SECONDS
        ready = select.select([home, site, sys.stdin], [], [], wait)[0]
        if sys.stdin in ready:
            return
        for device in ready:
            ways[device].take()
        for way in ways.values():
            way.give()


def main() -> None:
    """Called with the names of two devices and a line as JSON; says `ready` when the devices are there."""
    home, site = open_device(sys.argv[1]), open_device(sys.argv[2])
    gc.disable()  # nothing here makes cycles, and a pause would be a late packet
    print("ready", flush=True)
    forward(home, site, Line(**json.loads(sys.argv[3])))


if __name__ == "__main__":
    main()
