"""From specs, queries and lists of fields to crawlers."""

import os
import subprocess
import sys
from math import nan
from pathlib import Path

import msgspec
import pytest

from sterna import model
from sterna.crawler.clp import MAX_SOURCE_BYTES
from sterna.crawler.compiler import (
    budget_of,
    check_crawler,
    compile_query,
    compile_spec,
    crawler_of_fields,
    gather_of,
)
from sterna.crawler.facts import Fact, Symbol, decode
from sterna.crawler.grammar import columns_of
from sterna.crawler.spec import Budget, Css, Keep, Scope, Select, Spec
from sterna.crawler.sql.plan import plan_query
from sterna.errors import RulesError, SpecError, UsageError
from sterna.model import Crawler, Field, Predicate, Program, Selector, Source

RULE = "(defrule best (page (url ?url) (title ?title)) (test (text-has clinic)) => (keep))\n"


def compiled(spec: Spec, folder: Path = Path()) -> Crawler:
    return compile_spec(spec, folder)


def selected(**fields: object) -> Predicate | None:
    return compiled(Spec(name="h", select=Select(**fields))).program.select  # type: ignore[arg-type]


def test_spec_that_says_nothing_gives_the_crawler_that_keeps_every_page() -> None:
    expected = Crawler(name="h", scope=model.Scope(drop_params=Scope().drop_params))
    assert compiled(Spec(name="h")) == expected


def test_scope_goes_with_the_crawler() -> None:
    scope = Scope(
        stay="any",
        include=("a",),
        exclude=("b",),
        subtrees=("/straße/", "/a b"),
        depth=3,
        pages=9,
        sitemaps=False,
        drop_params=("sid",),
    )
    assert compiled(Spec(name="h", scope=scope)).scope == model.Scope(
        stay="any",
        include=("a",),
        exclude=("b",),
        subtrees=("/stra%C3%9Fe/", "/a%20b"),
        max_depth=3,
        drop_params=("sid",),
        use_sitemaps=False,
    )


@pytest.mark.parametrize(
    ("fields", "predicate"),
    [
        ({"keywords_any": ["a", "b", "a"]}, Predicate("words_any", values=("a", "b"))),
        ({"keywords_all": ["a", "b"]}, Predicate("words_all", values=("a", "b"))),
        (
            {"weights": {"b": 2, "a": 0.5}, "threshold": 2},
            Predicate("score", values=(2.0, "a", 0.5, "b", 2.0)),
        ),
        ({"phrases": ["health care", "a b"]}, Predicate("phrase", values=("health care", "a b"))),
        ({"matches": ["x+"]}, Predicate("regexp", values=("x+",))),
        (
            {"matches": ["x+", "y"]},
            Predicate("or", parts=(Predicate("regexp", values=("x+",)), Predicate("regexp", values=("y",)))),
        ),
        ({"languages": ["en", "pt-BR"]}, Predicate("language_in", "language", ("en", "pt-BR"))),
        ({"content_types": ["image/*"]}, Predicate("type_in", "content_type", ("image/*",))),
        ({"where": "status = 200"}, Predicate("=", "status", (200,))),
        (
            {"keywords_any": ["a"], "languages": ["en"], "where": "status = 200"},
            Predicate(
                "and",
                parts=(
                    Predicate("language_in", "language", ("en",)),
                    Predicate("words_any", values=("a",)),
                    Predicate("=", "status", (200,)),
                ),
            ),
        ),
    ],
)
def test_all_that_is_selected_must_hold(fields: dict[str, object], predicate: Predicate) -> None:
    assert selected(**fields) == predicate


def test_condition_on_what_is_known_before_a_fetch_prunes() -> None:
    program = compiled(Spec(name="h", select=Select(where="depth < 3 AND status = 200"))).program
    assert program.prune is not None
    assert columns_of(program.prune) == {"depth"}
    assert program.select == Predicate(
        "and", parts=(Predicate("<", "depth", (3,)), Predicate("=", "status", (200,)))
    )


@pytest.mark.parametrize(
    "where",
    [
        "url",
        "status = 200 GROUP BY url",
        "1 = 1) OR (status = 200",
        "status =",
        "fetched > now()",
        "colour = 'red'",
    ],
)
def test_condition_that_a_site_cannot_judge_is_refused(where: str) -> None:
    with pytest.raises(SpecError, match=r"^select\.where is invalid: .+") as caught:
        Select(where=where)
    assert "\n" not in str(caught.value)


def test_comment_at_the_end_of_a_condition_hides_nothing() -> None:
    assert selected(where="status = 200 -- only good ones") == Predicate("=", "status", (200,))


@pytest.mark.parametrize(
    ("spec", "needs"),
    [
        (Spec(name="h"), ("title", "text", "language", "links")),
        (Spec(name="h", keep=Keep(fields=("url",))), ("links",)),
        (
            Spec(name="h", keep=Keep(fields=("html", "title")), select=Select(languages=("en",))),
            ("title", "text", "language", "links", "html"),
        ),
        (
            Spec(name="h", keep=Keep(fields=()), select=Select(keywords_any=("a",))),
            ("title", "description", "headings", "text", "links"),
        ),
        (Spec(name="h", keep=Keep(fields=()), rules=("best.clp",)), ("title", "text", "links")),
        (Spec(name="h", keep=Keep(fields=()), rules=("best.clp",), loading="rules"), ("title", "text")),
        (Spec(name="h", keep=Keep(fields=()), select=Select(where="size > 9")), ("links",)),
        (Spec(name="h", keep=Keep(fields=()), select=Select(least_change=0.1)), ("text", "links")),
    ],
)
def test_crawler_reads_what_it_keeps_selects_by_and_asks_in_rules(
    tmp_path: Path, spec: Spec, needs: tuple[Field, ...]
) -> None:
    (tmp_path / "best.clp").write_text(RULE)
    assert compile_spec(spec, tmp_path).program.needs == needs


def test_selectors_and_share_go_with_the_crawler() -> None:
    keep = Keep(
        fields=("text", "title", "url", "title"),
        selectors={"price": ".price", "image": Css(css="img", attribute="src")},
        share=0.5,
    )
    assert compiled(Spec(name="h", keep=keep)).program.keep == model.Keep(
        fields=("title", "text"),
        selectors=(Selector("image", "img", "src"), Selector("price", ".price")),
        share=0.5,
    )


def test_rules_and_gathering_come_from_the_folder_of_the_spec(tmp_path: Path) -> None:
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "best.clp").write_text(RULE)
    (tmp_path / "gather.clp").write_text("(defrule more (found ?url) => (follow ?url))")
    spec = Spec(name="h", rules=("rules/best.clp",), gather=("gather.clp",), order="best", loading="rules")
    program = compile_spec(spec, tmp_path).program
    assert program.rules == (Source("rules/best.clp", RULE),)
    assert (program.is_best_first, program.drives_loading) == (True, True)
    assert [source.name for source in gather_of(spec, tmp_path)] == ["gather.clp"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, r'rules is "best\.clp": must be a readable file \(in .*: No such file'),
        (b"\xff", "rules names best.clp, which is not UTF-8"),
        (b";" * (MAX_SOURCE_BYTES + 1), "rules names best.clp, which is larger than 1,048,576 bytes"),
    ],
)
def test_file_of_rules_that_cannot_be_had_is_named(tmp_path: Path, content: bytes | None, said: str) -> None:
    if content is not None:
        (tmp_path / "best.clp").write_bytes(content)
    with pytest.raises(SpecError, match=said):
        compile_spec(Spec(name="h", rules=("best.clp",)), tmp_path)


def test_rules_that_must_not_be_are_refused_with_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "best.clp").write_text("\n(defmodule OTHER)\n")
    with pytest.raises(RulesError, match=r"best\.clp:2: defmodule OTHER"):
        compile_spec(Spec(name="h", rules=("best.clp",)), tmp_path)


def test_initial_facts_go_with_the_crawler() -> None:
    facts = (
        {"template": "topic", "values": ["health", {"symbol": "care"}, 3, 1.5, True]},
        {"template": "limit", "slots": {"depth": 4}},
    )
    assert [decode(fact) for fact in compiled(Spec(name="h", facts=facts)).facts] == [
        Fact("topic", ("health", Symbol("care"), 3, 1.5, Symbol("TRUE"))),
        Fact("limit", slots=(("depth", 4),)),
    ]


def test_limits_of_a_spec_come_over_those_of_the_house() -> None:
    budget = budget_of(Spec(name="h", budget=Budget(cpu_seconds=5, wall_seconds=60, facts=9)))
    assert budget == model.Budget(cpu_seconds=5, wall_seconds=60, facts=9)
    assert budget_of(Spec(name="h")) == model.Budget()


def test_query_makes_a_crawler_that_brings_its_columns() -> None:
    plan = plan_query("SELECT url, title FROM page WHERE text LIKE '%clinic%' AND depth < 4")
    crawler = compile_query(plan, "ask")
    assert crawler.name == "ask"
    assert (crawler.program.prune, crawler.program.select) == (plan.prune, plan.select)
    assert crawler.program.keep.fields == ("title",)
    assert crawler.program.needs == ("title", "text", "links")


SAME = """
from pathlib import Path
import msgspec
from sterna import Spec, Select, Keep
from sterna.crawler.compiler import compile_spec
keep = Keep(fields=("text", "title"), selectors={"b": "b", "a": "a"})
select = Select(weights={"y": 1, "x": 2}, threshold=1, keywords_any=("q", "p"), languages=("en",))
spec = Spec(name="h", keep=keep, select=select, facts=({"template": "t", "slots": {"b": 1, "a": 2}},))
print(msgspec.msgpack.encode(compile_spec(spec, Path())).hex())
"""


def test_same_spec_gives_the_same_bytes_in_every_process() -> None:
    printed = {
        subprocess.run(
            [sys.executable, "-c", SAME],
            env=os.environ | {"PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("0", "1", "77")
    }
    assert len(printed) == 1
    assert len(printed.pop()) > 100


def test_compiling_loads_nothing_heavy_unless_a_spec_speaks_sql() -> None:
    code = (
        "import sys; from pathlib import Path; from sterna import Spec\n"
        "from sterna.crawler import compiler, explanation, pack, spec\n"
        "compiler.compile_spec(Spec(name='h', select={'keywords_any': ['a']}), Path())\n"
        "print([name for name in ('sqlglot', 'duckdb', 'pyarrow', 'typer', 'rich') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert run.stdout == "[]\n"


def test_order_in_which_tables_and_fields_are_written_does_not_matter() -> None:
    one = Spec(
        name="h",
        keep=Keep(fields=("text", "title"), selectors={"b": "b", "a": "a"}),
        select=Select(weights={"y": 1, "x": 2}, threshold=1),
    )
    other = Spec(
        name="h",
        keep=Keep(fields=("title", "text"), selectors={"a": "a", "b": "b"}),
        select=Select(weights={"x": 2, "y": 1}, threshold=1),
    )
    assert msgspec.msgpack.encode(compiled(one)) == msgspec.msgpack.encode(compiled(other))


@pytest.mark.parametrize(
    ("kept", "fields", "needs"),
    [
        ("all", ("title", "text", "language", "links"), ("title", "text", "language", "links")),
        ("links", ("language", "links"), ("language", "links")),
        ("text, title,text", ("title", "text"), ("title", "text", "links")),
        ("url", (), ("links",)),
    ],
)
def test_fields_to_keep_make_a_crawler(
    kept: str, fields: tuple[Field, ...], needs: tuple[Field, ...]
) -> None:
    program = crawler_of_fields(kept).program
    assert (program.keep.fields, program.needs) == (fields, needs)


def test_crawler_that_keeps_all_is_the_default_one() -> None:
    assert crawler_of_fields("all") == Crawler()


@pytest.mark.parametrize("kept", ["", "everything", "title,colour", "title,"])
def test_fields_that_no_page_has_cannot_be_kept(kept: str) -> None:
    with pytest.raises(UsageError, match=f"^--keep {kept} is invalid: use all, links, or some of title, "):
        crawler_of_fields(kept)


@pytest.mark.parametrize(
    "crawler",
    [
        Crawler(scope=model.Scope(include=("(",))),
        Crawler(program=Program(select=Predicate("shout"))),
        Crawler(program=Program(prune=Predicate("=", "colour", ("red",)))),
        Crawler(program=Program(rules=(Source("a.clp", "(defmodule X)"),))),
        Crawler(program=Program(keep=model.Keep(selectors=(Selector("a", "["),)))),
        Crawler(facts=(b"\xc1",)),
        Crawler(program=Program(least_change=1.5)),
        Crawler(program=Program(least_change=nan)),
    ],
)
def test_crawler_of_a_stranger_is_checked_in_all_its_parts(crawler: Crawler) -> None:
    with pytest.raises(UsageError):
        check_crawler(crawler)


def test_what_was_compiled_passes_the_check(tmp_path: Path) -> None:
    (tmp_path / "best.clp").write_text(RULE)
    spec = Spec(
        name="h",
        rules=("best.clp",),
        scope=Scope(include=("a",)),
        select=Select(keywords_any=("a",), where="depth < 3 AND status = 200"),
        keep=Keep(selectors={"a": "a"}),
        facts=({"template": "t"},),
    )
    check_crawler(compile_spec(spec, tmp_path))
