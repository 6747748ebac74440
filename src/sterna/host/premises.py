"""What the parts of a host share: its identity, its clocks, and the owner's rules as they are now."""

from collections.abc import Callable
from dataclasses import dataclass

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

LEAST_ENGINE_BYTES = 16 * MIB  # with less no engine starts

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
    is_live_only: bool = False  # it keeps no visits, as a CGI process does

    @property
    def policy(self) -> Policy:
        return self.rules.policy

    @property
    def limits(self) -> HostLimits:
        """Those of the policy file, if there is one, because it can change."""
        return self.policy.limits if self.config.policy_file else self.config.limits

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
        share = max(self.limits.engine_bytes // self.limits.crawlers_at_once, LEAST_ENGINE_BYTES)
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
