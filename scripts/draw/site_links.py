"""Links of the documents that leave the site, for MkDocs (`hooks` of mkdocs.yml).

The documents are read on GitHub too, where they link to examples, sources and folders. On the site
such a link leads to the file in the repository.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"(?<=\]\()(?P<path>[^)\s#:]+)(?=[)#])")

logger = logging.getLogger("mkdocs.hooks.site_links")


def on_page_markdown(markdown: str, /, *, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """The page with its links out of `docs/` replaced by those of the repository."""
    folder = Path(page.file.abs_src_path or "").parent
    repository = config.extra["repository"]

    def outside(match: re.Match[str]) -> str:
        target = (folder / match["path"]).resolve()
        if target.is_file() and target.is_relative_to(config.docs_dir):
            return match["path"]
        if not target.exists() or not target.is_relative_to(ROOT):
            logger.warning("%s links to %s, which is nowhere", page.file.src_uri, match["path"])
            return match["path"]
        kind = "tree" if target.is_dir() else "blob"
        return f"{repository}/{kind}/main/{PurePosixPath(target.relative_to(ROOT))}"

    return LINK.sub(outside, markdown)
