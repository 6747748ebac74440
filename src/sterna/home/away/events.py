"""The events and actions of a trip to a host: the input and output of `trip`."""

from enum import Enum, auto

from sterna.errors import SternaError
from sterna.home.ledger.records import Out
from sterna.model import Parcel, Record, Visit

STOPPED = "stopped"  # the problem by which a host says that its owner stopped the crawler

# -- events ------------------------------------------------------------------------------------------------


class Moment(Enum):
    """Events without a value."""

    BEGUN = auto()  # the trip begins
    ACCEPTED = auto()  # the host accepted the order: its stream begins
    STORED = auto()  # a parcel is on the disk: committed, or in quarantine
    SLEPT = auto()  # the pause before the next try is over
    TIME_UP = auto()  # the host did not end a killed visit in time


class Opened(Record, frozen=True, kw_only=True):
    """How far the host is trusted, and what an earlier run left in quarantine."""

    is_checked: bool = False  # pages are checked at the end of the visit
    is_held: bool = False  # parcels are quarantined until then
    last: int = 0  # the last parcel in quarantine
    is_proven: bool = False  # the host's end was seen by an earlier run
    pages: int = 0  # in quarantine


class Greeted(Record, frozen=True, kw_only=True):
    """The host opened a session."""

    seconds: float  # that its answer took
    ticket_seconds: float  # for which the session's ticket is valid
    level: int  # the highest compression level it offers
    priority: int = 0  # that it expects for what it grants


class Ready(Record, frozen=True):
    """The visit is shaped to what the host grants, stored and packed."""

    visit: Visit


class Came(Record, frozen=True):
    """A complete parcel was received, in `size_bytes` of the stream."""

    parcel: Parcel
    size_bytes: int


class Said(Record, frozen=True):
    """A line of the host's log, or "" for a keep-alive."""

    line: str = ""


class OwnerStopped(Record, frozen=True):
    """The site's owner stopped the crawler, until a time if that is known."""

    reason: str
    until: float | None = None


class StreamOver(Record, frozen=True):
    """The host's signed end was received and verified."""

    is_proven: bool


class Signed(Record, frozen=True):
    """The result of countersigning the receipt: "signed", the reason against it, or "" without a receipt."""

    receipt: str = ""


class Released(Record, frozen=True):
    """The next parcel out of quarantine; None after the last."""

    parcel: Parcel | None = None
    size_bytes: int = 0


class Judged(Record, frozen=True):
    """The check is over; with an error if the host lied or could not be checked."""

    error: SternaError | None = None


class Looked(Record, frozen=True):
    """Whether the user has killed the crawler, according to the outbox."""

    is_killed: bool


class Stopped(Record, frozen=True):
    """The run is stopped, or quarantine is full."""

    is_run: bool = True


class Failed(Record, frozen=True):
    """An action failed: Refused, LineBroken, HostGone or ParcelRefused."""

    error: SternaError


class Closed(Record, frozen=True):
    """The end of the trip is stored in the outbox."""

    out: Out


Event = (
    Moment
    | Opened
    | Greeted
    | Ready
    | Came
    | Said
    | OwnerStopped
    | StreamOver
    | Signed
    | Released
    | Judged
    | Looked
    | Stopped
    | Failed
    | Closed
)

# -- actions, with the event that each brings after the colon ----------------------------------------------


class Step(Enum):
    """Actions without a value."""

    WRITE_OUT = auto()  # write the crawler into the outbox, before anything is sent
    PROVE = auto()  # note in quarantine that nothing more will come
    DISCARD = auto()  # delete the visit's quarantine
    OPEN = auto()  # look up how far the host is trusted: Opened
    READ = auto()  # read on in the stream: Came, Said or StreamOver
    RELEASE = auto()  # take the next parcel out of quarantine: Released
    LOOK_FOR_KILL = auto()  # look whether the user has killed the crawler: Looked


class Acknowledge(Record, frozen=True):
    """Let the host delete the parcels up to this one."""

    number: int
    size_bytes: int


class Tell(Record, frozen=True):
    """Show a line of the host's log."""

    line: str


class Kill(Record, frozen=True):
    """Ask the host to end the visit; in the background if `is_beside`."""

    is_beside: bool = False


class Fault(Record, frozen=True, kw_only=True):
    """Do not contact the host for a while: the next visit to the site is made from here.

    Unless the owner stopped the crawler: then nothing of the site is fetched for a while.
    """

    site: str
    reason: str
    problem: str = ""  # its name on the wire, if the host itself refused
    seconds: float | None = None  # for which to stay away, if the host said so
    until: float | None = None  # of an owner's stop, if that is known

    @property
    def is_stop(self) -> bool:
        return self.problem == STOPPED


class Greet(Record, frozen=True):
    """Open a session: Greeted. If `is_known`, it must be the host that has the visit."""

    is_known: bool


class Shape(Record, frozen=True):
    """Pack the visit, shaped to the session's grants unless the host has it already: Ready."""

    is_new: bool


class Order(Record, frozen=True, kw_only=True):
    """Send the visit, or resume it from a parcel: ACCEPTED."""

    resume_from: int  # 0: send
    level: int


class Wait(Record, frozen=True):
    """Wait this long for the action under way: its event, or TIME_UP."""

    seconds: float


class Sign(Record, frozen=True):
    """Countersign the receipt and send the last acknowledgement: Signed."""

    lost_streams: int


class Hold(Record, frozen=True):
    """Put a parcel into quarantine: STORED."""

    parcel: Parcel
    size_bytes: int


class Commit(Record, frozen=True):
    """Commit a parcel: STORED."""

    parcel: Parcel


class Sleep(Record, frozen=True):
    """Pause before the next try: SLEPT."""

    seconds: float


class Check(Record, frozen=True):
    """Fetch a sample of the pages from here and compare: Judged."""

    visit: Visit  # as sent to the host
    is_whole: bool  # all its parcels were seen, in this run or in quarantine


class Close(Record, frozen=True, kw_only=True):
    """Write the end of the trip into the outbox: Closed."""

    out: Out
    reason: str
    is_over: bool = True  # the visit's lease ends with it
    promised: int | None = None  # the revisit priority that home promised the site


Action = (
    Step
    | Acknowledge
    | Tell
    | Kill
    | Fault
    | Greet
    | Shape
    | Order
    | Wait
    | Sign
    | Hold
    | Commit
    | Sleep
    | Check
    | Close
)
