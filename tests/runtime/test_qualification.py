"""Whether a site may be crawled: every row of Agarwal 3.4, and RFC 9309 where the paper is silent."""

import gzip
from collections.abc import Mapping, Sequence

import brotli
import pytest
from tests.runtime.fakes import (
    ADDRESS,
    BEGIN,
    SITE,
    FakeWeb,
    Script,
    Step,
    make_kit,
    reply,
    rules,
    run,
    visit_of,
)

from sterna.errors import FetchError
from sterna.model import Robots, RobotsState
from sterna.runtime.access import MAX_ADDRESSES, Access
from sterna.runtime.qualification import PAUSE_SECONDS, qualify
from sterna.web.robots import MAX_BYTES, RETRY_HOURS

ONE, TWO, THREE = "198.41.0.4", "199.9.14.201", "192.33.4.12"
PRIVATE = "10.0.0.1"
RULES = "User-agent: *\nDisallow: /private\n"

QUALIFIED, DISQUALIFIED = RobotsState.QUALIFIED, RobotsState.DISQUALIFIED


def ask(
    script: Script,
    *,
    names: Mapping[str, Sequence[str]] | None = None,
    before: Robots | None = None,
) -> tuple[Robots, FakeWeb]:
    web = FakeWeb(script)

    async def main() -> Robots:
        kit = make_kit(web, names={"a.test": (ONE, TWO, THREE)} if names is None else names)
        access = Access(kit, visit_of())
        return await qualify(SITE, before or Robots(), access=access, kit=kit)

    return run(main()), web


def asked(web: FakeWeb) -> list[tuple[float, str]]:
    """When which address was asked, in seconds from the beginning."""
    return [(sent.time - BEGIN, sent.request.address) for sent in web.log]


def everywhere(step: Step | Sequence[Step]) -> Script:
    return {"/robots.txt": step}


def moves(count: int, *, to: Step) -> Script:
    """A robots.txt that is `count` redirects away."""
    paths = ["/robots.txt", *(f"/{n}" for n in range(1, count + 1))]
    hops = {path: reply(301, location=paths[n + 1]) for n, path in enumerate(paths[:-1])}
    return {**hops, paths[-1]: to}


# Which addresses are asked, and when


def test_name_without_an_address_disqualifies_after_two_tries() -> None:
    robots, web = ask({}, names={"a.test": ()})
    assert (robots.state, web.log) == (DISQUALIFIED, [])
    assert robots.tried_at == BEGIN + PAUSE_SECONDS
    assert robots.reason == "dns: no address found for a.test: scripted"


@pytest.mark.parametrize("kind", ["connect", "timeout", "network", "empty", "tls", "too_large"])
def test_low_level_error_tries_every_address_twice_with_a_pause_of_two_seconds(kind: str) -> None:
    robots, web = ask(everywhere(FetchError(kind, "scripted")))
    assert asked(web) == [(0.0, ONE), (0.0, TWO), (0.0, THREE), (2.0, ONE), (2.0, TWO), (2.0, THREE)]
    assert (robots.state, robots.reason) == (DISQUALIFIED, f"{kind}: scripted")


@pytest.mark.parametrize("status", [500, 502, 503, 599, 429])
def test_status_of_500_or_more_or_429_counts_as_a_bad_connection(status: int) -> None:
    robots, web = ask(everywhere(reply(status)))
    assert [address for _, address in asked(web)] == [ONE, TWO, THREE] * 2
    assert (robots.state, robots.reason) == (DISQUALIFIED, f"HTTP {status} on every address")


def test_first_answer_below_500_ends_the_search() -> None:
    script: Script = {
        f"{ONE} /robots.txt": FetchError("connect"),
        f"{TWO} /robots.txt": rules(RULES),
        f"{THREE} /robots.txt": reply(404),
    }
    robots, web = ask(script)
    assert asked(web) == [(0.0, ONE), (0.0, TWO)]
    assert (robots.state, robots.rules, robots.reason) == (QUALIFIED, RULES.encode(), "")


def test_second_round_may_succeed_where_the_first_did_not() -> None:
    robots, web = ask(everywhere([reply(503), FetchError("timeout"), FetchError("connect"), rules(RULES)]))
    assert asked(web) == [(0.0, ONE), (0.0, TWO), (0.0, THREE), (2.0, ONE)]
    assert robots.state is QUALIFIED


def test_every_request_goes_to_one_address_on_a_fresh_connection_and_may_be_cut() -> None:
    _, web = ask(everywhere([reply(500), reply(404)]))
    for sent, address in zip(web.log, (ONE, TWO), strict=True):
        assert (sent.request.address, sent.request.is_fresh) == (address, True)
        assert (sent.request.max_bytes, sent.request.may_cut) == (MAX_BYTES + 1, True)
        assert sent.request.url == f"{SITE}/robots.txt"


# What the answer makes of the site


@pytest.mark.parametrize("status", [400, 404, 410])
def test_missing_file_qualifies_without_rules(status: int) -> None:
    robots, web = ask(everywhere(reply(status, "User-agent: *\nDisallow: /")))
    assert (robots.state, robots.rules) == (QUALIFIED, b"")
    assert len(web.log) == 1


@pytest.mark.parametrize("status", [401, 403, 405, 418, 451, 304])
def test_any_other_status_disqualifies_at_once(status: int) -> None:
    robots, web = ask(everywhere(reply(status)))
    assert robots.state is DISQUALIFIED
    assert robots.reason.startswith(f"HTTP {status}")
    assert len(web.log) == 1


def test_truncated_file_disqualifies_and_no_other_address_is_asked() -> None:
    robots, web = ask(everywhere([FetchError("truncated", "10 bytes missing"), rules(RULES)]))
    assert (robots.state, robots.reason) == (DISQUALIFIED, "truncated: 10 bytes missing")
    assert len(web.log) == 1


@pytest.mark.parametrize("status", [200, 203, 299])
def test_readable_file_qualifies_with_its_rules(status: int) -> None:
    robots, _ = ask(everywhere(reply(status, RULES)))
    assert (robots.state, robots.rules, robots.tried_at) == (QUALIFIED, RULES.encode(), BEGIN)


@pytest.mark.parametrize(
    "body", ["<!doctype html><title>Not found</title>", "\x00\x01\x02" * 99], ids=["html", "binary"]
)
def test_unreadable_file_qualifies_without_rules(body: str) -> None:
    robots, _ = ask(everywhere(reply(200, body)))
    assert (robots.state, robots.rules) == (QUALIFIED, b"")


@pytest.mark.parametrize(
    ("coding", "body"),
    [("gzip", gzip.compress(RULES.encode())), ("br", brotli.compress(RULES.encode()))],
    ids=["gzip", "br"],
)
def test_compressed_file_is_read(coding: str, body: bytes) -> None:
    robots, _ = ask(everywhere(reply(200, body, content_encoding=coding)))
    assert (robots.state, robots.rules) == (QUALIFIED, RULES.encode())


@pytest.mark.parametrize(
    "body",
    [gzip.compress(bytes(2**26)), gzip.compress(RULES.encode())[:-9], b"plain"],
    ids=["bomb", "cut", "plain"],
)
def test_file_that_cannot_be_decompressed_disqualifies(body: bytes) -> None:
    robots, _ = ask(everywhere(reply(200, body, content_encoding="gzip")))
    assert robots.state is DISQUALIFIED
    assert robots.reason.startswith(("bomb: ", "encoding: "))


def test_coding_that_nobody_knows_is_no_coding() -> None:
    robots, _ = ask(everywhere(reply(200, RULES, content_encoding="utf-8")))
    assert (robots.state, robots.rules) == (QUALIFIED, RULES.encode())


def test_pause_that_is_asked_for_is_no_second_try_but_a_hold() -> None:
    holds: list[float] = []

    async def main() -> Robots:
        web = FakeWeb(everywhere(reply(503, retry_after="7200")))
        kit = make_kit(web, names={"a.test": (ONE,)})
        access = Access(kit, visit_of())
        robots = await qualify(SITE, Robots(), access=access, kit=kit)
        assert len(web.log) == 1
        holds.append(access.wait_seconds(SITE))
        return robots

    assert run(main()).state is DISQUALIFIED
    assert holds == [7200.0]


def test_fault_of_the_proxy_is_not_the_sites() -> None:
    with pytest.raises(FetchError, match="proxy"):
        ask(everywhere(FetchError("proxy", "refused")))


def test_name_with_very_many_addresses_is_not_asked_at_all_of_them() -> None:
    names = {"a.test": [f"198.41.0.{n}" for n in range(1, 101)]}
    _, web = ask(everywhere(FetchError("connect")), names=names)
    assert len(web.log) == 2 * MAX_ADDRESSES


def test_failures_in_a_row_are_counted_and_a_success_forgets_them() -> None:
    robots, _ = ask(everywhere(reply(500)))
    assert (robots.failures, robots.tried_at) == (1, BEGIN + PAUSE_SECONDS)
    assert robots.retry_at == robots.tried_at + RETRY_HOURS[0] * 3600
    again, _ = ask(everywhere(reply(500)), before=robots)
    assert again.failures == 2
    assert again.retry_at - again.tried_at == RETRY_HOURS[1] * 3600
    good, _ = ask(everywhere(rules(RULES)), before=again)
    assert (good.state, good.failures) == (QUALIFIED, 0)


# Redirects


def test_five_redirects_are_followed() -> None:
    robots, web = ask(moves(5, to=rules(RULES)))
    assert (robots.state, robots.rules) == (QUALIFIED, RULES.encode())
    assert len(web.log) == 6


def test_sixth_redirect_is_not_followed() -> None:
    robots, web = ask(moves(6, to=rules(RULES)))
    assert (robots.state, robots.reason) == (DISQUALIFIED, "HTTP 301 left after at most 5 redirects")
    assert [sent.path for sent in web.log] == ["/robots.txt", "/1", "/2", "/3", "/4", "/5"]


def test_redirect_to_another_host_is_followed_at_its_own_address() -> None:
    script: Script = {
        "/robots.txt": reply(301, location="https://b.test/rules.txt"),
        "https://b.test/rules.txt": rules(RULES),
    }
    robots, web = ask(script)
    assert (robots.state, robots.rules) == (QUALIFIED, RULES.encode())
    assert [sent.request.address for sent in web.log] == [ONE, ADDRESS]


def test_redirect_never_leads_into_a_private_network() -> None:
    script: Script = {
        "/robots.txt": reply(301, location="http://inside.test/robots.txt"),
        f"{TWO} /robots.txt": reply(302, location=f"http://{PRIVATE}/robots.txt"),
        "http://inside.test/robots.txt": rules(""),
        f"http://{PRIVATE}/robots.txt": rules(""),
    }
    names = {"a.test": (ONE, TWO), "inside.test": (PRIVATE,), PRIVATE: (PRIVATE,)}
    robots, web = ask(script, names=names)
    assert {sent.request.address for sent in web.log} == {ONE, TWO}
    assert robots.state is DISQUALIFIED
    assert robots.reason.startswith("private_address: ")


def test_redirect_without_a_target_disqualifies() -> None:
    robots, web = ask(everywhere(reply(302)))
    assert (robots.state, len(web.log)) == (DISQUALIFIED, 1)
    assert robots.reason.startswith("HTTP 302")


def test_redirect_that_ends_at_a_missing_file_qualifies_without_rules() -> None:
    robots, _ = ask(moves(2, to=reply(404)))
    assert (robots.state, robots.rules) == (QUALIFIED, b"")
