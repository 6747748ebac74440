"""Whether a site may be crawled: every row of Agarwal 3.4, and RFC 9309 where the paper is silent."""

import gzip
import logging
import random
from collections.abc import Callable, Mapping, Sequence

import brotli
import pytest
import zstandard
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
from sterna.model import Etiquette, Robots, RobotsState, RobotsTimes
from sterna.runtime.access import Access
from sterna.runtime.qualification import MAX_ADDRESSES, qualify
from sterna.web.robots import MAX_BYTES, TIMES

ONE, TWO, THREE = "198.41.0.4", "199.9.14.201", "192.33.4.12"
PRIVATE = "10.0.0.1"
RULES = "User-agent: *\nDisallow: /private\n"

CODERS: Mapping[str, Callable[[bytes], bytes]] = {
    "": bytes,
    "br": brotli.compress,
    "gzip": gzip.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}

QUALIFIED, DISQUALIFIED = RobotsState.QUALIFIED, RobotsState.DISQUALIFIED


def ask(
    script: Script,
    *,
    names: Mapping[str, Sequence[str]] | None = None,
    before: Robots | None = None,
    etiquette: Etiquette | None = None,
) -> tuple[Robots, FakeWeb]:
    web = FakeWeb(script)

    async def main() -> Robots:
        kit = make_kit(web, names={"a.test": (ONE, TWO, THREE)} if names is None else names)
        visit = visit_of()
        return await qualify(
            SITE,
            before or Robots(),
            access=Access(kit, visit),
            kit=kit,
            etiquette=etiquette or visit.etiquette,
        )

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
    assert robots.tried_at == BEGIN + TIMES.pause_seconds
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


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 410, 418, 451])
def test_missing_file_qualifies_without_rules(status: int) -> None:
    robots, web = ask(everywhere(reply(status, "User-agent: *\nDisallow: /")))
    assert (robots.state, robots.rules) == (QUALIFIED, b"")
    assert len(web.log) == 1


@pytest.mark.parametrize("status", [401, 403, 405, 418, 451])
def test_strict_reading_disqualifies_where_a_file_is_not_said_to_be_missing(status: int) -> None:
    robots, web = ask(everywhere(reply(status)), etiquette=Etiquette(strict_robots=True))
    assert (robots.state, robots.reason) == (DISQUALIFIED, f"HTTP {status}")
    assert len(web.log) == 1


@pytest.mark.parametrize("status", [304, 399])
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
    "body",
    ["<!doctype html><title>Not found</title>", "\x00\x01\x02" * 99, bytes(2**20)],
    ids=["html", "binary", "nothing"],
)
def test_unreadable_file_qualifies_without_rules(body: str) -> None:
    robots, _ = ask(everywhere(reply(200, body)))
    assert (robots.state, robots.rules) == (QUALIFIED, b"")


def lines_of_noise(size: int) -> bytes:
    """Comments that hardly compress."""
    noise = random.Random(1)
    return b"".join(b"# %032x\n" % noise.getrandbits(128) for _ in range(size // 35))


@pytest.mark.parametrize("coding", ["gzip", "br", "zstd", ""])
def test_long_file_counts_up_to_its_last_whole_line_however_it_travels(coding: str) -> None:
    whole = RULES.encode() + lines_of_noise(2 * MAX_BYTES) + b"Disallow: /late\n"
    sent = CODERS[coding](whole)[: MAX_BYTES + 1]  # as a transfer is cut
    robots, _ = ask(everywhere(reply(200, sent, content_encoding=coding)))
    assert robots.state is QUALIFIED
    assert whole.startswith(robots.rules)
    assert robots.rules.endswith(b"\n")
    assert MAX_BYTES // 2 < len(robots.rules) <= MAX_BYTES


def test_compressed_transfer_that_was_cut_early_ends_at_a_whole_line() -> None:
    noise = random.Random(2).randbytes(2 * MAX_BYTES).replace(b"\n", b"").replace(b"\r", b"")
    whole = b"User-agent: *\nDisallow: /a\n#" + noise
    robots, _ = ask(everywhere(reply(200, gzip.compress(whole)[: MAX_BYTES + 1], content_encoding="gzip")))
    assert (robots.state, robots.rules) == (QUALIFIED, b"User-agent: *\nDisallow: /a\n")


def test_file_that_grows_without_bound_is_read_as_far_as_it_counts() -> None:
    whole = RULES.encode() + b"# nothing\n" * 2**22
    robots, _ = ask(everywhere(reply(200, gzip.compress(whole), content_encoding="gzip")))
    assert robots.state is QUALIFIED
    assert robots.rules.startswith(RULES.encode())


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
    [gzip.compress(RULES.encode())[:-9], b"plain"],
    ids=["cut", "plain"],
)
def test_file_that_cannot_be_decompressed_disqualifies(body: bytes) -> None:
    robots, _ = ask(everywhere(reply(200, body, content_encoding="gzip")))
    assert robots.state is DISQUALIFIED
    assert robots.reason.startswith("encoding: ")


def test_coding_that_nobody_knows_is_no_coding() -> None:
    robots, _ = ask(everywhere(reply(200, RULES, content_encoding="utf-8")))
    assert (robots.state, robots.rules) == (QUALIFIED, RULES.encode())


def test_pause_that_is_asked_for_is_no_second_try_but_a_hold() -> None:
    holds: list[float] = []

    async def main() -> Robots:
        web = FakeWeb(everywhere(reply(503, retry_after="7200")))
        kit = make_kit(web, names={"a.test": (ONE,)})
        visit = visit_of()
        access = Access(kit, visit)
        robots = await qualify(SITE, Robots(), access=access, kit=kit, etiquette=visit.etiquette)
        assert len(web.log) == 1
        holds.append(access.wait_seconds(SITE))
        return robots

    assert run(main()).state is DISQUALIFIED
    assert holds == [7200.0]


def test_fault_of_the_proxy_is_not_the_sites() -> None:
    with pytest.raises(FetchError, match="proxy"):
        ask(everywhere(FetchError("proxy", "refused")))


def test_each_failure_is_logged_with_its_address(caplog: pytest.LogCaptureFixture) -> None:
    script: Script = {
        f"{ONE} /robots.txt": FetchError("connect", "refused"),
        f"{TWO} /robots.txt": reply(503),
        f"{THREE} /robots.txt": [FetchError("timeout", "60 s"), rules(RULES)],
    }
    with caplog.at_level(logging.INFO, logger="sterna"):
        ask(script)
    url = f"{SITE}/robots.txt"
    failures = [
        (f"{url}: connect: refused", ONE),
        (f"{url}: HTTP 503", TWO),
        (f"{url}: timeout: 60 s", THREE),
    ]
    first, second = failures, failures[:2]
    assert caplog.messages == [f"{line} at {address}" for line, address in first + second]


def test_site_without_a_robots_txt_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="sterna"):
        ask(everywhere(reply(404)))
        assert caplog.messages == []
        ask(everywhere(reply(403)))
    assert caplog.messages == [f"{SITE}/robots.txt: HTTP 403 at {ONE}"]


def test_every_address_of_a_usual_name_is_asked() -> None:
    addresses = [f"198.41.0.{n}" for n in range(1, 31)]
    _, web = ask(everywhere(FetchError("connect")), names={"a.test": addresses})
    assert [address for _, address in asked(web)] == 2 * addresses


def test_pause_before_the_second_round_is_the_one_that_was_chosen() -> None:
    chosen = Etiquette(robots_times=RobotsTimes(pause_seconds=7.0))
    _, web = ask(everywhere(FetchError("connect")), etiquette=chosen)
    assert [seconds for seconds, _ in asked(web)] == [0.0] * 3 + [7.0] * 3


def test_name_with_very_many_addresses_is_not_asked_at_all_of_them() -> None:
    names = {"a.test": [f"198.41.0.{n}" for n in range(1, 101)]}
    _, web = ask(everywhere(FetchError("connect")), names=names)
    assert len(web.log) == 2 * MAX_ADDRESSES


def test_failures_in_a_row_are_counted_and_a_success_forgets_them() -> None:
    robots, _ = ask(everywhere(reply(500)))
    assert (robots.failures, robots.tried_at) == (1, BEGIN + TIMES.pause_seconds)
    assert robots.retry_at == robots.tried_at + TIMES.retry_hours[0] * 3600
    again, _ = ask(everywhere(reply(500)), before=robots)
    assert again.failures == 2
    assert again.retry_at - again.tried_at == TIMES.retry_hours[1] * 3600
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
