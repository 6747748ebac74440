"""Numbers of 64 bits that stand for something longer."""

from hashlib import blake2b

from sterna.web.signature import likeness_of

_SAMPLE_CHARS = 2_000
_LEAST_WORDS = 32  # that differ, among these characters
_LIKENESS_CHARS = 20_000  # two pages under one title that begin with the same are alike


def mark_of(text: str) -> int:
    """A number that no other text has, but by a chance of 2^-64."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


def digest_mark(digest: str) -> int:
    """The first half of a digest, which is written in hexadecimal."""
    return int(digest[:16], 16)


def title_mark(title: str) -> int:
    """The same for titles that differ only in case and white space."""
    return mark_of(" ".join(title.casefold().split()))


def likeness_mark(text: str) -> int | None:
    """The signature of a text's words; None where there are too few: by chance they would be like others."""
    if len(set(text[:_SAMPLE_CHARS].split())) < _LEAST_WORDS:
        return None
    return int.from_bytes(likeness_of(text[:_LIKENESS_CHARS]), "big")
