"""A line to a host that plays a script: parcels, then an end or an error."""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import cast

from sterna.errors import LineBroken, Refused
from sterna.home.away import events as ev
from sterna.home.away.line import Line, Lines, Traffic
from sterna.home.away.patience import Patience
from sterna.model import Budget, Parcel, Target, Visit
from sterna.wire.discovery import Offer
from sterna.wire.handshake import Session, SessionKeys

SENT_BYTES, PARCEL_BYTES = 700, 100
GRANTS = Budget()


async def do_nothing(parcel: Parcel) -> None:
    pass


class ScriptedLines:
    """Stands for `line.Lines` and `line.Line`: every trip plays the same script.

    Refused and LineBroken answer the greeting, so the host never has the visit; other errors end the stream.
    """

    def __init__(self, *parcels: Parcel, error: Exception | None = None) -> None:
        self.parcels: list[Parcel] = list(parcels)
        self.error = error
        self.patience = Patience(stop_seconds=0.2)
        self.sent_to: list[str] = []  # endpoints that were greeted
        self.asked: list[tuple[str, int]] = []  # visits, and the parcel from which they were ordered
        self.kills: list[str] = []
        self.waiting: list[Target] = []  # of earlier runs, as the last trip was told
        self.traffic = Traffic()
        self.on_way: Callable[[], None] = lambda: None  # called when the order arrives
        self.during: Callable[[Parcel], Awaitable[None]] = do_nothing  # called after each parcel is stored
        self._last: Parcel | None = None
        self._left: Iterator[Parcel] = iter(())
        self._visit = ""

    def open(self) -> Lines:
        return cast(Lines, self)

    def to(self, offer: Offer) -> Line:
        self._endpoint = offer.endpoint
        return cast(Line, self)

    @property
    def session(self) -> Session:
        return Session(
            suite="",
            ticket=b"",
            grants=GRANTS,
            platform={},
            keys=SessionKeys(b"", b"", b"", b"", b""),
            seconds=60,
        )

    async def greet(self, wants: Budget, *, is_known: bool) -> ev.Greeted:
        self.sent_to.append(self._endpoint)
        if isinstance(self.error, (Refused, LineBroken)) and not self.parcels:
            raise self.error
        return ev.Greeted(seconds=0.0, ticket_seconds=60.0, level=9)

    async def load(self, visit: Visit, *, first: int, began: float, waiting: Iterable[Target] = ()) -> None:
        self._visit = visit.id
        self.waiting = list(waiting)

    async def order(self, *, resume_from: int, level: int) -> None:
        self.asked.append((self._visit, resume_from))
        self.traffic.sent += SENT_BYTES
        self.on_way()
        self._left = iter([each for each in self.parcels if each.number >= resume_from])

    async def read(self) -> ev.Came | ev.StreamOver:
        if self._last:
            last, self._last = self._last, None
            await self.during(last)
        parcel = next(self._left, None)
        if parcel and not self.kills:
            self._last = parcel
            self.traffic.received += PARCEL_BYTES
            return ev.Came(parcel, PARCEL_BYTES)
        if self.error and not self.kills:
            raise self.error
        return ev.StreamOver(True)

    def acknowledge(self, number: int, size_bytes: int) -> None:
        pass

    async def sign(self, *, lost_streams: int) -> ev.Signed:
        return ev.Signed()

    async def kill(self, visit: str) -> None:
        self.kills.append(visit)

    async def close(self) -> None:
        pass
