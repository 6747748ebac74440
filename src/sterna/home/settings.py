"""The settings of a crawl, each described once.

`Options` has their types and defaults. The flags of `sterna crawl`, the checks of their values and the table
in docs/reference.md are made from this description.
"""

import math
import sys
from dataclasses import dataclass

from sterna.wire.keys import DEFAULT_KEYS

SCOPE, POLITENESS, NETWORK = "What to crawl", "Politeness", "Network"
HOSTS, OUTPUT = "Hosts at the sites", "Collection and output"
PANELS = (SCOPE, POLITENESS, NETWORK, HOSTS, OUTPUT)
CHECKS = ("none", "auto", "strict")


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
    allowed: str = ""  # the values, in words


SETTINGS: dict[str, Setting] = {
    "max_pages": Setting(
        panel=SCOPE,
        metavar="N",
        default="no limit",
        least=1,
        allowed="1 or more",
        help="Stop after N pages, counted over all runs since the crawl or its last refresh began.",
    ),
    "max_depth": Setting(
        panel=SCOPE,
        metavar="N",
        least=0,
        allowed="0 or more",
        help="Follow at most N links from a start page.",
    ),
    "stay": Setting(
        panel=SCOPE,
        metavar="site|domain|any",
        choices=("site", "domain", "any"),
        allowed="site, domain or any",
        help="Follow links within the start sites (scheme, host and port), within their registrable domains,"
        " or anywhere.",
    ),
    "include": Setting(
        panel=SCOPE,
        metavar="REGEX",
        default="everything",
        help="Follow only URLs that match this regular expression.",
    ),
    "exclude": Setting(
        panel=SCOPE,
        metavar="REGEX",
        default="nothing",
        help="Never follow URLs that match this regular expression.",
    ),
    "sitemaps": Setting(panel=SCOPE, help="Read the sitemaps that robots.txt names."),
    "drop_params": Setting(
        panel=SCOPE,
        is_flag=False,
        default="see below",
        help="Query parameters to remove from URLs, as patterns.",
    ),
    "delay": Setting(
        panel=POLITENESS,
        metavar="SECONDS",
        least=0,
        most=86_400,
        allowed="seconds from 0 to 86400",
        help="Seconds between two requests to a site, or five times its response time if that is longer."
        " 0 lifts the shared limits too and opens several connections: only for sites of your own.",
    ),
    "response_factor": Setting(
        panel=POLITENESS,
        is_flag=False,
        least=0,
        most=1000,
        allowed="0 to 1000",
        help="The delay is at least this many times the server's response time, up to a minute.",
    ),
    "gentle": Setting(panel=POLITENESS, help="A delay of 30 seconds instead, for slow or small servers."),
    "block": Setting(
        panel=POLITENESS,
        metavar="NAME",
        default="nothing",
        help="Never visit this hostname or domain. The collection remembers it.",
    ),
    "user_agent": Setting(
        panel=POLITENESS,
        metavar="TEXT",
        default="Sterna/VERSION (+CONTACT)",
        help="The whole User-Agent header.",
    ),
    "contact": Setting(
        panel=POLITENESS,
        metavar="URL|MAIL",
        environment="STERNA_CONTACT",
        help="A URL or mail address for the owners of sites. It is sent in User-Agent, and a mail address in"
        " From too.",
    ),
    "sender": Setting(
        panel=POLITENESS, is_flag=False, help="The From header, if it differs from the contact."
    ),
    "ignore_robots": Setting(
        panel=POLITENESS,
        negation="--obey-robots",
        help="Do not fetch robots.txt. Only for sites of your own.",
    ),
    "wait": Setting(
        panel=POLITENESS,
        metavar="SECONDS",
        least=0,
        most=sys.float_info.max,
        allowed="seconds, 0 or more",
        help="Seconds to wait for sites that ask for a pause, before the run ends.",
    ),
    "limits": Setting(
        panel=POLITENESS, is_flag=False, default="see below", help="Rates that all sites share."
    ),
    "concurrency": Setting(
        panel=NETWORK,
        metavar="N",
        least=1,
        most=1000,
        allowed="1 to 1000",
        help="Open connections at most, 1 to 1000; at most half of them, and 64, to one site.",
    ),
    "timeout": Setting(
        panel=NETWORK,
        metavar="SECONDS",
        least=1,
        most=3600,
        allowed="seconds from 1 to 3600",
        help="Seconds for one request.",
    ),
    "proxy": Setting(
        panel=NETWORK,
        metavar="URL",
        environment="STERNA_PROXY",
        default="none",
        help="Fetch through this proxy. It is not remembered, because it may contain a password.",
    ),
    "ca_file": Setting(
        panel=NETWORK,
        metavar="FILE",
        is_path=True,
        default="Mozilla's",
        help="Trust the certificates in this file instead.",
    ),
    "allow_private": Setting(
        panel=NETWORK,
        help="Visit private networks too. A start URL with a private address, or localhost, is always"
        " allowed.",
    ),
    "readers": Setting(
        panel=NETWORK,
        is_flag=False,
        least=0,
        most=64,
        allowed="0 to 64",
        help="Processes that read pages; 0 chooses.",
    ),
    "here": Setting(panel=HOSTS, help="Crawl from here, even where a site has a host."),
    "require_host": Setting(
        panel=HOSTS, help="End with an error where a site has no host or its host fails."
    ),
    "hosts": Setting(
        panel=HOSTS,
        flag="--host",
        metavar="SITE=URL[,KEY]",
        default="what the site says",
        help="The endpoint of a site's host and its public key, instead of what the site's own document"
        " says. SITE=,KEY sets the key alone.",
    ),
    "priority": Setting(
        panel=HOSTS,
        metavar="SITE=N",
        default="0",
        help="Offer a site's host a place in the order of revisits, 0 to 10, in return for a larger budget.",
    ),
    "checks": Setting(
        panel=HOSTS,
        flag="--check",
        metavar="none|auto|strict",
        choices=CHECKS,
        allowed=", ".join(CHECKS),
        help="Fetch some of the pages that hosts return from here too, and compare. auto: at most one in"
        " twenty, and fewer the longer a host has been correct; strict: 59 of each visit, also as a browser,"
        " before any of it is used.",
    ),
    "compression": Setting(
        panel=HOSTS,
        metavar="N",
        least=0,
        most=22,
        allowed="1 to 22, or 0 to choose by line speed",
        default="0, by line speed",
        help="Compression level of what hosts send, 1 to 22.",
    ),
    "keys": Setting(
        panel=HOSTS,
        metavar="DIR",
        environment="STERNA_KEYS",
        is_path=True,
        default=DEFAULT_KEYS,
        help="The folder of your keys. A key is created when the first crawler leaves.",
    ),
    "keep": Setting(
        panel=OUTPUT,
        metavar="all|links|FIELDS",
        help="Keep title, text, language and links of every page; or only links, which is faster; or a list"
        " of fields such as title,keywords.",
    ),
    "warc": Setting(panel=OUTPUT, help="Keep raw responses as WARC 1.1."),
    "index": Setting(panel=OUTPUT, help="Index pages for `sterna search` as they arrive."),
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
