"""A crawler as a file: program, facts and progress. It is pure data; nothing in it is run here."""

import struct
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
import zstandard

from sterna.crawler.compiler import check_crawler
from sterna.crawler.grammar import describe as describe_predicate
from sterna.crawler.rules import check_rules, outline
from sterna.crawler.spec import CrawlOptions, OptionValue
from sterna.crawler.spec_fields import shown
from sterna.errors import SpecError, UsageError
from sterna.model import Budget, Crawler, Record, Scope, Source, State, Target

SUFFIX = ".crawler"
SIGNED_AS = "crawler"  # the context of an author's signature
MAX_PACKED_BYTES = 64 * 1024 * 1024  # of the file, and of its uncompressed content

# Like PNG's signature: a transfer in text mode damages it, and is noticed.
_MAGIC = b"\x89STERNA\r\n\x1a\n"
_VERSION = 1
_HEAD = struct.Struct(">HQ32s")  # version, size of the content, its checksum
_LEVEL = 9
_FINGERPRINT_BYTES = 8


class SavedProgress(Record, frozen=True, kw_only=True):
    """The saved progress of a crawler: its memory, the URLs left to fetch, the URLs seen."""

    state: State = State()
    frontier: tuple[Target, ...] = ()
    seen: bytes = b""  # fingerprints, sorted signed 64-bit integers


class PackedCrawler(Record, frozen=True, kw_only=True):
    """A crawler with everything that home needs to send it out or to continue it."""

    crawler: Crawler
    progress: SavedProgress = SavedProgress()
    options: dict[str, OptionValue] = msgspec.field(default_factory=dict)  # as `Spec.options` gives them
    budget: Budget = Budget()
    journey: tuple[str, ...] = ()
    gather: tuple[Source, ...] = ()


def read(path: Path) -> PackedCrawler:
    """The crawler in a file; SpecError if it is unreadable or invalid."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_PACKED_BYTES + 1)
    except OSError as error:
        raise SpecError(f"cannot read {path}: {error.strerror}") from error
    try:
        return decode(content)
    except SpecError as error:
        raise SpecError(f"{path} {error}") from error


def encode(packed: PackedCrawler) -> bytes:
    raw = _ENCODER.encode(packed)
    if len(raw) > MAX_PACKED_BYTES:
        size = f"{len(raw):,} bytes, the limit is {MAX_PACKED_BYTES:,}"
        raise SpecError(f"the crawler {packed.crawler.name!r} is too large for a file: {size}")
    body = zstandard.ZstdCompressor(level=_LEVEL).compress(raw)
    return _MAGIC + _HEAD.pack(_VERSION, len(raw), _checksum(raw)) + body


def decode(content: bytes) -> PackedCrawler:
    """The crawler in the bytes of a file; SpecError if they are damaged or invalid."""
    raw = _unpacked(content)
    try:
        packed = _DECODER.decode(raw)
        check_crawler(packed.crawler)
        check_rules(packed.gather)
        msgspec.convert(packed.options, CrawlOptions)
        if len(packed.progress.seen) % _FINGERPRINT_BYTES:
            raise UsageError("its list of seen URLs is truncated")
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise SpecError(f"does not contain a crawler: {error}") from error
    except UsageError as error:
        raise SpecError(f"contains an invalid crawler: {error}") from error
    return packed


def digest_of(crawler: Crawler) -> str:
    """The digest of the program with its scope and initial facts, whoever signed it."""
    unsigned = msgspec.structs.replace(crawler, author="", signature=b"")
    return blake2b(_ENCODER.encode(unsigned), digest_size=16).hexdigest()


def signed_part(crawler: Crawler) -> bytes:
    """What an author signs: name and program. Scope and facts are those of a run, and may change.

    A field that a later version adds, with a default that changes nothing, leaves it as it is.
    """
    return _ENCODER.encode((crawler.name, _shortened(crawler.program)))


def program_digest(crawler: Crawler) -> str:
    """The digest by which the owner of a host permits this program."""
    return blake2b(signed_part(crawler), digest_size=16).hexdigest()


def _shortened(value: object) -> object:
    """Records as lists that end with the last field that has not its default."""
    if isinstance(value, tuple):
        return [_shortened(each) for each in value]
    if not isinstance(value, Record):
        return value
    fields = [(getattr(value, each.name), each.default) for each in msgspec.structs.fields(value)]
    while fields and fields[-1][0] == fields[-1][1]:
        fields.pop()
    return [_shortened(found) for found, _ in fields]


_ENCODER = msgspec.msgpack.Encoder(order="deterministic")
_DECODER = msgspec.msgpack.Decoder(PackedCrawler)


def _unpacked(content: bytes) -> bytes:
    if not content.startswith(_MAGIC):
        raise SpecError("is not a crawler file: 'sterna pack' writes one")
    if len(content) < len(_MAGIC) + _HEAD.size:
        raise SpecError("is truncated: get it again")
    version, size, checksum = _HEAD.unpack_from(content, len(_MAGIC))
    if version != _VERSION:
        raise SpecError(f"has format {version}: this Sterna reads format {_VERSION}")
    if max(size, len(content)) > MAX_PACKED_BYTES:
        raise SpecError(f"is too large: the limit is {MAX_PACKED_BYTES:,} bytes")
    body = content[len(_MAGIC) + _HEAD.size :]
    try:
        # The decompressor allocates the size that the frame declares.
        if zstandard.frame_content_size(body) != size:
            raise SpecError("is damaged: its size does not match; get it again")
        raw = zstandard.ZstdDecompressor().decompress(body, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise SpecError(f"is damaged or truncated: get it again ({error})") from error
    if _checksum(raw) != checksum:
        raise SpecError("is damaged: its checksum does not match; get it again")
    return raw


def _checksum(raw: bytes) -> bytes:
    return blake2b(raw, digest_size=32).digest()


# -- for people --------------------------------------------------------------------------------------------


def to_json(packed: PackedCrawler) -> str:
    """The contents of a packed crawler, as `sterna inspect --json` prints them."""
    return msgspec.json.encode(_summary(packed)).decode()


def _summary(packed: PackedCrawler) -> dict[str, Any]:
    crawler, progress = packed.crawler, packed.progress
    program, keep = crawler.program, crawler.program.keep
    options = msgspec.convert(packed.options, CrawlOptions)
    return {
        "name": crawler.name,
        "digest": digest_of(crawler),
        "program": program_digest(crawler),
        "author": crawler.author,
        "program_bytes": len(_ENCODER.encode(program)),
        "facts_bytes": sum(map(len, crawler.facts)),
        "progress_bytes": len(_ENCODER.encode(progress)),
        "seeds": options.seeds,
        "journey": packed.journey,
        "options": options,
        "budget": _other(packed.budget, Budget()),
        "scope": crawler.scope,
        "prune": describe_predicate(program.prune) if program.prune else "",
        "select": describe_predicate(program.select) if program.select else "",
        "keep": keep.fields,
        "selectors": {each.name: each.css for each in keep.selectors},
        "share": keep.share,
        "rules": outline(program.rules),
        "gather": outline(packed.gather),
        "facts": len(crawler.facts),  # initial ones
        "own_facts": len(progress.state.facts),  # gathered so far
        "to_fetch": len(progress.frontier),
        "seen": len(progress.seen) // _FINGERPRINT_BYTES,
    }


def describe(packed: PackedCrawler) -> str:
    of = _summary(packed)
    kept = ", ".join(["url", *of["keep"], *(f"{name} ({css})" for name, css in of["selectors"].items())])
    share = f"; of text and html {of['share']:.0%}" if of["share"] < 1 else ""
    progress = f"{of['own_facts']:,} facts, {of['to_fetch']:,} URLs to fetch, {of['seen']:,} seen"
    is_under_way = any(of[name] for name in ("own_facts", "to_fetch", "seen"))
    size = f"program {of['program_bytes']:,}, facts {of['facts_bytes']:,}"
    lines = [
        ("crawler", of["name"]),
        ("digest", of["digest"]),
        ("program", of["program"]),
        *(("signed", f"by {author}") for author in (of["author"],) if author),
        ("bytes", f"{size}, progress {of['progress_bytes']:,}"),
        *(("start", seed) for seed in of["seeds"]),
        *(("journey", site) for site in of["journey"]),
        ("scope", _scope_words(of["scope"])),
        ("fetch", of["prune"] or "every URL of the scope"),
        ("select", of["select"] or "every page"),
        ("keep", kept + share),
        ("options", _listed(_other(of["options"], CrawlOptions(seeds=of["seeds"])))),
        ("budget", _listed(of["budget"])),
        *(("rules", str(file)) for file in of["rules"]),
        *(("gather", str(file)) for file in of["gather"]),
        ("facts", f"{of['facts']:,}"),
        ("progress", progress if is_under_way else "none yet"),
    ]
    return printable("\n".join(f"{label:8} {text}" for label, text in lines))


def _other(given: msgspec.Struct, usual: msgspec.Struct) -> dict[str, Any]:
    """The fields that differ from the default."""
    plain = msgspec.structs.asdict(usual)
    return {name: value for name, value in msgspec.structs.asdict(given).items() if value != plain[name]}


def _listed(fields: dict[str, Any]) -> str:
    return ", ".join(f"{name} {shown(value)}" for name, value in fields.items()) or "defaults"


def _scope_words(scope: Scope) -> str:
    parts = [f"stay {scope.stay}", f"depth {scope.max_depth}"]
    lists = (("subtrees", scope.subtrees), ("include", scope.include), ("exclude", scope.exclude))
    parts += [f"{name} {' '.join(texts)}" for name, texts in lists if texts]
    return ", ".join(parts)


def printable(text: str) -> str:
    """The text with control characters escaped, so that a terminal does not obey them."""
    return "".join(char if char.isprintable() or char in "\n\t" else ascii(char)[1:-1] for char in text)
