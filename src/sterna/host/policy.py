"""What the site's owner allows: `policy.toml`, the list of allowed homes, and what one of them is granted."""

import logging
from collections.abc import Iterable
from pathlib import Path

import msgspec

from sterna.errors import ConfigError, KeyFileError, WireError
from sterna.host.config import Caps, HomeRules, Policy
from sterna.host.keyring import write_private
from sterna.model import Budget, Record
from sterna.wire.keys import PublicKey

ALLOWED = "allowed"  # the file's name in the folder of keys
MAX_NAME = 64
MAX_CONNECTIONS = 64
_PATIENCE_SECONDS = 60.0
# Of these 0 is a number like others; of the rest it stands for no limit.
_COUNTED = ("pages", "seconds", "urls", "depth")

_log = logging.getLogger(__name__)


class Terms(Record, frozen=True):
    """What holds for one allowed home."""

    name: str
    caps: Caps
    obey_robots: bool


def read_policy(path: Path) -> Policy:
    """The policy in a file; ConfigError says what is wrong and where."""
    try:
        policy = msgspec.toml.decode(path.read_bytes(), type=Policy)
        _check(policy)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except (msgspec.MsgspecError, ValueError) as error:  # what is not UTF-8 is a ValueError too
        raise ConfigError(f"{path}: {error}") from error
    return policy


def _check(policy: Policy) -> None:
    for name, home in policy.homes.items():
        check_name(name)
        try:
            PublicKey.parse(_rules(home).key)
        except WireError as error:
            raise ValueError(f"the key of {name} cannot be: {error.detail}") from error
    for path in policy.closed:
        if not path.startswith("/"):
            raise ValueError(f"closed path {path!r} cannot be: it begins with /")
    if not 1 <= policy.connections <= MAX_CONNECTIONS:
        raise ValueError(f"connections {policy.connections} cannot be: 1 to {MAX_CONNECTIONS}")
    if not 0 <= policy.delay_seconds <= 3600:
        raise ValueError(f"delay_seconds {policy.delay_seconds} cannot be: 0 to 3600")
    if any(value < 0 for value in msgspec.structs.astuple(policy.limits)) or policy.limits.readers < 1:
        raise ValueError("limits hold nothing below 0, and 1 reader at least")
    if min(policy.limits.crawlers_at_once, policy.limits.connections) < 1:
        raise ValueError("limits cannot be: 1 crawler at once and 1 connection at least")
    for caps in (policy.budget, *(_rules(home).budget for home in policy.homes.values())):
        if caps and any(value < 0 for value in msgspec.structs.astuple(caps)):
            raise ValueError("a budget holds nothing below 0; 0 stands for no limit")


def _rules(home: str | HomeRules) -> HomeRules:
    return HomeRules(key=home) if isinstance(home, str) else home


def check_name(name: str) -> None:
    """ValueError unless it can name a home: a word that fits in a line."""
    if not 0 < len(name) <= MAX_NAME or not name.isprintable() or " " in name:
        raise ValueError(f"{name!r} cannot name a home: one word of at most {MAX_NAME} characters")


def granted(asked: Budget, most: Caps | Budget) -> Budget:
    """The lesser of the two in everything."""
    fields: dict[str, float] = {"patience_seconds": min(asked.patience_seconds, _PATIENCE_SECONDS)}
    for name in Caps.__struct_fields__:
        wish, cap = getattr(asked, name), getattr(most, name)
        limits = [each for each in (wish, cap) if each > 0]
        fields[name] = min(wish, cap) if name in _COUNTED else min(limits, default=0)
    return msgspec.structs.replace(asked, **fields)


class AllowedHomes:
    """Who may send crawlers: those of the policy and of the list, which is read again when it changes."""

    def __init__(self, folder: Path, policy: Policy) -> None:
        self._path = folder / ALLOWED
        self._policy = policy
        self._of_policy = {rules.key: name for name, rules in self._rules().items()}
        # Both are changed by _listed() alone.
        self._seen: tuple[int, ...] = ()
        self._list: dict[str, str] = {}

    def terms(self, key: PublicKey) -> Terms | None:
        """What holds for the home with this key; None if it is not allowed."""
        name = self._of_policy.get(key.text) or self._listed().get(key.text)
        if name is None:
            return None
        rules = self._rules().get(name) if key.text in self._of_policy else None
        caps = rules.budget if rules and rules.budget else self._policy.budget
        own = rules.obey_robots if rules else None
        return Terms(name, caps, self._policy.obey_robots if own is None else own)

    def names(self) -> dict[str, str]:
        """All of them, key to name."""
        return self._listed() | self._of_policy

    def _rules(self) -> dict[str, HomeRules]:
        return {name: _rules(home) for name, home in self._policy.homes.items()}

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
