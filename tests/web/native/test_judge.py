"""The tree as the judge of the reader in C: what it reads, and what becomes of a difference."""

import pytest

from sterna.model import DEFAULT_FIELDS, Field
from sterna.web.markup import Findings
from sterna.web.native.judge import JudgedReader, is_different
from sterna.web.native.reader import NativeReader
from sterna.web.walk import read_tree

PAGE = "<title>tern</title><p>ice <a href=/a>one</a><img src=b>"
LINKS: tuple[Field, ...] = ("links",)
DOUBTFUL = "<a href=x><table><tr><td>tern"


tell = NativeReader.read


def read(reader: JudgedReader, text: str) -> Findings:
    return reader(text, agent="sterna", wants=DEFAULT_FIELDS)


def lie(self: NativeReader, text: str, **_: object) -> Findings:
    tell(self, text, agent="sterna", wants=DEFAULT_FIELDS)
    found = Findings("sterna")
    found.title = "gull"
    return found


def test_page_of_which_c_is_sure_has_no_tree() -> None:
    assert not isinstance(read(JudgedReader(one_in=10**9), PAGE), type(read_tree(PAGE, agent="sterna")))


def test_page_of_which_c_is_in_doubt_is_read_by_the_tree() -> None:
    found = read(JudgedReader(one_in=10**9), DOUBTFUL)
    assert (found.text, found.differs) == ("tern", False)


def test_sample_that_both_read_alike_is_told_as_such() -> None:
    assert not read(JudgedReader(one_in=1), PAGE).differs


def test_difference_is_told_and_the_tree_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NativeReader, "read", lie)
    found = read(JudgedReader(one_in=1), PAGE)
    assert (found.title, found.differs) == ("tern", True)


def test_one_page_in_so_many_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NativeReader, "read", lie)
    reader = JudgedReader(one_in=20)
    judged = sum(read(reader, PAGE).differs for _ in range(4_000))
    assert 120 <= judged <= 290  # 200, give or take six times the standard deviation


@pytest.mark.parametrize("change", ["title", "text", "language", "base"])
def test_each_text_counts_where_it_is_wanted(change: str) -> None:
    one, other = read_tree(PAGE, agent="sterna"), read_tree(PAGE, agent="sterna")
    setattr(other, change, "gull")
    assert is_different(one, other, DEFAULT_FIELDS)
    assert is_different(one, other, LINKS) == (change in ("language", "base"))


def test_order_of_links_counts() -> None:
    one, other = (
        read_tree("<a href=a></a><a href=b></a>", agent="s"),
        read_tree("<a href=b></a><a href=a></a>", agent="s"),
    )
    assert is_different(one, other, LINKS)
