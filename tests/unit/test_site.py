"""The documentation site: it builds strictly, is whole, and loads nothing from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from support.chromium import close, opened
from support.paths import ROOT

import autotune

# Names that are modules, each with something of it.
MODULES = {
    "device": "device.find",
    "errors": "errors.AutotuneError",
    "export": "export.write",
    "occupancy": "occupancy.occupancy",
    "roofline": "roofline.attainable",
}
SHOWN = ("index.html", "student.html", "results.html", "api/tuning.html")


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
    config = config.replace(
        "scripts/draw/site_links.py", str(ROOT / "scripts" / "draw" / "site_links.py")
    )
    (tmp_path / "mkdocs.yml").write_text(config)

    done = build(tmp_path / "site", tmp_path / "mkdocs.yml")

    assert done.returncode == 1
    assert [link for link in links if f"'{link}'" not in done.stderr] == []


@pytest.mark.parametrize("width", [400, 1600])
def test_pages_are_sound_in_a_browser(served: str, tmp_path: Path, width: int) -> None:
    (tmp_path / "empty.html").write_text("<!doctype html><title>empty</title>")
    with opened(tmp_path / "empty.html", width=width) as shown:
        for name in SHOWN:
            shown.page.goto(f"{served}/{name}", wait_until="networkidle")
            assert shown.page.locator("h1").count() == 1
            assert shown.overflow == 0, name
        assert [fault for fault in shown.faults if served not in fault] == []


def test_search_finds_a_word_of_the_glossary(served: str, tmp_path: Path) -> None:
    (tmp_path / "empty.html").write_text("<!doctype html><title>empty</title>")
    with opened(tmp_path / "empty.html") as shown:
        shown.page.goto(f"{served}/index.html", wait_until="networkidle")
        words = shown.page.locator("input[name=query]")
        words.click()
        shown.page.get_by_text("Type to start searching").wait_for(timeout=120_000)
        words.press_sequentially("swap-AB")
        # Results are drawn again with each letter that is found.
        results = shown.page.locator(".md-search-result__item", has_text="Glossary")
        results.first.wait_for(timeout=120_000)
