"""A dry run of a crawler at a host: the order that its home would send, and the terms that would hold."""

import asyncio
from collections.abc import Callable

import msgspec

from sterna.api.crawlers import crawler_and_urls, seeds_of
from sterna.crawler.compiler import crawler_of_fields
from sterna.errors import UsageError
from sterna.home.options import Options, lay_over
from sterna.host.config import HostConfig
from sterna.host.owner.dry_run import DryRun
from sterna.host.owner.dry_run import dry_run as run_order
from sterna.host.policy.policy import rules_of
from sterna.host.policy.terms import AllowedHomes, Terms
from sterna.host.policy.terms import terms_of as policy_terms
from sterna.model import Budget, Known, State, Target
from sterna.version import __version__
from sterna.web.clock import SystemClock
from sterna.web.urls import site_of
from sterna.wire.known import pack_known
from sterna.wire.orders import Agent, Send

VISIT = "dry-run"
FAR_LEVEL = 9  # the compression level that a distant home asks for


async def dry_run(
    given: list[str],
    config: HostConfig,
    *,
    home: str,
    max_pages: int,
    write: Callable[[dict[str, object]], None],
    stop: asyncio.Event,
) -> DryRun:
    """Runs a crawler (a file, or start URLs) as the host would, and passes to `write` what would leave."""
    terms = terms_of(config, home)
    return await run_order(
        order_of(given, config.site, terms=terms, max_pages=max_pages),
        config=config,
        terms=terms,
        clock=SystemClock(),
        write=write,
        stop=stop,
    )


def order_of(given: list[str], site: str, *, terms: Terms, max_pages: int) -> Send:
    """The order that a home would send with this crawler; raises UsageError without a start URL there."""
    packed, urls = crawler_and_urls(given)
    own = packed.options if packed else {}
    options = msgspec.structs.replace(lay_over(Options(), own, {}), seeds=(*seeds_of(packed), *urls))
    options.check()
    crawler = packed.crawler if packed else crawler_of_fields(options.keep)
    scope = msgspec.structs.replace(options.scope(), subtrees=crawler.scope.subtrees)
    etiquette = options.etiquette(__version__)
    targets = packed.progress.frontier if packed else ()
    targets = targets or tuple(Target(url) for url in options.seed_urls() or [f"{site}/"])
    starts = tuple(target for target in targets if site_of(target.url) == site)
    if not starts:
        raise UsageError(f"the crawler has no start URL on {site}: name one after it")
    limits = [limit for limit in (max_pages, options.max_pages, terms.caps.pages) if limit]
    return Send(
        visit=VISIT,
        crawler=msgspec.structs.replace(crawler, scope=scope),
        agent=Agent(etiquette.user_agent, etiquette.robots_name, etiquette.sender, options.strict_robots),
        starts=starts,
        known=pack_known(Known(packed.progress.seen)) if packed and packed.progress.seen else b"",
        state=packed.progress.state if packed else State(),
        budget=msgspec.structs.replace(
            packed.budget if packed else Budget(),
            pages=min(limits, default=0),
            seconds=terms.caps.seconds,
            urls=terms.caps.urls,
        ),
        level=FAR_LEVEL,
    )


def terms_of(config: HostConfig, home: str) -> Terms:
    """The terms for the home of this name, or for any; raises UsageError for an unknown name."""
    policy = config.policy
    if not home:
        return policy_terms(policy, "any")
    if home in policy.homes:
        terms = policy_terms(policy, home, rules_of(policy.homes[home]))
    elif home in AllowedHomes(config.keys, policy).names().values():
        terms = policy_terms(policy, home)
    else:
        raise UsageError(f"no home {home!r} is allowed: 'sterna keys list' lists them")
    if terms.never:
        raise UsageError(f"nothing would leave: the policy never admits {home}")
    return terms
