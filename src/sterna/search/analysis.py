"""How texts become the words that are searched: a tokenizer, and a stemmer for each language that has one.

A page is analysed in one way, by its language tag. Scripts that are written without spaces, and Korean, whose
particles cling to the words, are taken sign by sign: what is searched there is a row of signs, found wherever
it stands, without a dictionary and without the many terms of n-grams. Everything else is taken word by word.
"""

import re
from unicodedata import is_normalized, normalize

from tantivy import Filter, Index, TextAnalyzer, TextAnalyzerBuilder, Tokenizer

PLAIN = "plain"  # words as they are: no language is told, or none that has a stemmer
SIGNS = "signs"
_STEMMERS = {
    "ar": "arabic", "da": "danish", "de": "german", "el": "greek", "en": "english", "es": "spanish",
    "fi": "finnish", "fr": "french", "hu": "hungarian", "it": "italian", "nl": "dutch", "no": "norwegian",
    "pt": "portuguese", "ro": "romanian", "ru": "russian", "sv": "swedish", "ta": "tamil", "tr": "turkish",
}  # fmt: skip
_ALIASES = {"nb": "no", "nn": "no"}
ANALYSES = (*_STEMMERS, PLAIN, SIGNS)

# Longer ones are no words that anybody types; they would only swell the index.
_MAX_WORD_BYTES = 64

# Thai, Lao, Myanmar, Hangul, Khmer, Kana, Han.
_SIGN = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3130-\u318f"
    "\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]"
)
_SCRIPTS = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_SIGN_PATTERN = rf"[{_SCRIPTS}]|[\p{{Alphabetic}}\p{{N}}&&[^{_SCRIPTS}]]+"
_SAMPLE_CHARS = 4_000
_SIGNS_SHARE = 0.1  # of a text, from which on it is one of signs


def choose(language: str, text: str) -> str:
    """The analysis for a text with this BCP 47 tag, which may be empty or nonsense."""
    sample = text[:_SAMPLE_CHARS]
    if not sample.isascii() and len(_SIGN.findall(sample)) > _SIGNS_SHARE * len(sample):
        return SIGNS
    primary = re.split("[-_]", language, maxsplit=1)[0].lower()
    primary = _ALIASES.get(primary, primary)
    return primary if primary in _STEMMERS else PLAIN


def tidy(text: str) -> str:
    """The text with letters and their accents in one: apart, an accent would end a word."""
    return text if text.isascii() or is_normalized("NFC", text) else normalize("NFC", text)


def make_analyzer(analysis: str) -> TextAnalyzer:
    """The analyzer of one of ANALYSES."""
    tokenizer = Tokenizer.regex(_SIGN_PATTERN) if analysis == SIGNS else Tokenizer.simple()
    builder = TextAnalyzerBuilder(tokenizer).filter(Filter.remove_long(_MAX_WORD_BYTES))
    builder = builder.filter(Filter.lowercase())
    if analysis in _STEMMERS:
        builder = builder.filter(Filter.stemmer(_STEMMERS[analysis]))
    # After the stemmer, which knows its accents: who types none finds the word all the same.
    return builder.filter(Filter.ascii_fold()).build()


def register(index: Index) -> None:
    """Makes the analyzers known to an index, which forgets them when it is closed."""
    for analysis in ANALYSES:
        index.register_tokenizer(analysis, make_analyzer(analysis))
