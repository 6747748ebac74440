"""A journey: sites visited one after the other, with the crawler's own facts carried on by home.

No host has to trust another: what a crawler learnt at one site reaches the next one from here.
"""

from collections.abc import Sequence

from sterna.home.ledger.interface import Ledger
from sterna.model import Ended, Parcel

_SETTING = "journey"
# After these the same site gets another visit; after all others the crawler moves on.
_STAYS = frozenset({Ended.BUDGET, Ended.STOPPED, Ended.LOST})


class Journey:
    """Where a crawler is on its way. All but `may_visit` and `note` run in the ledger's thread."""

    def __init__(self, sites: Sequence[str], ledger: Ledger) -> None:
        self._sites = tuple(sites)
        self._ledger = ledger
        self._at = int(ledger.setting(_SETTING) or 0)
        self._is_over_here = False  # set by note(), cleared by move_on()

    def may_visit(self, site: str) -> bool:
        """True for the site whose turn it is, and for all once the journey is over."""
        return site not in self._sites or site == self._current

    def note(self, parcel: Parcel) -> None:
        """Sees that a visit is over."""
        if parcel.site == self._current and parcel.ended and parcel.ended not in _STAYS:
            self._is_over_here = True

    def move_on(self, *, now: float) -> None:
        """Carries the facts to the next site, if this one is done with."""
        if not self._is_over_here:
            return
        self._is_over_here = False
        here = self._current
        self._at += 1
        if here and self._current:
            self._ledger.set_state(self._current, self._ledger.state(here))
        self._ledger.set_setting(_SETTING, str(self._at))
        self._ledger.wake(now=now)

    @property
    def _current(self) -> str:
        return self._sites[self._at] if self._at < len(self._sites) else ""
