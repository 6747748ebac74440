"""The settings of a crawl, each described once.

`Options` has their types and defaults. The flags of `sterna crawl`, the checks of their values and the table
in docs/reference.md are made from this description.
"""

import math
import re
import sys
from dataclasses import dataclass
from functools import partial
from typing import get_args

from sterna.web.urls import Canonical
from sterna.wire.keys import DEFAULT_KEYS

SCOPE, POLITENESS, NETWORK = "What to crawl", "Politeness", "Network"
HOSTS, OUTPUT = "Hosts at the sites", "Collection and output"
LEAST_HOURS, MOST_HOURS = 0.01, 24.0  # between two tries to fetch a robots.txt
_PROXIES = frozenset({"http", "https", "socks4", "socks4a", "socks5", "socks5h"})
PANELS = (SCOPE, POLITENESS, NETWORK, HOSTS, OUTPUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How a setting is named, explained and limited."""

    help: str
    panel: str
    metavar: str = ""
    flag: str = ""  # "": the setting's name, with dashes
    is_flag: bool = True  # False: only in a configuration file
    negation: str = ""  # of a flag that switches something on; "": `--no-...`
    environment: str = ""  # the variable that also sets it
    default: str = ""  # in words, where the value alone does not tell
    is_path: bool = False
    choices: tuple[str, ...] = ()
    least: float = -math.inf
    most: float = math.inf

    @property
    def allowed(self) -> str:
        """The valid values in words; "" if all are valid."""
        if self.choices:
            return f"{', '.join(self.choices[:-1])} or {self.choices[-1]}"
        if self.least == -math.inf:
            return ""
        unit = f"{self.metavar.lower()}, " if self.metavar in {"SECONDS", "HOURS"} else ""
        most = f"to {self.most:g}" if self.most < sys.float_info.max else "or more"
        return f"{unit}{self.least:g} {most}"

    def wanted(self, kind: object) -> str:
        """The valid values in words, where one has the wrong type."""
        types = [kind, *get_args(kind)]
        words = next((words for each, words in _TYPES.items() if each in types), "see 'sterna crawl --help'")
        unit = self.allowed.removeprefix("seconds, ")
        return self.allowed if self.choices else ", ".join(filter(None, (words, unit)))


_TYPES: dict[object, str] = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    tuple[str, ...]: "a text, or several",
    str: "a text",
}


_scope, _politeness, _network, _hosts, _output = (partial(Setting, panel=panel) for panel in PANELS)

SETTINGS: dict[str, Setting] = {
    "max_pages": _scope(
        metavar="N",
        default="no limit",
        least=1,
        help="Stop after N pages, counted over all runs since the crawl or its last refresh began.",
    ),
    "max_depth": _scope(metavar="N", least=0, help="Follow at most N links from a start page."),
    "stay": _scope(
        metavar="site|domain|any",
        choices=("site", "domain", "any"),
        help="Follow links within the start sites (scheme, host and port), within their registrable domains,"
        " or anywhere.",
    ),
    "include": _scope(
        metavar="REGEX", default="everything", help="Follow only URLs that match this regular expression."
    ),
    "exclude": _scope(
        metavar="REGEX", default="nothing", help="Never follow URLs that match this regular expression."
    ),
    "subtrees": _scope(
        flag="--subtree",
        metavar="PATH",
        default="the whole site",
        help="Follow only links below this path, such as /docs/. The start pages are fetched in any case.",
    ),
    "sitemaps": _scope(help="Read the sitemaps listed in robots.txt."),
    "requisites": _scope(
        help="Also fetch what the pages need to be shown, from any site: images, styles, scripts and fonts."
        " They come after the pages, and go into the WARC files alone. Needs --warc."
    ),
    "max_requisites": _scope(
        metavar="N",
        least=1,
        help="Fetch at most N of them, counted like --max-pages.",
    ),
    "max_requisite_bytes": _scope(
        metavar="N", least=1, default="2 GB", help="Fetch at most N bytes of them, counted like --max-pages."
    ),
    "drop_params": _scope(
        is_flag=False, default="see below", help="Patterns of query parameters to remove from URLs."
    ),
    "delay": _politeness(
        metavar="SECONDS",
        least=0,
        most=86_400,
        help="Seconds between two requests to the same site, or five times its response time if that is"
        " longer. 0 also disables the shared limits and opens several connections: only for sites of your"
        " own.",
    ),
    "response_factor": _politeness(
        is_flag=False,
        least=0,
        most=1000,
        help="The delay is at least this many times the server's response time, up to one minute.",
    ),
    "gentle": _politeness(help="Use a delay of 30 seconds, for slow or small servers."),
    "block": _politeness(
        metavar="NAME",
        default="nothing",
        help="Never visit this hostname or domain. The collection remembers it.",
    ),
    "user_agent": _politeness(
        metavar="TEXT", default="Sterna/VERSION (+CONTACT)", help="The complete User-Agent header."
    ),
    "contact": _politeness(
        metavar="URL|MAIL",
        environment="STERNA_CONTACT",
        help="A URL or email address at which site owners can reach you. It is sent in the User-Agent"
        " header; an email address is also sent in From.",
    ),
    "sender": _politeness(is_flag=False, help="The From header, if it differs from the contact."),
    "ignore_robots": _politeness(
        negation="--obey-robots", help="Do not fetch robots.txt. Only for sites of your own."
    ),
    "strict_robots": _politeness(
        help="Keep away from a site if its robots.txt is refused (401, 403 and the like), as if it forbade"
        " everything. Otherwise this means that there are no rules, as RFC 9309 has it.",
    ),
    "robots_keep_hours": _politeness(
        is_flag=False,
        metavar="HOURS",
        least=LEAST_HOURS,
        most=MOST_HOURS,
        help="After this many hours a robots.txt is fetched again.",
    ),
    "robots_retry_hours": _politeness(
        is_flag=False,
        default="1, 4, 12, 24",
        help="Hours until a robots.txt that could not be fetched is asked for again: after the first failure"
        " in a row, the second, and so on; the last one repeats.",
    ),
    "robots_failures": _politeness(
        is_flag=False, least=1, most=1000, help="After this many failures in a row the site is given up."
    ),
    "robots_pause": _politeness(
        is_flag=False,
        metavar="SECONDS",
        least=0,
        most=60,
        help="Seconds until the addresses of a site are asked for its robots.txt a second time.",
    ),
    "wait": _politeness(
        metavar="SECONDS",
        least=0,
        most=sys.float_info.max,
        help="How long to wait for sites that ask for a pause, in seconds, before the run ends.",
    ),
    "limits": _politeness(is_flag=False, default="see below", help="Rate limits shared by all sites."),
    "concurrency": _network(
        metavar="N",
        least=1,
        most=1000,
        help="Maximum number of open connections, 1 to 1000. One site gets at most half of them, and at"
        " most 64.",
    ),
    "timeout": _network(metavar="SECONDS", least=1, most=3600, help="Timeout of a request, in seconds."),
    "accept_language": _network(
        metavar="LIST",
        default="*, any",
        help="The languages to ask for, such as de,en;q=0.5, where a site has its pages in several. An empty"
        " text sends no Accept-Language header.",
    ),
    "proxy": _network(
        metavar="URL",
        environment="STERNA_PROXY",
        default="none",
        help="Fetch through this proxy. Not remembered, because the URL may contain a password.",
    ),
    "proxy_resolves": _network(
        help="Leave names that have no address here to the proxy, instead of refusing them. The proxy then"
        " has to keep them out of its private network."
    ),
    "ca_file": _network(
        metavar="FILE",
        is_path=True,
        default="Mozilla's list",
        help="Trust the CA certificates in this file instead.",
    ),
    "allow_private": _network(
        help="Also visit private networks. A start URL with a private address, or localhost, is always"
        " allowed."
    ),
    "readers": _network(is_flag=False, least=0, most=64, help="Processes that read pages; 0 chooses."),
    "here": _hosts(help="Crawl from this machine, even if a site has a host."),
    "require_host": _hosts(help="Fail if a site has no host, or if its host fails."),
    "hosts": _hosts(
        flag="--host",
        metavar="SITE=URL[,KEY]",
        default="from the site",
        help="Endpoint and public key of a site's host, instead of those in the site's discovery"
        " document. SITE=,KEY sets only the key.",
    ),
    "priority": _hosts(
        metavar="SITE=N",
        default="0",
        help="Revisit priority, 0 to 10, that a site's host is offered in return for a larger budget.",
    ),
    "checks": _hosts(
        flag="--check",
        metavar="none|auto|strict",
        choices=("none", "auto", "strict"),
        help="Fetch a sample of the pages that hosts return from here as well, and compare. auto: at"
        " most one page in twenty, and fewer the longer a host has been correct; strict: 59 pages"
        " of each visit, also as a browser would, before any of it is used.",
    ),
    "compression": _hosts(
        metavar="N",
        least=0,
        most=22,
        default="0: by connection speed",
        help="Compression level of what hosts send, 1 to 22.",
    ),
    "keys": _hosts(
        metavar="DIR",
        environment="STERNA_KEYS",
        is_path=True,
        default=DEFAULT_KEYS,
        help="Folder of your keys. A key is created when the first crawler is sent to a host.",
    ),
    "keep": _output(
        metavar="all|links|FIELDS",
        help="What to keep of each page. all: title, text, language and links; links: only links, which"
        " is faster; or a list of fields such as title,keywords.",
    ),
    "warc": _output(help="Also store the raw responses, as WARC 1.1."),
    "index": _output(help="Index pages for `sterna search` as they arrive."),
}


def flag_of(name: str) -> str:
    """The flag of a setting, or its name where only a file sets it."""
    setting = SETTINGS[name]
    if not setting.is_flag:
        return name
    return setting.flag or f"--{name.replace('_', '-')}"


def default_text(name: str, default: object) -> str:
    """The default value in words; "" for nothing."""
    if SETTINGS[name].default:
        return SETTINGS[name].default
    if isinstance(default, bool):
        return "on" if default else "off"
    if isinstance(default, int | float):
        return f"{default:g}"
    return str(default or "")


def is_contact(text: str) -> bool:
    is_url = text.startswith(("http://", "https://")) and Canonical(())(text) is not None
    return not text or is_url or re.fullmatch(r"(mailto:)?[^\s@:/]+@[^\s@:/]+", text) is not None


def is_proxy(text: str) -> bool:
    """True for a proxy with a scheme or a port; libcurl would take any word for a hostname."""
    found = re.fullmatch(r"(?:(\w+)://)?(?:[^/\s]*@)?(?:\[[0-9a-fA-F:.]+\]|[\w.-]+)(:\d+)?/?", text)
    if not text or found is None:
        return not text
    return (found[1] or "").lower() in _PROXIES if found[1] else found[2] is not None
