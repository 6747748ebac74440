"""Text, addresses and languages from the web as a page may show them: one line, bounded, nothing hidden."""

import re
from collections.abc import Iterable, Iterator, Sequence
from unicodedata import category, normalize
from urllib.parse import quote

from sterna.search.results import Piece
from sterna.web.urls import path_of, site_of

# Persian, Hindi and many emoji need them; one at a time.
_JOINERS = "\u200c\u200d"
_MARKS = ("Mn", "Me")
_MAX_MARKS = 4  # on one letter; more of them would cover the lines above
_GONE = ("Cf",)  # bidirectional overrides and zero-width characters
_UNKNOWN = ("Cs", "Co", "Cn")
_MAX_READ = 20_000  # letters of a text
# Ranges without combining marks: composed European letters, punctuation, Chinese and Japanese.
_UNMARKED = re.compile(
    r"[\x20-\u02ff\u2010-\u2027\u2030-\u205e\u20a0-\u20bf\u2100-\u2bff\u3001-\u3020\u30a0-\u9fff]*"
)
# Escapes of non-ASCII letters; ASCII stays escaped because there it has a meaning.
_ESCAPED = re.compile(r"(?:%[89A-Fa-f][0-9A-Fa-f])+")
_ASCII = "".join(map(chr, range(0x21, 0x7F)))
_WEB = ("http://", "https://")
ELLIPSIS = "…"


def plain(text: str) -> str:
    """The text in one line, without characters that reverse, hide, stack or break it."""
    text = text[:_MAX_READ]
    if _UNMARKED.fullmatch(text) and text.isprintable():
        return " ".join(text.split())
    return " ".join("".join(_shown(normalize("NFC", text))).split())


def _shown(text: str) -> Iterator[str]:
    marks, before = 0, ""
    for char in text:
        kind = category(char)
        marks = marks + 1 if kind in _MARKS else 0
        if char in _JOINERS:
            if before not in _JOINERS:  # the empty string is in every string: no joiner comes first
                yield char
                before = char
        elif kind in ("Cc", "Zl", "Zp", "Zs"):
            yield " "
            before = " "
        elif kind not in _GONE and marks <= _MAX_MARKS:
            before = "\ufffd" if kind in _UNKNOWN else char
            yield before


def cut(text: str, most: int) -> str:
    """The text cut to `most` letters, the last of which is an ellipsis."""
    return text if len(text) <= most else text[: most - 1].rstrip() + ELLIPSIS


def cut_pieces(pieces: Iterable[Piece], most: int) -> Sequence[Piece]:
    """The pieces, plain, cut to `most` letters together; spaces between them stay."""
    kept: list[Piece] = []
    left = most
    for piece in pieces:
        if left <= 0:
            break
        text = _spaced(piece.text)
        kept.append(Piece(cut(text, left), piece.is_marked))
        left -= len(text)
    return kept


def _spaced(text: str) -> str:
    """Plain, with the space at either end kept."""
    shown = plain(text)
    if not shown:
        return " " if text[:1].isspace() else ""
    return f"{' ' if text[:1].isspace() else ''}{shown}{' ' if text[-1:].isspace() else ''}"


def is_web(url: str) -> bool:
    """Whether this is an HTTP address, to which a link may lead."""
    return url.startswith(_WEB) and len(url) > len(_WEB[1])


def href_of(url: str) -> str:
    """The address as a link holds it, with everything that is not ASCII escaped."""
    return quote(url, safe=_ASCII, errors="replace")


def host_of(url: str) -> str:
    """Host and port for display; internationalised names stay in their ASCII form."""
    return plain(site_of(url).partition("://")[2].rpartition("@")[2])


def path_shown(url: str) -> str:
    """Path and query for display, with escaped letters of other alphabets decoded."""
    return plain(_ESCAPED.sub(_unescaped, path_of(url)))


def _unescaped(match: re.Match[str]) -> str:
    try:
        text = bytes.fromhex(match[0].replace("%", "")).decode()
    except UnicodeDecodeError:
        return match[0]
    return text if text.isprintable() else match[0]


# -- languages ---------------------------------------------------------------------------------------------

_LANGUAGES = {
    "ar": "Arabic", "bg": "Bulgarian", "bn": "Bengali", "bs": "Bosnian", "ca": "Catalan", "cs": "Czech",
    "cy": "Welsh", "da": "Danish", "de": "German", "el": "Greek", "en": "English", "eo": "Esperanto",
    "es": "Spanish", "et": "Estonian", "eu": "Basque", "fa": "Persian", "fi": "Finnish", "fr": "French",
    "ga": "Irish", "gl": "Galician", "he": "Hebrew", "hi": "Hindi", "hr": "Croatian", "hu": "Hungarian",
    "hy": "Armenian", "id": "Indonesian", "is": "Icelandic", "it": "Italian", "ja": "Japanese",
    "ka": "Georgian", "kk": "Kazakh", "ko": "Korean", "la": "Latin", "lt": "Lithuanian", "lv": "Latvian",
    "mk": "Macedonian", "ms": "Malay", "mt": "Maltese", "nb": "Norwegian", "nl": "Dutch", "nn": "Norwegian",
    "no": "Norwegian", "pl": "Polish", "pt": "Portuguese", "ro": "Romanian", "ru": "Russian", "sk": "Slovak",
    "sl": "Slovenian", "sq": "Albanian", "sr": "Serbian", "sv": "Swedish", "sw": "Swahili", "ta": "Tamil",
    "te": "Telugu", "th": "Thai", "tr": "Turkish", "uk": "Ukrainian", "ur": "Urdu", "vi": "Vietnamese",
    "zh": "Chinese",
}  # fmt: skip
_TAG = re.compile(r"[a-z]{2,3}(?:-[a-z0-9]{2,8}){0,3}", re.IGNORECASE)


def tag_of(language: str) -> str:
    """The language as an attribute takes it; empty if it is no language tag."""
    return language if _TAG.fullmatch(language) else ""


def language_name(language: str) -> str:
    """The language in English; its tag if it has no name here, empty if it is no language tag."""
    tag = tag_of(language)
    return _LANGUAGES.get(tag.partition("-")[0].lower(), tag)
