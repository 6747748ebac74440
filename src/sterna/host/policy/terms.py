"""What holds for each home: of the policy, of the list of allowed homes; and what one of them is granted."""

import logging
from collections.abc import Iterable
from datetime import UTC, tzinfo
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import UNSET

from sterna.errors import KeyFileError, WireError
from sterna.host.config import (
    Caps,
    DayCaps,
    HomeRules,
    LoadRules,
    OutsideHours,
    Policy,
    PriorityRules,
    SomeCaps,
)
from sterna.host.keyring import write_private
from sterna.host.policy.hours import Hours, zone_of
from sterna.model import Budget, Record
from sterna.wire.keys import PublicKey

ALLOWED = "allowed"  # the file's name in the folder of keys
MAX_NAME = 64
_PATIENCE_SECONDS = 60.0
_ALWAYS = Hours((), UTC)

T = TypeVar("T", bound=msgspec.Struct)

_log = logging.getLogger(__name__)


class Terms(Record, frozen=True):
    """What holds for one home."""

    name: str
    caps: Caps
    obey_robots: bool
    day: DayCaps = DayCaps()
    load: LoadRules = LoadRules()
    hours: Hours = _ALWAYS
    outside_hours: OutsideHours = "refuse"
    closed: tuple[str, ...] = ()
    never: bool = False
    priority: int = 0  # for which the caps are granted
    zone: tzinfo = UTC  # of its days


def rules_of(home: str | HomeRules) -> HomeRules:
    """The table of a home, also where only its key is written."""
    return HomeRules(key=home) if isinstance(home, str) else home


def check_name(name: str) -> None:
    """ValueError unless it can name a home: a word that fits in a line."""
    if not 0 < len(name) <= MAX_NAME or not name.isprintable() or " " in name:
        raise ValueError(f"{name!r} cannot name a home: one word of at most {MAX_NAME} characters")


def granted(asked: Budget, caps: Caps) -> Budget:
    """What a home gets of what it asks for."""
    return asked.lesser(Budget(patience_seconds=_PATIENCE_SECONDS, **msgspec.structs.asdict(caps)))


def terms_of(policy: Policy, name: str, home: HomeRules | None = None, *, priority: int = 0) -> Terms:
    """What the policy says of a home that offers this priority, with a table of its own or none.

    What is said of a home holds before what is said of a priority, and that before what is said to all.
    """
    home = home or HomeRules()
    earned = max((each for each in policy.priority if each.least <= priority), key=_least, default=None)
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
    )


def with_some(base: T, *parts: msgspec.Struct) -> T:
    """The record with what the parts say instead; the last one counts."""
    said = {
        name: value
        for part in parts
        for name in part.__struct_fields__
        if (value := getattr(part, name)) is not UNSET
    }
    return msgspec.structs.replace(base, **said)


def _least(rules: PriorityRules) -> int:
    return rules.least


class AllowedHomes:
    """Who may send crawlers: those of the policy and of the list, which is read again when it changes."""

    def __init__(self, folder: Path, policy: Policy) -> None:
        self._path = folder / ALLOWED
        self.adopt(policy)
        # Both are changed by _listed() alone.
        self._seen: tuple[int, ...] = ()
        self._list: dict[str, str] = {}

    def adopt(self, policy: Policy) -> None:
        """This policy holds from now on."""
        self._policy = policy
        self._homes = {name: rules_of(home) for name, home in policy.homes.items()}
        self._of_policy = {rules.key: name for name, rules in self._homes.items() if rules.key}
        self._terms: dict[tuple[str, bool, int], Terms] = {}  # as they were worked out

    def terms(self, key: PublicKey, *, priority: int = 0) -> Terms | None:
        """What holds for the home with this key; None if it is not allowed."""
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
        """Whether everybody may send crawlers who was not named otherwise."""
        return self._policy.open == "everybody"

    def names(self) -> dict[str, str]:
        """All that may come, key to name; where everybody may, those that were named."""
        named = self._listed() | self._of_policy
        never = {name for name, rules in self._homes.items() if rules.never}
        return {key: name for key, name in named.items() if name not in never}

    def _listed(self) -> dict[str, str]:
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return {}
        seen = (status.st_mtime_ns, status.st_size, status.st_ino)
        if seen != self._seen:
            self._list, self._seen = read_allowed(self._path), seen
        return self._list


def read_allowed(path: Path) -> dict[str, str]:
    """Key to name of the homes in a list; a line that cannot be read allows nobody."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise KeyFileError(f"{path} cannot be read: {error.strerror}") from error
    return dict(_read_lines(path, lines))


def _read_lines(path: Path, lines: list[str]) -> Iterable[tuple[str, str]]:
    for number, line in enumerate(lines, start=1):
        text, _, name = line.strip().partition(" ")
        if not text or text.startswith("#"):
            continue
        try:
            yield PublicKey.parse(text).text, name.strip() or "unnamed"
        except WireError:
            _log.warning("%s, line %d: no key, so it allows nobody", path, number)


def allow(path: Path, key: PublicKey, name: str) -> None:
    """Puts a home on the list, or gives one that is there another name; it takes effect at once."""
    check_name(name)
    homes = read_allowed(path) | {key.text: name}
    write_private(path, "".join(f"{text} {named}\n" for text, named in homes.items()))
