"""`sterna repair`: finds what is damaged in a collection, and mends it."""

from typing import Annotated

import typer

from sterna.cli.confinement import keep_to
from sterna.cli.exits import Exit
from sterna.cli.flags import FolderArgument, JsonOption, switch
from sterna.cli.lines import plural, say, say_json, shown
from sterna.errors import command


def repair(
    folder: FolderArgument,
    dry_run: Annotated[bool, switch("Only say what is damaged, and change nothing.", "--dry-run")] = False,
    as_json: JsonOption = False,
) -> None:
    """Check every part of a collection, mend what is damaged, and set aside what cannot be mended.

    Nothing is deleted: what counts no more is moved to the folder 'aside' of the collection.
    """
    keep_to(folder, mends=True)
    # Arrow and tantivy are slow to load, and --help should not wait for them.
    from sterna.api.repair import repair as run_repair  # noqa: PLC0415
    from sterna.home.folder import CollectionFolder  # noqa: PLC0415
    from sterna.home.repair.records import RepairProgress  # noqa: PLC0415

    progress = RepairProgress()
    display = shown(
        lambda: {progress.what: (progress.done, progress.total)},
        line=lambda: f"{progress.what}: {progress.done:,} of {progress.total:,}\n" if progress.total else "",
    )
    with display:
        made = run_repair(CollectionFolder(folder), is_dry_run=dry_run, progress=progress)
    if as_json:
        say_json(made)
    else:
        say(*map(str, made.findings), *(f"lost: {words}" for words in made.lost))
        if made.pages_again:
            again = command("crawl", "--into", folder)
            say(f"{plural(made.pages_again, 'page')} will be fetched again: {again}")
        outcome = "nothing changed" if dry_run else "mended"
        found = f"{plural(len(made.findings), 'finding')}, {outcome}" if made.findings else "in order"
        say(f"{folder}: {found}")
    if dry_run and made.findings:
        raise typer.Exit(int(Exit.NOTHING))
