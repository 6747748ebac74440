"""Large pages as a check keeps them: with a digest and a likeness of their texts instead of these.

A sample has up to 59 pages, which a host may have made as large as it likes, and as many are read from here.
"""

from hashlib import blake2b

import msgspec
from msgspec.structs import asdict

from sterna.model import Links, Page
from sterna.web.signature import likeness_of
from sterna.web.urls import MAX_URL_LENGTH
from sterna.web.weight import weight_of, weight_of_texts

COMPARED = ("title", "description", "keywords", "headings", "language", "links", "text", "html")
LIKE_CHARS = 64 * 1024  # of a text, from its beginning, of which its likeness is made
LIGHT_BYTES = 256 * 1024  # of memory; two samples of such pages take 30 MB


class Sketch(Page, frozen=True, kw_only=True):
    """A page whose `html` is a digest of all texts that are compared; it has a likeness and no texts."""


def is_light(page: Page) -> bool:
    """True if the page takes little memory; its raw response is not counted."""
    return weight_of_page(page) <= LIGHT_BYTES


def weight_of_page(page: Page) -> int:
    """The memory that the texts of a page take."""
    headers = (text for header in page.headers for text in header)
    return weight_of_texts(page) + weight_of((page.content_type, page.modified, page.etag, *headers))


def sketch_of(page: Page) -> Sketch:
    """The sketch of a page that has only the fields which are compared."""
    if isinstance(page, Sketch):
        return page
    texts = msgspec.msgpack.encode([page.extracts, *(getattr(page, name) for name in COMPARED)])
    small: dict[str, object] = {
        **dict.fromkeys(("title", "description", "language", "text"), ""),
        **dict.fromkeys(("keywords", "headings", "extracts", "headers"), ()),
        # Where a redirect leads; if that is longer than a URL can be, it still is.
        "links": Links(page.links.urls[: MAX_URL_LENGTH + 1]),
        "html": blake2b(texts).hexdigest(),
        # The words of a whole text would take many times its memory.
        "likeness": likeness_of(page.text[:LIKE_CHARS]) if page.text else page.likeness,
        "raw": None,
    }
    return Sketch(**asdict(page) | small)
