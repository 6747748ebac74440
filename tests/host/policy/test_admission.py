"""Who is let in, and which orders can be: whatever a foreign home writes is judged before it is used."""

from array import array
from typing import Any

import msgspec
import pytest
from tests.host.knocking import SITE, config_of, send

from sterna.api.crawlers import signed
from sterna.crawler.pack import PackedCrawler, program_digest
from sterna.errors import Refused, SternaError, WireError
from sterna.host.policy.policy import Caps, HomeRules, Policy
from sterna.host.policy.terms import SKEW_SECONDS, Terms, admit, terms_of
from sterna.host.visiting.reception import MAX_STARTS, visit_of
from sterna.model import (
    Budget,
    Crawler,
    Keep,
    Known,
    Predicate,
    Program,
    Scope,
    Selector,
    Source,
    State,
    Target,
    Validator,
)
from sterna.version import __version__
from sterna.wire.handshake import Hello
from sterna.wire.keys import Identity
from sterna.wire.known import pack_known
from sterna.wire.orders import Agent

NOW = 1_000_000.0
TERMS = Terms("ada", Caps(pages=100), obey_robots=True)


def hello(**fields: Any) -> Hello:
    given: dict[str, Any] = {
        "home": "ada",
        "key": b"k" * 32,
        "audience": SITE,
        "ephemeral": b"e" * 32,
        "nonce": b"n" * 16,
        "time": NOW,
        "wants": Budget(pages=1000),
    }
    return Hello(**(given | fields))


def test_allowed_home_is_granted_what_the_policy_caps() -> None:
    assert admit(hello(), site=SITE, terms=TERMS, now=NOW).pages == 100


@pytest.mark.parametrize(
    ("fields", "terms", "problem"),
    [
        ({"audience": "https://other.test"}, TERMS, "wrong-audience"),
        ({"audience": f"{SITE}/"}, TERMS, "wrong-audience"),
        ({}, None, "unknown-home"),
        ({"time": NOW - SKEW_SECONDS - 1}, TERMS, "stale"),
        ({"time": NOW + SKEW_SECONDS + 1}, TERMS, "stale"),
        ({"time": float("nan")}, TERMS, "stale"),
        ({"time": float("inf")}, None, "unknown-home"),
    ],
)
def test_others_are_told_why_not(fields: dict[str, Any], terms: Terms | None, problem: str) -> None:
    with pytest.raises(Refused) as caught:
        admit(hello(**fields), site=SITE, terms=terms, now=NOW)
    assert caught.value.problem == problem
    assert caught.value.time == (NOW if problem == "stale" else None)


# -- crawlers that the owner permits -----------------------------------------------------------------------

AUTHOR, STRANGER = Identity(b"a" * 32), Identity(b"s" * 32)
OWN = Crawler(name="health", program=Program(rules=(Source("a.clp", "(defrule r => (log 1))"),)))


def by(author: Identity, crawler: Crawler = OWN) -> Crawler:
    return signed(PackedCrawler(crawler=crawler), author).crawler


@pytest.mark.parametrize(
    ("crawler", "why"),
    [
        (OWN, "not signed"),
        (by(STRANGER), "signed by ed25519:"),
        (msgspec.structs.replace(by(AUTHOR), name="other"), "the signature of crawler 'other' is invalid"),
        (msgspec.structs.replace(by(AUTHOR), program=Program()), "the signature .* is invalid"),
        (msgspec.structs.replace(by(AUTHOR), signature=b""), "the signature .* is invalid"),
        (msgspec.structs.replace(by(STRANGER), author=AUTHOR.public.text), "the signature .* is invalid"),
    ],
)
def test_crawler_that_the_owner_does_not_permit_is_refused(tmp_path: Any, crawler: Crawler, why: str) -> None:
    terms = msgspec.structs.replace(TERMS, crawlers=(AUTHOR.public.text, "0" * 32))
    with pytest.raises(Refused, match=why):
        accepted(tmp_path, terms=terms, crawler=crawler)


def test_crawlers_of_an_author_and_single_programs_are_permitted(tmp_path: Any) -> None:
    of_author = msgspec.structs.replace(TERMS, crawlers=(AUTHOR.public.text,))
    elsewhere = msgspec.structs.replace(by(AUTHOR), scope=Scope(max_depth=3), facts=())
    assert accepted(tmp_path, terms=of_author, crawler=elsewhere).crawler == elsewhere
    of_program = msgspec.structs.replace(TERMS, crawlers=(program_digest(OWN),))
    assert accepted(tmp_path, terms=of_program, crawler=OWN).crawler == OWN


@pytest.mark.parametrize("permitted", [AUTHOR.public.text, program_digest(OWN)])
def test_permitted_crawler_may_not_bring_whole_responses_too(tmp_path: Any, permitted: str) -> None:
    terms = msgspec.structs.replace(TERMS, crawlers=(permitted,))
    greedy = msgspec.structs.replace(by(AUTHOR), keeps_raw=True)
    with pytest.raises(Refused, match="for what it keeps, not whole responses: leave out --warc"):
        accepted(tmp_path, terms=terms, crawler=greedy)
    assert accepted(tmp_path, crawler=greedy).crawler.keeps_raw


def test_signature_does_not_hide_that_a_program_differs_by_its_name(tmp_path: Any) -> None:
    terms = msgspec.structs.replace(TERMS, crawlers=(program_digest(OWN),))
    with pytest.raises(Refused, match="does not permit crawler 'other'"):
        accepted(tmp_path, terms=terms, crawler=msgspec.structs.replace(OWN, name="other"))


def test_home_may_have_other_crawlers_than_the_rest() -> None:
    policy = Policy(crawlers=("0" * 32,))
    assert terms_of(policy, "ada").crawlers == ("0" * 32,)
    assert terms_of(policy, "ada", HomeRules(crawlers=())).crawlers == ()


# -- orders ------------------------------------------------------------------------------------------------


def accepted(tmp_path: Any, *, terms: Terms = TERMS, policy: Policy | None = None, **fields: Any) -> Any:
    config = config_of(tmp_path, policy=policy or Policy())
    return visit_of(send(**fields), config=config, terms=terms, grants=Budget(pages=50, seconds=20.0))


def test_visit_has_the_homes_crawler_and_the_hosts_manners(tmp_path: Any) -> None:
    visit = accepted(tmp_path, policy=Policy(connections=3, delay_seconds=0.25))
    etiquette = visit.etiquette
    assert (visit.site, visit.id, visit.part, visit.epoch) == (SITE, "v1", "/", 7)
    assert etiquette.outside_agent == "Tern/1 (+mailto:ada@home.test)"
    assert (etiquette.connections, etiquette.delay_seconds, etiquette.response_factor) == (3, 0.25, 0.0)
    assert etiquette.obey_robots
    assert visit.may_be_private
    assert not visit.allow_private


def test_owner_and_not_the_home_names_the_crawler(tmp_path: Any) -> None:
    googlebot = Agent("Mozilla/5.0 (compatible; Googlebot/2.1)", "Googlebot")
    etiquette = accepted(tmp_path, agent=googlebot).etiquette
    assert (etiquette.robots_name, etiquette.user_agent) == ("Sterna", f"Sterna/{__version__}")
    policy = Policy(robots_name="Guest")
    for home, name in ((None, "Guest"), (HomeRules(robots_name="Ada"), "Ada")):
        terms = terms_of(policy, "ada", home)
        assert accepted(tmp_path, agent=googlebot, terms=terms).etiquette.robots_name == name


def test_budget_is_the_least_of_asked_granted_and_policy(tmp_path: Any) -> None:
    visit = accepted(tmp_path, budget=Budget(pages=10**6, seconds=10**6, requests=4))
    assert (visit.budget.pages, visit.budget.seconds, visit.budget.requests) == (50, 20.0, 4)
    lower = Terms("ada", Caps(pages=3), obey_robots=True)
    assert accepted(tmp_path, terms=lower, budget=Budget(pages=40)).budget.pages == 3
    assert accepted(tmp_path, budget=Budget(pages=2)).budget.pages == 2


def test_robots_are_left_alone_only_where_the_policy_says_so(tmp_path: Any) -> None:
    assert not accepted(
        tmp_path, terms=msgspec.structs.replace(TERMS, obey_robots=False)
    ).etiquette.obey_robots


def test_home_may_ask_for_the_strict_reading_of_a_refused_robots_txt(tmp_path: Any) -> None:
    assert not accepted(tmp_path).etiquette.strict_robots
    strict = Agent("Tern/1", "Tern", strict_robots=True)
    assert accepted(tmp_path, agent=strict).etiquette.strict_robots


def test_what_is_known_comes_along(tmp_path: Any) -> None:
    known = Known((5).to_bytes(8, "little", signed=True), (Validator(9, digest=b"d" * 5),))
    visit = accepted(tmp_path, known=pack_known(known))
    assert visit.known.fingerprints == known.fingerprints
    assert visit.known.validators[0].digest == b"d" * 5


@pytest.mark.parametrize("count", [4, 10_000])
def test_no_more_is_known_than_a_visit_may_hold(tmp_path: Any, count: int) -> None:
    seen = array("q", range(count)).tobytes()
    terms = Terms("ada", Caps(urls=3), obey_robots=True)
    with pytest.raises(Refused, match="more URLs are known of the site"):
        accepted(tmp_path, terms=terms, known=pack_known(Known(seen)))
    assert accepted(tmp_path, terms=terms, known=pack_known(Known(seen[:24]))).known.fingerprints == seen[:24]


def crawler(**fields: Any) -> Crawler:
    return Crawler(program=Program(**fields))


def deep(levels: int) -> Predicate:
    predicate = Predicate("=", "title", ("x",))
    for _ in range(levels):
        predicate = Predicate("not", parts=(predicate,))
    return predicate


BAD_ORDERS: dict[str, dict[str, Any]] = {
    "start of another site": {"starts": (Target("http://other.test/"),)},
    "start of a longer name": {"starts": (Target(f"{SITE}.evil.test/"),)},
    "start with a user": {"starts": (Target("http://site.test@evil.test/"),)},
    "start of another port": {"starts": (Target("http://site.test:81/"),)},
    "start of another scheme": {"starts": (Target("https://site.test/"),)},
    "start that is a file": {"starts": (Target("file:///etc/passwd"),)},
    "start in another spelling": {"starts": (Target(f"{SITE}/a/../b"),)},
    "start without a path": {"starts": (Target(SITE),)},
    "start below the ground": {"starts": (Target(f"{SITE}/", depth=-2),)},
    "too many starts": {"starts": (Target(f"{SITE}/"),) * (MAX_STARTS + 1)},
    "no name": {"crawler": Crawler(name="")},
    "long name": {"crawler": Crawler(name="x" * 101)},
    "bad expression": {"crawler": Crawler(scope=Scope(include=("(",)))},
    "dear expression": {"crawler": Crawler(scope=Scope(include=("((a{1,500}){1,500}){1,500}",)))},
    "many expressions": {"crawler": Crawler(scope=Scope(exclude=("a",) * 1000))},
    "long parameter": {"crawler": Crawler(scope=Scope(drop_params=("a*" * 2000,)))},
    "many seed sites": {"crawler": Crawler(scope=Scope(seed_sites=("http://a.test",) * 20_000))},
    "unknown operator": {"crawler": crawler(select=Predicate("exec", "title", ("x",)))},
    "unknown column": {"crawler": crawler(prune=Predicate("=", "password", ("x",)))},
    "deep condition": {"crawler": crawler(select=deep(200))},
    "bad selector": {"crawler": crawler(keep=Keep(selectors=(Selector("a", ">>"),)))},
    "share beyond all": {"crawler": crawler(keep=Keep(share=2.0))},
    "change below nothing": {"crawler": crawler(least_change=-0.5)},
    "forbidden construct": {"crawler": crawler(rules=(Source("a.clp", "(defmodule X)"),))},
    "rules that are not": {"crawler": crawler(rules=(Source("a.clp", "(defrule"),))},
    "rules too long": {"crawler": crawler(rules=(Source("a.clp", ";" * 2_000_000),))},
    "damaged fact": {"crawler": Crawler(facts=(b"\xc1",))},
    "facts too large": {"crawler": Crawler(facts=(b"x" * (33 << 20),))},
    "memory too large": {"state": State(memory=b"x" * (33 << 20))},
    "damaged F": {"known": b"\xc1\xc1"},
    "F of nobody": {"known": b"x" * 1000},
}


@pytest.mark.parametrize("name", BAD_ORDERS)
def test_order_that_cannot_be_is_refused_in_one_line(tmp_path: Any, name: str) -> None:
    with pytest.raises((Refused, WireError)) as caught:
        accepted(tmp_path, **BAD_ORDERS[name])
    error: SternaError = caught.value
    assert error.problem in ("refused", "malformed")  # type: ignore[attr-defined]
    assert len(str(error).splitlines()) == 1


def test_agent_cannot_smuggle_a_header() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(["Tern\r\nHost: evil.test", "Tern"], type=Agent)
