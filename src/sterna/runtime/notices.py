"""What a runtime tells its user beside pages: why sites wait, and how many links the scope left out."""

from dataclasses import dataclass, field

from sterna.model import Record

MOST_PAUSES = 1_000


class Pause(Record, frozen=True):
    """Why nothing is asked of a site, in words, and until when."""

    why: str
    until: float


@dataclass(slots=True)
class Notices:
    """Changed by the visits of a runtime, in its loop; read by who shows them, also from another thread."""

    pauses: dict[str, Pause] = field(default_factory=dict)  # by site
    left_out: int = 0  # links within their site that the scope does not admit

    def pause(self, site: str, why: str, *, until: float) -> None:
        before = self.pauses.pop(site, None)
        if before and before.until > until:
            self.pauses[site] = before
        elif len(self.pauses) < MOST_PAUSES:
            self.pauses[site] = Pause(why, until)

    def waiting(self, now: float) -> dict[str, Pause]:
        """The pauses that are not over, the one that ends last first."""
        found = [(site, pause) for site, pause in list(self.pauses.items()) if pause.until > now]
        return dict(sorted(found, key=lambda each: -each[1].until))
