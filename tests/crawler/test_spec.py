"""Specs in TOML and in Python, and what is said of wrong ones."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

import sterna
from sterna import toml
from sterna.crawler.spec import (
    MAX_SPEC_BYTES,
    Budget,
    Css,
    Keep,
    Politeness,
    Scope,
    Select,
    Spec,
    load_spec,
)
from sterna.errors import SpecError
from sterna.home.options import Options

SEED = "https://www.example.org/"

FULL = """
name = "health"
seeds = ["https://www.example.org/", "clinic.example.net"]
journey = true
rules = ["health.clp"]
gather = ["gather.clp"]
order = "best"
loading = "rules"

[scope]
stay = "domain"
include = ["/health/"]
exclude = ['\\.pdf$']
subtrees = ["/health/"]
depth = 4
pages = 1000
sitemaps = false
drop_params = ["sid"]

[select]
keywords_any = ["clinic", "hospital"]
keywords_all = ["patient"]
weights = {care = 2, nurse = 1.5}
threshold = 3
phrases = ["health care"]
matches = ['\\bMRI\\b']
languages = ["en", "pt-BR"]
content_types = ["text/html"]
where = "status = 200"
least_change = 0.2

[keep]
fields = ["url", "title", "text"]
selectors = {price = ".price", picture = {css = "img", attribute = "src"}}
share = 0.3

[politeness]
delay = 2
response_factor = 10
gentle = true
robots = false
contact = "crawl@example.org"
user_agent = "Health/1.0"
sender = "crawl@example.org"
block = ["ads.example.org"]

[budget]
cpu_seconds = 10
wall_seconds = 300.5
memory_bytes = "64 MB"
pages = 500
requests = 1000
fetched_bytes = "1.5 GiB"
sent_bytes = 1_000_000
scratch_bytes = "10 kB"
facts = 100_000
"""

IN_PYTHON = Spec(
    name="health",
    seeds=("https://www.example.org/", "clinic.example.net"),
    journey=True,
    rules=("health.clp",),
    gather=("gather.clp",),
    order="best",
    loading="rules",
    scope=Scope(
        stay="domain",
        include=("/health/",),
        exclude=(r"\.pdf$",),
        subtrees=("/health/",),
        depth=4,
        pages=1000,
        sitemaps=False,
        drop_params=("sid",),
    ),
    select=Select(
        keywords_any=("clinic", "hospital"),
        keywords_all=("patient",),
        weights={"nurse": 1.5, "care": 2},
        threshold=3,
        phrases=("health care",),
        matches=(r"\bMRI\b",),
        languages=("en", "pt-BR"),
        content_types=("text/html",),
        where="status = 200",
        least_change=0.2,
    ),
    keep=Keep(
        fields=("url", "title", "text"),
        selectors={"price": ".price", "picture": Css(css="img", attribute="src")},
        share=0.3,
    ),
    politeness=Politeness(
        delay=2,
        response_factor=10,
        gentle=True,
        robots=False,
        contact="crawl@example.org",
        user_agent="Health/1.0",
        sender="crawl@example.org",
        block=("ads.example.org",),
    ),
    budget=Budget(
        cpu_seconds=10,
        wall_seconds=300.5,
        memory_bytes=64_000_000,
        pages=500,
        requests=1000,
        fetched_bytes=3 * 2**29,
        sent_bytes=1_000_000,
        scratch_bytes=10_000,
        facts=100_000,
    ),
)


def written(folder: Path, text: str) -> Path:
    path = folder / "health.toml"
    path.write_text(text)
    for name in ("health.clp", "gather.clp"):
        (folder / name).write_text("(defrule nothing (page) => (keep))\n")
    return path


def refusal(folder: Path, text: str) -> str:
    """What is said of a spec, after the folder's name."""
    path = written(folder, text)
    with pytest.raises(SpecError) as caught:
        load_spec(path)
    message = str(caught.value)
    assert "\n" not in message
    return message.replace(str(folder), "FOLDER")


def test_toml_and_python_give_the_same_spec(tmp_path: Path) -> None:
    assert load_spec(written(tmp_path, FULL)) == IN_PYTHON


def test_plain_data_in_python_gives_the_same_as_records() -> None:
    plain: dict[str, Any] = {
        "name": "health",
        "seeds": [SEED],
        "select": {"keywords_any": ["clinic"]},
        "budget": {"memory_bytes": "64 MB"},
    }
    assert Spec(**plain) == Spec(
        name="health",
        seeds=(SEED,),
        select=Select(keywords_any=("clinic",)),
        budget=Budget(memory_bytes=64_000_000),
    )


def test_name_and_seeds_are_enough(tmp_path: Path) -> None:
    spec = load_spec(written(tmp_path, f'name = "health"\nseeds = ["{SEED}"]'))
    assert spec == Spec(name="health", seeds=(SEED,))
    assert spec.seed_urls() == (SEED,)


def test_package_exports_the_spec_and_loads_it_only_when_asked() -> None:
    assert sterna.Spec is Spec
    code = "import sys, sterna; assert 'msgspec' not in sys.modules; sterna.Spec(name='x'); sterna.Select()"
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError):
        sterna.Spek  # noqa: B018


WRONG = [
    ('name = "health"\nseeds = "x"', ':2: seeds is "x": must be a list of web addresses'),
    ("seeds = []", ': name is missing: must be a name such as "health"'),
    ("name = 3", ':1: name is 3: must be a name such as "health"'),
    ('name = "a/b"', ":1: name is \"a/b\": must be letters, digits, '_', '-' and '.', 64 of them at most"),
    (
        'name = "h"\nseeds = ["ftp://a.org/"]',
        ':2: seeds is "ftp://a.org/": must be a web address such as "https://www.example.org/"',
    ),
    (
        'name = "h"\nseeds = ["nowhere"]',
        ':2: seeds is "nowhere": must be a web address such as "https://www.example.org/"',
    ),
    ('nam = "h"', ":1: nam is not a field of a spec: did you mean name"),
    (
        'name = "h"\n[select]\nkeyword_any = ["a"]',
        ":3: select.keyword_any is not a field of a spec: did you mean select.keywords_any",
    ),
    (
        'name = "h"\n[keep]\nrules = ["a.clp"]',
        ":3: keep.rules is not a field of a spec: did you mean rules, above all tables",
    ),
    (
        'name = "h"\nkeywords_any = ["a"]',
        ":2: keywords_any is not a field of a spec: did you mean select.keywords_any",
    ),
    (
        'name = "h"\n[budget]\ncolour = 1',
        ":3: budget.colour is not a field of a spec: known are cpu_seconds, wall_seconds, memory_bytes,"
        " pages, requests, fetched_bytes, sent_bytes, scratch_bytes, facts",
    ),
    ('name = "h"\nscope = 3', ":2: scope is 3: must be a table"),
    (
        'name = "h"\n[scope]\nstay = "planet"',
        ':3: scope.stay is "planet": must be "site", "domain" or "any"',
    ),
    (
        'name = "h"\n[scope]\ninclude = ["("]',
        ":3: scope.include is invalid: '(' is not a valid RE2 expression: missing ): (",
    ),
    (
        'name = "h"\n[scope]\nexclude = ["(?=a)"]',
        ":3: scope.exclude is invalid: '(?=a)' is not a valid RE2 expression: invalid perl operator: (?=",
    ),
    (
        'name = "h"\n[scope]\nsubtrees = ["docs"]',
        ':3: scope.subtrees is "docs": must be a path such as "/docs/"',
    ),
    ('name = "h"\n[scope]\ndepth = -1', ":3: scope.depth is -1: must be a whole number, 0 or more"),
    ('name = "h"\n[scope]\ndepth = 1.5', ":3: scope.depth is 1.5: must be a whole number, 0 or more"),
    ('name = "h"\n[scope]\npages = 0', ":3: scope.pages is 0: must be a whole number, 1 or more"),
    ('name = "h"\n[scope]\nsitemaps = "no"', ':3: scope.sitemaps is "no": must be true or false'),
    (
        'name = "h"\nselect.threshold = 3',
        ":2: select.threshold is 3.0: must be left out, or come with select.weights",
    ),
    (
        'name = "h"\nselect = {weights = {a = 1}}',
        ':2: select.weights is {"a":1.0}: must be left out, or come with select.threshold',
    ),
    (
        'name = "h"\n[select]\nthreshold = "three"',
        ':3: select.threshold is "three": must be a number',
    ),
    (
        'name = "h"\n[select]\nthreshold = 1\n[select.weights]\nclinic = inf',
        ":4: select.weights is invalid: score takes numbers for its weights, not inf",
    ),
    (
        'name = "h"\n[select]\nkeywords_any = ["a", ""]',
        ":3: select.keywords_any is invalid: '' is not a word: use letters or digits",
    ),
    (
        'name = "h"\n[select]\nphrases = [" "]',
        ":3: select.phrases is invalid: ' ' is not a word: use letters or digits",
    ),
    (
        'name = "h"\n[select]\nmatches = ["a", "["]',
        ":3: select.matches is invalid: '[' is not a valid RE2 expression: missing ]: [",
    ),
    (
        'name = "h"\n[select]\nlanguages = ["English"]',
        ':3: select.languages is "English": must be a language such as "en" or "pt-BR"',
    ),
    (
        'name = "h"\n[select]\ncontent_types = ["html"]',
        ':3: select.content_types is "html": must be a content type such as "text/html" or "image/*"',
    ),
    (
        'name = "h"\n[select]\nleast_change = 20',
        ":3: select.least_change is 20: must be a number from 0 to 1",
    ),
    (
        'name = "h"\n[select]\nleast_change = nan',
        ":3: select.least_change is nan: must be a number from 0 to 1",
    ),
    (
        'name = "h"\n[keep]\nfields = ["titel"]',
        ':3: keep.fields is ["titel"]: must be a list of: url, title, description, keywords, headings, text,'
        " language, links, html, headers",
    ),
    (
        'name = "h"\n[keep]\nshare = 1.5',
        ":3: keep.share is 1.5: must be a number, more than 0 and up to 1",
    ),
    ('name = "h"\n[keep]\nshare = 0', ":3: keep.share is 0: must be a number, more than 0 and up to 1"),
    (
        'name = "h"\n[keep.selectors]\nprice = 3',
        ':2: keep.selectors is {"price":3}: must be a table of names with a CSS selector each,'
        ' or {css = "img", attribute = "src"}',
    ),
    (
        'name = "h"\n[politeness]\nrobots = false\nstrict_robots = true',
        ":4: politeness.strict_robots is true: must be left out, or come with robots = true",
    ),
    ('name = "h"\n[politeness]\ndelay = -1', ":3: politeness.delay is -1: must be seconds from 0 to 86400"),
    (
        'name = "h"\n[politeness]\ncontact = "a\\nb"',
        ':3: politeness.contact is "a\\nb": must be printable characters only',
    ),
    ('name = "h"\n[budget]\npages = -5', ":3: budget.pages is -5: must be a whole number, 1 or more"),
    (
        'name = "h"\n[budget]\ncpu_seconds = nan',
        ":3: budget.cpu_seconds is nan: must be seconds, more than 0 and up to 1e9",
    ),
    (
        'name = "h"\n[budget]\nmemory_bytes = "64 mugs"',
        ':3: budget.memory_bytes is "64 mugs": must be a number of bytes, 1 or more,'
        ' or a size such as "64 MB"',
    ),
    (
        'name = "h"\nrules = ["helth.clp"]',
        ':2: rules is "helth.clp": must be an existing file (looked for in FOLDER)',
    ),
    ('name = "h"\nrules = ["health.clp", "health.clp"]', ":2: rules names health.clp twice: once is enough"),
    (
        'name = "h"\nrules = "health.clp"',
        ':2: rules is "health.clp": must be a list of files such as ["health.clp"]',
    ),
    (
        'name = "h"\norder = "best"',
        ':2: order is "best": must be "breadth", or come with rules that decide it',
    ),
    ('name = "h"\norder = "depth"', ':2: order is "depth": must be "breadth" or "best"'),
    (
        'name = "h"\nloading = "rules"',
        ':2: loading is "rules": must be "links", or come with rules that decide it',
    ),
    (
        'name = "h"\nseeds = ["a.org"]\njourney = true',
        ":3: journey is true: must be left out, or come with seeds on two sites or more",
    ),
    (
        'name = "h"\nseeds = ["a.org"]\njourney = ["b.org", "c.org"]',
        ":2: seeds contain https://a.org/, which is not on the journey: add https://a.org",
    ),
    ("name = ", " is not valid TOML: Invalid value (at end of document)"),
]


@pytest.mark.parametrize(("text", "said"), WRONG, ids=[said.partition(":")[2][:50] for _, said in WRONG])
def test_wrong_spec_is_told_with_file_line_field_and_what_is_allowed(
    tmp_path: Path, text: str, said: str
) -> None:
    assert refusal(tmp_path, text) == f"FOLDER/health.toml{said}"


@pytest.mark.parametrize(
    "text", ['"a\\nb" = 1', '[select]\n"\\u001b[2J" = 1', 'name = "\\u2028"', f"name = {'9' * 5_000}"]
)
def test_complaint_is_one_line_whatever_the_file_says(tmp_path: Path, text: str) -> None:
    assert refusal(tmp_path, text).isprintable()


def test_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"none\.toml.*: No such file"):
        load_spec(tmp_path / "none.toml")


def test_file_that_is_no_text_or_too_large_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "odd.toml"
    path.write_bytes(b"name = '\xff'")
    with pytest.raises(SpecError, match="UTF-8"):
        load_spec(path)
    path.write_bytes(b"#" * (MAX_SPEC_BYTES + 1))
    with pytest.raises(SpecError, match="too large"):
        load_spec(path)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"select": {"keyword_any": ["a"]}},
            "select.keyword_any is not a field of a spec: did you mean select.key",
        ),
        ({"select": {1: 2}}, "select.1 is not a field of a spec: known are keywords_any, "),
        ({"select": ["a"]}, 'select is ["a"]: must be a table'),
        ({"seeds": [1]}, "seeds is [1]: must be a list of web addresses"),
        ({"facts": [{"template": "a b"}]}, "facts is invalid: the fact 'a b' is invalid: "),
        ({"facts": [{"template": "a", "values": [2**70]}]}, "facts is "),
        ({"budget": {"facts": object()}}, "budget.facts is <object object at "),
        ({"keep": {"selectors": {"a b": "p"}}}, 'keep.selectors is "a b": must be letters, digits'),
    ],
)
def test_wrong_spec_in_python_is_told_with_its_field(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError) as caught:
        Spec(name="h", **fields)
    assert str(caught.value).startswith(said)


def test_set_is_refused_because_its_order_differs_from_run_to_run() -> None:
    words: Any = {"clinic", "hospital"}
    with pytest.raises(SpecError, match=r"select\.keywords_any .* must be a list of words"):
        Select(keywords_any=words)


def test_half_a_character_is_refused() -> None:
    with pytest.raises(SpecError, match=r"select\.phrases .* must be a list of texts"):
        Select(phrases=("\ud800",))


WAYS_TO_WRITE = """name = "h"
[ "select" ]
where = '''
phrases = 1'''
"phrases" = []
weights . clinic = 1
[keep] # what travels
selectors = {price = ".price"}
[[facts]]
"""


@pytest.mark.parametrize(
    ("field", "line"),
    [
        ("name", 1),
        ("select", 2),
        ("select.phrases", 5),
        ("select.weights.clinic", 6),
        ("keep.selectors.price", 8),
        ("keep.share", 7),
        ("facts", 9),
        ("seeds", 0),
    ],
)
def test_line_of_a_field_is_found_in_any_way_to_write_it(field: str, line: int) -> None:
    assert toml.line_of(WAYS_TO_WRITE, (*field.split("."), 0)) == line


def test_seed_may_go_without_its_scheme() -> None:
    assert Spec(name="h", seeds=("example.org/a?utm_source=x",)).seed_urls() == ("https://example.org/a",)


def test_journey_goes_through_the_sites_of_its_seeds_in_order() -> None:
    spec = Spec(name="h", seeds=("https://b.org/x", "https://a.org/", "https://b.org/y"), journey=True)
    assert spec.journey_sites() == ("https://b.org", "https://a.org")


def test_site_of_a_journey_that_has_no_seed_is_entered_at_its_root() -> None:
    spec = Spec(name="h", seeds=("https://b.org/x",), journey=("https://a.org/", "https://b.org/"))
    assert spec.journey_sites() == ("https://a.org", "https://b.org")
    assert spec.seed_urls() == ("https://b.org/x", "https://a.org/")


def test_options_of_a_spec_are_options_of_a_crawl() -> None:
    options = Options(**IN_PYTHON.options())  # type: ignore[arg-type]
    options.check()
    assert options == Options(
        seeds=("https://www.example.org/", "https://clinic.example.net/"),
        max_pages=500,  # the lesser of the scope and the budget
        stay="domain",
        include=("/health/",),
        exclude=(r"\.pdf$",),
        max_depth=4,
        drop_params=("sid",),
        sitemaps=False,
        delay=2,
        response_factor=10,
        gentle=True,
        ignore_robots=True,
        contact="crawl@example.org",
        user_agent="Health/1.0",
        sender="crawl@example.org",
        block=("ads.example.org",),
    )


def test_option_that_earlier_releases_do_not_know_is_given_only_if_it_is_meant() -> None:
    assert "strict_robots" not in Spec(name="h", seeds=("https://www.example.org/",)).options()
    strict = Spec(name="h", politeness=Politeness(strict_robots=True)).options()
    assert strict["strict_robots"] is True
    assert msgspec.convert(strict, Options).etiquette("1").strict_robots


def test_spec_that_says_nothing_of_its_owner_leaves_contact_and_agent_alone() -> None:
    options = Spec(name="h", seeds=(SEED,)).options()
    assert {"contact", "user_agent", "sender", "block"}.isdisjoint(options)
    assert Options(**options) == Options(seeds=(SEED,))  # type: ignore[arg-type]
