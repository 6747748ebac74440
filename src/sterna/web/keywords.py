"""Keywords: the words that say most about a page."""

import re
from collections import Counter
from collections.abc import Collection, Iterable
from functools import cache
from importlib.resources import files
from itertools import chain, pairwise

from sterna.model import Record

MAX_KEYWORDS = 15
_MIN_LENGTH, _MAX_LENGTH = 2, 32  # of a word; what is longer is a digest or a line
# Of a long text only parts are counted, because counting takes the time.
_PARTS, _LEAST_PART, _MOST_PART = 8, 200, 3_000
# What a word weighs for being there, in quarters of what the most frequent word of the text weighs.
_IN_TITLE, _IN_HEADING, _IN_DESCRIPTION = 5, 3, 1
_FEW = 20  # where more words are said twice or more often, those that are said but once tell nothing

_DIGITS = "0123456789_\0" + "".join(chr(zero + n) for zero in (0x660, 0x6F0, 0x966) for n in range(10))
_MARK = "\0"  # which no text of a page holds

Weights = dict[str, int]


def keywords_of(
    title: str, headings: Iterable[str], description: str, text: str, language: str
) -> tuple[str, ...]:
    """Returns the most telling words of a page in lower case, the most telling first.

    `text` is what the page itself says, without its menus. Where a language is written without spaces, each
    two Han characters that stand together count, in Japanese each run of Han characters or katakana; of other
    such languages there are no words.
    """
    told, words = _told(title, " ".join(headings), description, _sample(text))
    counts = Counter(words)
    said = [word for word, count in counts.items() if count > 1]
    if len(said) <= _FEW:
        said = list(counts)
    language, *others = _languages_of(said or list(told), language)
    small = stopwords_of(language) or frozenset()
    for other in others:
        small = small | stop_words().of_language[other]
    weights = {word: counts[word] for word in said if word not in small}
    unit = max(1, max(weights.values(), default=0) // 4)
    for word, weight in told.items():
        if word not in small:
            weights[word] = counts.get(word, 0) + unit * weight
    if language[:2] == "en":
        _fold_plurals(weights)
    return _heaviest(weights)


def _told(title: str, headings: str, description: str, text: str) -> tuple[Weights, list[str]]:
    """Returns the words that announce a page, with what each weighs for it, and the words of its text."""
    # All at once: most of what little text takes is the taking apart itself.
    words = _words_of(f"{description} {_MARK} {headings} {_MARK} {title} {_MARK} {text}")
    first = words.index(_MARK)
    second = words.index(_MARK, first + 1)
    third = words.index(_MARK, second + 1)
    told = dict.fromkeys(words[:first], _IN_DESCRIPTION)
    told.update(dict.fromkeys(words[first + 1 : second], _IN_HEADING))
    for word in dict.fromkeys(words[second + 1 : third]):
        told[word] = told.get(word, 0) + _IN_TITLE
    return told, words[third + 1 :]


def _sample(text: str) -> str:
    """Returns a sixth of a text in parts evenly spread over it; more where it is short."""
    length = min(max(_LEAST_PART, len(text) // (6 * _PARTS)), _MOST_PART)
    if len(text) <= _PARTS * length:
        return text
    step = len(text) // _PARTS
    return " ".join([text[at : at + length] for at in range(0, _PARTS * step, step)])


# Of ASCII all but letters, digits and underscores parts words.
_ASCII = bytes(
    code if code > 127 else ord(chr(code).lower()) if chr(code).isalnum() or chr(code) in "_\0" else ord(" ")
    for code in range(256)
)


# The bytes with which signs begin, from U+0080 to U+00BF and from U+2000 to U+2FFF; then those of Chinese,
# Japanese and Arabic. The bytes after them remain, and are ignored as invalid UTF-8. Looking for the
# signs themselves takes ten times as long.
_SIGNS = (b"\xc2", b"\xe2")
_FAR_SIGNS = (b"\xe3\x80", b"\xef\xbc", b"\xd8\x8c", b"\xd8\x9b", b"\xd8\x9f")
_ALL_BUT_FAR = bytes(byte for byte in range(256) if byte not in b"\xd8\xe3\xe4\xe5\xe6\xe7\xe8\xe9\xef")


def _words_of(text: str) -> list[str]:
    data = text.encode("utf-8", "replace").translate(_ASCII)
    if text.isascii():
        return data.decode().split()
    plain = _parted(data, _SIGNS)
    if plain.isascii():
        return plain.split()
    plain = plain.lower()
    is_far = data.translate(None, _ALL_BUT_FAR)
    return _far_words_of(_parted(plain.encode(), _FAR_SIGNS)) if is_far else plain.split()


def _parted(data: bytes, signs: Iterable[bytes]) -> str:
    for sign in signs:
        data = data.replace(sign, b" ")
    return data.decode("utf-8", "ignore")


_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
# Compiled where they are needed, for that takes time, and many crawls meet no such page.
_HIRAGANA, _OTHERS = "[\u3041-\u309f]", rf"[^\s\u3041-\u30ff{_HAN}]+"
_JAPANESE = f"[{_HAN}]+|[\u30a1-\u30fa\u30fc]+|{_OTHERS}"
_CHINESE = f"([{_HAN}]+)|({_OTHERS})"
_SMALL_HAN = (
    "[的了是在和有我你他她它们們这這那也就都而及与與或之为為以其被从從对對等个個把让讓给給很吗嗎呢吧]"
)


def _far_words_of(text: str) -> list[str]:
    """Returns the words of a text that may be written without spaces."""
    if re.search(_HIRAGANA, text):  # which in Japanese parts the words
        return re.findall(_JAPANESE, text)
    words: list[str] = []
    for han, other in re.findall(_CHINESE, re.sub(_SMALL_HAN, " ", text)):
        words += [other] if other else map("".join, pairwise(han))
    return words


_ALIASES = {"nb": "no", "nn": "no"}
_EVERYWHERE = frozenset({"copyright", "www"})  # on many pages of all languages


class StopWords(Record, frozen=True):
    """The stop words of each language, and the languages of each stop word."""

    of_language: dict[str, frozenset[str]]
    languages_of: dict[str, list[str]]


@cache
def stop_words() -> StopWords:
    """Reads the list, which is a file of the package; once, and only where keywords are wanted."""
    lines = files("sterna.web").joinpath("stopwords.txt").read_text(encoding="utf-8").splitlines()
    lists = (line.split() for line in lines if not line.startswith("#"))
    of_language = {code: _EVERYWHERE.union(words) for code, *words in lists}
    languages_of: dict[str, list[str]] = {}
    for language, words in of_language.items():
        for word in words:
            languages_of.setdefault(word, []).append(language)
    return StopWords(of_language, languages_of)


def stopwords_of(language: str) -> frozenset[str] | None:
    """Returns the stop words of a language, "en" or "pt-br"; None for an unknown one."""
    code = language.partition("-")[0]
    return stop_words().of_language.get(_ALIASES.get(code, code))


_MANY = 15  # among this many words, at least a fifth should be stop words of the declared language
_SURE = 8  # this many different stop words of a language are rare in a text of another


def _languages_of(words: Collection[str], declared: str) -> list[str]:
    """Returns the declared language if it is plausible, else those with the most stop words in the text."""
    small = stopwords_of(declared)
    if small is not None and (len(words) < _MANY or 5 * len(small.intersection(words)) >= len(words)):
        return [declared]
    known = stop_words()
    common = known.languages_of.keys() & words
    english = len(known.of_language["en"].intersection(words))
    if english >= _SURE and 2 * (len(common) - english) < english:
        return ["en"]  # as most are, and this is quick
    hits = Counter(chain.from_iterable(map(known.languages_of.__getitem__, common)))
    most = max(hits.values(), default=0)
    best = max([each for each in hits if hits[each] == most], default=declared)
    return [best, *[each for each in hits if hits[each] >= max(_SURE, most // 2) and each != best]]


def _fold_plurals(weights: Weights) -> None:
    """Counts an English word's plural with the word, under the form that weighs more."""
    for plural in [word for word in weights if word[-1] == "s"]:
        word = next(filter(weights.__contains__, _singulars_of(plural)), "")
        if len(word) > _MIN_LENGTH and plural in weights:
            light, heavy = (plural, word) if weights[word] >= weights[plural] else (word, plural)
            weights[heavy] += weights.pop(light)


def _singulars_of(plural: str) -> tuple[str, ...]:
    if plural[-3:] == "ies":
        return plural[:-1], plural[:-3] + "y"
    is_hissed = plural[-2:] == "es" and plural[:-2].endswith(("s", "x", "ch", "sh"))
    return (plural[:-1], plural[:-2]) if is_hissed else (plural[:-1],)


def _heaviest(weights: Weights) -> tuple[str, ...]:
    """Returns the words that weigh most; those that weigh the same in the order of the alphabet."""
    ranked = sorted(weights)
    ranked.sort(key=weights.__getitem__, reverse=True)
    for some in (ranked[: 2 * MAX_KEYWORDS], ranked):
        words = [word for word in some if word.strip(_DIGITS) and _MIN_LENGTH <= len(word) <= _MAX_LENGTH]
        if len(words) >= MAX_KEYWORDS:
            break
    return tuple(words[:MAX_KEYWORDS])
