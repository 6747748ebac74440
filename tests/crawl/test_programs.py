"""Whole crawls by programs, as the command runs them: specs, rules, facts, journeys and gathering."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.crawl import running
from tests.crawl.running import sterna, summary_of
from tests.servers.nginx import NginxServer, serve

pytestmark = pytest.mark.servers

FIGURES = Path(__file__).parent.parent / "runtime" / "engine" / "figures.clp"


def page(title: str, text: str, *links: str) -> str:
    anchors = "".join(f'<a href="{link}">on</a> ' for link in links)
    return f"<!doctype html><html lang=en><title>{title}</title><p>{text}</p>{anchors}</html>"


SITE = {
    "index.html": page("Start", "Welcome.", "clinic.html", "garden.html", "gone.html"),
    "clinic.html": page("Clinic", "Our clinic cares for patients.", "ward.html"),
    "ward.html": page("Ward", "A ward of the clinic.", "/"),
    "garden.html": page("Garden", "Roses and herbs."),
}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[NginxServer, NginxServer]]:
    root = tmp_path_factory.mktemp("site")
    for name, text in SITE.items():
        (root / name).write_text(text)
    with (
        serve(root, folder=tmp_path_factory.mktemp("a")) as first,
        serve(root, folder=tmp_path_factory.mktemp("b")) as second,
    ):
        yield first, second


@pytest.fixture
def server(servers: tuple[NginxServer, NginxServer]) -> NginxServer:
    return servers[0]


def write_spec(folder: Path, seeds: list[str], body: str, **rules: str) -> Path:
    for name, text in rules.items():
        (folder / f"{name}.clp").write_text(text)
    path = folder / "test.toml"
    path.write_text(f'name = "test"\nseeds = {json.dumps(seeds)}\n{body}\n[politeness]\ndelay = 0\n')
    return path


def crawl(spec: Path, *flags: str) -> dict[str, Any]:
    result = sterna("crawl", spec, "--into", spec.parent / "collection", "--json", *flags)
    assert result.returncode == 0, result.stderr
    return summary_of(result)


def ask(folder: Path, sql: str) -> list[dict[str, Any]]:
    return running.ask(folder / "collection", sql)


def facts(folder: Path, template: str) -> list[Any]:
    rows = ask(folder, f"SELECT data FROM fact WHERE template = '{template}' ORDER BY data::VARCHAR")
    return [json.loads(row["data"]) for row in rows]


def test_only_wanted_pages_are_stored_and_of_them_only_what_is_kept(
    tmp_path: Path, server: NginxServer
) -> None:
    body = '[select]\nkeywords_any = ["clinic"]\n[keep]\nfields = ["title"]'

    summary = crawl(write_spec(tmp_path, [f"{server.url}/"], body))

    assert (summary["pages"], summary["kept"], summary["ended"]) == (4, 2, "finished")
    stored = ask(tmp_path, "SELECT title, text FROM page ORDER BY title")
    assert stored == [{"title": "Clinic", "text": None}, {"title": "Ward", "text": None}]


def test_rules_keep_drop_emit_and_remember(tmp_path: Path, server: NginxServer) -> None:
    rules = """
    (deftemplate topic (slot url) (slot hits))
    (defrule keep-garden (page (title "Garden")) => (keep))
    (defrule drop-ward (page (title "Ward")) => (drop))
    (defrule row (page (url ?url) (status ?status)) => (emit answer (url-path ?url) ?status))
    (defrule remember (page (url ?url) (selected TRUE))
       => (assert (topic (url (url-path ?url)) (hits (text-count "clinic")))))
    """
    spec = write_spec(
        tmp_path, [f"{server.url}/"], 'rules = ["r.clp"]\n[select]\nkeywords_any = ["clinic"]', r=rules
    )

    summary = crawl(spec)

    assert summary["rows"] == 5
    assert [row["title"] for row in ask(tmp_path, "SELECT title FROM page ORDER BY title")] == [
        "Clinic",
        "Garden",
    ]
    assert facts(tmp_path, "answer") == [
        ["/", 200],
        ["/clinic.html", 200],
        ["/garden.html", 200],
        ["/gone.html", 404],
        ["/ward.html", 200],
    ]
    assert facts(tmp_path, "topic") == [
        {"url": "/clinic.html", "hits": 1},
        {"url": "/ward.html", "hits": 1},
    ]


def test_program_of_the_figures_loads_the_site_by_itself(tmp_path: Path, server: NginxServer) -> None:
    body = (
        'rules = ["figures.clp"]\nloading = "rules"\n'
        f'facts = [{{ template = "todo", values = ["{server.url}/"] }}]'
    )
    spec = write_spec(tmp_path, [f"{server.url}/"], body, figures=FIGURES.read_text())

    summary = crawl(spec)

    assert summary["pages"] == 4
    loaded = {
        fact["location"].removeprefix(server.url): fact["status-code"] for fact in facts(tmp_path, "PAGE")
    }
    assert loaded == {
        "/": 200, "/clinic.html": 200, "/garden.html": 200, "/gone.html": 404, "/ward.html": 200
    } | ({"/index.html": 200} if "/index.html" in loaded else {})  # fmt: skip


def test_facts_travel_on_a_journey_from_site_to_site(
    tmp_path: Path, servers: tuple[NginxServer, NginxServer]
) -> None:
    rules = """
    (deftemplate been (slot site) (slot pages))
    (defrule first (page (site ?site) (status 200)) (not (been (site ?site)))
       => (assert (been (site ?site) (pages 0))))
    """
    seeds = [f"{server.url}/" for server in servers]
    spec = write_spec(tmp_path, seeds, 'rules = ["r.clp"]\njourney = true', r=rules)

    crawl(spec)

    second = servers[1].url
    rows = ask(tmp_path, f"SELECT data FROM fact WHERE template = 'been' AND site = '{second}'")
    assert len(rows) == 2
    visits = ask(tmp_path, "SELECT site FROM visit ORDER BY began")
    assert [row["site"] for row in visits] == [server.url for server in servers]


def test_gathering_makes_seeds_and_facts_for_later_visits(
    tmp_path: Path, servers: tuple[NginxServer, NginxServer]
) -> None:
    first, second = servers
    rules = f"""
    (deftemplate tip (slot url))
    (deftemplate told (slot word))
    (defrule find (page (title "Clinic")) => (assert (tip (url "{second.url}/ward.html"))))
    (defrule tell (hint ?word) => (assert (told (word ?word))))
    """
    gather = """
    (deftemplate tip (slot url))
    (deftemplate told (slot word))
    (defrule go (tip (url ?url)) => (follow ?url) (emit hint "from afar"))
    """
    spec = write_spec(tmp_path, [f"{first.url}/"], 'rules = ["r.clp"]\ngather = ["g.clp"]', r=rules, g=gather)

    crawl(spec, "--allow-private")

    sites = ask(tmp_path, "SELECT DISTINCT site FROM page ORDER BY site")
    assert [row["site"] for row in sites] == sorted([first.url, second.url])
    told = ask(tmp_path, "SELECT site, data FROM fact WHERE template = 'told'")
    assert [row["site"] for row in told] == [second.url]


@pytest.mark.parametrize(
    ("limit", "ended"),
    [
        ("requests = 3", "requests"),
        ("pages = 2", "pages"),
        ('fetched_bytes = "900 B"', "fetched_bytes"),
        ("facts = 2", "facts"),
    ],
)
def test_limit_ends_the_crawler_by_its_name_and_keeps_what_was_found(
    tmp_path: Path, server: NginxServer, limit: str, ended: str
) -> None:
    rules = "(defrule note (page (url ?url)) => (assert (seen ?url)))"
    spec = write_spec(tmp_path, [f"{server.url}/"], f'rules = ["r.clp"]\n[budget]\n{limit}', r=rules)

    summary = crawl(spec)

    assert summary["ended"] == ended
    assert 0 < summary["pages"] < 4 or ended == "facts"
    assert ask(tmp_path, "SELECT count(*) AS n FROM page")[0]["n"] >= 1


GREEDY = {
    "cpu_seconds": ("0.5", "(while TRUE do (bind ?x 1))"),
    "scratch_bytes": ('"2 kB"', '(store big (str-cat (page-text) "%s"))' % ("x" * 4_000)),
    "sent_bytes": ('"1 kB"', '(emit long "%s")' % ("x" * 2_000)),
}


@pytest.mark.parametrize("limit", GREEDY)
def test_greedy_rule_is_ended_by_the_name_of_its_limit(
    tmp_path: Path, server: NginxServer, limit: str
) -> None:
    value, action = GREEDY[limit]
    body = f'rules = ["r.clp"]\n[budget]\n{limit} = {value}'
    spec = write_spec(
        tmp_path, [f"{server.url}/"], body, r=f'(defrule greedy (page (title "Clinic")) => {action})'
    )

    summary = crawl(spec)

    assert summary["ended"] == limit
    assert "Start" in [row["title"] for row in ask(tmp_path, "SELECT title FROM page")]


def test_page_for_which_rules_take_all_memory_is_an_error_and_the_crawl_goes_on(
    tmp_path: Path, server: NginxServer
) -> None:
    grow = '(bind ?s "x") (while TRUE do (bind ?s (str-cat ?s ?s)))'
    spec = write_spec(
        tmp_path,
        [f"{server.url}/"],
        'rules = ["r.clp"]\n[budget]\nmemory_bytes = "64 MB"',
        r=f'(defrule greedy (page (title "Clinic")) => {grow})',
    )

    summary = crawl(spec)

    assert (summary["ended"], summary["errors"]["rules"]) == ("finished", 1)
    assert len(ask(tmp_path, "SELECT url FROM page WHERE error = 'rules'")) == 1
    assert len(ask(tmp_path, "SELECT url FROM page WHERE status = 200")) == summary["pages"] > 1


def test_crawl_is_over_when_its_crawlers_time_is(tmp_path: Path, server: NginxServer) -> None:
    spec = write_spec(tmp_path, [f"{server.url}/"], "[budget]\nwall_seconds = 3")

    summary = crawl(spec, "--delay", "0.8", "--here")

    assert summary["ended"] == "wall_seconds"
    assert 1 <= summary["pages"] < 4


def test_endless_rule_is_stopped_and_the_crawl_says_so(tmp_path: Path, server: NginxServer) -> None:
    rules = '(defrule loop (page (title "Clinic")) => (while TRUE do (bind ?x 1)))'
    spec = write_spec(tmp_path, [f"{server.url}/"], 'rules = ["r.clp"]', r=rules)

    summary = crawl(spec)

    assert summary["ended"] == "wall_seconds"
    titles = [row["title"] for row in ask(tmp_path, "SELECT title FROM page")]
    assert "Start" in titles


def test_rules_with_a_mistake_are_refused_with_file_and_line(tmp_path: Path, server: NginxServer) -> None:
    spec = write_spec(
        tmp_path, [f"{server.url}/"], 'rules = ["r.clp"]', r="(defrule a\n (page (urll ?x)) => )"
    )

    result = sterna("crawl", spec, "--into", tmp_path / "collection")

    assert result.returncode == 2
    assert "r.clp:" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_same_command_goes_on_with_the_collections_own_crawler(tmp_path: Path, server: NginxServer) -> None:
    body = 'rules = ["r.clp"]\n[scope]\npages = 2'
    spec = write_spec(
        tmp_path, [f"{server.url}/"], body, r="(defrule note (page (url ?u)) => (emit saw (url-path ?u)))"
    )
    crawl(spec)

    result = sterna("crawl", "--into", tmp_path / "collection", "--max-pages", "10", "--json")

    assert result.returncode == 0, result.stderr
    assert len(facts(tmp_path, "saw")) == 5


def test_query_crawls_and_prints_its_rows(server: NginxServer) -> None:
    sql = "SELECT title FROM page WHERE status = 200 AND text LIKE '%clinic%' AND depth < 4"

    result = sterna("ask", sql, f"{server.url}/", "--delay", "0", "--quiet", "--format", "csv")

    assert result.returncode == 0, result.stderr
    assert sorted(result.stdout.splitlines()) == ["Clinic", "Ward", "title"]


def test_query_that_needs_all_pages_waits_for_them(server: NginxServer) -> None:
    sql = "SELECT status, count(*) AS n FROM page GROUP BY status ORDER BY status"

    result = sterna("ask", sql, f"{server.url}/", "--delay", "0", "--quiet", "--format", "csv")

    assert result.stdout.splitlines() == ["status,n", "200,4", "404,1"]


def test_query_with_a_limit_ends_the_crawl_early(server: NginxServer) -> None:
    result = sterna(
        "ask", "SELECT url FROM page LIMIT 1", f"{server.url}/", "--delay", "0", "-q", "-f", "csv"
    )

    assert result.returncode == 0, result.stderr
    assert len(result.stdout.splitlines()) == 2


def test_packed_crawler_crawls_as_its_spec_does(tmp_path: Path, server: NginxServer) -> None:
    spec = write_spec(
        tmp_path, [f"{server.url}/"], 'rules = ["r.clp"]', r="(defrule a (page (url ?u)) => (emit saw ?u))"
    )
    packed = tmp_path / "test.crawler"
    assert sterna("pack", spec, "--into", packed).returncode == 0
    first = packed.read_bytes()
    assert sterna("pack", spec, "--into", packed).returncode == 0

    summary = crawl(packed)

    assert packed.read_bytes() == first
    assert summary["rows"] == 5
    shown = sterna("inspect", packed)
    assert "rules" in shown.stdout
    assert shown.returncode == 0


def test_query_as_a_rule_finds_what_the_query_finds(tmp_path: Path, server: NginxServer) -> None:
    sql = "SELECT title, status FROM page WHERE title > 'D' AND status = 200"
    rule = sterna("explain", "--rule", sql)
    assert rule.returncode == 0, rule.stderr
    asked = sterna("ask", sql, f"{server.url}/", "--delay", "0", "--quiet", "--format", "json")

    crawl(write_spec(tmp_path, [f"{server.url}/"], 'rules = ["q.clp"]', q=rule.stdout))

    rows = [
        {name["symbol"]: value for name, value in zip(row[::2], row[1::2], strict=True)}
        for row in facts(tmp_path, "QUERY_RESULT")
    ]
    assert len(rows) == 3
    assert sorted(rows, key=str) == sorted(json.loads(asked.stdout), key=str)


def test_question_with_a_mistake_is_refused_before_anything_is_fetched(server: NginxServer) -> None:
    before = server.log_path.stat().st_size

    result = sterna("ask", "SELECT nosuch(count(*)) FROM page", f"{server.url}/", "--delay", "0")

    assert result.returncode == 2
    assert "nosuch" in result.stderr
    assert server.log_path.stat().st_size == before


def test_question_does_not_mix_with_a_collection_that_is_there(tmp_path: Path, server: NginxServer) -> None:
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "something").write_text("x")

    result = sterna("ask", "SELECT url FROM page", f"{server.url}/", "--into", tmp_path / "c")

    assert result.returncode == 2
    assert "is not empty" in result.stderr
