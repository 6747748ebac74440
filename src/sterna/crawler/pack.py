"""A crawler as a file: its program, its facts and its progress; data alone, of which nothing is run here."""

import struct
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
import zstandard

from sterna.crawler.compiler import check_crawler
from sterna.crawler.outline import RuleFile, outline, printable
from sterna.crawler.rules import check_rules
from sterna.crawler.spec import CrawlOptions, OptionValue
from sterna.crawler.spec_fields import shown
from sterna.crawler.wording import describe as describe_predicate
from sterna.errors import SpecError, UsageError
from sterna.model import Budget, Crawler, Field, Keep, Predicate, Record, Scope, Source, State, Target

SUFFIX = ".crawler"
MAX_PACKED_BYTES = 64 * 1024 * 1024  # of the file, and of what comes out of it

# As PNG begins: bytes that no text has, so that a transfer as text is noticed.
_MAGIC = b"\x89STERNA\r\n\x1a\n"
_VERSION = 1
_HEAD = struct.Struct(">HQ32s")  # version, size of the content, its checksum
_LEVEL = 9
_FINGERPRINT_BYTES = 8


class Progress(Record, frozen=True, kw_only=True):
    """How far a crawler has come: what it remembers, what it still has to fetch, what it has seen."""

    state: State = State()
    frontier: tuple[Target, ...] = ()
    seen: bytes = b""  # fingerprints, sorted signed 64-bit integers


class PackedCrawler(Record, frozen=True, kw_only=True):
    """A crawler with all that home needs to send it out, or to let it go on."""

    crawler: Crawler
    progress: Progress = Progress()
    options: dict[str, OptionValue] = msgspec.field(default_factory=dict)  # as `Spec.options` gives them
    budget: Budget = Budget()
    journey: tuple[str, ...] = ()
    gather: tuple[Source, ...] = ()


def write(path: Path, packed: PackedCrawler) -> None:
    """Writes the file, whole or not at all; the same crawler gives the same bytes."""
    content = encode(packed)
    beside = path.with_name(f"{path.name}.new")
    try:
        beside.write_bytes(content)
        beside.replace(path)
    except OSError as error:
        raise SpecError(f"{path} cannot be written: {error.strerror}") from error


def read(path: Path) -> PackedCrawler:
    """The crawler in a file; SpecError says in one line why it cannot be had."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_PACKED_BYTES + 1)
    except OSError as error:
        raise SpecError(f"{path} cannot be read: {error.strerror}") from error
    try:
        return decode(content)
    except SpecError as error:
        raise SpecError(f"{path} {error}") from error


def encode(packed: PackedCrawler) -> bytes:
    """The bytes of a file."""
    raw = _ENCODER.encode(packed)
    if len(raw) > MAX_PACKED_BYTES:
        much = f"{len(raw):,} bytes, and {MAX_PACKED_BYTES:,} is the most"
        raise SpecError(f"the crawler {packed.crawler.name!r} is too large for a file: {much}")
    body = zstandard.ZstdCompressor(level=_LEVEL).compress(raw)
    return _MAGIC + _HEAD.pack(_VERSION, len(raw), _checksum(raw)) + body


def decode(content: bytes) -> PackedCrawler:
    """The crawler in the bytes of a file; SpecError says why there is none."""
    raw = _unpacked(content)
    try:
        packed = _DECODER.decode(raw)
        _check(packed)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise SpecError(f"holds no crawler: {error}") from error
    except UsageError as error:
        raise SpecError(f"holds a crawler that cannot be: {error}") from error
    return packed


def digest_of(crawler: Crawler) -> str:
    """The name of exactly this program with its scope and its first facts."""
    return blake2b(_ENCODER.encode(crawler), digest_size=16).hexdigest()


_ENCODER = msgspec.msgpack.Encoder(order="deterministic")
_DECODER = msgspec.msgpack.Decoder(PackedCrawler)


def _unpacked(content: bytes) -> bytes:
    if not content.startswith(_MAGIC):
        raise SpecError("is not a crawler's file: 'sterna pack' writes one")
    if len(content) < len(_MAGIC) + _HEAD.size:
        raise SpecError("is cut off: have it sent again")
    version, size, checksum = _HEAD.unpack_from(content, len(_MAGIC))
    if version != _VERSION:
        raise SpecError(f"has format {version}: this Sterna reads format {_VERSION}")
    if max(size, len(content)) > MAX_PACKED_BYTES:
        raise SpecError(f"is larger than a crawler may be: {MAX_PACKED_BYTES:,} bytes")
    raw = _inflated(content[len(_MAGIC) + _HEAD.size :], size)
    if _checksum(raw) != checksum:
        raise SpecError("is damaged: its checksum does not fit; have it sent again")
    return raw


def _inflated(body: bytes, size: int) -> bytes:
    try:
        # What the frame says of its size is what is set aside for it.
        if zstandard.frame_content_size(body) != size:
            raise SpecError("is damaged: its size does not fit; have it sent again")
        return zstandard.ZstdDecompressor().decompress(body, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise SpecError(f"is damaged or cut off: have it sent again ({error})") from error


def _checksum(raw: bytes) -> bytes:
    return blake2b(raw, digest_size=32).digest()


def _check(packed: PackedCrawler) -> None:
    """Raises where all types are right and it makes no sense all the same."""
    check_crawler(packed.crawler)
    check_rules(packed.gather)
    msgspec.convert(packed.options, CrawlOptions)
    if len(packed.progress.seen) % _FINGERPRINT_BYTES:
        raise UsageError("what it has seen is cut off")


# -- to look at --------------------------------------------------------------------------------------------


class Summary(Record, frozen=True, array_like=False, kw_only=True):
    """What is in a packed crawler, as `sterna inspect --json` gives it."""

    name: str
    digest: str
    program_bytes: int
    facts_bytes: int
    progress_bytes: int
    seeds: tuple[str, ...]
    journey: tuple[str, ...]
    options: CrawlOptions
    budget: dict[str, float]
    scope: Scope
    prune: str
    select: str
    keep: tuple[Field, ...]
    selectors: dict[str, str]
    share: float
    rules: list[RuleFile]
    gather: list[RuleFile]
    facts: int  # with which it sets out
    own_facts: int  # that it has come to
    to_fetch: int
    seen: int


def summary_of(packed: PackedCrawler) -> Summary:
    """What is in it."""
    crawler, progress = packed.crawler, packed.progress
    program, keep = crawler.program, crawler.program.keep
    options = msgspec.convert(packed.options, CrawlOptions)
    return Summary(
        name=crawler.name,
        digest=digest_of(crawler),
        program_bytes=len(_ENCODER.encode(program)),
        facts_bytes=sum(map(len, crawler.facts)),
        progress_bytes=len(_ENCODER.encode(progress)),
        seeds=options.seeds,
        journey=packed.journey,
        options=options,
        budget=_other(packed.budget, Budget()),
        scope=crawler.scope,
        prune=_words(program.prune),
        select=_words(program.select),
        keep=keep.fields,
        selectors={each.name: each.css for each in keep.selectors},
        share=keep.share,
        rules=outline(program.rules),
        gather=outline(packed.gather),
        facts=len(crawler.facts),
        own_facts=len(progress.state.facts),
        to_fetch=len(progress.frontier),
        seen=len(progress.seen) // _FINGERPRINT_BYTES,
    )


def describe(packed: PackedCrawler) -> str:
    """What is in it, in lines."""
    summary = summary_of(packed)
    size = f"program {summary.program_bytes:,}, facts {summary.facts_bytes:,}"
    lines = [
        ("crawler", summary.name),
        ("digest", summary.digest),
        ("bytes", f"{size}, progress {summary.progress_bytes:,}"),
        *(("start", seed) for seed in summary.seeds),
        *(("journey", site) for site in summary.journey),
        ("scope", _scope_words(summary.scope)),
        ("fetch", summary.prune or "every URL of the scope"),
        ("select", summary.select or "every page"),
        ("keep", _keep_words(packed.crawler.program.keep)),
        ("options", _listed(_other(summary.options, CrawlOptions(seeds=summary.seeds)))),
        ("budget", _listed(summary.budget)),
        *(("rules", str(file)) for file in summary.rules),
        *(("gather", str(file)) for file in summary.gather),
        ("facts", f"{summary.facts:,}"),
        ("progress", _progress_words(summary)),
    ]
    return printable("\n".join(f"{label:8} {text}" for label, text in lines))


def _other(given: msgspec.Struct, usual: msgspec.Struct) -> dict[str, Any]:
    """The fields in which a record is not as usual."""
    plain = msgspec.structs.asdict(usual)
    return {name: value for name, value in msgspec.structs.asdict(given).items() if value != plain[name]}


def _listed(fields: dict[str, Any]) -> str:
    return ", ".join(f"{name} {shown(value)}" for name, value in fields.items()) or "the usual ones"


def _words(predicate: Predicate | None) -> str:
    return describe_predicate(predicate) if predicate else ""


def _scope_words(scope: Scope) -> str:
    parts = [f"stay {scope.stay}", f"depth {scope.max_depth}"]
    lists = (("subtrees", scope.subtrees), ("include", scope.include), ("exclude", scope.exclude))
    parts += [f"{name} {' '.join(texts)}" for name, texts in lists if texts]
    return ", ".join(parts)


def _keep_words(keep: Keep) -> str:
    parts = ["url", *keep.fields, *(f"{each.name} ({each.css})" for each in keep.selectors)]
    share = f"; of text and html {keep.share:.0%}" if keep.share < 1 else ""
    return ", ".join(parts) + share


def _progress_words(summary: Summary) -> str:
    if not (summary.own_facts or summary.to_fetch or summary.seen):
        return "none yet"
    return f"{summary.own_facts:,} facts, {summary.to_fetch:,} URLs to fetch, {summary.seen:,} seen"
