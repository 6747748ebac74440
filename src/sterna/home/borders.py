"""Which sites a crawl may enter: how far it strays from its seeds, and whom it leaves alone."""

from collections.abc import Collection, Iterable

from sterna.model import Stay, Target
from sterna.web.urls import domain_of, hostname_of, is_within, site_of


class Borders:
    """Judges sites, and links that lead to other ones."""

    def __init__(self, stay: Stay, *, seed_sites: Collection[str], blocked: Collection[str]) -> None:
        self._stay = stay
        self._blocked = frozenset(blocked)
        # Both grow when a start page turns out to have moved, and when home finds new ones.
        self._sites: set[str] = set()
        self._domains: set[str] = set()
        self.add(seed_sites)

    def add(self, sites: Iterable[str]) -> None:
        """Takes sites for start sites from now on."""
        for site in sites:
            self._sites.add(site)
            self._domains.add(domain_of(hostname_of(site)))

    def admits(self, target: Target) -> bool:
        """True if home takes the URL into its frontier."""
        site = site_of(target.url)
        if target.depth == 0:  # only a start page that moved is reported so
            self.add([site])
        return self.may_visit(site)

    def may_visit(self, site: str) -> bool:
        """True if the crawl enters the site; what waits there may be from a run with wider borders."""
        hostname = hostname_of(site)
        if is_within(hostname, self._blocked):
            return False
        if self._stay == "any" or site in self._sites:
            return True
        return self._stay == "domain" and domain_of(hostname) in self._domains
