"""`sterna host sitemap`, `changes` and `search`: what an owner has of the index of his site."""

import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import typer

from sterna.cli.exits import Exit
from sterna.cli.host_options import say, state_base, state_of
from sterna.errors import UsageError
from sterna.host.own.feed import atom_of, lines_of
from sterna.host.own.index import NAME, Change, Index
from sterna.host.own.search import Found, search
from sterna.host.site.closed import Closed
from sterna.query.terminal import harmless
from sterna.web.sitemap_file import write_sitemap, xml_time

_AGO = re.compile(r"(\d+)([mhd])")
_SECONDS = {"m": 60.0, "h": 3600.0, "d": 86400.0}

_OwnState = Annotated[
    Path | None, typer.Option("--state", metavar="DIR", help="The host's folder. (default: the one there is)")
]
_OwnSite = Annotated[str, typer.Option("--site", metavar="URL", help="Its site, instead of its folder.")]
_OwnPolicy = Annotated[
    Path | None, typer.Option("--policy", metavar="FILE", help="Leave out what this policy.toml closes.")
]


# -- what is made of it ------------------------------------------------------------------------------------


def sitemap(
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help="The file, such as /var/www/html/sitemap.xml; or .xml.gz."
        ),
    ] = None,
    base: Annotated[
        str,
        typer.Option(
            "--base", metavar="URL", help="Where the folder of FILE is served. (default: the site's top)"
        ),
    ] = "",
    state: _OwnState = None,
    site: _OwnSite = "",
    policy: _OwnPolicy = None,
) -> None:
    """Write the site's sitemap.xml with true dates, of what the last survey found.

    A large site gets an index of sitemaps, whose parts are written beside it.
    """
    with opened(_folder_of(state, site)) as found, found.snapshot():
        pages, where = found.pages(_closed(policy)), base or found.site()
        if out:
            paths = write_sitemap(pages, out, base=where)
            say("\n".join(map(str, paths)))
            return
        with tempfile.TemporaryDirectory() as folder:
            paths = write_sitemap(pages, Path(folder) / "sitemap.xml", base=where)
            if len(paths) > 1:
                raise UsageError("one file does not hold all pages: name it with --out FILE")
            _write(paths[0].read_bytes())


def changes(
    since: Annotated[
        str,
        typer.Option("--since", metavar="WHEN", help="2026-11-30, 2026-11-30T08:00, or 90m, 12h, 7d ago."),
    ] = "",
    form: Annotated[
        Literal["lines", "json", "atom"],
        typer.Option("--format", "-f", help="Lines to read, JSON lines, or an Atom feed."),
    ] = "lines",
    state: _OwnState = None,
    site: _OwnSite = "",
    policy: _OwnPolicy = None,
) -> None:
    """Tell which pages of the site were created, updated and deleted, as surveys saw it."""
    begin, closed = _time_of(since), _closed(policy)
    with opened(_folder_of(state, site)) as found, found.snapshot():
        if form == "atom":
            latest = (change for change in found.latest(closed) if change.told >= begin)
            own = found.site()
            for piece in atom_of(latest, site=own, url=f"{own}/sterna/changes.atom", now=time.time()):
                _write(piece.encode())
            return
        told = found.changes(closed, since=begin)
        for line in lines_of(told) if form == "json" else map(_line_of, told):
            _write(line)


def _line_of(change: Change) -> bytes:
    title = f"  {change.title}" if change.title else ""
    return (harmless(f"{xml_time(change.at)}  {change.kind}  {change.url}{title}") + "\n").encode()


def find(
    words: Annotated[list[str], typer.Argument(metavar="WORDS", help='Words; "a phrase" in quotes.')],
    most: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="At most so many pages.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a page.")] = False,
    state: _OwnState = None,
    site: _OwnSite = "",
    policy: _OwnPolicy = None,
) -> None:
    """Search the pages of the own site."""
    with opened(_folder_of(state, site)) as index:
        pages = search(index, " ".join(words), most=most, closed=_closed(policy))
    if as_json:
        for page in pages:
            _write(msgspec.json.encode(page) + b"\n")
        return
    for page in pages:
        say(
            "\n".join(
                (harmless(page.title or page.url), f"  {harmless(page.url)}", f"  {_excerpt(page)}", "")
            )
        )
    if not pages:
        warn("no page has these words")
        raise typer.Exit(int(Exit.NOTHING))


def _excerpt(page: Found) -> str:
    """With the words that were asked for marked: bold on a terminal, in brackets elsewhere."""
    begin, end = ("\x1b[1m", "\x1b[0m") if sys.stdout.isatty() else ("[", "]")
    text, at = "", 0
    for first, last in page.marked:
        text += harmless(page.excerpt[at:first]) + begin + harmless(page.excerpt[first:last]) + end
        at = last
    return text + harmless(page.excerpt[at:])


# -- what the flags say ------------------------------------------------------------------------------------


def _folder_of(state: Path | None, site: str) -> Path:
    """The folder of the host that is meant; UsageError if that is not clear."""
    if state or site:
        return state_of(state, site)
    base = state_base()
    found = sorted(path.parent for path in base.glob(f"*/{NAME}"))
    if len(found) == 1:
        return found[0]
    if not found:
        raise UsageError(
            f"there is no index of a site in {base}: make it with 'sterna host index --site URL'"
        )
    raise UsageError(f"there is more than one index: name one with --state, such as {found[0]}")


@contextmanager
def opened(state: Path) -> Iterator[Index]:
    """The index, to be read; UsageError if there is none."""
    index = Index(state)
    try:
        yield index
    finally:
        index.close()


def _closed(policy: Path | None) -> Closed:
    from sterna.host.policy.policy import read_policy  # noqa: PLC0415 - few name one

    return Closed(read_policy(policy).closed if policy else ())


def _time_of(written: str) -> float:
    """The time that --since names; dates without a zone are the machine's own."""
    if not written:
        return 0.0
    if ago := _AGO.fullmatch(written):
        return time.time() - int(ago[1]) * _SECONDS[ago[2]]
    try:
        return datetime.fromisoformat(written).timestamp()
    except (ValueError, OverflowError):
        raise UsageError(
            f"--since {written} cannot be: write it as 2026-11-30, 2026-11-30T08:00 or 7d"
        ) from None


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)


def warn(text: str) -> None:
    """A line on stderr, if anybody still listens."""
    with suppress(OSError):
        sys.stderr.write(f"sterna: {harmless(text)}\n")
