"""What the parts of a host share: its identity, its clocks, and the owner's rules as they are now."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from sterna.host.config import HostConfig
from sterna.host.owner.audit import Notes
from sterna.host.owner.control import Doors
from sterna.host.policy.hours import day_of
from sterna.host.policy.policy import MIB, Caps, HostLimits, Policy, PolicyFile
from sterna.host.policy.terms import AllowedHomes, Terms
from sterna.host.state import Left, Rations, Stops
from sterna.model import Usage
from sterna.web.clock import Clock
from sterna.wire.keys import Identity, PublicKey

if TYPE_CHECKING:
    from sterna.host.visiting.room import Slots

ORDERS_AT_ONCE = 2  # that are unpacked: each may take some hundred megabytes
LEAST_ENGINE_BYTES = 16 * MIB  # with less no engine starts


class Commons:
    """What all hosts of a process share, so that many sites take no more of the machine than it has."""

    def __init__(self, *, crawlers: int = 0, visits: int = 0, engine_bytes: int = 0) -> None:
        """The most crawlers at work, visits under way, memory of all rule engines; 0: as each site has it."""
        self.crawlers = crawlers
        self.visits = visits
        self.engine_bytes = engine_bytes
        self.opening = asyncio.Semaphore(ORDERS_AT_ONCE)
        # Those of each site add themselves, and stay as long as the process.
        self.counts: list[Callable[[], int]] = []  # of visits under way
        self._slots: Slots | None = None  # created by slots()

    def slots(self) -> "Slots | None":
        """The places for crawlers at work; None if only those of each site count."""
        from sterna.host.visiting.room import Slots  # noqa: PLC0415 - a greeting does not need it

        if self.crawlers and self._slots is None:
            self._slots = Slots(lambda: self.crawlers)
        return self._slots

    def are_full(self) -> bool:
        return 0 < self.visits <= sum(count() for count in self.counts)

    def engine_share(self, own: int) -> int:
        """The memory for the engine of one visit, if the site would give it so much."""
        return min(own, self.engine_bytes // self.crawlers) if self.engine_bytes and self.crawlers else own


Announce = Callable[[str], None]  # shows a line to the owner


@dataclass(frozen=True, slots=True, kw_only=True)
class Premises:
    config: HostConfig
    identity: Identity
    clock: Clock  # for durations: it never jumps
    wall: Callable[[], float]  # the machine's clock, for hours and days: it may jump
    rules: PolicyFile
    homes: AllowedHomes
    notes: Notes
    doors: Doors
    rations: Rations
    stops: Stops
    announce: Announce
    commons: Commons
    is_live_only: bool = False  # it keeps no visits, as a CGI process does

    @property
    def policy(self) -> Policy:
        return self.rules.policy

    @property
    def limits(self) -> HostLimits:
        """Those of the policy file, if there is one, because it can change; less memory among many sites."""
        limits = self.policy.limits if self.config.policy_file else self.config.limits
        if not self.commons.crawlers:
            return limits
        share = min(limits.compressor_bytes, HostLimits().compressor_bytes // self.commons.crawlers)
        return msgspec.structs.replace(limits, compressor_bytes=share)

    def refresh(self) -> None:
        """Takes over the owner's changes to the policy."""
        news = self.rules.look()
        if news == "changed":
            self.homes.adopt(self.policy)
            self.notes.note("policy-changed", file=str(self.config.policy_file))
            self.announce(f"{self.config.policy_file} has changed and is in force from now on")
        elif news == "broken":
            self.notes.note("policy-broken", why=self.rules.fault)
            self.announce(f"{self.rules.fault}; the previous policy stays in force")

    @property
    def config_now(self) -> HostConfig:
        """The configuration with the policy in force, and with no more memory for a visit than its share."""
        policy = msgspec.structs.replace(self.policy, budget=self._within_memory(self.policy.budget))
        return msgspec.structs.replace(self.config, policy=policy)

    def terms(self, home: str, *, priority: int = 0) -> Terms | None:
        """The current terms of the home with this key; None if it is not allowed."""
        terms = self.homes.terms(PublicKey.parse(home), priority=priority)
        return terms and msgspec.structs.replace(terms, caps=self._within_memory(terms.caps))

    def _within_memory(self, caps: Caps) -> Caps:
        own = self.limits.engine_bytes // self.limits.crawlers_at_once
        share = max(self.commons.engine_share(own), LEAST_ENGINE_BYTES)
        return msgspec.structs.replace(caps, memory_bytes=min(caps.memory_bytes or share, share))

    def left(self, home: PublicKey, terms: Terms) -> Left:
        """What is left of the home's ration today; StorageError if that cannot be read."""
        if not terms.day.are_any:
            return Left()
        return self.rations.left(home.id, terms.day, day_of(self.wall(), terms.zone))

    def spend(self, home: PublicKey, terms: Terms | None, usage: Usage, *, visits: int = 0) -> None:
        """Takes this from the home's ration, if it has one; waits for the disk."""
        if terms and terms.day.are_any:
            self.rations.spend(home.id, day_of(self.wall(), terms.zone), usage, visits=visits)
