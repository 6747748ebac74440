"""The exception tree; foreign errors are translated into it at the boundary.

SternaError                 base of all errors that Sterna raises; the text is one line that says what to do
 ├── UsageError             invalid user input: a malformed URL, an unknown option
 │    ├── ConfigError       unreadable configuration file, or an invalid value in it
 │    ├── SpecError         invalid crawler spec; names the field and what is allowed
 │    └── RulesError        rules that CLIPS rejects or Sterna forbids; names file, line and construct
 ├── CollectionError        the folder is not usable as a collection
 │    ├── NotACollection    it contains something else
 │    ├── EmptyCollection   nothing has been crawled into it yet
 │    ├── CollectionInUse   another crawl is using it
 │    └── LedgerLost        its ledger is missing, empty, older or of another collection: `sterna repair`
 ├── StorageError           disk error: full, read-only, damaged
 │    ├── IndexUnusable     search index missing, damaged or of another version; names the command to run
 │    ├── DamagedSegment    a segment is missing or damaged; `path` names it
 │    └── VisitDamaged      the files of a visit at a host are damaged, incomplete or of another version
 ├── QueryError             DuckDB rejected a query
 │    └── UnknownTable      it names a table that the collection does not have, or not yet
 ├── ParcelRefused          intake refused a parcel: its lease is no longer in force
 ├── JailError              this machine cannot sandbox a foreign crawler, or cannot start an engine
 ├── KeyFileError           key file missing, unreadable, or with unsafe permissions
 ├── WireError              malformed, unsigned or truncated message from the network; `problem` is its name
 ├── Refused                the other side refused; `problem` names the reason, `retry_after` when to retry
 ├── LineBroken             the other side is unreachable, or the connection broke
 ├── HostGone               a host no longer knows a visit, or has another identity than before
 ├── EngineEnded            a crawler's engine ended before its visit; `ended` names the limit or violation
 ├── FetchError             a request without a usable response; `kind` is counted in the summary
 └── ReadError              an unreadable body; `kind` is counted in the summary
"""

import re
import shlex
from pathlib import Path

_MAX_LINE = 1_000
_EXTRA = frozenset({"duckdb", "fastwarc", "pyarrow", "pytz", "sqlglot", "tantivy"})  # of the extra 'home'
_SPECIAL = re.compile(r'["$`!\\\\]')


def command(*words: object) -> str:
    """A command of Sterna's as a shell takes it, to be shown: a path with a blank is quoted.

    With double quotes where they do, for messages put the whole command into single ones.
    """
    shown = []
    for word in map(str, words):
        quoted = shlex.quote(word)
        shown.append(quoted if quoted == word or _SPECIAL.search(word) else f'"{word}"')
    return " ".join(["sterna", *shown])


def missing_extra(error: ModuleNotFoundError) -> str:
    """What to install, if a module of an extra is missing; else empty."""
    name = (error.name or "").partition(".")[0]
    if name != "sqlalchemy" and name not in _EXTRA:
        return ""
    extras = ("home", "storage") if name == "sqlalchemy" else ("home",)
    install = f"pip install 'sterna[{','.join(extras)}]'"
    if (Path(__file__).parents[2] / "scripts" / "install").is_file():  # a checkout, which installs itself
        install = f"scripts/install {' '.join(extras)}"
    return f"needs the extra '{extras[-1]}': {install}"


def one_line(text: str) -> str:
    """The text for a message: whatever is not printable is escaped, the middle of a long one left out."""
    shown = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
    half = _MAX_LINE // 2
    return shown if len(shown) <= _MAX_LINE else f"{shown[:half]}...{shown[-half:]}"


class SternaError(Exception): ...


class UsageError(SternaError): ...


class ConfigError(UsageError): ...


class SpecError(UsageError): ...


class RulesError(UsageError): ...


class CollectionError(SternaError): ...


class NotACollection(CollectionError): ...


class EmptyCollection(CollectionError): ...


class CollectionInUse(CollectionError): ...


class LedgerLost(CollectionError): ...


class StorageError(SternaError): ...


class IndexUnusable(StorageError):
    def __init__(self, text: str, reason: str = "") -> None:
        super().__init__(text)
        self.reason = reason


class DamagedSegment(StorageError):
    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(
            f"segment '{path}' is damaged ({reason}): run '{command('repair', path.parent.parent)}'"
        )
        self.path = path
        self.reason = reason


class VisitDamaged(StorageError): ...


class QueryError(SternaError): ...


class UnknownTable(QueryError): ...


class ParcelRefused(SternaError): ...


class JailError(SternaError): ...


class KeyFileError(SternaError): ...


class WireError(SternaError):
    def __init__(self, problem: str, detail: str = "") -> None:
        super().__init__(f"{problem}: {detail}" if detail else problem)
        self.problem = problem
        self.detail = detail


class Refused(SternaError):
    def __init__(
        self,
        problem: str,
        detail: str = "",
        *,
        retry_after: float | None = None,
        time: float | None = None,
        until: float | None = None,
    ) -> None:
        super().__init__(f"{problem}: {detail}" if detail else problem)
        self.problem = problem
        self.detail = detail
        self.retry_after = retry_after  # seconds
        self.time = time  # the other side's, if the clocks differ
        self.until = until  # when the site's owner lets the crawler in again, if that is known


class LineBroken(SternaError): ...


class HostGone(SternaError): ...


class EngineEnded(SternaError):
    def __init__(self, ended: str, detail: str = "", *, is_outside: bool = False) -> None:
        super().__init__(f"{ended}: {detail}" if detail else ended)
        self.ended = ended
        self.detail = detail
        self.is_outside = is_outside  # somebody else killed its process: neither the rules nor a page did


class FetchError(SternaError):
    def __init__(self, kind: str, detail: str = "", *, wire_bytes: int = 0) -> None:
        super().__init__(f"{kind}: {detail}" if detail else kind)
        self.kind = kind
        self.wire_bytes = wire_bytes  # those that it received count all the same


class ReadError(SternaError):
    def __init__(self, kind: str, detail: str = "") -> None:
        super().__init__(f"{kind}: {detail}" if detail else kind)
        self.kind = kind
