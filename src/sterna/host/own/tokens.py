"""Words for SQLite's tokenizer, which knows no other border between two words than a sign that is no letter.

Scripts without spaces (Chinese, Japanese, Thai ...) are indexed letter by letter, so that a word of theirs is
found as letters that follow each other; what is shown of them is put together again.
"""

import re

# Thai, Lao, Burmese, Khmer; kana; the Han blocks.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
BEGIN, END = "\x02", "\x03"  # of a word that was found, in an excerpt; no text in the index holds them

_BORDER = re.compile(f"(?<=[{_UNSPACED}])(?=[{_UNSPACED}])")
_MADE_SPACE = re.compile(f"([{_UNSPACED}]{END}?) (?={BEGIN}?[{_UNSPACED}])")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]+")


def spaced(text: str) -> str:
    """The text as it is indexed and asked for."""
    return _BORDER.sub(" ", _CONTROL.sub(" ", text))


def unspaced(text: str) -> str:
    """What was indexed, as people write it; the signs of an excerpt stay."""
    return _MADE_SPACE.sub(r"\1", text)
