"""A real browser: Debian's chromium, driven by Playwright, with eyes on whatever a page tries to do."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Page,
    ViewportSize,
    sync_playwright,
)

CHROMIUM = Path("/usr/bin/chromium")
WIDE: ViewportSize = {"width": 1100, "height": 800}
NARROW: ViewportSize = {"width": 360, "height": 740}


@contextmanager
def open_browser() -> Iterator[Browser]:
    """The browser, until the block ends; no browser is ever downloaded.

    While it is open no event loop can run in this thread: async tests belong into another file.
    """
    if not CHROMIUM.exists():
        raise FileNotFoundError(f"{CHROMIUM} is not here: run `apt-get install chromium`")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM,
            headless=True,
            chromium_sandbox=os.geteuid() != 0,  # which root cannot have
            timeout=60_000,
        )
        try:
            yield browser
        finally:
            browser.close()


@dataclass(slots=True)
class Seen:
    """What pages did: the addresses they asked for, and whatever is a sign that something went wrong."""

    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)  # console errors, exceptions, dialogs, new windows

    def origins(self) -> set[str]:
        """Who was asked, as scheme and host with port."""
        return {"/".join(url.split("/", 3)[:3]) for url in self.requests}


@contextmanager
def open_window(browser: Browser, **options: Any) -> Iterator[tuple[Page, Seen]]:
    """A window with nothing in it from before, and what is seen of it; options are those of `new_context`."""
    context = browser.new_context(**{"viewport": WIDE, "locale": "en-GB", "timezone_id": "UTC", **options})
    context.set_default_timeout(20_000)
    seen = Seen()
    _watch(context, seen)
    try:
        page = context.new_page()
        context.on("page", lambda opened: seen.complaints.append(f"window {opened.url}"))
        yield page, seen
    finally:
        context.close()


def make_like_new(page: Page, seen: Seen, *, viewport: ViewportSize = WIDE) -> None:
    """For tests that share a window, as a new one takes a second of CPU; each goes to a page of its own."""
    page.emulate_media(media="null", color_scheme="null")
    page.set_viewport_size(viewport)
    seen.requests.clear()
    seen.complaints.clear()


def _watch(context: BrowserContext, seen: Seen) -> None:
    def on_console(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            seen.complaints.append(f"console {message.type}: {message.text}")

    def on_dialog(dialog: Dialog) -> None:
        seen.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    context.on("request", lambda request: seen.requests.append(request.url))
    context.on("console", on_console)
    context.on("dialog", on_dialog)
    context.on("weberror", lambda error: seen.complaints.append(f"exception: {error.error}"))


def is_within_the_window(page: Page) -> bool:
    """Whether nothing must be scrolled sideways."""
    return bool(page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"))


def take_picture(page: Page, name: str, *, is_whole: bool = False) -> None:
    """Keeps a picture of the window in the folder that STERNA_ARTEFACTS names, if it names one."""
    if folder := os.environ.get("STERNA_ARTEFACTS"):
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=is_whole)
