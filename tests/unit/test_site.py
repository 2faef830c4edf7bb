"""The documentation site: it builds strictly, is whole, accessible, works when it is opened as a
file, and loads nothing from elsewhere."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal

import pytest
from matplotlib.image import imread
from support.chromium import close, opened
from support.paths import ROOT

import autotune
from autotune.families.ladder import RUNGS
from autotune.report import ladder
from autotune.tuning.ladder import counters

# Names that are modules, each with something of it.
MODULES = {
    "device": "device.find",
    "errors": "errors.AutotuneError",
    "export": "export.write",
    "occupancy": "occupancy.occupancy",
    "roofline": "roofline.attainable",
}
# A page of each kind: prose, pictures, programs, tables, the reference, and those without a source.
KINDS = (
    "index.html",
    "explore.html",
    "student.html",
    "c-and-cpp.html",
    "results.html",
    "api/errors.html",
    "ladder.html",
)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        del format, args


def build(folder: Path, config: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    return subprocess.run(
        [*command, "--config-file", str(config)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module", autouse=True)
def _closed_browser() -> Iterator[None]:
    yield
    close()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(folder, ROOT / "mkdocs.yml")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def served(site: Path) -> Iterator[str]:
    handler = partial(Quiet, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_every_document_is_a_page(site: Path) -> None:
    sources = (ROOT / "docs").rglob("*.md")
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in sources}
    expected = {page.with_name("index.html") if page.stem == "README" else page for page in pages}

    assert {page for page in expected if not (site / page).is_file()} == set()


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    loads = re.compile(
        r"<(?:script|img|iframe|link(?! rel=\"canonical\"))\b[^>]*\"(https?://[^\"]+)"
    )
    found = {url for page in site.rglob("*.html") for url in loads.findall(page.read_text("utf-8"))}

    assert found == set()


@pytest.mark.parametrize("name", autotune.__all__)
def test_every_public_name_is_in_the_reference(site: Path, name: str) -> None:
    pages = [page.read_text("utf-8") for page in (site / "api").glob("*.html")]
    path = f"autotune.{MODULES.get(name, name)}"

    assert any(re.search(rf'id="{re.escape(path)}"', page) for page in pages)


def test_links_out_of_the_documents_lead_to_the_repository(site: Path) -> None:
    page = (site / "pytorch.html").read_text("utf-8")

    assert "autotune/blob/main/examples/torch_inference.py" in page


def test_broken_links_end_the_build(tmp_path: Path) -> None:
    links = "missing.md", "../missing.py", "glossary.md#missing"
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").write_text("# Title\n\n" + "".join(f"[link]({link})\n" for link in links))
    (docs / "glossary.md").write_text("# Glossary\n")
    config = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:")[0]
    config = config.replace("docs_dir: docs", f"docs_dir: {docs}")
    hooks = str(ROOT / "scripts" / "draw" / "site_links.py")
    config = config.replace("scripts/draw/site_links.py", hooks)
    config = config.replace("  - scripts/draw/site_pages.py\n", "")
    (tmp_path / "mkdocs.yml").write_text(config)

    done = build(tmp_path / "site", tmp_path / "mkdocs.yml")

    assert done.returncode == 1
    assert [link for link in links if f"'{link}'" not in done.stderr] == []


def test_headings_are_in_order_and_pictures_have_texts(site: Path) -> None:
    faults = []
    for page in {*site.rglob("*.html")} - {site / "404.html"}:
        text = re.sub(r"<script\b.*?</script>", "", page.read_text("utf-8"), flags=re.S)
        levels = [int(level) for level in re.findall(r"<h([1-6])\b", text)]
        steps = zip([0, *levels], levels, strict=False)
        if levels.count(1) != 1 or any(level > before + 1 for before, level in steps):
            faults.append((page.name, levels))
        pictures = re.findall(r"<img\b[^>]*>", text)
        faults += [(page.name, img) for img in pictures if not re.search(r'alt="[^"]', img)]
    assert faults == []


@pytest.mark.parametrize(
    ("width", "scheme", "rules"),
    [
        (1600, "light", ()),
        # What depends on colours and width alone.
        (400, "dark", ("color-contrast", "link-in-text-block", "scrollable-region-focusable")),
    ],
)
def test_each_kind_of_page_is_sound(
    site: Path, width: int, scheme: Literal["light", "dark"], rules: tuple[str, ...]
) -> None:
    with opened(site / "index.html", width=width, scheme=scheme) as shown:
        for name in KINDS:
            shown.page.goto((site / name).as_uri())
            assert shown.page.locator("h1").count() == 1
            assert shown.overflow == 0, name
            assert shown.violations(*rules) == [], name
        assert shown.faults == []


def test_navigation_of_a_narrow_page_opens_by_keyboard(site: Path) -> None:
    with opened(site / "index.html", width=400) as shown:
        link = shown.page.locator(".md-sidebar--primary .md-nav__link", has_text="Changelog")
        assert not link.is_visible()
        shown.page.get_by_role("button", name="Navigation").press("Enter")
        link.press("Enter")
        shown.page.wait_for_url("**/changelog.html")


def test_pictures_follow_the_colours_of_the_page(site: Path) -> None:
    with opened(site / "student.html", scheme="dark") as shown:
        picture = shown.page.locator("img[src$='roofline.svg']")
        dark = imread(io.BytesIO(picture.screenshot())).mean()
        shown.page.locator("label[title=Light]").click()
        light = imread(io.BytesIO(picture.screenshot())).mean()
    assert dark < 0.5 < light


def test_ladder_shows_the_chosen_rung(site: Path) -> None:
    rung = RUNGS[11]
    with opened(site / "ladder.html") as shown:
        shown.page.locator(".ladder a", has_text=rung.name).click()
        section = shown.page.locator(".rung:visible")
        assert section.locator("h2").inner_text().startswith(rung.name)
        cells = section.locator("table td:last-child").all_inner_texts()
        _, rows = ladder.compared(rung, counters())
        assert cells == [row[-1] for row in rows.values()]
        section.locator("label", has_text="Difference").click()
        assert "@@" in section.locator("code:visible").inner_text()
        section.locator("label", has_text="Source").click()
        assert section.locator("pre:visible code").inner_text() == ladder.source(rung)
        assert shown.violations("color-contrast") == []


def test_explorer_runs_on_the_site(site: Path) -> None:
    with opened(site / "explore.html") as shown:
        assert shown.page.locator("#occupancy").inner_text() == "50.0%"
        shown.page.get_by_role("link", name="autotune's documentation").click()
        assert shown.page.url == (site / "index.html").as_uri()


@pytest.mark.parametrize("kind", ["file", "server"])
def test_search_finds_a_word_of_the_glossary(site: Path, served: str, kind: str) -> None:
    with opened(site / "results" / "h100" / "index.html") as shown:
        if kind == "server":
            shown.page.goto(f"{served}/results/h100/index.html")
        words = shown.page.locator("input[name=query]")
        words.click()
        shown.page.get_by_text("Type to start searching").wait_for(timeout=120_000)
        words.press_sequentially("transposed")
        # Results are drawn again with each letter that is found.
        results = shown.page.locator(".md-search-result__item", has_text="Glossary")
        results.first.wait_for(timeout=120_000)
        assert [fault for fault in shown.faults if served not in fault] == []
