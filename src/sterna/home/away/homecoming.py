"""What comes home from a host: parcels on their way to intake, and what they leave unsaid."""

from collections.abc import Awaitable, Callable

import msgspec

from sterna.home.away.luggage import is_negligent, with_missed
from sterna.home.away.negotiation import is_hosts_own, is_renewed
from sterna.home.dispatch import Deliver
from sterna.home.ledger.interface import Arrival
from sterna.model import Budget, Ended, Hold, Parcel, Visit
from sterna.web.clock import Clock
from sterna.web.politeness import site_key

# A host keeps its holds to itself: after these home leaves the site alone for a while.
_TROUBLES = frozenset({Ended.BLOCKED, Ended.FAILING, Ended.DISQUALIFIED})
TROUBLED_SECONDS = 60.0


class Homecoming:
    """The parcels of one visit, as they come."""

    def __init__(
        self,
        visit: Visit,
        deliver: Deliver,
        *,
        clock: Clock,
        before_end: Callable[[Ended, str], Awaitable[None]],
        own: Budget | None = None,
    ) -> None:
        """`before_end` hears how the visit ended and what is wrong with it, before its site is free again.

        `own` is the crawler's budget anywhere, where the visit's is what its host granted.
        """
        self._visit = visit
        self._own = own or visit.budget
        self._deliver = deliver
        self._clock = clock
        self._before_end = before_end
        # Changed by take() alone.
        self._reported: set[int] = set()
        self.ended: Ended | None = None  # as the last parcel says, once it is stored

    def expect(self, visit: Visit) -> None:
        """So the visit was sent, under what its host granted."""
        self._visit = visit

    async def take(self, parcel: Parcel, size_bytes: int) -> None:
        """Returns when the parcel is stored."""
        arrival = Arrival(
            visit=parcel.visit,
            number=parcel.number,
            received_at=self._clock.now(),
            size_bytes=size_bytes,
        )
        self._reported.update(page.fingerprint for page in parcel.pages)
        self._reported.update(parcel.checkpoint.done)
        if parcel.ended:
            fault = self._fault(parcel.ended)
            parcel = self._completed(parcel)
            assert parcel.ended
            await self._before_end(parcel.ended, fault)
        await self._deliver(parcel, arrival)
        self.ended = parcel.ended

    def _fault(self, ended: Ended) -> str:
        """What is wrong with a visit that came home whole: why the next one is better made from here."""
        if not self._reported:
            return f"its visit there ended as {ended} and brought nothing"
        if ended is Ended.FINISHED and is_negligent(self._visit, reported=self._reported):
            return "its host said nothing of URLs that it was given"
        if self._is_hosts_own(ended) and not is_renewed(ended):
            return f"its host grants too little for this crawler: {ended}"
        return ""

    def _is_hosts_own(self, ended: Ended) -> bool:
        return is_hosts_own(ended, own=self._own, granted=self._visit.budget)

    def _completed(self, parcel: Parcel) -> Parcel:
        parcel = with_missed(parcel, self._visit, reported=self._reported)
        if parcel.ended and self._is_hosts_own(parcel.ended):
            # Not the crawler's own limit, which would end it at this site: it is continued.
            parcel = msgspec.structs.replace(parcel, ended=Ended.BUDGET)
        if parcel.ended in _TROUBLES:
            hold = Hold(site_key(parcel.site), self._clock.now() + TROUBLED_SECONDS)
            parcel = msgspec.structs.replace(parcel, holds=(*parcel.holds, hold))
        return parcel
