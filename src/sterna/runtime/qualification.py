"""Whether a site may be crawled: robots.txt is tried at every address (Agarwal 3.4)."""

import logging

from sterna.errors import FetchError, ReadError
from sterna.model import Etiquette, Robots
from sterna.runtime.access import Access, Kit
from sterna.runtime.readers import Readers
from sterna.web.document import Fetched
from sterna.web.http import Response, retry_after_seconds
from sterna.web.robots import MAX_BYTES, MAX_REDIRECTS, RobotsAnswer, is_try_again, judge
from sterna.web.urls import Canonical

ROUNDS = 2
MAX_ADDRESSES = 64  # more than one reply of a name server holds, unless somebody wants us to knock for ever
_USUAL = frozenset({404, 410})  # no robots.txt is no failure
MAX_PAUSE_SECONDS = 24 * 3600.0

_log = logging.getLogger(__name__)


async def qualify(site: str, before: Robots, *, access: Access, kit: Kit, etiquette: Etiquette) -> Robots:
    """The site's new state; FetchError if the proxy fails, which says nothing about the site."""
    answer, times = RobotsAnswer(0), etiquette.robots_times
    for round_number in range(ROUNDS):
        if round_number:
            await kit.clock.sleep(times.pause_seconds)
        answer = await _ask_all(f"{site}/robots.txt", access, kit.readers, pause_seconds=times.pause_seconds)
        if _is_final(answer, times.pause_seconds):
            break
    if answer.pause_seconds:
        why = f"asked for a pause (HTTP {answer.status} for its robots.txt)"
        access.hold_site(site, answer.pause_seconds, why=why)
    return judge(answer, before, now=kit.clock.now(), times=times, is_strict=etiquette.strict_robots)


def _is_final(answer: RobotsAnswer, pause_seconds: float) -> bool:
    """True if neither another address nor a second round can change it."""
    is_answer = not is_try_again(answer.status) or answer.is_truncated
    return is_answer or answer.pause_seconds > pause_seconds


async def _ask_all(url: str, access: Access, readers: Readers, *, pause_seconds: float) -> RobotsAnswer:
    """The first answer below 500 from any address, or the last failure; each failure is logged."""
    try:
        addresses = await access.addresses(url, most=MAX_ADDRESSES)
    except FetchError as error:
        _log.info("%s: %s", url, error)
        return RobotsAnswer(0, reason=str(error))
    answer = RobotsAnswer(0)
    for address in addresses:
        answer = await _ask(url, address, access=access, readers=readers)
        if answer.reason or not (200 <= answer.status < 300 or answer.status in _USUAL):
            _log.info("%s: %s at %s", url, answer.reason or f"HTTP {answer.status}", address)
        if _is_final(answer, pause_seconds):
            break
    return answer


async def _ask(url: str, address: str, *, access: Access, readers: Readers) -> RobotsAnswer:
    canonical = Canonical()
    addresses: tuple[str, ...] = (address,)
    for _ in range(MAX_REDIRECTS + 1):
        try:
            reply = await access.get(url, addresses=addresses, max_bytes=MAX_BYTES + 1, may_cut=True)
        except FetchError as error:
            if error.kind == "proxy":
                raise
            is_truncated = error.kind == "truncated"
            return RobotsAnswer(200 if is_truncated else 0, is_truncated=is_truncated, reason=str(error))
        response = reply.response
        location = response.location() if 300 <= response.status < 400 else ""
        target = canonical(location, url) if location else None
        if target is None:
            break
        url, addresses = target, ()
    return await _read(response, url, readers=readers, now=access.now())


async def _read(response: Response, url: str, *, readers: Readers, now: float) -> RobotsAnswer:
    if not 200 <= response.status < 300:
        asked = retry_after_seconds(response.header("retry-after"), now) or 0.0
        pause = min(asked, MAX_PAUSE_SECONDS) if response.status in (429, 503) else 0.0
        return RobotsAnswer(response.status, pause_seconds=pause)
    fetched = Fetched(
        url=url,
        status=response.status,
        content_encoding=response.header("content-encoding"),
        body=response.body,
        kind="robots",
    )
    try:
        return RobotsAnswer(200, (await readers.read(fetched)).text.encode())
    except ReadError as error:  # the body that failed to decompress may hold rules
        return RobotsAnswer(200, is_truncated=True, reason=str(error))
