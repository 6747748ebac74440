"""The odd answers that Sterna leaves out, each with its reason."""

_ERROR = "a page of an error is not the page that was asked for: its status is stored, its text is not"
_NOWHERE = "a redirect that leads nowhere: stored as the error `redirect`"
_DATA = "data, not a page: stored with type and digest, without text"

MISSED: dict[str, str] = {
    **{f"status-{code}-with-page": _ERROR for code in (400, 401, 403, 404, 410, 418, 451, 500, 600, 999)},
    **{f"status-{code}-with-page": _NOWHERE for code in (300, 302, 304, 305, 399)},
    "redirect-empty-location": _NOWHERE,
    "no-head-at-all": "HTTP/0.9: no browser reads it but from the usual port",
    "head-value-nul": "no browser reads it; others would store the NUL",
    "head-value-150-kb": "longer than libcurl allows a line to be",
    "length-huge": "announced as longer than any page may be",
    "length-differ": "two lengths that differ are how responses are smuggled into others",
    "chunked-not-chunked": "no browser reads it",
    "transfer-gzip": "no browser reads it; no server is asked for it",
    "coding-zstd-cut": "of a zstd frame only whole blocks can be read, and none came",
    "type-csv": _DATA,
    "type-json": _DATA,
    "redirect-script": "scripts are not run",
}
