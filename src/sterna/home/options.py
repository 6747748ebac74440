"""The options of a crawl as its user gives them; the ledger keeps them for the next run."""

import difflib
import math
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import asdict

from sterna.crawler.compiler import crawler_of_fields
from sterna.crawler.scope import ScopeRules, seed_url, subtree_path
from sterna.crawler.spec import GENTLE_SECONDS, CrawlOptions
from sterna.errors import ConfigError, UsageError, WireError
from sterna.home.away.hosts import Configured
from sterna.home.settings import LEAST_HOURS, MOST_HOURS, SETTINGS, flag_of, is_contact, is_proxy
from sterna.model import Etiquette, RobotsTimes, Scope
from sterna.web.dns import literal_address
from sterna.web.politeness import NO_LIMITS, Limits, Rate
from sterna.web.urls import Canonical, hostname_of, is_private, site_of
from sterna.wire.handshake import MAX_PRIORITY
from sterna.wire.keys import PublicKey

MAX_SITE_CONNECTIONS = 64
_LEAST_DELAY = 1e-3
_LOGIN = re.compile(r"(?:[a-zA-Z]+:)?//[^/?#]*@")


class Options(CrawlOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings of a crawl: those that a spec may make, and the rest. `SETTINGS` explains each."""

    subtrees: tuple[str, ...] = ()
    concurrency: int = 100
    limits: Limits | None = None
    keep: str = "all"
    warc: bool = False
    allow_private: bool = False
    proxy: str = ""
    proxy_resolves: bool = False
    ca_file: str = ""
    timeout: float = 60.0
    accept_language: str = "*"
    wait: float = 300.0
    robots_keep_hours: float = 24.0
    robots_retry_hours: tuple[float, ...] = (1.0, 4.0, 12.0, 24.0)
    robots_failures: int = 8
    robots_pause: float = 2.0
    readers: int = 0
    here: bool = False
    require_host: bool = False
    hosts: tuple[str, ...] = ()  # SITE=URL[,KEY]
    compression: int = 0
    keys: str = ""
    checks: str = "auto"
    priority: tuple[str, ...] = ()  # SITE=N
    index: bool = True

    def check(self) -> None:
        """Raises UsageError with the flag and the value that is invalid."""
        for name, setting in SETTINGS.items():
            value = getattr(self, name)
            if isinstance(value, int | float):
                is_good = setting.least <= value <= setting.most
            else:
                is_good = not setting.choices or value in setting.choices
            _check(is_good, flag_of(name), value, setting.allowed)
        hours = self.robots_retry_hours
        is_good = bool(hours) and all(LEAST_HOURS <= each <= MOST_HOURS for each in hours)
        allowed = f"a list of hours, {LEAST_HOURS:g} to {MOST_HOURS:g}"
        _check(is_good, "robots_retry_hours", list(hours), allowed)
        crawler_of_fields(self.keep)
        if self.here and self.require_host:
            raise UsageError("--here and --require-host exclude each other: choose one")
        self._check_requisites()
        self.configured_hosts()
        self.priorities_by_site()
        shared = self.shared_limits()
        for rate in (shared.address, shared.domain, shared.total):
            _check(
                0 <= rate.requests < math.inf, "limits", rate.requests, "requests a second, 0 for no limit"
            )
            _check(0 <= rate.bytes < math.inf, "limits", rate.bytes, "bytes a second, 0 for no limit")
        for text in (self.user_agent, self.contact, self.sender):
            _check(text.isprintable(), "--user-agent, --contact", text, "printable characters only")
        is_list = re.fullmatch(r"[A-Za-z0-9*,;=. -]*", self.accept_language) is not None
        _check(is_list, "--accept-language", repr(self.accept_language), "a list such as de,en;q=0.5")
        _check(
            is_contact(self.contact), "--contact", self.contact, "an email address, or a URL with https://"
        )
        allowed = "a URL, such as http://127.0.0.1:3128 or socks5://127.0.0.1:1080"
        _check(is_proxy(self.proxy), "--proxy", self.proxy.rpartition("@")[2], allowed)
        is_there = not self.ca_file or Path(self.ca_file).is_file()
        _check(is_there, "--ca-file", self.ca_file, "the name of an existing file")
        for subtree in self.subtrees:
            allowed = "write the beginning of a path, such as /docs/"
            _check(subtree_path(subtree) is not None, "--subtree", subtree, allowed)
        ScopeRules(self.scope())
        self.blocked_names()
        self.seed_urls()

    def _check_requisites(self) -> None:
        if not self.requisites:
            return
        if not self.warc:
            raise UsageError("--requisites stores what pages need in WARC files: add --warc")
        if self.require_host:
            raise UsageError("--requisites and --require-host exclude each other: hosts bring only pages")

    def blocked_names(self) -> tuple[str, ...]:
        """The block list as hostnames are compared; raises UsageError for what is not a hostname."""
        return tuple(host_name("--block", name) for name in self.block)

    def seed_urls(self) -> list[str]:
        """The start URLs, canonical; raises UsageError for an invalid one."""
        canonical = Canonical(self.drop_params)
        urls = []
        for seed in self.seeds:
            url = seed_url(seed, canonical)
            if url is not None and _LOGIN.match(seed):
                raise UsageError(f"{url}: no start URL has a login: give it by --auth USER:PASSWORD")
            if url is None:
                raise UsageError(f"{seed!r} is not a web address: write it like https://www.example.org/")
            urls.append(url)
        return urls

    def scope(self) -> Scope:
        return Scope(
            stay=self.stay,
            include=self.include,
            exclude=self.exclude,
            subtrees=tuple(filter(None, map(subtree_path, self.subtrees))),
            max_depth=self.max_depth,
            drop_params=self.drop_params,
            use_sitemaps=self.sitemaps,
        )

    def etiquette(self, version: str) -> Etiquette:
        delay = max(self.delay, GENTLE_SECONDS) if self.gentle else self.delay
        contact = f" (+{self.contact})" if self.contact else ""
        user_agent = self.user_agent or f"Sterna/{version}{contact}"
        is_mail = "@" in self.contact and "://" not in self.contact
        return Etiquette(
            user_agent=user_agent,
            robots_name=_robots_name(user_agent),
            sender=self.sender or (self.contact if is_mail else ""),
            delay_seconds=delay,
            # Without a delay nothing waits; with one, requests come one at a time.
            response_factor=self.response_factor if delay else 0.0,
            connections=1 if delay else min(MAX_SITE_CONNECTIONS, max(1, self.concurrency // 2)),
            obey_robots=not self.ignore_robots,
            strict_robots=self.strict_robots,
            robots_times=RobotsTimes(
                keep_seconds=self.robots_keep_hours * 3600,
                retry_hours=self.robots_retry_hours,
                max_failures=self.robots_failures,
                pause_seconds=self.robots_pause,
            ),
        )

    def configured_hosts(self) -> dict[str, Configured]:
        """The hosts that the user names, by site; raises UsageError for a malformed one."""
        return dict(_configured(text) for text in self.hosts)

    def priorities_by_site(self) -> dict[str, int]:
        """The priority offered to the host of each site; raises UsageError for a malformed one."""
        return dict(_priority(text) for text in self.priority)

    def shared_limits(self) -> Limits:
        """The limits that were given, else the usual ones, which hold back no delay that was given."""
        if self.limits is not None:
            return self.limits
        if self.gentle:
            return Limits()
        if not self.delay:
            return NO_LIMITS
        usual, per_second = Limits(), 1.0 / max(self.delay, _LEAST_DELAY)
        return Limits(*(Rate(max(rate.requests, per_second)) for rate in (usual.address, usual.domain)))


def given_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options as a Python program gives them, as `Options` holds them; None where one is not given.

    Raises UsageError, in the words of the command, for an unknown name or a value of the wrong type.
    """
    fields = {field.name: field for field in msgspec.structs.fields(Options)}
    if unknown := next((name for name in given if name not in fields), None):
        near = difflib.get_close_matches(unknown, fields, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "see 'sterna crawl --help' for the options"
        raise UsageError(f"{unknown!r} is not an option of a crawl: {hint}")
    return {name: read_value(name, value, fields[name].type) for name, value in given.items()}


def read_value(name: str, value: Any, kind: Any, *, is_text: bool = False) -> Any:
    """The value of a setting; with `is_text` a number may be written in digits."""
    if value is None:
        return None
    if isinstance(value, str) and kind == tuple[str, ...]:
        value = (value,)
    elif isinstance(value, Path):
        value = str(value.absolute())
    try:
        return msgspec.convert(value, type=kind, strict=not is_text)
    except msgspec.ValidationError:
        raise UsageError(f"{flag_of(name)} {value} is invalid: {SETTINGS[name].wanted(kind)}") from None


def read_config(path: Path, over: Options) -> Options:
    """The options, overridden by those of a TOML file; raises ConfigError with what is wrong and where."""
    try:
        text = path.read_bytes()
        given = msgspec.toml.decode(text)
        read = msgspec.toml.decode(text, type=Options)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}: see 'sterna crawl --help' for the options") from error
    return msgspec.structs.replace(over, **{name: getattr(read, name) for name in given})


def load(text: str | None) -> Options:
    """The options that the ledger keeps, or the defaults."""
    return msgspec.json.decode(text, type=Options) if text else Options()


def dump(options: Options) -> str:
    """The options for the ledger, which keeps the block list itself.

    A proxy's address may contain a password, so it is not kept.
    """
    return msgspec.json.encode(msgspec.structs.replace(options, proxy="", block=())).decode()


def settings_of(options: Options, *, blocked: Collection[str] = ()) -> str:
    """The options as segments keep them, lest the ledger is lost: with the block list, without start URLs."""
    names = tuple(sorted({*blocked, *options.blocked_names()}))
    kept = asdict(msgspec.structs.replace(options, proxy="", seeds=(), block=names))
    usual = asdict(Options())
    return msgspec.json.encode({name: each for name, each in kept.items() if each != usual[name]}).decode()


def host_name(option: str, text: str) -> str:
    """A hostname or domain as it is compared; a whole URL stands for its host."""
    url = Canonical(())(text if "://" in text else f"http://{text.strip().strip('.')}/")
    name = hostname_of(url).rstrip(".") if url else ""
    if not name or any(sign in text.partition("://")[2] or sign in name for sign in " *@"):
        raise UsageError(f"{option} {text} is not a hostname or domain: write it like ads.example.org")
    return name


def is_private_name(url: str) -> bool:
    """True if the URL itself says that it lies on this machine or in a private network."""
    hostname = hostname_of(url)
    address = literal_address(hostname)
    return is_private(address) if address else hostname.rpartition(".")[2] == "localhost"


def lay_over(options: Options, own: Mapping[str, object], flags: Mapping[str, Any]) -> Options:
    """The options, overridden by a crawler's own and by the flags that were given (not None).

    Seeds of the crawler are left out: they are merged with those of the collection.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    ours = {name: value for name, value in own.items() if name != "seeds"}
    return msgspec.structs.replace(options, **{**ours, **given})


def merge_seeds(old: Sequence[str], new: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*old, *new)))


def _robots_name(user_agent: str) -> str:
    """The crawler's name in a User-Agent, also in one that begins as browsers' do."""
    found = re.search(r"compatible;\s*([A-Za-z_-]+)", user_agent) or re.match(r"([A-Za-z_-]+)", user_agent)
    return found[1] if found else "Sterna"


def _configured(text: str) -> tuple[str, Configured]:
    site, _, said = text.partition("=")
    endpoint, _, key = said.partition(",")
    origin = _origin(site)
    url = Canonical(())(endpoint) if endpoint else ""
    try:
        is_good = bool(url or key) and url is not None
        if key:
            PublicKey.parse(key)
    except WireError:
        is_good = False
    if not is_good or origin is None:
        example = "https://www.example.org=https://www.example.org/sterna,ed25519:..."
        raise UsageError(f"--host {text} is invalid: write it like {example}; the key is optional")
    return origin, Configured(endpoint=url or "", key=key)


def _priority(text: str) -> tuple[str, int]:
    site, _, number = text.rpartition("=")
    origin = _origin(site) if site else None
    is_number = number.isascii() and number.isdigit() and len(number) <= 2
    if origin is None or not is_number or int(number) > MAX_PRIORITY:
        raise UsageError(f"--priority {text} is invalid: write it like https://www.example.org=5, 0 to 10")
    return origin, int(number)


def _origin(site: str) -> str | None:
    """The site that the user names, with or without a scheme; None if it is malformed."""
    url = Canonical(())(site if "://" in site else f"https://{site}")
    return site_of(url) if url else None


def _check(is_good: bool, option: str, value: object, allowed: str) -> None:
    if not is_good:
        shown = f"{value:g}" if isinstance(value, float) else value
        raise UsageError(f"{option} {shown} is invalid: {allowed}")
