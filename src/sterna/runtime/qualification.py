"""Whether a site may be crawled: robots.txt tried at every address, as Agarwal 3.4 says."""

import msgspec

from sterna.errors import FetchError, ReadError
from sterna.model import Robots
from sterna.runtime.access import Access, Kit
from sterna.web.decode import decode_body
from sterna.web.http import Response
from sterna.web.robots import MAX_BYTES, MAX_REDIRECTS, RobotsAnswer, is_try_again, judge
from sterna.web.urls import Canonical

MAX_DECODED_BYTES = 16 * MAX_BYTES  # small enough to be decompressed here, without a reader
PAUSE_SECONDS = 2.0
ROUNDS = 2


async def qualify(site: str, before: Robots, *, access: Access, kit: Kit) -> Robots:
    """The site's new state: every address is asked, and all of them once more after a pause."""
    answer = RobotsAnswer(0)
    reason = ""
    for round_number in range(ROUNDS):
        if round_number:
            await kit.clock.sleep(PAUSE_SECONDS)
        answer, reason = await _ask_all(f"{site}/robots.txt", access)
        if not is_try_again(answer.status) or answer.is_truncated:
            break
    return judge(answer, before, now=kit.clock.now(), reason=reason)


async def _ask_all(url: str, access: Access) -> tuple[RobotsAnswer, str]:
    """The first answer below 500 that some address gives, or the last failure."""
    answer, reason = RobotsAnswer(0), ""
    try:
        addresses = await access.addresses(url)
    except FetchError as error:
        return answer, str(error)
    for address in addresses:
        answer, reason = await _ask(url, address, access)
        if not is_try_again(answer.status) or answer.is_truncated:
            break
    return answer, reason


async def _ask(url: str, address: str, access: Access) -> tuple[RobotsAnswer, str]:
    canonical = Canonical()
    addresses: tuple[str, ...] = (address,)
    for _ in range(MAX_REDIRECTS + 1):
        try:
            reply = await access.get(url, addresses=addresses, max_bytes=MAX_BYTES + 1, may_cut=True)
        except FetchError as error:
            return RobotsAnswer(
                200 if error.kind == "truncated" else 0, is_truncated=error.kind == "truncated"
            ), str(error)
        response = reply.response
        location = response.location() if 300 <= response.status < 400 else ""
        target = canonical(location, url) if location else None
        if target is None:
            break
        url, addresses = target, ()
    return _read(response)


def _read(response: Response) -> tuple[RobotsAnswer, str]:
    answer = RobotsAnswer(response.status, content_type=response.header("content-type"))
    if not 200 <= response.status < 300:
        return answer, ""
    coding = response.header("content-encoding")
    try:
        body = decode_body(response.body, coding, max_bytes=MAX_DECODED_BYTES)
    except ReadError as error:
        return msgspec.structs.replace(answer, is_truncated=True), str(error)
    return msgspec.structs.replace(answer, body=body), ""
