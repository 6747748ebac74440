"""What pages need to be shown: images, styles, scripts and fonts, fetched after the pages for their replay.

They are the links to media of the pages that came since the last time, at any site. Nothing follows from
them but what their style sheets name. They go into the WARC files, and into no table.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from sterna.model import Crawler, Keep, Program, Scope, Target

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = ("from_url", "to_url", "rel")
# All links to media but videos, sound, and the sizes of images that usual screens do not show.
NEEDED = ("css", "font", "icon", "img", "script", "stylesheet")


def targets(links: "Iterable[pa.Table]") -> Iterator[list[Target]]:
    """Yields what pages need, for each table of their links; it has COLUMNS."""
    import pyarrow as pa  # noqa: PLC0415 - slow to load
    import pyarrow.compute as pc  # noqa: PLC0415

    for rows in links:
        needed = rows.filter(pc.is_in(rows["rel"], pa.array(NEEDED)))
        pairs = zip(needed["to_url"].to_pylist(), needed["from_url"].to_pylist(), strict=True)
        yield [Target(url, 1, referrer or "") for url, referrer in pairs if url]


def crawler_of(pages: Crawler) -> Crawler:
    """The crawler that fetches what another one's pages need; it leaves out what that one excludes."""
    scope = Scope(
        stay="any", exclude=pages.scope.exclude, drop_params=pages.scope.drop_params, use_sitemaps=False
    )
    program = Program(keep=Keep(fields=()), needs=(), drives_loading=True)
    return Crawler(name=pages.name, scope=scope, program=program, keeps_raw=True)
