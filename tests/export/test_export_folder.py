"""A folder of Markdown files: of a real site by its WARC files, of kept HTML, and of text alone."""

import re
from pathlib import Path

import msgspec
import pytest
from tests.export.exported import SITE, export, page, source_of

from sterna.archive.warc import WarcStore
from sterna.export.folder import write_folder, yaml_text
from sterna.export.markdown import text_to_markdown
from sterna.export.warc import WarcFile, find
from sterna.model import Page, Raw


def folder_of(
    tmp_path: Path, *pages: Page, where: str = "", warcs: tuple[WarcFile, ...] = ()
) -> dict[str, str]:
    """Path to text of the files that are made of these pages."""
    (tmp_path / "work").mkdir()
    with source_of(*pages, where=where, warcs=warcs, scratch=tmp_path / "work") as source:
        count = write_folder(source, tmp_path / "made")
    made = {
        str(path.relative_to(tmp_path / "made")): path.read_text()
        for path in (tmp_path / "made").rglob("*")
        if path.is_file()
    }
    assert len(made) == count
    return made


@pytest.mark.servers
def test_real_site_becomes_readable_files(real_collection: Path, tmp_path: Path) -> None:
    out = export(real_collection, "markdown", tmp_path / "md")
    files = [path for path in out.rglob("*") if path.is_file()]
    rows = export(real_collection, "jsonl", tmp_path / "p.jsonl", where="text IS NOT NULL").read_text()
    assert len(files) == len(rows.splitlines()) > 50
    assert all(path.suffix == ".md" for path in files)
    (text,) = [path.read_text() for path in files if path.name == "lang_select.md"]
    head, body = re.fullmatch(r"---\n(.*?)---\n\n(.*)", text, re.DOTALL).groups()  # type: ignore[union-attr]
    fields = dict(line.split(": ", 1) for line in head.splitlines())
    assert msgspec.json.decode(fields["title"]) == "SELECT"
    assert fields["url"].endswith('/lang_select.html"')
    assert re.fullmatch(r'"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"', fields["fetched"])
    assert re.search(r"^# 1\. Overview$", body, re.MULTILINE)
    assert re.search(r"\[\S+\]\(http://127\.0\.0\.1:\d+/\w+\.html\)", body)
    assert "<table" not in body


def test_kept_html_is_what_is_written(tmp_path: Path) -> None:
    made = folder_of(
        tmp_path, page("/a.html", title='A "b"\n', language="en", html="<h1>Hi</h1><a href=b>c</a>")
    )
    assert made == {
        "www.example.org/a.md": (
            '---\nurl: "https://www.example.org/a.html"\ntitle: "A \\"b\\"\\n"\n'
            'fetched: "2023-11-14T22:13:20Z"\nlanguage: "en"\n---\n\n'
            f"# Hi\n\n[c]({SITE}/b)\n"
        )
    }


def test_without_html_the_text_is_written_with_its_headings(tmp_path: Path) -> None:
    text = "Menu Birds Terns Terns fly far. *Not* near. Gulls They stay."
    made = folder_of(tmp_path, page("/a", text=text, headings=("Terns", "Gulls")))
    (content,) = made.values()
    assert content.endswith(
        "---\n\nMenu Birds\n\n## Terns\n\nTerns fly far. \\*Not\\* near.\n\n## Gulls\n\nThey stay.\n"
    )


def test_headings_are_words_of_their_own_and_in_order() -> None:
    assert text_to_markdown("Intern Tern b a", ("Tern", "a", "b", "")) == "Intern\n\n## Tern\n\nb\n\n## a\n"
    assert text_to_markdown("", ("x",)) == ""


def test_response_is_taken_if_it_is_of_the_page_or_later(tmp_path: Path) -> None:
    def answered(path: str, fetched: float, body: bytes) -> Page:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=iso-8859-1\r\n\r\n"
        raw = Raw(b"GET / HTTP/1.1\r\n\r\n", head, body, "192.0.2.1")
        return page(path, fetched=fetched, raw=raw)

    store = WarcStore(tmp_path / "warc", software="test")
    positions = store.append([
        answered("/same", 1_000.25, b"<p>f\xfcr"),
        answered("/later", 900.0, b"<p>old"),
        answered("/later", 2_000.0, b"<p>new"),
        answered("/stale", 500.0, b"<p>stale"),
    ])  # fmt: skip
    files, _ = find(tmp_path / "warc", positions)
    pages = [page(path, fetched=1_000.25, text="text") for path in ("/same", "/later", "/stale")]
    made = folder_of(tmp_path, *pages, warcs=tuple(files))
    bodies = {path.rpartition("/")[2]: text.rpartition("---\n\n")[2] for path, text in made.items()}
    assert bodies == {"same.md": "für\n", "later.md": "new\n", "stale.md": "text\n"}


def test_pages_that_say_nothing_have_no_file(tmp_path: Path) -> None:
    pages = [page("/a", text="words"), page("/b"), page("/c", text="gone", status=404)]
    assert list(folder_of(tmp_path, *pages)) == ["www.example.org/a.md"]


def test_condition_chooses_pages(tmp_path: Path) -> None:
    pages = [page("/a", text="words"), page("/b", text="words")]
    assert list(folder_of(tmp_path, *pages, where="url LIKE '%/b'")) == ["www.example.org/b.md"]


def test_front_matter_holds_any_title_in_a_line() -> None:
    assert yaml_text("a\u2028b\x85\x07\U000e0001ä") == '"a\\u2028b\\u0085\\u0007\\U000e0001ä"'
