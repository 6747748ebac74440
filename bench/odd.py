"""What Chromium, Scrapy, wget and Sterna read of the odd answers in tests/odd."""

import argparse
import html
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from playwright.sync_api import Browser, Error
from tests.odd.answers import CASES
from tests.odd.reading import read_all
from tests.odd.server import Case, serve
from tests.odd.table import PEERS as RECORDED
from tests.odd.table import RECORD, write_page
from tests.servers.browser import open_browser

HERE = Path(__file__).parent
SCRAPY = HERE / ".peers/scrapy"
SHOWN = "[document.title, document.documentElement ? document.documentElement.textContent : ''].join(' ')"


def by_chromium(url: str) -> set[str]:
    with open_browser() as browser:
        first = {case.name for case in CASES.values() if shows(browser, url, case)}
        # On a busy machine a page may be late.
        return first | {name for name in CASES.keys() - first if shows(browser, url, CASES[name])}


def shows(browser: Browser, url: str, case: Case) -> bool:
    page = browser.new_context().new_page()
    # An answer that is cut off may be shown all the same; what Chromium says of an error does not match.
    with suppress(Error):
        page.goto(f"{url}/{case.name}", timeout=5_000, wait_until="load")
    try:
        page.wait_for_function(f"({SHOWN}).includes({json.dumps(case.shows)})", timeout=1_000)
    except Error:
        return False
    finally:
        page.context.close()
    return True


def by_scrapy(url: str) -> set[str]:
    if not SCRAPY.is_dir():
        subprocess.run([sys.executable, "-m", "venv", SCRAPY], check=True)
        subprocess.run([SCRAPY / "bin/python", "-m", "pip", "install", "-q", "scrapy"], check=True)
    urls = json.dumps([f"{url}/{name}" for name in CASES])
    command = [SCRAPY / "bin/python", HERE / "peers/scrapy_answers.py"]
    answer = subprocess.run(command, input=urls, stdout=subprocess.PIPE, text=True, check=True)
    texts = json.loads(answer.stdout)
    return {name for name, case in CASES.items() if case.shows in texts.get(f"{url}/{name}", "")}


def by_wget(url: str) -> set[str]:
    """Whether the file that it leaves has the bytes of the title: what they mean is left to others."""

    def has_read(case: Case) -> bool:
        command = ["wget", "--no-config", "--quiet", "--tries=2", "--timeout=5", "--output-document=-"]
        saved = subprocess.run([*command, f"{url}/{case.name}"], stdout=subprocess.PIPE, check=False).stdout
        return case.codes.decode("latin-1") in html.unescape(saved.decode("latin-1"))

    with ThreadPoolExecutor(4) as threads:
        return {
            case.name
            for case, is_read in zip(CASES.values(), threads.map(has_read, CASES.values()), strict=True)
            if is_read
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true", help="renew the record and its page in docs")
    given = parser.parse_args()
    measures = {"Chromium": by_chromium, "Scrapy": by_scrapy, "wget": by_wget, "Sterna": read_all}
    found: dict[str, set[str]] = {}
    with serve(CASES) as url:
        for peer, measure in measures.items():
            found[peer] = measure(url)
            print(f"{peer:10} {len(found[peer])} of {len(CASES)}", flush=True)
    missed = set.union(*(found[peer] for peer in RECORDED)) - found["Sterna"]
    print("not read by Sterna, but by others:", *sorted(missed), sep="\n  ")
    if given.record:
        record = {name: [peer for peer in RECORDED if name in found[peer]] for name in CASES}
        RECORD.write_text(json.dumps(record, indent=1) + "\n")
        write_page(record, found["Sterna"])


if __name__ == "__main__":
    main()
