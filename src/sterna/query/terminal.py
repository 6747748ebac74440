"""Text from the web, made harmless for a terminal."""

import re
from unicodedata import category

# Invisible but needed to write Persian, Hindi and many emoji; they cannot move anything on the screen.
_JOINERS = "\u200c\u200d"
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_SUSPECT = re.compile(r"[^\x20-\x7e]")


def harmless(text: str) -> str:
    """The text with control, format and unassigned characters written as escapes.

    So no page can colour, move or reverse what the terminal shows, retitle its window or make it answer.
    """
    if text.isprintable():
        return text
    return _SUSPECT.sub(_shown, text)


def _shown(match: re.Match[str]) -> str:
    character = match[0]
    if character.isprintable() or character in _JOINERS:
        return character
    if category(character) == "Zs":
        return " "
    code = ord(character)
    escape = f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    return _NAMED.get(character, escape)
