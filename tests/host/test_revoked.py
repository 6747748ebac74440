"""A home whose key is revoked: its sessions end, its visits are stopped, its parcels go or stay."""

import asyncio
from pathlib import Path

import pytest
from tests.crawl.running import call
from tests.host.knocking import NAME, GatedSite, Home, open_home, problem_in, send, until

from sterna.errors import KeyFileError, UsageError
from sterna.host import service as service_module
from sterna.host.keyring import ALLOWED, REVOKED, Revoked, allow, read_allowed, read_revoked, revoke
from sterna.host.owner.audit import AUDIT
from sterna.host.policy.policy import Policy
from sterna.host.state import VISITS
from sterna.transport.interface import Call
from sterna.wire.keys import Identity
from sterna.wire.orders import Look, Resume


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_module, "WATCH_SECONDS", 0.02)


def parcels_in(folder: Path) -> list[Path]:
    return [path for path in (folder / "state" / VISITS).rglob("*") if path.name.isdigit()]


async def refusal(home: Home) -> str:
    reply = await home.service.answer(Call("hello", home.greeting().body))
    problem = problem_in(reply)
    return f"{problem.name}: {problem.detail}"


REVOKED_LINE = "refused: the site's owner has revoked this home's key"


async def test_revoked_home_is_refused_in_one_clear_line_until_it_is_allowed_again(tmp_path: Path) -> None:
    async with open_home(tmp_path) as home:
        session = await home.greet()
        revoke(tmp_path / "keys", NAME)

        assert await refusal(home) == REVOKED_LINE
        reply, _ = await home.order(send(), session)  # under a session of before
        assert problem_in(reply).detail == "the site's owner has revoked this home's key"

        allow(tmp_path / "keys" / ALLOWED, home.identity.public, NAME)
        await home.greet()


@pytest.mark.parametrize("policy", ["open to everybody", "naming the key"])
async def test_revoked_home_is_refused_whatever_the_policy_says(tmp_path: Path, policy: str) -> None:
    home_key = Identity.new()
    named = Policy(homes={"ada": home_key.public.text})
    policies = {"open to everybody": Policy(open="everybody"), "naming the key": named}
    async with open_home(tmp_path, policy=policies[policy]) as home:
        home.identity = home_key
        await home.greet()
        revoke(tmp_path / "keys", home_key.public.text)

        assert await refusal(home) == REVOKED_LINE


@pytest.mark.parametrize("keeps_parcels", [False, True])
async def test_running_host_ends_sessions_and_visits_and_drops_parcels_unless_asked(
    tmp_path: Path, keeps_parcels: bool
) -> None:
    site = GatedSite()
    async with open_home(tmp_path, site=site) as home:
        watching = asyncio.create_task(home.service.watch())
        reply, session = await home.order(send())
        await until(lambda: len(site.asked) > 2)
        assert home.service.status().crawlers == 1

        revoke(tmp_path / "keys", NAME, keeps_parcels=keeps_parcels)
        site.let(12)
        await until(lambda: home.service.status().crawlers == 0)
        await until(lambda: bool(parcels_in(tmp_path)) == keeps_parcels)
        await until(lambda: bool(home.service.status().visits) == keeps_parcels)
        await until(lambda: '"home-revoked"' in (tmp_path / "state" / AUDIT).read_text())

        allow(tmp_path / "keys" / ALLOWED, home.identity.public, NAME)
        late, _ = await home.order(Look("v1"), session)
        assert problem_in(late).name == "ticket-expired"  # the old session is gone
        again, _ = await home.order(Resume("v1", 1))
        assert (again.status == 200) == keeps_parcels
        watching.cancel()
        if keeps_parcels:
            assert not isinstance(again.body, bytes)
            await again.body.aclose()  # type: ignore[attr-defined]
        await reply.body.aclose()  # type: ignore[union-attr]


async def test_revocation_while_the_host_was_down_holds_when_it_starts(tmp_path: Path) -> None:
    site = GatedSite()
    async with open_home(tmp_path, site=site) as home:
        await home.order(send())
        await until(lambda: len(site.asked) > 2)
        home.service.stop()
    revoke(tmp_path / "keys", NAME)

    async with open_home(tmp_path, site=site, before=home, is_allowed=False) as again:
        assert not again.service.status().visits
        assert not parcels_in(tmp_path)


async def test_another_home_of_the_host_notices_nothing(tmp_path: Path) -> None:
    async with open_home(tmp_path) as home:
        other = Home(home.service, home.host)
        allow(tmp_path / "keys" / ALLOWED, other.identity.public, "bob")
        stream = await home.visit(send())
        assert stream.ending.ended == "finished"
        revoke(tmp_path / "keys", "bob")

        assert await refusal(other) == REVOKED_LINE
        assert (await home.report(Look("v1"))).state == "finished"


# -- the list ----------------------------------------------------------------------------------------------


def test_list_remembers_names_and_what_is_kept(tmp_path: Path) -> None:
    ada, bob = Identity.new().public, Identity.new().public
    for key, name in ((ada, "ada"), (bob, "bob")):
        allow(tmp_path / ALLOWED, key, name)

    assert revoke(tmp_path, "ada", keeps_parcels=True) == {ada.text: "ada"}
    assert revoke(tmp_path, bob.text) == {bob.text: "bob"}

    assert read_allowed(tmp_path / ALLOWED) == {}
    assert read_revoked(tmp_path / REVOKED) == {
        ada.text: Revoked("ada", keeps_parcels=True),
        bob.text: Revoked("bob"),
    }
    allow(tmp_path / ALLOWED, ada, "ada")
    assert read_revoked(tmp_path / REVOKED) == {bob.text: Revoked("bob")}


def test_unknown_name_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'sterna keys list' shows"):
        revoke(tmp_path, "ada")


def test_damaged_list_lets_nobody_in(tmp_path: Path) -> None:
    (tmp_path / REVOKED).write_text("who knows\n")
    with pytest.raises(KeyFileError, match="revoked"):
        read_revoked(tmp_path / REVOKED)


def test_command_revokes_and_list_shows_it(tmp_path: Path) -> None:
    key = Identity.new().public
    allow(tmp_path / ALLOWED, key, "ada")

    done = call(["keys", "revoke", "ada", "--keys", str(tmp_path)])

    assert done.stdout.splitlines() == [
        "ada may no longer send crawlers here; what they found is deleted",
        f"key  {key.text}",
    ]
    listed = call(["keys", "list", "--keys", str(tmp_path)]).stdout
    assert listed.splitlines()[-1] == f"{key.text}  ada (revoked)"
    missing = call(["keys", "revoke", "eve", "--keys", str(tmp_path)])
    assert (missing.returncode, missing.stderr.count("\n")) == (2, 1)
