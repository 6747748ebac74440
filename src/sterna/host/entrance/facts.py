"""Facts about this host's platform, by which a home shapes the crawler that it sends (Crawlets 6)."""

from sterna.host.config import HostConfig
from sterna.version import __version__


def facts_of(config: HostConfig, *, is_live_only: bool) -> dict[str, str]:
    """Texts by name, for the offer and for each greeting."""
    # A greeting does without the rest of the runtime.
    from sterna.runtime.cell.seccomp import why_not  # noqa: PLC0415

    facts = {
        "sterna": __version__,
        "engine": "clips",
        "jail": "none" if why_not() else "seccomp",
        "level": str(config.limits.level),
        "readers": str(config.limits.readers),
        "sources": "root http" if config.root else "http",
        "live-only": "yes" if is_live_only else "no",
    }
    if config.policy.budget.memory_bytes:
        facts["memory_bytes"] = str(config.policy.budget.memory_bytes)
    return facts
