"""`sterna host query`: what a crawler at the host holds, for the site's owner."""

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from sterna.cli.confinement import keep_to
from sterna.cli.flags import argument
from sterna.cli.host_options import OwnSiteOption, OwnStateOption
from sterna.cli.host_owner import folder_of
from sterna.cli.lines import bytes_text, plural, say, warn
from sterna.crawler.facts import decode
from sterna.errors import StorageError, UsageError
from sterna.host.state import VISITS
from sterna.host.visiting.holdings import held_in, visits_in
from sterna.model import Visit
from sterna.query.terminal import Format, harmless
from sterna.wire.holdings import Holdings

MEMORY_BYTES = 1_000_000_000
MAX_HELD_BYTES = 256 * 1024 * 1024  # that are read of a visit: all that a host keeps of it by default
MAX_TEMPLATES = 20


def query(
    crawler: Annotated[str, argument("CRAWLER", "A visit's id, or the name of its crawler.")],
    sql: Annotated[
        str | None,
        argument("[SQL]", "A SELECT over page, link, fact, frontier, visit; needs the extra home."),
    ] = None,
    form: Annotated[Format, typer.Option("--format", "-f", help="How to write the rows.")] = "table",
    state: OwnStateOption = None,
    site: OwnSiteOption = "",
) -> None:
    """Show what a crawler at the host holds: facts, frontier, and pages that its home does not have yet.

    Example: sterna host query archive-news "SELECT url, title FROM page"
    """
    folder = folder_of(state, site)
    keep_to(folder)
    visit, held = _found(folder, crawler)
    if sql is None:
        say(*_lines(visit, held))
        return
    # The base install of a host lacks what they need.
    from sterna.api.holdings import left_out, open_holdings  # noqa: PLC0415
    from sterna.api.query import held_memory  # noqa: PLC0415
    from sterna.cli.query import write_answer  # noqa: PLC0415

    if missing := left_out(held):
        warn(missing)
    with open_holdings(visit, held) as engine, held_memory(MEMORY_BYTES):
        write_answer(engine, sql, form=form)


def _found(folder: Path, crawler: str) -> tuple[Visit, Holdings]:
    """The visit with this id, or else the only one with a crawler of this name."""
    visits = list[tuple[Visit, Holdings]]()
    for each in visits_in(folder / VISITS):
        try:
            visits.append(held_in(each, most_bytes=MAX_HELD_BYTES))
        except StorageError as error:
            warn(str(error))
    by_id = [each for each in visits if each[0].id == crawler]
    found = by_id or [each for each in visits if each[0].crawler.name == crawler]
    if len(found) == 1:
        return found[0]
    shown = harmless(crawler)
    if found:
        names = ", ".join(visit.id for visit, _ in found)
        raise UsageError(f"several visits have a crawler {shown!r}: name one of {names}")
    raise UsageError(f"no crawler {shown!r} is kept here: sterna host status lists them")


def _lines(visit: Visit, held: Holdings) -> list[str]:
    report, usage = held.report, held.usage
    size = sum(map(len, held.parcels))
    kinds = Counter(_template(fact) for fact in held.facts)
    waiting = sum(each.urls for each in held.waiting)
    return [
        f"visit {visit.id}: crawler {harmless(visit.crawler.name)} at {visit.site}, {report.state}",
        f"  {plural(usage.pages, 'page')} in {plural(usage.requests, 'request')},"
        f" {plural(report.parcels, 'parcel')}",
        f"  {plural(len(held.parcels), 'parcel')} wait for home, {bytes_text(size)}",
        f"  {plural(waiting, 'URL')} in the frontier, {held.done:,} done",
        *(f"    {each.urls:>9,}  at depth {each.depth}" for each in held.waiting),
        f"  {plural(held.facts_total, 'fact')} of its own",
        *(f"    {count:>9,}  {harmless(name)}" for name, count in kinds.most_common(MAX_TEMPLATES)),
    ]


def _template(fact: bytes) -> str:
    try:
        return decode(fact).template
    except ValueError:
        return "(unreadable)"
