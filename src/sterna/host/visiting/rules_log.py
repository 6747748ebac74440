"""The lines that a crawler's rules write go to the visit in which they were written, and so to its home.

The owner's log is no place for them: strangers wrote them, as many as they like.
"""

import contextvars
import logging

from sterna.host.visiting.hosted import HostedVisit

CURRENT: contextvars.ContextVar[HostedVisit | None] = contextvars.ContextVar("visit", default=None)

_rules_log = logging.getLogger("sterna.runtime.handler")


class _RulesLog(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        hosted = CURRENT.get()
        if not hosted or record.levelno != logging.INFO:
            return True
        hosted.log(record.getMessage())
        return False


_RULES_LOG = _RulesLog()


def listen_to_rules() -> None:
    """From now on; to say it twice does no harm."""
    if _RULES_LOG not in _rules_log.filters:
        _rules_log.addFilter(_RULES_LOG)
        _rules_log.setLevel(logging.INFO)
