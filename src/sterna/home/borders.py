"""Which sites a crawl may enter: how far it strays from its seeds, and whom it leaves alone."""

from collections.abc import Collection

from sterna.model import Stay, Target
from sterna.web.domains import domain_of
from sterna.web.urls import hostname_of, site_of


class Borders:
    """Judges links that lead to other sites."""

    def __init__(self, stay: Stay, *, seed_sites: Collection[str], blocked: Collection[str]) -> None:
        self._stay = stay
        self._blocked = frozenset(blocked)
        # Grows when a start page turns out to have moved.
        self._sites = set(seed_sites)
        self._domains = {domain_of(hostname_of(site)) for site in seed_sites}

    def admits(self, target: Target) -> bool:
        """True if home takes the URL into its frontier."""
        if is_blocked(hostname_of(target.url), self._blocked):
            return False
        site = site_of(target.url)
        if target.depth == 0:  # only a start page that moved is reported so
            self._sites.add(site)
            self._domains.add(domain_of(hostname_of(site)))
        if self._stay == "any" or site in self._sites:
            return True
        return self._stay == "domain" and domain_of(hostname_of(site)) in self._domains


def is_blocked(hostname: str, blocked: Collection[str]) -> bool:
    """True if the hostname, or a domain that it lies in, is on the list."""
    labels = hostname.split(".")
    return any(".".join(labels[start:]) in blocked for start in range(len(labels)))
