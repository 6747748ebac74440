"""The registrable domain of a hostname, by the public suffix list."""

from collections.abc import Collection
from functools import cache, lru_cache

from publicsuffixlist import PublicSuffixList


@cache
def _suffixes() -> PublicSuffixList:
    # Reading the list takes a while, and many commands never ask for a domain.
    return PublicSuffixList()


@lru_cache(maxsize=65_536)
def domain_of(hostname: str) -> str:
    """Gives the registrable domain; addresses, single names and public suffixes stand for themselves."""
    name = hostname.rstrip(".")
    if ":" in name or "." not in name or name.rpartition(".")[2].isdigit():
        return name
    return _suffixes().privatesuffix(name) or name


def is_within(hostname: str, names: Collection[str]) -> bool:
    """True if the hostname, or a domain that it lies in, is among the names."""
    if not names:
        return False
    labels = hostname.rstrip(".").split(".")
    return any(".".join(labels[start:]) in names for start in range(len(labels)))
