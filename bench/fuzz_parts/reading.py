"""Home reads what a lying host says: every input is believed as far as it can be, or refused in one line."""

from random import Random

from bench.fuzz_parts import home_inputs
from bench.fuzz_parts.home_inputs import HOST, KEYS, MARKS, NOW, SITE, VISIT

from sterna.errors import HostGone, WireError
from sterna.home.away.inbox import Inbox
from sterna.model import Parcel
from sterna.wire.discovery import announced, decode_offer
from sterna.wire.orders import open_report
from sterna.wire.problems import decode_problem


def read(kind: str, chance: Random) -> str:
    """What became of one input, in a word; anything that is raised here is a fault."""
    try:
        return _READ[kind](chance)
    except (WireError, HostGone) as error:
        text = str(error)
        if len(text) > 2_000 or not text.isprintable():
            raise AssertionError(f"not fit to be shown: {text!r:.300}") from error
        return error.problem if isinstance(error, WireError) else "host gone"


def read_stream(chance: Random) -> tuple[list[Parcel], str]:
    """The parcels that were believed, and how it ended."""
    unloading = Inbox(VISIT, MARKS, host_key=HOST.public, began=NOW)
    unloading.begin(KEYS.stream)
    believed: list[Parcel] = []
    try:
        for chunk in home_inputs.stream(chance):
            believed += unloading.feed(chunk, now=NOW)
        unloading.finish()
    except WireError as error:
        return believed, error.problem
    except HostGone:
        return believed, "host gone"
    return believed, "proven" if unloading.is_proven else "believed"


def _stream(chance: Random) -> str:
    believed, word = read_stream(chance)
    for parcel in believed:
        check(parcel)
    return word


def check(parcel: Parcel) -> None:
    """That a parcel, whoever made it, says nothing of another visit or another site."""
    assert (parcel.visit, parcel.site, parcel.part, parcel.epoch) == ("v1", SITE, "", 3)
    for url in (*(page.url for page in parcel.pages), *(target.url for target in parcel.checkpoint.found)):
        assert url.startswith(f"{SITE}/"), url
    assert not any(target.url.startswith(f"{SITE}/") for target in parcel.outlinks)
    assert not any({"\r", "\n", "\0"} & {*page.etag, *page.modified} for page in parcel.pages)


def _offer(chance: Random) -> str:
    assert decode_offer(home_inputs.offer(chance), SITE).site == SITE
    return "believed"


def _refusal(chance: Random) -> str:
    decode_problem(home_inputs.refusal(chance))
    return "believed"


def _robots(chance: Random) -> str:
    return "announced" if announced(home_inputs.robots(chance)) else "nothing"


def _reply(chance: Random) -> str:
    greeted = home_inputs.reply_1(chance)
    greeted.greeting.finish(greeted.reply, HOST.public)
    return "believed"


def _report(chance: Random) -> str:
    assert open_report(KEYS, home_inputs.report(chance))
    return "believed"


_READ = {
    "offer": _offer,
    "problem": _refusal,
    "robots.txt": _robots,
    "reply 1": _reply,
    "report": _report,
    "stream": _stream,
}
