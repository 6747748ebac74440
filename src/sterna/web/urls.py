"""URLs in one canonical spelling each, as the WHATWG standard parses them, and what a URL alone says."""

import ipaddress
import re
from collections.abc import Callable, Collection, Container, Iterator, Sequence
from fnmatch import translate
from functools import cache, lru_cache
from hashlib import blake2b
from string import ascii_letters, digits, hexdigits
from typing import Any

import can_ada

MAX_URL_LENGTH = 2048
TOP = "/"  # the part of a site with the pages that lie in no directory

# A href may shrink: its fragment, its white space and its tracking parameters are dropped.
_MAX_HREF_LENGTH = 4 * MAX_URL_LENGTH

# Names that mean the visitor or the way here, on every site; "sid" and "session_id" also name contents.
DEFAULT_DROP_PARAMS: tuple[str, ...] = (
    "utm_*", "mtm_*", "pk_campaign", "pk_kwd", "pk_source", "pk_medium",
    "_ga", "_gl", "gclid", "gclsrc", "dclid", "gbraid", "wbraid",
    "fbclid", "igsh", "igshid", "msclkid", "twclid", "ttclid", "yclid", "ymclid", "li_fat_id",
    "mc_cid", "mc_eid", "mkt_tok", "_hsenc", "_hsmi", "__hstc", "__hssc", "__hsfp", "hsctatracking",
    "vero_id", "oly_anon_id", "oly_enc_id", "ml_subscriber", "ml_subscriber_hash", "wickedid", "xtor",
    "jsessionid", "phpsessid", "aspsessionid*", "cfid", "cftoken", "oscsid", "zenid",
)  # fmt: skip

_UNRESERVED = frozenset(ascii_letters + digits + "-._~")
# Not after a stray "%" or "%h", which together with the decoded character would be a new triplet: "%%34%31".
_TRIPLET = re.compile("(?<!%)(?<!%[0-9a-fA-F])%[0-9a-fA-F]{2}")
_PATH_PARAM = re.compile(r";([^/;=]+)=[^/;]*")

# Every %xx to its normal form: the unreserved character, or upper-case hex (RFC 3986 6.2.2).
_NORMAL_TRIPLETS = {
    f"%{high}{low}": char if (char := chr(int(high + low, 16))) in _UNRESERVED else f"%{high}{low}".upper()
    for high in hexdigits
    for low in hexdigits
}

# A path in which a parser has nothing to do but to go up.
_PLAIN_PATH = re.compile(r"(?:\.\./)*+(?:[a-zA-Z0-9_~-][a-zA-Z0-9_.~-]*+(?:/(?!\Z)|\Z))++")
_SLASHES_OF_A_SITE = 2

_MAX_SEGMENTS = 24
_REPETITION = re.compile(r"(/[^/]+(?:/[^/]+)?)\1{3,}(?=/|$)")


@lru_cache(maxsize=64)
def _dropper(drop_params: tuple[str, ...]) -> Callable[[str], re.Match[str] | None]:
    # An empty pattern would match the empty name, so no patterns means a pattern that never matches.
    pattern = "|".join(translate(glob) for glob in drop_params) or r"(?!)"
    return re.compile(pattern, re.IGNORECASE).match


class Canonical:
    """Turns each href into the one spelling of its absolute URL, or None if it is not a web URL."""

    def __init__(self, drop_params: Sequence[str] = DEFAULT_DROP_PARAMS) -> None:
        self._is_dropped = _dropper(tuple(drop_params))
        # The base of the last call, parsed: all links of a page share theirs.
        self._base = ""
        self._parsed_base: can_ada.URL | None = None
        self._folder_base = ""
        self._folder = ""

    def __call__(self, href: str, base: str | None = None) -> str | None:
        """Returns the canonical absolute http or https URL of `href`, None for anything else."""
        if base is not None and _PLAIN_PATH.fullmatch(href):
            return self._join(href, base)
        return self._resolve(href, base)

    def _resolve(self, href: str, base: str | None) -> str | None:
        if len(href) > _MAX_HREF_LENGTH:
            return None
        try:
            if base is None:
                url: str = can_ada.parse(href).href
            else:
                if self._parsed_base is None or base != self._base:
                    self._parsed_base, self._base = can_ada.parse(base), base
                url = (self._parsed_base + href).href
        except (ValueError, TypeError):  # TypeError: a lone surrogate
            return None
        if not url.startswith(("http://", "https://")):
            return None
        if "?" in url or "%" in url or "#" in url or "@" in url or ";" in url:
            url = self._clean(url)
        return url if len(url) <= MAX_URL_LENGTH else None

    def _join(self, href: str, base: str) -> str | None:
        """Joins a plain path to the folder of its base; what a parser would do, at a fifth of the cost."""
        folder = self.folder_of(base)
        if not folder:
            return None
        while href.startswith("../"):
            href = href[3:]
            if folder.count("/") > _SLASHES_OF_A_SITE:
                folder = folder.rpartition("/")[0]
        url = f"{folder}/{href}"
        return url if len(url) <= MAX_URL_LENGTH else None

    def folder_of(self, base: str) -> str:
        """The URL of the folder of a base, without its last slash; "" if it has none."""
        if base != self._folder_base:
            self._folder_base, self._folder = base, (self._resolve(".", base) or "").rpartition("/")[0]
        return self._folder

    def _clean(self, url: str) -> str:
        site = site_of(url)
        path, _, query = url[len(site) :].partition("#")[0].partition("?")
        if "@" in site:
            scheme, _, authority = site.partition("://")
            site = f"{scheme}://{authority.rpartition('@')[2]}"
        if "%" in path:
            path = _normalise_percent(path)
        if ";" in path:
            kept = _PATH_PARAM.sub(lambda param: "" if self._is_dropped(param[1]) else param[0], path)
            if kept != path:
                # What remains may be a dot segment: "/..;jsessionid=1".
                path = path_of(can_ada.parse(site + kept).href)
        if query:
            params = (_normalise_percent(query) if "%" in query else query).split("&")
            query = "&".join([param for param in params if not self._is_dropped(param.partition("=")[0])])
        return f"{site}{path}?{query}" if query else site + path


def _normalise_percent(text: str) -> str:
    return _TRIPLET.sub(lambda triplet: _NORMAL_TRIPLETS[triplet[0]], text)


def site_of(url: str) -> str:
    """Returns the origin, "scheme://host[:port]", of a canonical URL."""
    end = url.find("/", len("https://"))
    return url if end < 0 else url[:end]


def hostname_of(url: str) -> str:
    """Returns the host of a canonical URL without its port, an IPv6 address without its brackets."""
    host = site_of(url).partition("://")[2]
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def path_of(url: str) -> str:
    """Returns the path and query of a canonical URL."""
    return url[len(site_of(url)) :]


def part_of(url: str) -> str:
    """Returns the part of its site in which a canonical URL lies: its first directory, such as "/docs/"."""
    path = path_of(url).partition("?")[0]
    end = path.find("/", 1)
    return path[: end + 1] if end > 0 else TOP


def parts_of(url: str) -> Iterator[str]:
    """The parts in which a canonical URL lies, the largest first: "/docs/", "/docs/api/" and "/docs/api/.".

    The last is what lies directly in the innermost folder. A URL of no folder lies in "/" alone.
    """
    path, first = path_of(url).partition("?")[0], part_of(url)
    yield first
    end = len(first) if first != TOP else 0
    while end and (slash := path.find("/", end)) >= 0:
        end = slash + 1
        yield path[:end]
    if end:
        yield f"{path[:end]}."


def lies_within(url: str, parts: Container[str]) -> bool:
    """True if one of these parts contains the canonical URL."""
    return any(part in parts for part in parts_of(url))


def fingerprint(url: str) -> int:
    """Returns the signed 64-bit integer under which a canonical URL is remembered."""
    return int.from_bytes(blake2b(url.encode(), digest_size=8).digest(), signed=True)


def is_trap(url: str) -> bool:
    """Whether the path repeats itself or is so deep that it must be a crawler trap."""
    path = path_of(url).partition("?")[0]
    segments = path.split("/")[1:]
    if len(segments) > _MAX_SEGMENTS:
        return True
    # The pattern is slow, and a repetition leaves at least three segments fewer that differ.
    return len(segments) - len(set(segments)) >= 3 and _REPETITION.search(path) is not None


@cache
def _public_suffixes() -> Any:
    # Importing and reading the list takes a while, and many commands need no domain.
    from publicsuffixlist import PublicSuffixList  # noqa: PLC0415

    return PublicSuffixList()


@lru_cache(maxsize=65_536)
def domain_of(hostname: str) -> str:
    """Returns the registrable domain; addresses, single names and public suffixes stand for themselves."""
    name = hostname.rstrip(".")
    if ":" in name or "." not in name or name.rpartition(".")[2].isdigit():
        return name
    return _public_suffixes().privatesuffix(name) or name


def is_within(hostname: str, names: Collection[str]) -> bool:
    """True if the hostname, or a domain that it lies in, is among the names."""
    if not names:
        return False
    labels = hostname.rstrip(".").split(".")
    return any(".".join(labels[start:]) in names for start in range(len(labels)))


# Only 2000::/3 is handed out for global use (RFC 4291 2.4); these parts of it and these translations are not.
_GLOBAL_V6 = ipaddress.IPv6Network("2000::/3")
_DOCUMENTATION_V6 = ipaddress.IPv6Network("3fff::/20")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


@lru_cache(maxsize=65_536)
def is_private(address: str) -> bool:
    """Whether an IP address is not globally routable; True for anything that is not an address."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return True
    if isinstance(ip, ipaddress.IPv6Address):
        # The address that packets to it end at: mapped, 6to4 (RFC 3056) or NAT64 (RFC 6052).
        is_nat64 = ip in _NAT64
        inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF) if is_nat64 else ip.ipv4_mapped or ip.sixtofour
        if inner is None:
            return ip not in _GLOBAL_V6 or ip in _DOCUMENTATION_V6 or not ip.is_global
        ip = inner
    return ip.is_multicast or not ip.is_global
