"""The documents as a whole: links lead somewhere, pages say whom they are for, the site has all of them."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
DECISIONS = sorted((ROOT / "docs/decisions").glob("0*.md"))
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
    *(ROOT / f"{folder}/README.md" for folder in ("bench", "deploy", "examples", "docs/decisions")),
    *sorted((ROOT / "docs").glob("*.md")),
]


def test_links_between_documents_lead_somewhere() -> None:
    for document in [*PAGES, *DECISIONS]:
        for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", document.read_text()):
            path = document.parent / target if target else document
            assert path.exists(), f"{document.name} points to {target}, which is not there"
            assert not anchor or anchor in anchors(path), f"{document.name} points to {target}#{anchor}"


def anchors(page: Path) -> list[str]:
    """The headings of a page as GitHub makes anchors of them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]


def test_every_page_says_whom_it_is_for() -> None:
    pages = [page for page in PAGES if page != ROOT / "README.md"]
    first = {page.name: page.read_text().split("\n\n")[1].lstrip("*") for page in pages}
    assert [name for name, text in first.items() if not text.startswith("For ")] == []


def test_site_has_every_page() -> None:
    listed = (ROOT / "mkdocs.yml").read_text()
    names = [str(page.relative_to(ROOT)) for page in PAGES]
    assert [name for name in names if f": {name}\n" not in listed] == []


def test_list_of_decisions_is_whole() -> None:
    listed = (ROOT / "docs/decisions/README.md").read_text()
    assert [path.name for path in DECISIONS if f"({path.name})" not in listed] == []


def test_architecture_page_names_every_module_and_nothing_else() -> None:
    """So whoever looks for a behaviour finds its file there."""
    text = (ROOT / "docs/architecture.md").read_text()
    named = {path.removesuffix("/") for path in re.findall(r"`([a-z_0-9]+/[a-z_0-9/]*)(?:\.\w+)?`", text)}
    source = ROOT / "src/sterna"
    found = {
        path
        for path in named
        for end in ("", ".py")
        for root in (source, ROOT)
        if (root / f"{path}{end}").exists()
    }
    assert named - found == set()
    modules = {str(path.relative_to(source)).removesuffix(".py") for path in source.glob("*/**/*.py")}
    assert [each for each in sorted(modules - named) if not each.endswith("__init__")] == []
