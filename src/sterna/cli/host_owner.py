"""`sterna host status`, `stop`, `open` and `audit`: what an owner sees of a host, and how to stop it."""

import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from msgspec.structs import asdict

from sterna.cli.exits import Exit
from sterna.cli.flags import JsonOption, argument, option, read_age, switch
from sterna.cli.host_options import OwnSiteOption, OwnStateOption, only_folder
from sterna.cli.lines import bytes_text, columns, date_text, duration_text, plural, say, say_json, warn
from sterna.errors import LineBroken, StorageError, UsageError
from sterna.host.owner.audit import AUDIT, Audit
from sterna.host.owner.control import BY_OWNER, CLOSED, CONTROL, ControlRequest, Doors, ask
from sterna.host.owner.status import HostStatus, amounts_of, host_amounts
from sterna.host.owner.verification import AuditReport, Fault, Sums, verify
from sterna.host.state import Stops, open_state
from sterna.query.terminal import harmless
from sterna.web.clock import SystemClock

WATCH_SECONDS = 1.0
MAX_NAME = 24  # of a stranger's word in the table
MAX_HOMES = 50
MAX_EXPECTED = 100


def status(
    state: OwnStateOption = None,
    site: OwnSiteOption = "",
    watch: Annotated[bool, switch("Update it until Ctrl-C.", "--watch", "-w")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the crawlers at the host, and what they use of their limits."""
    folder = folder_of(state, site)
    if as_json:
        found = _status(folder)
        visits = [asdict(each) | {"limits": asdict(each.limits)} for each in found.visits]
        say_json(asdict(found) | {"visits": visits})
    elif watch:
        _watch(lambda: _lines(_status(folder)))
    else:
        say(*_lines(_status(folder)))


def stop(
    crawler: Annotated[str, argument("[CRAWLER]", "A visit's id, or the name of crawlers.")] = "",
    all_: Annotated[bool, switch("Stop all, and admit none until `sterna host open`.", "--all")] = False,
    reason: Annotated[str, option("TEXT", "The reason that homes receive.")] = BY_OWNER,
    for_: Annotated[
        str, option("TIME", "For how long, such as 12h or 7d. (default: until sterna host open)", "--for")
    ] = "",
    state: OwnStateOption = None,
    site: OwnSiteOption = "",
) -> None:
    """Stop a crawler, or all of them at once.

    Homes are told why and until when, and do not fetch the site from outside meanwhile. What a crawler has
    found is kept for its home. --all works even if the host does not answer, and for CGI.
    """
    if bool(crawler) == all_:
        raise UsageError("name one crawler, as sterna host status lists them, or --all")
    folder = folder_of(state, site)
    until = time.time() + read_age(for_, "--for") if for_ else None
    if all_:
        _stop_all(folder, reason, until)
        return
    stopped = ask(folder, ControlRequest("stop", crawler, reason, until)).stopped
    if not stopped:
        raise UsageError(f"no crawler {harmless(crawler)!r} is under way: sterna host status lists them")
    for visit in stopped:
        say(f"stopped visit {visit.visit} of {visit.name}: crawler {visit.crawler}, {_until(until)}")


def open_doors(state: OwnStateOption = None, site: OwnSiteOption = "") -> None:
    """Admit crawlers again after `sterna host stop`."""
    folder = folder_of(state, site)
    with closing(open_state(folder)) as database:
        lifted = Stops(database).lift()
    if lifted:
        _note(folder, "stops-lifted", count=str(lifted))
        say(f"{plural(lifted, 'crawler')} that you stopped may come again")
    doors = Doors(folder)
    if doors.closure() is None:
        say("the doors are open")
        return
    doors.open()
    _note(folder, "doors-opened")
    say("the doors are open again: allowed homes are admitted")


def audit(
    state: OwnStateOption = None,
    site: OwnSiteOption = "",
    expect: Annotated[
        str, option("NUMBER:HASH", "A head that an earlier run printed: that line must still be there.")
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Verify the audit log and sum it up; exit code 1 if a line was changed, removed or cut off."""
    report = verify(folder_of(state, site) / AUDIT, expected=_expected(expect))
    if as_json:
        say_json(msgspec.to_builtins(report) | {"is_whole": report.is_whole})
    else:
        say(*_audit_lines(report))
    if not report.is_whole:
        raise typer.Exit(int(Exit.NOTHING))


# -- stopping and asking ------------------------------------------------------------------------------------


def _until(until: float | None) -> str:
    return "until sterna host open" if until is None else f"until {date_text(until)}"


def _stop_all(folder: Path, reason: str, until: float | None) -> None:
    """Writes the file first: it closes the doors even if no host answers."""
    Doors(folder).close(reason, until=until)
    say(f"the doors are closed: no home is admitted {_until(until)}")
    try:
        count = ask(folder, ControlRequest("stop-all")).count
    except LineBroken as error:
        say(f"{error}; one that is a CGI program ends its visits within seconds")
    else:
        say(f"{plural(count, 'visit')} stopped" if count else "no visit is under way")
    _note(folder, "doors-closed", reason=reason)


def _note(folder: Path, event: str, **fields: str) -> None:
    """Writes to the host's own log; a failure is reported and does not undo the change."""
    try:
        Audit(folder / AUDIT, clock=SystemClock()).note(event, **fields)
    except StorageError as error:
        warn(str(error))


def folder_of(state: Path | None, site: str) -> Path:
    folder = only_folder(
        state,
        site,
        is_one=lambda path: any((path / name).exists() for name in (AUDIT, CONTROL, CLOSED, "sessions")),
        missing="there is no host in {base}: name its folder with --state DIR",
        several="there is more than one host",
    )
    if not folder.is_dir():
        raise UsageError(f"no host has run in {folder}: name its folder with --state")
    return folder


def _status(folder: Path) -> HostStatus:
    try:
        status = ask(folder, ControlRequest("status")).status
    except LineBroken as error:
        closure = Doors(folder).closure()
        doors = f"; its doors are closed ({closure.reason})" if closure else ""
        why = "it does not run, or is a CGI program (see sterna host audit)"
        raise LineBroken(f"{error}: {why}{doors}") from error
    assert status
    return status


# -- showing -----------------------------------------------------------------------------------------------


def _lines(status: HostStatus) -> list[str]:
    lines = [
        f"host of {status.site}, Sterna {status.version}, up {duration_text(status.now - status.began)}",
        "  " + ", ".join(f"{each.label} {each.text}" for each in host_amounts(status)),
    ]
    said = {"doors closed": status.doors, "all visits are paused": status.paused, "load": status.load}
    lines += [f"  {what}: {why}" for what, why in said.items() if why]
    lines += [
        f"  stopped: crawler {_cut(stop.crawler)}, {_until(stop.until)} ({harmless(stop.reason)})"
        for stop in status.stops
    ]
    if not status.visits:
        return [*lines, "  no crawler is here"]
    # What fits on a line; the page and --json show the rest.
    amounts_by_visit = [
        [each for each in amounts_of(visit, now=status.now) if each.label != "kept"]
        for visit in status.visits
    ]
    rows = [["visit", "home", "crawler", "state", *(each.label for each in amounts_by_visit[0])]]
    for visit, amounts in zip(status.visits, amounts_by_visit, strict=True):
        state = f"{visit.state}, paused: {visit.paused}" if visit.paused else visit.state
        names = [visit.visit, _cut(visit.name), _cut(visit.crawler), harmless(state)]
        rows.append([*names, *(each.text for each in amounts)])
    return [*lines, *(f"  {line}" for line in columns(rows))]


def _cut(text: str) -> str:
    shown = harmless(text)
    return shown if len(shown) <= MAX_NAME else f"{shown[: MAX_NAME - 1]}…"


def _watch(lines: Callable[[], Sequence[str]]) -> None:
    """Prints them each second: on a terminal in place, elsewhere one after the other."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a script may ignore it
    with suppress(KeyboardInterrupt):
        if not sys.stdout.isatty():
            while True:
                say(*lines())
                time.sleep(WATCH_SECONDS)
        from rich.live import Live  # noqa: PLC0415 - it takes a while to load
        from rich.text import Text  # noqa: PLC0415

        with Live(auto_refresh=False, screen=True) as live:
            while True:
                text = "\n".join(map(harmless, lines()))
                live.update(Text(text, no_wrap=True), refresh=True)
                time.sleep(WATCH_SECONDS)


# -- the audit log -----------------------------------------------------------------------------------------


def _expected(text: str) -> tuple[int, str] | None:
    number, _, hash = text.partition(":")
    if not text:
        return None
    if not (number.isascii() and number.isdigit() and len(number) < 16) or len(hash) != 64:
        shown = harmless(text[:MAX_EXPECTED])
        raise UsageError(
            f"--expect {shown} is invalid: write it as NUMBER:HASH, as sterna host audit prints it"
        )
    return int(number), hash.lower()


def _audit_lines(report: AuditReport) -> list[str]:
    result = "the audit log is whole" if report.is_whole else "THE AUDIT LOG IS NOT WHOLE"
    homes = sorted(report.homes.items(), key=lambda item: (-item[1].sent_bytes, item[0]))
    return [
        f"{result}: {', '.join(report.files) or 'no file'}",
        *(f"  {_place(fault)}" for fault in report.faults),
        *([f"  ... and {report.more_faults:,} more"] if report.more_faults else []),
        *(f"  (harmless: {_place(remark)})" for remark in report.remarks),
        f"  {plural(report.lines, 'line')} from {report.began or '-'} to {report.over or '-'}",
        *([f"  lines before {report.first} went with the oldest files"] if report.first > 1 else []),
        f"  head {report.last}:{report.hash}" if report.hash else "  no head",
        *(f"  {count:>9,}  {event}" for event, count in report.events.items()),
        *(f"  {_sums(sums)}  {name}" for name, sums in homes[:MAX_HOMES]),
        *([f"  ... and {len(homes) - MAX_HOMES:,} more homes"] if len(homes) > MAX_HOMES else []),
    ]


def _place(fault: Fault) -> str:
    return f"{fault.file}, line {fault.line}: {fault.what}" if fault.file else fault.what


def _sums(sums: Sums) -> str:
    return (
        f"{plural(sums.visits, 'visit')}, {sums.pages:,} pages, {sums.requests:,} requests,"
        f" read {bytes_text(sums.read_bytes)}, sent {bytes_text(sums.sent_bytes)},"
        f" cpu {sums.cpu_seconds:.1f} s, refused {sums.refused:,}"
    )
