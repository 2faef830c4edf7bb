"""The documents: their links lead somewhere, and their tables agree with the code."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import results
from support.paths import ROOT

from autotune.device import find
from autotune.families import registry
from autotune.families.ladder import RUNGS
from autotune.problem import Problem
from autotune.problem.precision import PRECISIONS
from autotune.tuning.ladder import load
from autotune.version import __version__

DOCUMENTS = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")], key=lambda path: path.as_posix()
)
STATED = re.compile(r"^NVIDIA .*, \d{4}-\d\d-\d\d.*, cuBLAS (\d+\.\d+|not recorded|not used)")
LINK = re.compile(r"\]\(([^)\s]+)\)")
OURS = re.compile(  # files of this repository, as GitHub and PyPI show them
    r"https://(github\.com/tile-autotune/autotune/(blob|tree)"
    r"|raw\.githubusercontent\.com/tile-autotune/autotune)/main/"
)
README = (ROOT / "README.md").read_text("utf-8")


def anchors(path: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", path.read_text("utf-8"), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in headings}


def table(name: str, heading: str) -> list[list[str]]:
    """The rows of the first table below a heading, cells without backquotes."""
    text = (ROOT / "docs" / name).read_text("utf-8").split(f"## {heading}\n", 1)[1]
    rows = re.findall(r"^\|(.*)\|$", text.split("\n## ", 1)[0], flags=re.M)
    return [[cell.replace("`", "").strip() for cell in row.split("|")] for row in rows[2:]]


TABLE = re.compile(r"(?P<before>[^\n]*)\n\n(?P<head>\|.*\|)\n\|[-| :]+\|\n(?P<rows>(?:\|.*\n)+)")
DECIMAL = re.compile(r"\|[^|`]*\b\d+\.\d")
NOT_MEASURED = "<!-- not measured -->"


def has_results(rows: str) -> bool:
    """Whether most rows of a table have a number with decimals."""
    lines = rows.splitlines()
    return 2 * sum(bool(DECIMAL.search(line)) for line in lines) >= len(lines)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_tables_of_results_name_card_date_and_cublas(path: Path) -> None:
    bare = [
        table["head"]
        for table in TABLE.finditer(path.read_text("utf-8"))
        if has_results(table["rows"])
        and table["before"] != NOT_MEASURED
        and not results.CAPTION.fullmatch(table["before"])
    ]
    assert bare == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_captions_name_card_date_and_cublas(path: Path) -> None:
    by_hand = [each["text"] for each in results.CAPTION.finditer(path.read_text("utf-8"))]
    assert [each for each in by_hand if not STATED.search(each)] == []


def words(names: tuple[str, ...]) -> str:
    return ", ".join(names)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    broken = []
    for link in LINK.findall(path.read_text("utf-8")):
        name, _, anchor = link.partition("#")
        if ours := OURS.match(name):
            target = ROOT / name.removeprefix(ours[0])
        elif name.startswith(("http://", "https://")):
            continue
        else:
            target = (path.parent / name).resolve() if name else path
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_readme_is_short() -> None:
    assert len(README.splitlines()) <= 110


def test_links_of_the_readme_are_absolute() -> None:
    assert [link for link in LINK.findall(README) if not link.startswith("https://")] == []


def test_speed_that_the_readme_claims_was_measured() -> None:
    def suite(name: str) -> results.Row:
        path = ROOT / "docs" / "results" / f"{name}.json"
        return json.loads(path.read_text("utf-8"))  # type: ignore[no-any-return]

    precisions = "f32", "tf32x3", "tf32", "f16", "bf16"
    suites = [suite(f"{card}/suite-{name}") for card in ("h100", "h200") for name in precisions]
    assert "beat cuBLAS in the geometric mean of 27 shapes, in each of five" in README
    assert min(found["geomean"] for found in suites) > 1
    assert "On none is cuBLAS faster by more than the spread of the timings" in README
    assert all(results.matched(row) for found in suites for row in found["rows"])
    assert "`int8` is more than twice as fast as `torch._int_mm`" in README
    assert min(suite(f"{card}/suite-i8")["geomean"] for card in ("h100", "h200")) > 2
    compiled = suite("h200/compiled-models")["summary"]["raced"]["over"]
    plain, other = (round(compiled[name]["geomean"], 2) for name in ("plain", "max-autotune"))
    assert f"1 to 2048 rows {plain} times as fast on an H200" in README
    assert f"its models {other} times as long to run" in README
    assert round(1 / compiled["max-autotune"]["compile_share"]) == 5


def test_module_runs_as_the_command() -> None:
    command = [sys.executable, "-m", "autotune", "--version"]
    assert subprocess.check_output(command, text=True, cwd=ROOT) == f"{__version__}\n"


def test_family_table_is_that_of_the_registry() -> None:
    rows = [
        [
            family.name,
            "ladder/*.cu"
            if family.for_reading
            else f"{family.name}.cu"
            if family.sources
            else "cuBLASLt",
            words(family.precisions),
            "yes" if family.tensor_cores else "no",
            "no" if family.sources and family.search_order is None else "yes",
        ]
        for family in registry.FAMILIES.values()
    ]
    assert table("kernels.md", "Families") == rows


def test_ladder_table_has_the_rungs_and_their_recorded_speed() -> None:
    speeds = {rung.name: (rung.gflops or 0.0) / 1000 for rung in load("h100", 4096).rungs}
    rows = [
        [
            str(rung.number),
            f"[{rung.kernel}](../cuda_src/{rung.source})",
            rung.change,
            rung.removed,
            f"{speeds[rung.name]:.{0 if speeds[rung.name] >= 100 else 1}f}",
        ]
        for rung in RUNGS
    ]
    assert table("student.md", "3. The ladder") == rows


@pytest.mark.parametrize("name", registry.FAMILIES)
def test_every_parameter_is_explained(name: str) -> None:
    family = registry.find(name)
    section = next(
        part
        for part in (ROOT / "docs" / "kernels.md").read_text("utf-8").split("\n### ")
        if f"`{name}`" in part.splitlines()[0]
    )
    explained = set(re.findall(r"`(\w+)`", section))
    problem = Problem(4096, 4096, 4096, compute=family.precisions[0])
    assert set(family.domain(problem, find("h100"))) <= explained


def test_precision_table_is_that_of_the_code() -> None:
    rows = {row[0]: row for row in table("precisions.md", "Precisions")}
    assert list(rows) == ["f32", "tf32x3", "tf32", "f16", "bf16", "f8", "f8e5", "i8"]
    assert rows.keys() == PRECISIONS.keys()
    for name in PRECISIONS:
        families = (f for f in registry.FAMILIES.values() if not f.for_reading)
        served = {f.name for f in families if name in f.precisions}
        listed = rows[name][4]
        assert (
            set(rows["tf32x3"][4].split(", ") if listed == "as tf32x3" else listed.split(", "))
            - {"none"}
            == served
        )
