"""The commands; the only place that composes everything and reads the environment."""

from sterna.runtime.cell.kernel import share_heaps


def run() -> None:
    """The entry point of `sterna`."""
    share_heaps()  # before anything starts a thread
    from sterna.cli.app import main  # noqa: PLC0415 - it loads libraries that make threads
    from sterna.cli.exits import leave  # noqa: PLC0415

    try:
        main()
    except SystemExit as ending:
        if isinstance(ending.code, int):
            leave(ending.code)
        raise
