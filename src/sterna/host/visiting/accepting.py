"""Makes a visit of an order: whatever a foreign home wrote is checked before any of it is used."""

from collections.abc import Iterable

from sterna.crawler.compiler import check_crawler
from sterna.crawler.text_tests import MAX_PROGRAM, compiled
from sterna.errors import Refused, UsageError
from sterna.host.config import HostConfig
from sterna.host.policy.terms import Terms, granted
from sterna.model import Budget, Crawler, Etiquette, Known, Robots, State, Target, Visit
from sterna.web.urls import Canonical, site_of
from sterna.wire.known import unpack_known
from sterna.wire.orders import Send

MAX_STARTS = 500_000
MAX_LIST = 100  # of patterns, subtrees, parameters, selectors, files of rules
MAX_TEXT = 2_000  # characters of one of them
MAX_SITES = 10_000
MAX_FACTS = 1_000_000
MAX_FACTS_BYTES = 32 * 1024 * 1024
MAX_NAME = 100
MAX_STEPS = 1_000_000  # of depth, hops, attempts
MAX_MARK_BYTES = 24  # that a URL takes in what is known, with digest and likeness

_canonical = Canonical(())


def visit_of(order: Send, *, config: HostConfig, terms: Terms, grants: Budget) -> Visit:
    """The visit as it is carried out here: home's crawler, the host's manners. Takes a while for a large one.

    Refused or WireError if the order cannot be; nothing that it asks for goes beyond what was granted.
    """
    _check_crawler(order.crawler)
    _check_starts(order.starts, config.site)
    _check_state(order.state)
    known = _known(order.known, most=terms.caps.urls)
    policy = config.policy
    return Visit(
        id=order.visit,
        site=config.site,
        part=order.part,
        epoch=order.epoch,
        crawler=order.crawler,
        etiquette=Etiquette(
            user_agent=order.agent.user_agent,
            robots_name=order.agent.robots_name,
            sender=order.agent.sender,
            delay_seconds=policy.delay_seconds,
            response_factor=0.0,  # it is the owner who says how fast, and not how long an answer takes
            connections=policy.connections,
            obey_robots=terms.obey_robots,
        ),
        starts=order.starts,
        known=known,
        budget=granted(order.budget.lesser(grants), terms.caps),
        robots=Robots(),
        state=order.state,
        may_be_private=True,  # its own site, and nothing else has an address here
        within=order.within,
    )


def _check_crawler(crawler: Crawler) -> None:
    scope, program = crawler.scope, crawler.program
    if not 0 < len(crawler.name) <= MAX_NAME:
        raise Refused("refused", f"a crawler's name has 1 to {MAX_NAME} characters")
    selectors = tuple(
        text for each in program.keep.selectors for text in (each.name, each.css, each.attribute)
    )
    names = tuple(source.name for source in program.rules)
    for what, texts in (
        ("subtrees", scope.subtrees),
        ("drop_params", scope.drop_params),
        ("selectors", selectors),
        ("rules", names),
    ):
        _check_texts(what, texts, most=3 * MAX_LIST)
    _check_texts("seed_sites", scope.seed_sites, most=MAX_SITES)
    _check_expressions((*scope.include, *scope.exclude))
    if not 0 <= program.keep.share <= 1 or not 0 <= program.least_change <= 1:
        raise Refused("refused", "a share of a page is a number from 0 to 1")
    _check_size("facts", crawler.facts)
    try:
        check_crawler(crawler)
    except UsageError as error:
        raise Refused("refused", f"the crawler cannot be run: {error}") from error


def _check_texts(what: str, texts: tuple[str, ...], *, most: int) -> None:
    if len(texts) > most or any(len(text) > MAX_TEXT for text in texts):
        raise Refused("refused", f"the crawler has more {what} than a host takes, or longer ones")


def _check_expressions(expressions: tuple[str, ...]) -> None:
    """All of them are tried on every URL, in the loop in which everybody is answered."""
    _check_texts("include and exclude", expressions, most=MAX_LIST)
    try:
        size = sum(compiled(each).programsize for each in expressions)
    except UsageError as error:
        raise Refused("refused", f"the crawler cannot be run: {error}") from error
    if size > MAX_PROGRAM:
        raise Refused("refused", "the crawler's include and exclude are too large together")


def _check_size(what: str, facts: Iterable[bytes]) -> None:
    sizes = [len(fact) for fact in facts]
    if len(sizes) > MAX_FACTS or sum(sizes) > MAX_FACTS_BYTES:
        raise Refused("refused", f"the crawler's {what} are more than a host takes")


def _check_starts(starts: tuple[Target, ...], site: str) -> None:
    if len(starts) > MAX_STARTS:
        raise Refused("refused", f"{len(starts):,} start URLs are more than a host takes")
    for target in starts:
        if _canonical(target.url) != target.url or site_of(target.url) != site:
            raise Refused(
                "refused", f"a start URL is not one of {site}, in its one spelling: {target.url[:200]}"
            )
        if not all(0 <= number <= MAX_STEPS for number in (target.depth, target.hops, target.attempts)):
            raise Refused("refused", f"the start URL {target.url[:200]} has a depth that cannot be")


def _known(packed: bytes, *, most: int) -> Known:
    """What home knows of the site, of no more URLs than a visit may hold in memory."""
    too_much = Refused("refused", f"more is known of the site than the {most:,} URLs that a visit may hold")
    if len(packed) > most * MAX_MARK_BYTES:
        raise too_much
    known = unpack_known(packed) if packed else Known()
    if len(known.fingerprints) // 8 + len(known.validators) > most:
        raise too_much
    return known


def _check_state(state: State) -> None:
    _check_size("own facts", [data for _, data in state.facts])
    _check_size("memory", (state.memory,))
