"""Paths closed to crawlers: those that web servers show to their own machine only, and the owner's."""

from collections.abc import Sequence

from sterna.web.closed import ClosedPaths

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


class Closed(ClosedPaths):
    """The closed paths of a host: the owner's, and pages that web servers show to their own machine only."""

    def __init__(self, paths: Sequence[str] = ()) -> None:
        super().__init__((*LOCAL_PAGES, *paths), LOCAL_WORDS)
