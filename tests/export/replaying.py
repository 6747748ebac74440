"""pywb, in a process of its own: it patches the sockets of all that runs beside it.

Reads a list of moments and URLs from standard input, and writes for each the status and the body's SHA-256.
"""

from gevent import monkey

monkey.patch_all()

import hashlib  # noqa: E402 - gevent patches first
import json  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
from wsgiref.util import setup_testing_defaults  # noqa: E402

from pywb.apps.frontendapp import FrontEndApp  # noqa: E402


def main(folder: str, index: str) -> None:
    os.chdir(folder)
    paths = {"index_paths": index, "archive_paths": "archive/"}
    app = FrontEndApp(config_file=None, custom_config={"collections": {"c": paths}})
    json.dump([replayed(app, moment, url) for moment, url in json.load(sys.stdin)], sys.stdout)


def replayed(app: FrontEndApp, moment: str, url: str) -> tuple[str, str]:
    """Status and digest of a capture as it was served, without changes for browsers."""
    asked = {"PATH_INFO": f"/c/{moment}id_/{url}", "QUERY_STRING": ""}
    setup_testing_defaults(asked)
    statuses: list[str] = []
    body = b"".join(app(asked, lambda status, headers, error=None: statuses.append(status)))
    return statuses[0], hashlib.sha256(body).hexdigest()


main(*sys.argv[1:])
