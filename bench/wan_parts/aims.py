"""The aims, each with the number that was reached; all are ratios that are better when they are higher."""

from dataclasses import dataclass

from bench.wan_parts.results import Results, cpu, seconds, size
from bench.wan_parts.sites import MIDDLE

LEVEL = 9
BEST = f"root {LEVEL}"  # the document root, whole pages
FOLDER = f"root-folder {LEVEL}"  # the same, and the web server is not asked about every file
OTHER = f"http {LEVEL}"
KINDS = ("http stored", "root stored", OTHER, BEST)
CONNECTIONS = (1, 8, 16, 64)
GZIP = tuple(f"ordinary {number} gzip" for number in CONNECTIONS)
PLAIN = tuple(f"ordinary {number}" for number in CONNECTIONS)
HANDSHAKE_MS = 5.0
XZ_TIMES = 1.3


@dataclass(frozen=True, slots=True)
class Aim:
    """A ratio that is to be reached."""

    what: str
    least: float
    ratio: float | None  # None: not measured

    @property
    def verdict(self) -> str:
        if self.ratio is None:
            return "not measured"
        return "reached" if self.ratio >= self.least else "NOT REACHED"


def aims(results: Results) -> list[Aim]:
    """All of them, on the middle site and the main line."""
    return [
        Aim("bytes, ordinary uncompressed / migrating", 6.0, _bytes(results, "ordinary 64", BEST)),
        Aim("bytes, ordinary gzip / migrating", 1.8, _bytes(results, "ordinary 64 gzip", BEST)),
        Aim("bytes, xz -9e / migrating", 1 / XZ_TIMES, _beside_xz(results)),
        Aim(
            "bytes, ordinary uncompressed / migrating, title and keywords",
            40.0,
            _bytes(results, "ordinary 64", BEST, task="brief"),
        ),
        Aim("time, best ordinary of any number of connections / migrating", 1.0, _best_time(results)),
        Aim("time, ordinary 8 gzip / migrating", 5.0, _time(results, "ordinary 8 gzip", BEST)),
        Aim("time, ordinary 8 gzip / migrating over HTTP", 5.0, _time(results, "ordinary 8 gzip", OTHER)),
        *(
            Aim(f"time, ordinary 1 and 8, the faster / {kind}", 1.0, _beside_1_and_8(results, kind))
            for kind in KINDS
        ),
        *(
            Aim(
                f"second visit, {share} % changed: bytes, conditional requests / migrating",
                least,
                _again(results, share),
            )
            for share, least in ((1, 10.0), (5, 1.0), (20, 1.0))
        ),
        *(
            Aim(f"CPU of both sides, ordinary gzip / {kind}", 1.0, _cpu(results, kind))
            for kind in (BEST, FOLDER, OTHER)
        ),
        Aim(
            f"{HANDSHAKE_MS:g} ms / CPU of a handshake, both sides",
            1.0,
            HANDSHAKE_MS / results.handshake_ms if results.handshake_ms else None,
        ),
    ]


def _divide(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None


def _bytes(results: Results, above: str, below: str, *, task: str = "full") -> float | None:
    return _divide(results.median(size, above), results.median(size, below, task))


def _time(results: Results, above: str, below: str) -> float | None:
    return _divide(results.median(seconds, above), results.median(seconds, below))


def _fastest(results: Results, ways: tuple[str, ...]) -> float | None:
    times = [results.median(seconds, way) for way in ways]
    return min((each for each in times if each is not None), default=None)


def _best_time(results: Results) -> float | None:
    return _divide(_fastest(results, GZIP + PLAIN), results.median(seconds, BEST))


def _beside_1_and_8(results: Results, kind: str) -> float | None:
    return _divide(_fastest(results, GZIP[:2] + PLAIN[:2]), results.median(seconds, kind))


def _beside_xz(results: Results) -> float | None:
    return _divide(results.xz_bytes.get(MIDDLE), results.median(size, BEST))


def _again(results: Results, share: int) -> float | None:
    task = f"again {share} %"
    return _divide(results.median(size, "ordinary 64 gzip", task), results.median(size, BEST, task))


def _cpu(results: Results, kind: str) -> float | None:
    """The cheapest ordinary crawl with gzip counts."""
    costs = [results.median(cpu, way) for way in GZIP]
    return _divide(min((each for each in costs if each is not None), default=None), results.median(cpu, kind))
