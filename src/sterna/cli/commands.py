"""The commands of `sterna` and `sterna host`; a command's module is loaded when it is used."""

from typing import NamedTuple


class Entry(NamedTuple):
    """A command by its module and function; a group by its module, which has it as `app`."""

    place: str
    help: str  # the first sentence of its own help, so that a list of all loads none; "" if it is not listed


# A host must stay light, and the base install lacks what the commands of a home need.
COMMANDS: dict[str, Entry] = {
    "crawl": Entry(
        "crawl.crawl", "Crawl sites into a collection; the same command again continues where it ended."
    ),
    "ask": Entry("ask.ask", "Crawl, and print the rows of a query."),
    "explain": Entry(
        "explain.explain", "Say in words what a crawler will do, and where each part of it is decided."
    ),
    "pack": Entry(
        "explain.pack", "Write a crawler as one file: program and facts, the same bytes each time."
    ),
    "inspect": Entry("explain.inspect", "Show what a crawler's file contains, without running any of it."),
    "status": Entry("status.status", "Show where a crawl stands; it may be running."),
    "list": Entry(
        "list.list_collections", "List the collections below a folder, with their pages, last crawl and size."
    ),
    "repair": Entry(
        "repair.repair",
        "Check every part of a collection, mend what is damaged, and set aside what cannot be mended.",
    ),
    "crawlers": Entry(
        "crawlers.crawlers", "List the crawlers that were sent to hosts: away, returned and lost."
    ),
    "query": Entry("query.query", "Query a collection, several as one, or a crawler's file, in SQL."),
    "export": Entry("export.export", "Write a collection for other tools, also while it is crawled."),
    "search": Entry(
        "search.search",
        "Search the pages of a collection, or of several as one, also while they are crawled.",
    ),
    "index": Entry("search.index", "Bring the search index up to date; a crawl does so by itself."),
    "serve": Entry(
        "search.serve",
        "Show a search page for a collection, with a page for SQL and a JSON API beside it. Ctrl-C ends it.",
    ),
    "demo": Entry("demo.demo", "Crawl a small site that ships with Sterna; needs no network."),
    "doctor": Entry(
        "doctor.doctor", "Show what protection this machine offers, and whether it can run foreign crawlers."
    ),
    "follow": Entry("follow.follow", ""),
    "host": Entry("app.host", "Take in crawlers of others at your own site."),
    "keys": Entry("keys.app", "Create and show the keys of a home and a host, and allow homes at a host."),
    "storage": Entry(
        "storage.app", "Store what crawlers bring in your own databases, by rules in DIR/storage.toml."
    ),
    "trust": Entry("trust.app", "Show how far the hosts of sites are trusted, and forget it."),
}
HOST_COMMANDS: dict[str, Entry] = {
    "init": Entry(
        "host_init.init",
        "Write settings, a policy, a systemd unit and a proxy snippet for a host, and check them.",
    ),
    "run": Entry(
        "host_run.run",
        "Run a host beside the web server, which passes /sterna and /.well-known/sterna on to it.",
    ),
    "cgi": Entry(
        "host_run.write_cgi", "Write a CGI program that is a host, and its configuration beside it."
    ),
    "check": Entry(
        "host_preview.check", "Say in words what a policy allows: to whom, now, and when that changes next."
    ),
    "status": Entry("host_owner.status", "Show the crawlers at the host, and what they use of their limits."),
    "stop": Entry("host_owner.stop", "Stop a crawler, or all of them at once."),
    "open": Entry("host_owner.open_doors", "Admit crawlers again after `sterna host stop`."),
    "query": Entry(
        "host_query.query",
        "Show what a crawler at the host holds: facts, frontier, and pages that its home does not have yet.",
    ),
    "audit": Entry(
        "host_owner.audit",
        "Verify the audit log and sum it up; exit code 1 if a line was changed, removed or cut off.",
    ),
    "receipts": Entry(
        "host_receipts.receipts",
        "Sum up the receipts of visits by home and day: what they cost, what they spared, and who signed.",
    ),
    "index": Entry(
        "host_own.index",
        "Read your own site, for its sitemap, its changes and its search; the next time only what changed.",
    ),
    "sitemap": Entry(
        "host_own.sitemap", "Write the site's sitemap.xml with true dates, from what the last survey found."
    ),
    "changes": Entry(
        "host_own.changes",
        "List the pages of the site that were created, updated and deleted, as surveys found them.",
    ),
    "search": Entry("host_own.find", "Search the pages of your own site."),
    "dry-run": Entry(
        "host_preview.dry_run",
        "Write to a file what would leave the site for a crawler: every page and fact as its home would get"
        " it.",
    ),
}
