"""Takes the parcels of a visit at work: they count against the day, and are kept until its home has them."""

import asyncio

from sterna.host.policy.hours import day_of
from sterna.host.premises import Premises
from sterna.host.visiting.hosted import HostedVisit
from sterna.model import Parcel
from sterna.wire.keys import PublicKey


class Delivery:
    """While the spool is full, the crawler rests, and another has its place."""

    def __init__(self, hosted: HostedVisit, premises: Premises) -> None:
        self._hosted = hosted
        self._premises = premises
        self._home = PublicKey.parse(hosted.home).id

    async def __call__(self, parcel: Parcel) -> None:
        hosted = self._hosted
        await self._count(parcel)
        packed = await hosted.pack(parcel)
        while not hosted.spool.has_room(len(packed)):
            hosted.place.leave()
            await hosted.spool.wait_for_room(len(packed))
            await hosted.place.take()
        await hosted.keep(parcel, packed)

    async def _count(self, parcel: Parcel) -> None:
        premises = self._premises
        terms = premises.terms(self._hosted.home)
        if terms and terms.day.are_any:
            day = day_of(premises.wall(), terms.zone)
            await asyncio.to_thread(premises.ration.spend, self._home, day, parcel.usage)
