"""What a crawl is to do."""

from pathlib import Path

import pytest

from sterna.errors import ConfigError, UsageError
from sterna.home.away.hosts import Configured
from sterna.home.options import Options, dump, is_private_name, load, merge_seeds, read_config
from sterna.model import RobotsTimes
from sterna.web.politeness import NO_LIMITS, Limits, Rate
from sterna.wire.keys import Identity


@pytest.mark.parametrize(
    "seed", ["http://", "not a url", "mailto:me@example.org", "foo", "ftp://a.b/", "http://a b/"]
)
def test_wrong_url_is_named(seed: str) -> None:
    with pytest.raises(UsageError, match="is not a web address"):
        Options(seeds=(seed,)).seed_urls()


def test_seed_without_a_scheme_is_https() -> None:
    assert Options(seeds=("Example.org/a#b",)).seed_urls() == ["https://example.org/a"]
    assert Options(seeds=("localhost:8080/x", "http://intranet")).seed_urls() == [
        "https://localhost:8080/x",
        "http://intranet/",
    ]


@pytest.mark.parametrize(
    "options",
    [
        Options(stay="town"),  # type: ignore[arg-type]
        Options(keep="nothing"),
        Options(max_pages=0),
        Options(max_depth=-1),
        Options(delay=-1),
        Options(concurrency=1001),
        Options(timeout=0),
        Options(user_agent="evil\r\nHost: x"),
        Options(ca_file="/nowhere.pem"),
        Options(include=("(",)),
        Options(block=("*.example",)),
        Options(wait=float("nan")),
    ],
)
def test_senseless_value_is_refused_with_the_options_name(options: Options) -> None:
    with pytest.raises(UsageError, match=r"^--"):
        options.check()


def test_gentle_is_thirty_seconds_unless_more_is_asked() -> None:
    assert Options(gentle=True).etiquette("1").delay_seconds == 30.0
    assert Options(gentle=True, delay=60.0).etiquette("1").delay_seconds == 60.0


def test_no_delay_means_several_connections_and_no_limits() -> None:
    quick = Options(delay=0.0, concurrency=20)
    assert quick.etiquette("1").connections == 10
    assert quick.shared_limits() == NO_LIMITS
    assert Options().etiquette("1").connections == 1
    assert Options().shared_limits() == Limits()


def test_user_agent_is_honest_and_carries_the_contact() -> None:
    etiquette = Options(contact="https://example.org/bot").etiquette("1.2")
    assert etiquette.user_agent == "Sterna/1.2 (+https://example.org/bot)"
    assert etiquette.sender == ""
    assert Options(contact="me@example.org").etiquette("1").sender == "me@example.org"
    assert Options(contact="https://social.example/@me").etiquette("1").sender == ""


def test_config_file_says_when_a_robots_txt_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "crawl.toml"
    path.write_text(
        "strict_robots = true\nrobots_keep_hours = 2\nrobots_retry_hours = [0.5, 3]\nrobots_failures = 5\n"
        "robots_pause = 0.1\n"
    )
    etiquette = read_config(path, over=Options()).etiquette("1")
    assert etiquette.strict_robots
    assert etiquette.robots_times == RobotsTimes(
        keep_seconds=7200.0, retry_hours=(0.5, 3.0), max_failures=5, pause_seconds=0.1
    )
    assert Options().etiquette("1").robots_times == RobotsTimes()


def test_config_file_has_the_same_fields(tmp_path: Path) -> None:
    path = tmp_path / "crawl.toml"
    path.write_text(
        'seeds = ["https://example.org/"]\ndelay = 2.5\n'
        "[limits]\naddress = {requests = 3.0}\ntotal = {bytes = 1e6}\n"
    )
    options = read_config(path, over=Options(delay=9.0, gentle=True))
    assert options.delay == 2.5
    assert options.gentle, "what the file does not name stays"
    assert options.shared_limits().address == Rate(requests=3.0)
    assert load(dump(options)) == options


@pytest.mark.parametrize(
    "options",
    [
        Options(response_factor=float("nan")),
        Options(robots_retry_hours=()),
        Options(robots_retry_hours=(1.0, 25.0)),
        Options(robots_keep_hours=float("nan")),
        Options(readers=-1),
        Options(limits=Limits(total=Rate(requests=-1.0))),
    ],
)
def test_senseless_value_of_a_file_is_refused_with_its_name(options: Options) -> None:
    with pytest.raises(UsageError, match="is invalid"):
        options.check()


@pytest.mark.parametrize(
    "name", ["Ads.Example.org", "ads.example.org.", ".ads.example.org", "https://ads.example.org/x"]
)
def test_block_list_takes_every_spelling_of_a_name(name: str) -> None:
    assert Options(block=(name,)).blocked_names() == ("ads.example.org",)


@pytest.mark.parametrize(
    ("url", "is_private"),
    [
        ("http://127.0.0.1:8000/", True),
        ("http://[::1]/", True),
        ("http://localhost/", True),
        ("http://10.1.2.3/", True),
        ("http://intranet.example/", False),
        ("http://192.0.2.1.example/", False),
    ],
)
def test_only_a_url_that_says_so_itself_is_private(url: str, is_private: bool) -> None:
    assert is_private_name(url) is is_private


@pytest.mark.parametrize("text", ["delay = 'slow'", "dealy = 1", "= broken", "[limits]\naddress = 3"])
def test_unreadable_config_names_the_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "crawl.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"crawl\.toml"):
        read_config(path, over=Options())
    with pytest.raises(ConfigError, match="cannot read"):
        read_config(tmp_path / "missing.toml", over=Options())


def test_seeds_are_joined_without_repeats() -> None:
    assert merge_seeds(("a", "b"), ("b", "c")) == ("a", "b", "c")


def test_password_of_a_proxy_is_not_kept() -> None:
    assert "secret" not in dump(Options(proxy="http://me:secret@proxy.example:3128"))


@pytest.mark.parametrize(
    ("user_agent", "name"),
    [
        ("", "Sterna"),
        ("TernBot/2.0 (+https://example.org)", "TernBot"),
        ("Mozilla/5.0 (compatible; TernBot/2.0; +https://example.org)", "TernBot"),
        ("42", "Sterna"),
    ],
)
def test_robots_txt_is_read_for_the_name_in_the_user_agent(user_agent: str, name: str) -> None:
    assert Options(user_agent=user_agent).etiquette("1").robots_name == name


def test_host_of_a_site_is_named_by_its_endpoint_its_key_or_both() -> None:
    key = Identity(b"k" * 32).public.text
    options = Options(
        hosts=(
            "https://a.example/page=https://h.example/sterna",
            f"b.example=,{key}",
            f"http://c.example:8080=http://127.0.0.1:8470/sterna,{key}",
        )
    )
    options.check()
    assert options.configured_hosts() == {
        "https://a.example": Configured(endpoint="https://h.example/sterna"),
        "https://b.example": Configured(key=key),
        "http://c.example:8080": Configured(endpoint="http://127.0.0.1:8470/sterna", key=key),
    }


@pytest.mark.parametrize(
    "text",
    [
        "",
        "https://a.example",
        "https://a.example=",
        "=https://h.example/",
        "https://a.example=,wrong",
        "a=b c",
    ],
)
def test_malformed_host_is_refused_by_its_name(text: str) -> None:
    with pytest.raises(UsageError, match=r"--host .* is invalid"):
        Options(hosts=(text,)).check()


@pytest.mark.parametrize(
    ("fields", "option"),
    [
        ({"compression": 23}, "--compression"),
        ({"compression": -1}, "--compression"),
        ({"checks": "sometimes"}, "--check"),
        ({"here": True, "require_host": True}, "--here and --require-host"),
    ],
)
def test_wrong_choice_of_place_is_refused(fields: dict[str, int], option: str) -> None:
    with pytest.raises(UsageError, match=option):
        Options(**fields).check()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("delay", "address", "domain"),
    [(1.0, 10.0, 5.0), (0.5, 10.0, 5.0), (0.1, 10.0, 10.0), (0.02, 50.0, 50.0)],
)
def test_shared_limits_hold_back_no_delay_that_was_given(delay: float, address: float, domain: float) -> None:
    limits = Options(delay=delay).shared_limits()
    assert (limits.address.requests, limits.domain.requests) == (address, domain)
    own = Limits(domain=Rate(requests=1.0))
    assert Options(delay=delay, limits=own).shared_limits() == own
