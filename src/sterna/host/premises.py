"""What the parts of a host share: who it is, its clocks, and what its owner wants as he wants it now."""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from sterna.host.config import MIB, Caps, HostConfig, HostLimits, Policy
from sterna.host.owner.doors import Doors
from sterna.host.owner.notes import Notes
from sterna.host.policy.hours import day_of
from sterna.host.policy.policy import PolicyFile
from sterna.host.policy.ration import Left, Ration
from sterna.host.policy.terms import AllowedHomes, Terms
from sterna.web.clock import Clock
from sterna.wire.keys import Identity, PublicKey

LEAST_ENGINE_BYTES = 16 * MIB  # with less no engine starts

Announce = Callable[[str], None]  # shows a line to the owner


@dataclass(frozen=True, slots=True, kw_only=True)
class Premises:
    """One host's."""

    config: HostConfig
    identity: Identity
    clock: Clock  # by which it is measured how long things take: it never jumps
    wall: Callable[[], float]  # what the machine's clock shows: hours and days go by it, and it may jump
    rules: PolicyFile
    homes: AllowedHomes
    notes: Notes
    doors: Doors
    ration: Ration
    announce: Announce
    is_live_only: bool = False

    @property
    def policy(self) -> Policy:
        return self.rules.policy

    @property
    def limits(self) -> HostLimits:
        """Those of the policy as it is now, where it can change."""
        return self.policy.limits if self.config.policy_file else self.config.limits

    def refresh(self) -> None:
        """Looks whether the owner has changed his policy, and takes it over."""
        news = self.rules.look()
        if news == "changed":
            self.homes.adopt(self.policy)
            self.notes.note("policy-changed", file=str(self.config.policy_file))
            self.announce(f"{self.config.policy_file} has changed and holds from now on")
        elif news == "broken":
            self.notes.note("policy-broken", why=self.rules.fault)
            self.announce(f"{self.rules.fault}; the policy as it was before holds on")

    @property
    def config_now(self) -> HostConfig:
        """The configuration with the policy in force, and no more memory for a visit than its part."""
        policy = msgspec.structs.replace(self.policy, budget=self._within_memory(self.policy.budget))
        return msgspec.structs.replace(self.config, policy=policy)

    def terms(self, home: str, *, priority: int = 0) -> Terms | None:
        """What holds for the home with this key now; None if it is not allowed."""
        terms = self.homes.terms(PublicKey.parse(home), priority=priority)
        return terms and msgspec.structs.replace(terms, caps=self._within_memory(terms.caps))

    def _within_memory(self, caps: Caps) -> Caps:
        part = max(self.limits.engine_bytes // self.limits.crawlers_at_once, LEAST_ENGINE_BYTES)
        return msgspec.structs.replace(caps, memory_bytes=min(caps.memory_bytes or part, part))

    def left(self, home: PublicKey, terms: Terms) -> Left:
        """What is left of the home's day; StorageError if nobody can tell."""
        if not terms.day.are_any:
            return Left()
        return self.ration.left(home.id, terms.day, day_of(self.wall(), terms.zone))
