"""The commands of `sterna` and `sterna host`; a command's module is loaded when it is used."""

# Each command by its module and function, each group by its module alone, which has it as `app`. A host must
# stay light, and the base install lacks what the commands of a home need.
COMMANDS: dict[str, str] = {
    "crawl": "crawl.crawl",
    "ask": "ask.ask",
    "explain": "explain.explain",
    "pack": "explain.pack",
    "inspect": "explain.inspect",
    "status": "status.status",
    "list": "list.list_collections",
    "repair": "repair.repair",
    "crawlers": "crawlers.crawlers",
    "query": "query.query",
    "export": "export.export",
    "search": "search.search",
    "index": "search.index",
    "serve": "search.serve",
    "demo": "demo.demo",
    "doctor": "doctor.doctor",
    "follow": "follow.follow",
    "host": "app.host",
    "keys": "keys.app",
    "storage": "storage.app",
    "trust": "trust.app",
}
HOST_COMMANDS: dict[str, str] = {
    "init": "host_init.init",
    "run": "host_run.run",
    "cgi": "host_run.write_cgi",
    "check": "host_preview.check",
    "status": "host_owner.status",
    "stop": "host_owner.stop",
    "open": "host_owner.open_doors",
    "query": "host_query.query",
    "audit": "host_owner.audit",
    "receipts": "host_receipts.receipts",
    "index": "host_own.index",
    "sitemap": "host_own.sitemap",
    "changes": "host_own.changes",
    "search": "host_own.find",
    "dry-run": "host_preview.dry_run",
}
