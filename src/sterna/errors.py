"""The exception tree; foreign errors are translated into it at the boundary.

SternaError                 anything Sterna itself raises; its text is one line that says what to do
 ├── UsageError             the user asked for something that cannot be: a wrong URL, a wrong option
 │    ├── ConfigError       a configuration file that cannot be read or holds a wrong value
 │    ├── SpecError         a crawler's description that cannot be: names its field and what is allowed
 │    └── RulesError        rules that CLIPS cannot read or must not have: names file, line and construct
 ├── CollectionError        a folder that cannot serve as a collection
 │    ├── NotACollection    it holds something else
 │    ├── EmptyCollection   nothing was crawled into it yet
 │    └── CollectionInUse   another crawl works in it
 ├── StorageError           the disk refuses: full, read-only, damaged
 │    └── IndexUnusable     a search index that is missing, damaged or of another version: names the command
 ├── QueryError             a query that DuckDB refuses
 ├── ParcelRefused          intake does not take a parcel: its lease is not the one in force
 ├── JailError              this machine cannot jail a foreign crawler, or start an engine
 ├── KeyFileError           a key that is missing, cannot be read, or that others could read
 ├── WireError              what came over the network cannot be: malformed, not signed, cut off
 ├── Refused                the other side says no; its `problem` tells why, and when to ask again
 ├── LineBroken             the other side cannot be reached, or the line broke on the way
 ├── HostGone               a host no longer knows a visit, or is not the one that it was
 ├── EngineEnded            a crawler's engine is over before its visit; its `ended` is the visit's
 ├── FetchError             a request that brought no answer; its `kind` is counted in the summary
 └── ReadError              a body that cannot be read; its `kind` is counted in the summary
"""


class SternaError(Exception):
    """Anything Sterna itself raises."""


class UsageError(SternaError):
    """The user asked for something that cannot be."""


class ConfigError(UsageError):
    """A configuration file that cannot be read or holds a wrong value."""


class SpecError(UsageError):
    """A crawler's description that cannot be."""


class RulesError(UsageError):
    """Rules that CLIPS cannot read, or that hold what a crawler must not have."""


class CollectionError(SternaError):
    """A folder that cannot serve as a collection."""


class NotACollection(CollectionError):
    """The folder holds something else."""


class EmptyCollection(CollectionError):
    """Nothing was crawled into the collection yet."""


class CollectionInUse(CollectionError):
    """Another crawl works in the collection."""


class StorageError(SternaError):
    """The disk refuses: full, read-only, damaged."""


class IndexUnusable(StorageError):
    """A search index that is missing, damaged or of another version."""


class QueryError(SternaError):
    """A query that DuckDB refuses."""


class ParcelRefused(SternaError):
    """Intake does not take a parcel: its lease is not the one in force."""


class JailError(SternaError):
    """This machine cannot protect itself from a foreign crawler, or an engine cannot be started."""


class KeyFileError(SternaError):
    """A key that is missing, cannot be read, or that others could read."""


class WireError(SternaError):
    """What came over the network cannot be; `problem` is the name by which a host answers it."""

    def __init__(self, problem: str, detail: str = "") -> None:
        super().__init__(f"{problem}: {detail}" if detail else problem)
        self.problem = problem
        self.detail = detail


class Refused(SternaError):
    """The other side says no; `problem` is the name of the reason."""

    def __init__(
        self,
        problem: str,
        detail: str = "",
        *,
        retry_after: float | None = None,
        time: float | None = None,
    ) -> None:
        super().__init__(f"{problem}: {detail}" if detail else problem)
        self.problem = problem
        self.detail = detail
        self.retry_after = retry_after  # seconds
        self.time = time  # the other side's, where the clocks differ


class LineBroken(SternaError):
    """The other side cannot be reached, or the line broke on the way."""


class HostGone(SternaError):
    """A host no longer knows a visit, or is not the one that it was."""


class EngineEnded(SternaError):
    """A crawler's engine is over before its visit; `ended` names the limit or the violation."""

    def __init__(self, ended: str, detail: str = "") -> None:
        super().__init__(f"{ended}: {detail}" if detail else ended)
        self.ended = ended
        self.detail = detail


class FetchError(SternaError):
    """A request that brought no answer, or none that could be used; what it received counts all the same."""

    def __init__(self, kind: str, detail: str = "", *, wire_bytes: int = 0) -> None:
        super().__init__(f"{kind}: {detail}" if detail else kind)
        self.kind = kind
        self.wire_bytes = wire_bytes


class ReadError(SternaError):
    """A body that cannot be read."""

    def __init__(self, kind: str, detail: str = "") -> None:
        super().__init__(f"{kind}: {detail}" if detail else kind)
        self.kind = kind
