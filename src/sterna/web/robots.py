"""What a robots.txt allows (RFC 9309), and what a try to get it makes of its site (Agarwal 3.4)."""

import codecs
import re
import string
from collections.abc import Iterable, Iterator
from functools import lru_cache
from html import unescape
from itertools import islice
from typing import Self
from urllib.parse import quote

from protego import Protego

from sterna.model import Record, Robots, RobotsState, RobotsTimes
from sterna.web.urls import Canonical, hostname_of

MAX_BYTES = 500 * 1024  # RFC 9309 2.5: a crawler must read at least this much
MAX_REDIRECTS = 5  # RFC 9309 2.3.1.2
NEVER = 1e12  # a time that does not come; an infinity does not survive every store

MAX_SITEMAPS = 100
MAX_DELAY_SECONDS = 24 * 3600.0
MAX_STARS = 1_000  # of all patterns together: what stands between two is looked for in every URL
_MAX_BAD_SHARE = 0.1

# The prefixes and the misspellings that Google's parser takes; `lastgroup` is the field's proper name.
_FIELD = re.compile(
    r"(?:(?P<agent>user[- ]?agent)|(?P<disallow>d[ie]s{1,2}al{1,2}ow|diasllow|disallaw)|(?P<allow>allow)"
    r"|(?P<delay>crawl[- ]?delay)|(?P<sitemap>site-?map))[a-z-]*",
    re.IGNORECASE,
)
_PRODUCT = re.compile(r"[A-Za-z_-]+")
_LINE_END = re.compile(r"[\r\n]+")
_COMMENT = re.compile(r"#[^\r\n]*")
_BAD = re.compile("[\x00-\x08\x0e-\x1f\x7f\ufffd]")
_HTML = re.compile(
    r"\s*(?:<\?xml\b[^>]*>\s*)?<(?:!--|(?:!doctype|html|head|body|title|script|meta|pre|p|div)\b)",
    re.IGNORECASE,
)
_TAG = re.compile(r"<[^<>]*>")
_URL = re.compile(r"(?i:https?)://(?P<host>[^/?#\\]*)(?P<path>.*)")

_NO_FILE = frozenset({400, 404, 410})  # in Agarwal's strict reading
TIMES = RobotsTimes()

_RULES = frozenset({"allow", "disallow"})

Line = tuple[str, str]


class Rules:
    """What one robots.txt says to one agent."""

    __slots__ = ("_protego", "crawl_delay", "sitemaps")

    def __init__(self, rules: list[Line], sitemaps: tuple[str, ...]) -> None:
        self._protego = Protego.parse(_rewrite(rules)) if rules else None
        delay = self._protego.crawl_delay("*") if self._protego else None
        self.crawl_delay = min(delay, MAX_DELAY_SECONDS) if delay is not None else None
        self.sitemaps = sitemaps

    @classmethod
    def parse(cls, body: bytes, agent: str, *, site: str = "") -> Self:
        """The rules for `agent` in any bytes; none if they are not a robots.txt. `site`: whose they are."""
        lines = list(_of_site(_lines(_read(body) or ""), site))
        sitemaps = dict.fromkeys(value for field, value in lines if field == "sitemap" and value)
        return cls(_choose(lines, _product(agent)), tuple(islice(sitemaps, MAX_SITEMAPS)))

    def may_fetch(self, url: str) -> bool:
        """Whether the agent may fetch `url`, of which only path and query are looked at."""
        if self._protego is None:
            return True
        try:
            return self._protego.can_fetch(url, "*")
        except ValueError:  # not a URL: a rule that cannot be checked counts as forbidding
            return False


class RobotsAnswer(Record, frozen=True):
    """What asking for robots.txt came to; status 0 is no answer, a body may be cut beyond MAX_BYTES."""

    status: int
    body: bytes = b""
    is_truncated: bool = False  # fewer bytes than announced, or a broken transfer
    reason: str = ""  # for an answer that is none, if more is known than its status
    pause_seconds: float = 0.0  # that the server asked for


def judge(
    answer: RobotsAnswer,
    before: Robots,
    *,
    now: float,
    times: RobotsTimes = TIMES,
    is_strict: bool = False,
) -> Robots:
    """The site's state after a try that ended in `answer`.

    Any 4xx but 429 means that there are no rules (RFC 9309 2.3.1.3); where `is_strict`, as Agarwal has it,
    others than 400, 404 and 410 disqualify.
    """
    is_missing = 400 <= answer.status < 500 and not is_try_again(answer.status)
    if answer.status in _NO_FILE if is_strict else is_missing:
        return Robots(RobotsState.QUALIFIED, tried_at=now, reason=f"HTTP {answer.status}: no rules")
    if 200 <= answer.status < 300 and not answer.is_truncated:
        text = _read(answer.body)
        if text is None:
            return Robots(RobotsState.QUALIFIED, tried_at=now, reason="HTML or binary: no rules")
        return Robots(RobotsState.QUALIFIED, tried_at=now, rules=text.encode())
    reason = answer.reason or _explain(answer)
    failures = before.failures + 1
    retry_at = now + times.retry_hours[min(failures, len(times.retry_hours)) - 1] * 3600
    if failures >= times.max_failures:
        retry_at, reason = NEVER, f"{reason}; given up after {failures} failures"
    return Robots(RobotsState.DISQUALIFIED, tried_at=now, failures=failures, retry_at=retry_at, reason=reason)


def is_due(robots: Robots, now: float, *, keep_seconds: float = TIMES.keep_seconds) -> bool:
    """Whether robots.txt is to be asked for before anything else of the site."""
    if robots.state is RobotsState.DISQUALIFIED:
        return now >= robots.retry_at
    # A date in the future is a clock that was set back: it must not keep old rules alive.
    return robots.state is RobotsState.UNKNOWN or not 0 <= now - robots.tried_at < keep_seconds


def is_try_again(status: int) -> bool:
    """Whether `status` counts as a bad connection, so that the site's other addresses are tried."""
    return status in {0, 429} or status >= 500


def _explain(answer: RobotsAnswer) -> str:
    if answer.status == 0:
        return "no answer from any address"
    if 200 <= answer.status < 300:
        return "truncated"
    if 300 <= answer.status < 400:
        return f"HTTP {answer.status} left after at most {MAX_REDIRECTS} redirects"
    return f"HTTP {answer.status}{' on every address' if is_try_again(answer.status) else ''}"


def text_of(body: bytes, *, is_cut: bool = False) -> str:
    """The text of a robots.txt, bad bytes as U+FFFD; of a long or cut one the whole lines that count."""
    is_cut = is_cut or len(body) > MAX_BYTES
    body = body[:MAX_BYTES]
    if body.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        text = body[: len(body) // 2 * 2].decode("utf-16", "replace")
    else:
        text = body.decode("utf-8", "replace")
    if is_cut:  # half a line may say more than the whole
        text = text[: max(text.rfind("\n"), text.rfind("\r")) + 1]
    return text.lstrip("\ufeff")


def _read(body: bytes) -> str | None:
    """The text of a robots.txt, or None if it is something else."""
    text = text_of(body)
    # Comments in an old code page are no reason to ignore the rules beside them.
    rest = _COMMENT.sub("", text)
    if len(_BAD.findall(rest)) > _MAX_BAD_SHARE * len(rest):
        return None
    text = text.replace("\0", "")
    if not _HTML.match(text):
        return text
    text = unescape(_TAG.sub("\n", text))
    return text if any(field == "agent" for field, _ in _lines(text)) else None


def _lines(text: str) -> Iterator[Line]:
    """The lines that say something, as field and value; all others are dropped."""
    for raw in _LINE_END.split(text):
        line = raw.partition("#")[0].strip()
        key, colon, value = line.partition(":")
        match = _FIELD.fullmatch(key.rstrip()) if colon else None
        if match is None:  # the colon may be missing, if no more than two words are left
            words = line.split()
            match = _FIELD.fullmatch(words[0]) if len(words) == 2 else None
            value = words[-1] if words else ""
        if match is not None and match.lastgroup is not None:
            yield match.lastgroup, value.strip()


def _of_site(lines: Iterable[Line], site: str) -> Iterator[Line]:
    """The lines with the path in place of a URL of this site; rules for other sites are dropped."""
    hostname = hostname_of(site)
    for field, value in lines:
        url = _URL.fullmatch(value) if field in _RULES else None
        if url is None:
            yield field, value
        elif _hostname(url["host"]) == hostname:  # whatever the scheme: few write a rule for one of them
            path = url["path"]
            yield field, path if path.startswith("/") else f"/{path}"


@lru_cache(maxsize=256)
def _hostname(authority: str) -> str:
    canonical = Canonical(())(f"http://{authority}/") if authority else None
    return hostname_of(canonical) if canonical else ""


def _product(agent: str) -> str:
    """The name an agent goes by in robots.txt (RFC 9309 2.2.1), or `*`."""
    if agent == "*" or (agent[:1] == "*" and agent[1].isspace()):
        return "*"
    match = _PRODUCT.match(agent)
    return match[0].lower() if match else ""


def _choose(lines: Iterable[Line], product: str) -> list[Line]:
    """The rules of all groups for `product` or, without one, of the groups for `*`.

    Only rules end the agents of a group (RFC 9309 2.2.4). A Crawl-delay, of which the RFC knows nothing, is
    for the agents that were named above it, not for those between it and the rules.
    """
    chosen: dict[str, list[Line]] = {"*": []}
    group: set[str] = set()
    delayed: set[str] = set()  # of the group, whom a Crawl-delay would be for
    is_open = is_named = False  # a further agent line joins the group, and is for the next Crawl-delay
    for field, value in lines:
        if field == "agent":
            names = {_product(value)} & {product, "*"} - {""}
            group = group | names if is_open else names
            delayed = delayed | names if is_named else names
            is_open = is_named = True
            for name in names:
                chosen.setdefault(name, [])
        elif field in _RULES:
            is_open, delayed = False, group
            for name in group:
                chosen[name].append((field, value))
        elif field == "delay":
            is_named = False
            for name in delayed:
                chosen[name].append((field, value))
    return chosen.get(product, chosen["*"])


def _rewrite(rules: Iterable[Line]) -> str:
    """One group for Protego, in ASCII: it would break lines at any character Unicode calls a line end.

    Each query tries every wildcard pattern, and 500 KiB hold enough of them to stop the crawler. Those beyond
    a limit become ones that forbid no less, rank the same and cost one comparison of a prefix.
    """
    lines = ["user-agent: *"]
    stars = 0
    for field, value in rules:
        pattern = quote(value, safe=string.punctuation)
        stars += pattern.count("*")
        if stars > MAX_STARS and "*" in pattern:
            if field == "allow":
                continue
            pattern = pattern.partition("*")[0].ljust(len(pattern), "*")
        lines.append(f"{'crawl-delay' if field == 'delay' else field}: {pattern}")
    return "\n".join(lines)
