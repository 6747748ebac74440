"""What a run sends to its user's own sites only: cookies, headers and a password. It is stored nowhere."""

import re
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path

from sterna.errors import UsageError
from sterna.model import Record
from sterna.web.cookies import Cookie, read_cookie_file

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
# What the crawler itself sends; another value would break the request, or what it is honest about.
_OURS = frozenset({"host", "user-agent", "from", "accept-encoding", "connection", "content-length", "cookie"})

_INSTEAD = {"cookie": "use --cookies FILE", "user-agent": "use --user-agent", "from": "use --contact"}


class Secrets(Record, frozen=True, kw_only=True):
    """For some start sites; never for where they redirect."""

    headers: tuple[tuple[str, str], ...] = ()
    cookies: tuple[Cookie, ...] = ()
    sites: frozenset[str] = frozenset()  # none: all start sites of the crawl

    def __bool__(self) -> bool:
        return bool(self.headers or self.cookies)

    def __repr__(self) -> str:
        """Without the values: a traceback or a log line may contain it."""
        return f"<Secrets for {len(self.sites)} sites>"


def read_secrets(*, headers: Sequence[str] = (), auth: str = "", cookies: Path | None = None) -> Secrets:
    """The secrets in the words of the command line; raises UsageError without repeating them."""
    fields = [_read_header(text) for text in headers]
    if auth:
        user, colon, _ = auth.partition(":")
        if not colon or not user or not auth.isprintable():
            raise UsageError("--auth is invalid: write it like USER:PASSWORD, or set STERNA_AUTH")
        fields.append(("Authorization", f"Basic {b64encode(auth.encode()).decode()}"))
    return Secrets(headers=tuple(fields), cookies=read_cookie_file(cookies) if cookies else ())


def _read_header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    name, value = name.strip(), value.strip()
    if not colon or not _NAME.fullmatch(name) or not value or not value.isprintable():
        raise UsageError("--header is invalid: write it like 'Name: value', in printable characters")
    if name.lower() in _OURS:
        raise UsageError(f"--header {name} cannot be set: {_INSTEAD.get(name.lower(), 'Sterna sets it')}")
    return name, value
