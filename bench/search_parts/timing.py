"""How long searches take, ours beside those of SQLite's FTS5 over the same texts."""

import random
import re
import sqlite3
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.search_parts.corpus import SITES, Made

from sterna.search.searcher import Searcher

_WORD = re.compile(r"[a-z]{3,20}")
_SQL = """
    SELECT url, title, snippet(page, 2, '<', '>', '...', 30) FROM page
    WHERE page MATCH ? ORDER BY bm25(page, 0, 3, 1, 0) LIMIT 10
"""


@dataclass(frozen=True, slots=True)
class Question:
    """The same search for both."""

    kind: str
    ours: str
    theirs: str


@dataclass(frozen=True, slots=True)
class Times:
    """Milliseconds of one kind of search."""

    kind: str
    median: float
    p99: float
    cpu_median: float  # of this process: what is left of it where other work holds it up
    cpu_p99: float
    hits: float  # in the mean


def questions(pages: Sequence[Made], *, count: int, seed: int = 3) -> list[Question]:
    """As many of each kind, from the pages' own words, in turn."""
    chance = random.Random(seed)
    sample = chance.sample(list(pages), min(2_000, len(pages)))
    spread = Counter(word for page in sample for word in set(_WORD.findall(page.text.lower())))
    frequent = [word for word, _ in spread.most_common(40)]
    rare = sorted(word for word, number in spread.items() if number == 1)
    usual = sorted(word for word, number in spread.items() if len(sample) / 200 < number < len(sample) / 10)

    def phrase() -> str:
        while True:
            words = _WORD.findall(chance.choice(sample).text.lower()[:20_000])
            at = chance.randrange(max(1, len(words) - 3))
            found = re.search(r"\b[a-z]{3,20} [a-z]{3,20}(?: [a-z]{3,20})?\b", " ".join(words[at : at + 3]))
            if found:
                return found[0]

    def ask(kind: str) -> Question:
        match kind:
            case "one word":
                words = [chance.choice(usual)]
            case "two words":
                words = [chance.choice(usual), chance.choice(usual)]
            case "rare word":
                words = [chance.choice(rare)]
            case "frequent word":
                words = [chance.choice(frequent)]
            case "phrase":
                said = phrase()
                return Question(kind, f'"{said}"', f'"{said}"')
            case _:
                word, host = chance.choice(usual), f"www{chance.randrange(SITES)}.example.org"
                return Question(kind, f"{word} site:{host}", f'"{word}" AND site : "{host}"')
        return Question(kind, " ".join(words), " AND ".join(f'"{word}"' for word in words))

    kinds = ("one word", "two words", "rare word", "frequent word", "phrase", "site:")
    return [ask(kinds[number % len(kinds)]) for number in range(count)]


def our_times(searcher: Searcher, asked: Sequence[Question]) -> list[Times]:
    """Milliseconds with ten hits, their snippets and counts."""
    for question in asked[:60]:
        searcher.search(question.ours)
    return _times(asked, lambda question: len(searcher.search(question.ours).hits))


def their_times(path: Path, asked: Sequence[Question]) -> list[Times]:
    """The same by SQLite, without counts."""
    db = sqlite3.connect(path)
    run: Callable[[Question], int] = lambda question: len(db.execute(_SQL, (question.theirs,)).fetchall())  # noqa: E731
    for question in asked[:60]:
        run(question)
    times = _times(asked, run)
    db.close()
    return times


def fill_sqlite(path: Path, pages: Iterable[Made]) -> float:
    """Seconds to fill an FTS5 table with stems and positions."""
    began = time.perf_counter()
    db = sqlite3.connect(path)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute(
        "CREATE VIRTUAL TABLE page"
        " USING fts5(url UNINDEXED, title, text, site, tokenize = 'porter unicode61')"
    )
    rows = ((page.url, page.title, page.text, page.url.split("/")[2]) for page in pages)
    with db:
        db.executemany("INSERT INTO page VALUES (?, ?, ?, ?)", rows)
    db.execute("INSERT INTO page(page) VALUES ('optimize')")
    db.commit()
    db.close()
    return time.perf_counter() - began


def _times(asked: Sequence[Question], run: Callable[[Question], int]) -> list[Times]:
    spent: dict[str, list[tuple[float, float, int]]] = {}
    for question in asked:
        began, cpu_began = time.perf_counter(), time.process_time()
        hits = run(question)
        cpu, seconds = time.process_time() - cpu_began, time.perf_counter() - began
        spent.setdefault(question.kind, []).append((1000 * seconds, 1000 * cpu, hits))
    spent["all"] = [each for many in spent.values() for each in many]
    return [
        Times(
            kind,
            statistics.median(ms for ms, _, _ in many),
            statistics.quantiles((ms for ms, _, _ in many), n=100)[98],
            statistics.median(cpu for _, cpu, _ in many),
            statistics.quantiles((cpu for _, cpu, _ in many), n=100)[98],
            statistics.mean(hits for _, _, hits in many),
        )
        for kind, many in spent.items()
    ]
