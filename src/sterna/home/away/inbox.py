"""Reads the stream of a visit: checks every parcel and its order, and the proof at the end. No I/O."""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from sterna.errors import HostGone, WireError
from sterna.home.away.claims import Claims
from sterna.home.away.events import OwnerStopped
from sterna.home.away.receipts import Witnessed
from sterna.model import Ended, Parcel, StateChange, Target, Usage, Visit
from sterna.web.weight import MAX_STATE_BYTES, weight_of_fact
from sterna.wire.keys import PublicKey
from sterna.wire.known import Marks
from sterna.wire.merkle import Tree, leaf_of
from sterna.wire.parcels import MAX_ERRORS, Unpacker
from sterna.wire.problems import decode_problem, refusal_of
from sterna.wire.stream import (
    PAUSED,
    RESUMED,
    Ending,
    LineCame,
    ParcelCame,
    ProblemCame,
    ReceiptCame,
    StoppedCame,
    StreamReader,
)

MIB = 1 << 20
MAX_LINES = 1_000  # of a host's log, in one visit
MAX_PAGE_BYTES = 32 * MIB  # the largest page, read and raw
MAX_CHARACTER_BYTES = 4
SLACK_BYTES = 256 * MIB  # for links, checkpoints and facts
SLACK_PARCELS = 1_000


class Inbox:
    """What was received of one visit so far, over any number of streams."""

    def __init__(
        self,
        visit: Visit,
        marks: Marks,
        *,
        host_key: PublicKey,
        began: float,
        first: int = 1,
        waiting: Iterable[Target] = (),
    ) -> None:
        """`first`: the next parcel, if earlier runs received others; `waiting`: see `Claims`."""
        self._visit = visit
        self._marks = marks
        self._host_key = host_key
        self._began = began
        self._is_from_start = first == 1
        self._claims = Claims(visit, waiting=waiting)
        budget = visit.budget
        # Redirects and errors are pages too; each was a start URL or a found one.
        self._most_pages = budget.pages + budget.urls + len(visit.starts) + len(visit.known.fingerprints) // 8
        # A parcel is sent when it is full, or after some time.
        self._most_parcels = budget.pages + 2 * int(budget.seconds) + SLACK_PARCELS
        # Changed by begin() and feed().
        self._reader: StreamReader | None = None
        self._unpacker: Unpacker | None = None
        self._ahead_seconds = 0.0
        self._tree = Tree()
        self._left_bytes = most_bytes(visit)
        self.next = first  # the number of the next parcel
        self.pages = 0
        self.ended: Ended | None = None  # as the last parcel says
        self.is_over = False  # the host's end was received and verified
        self.is_proven = False
        self.lines: list[str] = []  # of the host's log; the reader removes them
        self._line_count = 0
        self._costs = Usage()  # of all parcels together
        self._facts = {number: weight_of_fact(fact) for number, fact in visit.state.facts}  # by their numbers
        self._facts_bytes = sum(self._facts.values())
        self._earlier_bytes = 0  # of earlier streams
        self.receipt: ReceiptCame | None = None  # of the last stream
        self.stop: OwnerStopped | None = None  # the reader takes it

    def begin(self, key: bytes, *, ahead_seconds: float = 0.0) -> None:
        """Begins a new stream with the next parcel; `ahead_seconds`: of the host's clock before ours."""
        if self._reader:
            self._earlier_bytes += self._reader.opened_bytes
        self.receipt = None
        self._reader = StreamReader(key, max_bytes=self._left_bytes)
        self._ahead_seconds = ahead_seconds
        if self._unpacker is None:
            self._unpacker = Unpacker(self._visit, self._marks, began=self._began + ahead_seconds)

    def feed(self, data: bytes, *, now: float) -> Iterator[Parcel]:
        """The parcels that are complete now; raises WireError if invalid, HostGone if the host gave up."""
        assert self._reader
        for came in self._reader.feed(data):
            if isinstance(came, ParcelCame):
                parcel = self._parcel(came.packed, now)
                del came  # both are large, and this is resumed when the parcel is stored
                yield parcel
                del parcel
            elif isinstance(came, Ending):
                self._end(came)
            elif isinstance(came, ProblemCame):
                raise _as_gone(came.json)
            elif isinstance(came, StoppedCame):
                self.stop = _stop_of(came.json)
            elif isinstance(came, ReceiptCame):
                self.receipt = came
            elif isinstance(came, LineCame) and (
                self._line_count < MAX_LINES or came.text.startswith((PAUSED, RESUMED))
            ):
                self._line_count += 1
                self.lines.append(came.text)

    def witnessed(self, *, now: float, lost_streams: int) -> Witnessed:
        """What a receipt of the visit is compared with; `lost_streams` may have lost bytes on the way."""
        before_bytes = self.receipt.before_bytes if self.receipt else 0
        return Witnessed(
            visit=self._visit.id,
            site=self._visit.site,
            host=self._host_key.data,
            is_whole=self.is_proven,
            ended=self.ended,
            costs=self._costs,
            root=self._tree.root(),
            received_bytes=self._earlier_bytes + before_bytes,
            lost_streams=lost_streams,
            earliest=self._began + self._ahead_seconds,
            latest=now + self._ahead_seconds,
        )

    def finish(self) -> None:
        """Call it when a stream ends; raises WireError("cut off") if the end is missing."""
        assert self._reader
        self._reader.finish()

    def _parcel(self, packed: bytes, now: float) -> Parcel:
        self._left_bytes -= len(packed)
        if self.ended is not None:
            raise WireError("malformed", "parcel after the last one")
        assert self._unpacker
        parcel = self._unpacker.unpack(packed, now=now + self._ahead_seconds)
        if parcel.number != self.next:
            raise WireError("malformed", f"parcel {parcel.number} instead of parcel {self.next}")
        self.pages += len(parcel.pages)
        self._costs = self._costs.plus(parcel.usage)
        for page in parcel.pages:
            self._tree.add(leaf_of(page))
        if self.pages > self._most_pages or parcel.number > self._most_parcels:
            raise WireError("too-large", "more pages or parcels than the visit's budget allows")
        if len(self._costs.errors) > MAX_ERRORS:
            raise WireError("malformed", f"more than {MAX_ERRORS:,} kinds of errors in a visit")
        self._count_facts(parcel.state)
        self.next += 1
        self.ended = parcel.ended
        parcel = in_our_time(parcel, self._ahead_seconds) if self._ahead_seconds else parcel
        return self._claims.checked(parcel, now=now)

    def _count_facts(self, change: StateChange) -> None:
        """WireError if the crawler would keep more facts than any host lets it keep."""
        sizes = self._facts
        for number in change.removed:
            self._facts_bytes -= sizes.pop(number, 0)
        for number, fact in change.added:
            self._facts_bytes += weight_of_fact(fact) - sizes.get(number, 0)
            sizes[number] = weight_of_fact(fact)
        if self._facts_bytes > MAX_STATE_BYTES:
            size = f"{self._facts_bytes:,} bytes of memory; {MAX_STATE_BYTES:,} are allowed"
            raise WireError("too-large", f"the crawler's own facts take {size}")

    def _end(self, ending: Ending) -> None:
        """Raises WireError unless the host signed exactly what was received."""
        if ending.visit != self._visit.id:
            raise WireError("malformed", "end of another visit")
        ending.check(self._host_key)
        if ending.parcels != self.next - 1 or ending.ended != self.ended:
            received = f"{self.next - 1} were received"
            raise WireError("malformed", f"the host counts {ending.parcels} parcels, but {received}")
        if self._is_from_start:  # else an earlier run received the first pages
            if ending.pages != self.pages:
                received = f"{self.pages} were received"
                raise WireError("malformed", f"the host counts {ending.pages} pages, but {received}")
            if ending.root != self._tree.root():
                raise WireError("bad-signature", "the pages do not match the root that the host signed")
            self.is_proven = True
        self.is_over = True


def most_bytes(visit: Visit) -> int:
    """The upper bound of a visit's stream before compression: a longer one is taken for endless."""
    budget = visit.budget
    pages = budget.pages * MAX_PAGE_BYTES
    sent = budget.sent_bytes * MAX_CHARACTER_BYTES
    return SLACK_BYTES + (min(pages, sent) if sent else pages)


def in_our_time(parcel: Parcel, ahead_seconds: float) -> Parcel:
    """The parcel with its times converted from a clock that is ahead."""

    def ours(targets: tuple[Target, ...]) -> tuple[Target, ...]:
        return tuple(
            replace(each, not_before=each.not_before - ahead_seconds) if each.not_before else each
            for each in targets
        )

    checkpoint, robots = parcel.checkpoint, parcel.robots
    if robots:
        robots = replace(
            robots, tried_at=robots.tried_at - ahead_seconds, retry_at=robots.retry_at - ahead_seconds
        )
    return replace(
        parcel,
        robots=robots,
        pages=tuple(replace(page, fetched=page.fetched - ahead_seconds) for page in parcel.pages),
        checkpoint=replace(checkpoint, found=ours(checkpoint.found), again=ours(checkpoint.again)),
    )


def _stop_of(json: bytes) -> OwnerStopped:
    """Raises WireError if the problem is malformed."""
    problem = decode_problem(json)
    return OwnerStopped(problem.detail, problem.until)


def _as_gone(json: bytes) -> HostGone:
    try:
        return HostGone(f"the host gave the visit up: {refusal_of(decode_problem(json))}")
    except WireError:
        return HostGone("the host gave the visit up, with a malformed reason")
