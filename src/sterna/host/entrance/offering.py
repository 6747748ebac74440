"""The offer by which homes find a host: its key, its endpoint, and what of its owner's policy is public."""

from sterna.host.config import HostConfig
from sterna.host.entrance.facts import facts_of
from sterna.wire.discovery import Offer
from sterna.wire.keys import Identity, Succession

MAX_AGE_SECONDS = 3600


def offer_of(
    config: HostConfig, identity: Identity, successions: tuple[Succession, ...], *, is_live_only: bool
) -> Offer:
    """The offer under this configuration."""
    policy = config.policy
    hours: dict[str, str | tuple[str, ...]] = {}
    if policy.hours:
        hours = {"hours": policy.hours, "zone": policy.zone}
    return Offer(
        site=config.site,
        key=identity.public.text,
        endpoint=config.address,
        sources=("root", "http") if config.root else ("http",),
        platform=facts_of(config, is_live_only=is_live_only),
        policy={
            "pages": policy.budget.pages,
            "seconds": policy.budget.seconds,
            "connections": policy.connections,
            "delay_seconds": policy.delay_seconds,
            "obey_robots": policy.obey_robots,
            **hours,
        },
        is_live_only=is_live_only,
        succession=tuple(each.text for each in successions),
        max_age=MAX_AGE_SECONDS,
    )
