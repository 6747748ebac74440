"""The memory that bodies and documents take at once: a small one has its own, a large one waits for room.

A body claims what it may need before it grows, and never more later, so that those which have begun can end.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self

SMALL_BYTES = 512 * 1024  # more than any robots.txt
# Three of the largest: with their copies home stays below 400 MB (bench.memory).
ROOM_BYTES = 48 * 1024 * 1024
# For large documents and raw responses until home has stored them: the largest one and some others.
DOCUMENT_ROOM_BYTES = 22 * 1024 * 1024
_MOST_PIECES, _LEAST_PIECE_BYTES = 100_000, 64


def is_splintered(pieces: int, size: int) -> bool:
    """True if a body comes in so many pieces that it is sent to keep us busy."""
    return pieces > _MOST_PIECES and size < pieces * _LEAST_PIECE_BYTES


class BodyRoom:
    """Room for the large bodies that are received or wait to be read; shared by all visits of a process."""

    def __init__(self, size_bytes: int = ROOM_BYTES) -> None:
        # Both are changed in the loop's thread alone, by claims.
        self.left_bytes = size_bytes
        self.waiting: deque[BodyClaim] = deque()

    def claim(self) -> "BodyClaim":
        """A claim for one body, of nothing yet."""
        return BodyClaim(self)

    def admit(self) -> None:
        """Admits those that wait, in their order, as far as there is room."""
        while self.waiting and self.waiting[0].wanted_bytes <= self.left_bytes:
            self.waiting.popleft().begin()


class BodyClaim:
    """The room of one body; a context manager that gives it back."""

    def __init__(self, room: BodyRoom) -> None:
        self._room = room
        self.wanted_bytes = 0
        self._is_taken = False
        self._proceed: Callable[[], object] | None = None  # while it waits

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._is_taken:
            self._room.left_bytes += self.wanted_bytes
        elif self._proceed:
            self._room.waiting.remove(self)
        self._is_taken, self._proceed = False, None
        self._room.admit()

    def take(self, size_bytes: int, proceed: Callable[[], object]) -> bool:
        """True if the body may grow to this size now; otherwise `proceed` is called when it may."""
        if self._is_taken:
            return True
        if self._proceed is None:
            self.wanted_bytes, self._proceed = size_bytes, proceed
            self._room.waiting.append(self)
            self._room.admit()
        return self._is_taken

    def pass_on(self) -> "BodyClaim | None":
        """The room that it has, for another owner to give back; None if it has none."""
        if not self._is_taken:
            return None
        other = BodyClaim(self._room)
        other.wanted_bytes, other._is_taken, self._is_taken = self.wanted_bytes, True, False
        return other

    def release(self) -> None:
        self.__exit__(None, None, None)

    def shrink(self, size_bytes: int) -> None:
        """Gives back what a body that is complete did not need."""
        if self._is_taken and size_bytes < self.wanted_bytes:
            self._room.left_bytes += self.wanted_bytes - size_bytes
            self.wanted_bytes = size_bytes
            self._room.admit()

    async def wait(self, size_bytes: int) -> None:
        """Returns when the body may grow to this size."""
        may_grow = asyncio.Event()
        if size_bytes > SMALL_BYTES and not self.take(size_bytes, may_grow.set):
            await may_grow.wait()

    def begin(self) -> None:
        """Called by the room, once there is enough."""
        proceed, self._proceed = self._proceed, None
        self._room.left_bytes -= self.wanted_bytes
        self._is_taken = True
        if proceed:
            asyncio.get_running_loop().call_soon(proceed)
