"""Crawlers as files: a spec, a packed crawler, or the crawler of a collection with its progress."""

import difflib
import shlex
from collections.abc import Sequence
from pathlib import Path

import msgspec

from sterna.crawler.compiler import budget_of, compile_spec, gather_of
from sterna.crawler.pack import SIGNED_AS, SUFFIX, PackedCrawler, read, signed_part
from sterna.crawler.spec import Spec, load_spec
from sterna.errors import SpecError, UsageError, WireError
from sterna.home.errand import choose_errand
from sterna.home.errand import load as load_errand
from sterna.home.folder import CollectionFolder
from sterna.home.options import Options
from sterna.home.options import load as load_options
from sterna.web.urls import Canonical, site_of
from sterna.wire.keys import Identity, PublicKey


def is_file(text: str) -> bool:
    """True if an argument names a crawler's file, not a URL."""
    return text.endswith((".toml", SUFFIX)) and "://" not in text


def check_argument(text: str) -> None:
    """Raises UsageError for a file or folder that would be taken for a hostname, such as spec.yaml."""
    if "://" in text or not text.strip():
        return
    path, kinds = Path(text), f"a spec ends in .toml, a packed crawler in {SUFFIX}"
    try:
        is_there, is_folder = path.is_file(), path.is_dir()
    except (OSError, ValueError):  # too long for a path, or a NUL
        return
    if is_file(text):
        if not is_there and (near := _nearest(path)):
            raise UsageError(f"there is no file {text}: did you mean {near}?")
    elif is_there:
        raise UsageError(f"{text} is a file, but not a crawler: {kinds}")
    elif is_folder and "." not in text.partition("/")[0] and CollectionFolder(path).is_collection():
        command = shlex.join(["sterna", "crawl", "--into", text])
        raise UsageError(f"{text} is a collection: to continue it: {command}")
    elif path.suffix.lower() in _NO_DOMAINS and "/" not in text.rstrip("/"):
        near = _nearest(path)
        hint = f"did you mean {near}?" if near else kinds
        raise UsageError(f"there is no file {text}, and no site is called so: {hint}")


# Endings of files that are no top-level domains; others, such as .py and .md, are both.
_NO_DOMAINS = frozenset({
    ".cfg", ".clp", ".conf", ".csv", ".htm", ".html", ".ini", ".json", ".jsonl", ".parquet", ".sql", ".tml",
    ".tmol", ".tolm", ".txt", ".warc", ".xml", ".yaml", ".yml",
})  # fmt: skip


def _nearest(path: Path) -> str:
    """The crawler's file beside it whose name is most like this one; "" if none is."""
    try:
        names = [each.name for each in path.parent.iterdir() if is_file(each.name)]
    except OSError:
        return ""
    near = difflib.get_close_matches(path.name, names, n=1, cutoff=0.7)
    return str(path.with_name(near[0])) if near else ""


def read_crawler(path: Path) -> PackedCrawler:
    """The crawler of a spec or a packed file; SpecError if it was changed after it was signed."""
    if path.suffix != SUFFIX:
        return packed_of(load_spec(path), path.parent)
    packed = read(path)
    if (crawler := packed.crawler).author:
        try:
            PublicKey.parse(crawler.author).verify(SIGNED_AS, signed_part(crawler), crawler.signature)
        except WireError as error:
            changed = f"{path} was changed after it was signed ({error.detail})"
            raise SpecError(f"{changed}: get it again") from error
    return packed


def signed(packed: PackedCrawler, author: Identity) -> PackedCrawler:
    """The crawler with its author's signature over name and program."""
    crawler = packed.crawler
    signature = author.sign(SIGNED_AS, signed_part(crawler))
    crawler = msgspec.structs.replace(crawler, author=author.public.text, signature=signature)
    return msgspec.structs.replace(packed, crawler=crawler)


def crawler_and_urls(given: Sequence[str]) -> tuple[PackedCrawler | None, list[str]]:
    """The crawler of the one file among the arguments, if any, and the URLs; UsageError for more files."""
    for text in given:
        check_argument(text)
    files = [text for text in given if is_file(text)]
    if len(files) > 1:
        raise UsageError(f"one crawler at a time: {files[0]} or {files[1]}")
    return read_crawler(Path(files[0])) if files else None, [text for text in given if not is_file(text)]


def packed_of(spec: Spec, folder: Path) -> PackedCrawler:
    """A spec with everything that home needs to send it out; `folder` contains its rules."""
    return PackedCrawler(
        crawler=compile_spec(spec, folder),
        options=spec.options(),
        budget=budget_of(spec),
        journey=spec.journey_sites(),
        gather=gather_of(spec, folder),
    )


def seeds_of(packed: PackedCrawler | None) -> tuple[str, ...]:
    own = packed.options.get("seeds", ()) if packed else ()
    assert isinstance(own, tuple | list)
    return tuple(own)


def kept_crawler(folder: CollectionFolder) -> tuple[PackedCrawler, Options]:
    with folder.open_ledger() as ledger:
        options = load_options(ledger.setting("options"))
        return choose_errand(None, load_errand(ledger.setting("errand")), options), options


def saved_crawler(folder: CollectionFolder, site: str = "") -> PackedCrawler:
    """The collection's crawler with its progress at a site, to continue elsewhere.

    Without `site` the collection must have one site only; UsageError lists them if it has more.
    """
    folder.check()
    errand, options = kept_crawler(folder)
    with folder.open_ledger() as ledger:
        sites = [row.site for row in ledger.site_rows()]
        canonical = Canonical()(site) if site else None
        if canonical and site_of(canonical) in sites:
            chosen = site_of(canonical)
        elif not site and len(sites) == 1:
            chosen = sites[0]
        else:
            raise UsageError(f"choose one of its sites with --site: {', '.join(sorted(sites)[:20])}")
        progress = ledger.progress(chosen)
    seeds = tuple(url for url in options.seed_urls() if site_of(url) == chosen) or (f"{chosen}/",)
    return msgspec.structs.replace(
        errand, progress=progress, options={**errand.options, "seeds": seeds}, journey=(), gather=()
    )
