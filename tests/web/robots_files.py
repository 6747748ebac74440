"""What robots.txt files allow."""

from sterna.web.robots import (
    Rules,
)

SITE = "http://example.com"
FORBID_ALL = b"User-agent: *\nDisallow: /\n"


def may(body: str | bytes, path: str, *, agent: str = "Sterna") -> bool:
    raw = body.encode() if isinstance(body, str) else body
    return Rules.parse(raw, agent).may_fetch(SITE + path)


def only(pattern: str) -> str:
    """A robots.txt that allows `pattern` and nothing else."""
    return f"User-agent: *\nDisallow: /\nAllow: {pattern}\n"
