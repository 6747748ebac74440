"""A visit ends at the limit that it reaches first, and says which one."""

import pytest
from tests.runtime.fakes import FakeWeb, Script, carry_out, linking, reply, visit_of

from sterna.model import Budget, Ended

COUNT = 30
WEB: Script = {
    "/": linking(*(f"/{n}" for n in range(COUNT))),
    **{f"/{n}": reply(body=f"<title>{n}</title><p>{'words ' * 200}") for n in range(COUNT)},
}


@pytest.mark.parametrize(
    ("budget", "ended"),
    [
        (Budget(requests=5), Ended.REQUESTS),
        (Budget(fetched_bytes=5_000), Ended.FETCHED_BYTES),
        (Budget(sent_bytes=5_000), Ended.SENT_BYTES),
        (Budget(cpu_seconds=1e-9), Ended.CPU_SECONDS),
        (Budget(wall_seconds=5.0), Ended.WALL_SECONDS),
        (Budget(pages=5), Ended.BUDGET),
        (Budget(seconds=5.0), Ended.BUDGET),
    ],
)
def test_limit_ends_the_visit_by_its_name_and_what_was_found_is_kept(budget: Budget, ended: Ended) -> None:
    outcome = carry_out(visit_of("/", budget=budget), FakeWeb(WEB, seconds=1.0))

    assert outcome.last.ended is ended
    assert 0 < outcome.page_count < COUNT


def test_visit_within_its_limits_finishes() -> None:
    budget = Budget(requests=1_000, fetched_bytes=10**9, sent_bytes=10**9, cpu_seconds=1e6, wall_seconds=1e6)

    outcome = carry_out(visit_of("/", budget=budget), FakeWeb(WEB, seconds=1.0))

    assert outcome.last.ended is Ended.FINISHED
    assert outcome.page_count == COUNT + 1


def test_limit_of_time_holds_while_a_visit_waits() -> None:
    outcome = carry_out(visit_of("/", budget=Budget(wall_seconds=5.0)), FakeWeb(WEB, seconds=60.0))

    assert outcome.last.ended is Ended.WALL_SECONDS


def test_parcels_tell_what_was_used() -> None:
    outcome = carry_out(visit_of("/"), FakeWeb(WEB))

    usages = [parcel.usage for parcel in outcome.parcels]
    assert sum(usage.sent_bytes for usage in usages) > COUNT * 1_000
    assert sum(usage.cpu_seconds for usage in usages) > 0
    assert sum(usage.kept for usage in usages) == COUNT + 1
