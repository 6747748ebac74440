"""Files that are needed for longer than a crawl keeps them: what it merges away is removed after a while."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from sterna.errors import StorageError
from sterna.export.workbench import bench


@contextmanager
def pinned(tables: Mapping[str, Sequence[Path]], *, beside: Path) -> Iterator[Mapping[str, Sequence[Path]]]:
    """The same files under names of their own, by hard links, which stay as long as the context is open.

    Where the folder cannot be written, nobody crawls into it either, and the files are taken as they are.
    """
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(bench(beside))
            links = {name: [_linked(path, folder) for path in paths] for name, paths in tables.items()}
        except (StorageError, OSError):
            yield tables
            return
        yield links


def _linked(path: Path, folder: Path) -> Path:
    link = folder / path.name
    os.link(path, link)
    return link
