"""Pictures of a page of autotune in headless Chromium, for the documentation.

    autotune explore "rtx 3060" --out build/explore.html
    python scripts/screenshots.py build/explore.html docs/screenshots/explore

writes docs/screenshots/explore-1600.png (light) and explore-400.png (dark).
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from playwright.sync_api import sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
WIDTHS = (1600, 400)
HEIGHTS = (1960, 1360)
"""Heights of the pictures in pixels, unless stated."""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("page", type=Path)
    arguments.add_argument("out", type=Path, help="start of the pictures' names")
    arguments.add_argument("--heights", type=int, nargs=2, default=HEIGHTS, help="in pixels")
    options = arguments.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    program = next(filter(None, map(shutil.which, NAMES)), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for width, height in zip(WIDTHS, options.heights, strict=True):
            page = browser.new_page(
                viewport={"width": width, "height": height},
                color_scheme="light" if width > 1000 else "dark",
            )
            page.goto(options.page.resolve().as_uri())
            page.locator(".main-svg").first.wait_for(state="attached")
            for figure in page.locator("[data-figure]").all():  # drawn when they come near
                figure.scroll_into_view_if_needed()
                figure.locator(".main-svg").first.wait_for(state="attached")
            page.evaluate("scrollTo(0, 0)")
            page.wait_for_timeout(500)
            page.screenshot(path=f"{options.out}-{width}.png")
        browser.close()


if __name__ == "__main__":
    main()
