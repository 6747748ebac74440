"""A site that changes: a share of its pages gets another paragraph, and all is as it was afterwards."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from bench.wan_parts.sites import Site

PARAGRAPH = "<p>Changed on the {number}th day: the tern that was seen here is expected back in spring.</p>\n"


@contextmanager
def changed(site: Site, paths: list[str], share_percent: int) -> Iterator[int]:
    """Changes so many percent of the pages, and gives their number; at the end all are as they were."""
    count = max(1, round(len(paths) * share_percent / 100))
    # Every so manieth by size: so they are that share of the bytes too, and no luck of a draw.
    by_size = sorted(map(site.file, paths), key=lambda file: (file.stat().st_size, file))
    files = [by_size[int((number + 0.5) * len(by_size) / count)] for number in range(count)]
    before = [(file, file.read_bytes(), file.stat().st_mtime_ns) for file in files]
    try:
        for number, (file, data, _) in enumerate(before):
            file.write_bytes(_with_paragraph(data, PARAGRAPH.format(number=number).encode()))
        yield count
    finally:
        for file, data, modified in before:
            file.write_bytes(data)
            os.utime(file, ns=(modified, modified))


def _with_paragraph(data: bytes, paragraph: bytes) -> bytes:
    """In the middle of the page, as an edit would be; at its end if there is no paragraph yet."""
    place = data.find(b"<p", len(data) // 2)
    place = place if place >= 0 else data.rfind(b"</body")
    return data[:place] + paragraph + data[place:]
