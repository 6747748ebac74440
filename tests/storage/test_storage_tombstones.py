"""Rows of the user follow pages to their end: a rule deletes what is gone or wanted no more."""

from pathlib import Path
from typing import Any

import pytest
from tests.servers.pages import PageServer, linking
from tests.servers.plain import Reply
from tests.storage.places import Place

from sterna import Select, Spec, crawl

pytestmark = pytest.mark.servers

A = "127.0.7.2"
RULES = '''
[connections.main]
url = "{url}"
[commands.Put]
connection = "main"
sql = """INSERT INTO directory (url, title) VALUES (:url, :title)
  ON CONFLICT (url) DO UPDATE SET title = excluded.title"""
[commands.Delete]
connection = "main"
sql = "DELETE FROM directory WHERE url = :url"
[[rules.directory.store]]
query = "SELECT url, title FROM page WHERE status = 200"
commands = ["Put"]
[[rules.directory.store]]
query = "SELECT url FROM event WHERE kind = 'deleted'"
commands = ["Delete"]
[[rules.tombstones.store]]
query = "SELECT 'tombstone' AS url, NULL AS title FROM page WHERE error = 'unwanted'"
commands = ["Put"]
'''


def test_page_that_ends_is_deleted_where_a_rule_says_so(tmp_path: Path, place: Place) -> None:
    place.run("CREATE TABLE directory (url TEXT PRIMARY KEY, title TEXT)")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "storage.toml").write_text(RULES.format(url=place.url))
    surgery, school = (
        linking("/", title=words) + f"<p>{words}</p>" for words in ("Our surgery", "Our school")
    )
    pages: dict[str, Any] = {
        "/": linking("/clinic", "/ward", title="Start"),
        "/clinic": surgery,
        "/ward": surgery,
    }
    with PageServer({A: pages}).run_in_thread() as server:
        spec = Spec(name="clinics", seeds=(server.url(A),), select=Select(keywords_any=("surgery",)))
        served: Any = server.sites[A]

        def visited(**changed: Any) -> set[str]:
            """The paths in the user's table after another crawl of all pages."""
            served.update({f"/{name}": reply for name, reply in changed.items()})
            crawl(spec, tmp_path / "c", delay=0, here=True, refresh_seconds=0.0, index=False)
            return {url.rpartition("/")[2] for (url,) in place.run("SELECT url FROM directory")}

        assert visited() == {"clinic", "ward"}
        assert visited(ward=school) == {"clinic"}
        assert visited(ward=surgery, clinic=Reply(404)) == {"ward"}
        assert visited(ward=Reply(500)) == {"ward"}
        assert visited(ward=Reply(410)) == set()
