"""Links of the documents, for MkDocs (`hooks` of mkdocs.yml).

The documents are read on GitHub too, where they link to examples, sources and folders, and to the
site's live pages. On the site the former lead to the repository, the latter are relative.
"""

from __future__ import annotations

import logging
import re
from os.path import relpath
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"(?<=\]\()(?P<path>[^)\s#:]+)(?=[)#])")
EMPTY_HEADING = re.compile(r"<th((?: style=\"[^\"]*\")?)></th>")

logger = logging.getLogger("mkdocs.hooks.site_links")


def on_page_markdown(markdown: str, /, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page with links that work on the site: to a page of it, or else to the repository."""
    if page.file.abs_src_path is None:  # made for the site
        return markdown
    docs, folder = Path(config.docs_dir), Path(page.file.abs_src_path).parent
    here = (docs / page.file.src_uri).parent
    repository = config.extra["repository"]

    def on_site(match: re.Match[str]) -> str:
        target = (folder / match["path"]).resolve()
        if target == ROOT / "CHANGELOG.md":
            target = docs / "changelog.md"
        elif not (target.is_file() and target.is_relative_to(docs)):
            if not target.exists() or not target.is_relative_to(ROOT):
                logger.warning("%s links to %s, which is nowhere", page.file.src_uri, match["path"])
                return match["path"]
            kind = "tree" if target.is_dir() else "blob"
            return f"{repository}/{kind}/main/{target.relative_to(ROOT).as_posix()}"
        return Path(relpath(target, here)).as_posix()

    def of_live_page(match: re.Match[str]) -> str:
        names = (match["page"] + ending for ending in (".md", ".html"))
        name = next((name for name in names if files.get_file_from_path(name)), match["page"])
        return Path(relpath(docs / name, here)).as_posix()

    linked = LINK.sub(on_site, markdown)
    return re.sub(rf"(?<=\]\(){config.site_url}(?P<page>[\w/]+)\.html", of_live_page, linked)


def on_page_content(html: str, /, **_: Any) -> str:
    """The page with empty headings of tables as cells, which screen readers do not announce."""
    return EMPTY_HEADING.sub(r"<td\1></td>", html)
