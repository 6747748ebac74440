"""Which call an HTTP request is."""

import re

from sterna.host.service import Reply, nowhere
from sterna.model import Record
from sterna.transport.interface import Op
from sterna.web.urls import path_of
from sterna.wire.discovery import WELL_KNOWN

_POSTED: dict[str, Op] = {"/hello": "hello", "/order": "order", "/acknowledge": "acknowledge"}
_SHOWN = re.compile(r"/(sitemap(?:-[1-9][0-9]{0,4})?\.xml|changes\.(?:atom|jsonl))")


class Shown(Record, frozen=True):
    """A file that a host shows to everybody, by its name."""

    name: str


def op_of(method: str, path: str, *, endpoint: str) -> Op | Shown | Reply:
    """The call, or the reply that says that it is none.

    A proxy in front may keep the endpoint's path or strip it; both ways lead here.
    """
    prefix = path_of(endpoint).rstrip("/")
    rest = path.removeprefix(prefix) if path.startswith(f"{prefix}/") or path == prefix else path
    if rest in _POSTED:
        return _POSTED[rest] if method == "POST" else nowhere(405, "Method Not Allowed")
    if rest in (WELL_KNOWN, "", "/"):
        return "discover" if method == "GET" else nowhere(405, "Method Not Allowed")
    if shown := _SHOWN.fullmatch(rest):
        return Shown(shown[1]) if method in ("GET", "HEAD") else nowhere(405, "Method Not Allowed")
    return nowhere(404, "Not Found")
