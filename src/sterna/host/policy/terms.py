"""What holds for each home: its terms, what it is granted, and whether its visits may work now."""

from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Literal, TypeVar

import msgspec
from msgspec import UNSET

from sterna.errors import Refused
from sterna.host.keyring import ALLOWED, REVOKED, Revoked, read_allowed, read_revoked
from sterna.host.policy.hours import Hours, day_end, zone_of
from sterna.host.policy.policy import (
    Caps,
    DayCaps,
    HomeRules,
    LoadRules,
    OutsideHours,
    Policy,
    SomeCaps,
    rules_of,
)
from sterna.host.state import Left
from sterna.model import Budget, Record
from sterna.toml import stamp
from sterna.wire.handshake import Hello
from sterna.wire.keys import PublicKey

SKEW_SECONDS = 120.0  # between the clocks of home and host
PATIENCE_SECONDS = 60.0
LATE_SECONDS = 8 * 24 * 3600.0  # more than a week, in which any hours come
BUSY = "the site is busy"
_ALWAYS = Hours((), UTC)

T = TypeVar("T", bound=msgspec.Struct)


class Terms(Record, frozen=True):
    """What the owner's policy grants to one home."""

    name: str
    caps: Caps
    obey_robots: bool
    day: DayCaps = DayCaps()
    load: LoadRules = LoadRules()
    hours: Hours = _ALWAYS
    outside_hours: OutsideHours = "refuse"
    closed: tuple[str, ...] = ()
    never: bool = False
    is_revoked: bool = False  # then `never` holds too
    priority: int = 0  # for which the caps are granted
    zone: tzinfo = UTC  # of its days
    robots_name: str = "Sterna"
    crawlers: tuple[str, ...] = ()  # permitted ones; none: all
    may_query: bool = True


def terms_of(policy: Policy, name: str, home: HomeRules | None = None, *, priority: int = 0) -> Terms:
    """The terms of a home: its own rules come before those for a priority, and these before those for all."""
    home = home or HomeRules()
    reached = (each for each in policy.priority if each.least <= priority)
    earned = max(reached, key=lambda rules: rules.least, default=None)
    zone = zone_of(policy.zone)
    return Terms(
        name,
        with_some(policy.budget, earned.budget if earned else SomeCaps(), home.budget),
        obey_robots=policy.obey_robots if home.obey_robots is None else home.obey_robots,
        day=with_some(policy.day, home.day),
        load=with_some(policy.load, home.load),
        hours=Hours.parse(policy.hours if home.hours is None else home.hours, zone),
        outside_hours=home.outside_hours or policy.outside_hours,
        closed=(*policy.closed, *home.closed),
        never=home.never,
        priority=earned.least if earned else 0,
        zone=zone,
        robots_name=home.robots_name or policy.robots_name,
        crawlers=policy.crawlers if home.crawlers is None else home.crawlers,
        may_query=policy.may_query if home.may_query is None else home.may_query,
    )


def with_some(base: T, *parts: msgspec.Struct) -> T:
    """The record with the fields that the parts set; the last one wins."""
    given = {
        name: value
        for part in parts
        for name in part.__struct_fields__
        if (value := getattr(part, name)) is not UNSET
    }
    return msgspec.structs.replace(base, **given)


class AllowedHomes:
    """The homes that may send crawlers: those of the policy, and those of the list of keys as it is now."""

    def __init__(self, folder: Path, policy: Policy) -> None:
        self._path, self._revoked_path = folder / ALLOWED, folder / REVOKED
        self.adopt(policy)
        # Both are changed by _listed() alone.
        self._seen: tuple[int, ...] = ()
        self._list: dict[str, str] = {}
        # Both are changed by revoked() alone.
        self._revoked_seen: tuple[int, ...] = ()
        self._revoked: dict[str, Revoked] = {}

    def adopt(self, policy: Policy) -> None:
        self._policy = policy
        self._homes = {name: rules_of(home) for name, home in policy.homes.items()}
        self._of_policy = {rules.key: name for name, rules in self._homes.items() if rules.key}
        self._terms: dict[tuple[str, bool, int], Terms] = {}  # a cache, filled by terms()

    def terms(self, key: PublicKey, *, priority: int = 0) -> Terms | None:
        """The terms of the home with this key; None if it is not allowed."""
        if revoked := self.revoked().get(key.text):
            return msgspec.structs.replace(terms_of(self._policy, revoked.name), never=True, is_revoked=True)
        name = self._of_policy.get(key.text)
        is_named = name is not None
        if name is None and (name := self._listed().get(key.text)) is not None:
            is_named = name in self._homes and not self._homes[name].key
        if name is None:
            return terms_of(self._policy, key.id, priority=priority) if self.is_open else None
        wanted = (name, is_named, priority)
        if wanted not in self._terms:
            home = self._homes[name] if is_named else None
            self._terms[wanted] = terms_of(self._policy, name, home, priority=priority)
        return self._terms[wanted]

    @property
    def is_open(self) -> bool:
        """True if homes that are not named may send crawlers too."""
        return self._policy.open == "everybody"

    def names(self) -> dict[str, str]:
        """The names of all homes that are allowed by name, by key."""
        named = self._listed() | self._of_policy
        never = {name for name, rules in self._homes.items() if rules.never}
        revoked = self.revoked()
        return {key: name for key, name in named.items() if name not in never and key not in revoked}

    def revoked(self) -> dict[str, Revoked]:
        """The homes that are revoked, by key; KeyFileError if their list is damaged."""
        seen = stamp(self._revoked_path)
        if seen != self._revoked_seen:
            self._revoked, self._revoked_seen = read_revoked(self._revoked_path), seen
        return self._revoked

    def _listed(self) -> dict[str, str]:
        seen = stamp(self._path)
        if seen != self._seen:
            self._list, self._seen = read_allowed(self._path), seen
        return self._list


def admit(hello: Hello, *, site: str, terms: Terms | None, now: float) -> Budget:
    """What the home is granted; Refused if it may not come. The caller checks its nonce."""
    if hello.audience != site:
        raise Refused("wrong-audience", f"this is the host of {site}")
    if terms is None:
        raise Refused("unknown-home", "the site's owner has not allowed this key")
    check_welcome(terms)
    # Last, so that an unknown home learns nothing of the host's clock.
    if not abs(hello.time - now) <= SKEW_SECONDS:  # the other way round a NaN would pass
        raise Refused("stale", "the clocks differ too much, or the request is old", time=now)
    return granted(hello.wants, terms.caps)


def check_welcome(terms: Terms) -> None:
    """Refused if the owner wants no crawlers of this home."""
    if terms.is_revoked:
        raise Refused("refused", "the site's owner has revoked this home's key")
    if terms.never:
        raise Refused("refused", "the site's owner takes no crawlers of this home")


def granted(asked: Budget, caps: Caps) -> Budget:
    return asked.lesser(Budget(patience_seconds=PATIENCE_SECONDS, **msgspec.structs.asdict(caps)))


def rationed(budget: Budget, left: Left) -> Budget:
    """The budget with no more pages than are left of the day; the other rations end a visit while it runs."""
    return msgspec.structs.replace(budget, pages=int(min(budget.pages, left.pages)))


def check_open(terms: Terms, left: Left, *, wall: float, keeps: bool) -> None:
    """Refused if no crawler of this home may come now; with `keeps` it may come and wait for its hours."""
    if left.missing or left.visits <= 0:
        detail = f"the home's daily ration at this site is used up ({left.missing or 'visits'})"
        raise Refused("closed-now", detail, retry_after=day_end(wall, terms.zone) - wall)
    if not terms.hours.contains(wall) and not (keeps and terms.outside_hours == "keep"):
        begin = terms.hours.next_begin(wall)
        retry = LATE_SECONDS if begin is None else begin - wall
        raise Refused("closed-now", outside(terms, wall), retry_after=retry)


# -- visits that are here ----------------------------------------------------------------------------------


class Decision(Record, frozen=True, kw_only=True):
    does: Literal["work", "rest", "end"] = "work"
    why: str = ""  # for its home
    detail: str = ""  # for the owner, in addition
    is_outside_hours: bool = False


def decide(terms: Terms | None, left: Left, *, wall: float, busy: str) -> Decision:
    """What a visit that is here does next; `busy` is the reason why the load forbids it to work, if any."""
    if terms and terms.is_revoked:
        return Decision(does="end", why="the site's owner has revoked this home's key")
    if terms is None or terms.never:
        return Decision(does="end", why="the site's owner no longer allows it")
    if left.missing:
        return Decision(does="end", why=f"the day's ration is used up ({left.missing})")
    if not terms.hours.contains(wall):
        keeps = terms.outside_hours == "keep"
        return Decision(does="rest" if keeps else "end", why=outside(terms, wall), is_outside_hours=True)
    if busy:
        return Decision(does="rest", why=BUSY, detail=busy)
    return Decision()


def outside(terms: Terms, wall: float) -> str:
    """In words, when the hours of a home begin."""
    begin = terms.hours.next_begin(wall)
    if begin is None:
        return "outside its hours"
    return f"outside its hours, which begin {datetime.fromtimestamp(begin, terms.zone):%a %d %b %H:%M %Z}"
