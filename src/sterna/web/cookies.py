"""The cookies of one visit (RFC 6265): bounded, gone with the visit; and those of a user's file."""

import re
from collections.abc import Iterable
from email.utils import parsedate_to_datetime
from pathlib import Path

from sterna.errors import UsageError
from sterna.model import Record
from sterna.web.urls import hostname_of, is_within

MAX_COOKIES = 50
MAX_COOKIE_BYTES = 4096  # of a name and its value
_MAX_SECONDS = 400 * 86_400.0
_WHOLE_NUMBER = re.compile("-?[0-9]+")


class Cookie(Record, frozen=True, kw_only=True):
    """A cookie, and where it may go."""

    name: str
    value: str
    domain: str
    is_host_only: bool = True
    path: str = "/"
    is_secure: bool = False
    expires: float | None = None  # None: with the visit

    def goes_to(self, url: str) -> bool:
        hostname, path = hostname_of(url), _path_of(url)
        is_there = hostname == self.domain or (not self.is_host_only and is_within(hostname, (self.domain,)))
        is_below = path == self.path or path.startswith(self.path.rstrip("/") + "/")
        return is_there and is_below and (not self.is_secure or url.startswith("https:"))


class CookieJar:
    """What a site's responses set. Pure: the caller passes the time."""

    def __init__(self, cookies: Iterable[Cookie] = ()) -> None:
        # Changed by `note` only; in the order in which they came.
        self._cookies = {(each.name, each.domain, each.path): each for each in cookies}
        self.changes = 0  # counts those that altered what the jar sends

    def header(self, url: str, *, now: float) -> str:
        """The value of the Cookie header; "" without cookies. Longer paths come first (5.4)."""
        sent = [each for each in self._cookies.values() if each.goes_to(url) and not _is_over(each, now)]
        sent.sort(key=lambda each: -len(each.path))
        return "; ".join(f"{each.name}={each.value}" if each.name else each.value for each in sent)

    def note(self, url: str, fields: Iterable[str], *, now: float) -> None:
        """Takes the Set-Cookie fields of a response, but for invalid ones and those that are too many."""
        for field in fields:
            cookie = read_set_cookie(field, url, now=now)
            if cookie is None:
                continue
            key = (cookie.name, cookie.domain, cookie.path)
            before = self._cookies.get(key)
            if _is_over(cookie, now):
                self._cookies.pop(key, None)
            elif before or len(self._cookies) < MAX_COOKIES:
                self._cookies[key] = cookie
            else:
                continue
            after = self._cookies.get(key)
            self.changes += (before and before.value) != (after and after.value)


def read_set_cookie(field: str, url: str, *, now: float) -> Cookie | None:
    """The cookie of a Set-Cookie field (5.2, 5.3); None if it is invalid, too large or of another site."""
    pair, *attributes = field.split(";")
    name, equals, value = (part.strip() for part in pair.partition("="))
    if not equals:
        name, value = "", name
    is_good = (name or value) and len(name) + len(value) <= MAX_COOKIE_BYTES
    if not is_good or any((sign < " " and sign != "\t") or sign == "\x7f" for sign in pair):
        return None
    said = {
        key.strip().lower(): text.strip() for key, _, text in (each.partition("=") for each in attributes)
    }
    hostname = hostname_of(url)
    domain = said.get("domain", "").lstrip(".").lower()
    # A visit stays on its site, so a cookie for a whole domain is as good as one for its hostname.
    if domain and not is_within(hostname, (domain,)):
        return None
    is_secure = "secure" in said
    if is_secure and not url.startswith("https:"):
        return None
    path = said.get("path", "")
    return Cookie(
        name=name,
        value=value,
        domain=hostname,
        path=path if path.startswith("/") else _path_of(url).rpartition("/")[0] or "/",
        is_secure=is_secure,
        expires=_expiry(said, now),
    )


def read_cookie_file(path: Path) -> tuple[Cookie, ...]:
    """The cookies of a file in Netscape's format, as browsers and curl write it; raises UsageError."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except OSError as error:
        raise UsageError(f"--cookies {path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"--cookies {path}: cannot be read: it is not a text in UTF-8") from error
    cookies = []
    for number, line in enumerate(lines, start=1):
        written = line.removeprefix("#HttpOnly_")
        if not written.strip() or written.startswith("#"):
            continue
        fields = written.split("\t")
        if len(fields) != 7 or not _WHOLE_NUMBER.fullmatch(fields[4]):
            # The line itself may hold a secret.
            raise UsageError(
                f"--cookies {path}:{number}: not in Netscape's format (seven fields with tabs between):"
                " export the cookies from your browser as cookies.txt"
            )
        domain, is_wide, where, is_secure, expires, name, value = fields
        cookies.append(
            Cookie(
                name=name,
                value=value,
                domain=domain.lstrip(".").lower(),
                is_host_only=is_wide.upper() != "TRUE",
                path=where or "/",
                is_secure=is_secure.upper() == "TRUE",
                expires=max(float(expires[:12]), 0.0) or None,
            )
        )
    return tuple(cookies)


def _expiry(said: dict[str, str], now: float) -> float | None:
    """When a cookie expires; Max-Age comes before Expires (5.3)."""
    age = said.get("max-age", "")
    if _WHOLE_NUMBER.fullmatch(age):
        return now + min(float(age[:12]), _MAX_SECONDS)
    try:
        return parsedate_to_datetime(said["expires"].replace("-", " ")).timestamp()
    except (KeyError, ValueError, TypeError, IndexError, OverflowError):
        return None


def _is_over(cookie: Cookie, now: float) -> bool:
    return cookie.expires is not None and cookie.expires <= now


def _path_of(url: str) -> str:
    path = "/" + url.partition("://")[2].partition("/")[2]
    return path.partition("?")[0]
