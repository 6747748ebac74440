"""The language of a text that does not say it: by its script, else by the small words of each language.

A guess is made only where one language is far ahead of the others; a short or mixed text has none.
"""

import re
from collections import Counter

from sterna.web.keywords import stop_words

_SAMPLE = 2_000  # letters, from behind the beginning, where menus and names are
_SKIPPED = 200
_LEAST_WORDS, _MOST_WORDS = 20, 300
_SURE_SHARE, _SURE_LEAD = 0.16, 1.25  # of the words that are small ones, and before the second language
_LEAST_LETTERS = 20  # of a script
_WORDS = re.compile(r"[^\W\d_]+")
_ONLY_LETTERS = bytes(byte if chr(byte).isalpha() else ord(" ") for byte in range(128)) + bytes(128)
# The scripts of which one language is by far the most common on the web.
_SCRIPTS = {
    "ja": re.compile("[\u3040-\u30ff]"),
    "zh": re.compile("[\u4e00-\u9fff]"),
    "ko": re.compile("[\uac00-\ud7af]"),
    "th": re.compile("[\u0e00-\u0e7f]"),
    "el": re.compile("[\u0370-\u03ff]"),
    "he": re.compile("[\u0590-\u05ff]"),
    "hy": re.compile("[\u0530-\u058f]"),
    "ka": re.compile("[\u10a0-\u10ff]"),
    "bn": re.compile("[\u0980-\u09ff]"),
    "ta": re.compile("[\u0b80-\u0bff]"),
    "te": re.compile("[\u0c00-\u0c7f]"),
}
_OTHER_SCRIPT = re.compile("[\u0370-\u03ff\u0530-\u05ff\u0980-\u0e7f\u10a0-\u10ff\u3040-\ud7af]")
# What no text of this length lacks; near languages that are not known here, such as Bulgarian, lack it.
_NEEDED = {
    "es": re.compile(r"\b(?:y|los|las)\b"),
    "nl": re.compile(r"\bhet\b"),
    "ru": re.compile("[ыэ]"),
    "uk": re.compile("[іїє]"),
}
_KANA_SHARE = 0.1  # of a Japanese text
_SCRIPT_SHARE = 0.3  # of the letters


def guess_language(text: str) -> str:
    """The language of the text, such as "de"; "" if it is too short, mixed, or of no language known here."""
    sample = text[_SKIPPED : _SKIPPED + _SAMPLE] if len(text) > 2 * _SAMPLE else text[:_SAMPLE]
    if not sample.isascii() and _OTHER_SCRIPT.search(sample) and (language := _by_script(sample)):
        return language
    sample = sample.lower()
    words = _words_of(sample)[:_MOST_WORDS]
    if len(words) < _LEAST_WORDS:
        return ""
    known, counts = stop_words().languages_of, Counter(words)
    hits, alone = Counter[str](), Counter[str]()
    for word in counts.keys() & known.keys():
        languages = known[word]
        for language in languages:
            hits[language] += counts[word]
        if len(languages) == 1:
            alone[languages[0]] += counts[word]
    ranked = sorted(hits, key=lambda each: (hits[each], alone[each]), reverse=True)
    if not ranked or hits[ranked[0]] < _SURE_SHARE * len(words):
        return ""
    best, *others = ranked
    for other in others[:1]:  # by what both have, or else by what only one of them has
        if hits[best] < _SURE_LEAD * hits[other] and alone[best] < 3 * alone[other] + 2:
            return ""
    needed = _NEEDED.get(best)
    return best if needed is None or needed.search(sample) else ""


def _words_of(sample: str) -> list[str]:
    if sample.isascii():  # as the pattern finds them, at a fifth of the cost
        return sample.encode().translate(_ONLY_LETTERS).decode().split()
    return _WORDS.findall(sample)


def _by_script(sample: str) -> str:
    letters = sum(map(str.isalpha, sample))
    counts = {language: len(script.findall(sample)) for language, script in _SCRIPTS.items()}
    if counts["ja"] >= _LEAST_LETTERS and counts["ja"] >= _KANA_SHARE * letters:
        return "ja"
    best = max(counts, key=counts.__getitem__)
    return best if counts[best] >= max(_LEAST_LETTERS, _SCRIPT_SHARE * letters) else ""
