"""What an index holds: the fields of a page, how their texts become terms, and the position of the index.

Each page is analysed in one way, chosen by its language tag: word by word, with the stemmer of the language
if it has one. Scripts that are written without spaces, and Korean, whose particles are attached to the words,
are analysed character by character. A search there looks for a sequence of characters, which needs neither a
dictionary nor the many terms of n-grams.
"""

import re
from unicodedata import is_normalized, normalize

from tantivy import Filter, Index, Schema, SchemaBuilder, TextAnalyzer, TextAnalyzerBuilder, Tokenizer

VERSION = 1  # of everything that an index depends on: fields, analyses, marks

# Fields that exist once for each analysis, such as `title_en`.
ALL = "all"  # all text of a page; every word searched for must be here
TITLE = "title"
HEADS = "heads"  # headings and keywords

URL = "url"
ADDRESS = "address"  # the words of the URL
HOSTS = "hosts"  # for `site:`: the host, each domain above it, and the whole site
LANGUAGE = "language"
ANALYSIS = "analysis"
FETCHED = "fetched"
BODY = "body"  # the text for snippets, compressed

# 64 bits each, read for every candidate.
NUMBER = "number"  # of the URL
DIGEST = "digest"
TITLE_MARK = "title_mark"
MARKS = (NUMBER, DIGEST, TITLE_MARK)

KIND = "kind"
POSITION = "position"  # the kind of the one document that is no page
BATCH = "batch"
ROWS = "rows"

# -- analyses ----------------------------------------------------------------------------------------------

PLAIN = "plain"  # words without stemming: the language is unknown or has no stemmer
SIGNS = "signs"  # character by character
_STEMMERS = {
    "ar": "arabic", "da": "danish", "de": "german", "el": "greek", "en": "english", "es": "spanish",
    "fi": "finnish", "fr": "french", "hu": "hungarian", "it": "italian", "nl": "dutch", "no": "norwegian",
    "pt": "portuguese", "ro": "romanian", "ru": "russian", "sv": "swedish", "ta": "tamil", "tr": "turkish",
}  # fmt: skip
_ALIASES = {"nb": "no", "nn": "no"}
ANALYSES = (*_STEMMERS, PLAIN, SIGNS)

# Nobody types longer words; they would only enlarge the index.
_MAX_WORD_BYTES = 64

# Thai, Lao, Myanmar, Hangul, Khmer, Kana, Han.
_SIGN = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3130-\u318f"
    "\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]"
)
_SCRIPTS = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_SIGN_PATTERN = rf"[{_SCRIPTS}]|[\p{{Alphabetic}}\p{{N}}&&[^{_SCRIPTS}]]+"
_SAMPLE_CHARS = 4_000
_SIGNS_SHARE = 0.1  # of these characters in a text, above which it is analysed by SIGNS


def choose_analysis(language: str, text: str) -> str:
    """The analysis for a text with this BCP 47 tag, which may be empty or nonsense."""
    sample = text[:_SAMPLE_CHARS]
    if not sample.isascii() and len(_SIGN.findall(sample)) > _SIGNS_SHARE * len(sample):
        return SIGNS
    primary = re.split("[-_]", language, maxsplit=1)[0].lower()
    primary = _ALIASES.get(primary, primary)
    return primary if primary in _STEMMERS else PLAIN


def normalized(text: str) -> str:
    """The text in NFC: a separate accent would end a word."""
    return text if text.isascii() or is_normalized("NFC", text) else normalize("NFC", text)


def make_analyzer(analysis: str) -> TextAnalyzer:
    tokenizer = Tokenizer.regex(_SIGN_PATTERN) if analysis == SIGNS else Tokenizer.simple()
    builder = TextAnalyzerBuilder(tokenizer).filter(Filter.remove_long(_MAX_WORD_BYTES))
    builder = builder.filter(Filter.lowercase())
    if analysis in _STEMMERS:
        builder = builder.filter(Filter.stemmer(_STEMMERS[analysis]))
    # After the stemmer, which needs the accents; words typed without accents match as well.
    return builder.filter(Filter.ascii_fold()).build()


def register_analyzers(index: Index) -> None:
    """Registers the analyzers with an index that was just opened; tantivy does not store them."""
    for analysis in ANALYSES:
        index.register_tokenizer(analysis, make_analyzer(analysis))


# -- the schema --------------------------------------------------------------------------------------------


def named(field: str, analysis: str) -> str:
    """The name of a field that exists once for each analysis."""
    return f"{field}_{analysis}"


def make_schema() -> Schema:
    builder = SchemaBuilder()
    for analysis in ANALYSES:
        builder.add_text_field(named(ALL, analysis), tokenizer_name=analysis)
        builder.add_text_field(named(TITLE, analysis), stored=True, tokenizer_name=analysis)
        builder.add_text_field(named(HEADS, analysis), tokenizer_name=analysis)
    builder.add_text_field(ADDRESS, tokenizer_name=PLAIN)
    for name, is_stored in ((URL, True), (HOSTS, False), (LANGUAGE, True), (ANALYSIS, True), (KIND, False)):
        builder.add_text_field(name, stored=is_stored, tokenizer_name="raw", index_option="basic")
    builder.add_float_field(FETCHED, stored=True)
    builder.add_bytes_field(BODY, stored=True)
    for name in MARKS:
        builder.add_unsigned_field(name, fast=True)
    for name in (BATCH, ROWS):
        builder.add_integer_field(name, stored=True)
    return builder.build()
