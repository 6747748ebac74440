"""Whether the words of a page's title find the page."""

import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from sterna.search.searcher import Searcher

FIRST = 10
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Quality:
    """Of so many pages, by chance, how many were among the first hits."""

    asked: int
    found: int
    folded: int  # of those found: named as a near-duplicate of a hit
    ambiguous: int  # of those asked: other pages have the same title
    untitled: int  # pages without a title that has a word: nobody can ask for them so
    missed: tuple[tuple[str, str], ...]

    @property
    def share(self) -> float:
        return self.found / self.asked


def title_words_find(
    searcher: Searcher, titled: Sequence[tuple[str, str]], *, count: int, seed: int = 1
) -> Quality:
    """Asks for the titles of `count` pages by chance, as words."""
    words = {url: " ".join(_WORD.findall(title or "")) for url, title in titled}
    candidates = sorted(url for url, said in words.items() if said)
    same = Counter(said.casefold() for said in words.values())
    chosen = random.Random(seed).sample(candidates, min(count, len(candidates)))
    found = folded = 0
    missed = []
    for url in chosen:
        hits = searcher.search(words[url], limit=FIRST).hits
        if url in [hit.url for hit in hits]:
            found += 1
        elif any(url in hit.folded for hit in hits):
            found += 1
            folded += 1
        else:
            missed.append((url, words[url]))
    return Quality(
        asked=len(chosen),
        found=found,
        folded=folded,
        ambiguous=sum(same[words[url].casefold()] > 1 for url in chosen),
        untitled=len(words) - len(candidates),
        missed=tuple(missed),
    )
