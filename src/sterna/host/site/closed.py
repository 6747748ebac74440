"""Paths closed to crawlers: those that web servers show to their own machine only, and the owner's."""

import re
from collections.abc import Sequence
from urllib.parse import unquote_to_bytes

from sterna.web.urls import path_of

# Status and administration pages by their usual names, closed as prefixes: `location` of nginx and path info
# of Apache show the same page under longer paths.
LOCAL_PAGES = (
    # Apache: mod_status, mod_info, mod_proxy_balancer, mod_ldap, mod_md, mod_perl, mod_jk, mod_cluster
    "/server-status", "/server-info", "/balancer-manager", "/ldap-status", "/md-status", "/perl-status",
    "/jk-status", "/jkstatus", "/jkmanager", "/mod_cluster_manager", "/mod_cluster-manager",
    # lighttpd
    "/server-config", "/server-statistics",
    # nginx: stub_status, vts, upstream checks
    "/nginx_status", "/nginx-status", "/nginxstatus", "/nginx_stub_status", "/stub_status", "/stub-status",
    "/basic_status", "/server_status", "/nginx_vts", "/vts_status", "/upstream_status", "/upstream_conf",
    # PHP-FPM
    "/fpm-status", "/fpm_status", "/php-fpm-status", "/php_fpm_status", "/php-fpm_status", "/phpfpm_status",
    "/phpfpm-status", "/php-status", "/fpm-ping", "/fpm_ping", "/php-fpm-ping", "/php_fpm_ping",
    # HAProxy, Varnish
    "/haproxy-status", "/haproxy_status", "/haproxy-stats", "/haproxy_stats",
    "/varnish-status", "/varnish_status",
    # PageSpeed
    "/pagespeed_admin", "/pagespeed_global_admin", "/pagespeed_console", "/mod_pagespeed_statistics",
    "/mod_pagespeed_global_statistics", "/mod_pagespeed_console", "/mod_pagespeed_message",
    "/ngx_pagespeed_statistics", "/ngx_pagespeed_global_statistics", "/ngx_pagespeed_message",
    # Tomcat, Rails and .NET: pages that are local by default
    "/manager/html", "/manager/text", "/manager/status", "/manager/jmxproxy", "/host-manager",
    "/rails/info", "/rails/mailers", "/trace.axd", "/elmah.axd", "/glimpse.axd",
    # Debian packages that are installed with `Require local`
    "/dwww", "/cgi-bin/dwww", "/munin", "/munin-cgi",
)  # fmt: skip

# Names that many sites use for pages of their own: closed as whole paths, not as prefixes.
LOCAL_WORDS = ("/status", "/ping", "/haproxy", "/metrics")

_PLAIN = re.compile(r"(?:/[A-Za-z0-9_-][A-Za-z0-9_.-]*+)++/?")  # has only one reading
_ROUNDS = 3  # of percent-decoding: a server behind another may decode once more
_SLASHES = re.compile(r"/{2,}")
_PARAMETER = re.compile(r"[;?#][^/]*")  # of a name; an encoded "?" is part of the path


class Closed:
    """The closed paths, in any spelling that a web server takes for the same page."""

    def __init__(self, paths: Sequence[str] = ()) -> None:
        """Closes these prefixes too, as robots.txt does."""
        own = {reading for path in paths for reading in _readings(path)}
        self._prefixes = (*LOCAL_PAGES, *own)
        self._words = frozenset({*LOCAL_WORDS, *(path.rstrip("/") for path in own)})

    def __contains__(self, url: str) -> bool:
        """Whether this URL of the site is closed; only its path counts."""
        path = path_of(url)
        if _PLAIN.fullmatch(path):
            return self._is_closed(path.lower())
        return any(map(self._is_closed, _readings(path)))

    def _is_closed(self, path: str) -> bool:
        return path.startswith(self._prefixes) or path.rstrip("/") in self._words


def _readings(written: str) -> set[str]:
    """All paths that a server may make of this one."""
    path = written.partition("#")[0].partition("?")[0].encode("utf-8", "replace")
    seen: set[str] = set()
    for _ in range(_ROUNDS):
        seen.update(_resolved(path.decode("latin-1")))  # one character per byte, in any encoding
        decoded = unquote_to_bytes(path)
        if decoded == path:
            break
        path = decoded
    return seen


def _resolved(path: str) -> tuple[str, str]:
    """The path in lower case without dots, double slashes and parameters."""
    path = _PARAMETER.sub("", path.replace("\\", "/").replace("\0", "")).lower()
    # Some servers resolve ".." first, some merge slashes first: "/a//../x" becomes /a/x or /x.
    return _without_dots(_SLASHES.sub("/", path)), _SLASHES.sub("/", _without_dots(path))


def _without_dots(path: str) -> str:
    kept: list[str] = []
    for name in path.split("/")[1:]:
        if name == "..":
            del kept[-1:]
        elif name != ".":
            kept.append(name)
    return "/" + "/".join(kept)
