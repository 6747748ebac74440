"""`sterna host status`, `stop` and `open`: what an owner sees of a host that runs, and how he ends it."""

import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, NoReturn

import msgspec
import typer

from sterna.cli.host_options import say, state_base, state_of
from sterna.cli.numbers import duration_text, plural
from sterna.errors import LineBroken, StorageError, UsageError
from sterna.host.owner.audit import AUDIT, Audit
from sterna.host.owner.control import BY_OWNER, CLOSED, CONTROL, ControlRequest, ControlResponse, Doors, ask
from sterna.host.owner.status import Amount, HostStatus, VisitStatus, amounts_of, host_amounts
from sterna.query.terminal import harmless
from sterna.web.clock import SystemClock

WATCH_SECONDS = 1.0
MAX_NAME = 24  # of a stranger's word in the table

StateOption = Annotated[
    Path | None, typer.Option("--state", metavar="DIR", help="The host's folder. (default: the one there is)")
]
SiteOption = Annotated[str, typer.Option("--site", metavar="URL", help="Its site, instead of its folder.")]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object.")]


def status(
    state: StateOption = None,
    site: SiteOption = "",
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show it anew until Ctrl-C.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the crawlers that are at the host, and what they take against their limits."""
    folder = folder_of(state, site)
    if watch and not as_json:
        _watch(lambda: _lines(_status(folder)))
        return
    found = _status(folder)
    if as_json:
        say(msgspec.json.encode(_fields(found)).decode())
    else:
        say("\n".join(_lines(found)))


def stop(
    crawler: Annotated[
        str, typer.Argument(metavar="[CRAWLER]", help="A visit's id, or the name of crawlers.")
    ] = "",
    all_: Annotated[
        bool, typer.Option("--all", help="Stop all, and let nobody in until `sterna host open`.")
    ] = False,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="With --all: what the homes are told.")
    ] = BY_OWNER,
    state: StateOption = None,
    site: SiteOption = "",
) -> None:
    """Stop a crawler, or all of them at once.

    What a crawler has found is kept for its home. --all works whether or not the host answers, and for CGI.
    """
    if bool(crawler) == all_:
        raise UsageError("name one crawler, as sterna host status lists them, or --all")
    folder = folder_of(state, site)
    if all_:
        _stop_all(folder, reason)
    else:
        _stop_one(folder, crawler)


def open_doors(state: StateOption = None, site: SiteOption = "") -> None:
    """Let crawlers in again after `sterna host stop --all`."""
    folder = folder_of(state, site)
    doors = Doors(folder)
    if doors.are_closed() is None:
        say("the doors are open")
        return
    doors.open()
    _note(folder, "doors-opened")
    say("the doors are open again: those who are allowed may come")


# -- stopping ----------------------------------------------------------------------------------------------


def _stop_one(folder: Path, crawler: str) -> None:
    stopped = _checked(ask(folder, ControlRequest("stop", crawler))).stopped
    if not stopped:
        raise UsageError(f"no crawler {harmless(crawler)!r} is under way: sterna host status lists them")
    for visit in stopped:
        say(f"stopped visit {visit.visit} of {harmless(visit.name)}: crawler {harmless(visit.crawler)}")


def _stop_all(folder: Path, reason: str) -> None:
    """The file first: nobody comes in any more, even if there is no host that answers."""
    Doors(folder).close(reason)
    say("the doors are closed: nobody is let in until sterna host open")
    try:
        count = _checked(ask(folder, ControlRequest("stop-all"))).count
    except LineBroken as error:
        say(f"{error}; one that is a CGI program ends its visits within seconds")
    else:
        say(f"{plural(count, 'visit')} stopped" if count else "no visit is under way")
    _note(folder, "doors-closed", reason=reason)


def _note(folder: Path, event: str, **fields: str) -> None:
    """In the host's own log; what cannot be noted is said, and done all the same."""
    try:
        Audit(folder / AUDIT, clock=SystemClock()).note(event, **fields)
    except StorageError as error:
        sys.stderr.write(f"sterna: {error}\n")


# -- asking ------------------------------------------------------------------------------------------------


def folder_of(state: Path | None, site: str) -> Path:
    """The folder of the host that is meant; UsageError if that is not clear."""
    if state or site:
        folder = state_of(state, site)
        if not folder.is_dir():
            raise UsageError(f"no host has worked in {folder}: name its folder with --state")
        return folder
    base = state_base()
    found = sorted(path for path in base.iterdir() if _is_hosts(path)) if base.is_dir() else []
    if len(found) == 1:
        return found[0]
    if not found:
        raise UsageError(f"there is no host in {base}: name its folder with --state DIR")
    names = ", ".join(str(path) for path in found[:5])
    raise UsageError(f"there is more than one host: name one with --state, such as {names}")


def _is_hosts(folder: Path) -> bool:
    return any((folder / name).exists() for name in (AUDIT, CONTROL, CLOSED, "sessions"))


def _status(folder: Path) -> HostStatus:
    try:
        status = _checked(ask(folder, ControlRequest("status"))).status
    except LineBroken as error:
        reason = Doors(folder).are_closed()
        doors = f"; its doors are closed ({reason})" if reason else ""
        why = "it does not run, or is a CGI program, of which sterna host audit tells"
        raise LineBroken(f"{error}: {why}{doors}") from error
    assert status
    return status


def _checked(answer: ControlResponse) -> ControlResponse:
    if answer.error:
        raise LineBroken(f"the host cannot do that: {answer.error}")
    return answer


# -- showing -----------------------------------------------------------------------------------------------


def _lines(status: HostStatus) -> list[str]:
    amounts = ", ".join(f"{each.label} {each.text}" for each in host_amounts(status))
    lines = [
        f"host of {status.site}, Sterna {status.version}, up {duration_text(status.now - status.began)}",
        f"  {amounts}",
    ]
    if status.doors:
        lines.append(f"  doors closed: {status.doors}")
    if status.paused:
        lines.append(f"  all visits rest: {status.paused}")
    if status.load:
        lines.append(f"  load: {status.load}")
    return [harmless(line) for line in (*lines, *_table(status))]


def _table(status: HostStatus) -> list[str]:
    if not status.visits:
        return ["  no crawler is here"]
    rows = [_row(each, status.now) for each in status.visits]
    labels = [each.label for each in _shown(status.visits[0], status.now)]
    rows.insert(0, ["visit", "home", "crawler", "state", *labels])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [_joined(row, widths) for row in rows]


def _joined(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
    return "  " + "  ".join(cells).rstrip()


def _row(visit: VisitStatus, now: float) -> list[str]:
    state = f"{visit.state}, rests: {visit.paused}" if visit.paused else visit.state
    names = [visit.visit, _cut(visit.name), _cut(visit.crawler), harmless(state)]
    return [*names, *(each.text for each in _shown(visit, now))]


def _shown(visit: VisitStatus, now: float) -> list[Amount]:
    """What fits in a line; the page and --json have the rest."""
    return [each for each in amounts_of(visit, now=now) if each.label != "kept"]


def _cut(text: str) -> str:
    shown = harmless(text)
    return shown if len(shown) <= MAX_NAME else f"{shown[: MAX_NAME - 1]}…"


def _fields(status: HostStatus) -> dict[str, object]:
    """With the limits by their names."""
    visits = [
        msgspec.structs.asdict(each) | {"limits": msgspec.structs.asdict(each.limits)}
        for each in status.visits
    ]
    return msgspec.structs.asdict(status) | {"visits": visits}


def _watch(lines: Callable[[], Sequence[str]]) -> None:
    """Shows them anew each second; a terminal in place, all else one after the other."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a script may have it ignored
    try:
        if sys.stdout.isatty():
            _watch_in_place(lines)
        while True:
            say("\n".join(lines()))
            time.sleep(WATCH_SECONDS)
    except KeyboardInterrupt:
        return


def _watch_in_place(lines: Callable[[], Sequence[str]]) -> NoReturn:
    from rich.live import Live  # noqa: PLC0415 - it takes a while to load
    from rich.text import Text  # noqa: PLC0415

    with Live(auto_refresh=False, screen=True) as live:
        while True:
            live.update(Text("\n".join(lines()), no_wrap=True), refresh=True)
            time.sleep(WATCH_SECONDS)
