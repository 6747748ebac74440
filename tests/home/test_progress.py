"""The counters of a run."""

from tests import making

from sterna.home.progress import Progress
from sterna.model import Usage


def test_parcels_add_up() -> None:
    usage = Usage(
        requests=3,
        bytes_received=10,
        pages=2,
        unchanged=1,
        redirects=1,
        errors={"timeout": 1},
        kept=1,
        cpu_seconds=0.5,
    )
    parcel = making.parcel(rows=(b"a", b"b"), usage=usage)
    progress = Progress(began=0.0, total_pages=5)
    progress.add([parcel, parcel])
    assert (progress.pages, progress.total_pages, progress.requests, progress.bytes_received) == (4, 9, 6, 20)
    assert (progress.unchanged, progress.redirects, progress.errors) == (2, 2, {"timeout": 2})
    assert (progress.kept, progress.rows, progress.cpu_seconds) == (2, 4, 1.0)


def test_bytes_that_a_host_fetched_were_not_received_here() -> None:
    usage = Usage(pages=1, bytes_received=10)
    here, away = (making.parcel(visit=visit, usage=usage) for visit in ("here", "away"))
    progress = Progress(began=0.0, away={"away"})
    progress.add([here, away, away])
    assert (progress.pages, progress.bytes_received, progress.fetched_at_hosts) == (3, 10, 20)
