"""The recorded values of the peers, and the page in docs that shows them."""

import json
from collections.abc import Collection, Mapping
from pathlib import Path

PEERS = ("Chromium", "Scrapy", "wget")
RECORD = Path(__file__).with_name("recorded.json")
PAGE = Path(__file__).parents[2] / "docs/odd-answers.md"

_INTRODUCTION = """\
# Odd answers

*For those who want to know which broken servers Sterna can read.* Not every server keeps to the
standards, and what browsers show is what people call a working page. This table has {count} odd HTTP answers:
status lines, heads, lengths, chunks, compressions, charsets, types, redirects and cookies. It says who reads
the page of each: Chromium {chromium}, Scrapy {scrapy}, wget {wget} and Sterna {sterna}, all without options.

Chromium, Scrapy and wget were measured with `python -m bench.odd --record`. What Sterna reads is tested by
`tests/odd/test_odd.py`; `tests/odd/expected.py` has the reason of each answer that it leaves out. For wget it
counts if the file that it saves has the bytes of the title.

| answer | {peers} | Sterna |
|---|{line}---|
"""


def recorded() -> dict[str, list[str]]:
    """For each case those peers that read it."""
    found: dict[str, list[str]] = json.loads(RECORD.read_text())
    return found


def page_of(record: Mapping[str, Collection[str]], ours: Collection[str]) -> str:
    counts = {peer.lower(): sum(peer in peers for peers in record.values()) for peer in PEERS}
    text = _INTRODUCTION.format(
        count=len(record), sterna=len(ours), peers=" | ".join(PEERS), line="---|" * len(PEERS), **counts
    )
    for name, peers in record.items():
        marks = ["yes" if peer in peers else "-" for peer in PEERS]
        text += f"| {' | '.join((name, *marks, 'yes' if name in ours else '-'))} |\n"
    return text


def write_page(record: Mapping[str, Collection[str]], ours: Collection[str]) -> None:
    PAGE.write_text(page_of(record, ours))
