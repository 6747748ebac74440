"""The table of imports in docs/architecture.md holds, lazy and type-only imports included."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "sterna"
EVERYONE = {"errors", "model", "toml", "version"}


@cache
def modules() -> dict[str, Path]:
    """Every module of ours by its name; a package is named without `__init__`."""
    found = {}
    for path in SOURCE.rglob("*.py"):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def names_in(path: Path) -> Iterator[str]:
    """What a module imports, wherever in it the import stands: `a.b` for `from a import b` as well."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@cache
def imports_of(module: str) -> frozenset[str]:
    """The modules of ours that a module imports."""
    ours = {name for name in names_in(modules()[module]) if name.split(".")[0] == "sterna"}
    return frozenset(name if name in modules() else name.rpartition(".")[0] for name in ours)


def room_of(module: str) -> str:
    """The package of ours, or the root module, to which a module belongs; "sterna" is `sterna/__init__`."""
    return module.split(".")[1] if "." in module else "sterna"


@cache
def table() -> dict[str, set[str]]:
    """Package to the packages it may import, as the architecture page says."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", text, re.MULTILINE)
    return {name: set(re.findall(r"`(\w+)`", allowed)) for name, allowed in rows}


def packages() -> list[str]:
    return sorted(path.parent.name for path in SOURCE.glob("*/__init__.py"))


def cycles(graph: dict[str, set[str]]) -> list[set[str]]:
    """The groups of nodes that reach each other."""
    reached = {node: reach(node, graph) for node in graph}
    groups = {
        frozenset(other for other in reached[node] if node in reached[other])
        for node in graph
        if node in reached[node]
    }
    return [set(group) for group in groups]


def reach(start: str, graph: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting.extend(graph[node])
    return found


def test_table_names_every_package() -> None:
    assert sorted(table()) == packages()


@pytest.mark.parametrize("package", packages())
def test_imports_point_one_way(package: str) -> None:
    allowed = table()[package] | EVERYONE | {package}
    for module in modules():
        if room_of(module) == package:
            wrong = {other for other in imports_of(module) if room_of(other) not in allowed}
            assert not wrong, f"{module} imports {wrong}"


def test_table_has_no_cycle() -> None:
    assert cycles(table()) == []


def test_what_everyone_may_import_imports_almost_nothing_of_ours() -> None:
    assert {name: imports_of(f"sterna.{name}") for name in sorted(EVERYONE)} == {
        "errors": frozenset(),
        "model": frozenset(),
        "toml": {"sterna.errors"},
        "version": frozenset(),
    }


def test_a_cycle_is_seen() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a", "d"}}
    assert sorted(map(sorted, cycles(graph))) == [["b", "c"], ["d"]]


def test_modules_have_no_cycle() -> None:
    assert cycles({module: set(imports_of(module)) for module in modules()}) == []


def test_nothing_imports_the_command_line() -> None:
    users = {
        module
        for module in modules()
        if room_of(module) not in ("cli", "__main__")
        and any(room_of(other) == "cli" for other in imports_of(module))
    }
    assert users == set()


# Who may import what decodes or parses the bytes of strangers: it runs in cells only.
READING: dict[str, set[str]] = {
    "sterna.runtime.reader.serve": set(),  # an entry of cells
    "sterna.export.markdown_cell.serve": set(),
    "sterna.export.markdown.to_markdown": {"sterna.export.markdown_cell"},
    "sterna.web.document.read_document": {"sterna.runtime.reader"},
    "sterna.web.sitemap.read_sitemap": {"sterna.web.document"},
    "sterna.web.html.read_html": {"sterna.web.document"},
    "sterna.web.extraction.extract": {"sterna.web.document"},
    "sterna.web.tree.parse": {"sterna.web.walk", "sterna.web.extraction", "sterna.export.markdown"},
    "sterna.web.content_coding.decode": {"sterna.web.document"},
    "sterna.web.content_coding.decode_start": {"sterna.web.document"},
    "sterna.web.content_coding.decode_body": {"sterna.web.sitemap", "sterna.export.markdown_cell"},
}
# Who may import what parses the files of a collection, which may be a stranger's: works of confined processes
# and what they call, and what commands call that are confined themselves.
PARSING: dict[str, set[str]] = {
    "sterna.archive.parquet.merged": {"sterna.archive.confined", "sterna.archive.segments"},
    "sterna.archive.parquet.rows_of": {"sterna.archive.segments"},
    "sterna.archive.parquet.tables_in": {"sterna.archive.confined"},
    "sterna.archive.arrivals.arrivals": {
        "sterna.archive.confined",
        "sterna.archive.segments",
        "sterna.storage.chunks",
        "sterna.search.indexer",
        "sterna.search.link_count",
    },
    "sterna.archive.arrivals.count": {
        "sterna.api.followers",  # in the process that indexes
        "sterna.api.search",
        "sterna.api.status",
    },
    "sterna.storage.chunks.read_chunks": {"sterna.storage.confined"},
    "sterna.search.indexer.Indexer": {"sterna.api.search", "sterna.api.followers"},
    "sterna.search.searcher.Searcher": {"sterna.api.search", "sterna.cli.search"},
    "sterna.api.query.open_collection": {
        "sterna.api.confined_works",
        "sterna.api.export",
        "sterna.api.ask",  # of what it crawled itself
        "sterna.cli.ask",
        "sterna.cli.query",
    },
    "sterna.api.search.bring_up": {"sterna.api.confined_works", "sterna.api.repair", "sterna.cli.search"},
    "sterna.api.export.export": {"sterna.api.confined_works", "sterna.cli.export"},
    "sterna.api.confined_works.query_frames": set(),  # an entry of confined processes
}
# And libraries; of those that have other uses too, the uses are Sterna's own files and messages.
DECODERS = {
    "brotli": {"sterna.web.content_coding"},
    "selectolax": {
        "sterna.web.tree",
        "sterna.web.walk",
        "sterna.web.extraction",
        "sterna.export.markdown",
        "sterna.export.main_content",
    },
    "xml": {"sterna.web.sitemap"},
    "zlib": {
        "sterna.web.content_coding",
        "sterna.web.signature",  # crc32 alone
        "sterna.search.generations",  # crc32 alone
        "sterna.home.belief.quarantine",  # crc32 alone
        "sterna.archive.warc_scan",  # WARC files of a collection
        "sterna.host.owner.access_log",  # the owner's own logs
    },
    "zstandard": {
        "sterna.wire.holdings",  # of a host, sealed
        "sterna.web.content_coding",
        "sterna.wire.compression",  # messages, after their seal was verified
        "sterna.wire.known",
        "sterna.wire.orders",
        "sterna.crawler.pack",  # crawlers' files
        "sterna.home.away.luggage",  # files that Sterna wrote
        "sterna.home.belief.quarantine",
        "sterna.host.visiting.logbook",
        "sterna.search.documents",
    },
}


@pytest.mark.parametrize("function", READING)
def test_what_reads_the_bytes_of_strangers_is_called_in_cells_only(function: str) -> None:
    module = function.rpartition(".")[0]
    users = {
        other
        for other, path in modules().items()
        if {function, module} & set(names_in(path)) and other != module
    }
    assert users == READING[function]


@pytest.mark.parametrize("function", PARSING)
def test_what_parses_a_collection_has_known_users(function: str) -> None:
    module, _, name = function.rpartition(".")
    room, _, last = module.rpartition(".")
    users = {
        other
        for other, path in modules().items()
        if function in names_in(path)
        or (f"{room}.{last}" in names_in(path) and re.search(rf"\b{last}\.{name}\(", path.read_text()))
    } - {module}
    assert users == PARSING[function]


@pytest.mark.parametrize("library", DECODERS)
def test_decoders_of_the_bytes_of_strangers_have_known_users(library: str) -> None:
    users = {
        module
        for module, path in modules().items()
        if any(name.split(".")[0] == library for name in names_in(path))
    }
    assert users == DECODERS[library]
