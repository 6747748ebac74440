"""The commands; the only place that composes everything and reads the environment."""

import sys

from sterna.runtime.memory import share_heaps


def run() -> None:
    """The entry point of `sterna`."""
    share_heaps()  # before anything starts a thread
    try:
        import typer  # noqa: F401, PLC0415
    except ImportError:
        sys.stderr.write("sterna: the commands need the extra 'home': pip install 'sterna[home]'\n")
        raise SystemExit(2) from None
    from sterna.cli.app import main  # noqa: PLC0415

    main()
