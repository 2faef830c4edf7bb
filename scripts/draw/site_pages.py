"""Pages of the site that no Markdown file holds, for MkDocs (`hooks` of mkdocs.yml): the changelog,
the explorer, and the ladder, from what `autotune explore` and `autotune ladder` show. It also mends
the search of the site."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File, Files

from autotune.families.ladder import LAYOUTS, RUNGS, Rung
from autotune.measure import recording
from autotune.report import ladder
from autotune.report.pages import explore
from autotune.tuning.ladder import COUNTED_ON, COUNTED_SIDE, RungTime, counters, load

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig

ROOT = Path(__file__).resolve().parents[2]
NODE_KEY = "e=e+s+o.id}return e}", 'e=e+s+o.id+","}return e}'
"""How lunr 2.3.9 writes a node of its tree of words, and how it must.

A node's key is its letters with the numbers of the nodes below. A digit among the letters runs into
these numbers, so that different nodes get one key, and a search ends in "Invalid query".
"""
BACK = '<p><a href="index.html">autotune\'s documentation</a></p>'

logger = logging.getLogger("mkdocs.hooks.site_pages")


def on_files(files: Files, /, *, config: MkDocsConfig) -> Files:
    """Adds the pages."""
    changelog = str(ROOT / "CHANGELOG.md")
    files.append(File.generated(config, "changelog.md", abs_src_path=changelog))
    files.append(File.generated(config, "ladder.md", content="\n".join(ladder_page())))
    files.append(File.generated(config, "explore.html", content=explorer()))
    return files


def on_post_build(*, config: MkDocsConfig) -> None:
    """Separates the parts of lunr's keys in the script that searches."""
    for path in Path(config.site_dir, "assets", "javascripts", "workers").glob("search.*.js"):
        script = path.read_text("utf-8")
        if script.count(NODE_KEY[0]) != 1:
            logger.warning("%s has another lunr: see whether NODE_KEY is still needed", path.name)
        path.write_text(script.replace(*NODE_KEY), "utf-8")


def explorer() -> str:
    """The page of `autotune explore`, with a link to the site."""
    before, heading, after = explore.explorer().partition("<h1>")
    return before + BACK + heading + after


def ladder_page() -> Iterator[str]:
    """The lines of the ladder's page in Markdown; `ladder.js` shows one rung at a time."""
    times = load(COUNTED_ON, COUNTED_SIDE).rungs
    yield "---\nhide: [toc]\n---\n# The ladder, rung by rung"
    yield (
        "\nEach kernel changes one thing in the one before. Choose a rung to read its source, the "
        "difference from the rung before, and the counters that say what the change removed. "
        "[For students](student.md#3-the-ladder) explains the counters; `autotune ladder` prints "
        "the same.\n"
    )
    yield '<div class="ladder">'
    for compute in LAYOUTS:
        yield from _speeds(compute, [row for row in times if row.compute == compute])
    yield f"</div>\n\n*{COUNTED_SIDE} x {COUNTED_SIDE} x {COUNTED_SIDE}. Times: {_made('ladder')}."
    yield f"Counters: {_made('counters')}, with Nsight Compute.*\n"
    speeds = {row.name: row for row in times}
    for rung in RUNGS:
        yield from _section(rung, speeds[rung.name])
    yield '\n<script src="javascripts/ladder.js"></script>'


def _made(name: str) -> str:
    """The device, date, cuBLAS and toolkit of a recording."""
    path = recording.ROOT / COUNTED_ON / f"{name}-{COUNTED_SIDE}.json"
    made = json.loads(path.read_text("utf-8"))
    library = "" if made["cublas"] == "not used" else f", cuBLAS {made['cublas']}"
    return f"{made['device']}, {made['date'][:10]}{library}, {made['toolkit']}"


def _speeds(compute: str, rows: Sequence[RungTime]) -> Iterator[str]:
    """A table with the speed of each kernel; the names of rungs lead to their sections."""
    numbered = {rung.name for rung in RUNGS}
    yield f'<table class="speeds"><caption>{compute}</caption><thead><tr>'
    yield "".join(f'<th scope="col">{name}</th>' for name in ("kernel", "TFLOP/s", "of cuBLAS"))
    yield "</tr></thead><tbody>"
    for row in rows:
        name, share = row.name, row.cublas_share or 0.0
        if name in numbered:
            name = f'<a href="#{name.replace(" ", "-")}">{name}</a>'
        yield f'<tr><th scope="row">{name}</th><td>{_tflops(row)}</td>'
        yield f'<td style="--share: {min(1.0, share):.3f}">{share:.1%}</td></tr>'
    yield "</tbody></table>"


def _tflops(row: RungTime) -> str:
    speed = (row.gflops or 0.0) / 1e3
    return f"{speed:.0f}" if speed >= 100 else f"{speed:.1f}"


def _section(rung: Rung, time: RungTime) -> Iterator[str]:
    """A rung: its figures, counters, difference and source."""
    yield f'\n<section class="rung" markdown>\n\n## {rung.name}\n'
    yield f"**{rung.change[0].upper()}{rung.change[1:]}.**"
    if rung.removed:
        yield f"Removed: {rung.removed}."
    yield (
        f"{_tflops(time)} TFLOP/s, {time.peak_share:.1%} of the peak in {rung.compute}; "
        f"occupancy {time.occupancy:.0%}, limited by {time.limiter}.\n"
    )
    yield '=== "Why"\n'
    yield from _indented(_why(rung))
    if changed := ladder.difference(rung):
        yield f'=== "Difference from {RUNGS[rung.number - 2].name}"\n'
        yield from _indented(["```diff", changed, "```"])
    yield '=== "Source"\n'
    yield from _indented([f'```cuda title="cuda_src/{rung.source}"', ladder.source(rung), "```"])
    yield "\n</section>"


def _why(rung: Rung) -> Iterator[str]:
    """A table of a rung's counters and the previous rung's."""
    shown, rows = ladder.compared(rung, counters())
    yield "| | " + " | ".join(row.name for row in shown) + " |"
    yield "|---|" + "--:|" * len(shown)
    for name, cells in rows.items():
        depth = "&emsp;" * ((len(name) - len(name.lstrip())) // 2)
        yield f"| {depth}{name.lstrip()} | {' | '.join(cells)} |"
    yield f"\n{ladder.WHY}"


def _indented(lines: Iterable[str]) -> Iterator[str]:
    for line in "\n".join(lines).splitlines():
        yield f"    {line}".rstrip()
    yield ""
