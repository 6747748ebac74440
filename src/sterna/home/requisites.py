"""What pages need to be shown: images, styles, scripts and fonts, fetched after the pages for their replay.

They are the links to media of the pages that came since the last time, at any site. Nothing follows from
them but what their style sheets name. They go into the WARC files, and into no table.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from sterna.archive.arrivals import arrivals
from sterna.model import Crawler, Keep, Program, Scope, Target

# All links to media but videos, sound, and the sizes of images that usual screens do not show.
NEEDED = ("css", "font", "icon", "img", "script", "stylesheet")


def targets(paths: Sequence[Path], *, after: int, upto: int) -> Iterator[list[Target]]:
    """Yields what the pages of these batches need, in bounded pieces; `paths` are the files of links."""
    for rows in arrivals(paths, after=after, upto=upto, columns=["from_url", "to_url", "rel"]):
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
