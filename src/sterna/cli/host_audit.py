"""`sterna host audit`: whether the audit log is as it was written, and what it says in sum."""

import sys
from typing import Annotated

import msgspec
import typer

from sterna.cli.exits import Exit
from sterna.cli.host_options import say
from sterna.cli.host_owner import JsonOption, SiteOption, StateOption, folder_of
from sterna.cli.numbers import bytes_text, plural
from sterna.errors import UsageError
from sterna.host.owner.audit import AUDIT
from sterna.host.owner.verification import AuditReport, Fault, Sums, verify
from sterna.query.terminal import harmless

MAX_HOMES = 50
MAX_EXPECTED = 100


def audit(
    state: StateOption = None,
    site: SiteOption = "",
    expect: Annotated[
        str,
        typer.Option(
            "--expect",
            metavar="NUMBER:HASH",
            help="A head that an earlier run showed, kept elsewhere: that line must still be there.",
        ),
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Verify the audit log and sum it up; exit code 1 if a line was changed, taken out or cut off."""
    report = verify(folder_of(state, site) / AUDIT, expected=_expected(expect))
    if as_json:
        fields = msgspec.to_builtins(report) | {"is_whole": report.is_whole}
        say(msgspec.json.encode(fields).decode())
    else:
        for line in _lines(report):
            say(harmless(line))
    if not report.is_whole:
        sys.stdout.flush()
        raise typer.Exit(int(Exit.NOTHING))


def _expected(text: str) -> tuple[int, str] | None:
    number, _, hash = text.partition(":")
    if not text:
        return None
    if not (number.isascii() and number.isdigit() and len(number) < 16) or len(hash) != 64:
        shown = harmless(text[:MAX_EXPECTED])
        raise UsageError(f"--expect {shown} cannot be: NUMBER:HASH, as sterna host audit shows them")
    return int(number), hash.lower()


def _lines(report: AuditReport) -> list[str]:
    return [
        _verdict(report),
        *(f"  {_place(fault)}" for fault in report.faults),
        *([f"  ... and {report.more_faults:,} more"] if report.more_faults else []),
        *(f"  (harmless: {_place(remark)})" for remark in report.remarks),
        f"  {plural(report.lines, 'line')} from {report.began or '-'} to {report.over or '-'}",
        *([f"  lines before {report.first} went with the oldest files"] if report.first > 1 else []),
        f"  head {report.last}:{report.hash}" if report.hash else "  no head",
        *(f"  {count:>9,}  {event}" for event, count in report.events.items()),
        *_homes(report.homes),
    ]


def _verdict(report: AuditReport) -> str:
    names = ", ".join(report.files) or "no file"
    if report.is_whole:
        return f"the audit log is whole: {names}"
    return f"THE AUDIT LOG IS NOT WHOLE: {names}"


def _place(fault: Fault) -> str:
    if not fault.file:
        return fault.what
    return f"{fault.file}, line {fault.line}: {fault.what}"


def _homes(homes: dict[str, Sums]) -> list[str]:
    ranked = sorted(homes.items(), key=lambda item: (-item[1].sent_bytes, item[0]))
    lines = [f"  {_sums(sums)}  {name}" for name, sums in ranked[:MAX_HOMES]]
    return lines + ([f"  ... and {len(ranked) - MAX_HOMES:,} more homes"] if len(ranked) > MAX_HOMES else [])


def _sums(sums: Sums) -> str:
    return (
        f"{plural(sums.visits, 'visit')}, {sums.pages:,} pages, {sums.requests:,} requests,"
        f" read {bytes_text(sums.read_bytes)}, sent {bytes_text(sums.sent_bytes)},"
        f" cpu {sums.cpu_seconds:.1f} s, refused {sums.refused:,}"
    )
