"""Damaged files and texts: WARC, policy.toml, storage.toml, selectors, searches, and heads of responses."""

import gzip
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from random import Random

from bench.fuzz_parts.spoiling import SITE, spoil_bytes

ROOT = Path(__file__).parents[2]

_VALUES = (
    *(
        "0",
        "-1",
        "1e400",
        "nan",
        "inf",
        '""',
        '"25:00"',
        '"64 MB"',
        '"-1 s"',
        "true",
        "[]",
        "{}",
        "[[]]",
        "0x7fffffffffffffff",
    ),
    *(
        "1979-05-27",
        '"Mo-Fr 22:00-24:00"',
        '"Europe/Berlin"',
        '"\\u0000"',
        '"""',
        "'",
        "99999999999999999999",
        '"ed25519:"',
    ),
    *(
        '["a", 1]',
        "{ pages = -1 }",
        '{ pages = "x", pages = 1 }',
        '"SELECT 1; DROP TABLE page"',
        '"' + "x" * 2_000 + '"',
    ),
)
_LINES = (
    *(
        "[homes]",
        "[homes.ada]",
        "[[homes]]",
        "[load]",
        "[a.b.c.d]",
        "never = true",
        "hours = 3",
        "= 1",
        "closed = '/'",
        "a = 1\na = 2",
    ),
    *(
        "[connections.x]",
        "[commands.y]",
        "[rules.z]",
        "sql = 5",
        "url = 'postgresql://u:secret@h/d'",
        "function = 'os:system'",
        "#" * 500,
    ),
    *(
        "[" * 300,
        "a = " + "[" * 300,
        "x" * 300 + " = 1",
        '"" = 1',
        "a.b = 1\na = 2",
        "\0",
        "\ufeff",
        "é = 1",
        '[homes."\\n"]',
    ),
)
_SELECTOR_PARTS = (
    *(
        "a",
        "*",
        "#i",
        ".c",
        "[h]",
        "[h=x]",
        "[h='x' i]",
        '[h^="',
        ":nth-child(2n+1)",
        ":nth-child(",
        ":not(a)",
        ":not(:not(a))",
        ":is(",
    ),
    *(
        ">",
        "+",
        "~",
        " ",
        ",",
        ":has(a)",
        "::before",
        "\\",
        "\\66 ",
        "\\ffffff",
        "é",
        "\0",
        ")",
        "(",
        "]",
        "n",
        "-",
        "--",
        "1",
        ":",
    ),
    *(
        ":nth-last-of-type(-n+99999999999999999999)",
        ":first-child",
        ":lang(de)",
        "|",
        "*|*",
        "@media",
        "/**/",
        "{",
        "}",
        ";",
        "x" * 100,
    ),
)
_SEARCH_PARTS = (
    *(
        "tern",
        '"',
        '"a b"',
        "-",
        "-tern",
        "title:",
        "url:http",
        "site:",
        "site:site.test",
        "AND",
        "OR",
        "NOT",
        "*",
        "te*",
        "~2",
        "^9",
        "(",
        ")",
    ),
    *(
        "[a TO b]",
        "{",
        "}",
        "/re.*/",
        "\\",
        ":",
        "+",
        "é",
        "漢字",
        "🐦",
        "\0",
        "\u202e",
        "\ud7ff",
        "a" * 300,
        "<script>",
        "%",
        "'",
        ";",
        "--",
    ),
)


def made(kind: str, chance: Random) -> bytes:
    """A file or a text of this kind."""
    match kind:
        case "warc":
            return _warc(chance)
        case "warc export":
            return _spoilt_records(chance) if chance.random() < 0.8 else _warc(chance)
        case "policy":
            return _toml(_example("deploy/policy.toml"), chance)
        case "storage.toml":
            return _toml(
                _example(f"examples/storage/{chance.choice(('storage', 'more', 'links'))}.toml"), chance
            )
        case "selector":
            return _joined(_SELECTOR_PARTS, chance)
        case "head":
            return _head(chance)
        case _:
            return _joined(_SEARCH_PARTS, chance, glue=chance.choice(("", " ", " ")))


_FIELDS = (
    "Set-Cookie", "Set-Cookie", "Retry-After", "Location", "Refresh", "Content-Type", "Content-Language",
    "X-Robots-Tag", "Content-Encoding", "Last-Modified", "ETag", "Link", "Content-Length", " Folded",
)  # fmt: skip
_FIELD_PARTS = (
    "a=b", "; ", ";", "=", ", ", ":", "Max-Age=", "Expires=", "Path=/", "Domain=.www.example.org", "Secure",
    "--5", "-1", "9" * 400, "1e9", "²", "0", "\"", "'", "\x00", "\xff", "\t", "http://[::1", "//other.test/é",
    "Thu, 01 Jan 1970 00:00:00 GMT", "Thu, 99 Jan 99999 99:99:99 +9999", "Thursday, 01-Jan-70", "/a?b#c",
    "javascript:1", "noindex", "unavailable_after:", "text/html", "charset=", "utf-16", "x-gzip", "en-",
    "5; url=",
)  # fmt: skip


def _head(chance: Random) -> bytes:
    """The head of a response whose fields say nonsense."""
    lines = [f"HTTP/1.1 {chance.choice((200, 301, 429, 503))} OK"]
    for _ in range(chance.randrange(1, 6)):
        parts = "".join(chance.choices(_FIELD_PARTS, k=chance.randrange(6)))
        lines.append(f"{chance.choice(_FIELDS)}{chance.choice((':', ': ', ' :', ''))}{parts}")
    head = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"
    return spoil_bytes(head, chance) if chance.random() < 0.3 else head


@cache
def _members() -> tuple[bytes, ...]:
    """The records of a WARC file, each compressed."""
    return tuple(gzip.compress(record, 6, mtime=0) for record in _records())


@cache
def _records() -> tuple[bytes, ...]:
    records = ["WARC/1.1\r\nWARC-Type: warcinfo\r\nContent-Length: 20\r\n\r\nisPartOf: fuzz\r\n\r\n\r\n"]
    for number in range(8):
        block = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n{'<p>x' * 20 * number}"
        head = f"WARC/1.1\r\nWARC-Type: response\r\nWARC-Target-URI: {SITE}/{number}\r\n"
        described = "WARC-Date: 2026-11-18T12:00:00Z\r\nContent-Type: application/http; msgtype=response\r\n"
        records.append(f"{head}{described}Content-Length: {len(block)}\r\n\r\n{block}\r\n\r\n")
    return tuple(map(str.encode, records))


def _spoilt_records(chance: Random) -> bytes:
    """Whole gzip members, of which some hold a record with changed bytes."""
    some = chance.choices(_records(), k=chance.randrange(1, 9))
    spoilt = [spoil_bytes(each, chance) if chance.random() < 0.6 else each for each in some]
    return b"".join(gzip.compress(record, 1, mtime=0) for record in spoilt)


def _warc(chance: Random) -> bytes:
    """The records with changed bytes, or each whole, in another order, some twice, some cut."""
    if chance.random() < 0.7:
        return spoil_bytes(b"".join(_members()), chance)
    members = [
        each[: chance.randrange(len(each))] if chance.random() < 0.2 else each
        for each in chance.choices(_members(), k=chance.randrange(12))
    ]
    odd = chance.choice(
        (b"", b"\x1f\x8b\x08", gzip.compress(b"WARC/1.1\r\n", mtime=0), b"WARC/1.1\r\n", bytes(700))
    )
    return odd.join(members) + odd


@cache
def _example(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def _toml(text: str, chance: Random) -> bytes:
    """The file with lines lost, doubled, made up, uncommented, or with other values."""
    lines = text.split("\n")
    for _ in range(chance.choice((1, 1, 2, 5))):
        at = chance.randrange(len(lines))
        match chance.randrange(6):
            case 0:
                del lines[at : at + chance.choice((1, 1, 5))]
            case 1:
                lines.insert(at, chance.choice(lines) if lines else "")
            case 2:
                lines.insert(at, chance.choice(_LINES))
            case 3:
                lines = [line.removeprefix("# ") if "=" in line or "[" in line else line for line in lines]
            case _:
                at = chance.choice([place for place, line in enumerate(lines) if "=" in line] or [at])
                lines[at] = f"{lines[at].partition('=')[0]}= {chance.choice(_VALUES)}"
        lines = lines or [""]
    data = "\n".join(lines).encode()
    return spoil_bytes(data, chance) if chance.random() < 0.3 else data


def _joined(parts: Sequence[str], chance: Random, *, glue: str = "") -> bytes:
    """Some of the parts, one after the other."""
    count = chance.choice((1, 2, 3, 5, 8, 20, 60))
    text = glue.join(chance.choices(parts, k=count)).encode("utf-8", "replace")
    return spoil_bytes(text, chance) if chance.random() < 0.1 else text
