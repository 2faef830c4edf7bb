"""Pages in headless Chromium: what they show, and what they complain about."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
HEIGHT = 900
MISSING = "no Chromium; `apt-get install chromium` gives one"


@dataclass
class OpenedPage:
    """A page in the browser.

    Attributes:
        page: Playwright's page.
        faults: errors and warnings of the console, uncaught exceptions, and requests for anything
            that is not in the file.
    """

    page: Page
    faults: list[str] = field(default_factory=list)

    def draw_everything(self) -> None:
        """Scrolls to every picture, so that those far below are drawn too."""
        for figure in self.page.locator("[data-figure]").all():
            figure.scroll_into_view_if_needed()
            figure.locator(".main-svg").first.wait_for(state="attached")
        self.page.evaluate("scrollTo(0, 0)")

    def violations(self, *rules: str) -> list[str]:
        """What axe-core finds, a line for each element; of these rules alone if any are given."""
        axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe")
        options: dict[str, object] = {"resultTypes": ["violations"], "preload": False}
        if rules:
            options["runOnly"] = rules
        found = axe.Axe().run(self.page, options=options).response["violations"]
        return [
            f"{rule['id']}: {node['target']} {node['html'][:120]}: {node['failureSummary']}"
            for rule in found
            for node in rule["nodes"]
        ]

    @property
    def overflow(self) -> int:
        """Pixels by which the page is wider than the window."""
        wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        return int(self.page.evaluate(wide))


def program() -> str | None:
    """The path of Chromium or Chrome; None if there is neither."""
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def opened(
    path: Path, *, width: int = 1600, scheme: Literal["light", "dark"] = "light"
) -> Iterator[OpenedPage]:
    """The file in a new window; skips the test where there is no Chromium or no Playwright.

    The browser stays open for further pages until `close`, as starting one takes seconds.
    """
    size = {"width": width, "height": HEIGHT}
    context = _browser().new_context(viewport=size, color_scheme=scheme)  # type: ignore[arg-type]
    try:
        page = context.new_page()
        result = OpenedPage(page)
        _listen(page, result.faults)
        page.goto(path.resolve().as_uri())
        yield result
    finally:
        context.close()


def close() -> None:
    """Closes the browser, and the event loop of Playwright that other tests would run in."""
    _browser.cache_clear()
    _resources.close()


_resources = ExitStack()


@cache
def _browser() -> Browser:
    path = program()
    if path is None:
        pytest.skip(MISSING)
    api = pytest.importorskip("playwright.sync_api", reason="no Playwright")
    playwright = _resources.enter_context(api.sync_playwright())
    browser: Browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
    _resources.callback(browser.close)
    return browser


def _listen(page: Page, faults: list[str]) -> None:
    """Collects what the page complains about, and what it asks for."""

    def said(kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            faults.append(f"{kind}: {text}")

    def asked(url: str) -> None:
        if not url.startswith(("file:", "data:", "blob:")):
            faults.append(f"request: {url}")

    page.on("console", lambda message: said(message.type, message.text))
    page.on("pageerror", lambda error: faults.append(f"exception: {error}"))
    page.on("request", lambda request: asked(request.url))
