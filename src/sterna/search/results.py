"""What a search finds: records that a terminal, a page and an API show alike."""

from sterna.model import Record


class Piece(Record, frozen=True, array_like=False):
    """A part of a text; marked where it is one of the words that were searched."""

    text: str
    is_marked: bool = False


class Hit(Record, frozen=True, array_like=False, kw_only=True):
    """A page that was found, and the near-duplicates that it stands for."""

    url: str
    site: str
    title: str
    language: str
    snippet: tuple[Piece, ...]
    title_pieces: tuple[Piece, ...]
    score: float
    inbound: int  # pages that link to it
    fetched: float
    folded: tuple[str, ...]  # URLs of near-duplicates that it stands for


class Found(Record, frozen=True, array_like=False, kw_only=True):
    """One window of what a search found."""

    words: str
    hits: tuple[Hit, ...]
    total: int
    is_exact: bool  # False: there are at least `total`
    offset: int
    limit: int
    seconds: float
    note: str = ""  # what of the query was not understood
