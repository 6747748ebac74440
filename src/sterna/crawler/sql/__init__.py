"""SQL as a spec: parse (query), what it reads (reads), push down (pushdown), plan (plan), a rule (rule)."""
