"""Why sites wait, kept in the ledger for those who ask after the run."""

import msgspec

from sterna.home.ledger.interface import Ledger
from sterna.runtime.notices import Notices, Pause

PAUSES = "pauses"  # the setting


def note_pauses(ledger: Ledger, notices: Notices, *, now: float) -> None:
    """Adds those of a run; pauses that are over are forgotten."""
    kept = {site: each for site, each in pauses_of(ledger).items() if each.until > now}
    ledger.set_setting(PAUSES, msgspec.json.encode(kept | notices.waiting(now)).decode())


def pauses_of(ledger: Ledger) -> dict[str, Pause]:
    """Those of the last runs, by site."""
    return msgspec.json.decode(ledger.setting(PAUSES) or "{}", type=dict[str, Pause])
