"""Places for crawlers at work: so many at once, whoever waited longest is next."""

import asyncio
from collections import deque
from collections.abc import Callable


class Places:
    """How many there are may change while visits have them."""

    def __init__(self, count: Callable[[], int]) -> None:
        self._count = count
        # Both are changed in the loop's thread, by places alone.
        self.taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    def take_now(self) -> bool:
        """True if one was free, and nobody waits for it."""
        if self._waiting or self.taken >= self._count():
            return False
        self.taken += 1
        return True

    async def take(self) -> None:
        """Waits until it is our turn."""
        if self.take_now():
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self.hand_out()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it was ours already
                self.leave()
            else:
                self._waiting.remove(turn)
            raise

    def leave(self) -> None:
        """Gives one back."""
        self.taken -= 1
        self.hand_out()

    def hand_out(self) -> None:
        """Lets those in for whom there is a place; to be called when there are more of them, too."""
        while self._waiting and self.taken < self._count():
            turn = self._waiting.popleft()
            if not turn.done():
                self.taken += 1
                turn.set_result(None)


class Place:
    """One visit's: taken or not; a visit that waits for its home or its hours gives it to another."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._is_taken = False

    async def take(self) -> None:
        """Waits for it, unless it is taken."""
        if not self._is_taken:
            await self._places.take()
            self._is_taken = True

    def take_now(self) -> bool:
        """True if it is taken now."""
        self._is_taken = self._is_taken or self._places.take_now()
        return self._is_taken

    def leave(self) -> None:
        """Gives it to another."""
        if self._is_taken:
            self._is_taken = False
            self._places.leave()
