"""A collection that was really crawled: a part of each of two sites that Debian packages hold."""

from dataclasses import dataclass
from pathlib import Path

PAGES = 120
SQLITE = "http://docs.sqlite.test"
APACHE = "http://manual.apache.test"


@dataclass(frozen=True, slots=True)
class Crawled:
    """A collection with its index, and the web server by which its sites still answer, as a proxy."""

    folder: Path
    proxy: str
