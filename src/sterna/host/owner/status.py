"""How a host stands, for its owner: the crawlers that are here, and what they take against their limits."""

from sterna.model import Budget, Record

UNDER_WAY = ("waiting", "queued", "running")  # states of a visit that is not over


class VisitStatus(Record, frozen=True, array_like=False, kw_only=True):
    """One visit at the host; names come from strangers and may hold anything."""

    visit: str  # its id, which is its home's word
    home: str  # the key of the home that sent it
    name: str  # what the owner calls this home
    crawler: str  # its name
    state: str  # waiting, queued, running, finished, killed, expired
    since: float  # when it came
    pages: int = 0
    requests: int = 0
    read_bytes: int = 0  # from the site
    kept_bytes: int = 0  # of parcels that wait for home
    sent_bytes: int = 0  # of parcels, before compression
    cpu_seconds: float = 0.0
    memory_bytes: int = 0  # of its own processes, where they can be told from others
    limits: Budget = Budget()
    paused: str = ""  # why it rests; "": it does not


class HostStatus(Record, frozen=True, array_like=False, kw_only=True):
    """The host as a whole."""

    site: str
    version: str
    began: float
    now: float
    pid: int
    doors: str = ""  # why they are closed; "": they are open
    load: str = ""  # as the load policy sees it, in words
    paused: str = ""  # why all visits rest; "": they do not
    visits: tuple[VisitStatus, ...] = ()
    queue: int = 0  # visits that wait for a place
    most_queue: int = 0
    crawlers: int = 0  # at work
    most_crawlers: int = 0
    kept_bytes: int = 0  # of all parcels that wait for their homes
    most_kept_bytes: int = 0
    memory_bytes: int = 0  # of the host and all its processes
