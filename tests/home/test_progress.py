"""The counters of a run."""

from tests import making

from sterna.home.progress import Progress
from sterna.model import Link, Links, Parcel, Usage


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
    assert progress.usage == Usage(
        requests=6,
        bytes_received=20,
        pages=4,
        unchanged=2,
        redirects=2,
        errors={"timeout": 2},
        kept=2,
        cpu_seconds=1.0,
    )
    assert (progress.total_pages, progress.rows) == (9, 4)


def test_bytes_that_a_host_fetched_were_not_received_here() -> None:
    usage = Usage(pages=1, bytes_received=10)
    here, away = (making.parcel(visit=visit, usage=usage) for visit in ("here", "away"))
    progress = Progress(began=0.0, away={"away"})
    progress.add([here, away, away])
    assert (progress.usage.pages, progress.usage.bytes_received, progress.fetched_at_hosts) == (3, 10, 20)


def test_circles_of_redirects_over_several_sites_are_counted_once() -> None:
    def parcel(site: str, path: str, to: str) -> Parcel:
        page = making.page(path, site=site, status=302, links=Links.of(Link(to, rel="redirect")))
        return making.parcel(making.visit(site=site), pages=(page,))

    one, two = "https://one.example", "https://two.example"
    progress = Progress(began=0.0)
    steps = [
        parcel(one, "/a", f"{two}/b"),
        parcel(two, "/b", f"{two}/c"),
        parcel(one, "/into", f"{one}/a"),
        parcel(two, "/c", f"{one}/a"),
        parcel(two, "/c", f"{one}/a"),
        parcel(one, "/away", f"{two}/good"),
    ]
    counts = []
    for step in steps:
        progress.add([step])
        counts.append(progress.notes["redirect_loop"])
    assert counts == [0, 0, 0, 3, 3, 3]
