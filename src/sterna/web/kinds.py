"""Kinds of files by their names: what web servers run, what editors leave behind, what sites publish."""

import re
from collections.abc import Sequence

from sterna.errors import ConfigError

# What a web server runs instead of showing it, wherever it stands in a name: x.php.txt is run by some.
_SOURCE = re.compile(
    rb"\.(?:php[0-9]?|phtml|phps|pht|phar|inc|py[co]?|wsgi|rb|erb|f?cgi|p[lm]|t?csh|(?:ba|k|z)?sh|lua|tcl"
    rb"|aspx?|asa|as[chm]x|axd|jsp[xf]?|cf[mc]|shtml?|stm|htaccess|htpasswd)(?:\.|\Z)",
    re.IGNORECASE,
)
_COPY = re.compile(rb"(?:~|#|\.(?:bak|old|orig|rej|save|sw[nop]|tmp|dpkg-[a-z]+))\Z", re.IGNORECASE)
_KIND = re.compile(r"[a-z0-9][a-z0-9_+-]*(?:\.[a-z0-9][a-z0-9_+-]*)*")

# Made to be read, looked at or listened to, or loaded by a page. Not here, because dumps, backups, settings
# and keys look the same: data (json, csv, xlsx, sql, db), archives (zip, tar, gz), names without a kind.
PUBLISHED = (
    # pages, feeds, sitemaps
    "html", "htm", "xhtml", "xht", "mhtml", "xml", "xml.gz", "xsl", "rss", "atom", "rdf",
    # texts
    "txt", "text", "md", "markdown", "rst", "pdf", "ps", "djvu", "epub", "tex", "bib", "ics", "vtt", "srt",
    # of office programs; tables are data
    "odt", "odp", "doc", "docx", "ppt", "pptx", "rtf",
    # what pages load
    "css", "js", "mjs", "wasm", "webmanifest", "woff", "woff2", "ttf", "otf", "eot",
    # images
    "png", "apng", "jpg", "jpeg", "jpe", "gif", "webp", "avif", "jxl", "heic", "svg", "svgz", "ico", "bmp",
    "tif", "tiff",
    # sound and film
    "mp3", "m4a", "aac", "ogg", "oga", "opus", "flac", "wav", "weba", "mid", "midi", "mp4", "m4v", "webm",
    "ogv", "mov", "avi", "mkv", "mpg", "mpeg", "m3u8",
)  # fmt: skip


def is_withheld(name: bytes) -> bool:
    """Whether a file of this name is a program's source, or a copy that an editor or a package left."""
    return bool(_SOURCE.search(name) or _COPY.search(name))


class Kinds:
    """The kinds that are shown where no web server decides: what sites publish, and what the owner adds."""

    def __init__(self, more: Sequence[str] = ()) -> None:
        kinds = (*PUBLISHED, *map(_kind, more))
        self._endings = tuple(f".{kind}".encode() for kind in kinds)

    def have(self, name: bytes, *, is_well_known: bool = False) -> bool:
        """Whether a file of this name is shown; what is well known (RFC 8615) often has no kind, or json."""
        lower = name.lower()
        if is_well_known and (b"." not in name or lower.endswith(b".json")):
            return True
        return lower.endswith(self._endings)


def _kind(written: str) -> str:
    kind = written.lower().removeprefix(".")
    if not _KIND.fullmatch(kind):
        raise ConfigError(f"kind {written!r} is invalid: write it as json, or tar.gz")
    if is_withheld(f"name.{kind}".encode()):
        raise ConfigError(f"kind {written!r} cannot be shown: web servers run it, or hide it")
    return kind
