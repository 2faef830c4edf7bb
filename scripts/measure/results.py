"""Result files: their provenance, archives of recordings, and the rows and tables of a suite.

    python scripts/measure/results.py pack docs/results/h200/drawn

adds the recordings of the folder to `docs/results/h200/drawn.zip`, replaces those of the same name,
and deletes the folder. `suite.py --trials` and `record.py drawn` write folders; every script that
reads recordings takes either.

    python scripts/measure/results.py tables

writes what the documents state of result files: a row a suite between `<!-- suites: FILES -->` and
`<!-- end -->`, a row a shape below `<!-- shapes: FILES -->`. Above each table of results it writes
the device, the dates and the cuBLAS, from the files that a comment behind the caption names:
`*...* <!-- h100/suite-*.json -->`. A picture of suites above such a caption gets their means as its
alternative text.

    autotune check --vendor --json | python scripts/measure/results.py vendor vendor-check.json

counts the results of cuBLAS and of cuBLASLt's algorithms in a file, which has every wrong one.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any
from zipfile import ZipFile, ZipInfo

import typer
from rich.table import Table

from autotune.cuda import cublaslt
from autotune.device import Device
from autotune.files import write_whole
from autotune.measure import targets
from autotune.measure.measurement import Measurement
from autotune.measure.objective import COLD
from autotune.measure.recording import Recording
from autotune.problem import LAYOUTS, PRECISIONS, Problem
from autotune.problem.vendor import LAYOUT, library_sizes
from autotune.records import Record
from autotune.report import cell

Row = dict[str, Any]
TRITON = "triton"
"""The name of the Triton kernel among further baselines."""


@dataclass(frozen=True)
class Ceilings:
    """Ceilings of a device: FLOP/s in a precision, bytes/s of a copy."""

    flops: float
    bytes: float


# Measured: a loop of nothing but FFMA, and a device-to-device copy (bytes read and written).
ARITHMETIC = {("H100 80GB HBM3", "f32"): 66.0e12, ("H200", "f32"): 66.0e12}
MEMORY = {"H100 80GB HBM3": 2996e9, "H200": 4.3e12}


def ceilings(device: Device, compute: str = "f32") -> Ceilings:
    """The measured ceilings of GPUs of that name, else the peaks that follow from the clocks."""
    flops = (
        value for (name, of), value in ARITHMETIC.items() if name in device.name and of == compute
    )
    copied = (value for name, value in MEMORY.items() if name in device.name)
    return Ceilings(next(flops, device.peak(compute)), next(copied, device.memory_bandwidth))


def of_vendor(compute: str) -> str:
    """The precision of the vendor baseline: cuBLAS has no `tf32x3`; its fp32 is as accurate."""
    return PRECISIONS[compute].vendor or compute


@dataclass(frozen=True)
class Finals:
    """The final round of a shape, timed interleaved on the same operands.

    Attributes:
        ours: the winner hot.
        cublas: the vendor baseline; None if it was not timed.
        cublaslt: the results of cuBLASLt's heuristic by name, its first choice first.
        cold: the winner with L2 flushed; None if it is `ours`.
        triton: a Triton kernel; None if it was not timed.
    """

    ours: Measurement
    cublas: Measurement | None = None
    cublaslt: Mapping[str, Measurement] = field(default_factory=dict)
    cold: Measurement | None = None
    triton: Measurement | None = None

    @property
    def cublaslt_us(self) -> float | None:
        """The fastest hot time of cuBLASLt."""
        return min((item.time_us for item in self.cublaslt.values()), default=None)

    @property
    def cublaslt_cold_us(self) -> float | None:
        """The fastest cold time of cuBLASLt, perhaps of another result than the hot one."""
        cold = (item.cold_us for item in self.cublaslt.values())
        return min((time for time in cold if time is not None), default=None)


def row(problem: Problem, record: Record, finals: Finals, seconds: float, most: Ceilings) -> Row:
    """The row of one shape; times in microseconds; ratios above 1 if the winner is faster.

    `cold` is of the winner with L2 flushed, and has the time of the winner hot beside it.
    """
    ours, cublas = finals.ours, finals.cublas
    cold_us = (finals.cold or ours).cold_us
    roofline_us = 1e6 * max(problem.flops / most.flops, problem.bytes / most.bytes)
    cublas_us, cublas_cold_us = (cublas.time_us, cublas.cold_us) if cublas else (None, None)
    return {
        "shape": [problem.m, problem.n, problem.k],
        "compute": problem.compute,
        "layout": problem.layout,
        "output": problem.output,
        **_extras(problem),
        **_of_triton(problem, finals),
        "vendor": of_vendor(problem.compute),
        "ours_us": ours.time_us,
        "cublas_us": cublas_us,
        "cublaslt_us": finals.cublaslt_us,
        "ratio": _ratio(cublas_us, ours.time_us),
        "ratio_lt": _ratio(finals.cublaslt_us, ours.time_us),
        "cold": {
            "ours_us": cold_us,
            "hot_winner_us": ours.cold_us,
            "cublas_us": cublas_cold_us,
            "cublaslt_us": finals.cublaslt_cold_us,
            "ratio": _ratio(cublas_cold_us, cold_us),
            "ratio_lt": _ratio(finals.cublaslt_cold_us, cold_us),
            "config": str(record.best_by(COLD).config),
        },
        "spread": {"ours_us": ours.spread_us, "cublas_us": cublas and cublas.spread_us},
        "cublaslt": {
            name: {
                "us": item.time_us,
                "spread_us": item.spread_us,
                "cold_us": item.cold_us,
                "error": item.relative_error,
            }
            for name, item in finals.cublaslt.items()
        },
        "tflops": problem.speed(ours.time_us) / 1e12,
        "roofline_share": roofline_us / ours.time_us,
        "error": ours.relative_error,
        "reference_error": cublas and cublas.relative_error,
        "trials": record.provenance.trials,
        "tune_s": seconds,
        "family": record.best.config.family,
        "config": str(record.best.config),
    }


def _extras(problem: Problem) -> Row:
    """The fields of batches, of epilogues and of 8-bit problems, which other rows do not have."""
    extras: Row = {}
    if problem.batch > 1:
        extras["batch"] = problem.batch
    if problem.epilogue != "none":
        extras["epilogue"] = problem.epilogue
    if problem.precision.eight_bit:
        extras |= {name: getattr(problem, name) for name in ("scale", "accumulate", "e5m2")}
        extras["padded"] = is_padded(problem)
    return extras


def is_padded(problem: Problem) -> bool:
    """Whether cuBLAS multiplies padded or transposed copies of A and B."""
    if not problem.precision.eight_bit:
        return False
    sizes = problem.m, problem.n, problem.k
    return problem.layout != LAYOUT or library_sizes(problem) != sizes


def _of_triton(problem: Problem, finals: Finals) -> Row:
    """The time of Triton's kernel; None in rows of 8-bit problems that have none."""
    if finals.triton is None and not problem.precision.eight_bit:
        return {}
    triton_us = finals.triton.time_us if finals.triton else None
    return {"triton_us": triton_us, "ratio_triton": _ratio(triton_us, finals.ours.time_us)}


def problem_of(row: Row) -> Problem:
    """The problem of a row; fields that it does not have are at their defaults."""
    names = ("output", "batch", "epilogue", "scale", "accumulate", "e5m2")
    fields = {name: row[name] for name in names if name in row}
    m, n, k = row["shape"]
    return Problem(m, n, k, row["compute"], row["layout"], **fields)


def family_of(row: Row) -> str:
    """The family of a row's winner."""
    return str(row["config"]).partition(":")[0]


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Geometric means and worst ratios, hot and cold; the number of wins of each family."""
    cold = [row["cold"] for row in rows]
    errors = [_ratio(row["error"], row["reference_error"]) for row in rows]
    return {
        **_spanned(row["ratio"] for row in rows),
        "cold": _spanned(times["ratio"] for times in cold),
        "cublaslt": {
            **_spanned(row["ratio_lt"] for row in rows),
            "cold": _spanned(times["ratio_lt"] for times in cold),
        },
        "worst_shape": worst_shape(rows),
        "families": dict(Counter(map(family_of, rows)).most_common()),
        "largest_error_ratio": max((ratio for ratio in errors if ratio is not None), default=None),
        "layouts": layouts(rows),
    }


def worst_shape(rows: Sequence[Row]) -> str | None:
    """The shape with the lowest ratio to cuBLAS; None if cuBLAS was not timed."""
    timed = [row for row in rows if row["ratio"] is not None]
    return problem_of(min(timed, key=lambda row: row["ratio"])).shape if timed else None


def layouts(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Speeds of the other layouts relative to nn, for each shape that has all layouts."""
    times: dict[tuple[int, ...], dict[str, float]] = {}
    for row in rows:
        times.setdefault(tuple(row["shape"]), {})[row["layout"]] = row["ours_us"]
    return [
        {"shape": list(shape), **{name: by_layout["nn"] / by_layout[name] for name in LAYOUTS[1:]}}
        for shape, by_layout in times.items()
        if by_layout.keys() >= set(LAYOUTS)
    ]


@dataclass
class Sheet:
    """The file of a suite, written whole after every row.

    Attributes:
        path: the file.
        device: name of the device, the same for all rows.
        source: hash of the kernel sources, the same for all rows.
        commit: commit of the code.
        most: the ceilings of the roofline.
        rows: rows by problem.
    """

    path: Path
    device: str
    source: str
    commit: str
    most: Ceilings
    rows: dict[Problem, Row] = field(default_factory=dict)

    def resume(self) -> None:
        """Loads the rows of the file if they are of this device, sources and cuBLAS."""
        if not self.path.exists():
            return
        content = json.loads(self.path.read_text())
        made = tuple(content[name] for name in ("device", "source", "cublas"))
        if made == (self.device, self.source, cublaslt.version() or UNKNOWN):
            self.rows = {problem_of(row): row for row in content["rows"]}

    def add(self, problem: Problem, record: Record, row: Row) -> None:
        """Adds or replaces a row and writes the file."""
        self.rows[problem] = row
        rows = [*self.rows.values()]
        content = {
            **provenance(
                self.device,
                record.provenance.driver,
                record.provenance.compiler,
                cublas=cublaslt.version(),
                commit=self.commit,
                date=record.provenance.date,
            ),
            "evidence": record.evidence,
            "source": self.source,
            "ceilings": asdict(self.most),
            "rows": rows,
            **summary(rows),
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(content, indent=1, allow_nan=False) + "\n"
        write_whole(self.path, text.encode())


def table(rows: Sequence[Row]) -> Table:
    """The rows in 110 columns, with geometric mean and worst ratio if there are several."""
    drawn = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    drawn.add_column("shape", no_wrap=True)
    for header in (
        *("us", "cuBLAS\nus", "\nratio", "cold\nratio", "Lt\nratio", "cold Lt\nratio"),
        *("roof-\nline", "error\nratio", "tried", "s"),
    ):
        drawn.add_column(header, justify="right", no_wrap=True)
    drawn.add_column("won by", no_wrap=True)
    for row in rows:
        drawn.add_row(
            _label(row),
            f"{row['ours_us']:.2f}",
            cell(row["cublas_us"], "{:.2f}"),
            *(cell(ratio, "{:.2f}") for ratio in _ratios(row)),
            f"{row['roofline_share']:.0%}",
            cell(_ratio(row["error"], row["reference_error"]), "{:.2f}"),
            str(row["trials"]),
            f"{row['tune_s']:.0f}",
            family_of(row),
        )
    if len(rows) > 1:
        drawn.add_section()
        for name, form in (("geomean", "{:.3f}"), ("worst", "{:.2f}")):
            columns = (_spanned(column)[name] for column in zip(*map(_ratios, rows), strict=True))
            drawn.add_row(name, "", "", *(cell(ratio, form) for ratio in columns))
    return drawn


def _label(row: Row) -> str:
    """The shape, and what is unusual; a star says that cuBLAS was timed on padded operands."""
    words = [problem_of(row).shape]
    if row["layout"] != "nn":
        words.append(row["layout"])
    if "batch" in row:
        words.append(f"batch={row['batch']}")
    if "epilogue" in row:
        words.append(row["epilogue"])
    if row.get("padded"):
        words.append("*")
    return " ".join(words)


def layout_table(rows: Sequence[Row]) -> Table:
    """Speeds of the layouts relative to nn."""
    drawn = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    drawn.add_column("of the speed of nn")
    for name in LAYOUTS[1:]:
        drawn.add_column(name, justify="right")
    for speeds in layouts(rows):
        shares = (f"{speeds[name]:.1%}" for name in LAYOUTS[1:])
        drawn.add_row("x".join(map(str, speeds["shape"])), *shares)
    return drawn


def _ratios(row: Row) -> tuple[float | None, ...]:
    return row["ratio"], row["cold"]["ratio"], row["ratio_lt"], row["cold"]["ratio_lt"]


def _spanned(ratios: Iterable[float | None]) -> dict[str, float | None]:
    timed = [ratio for ratio in ratios if ratio is not None]
    mean = statistics.geometric_mean(timed) if timed else None
    return {"geomean": mean, "worst": min(timed, default=None)}


def _ratio(theirs: float | None, ours: float | None) -> float | None:
    return theirs / ours if theirs and ours else None


FIELDS = ("device", "driver", "toolkit", "cublas", "commit", "date")
UNKNOWN, NOT_USED = "not recorded", "not used"


def provenance(
    device: str | None,
    driver: str | None,
    toolkit: str | None,
    *,
    cublas: str = NOT_USED,
    commit: str = "",
    date: str = "",
) -> dict[str, str]:
    """The fields, none of them empty.

    Args:
        device: name of the GPU.
        driver: CUDA version that the driver supports.
        toolkit: the compiler and its version.
        cublas: version of cuBLAS, if it ran; empty if unknown.
        commit: the commit of the code; by default that of this checkout.
        date: in ISO 8601; by default now.
    """
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    values = (device, driver, toolkit, cublas, commit or head(), date or now)
    return {name: value or UNKNOWN for name, value in zip(FIELDS, values, strict=True)}


def of_this_machine(device: str, commit: str = "") -> dict[str, str]:
    """The fields of a result that compares with cuBLAS on a GPU of this machine."""
    origin = targets.here()
    return provenance(
        device,
        origin.driver,
        origin.compiler,
        cublas=cublaslt.version(),
        commit=commit,
    )


def rows_in(path: Path, settings: Mapping[str, Any]) -> list[Row]:
    """The rows of a result file, if it was made with these settings."""
    if not path.exists():
        return []
    content = json.loads(path.read_text(encoding="utf-8"))
    same = all(content.get(name) == value for name, value in settings.items())
    return [*content["rows"]] if same else []


def of_recordings(recordings: Sequence[Recording], commit: str = "") -> dict[str, str]:
    """The fields of a result computed from recordings; different values are joined."""

    def joined(values: Sequence[str]) -> str:
        return ", ".join(dict.fromkeys(values))

    return provenance(
        joined([item.device.name for item in recordings]),
        joined([item.origin.driver for item in recordings]),
        joined([item.origin.compiler for item in recordings]),
        commit=commit,
        date=max((item.date for item in recordings), default=""),
    )


def head() -> str:
    """The commit of this checkout, abbreviated; empty outside of one."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    folder = Path(__file__).parent
    try:
        answer = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return answer.stdout.strip()


PATTERN, ARCHIVE = "*.json.gz", ".zip"


def read(place: Path) -> list[Recording]:
    """The recordings of a folder or of an archive, by their names."""
    return [Recording.loads(text) for _, text in sorted(contents(place).items())]


def contents(place: Path) -> Mapping[str, bytes]:
    """The files of recordings in a folder or in an archive, by their names."""
    if place.suffix != ARCHIVE:
        return {path.name: path.read_bytes() for path in sorted(place.glob(PATTERN))}
    with ZipFile(place) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def pack(folder: Annotated[Path, typer.Argument(help="Folder of recordings.")]) -> None:
    """Pack FOLDER into the archive beside it."""
    place = folder.with_suffix(ARCHIVE)
    files = {**(contents(place) if place.exists() else {}), **contents(folder)}
    packed = BytesIO()
    with ZipFile(packed, "w") as archive:
        for name, text in sorted(files.items()):  # compressed already
            archive.writestr(ZipInfo(name), text)
    write_whole(place, packed.getvalue())
    shutil.rmtree(folder)
    print(f"{place}: {len(files)} recordings")


def vendor(
    out: Annotated[Path, typer.Argument(help="File of the results.")],
    commit: Annotated[str, typer.Option(help="Commit; by default that of this checkout.")] = "",
) -> None:
    """Write a file of what `autotune check --vendor --json` found, read from standard input."""
    found = json.load(sys.stdin)
    checks = [(Problem.parse(check["shape"]), check) for check in found["checks"]]
    kinds = Counter(
        (problem.compute, check["runs"].partition(" ")[0], check["result"])
        for problem, check in checks
    )
    names = "compute", "library", "result", "count"
    content = {
        **of_this_machine(found["device"], commit),
        "cublas": found["cublas"],
        "shapes": [*dict.fromkeys(problem.shape for problem, _ in checks)],
        "counts": [dict(zip(names, (*kind, count), strict=True)) for kind, count in kinds.items()],
        "wrong": [check for _, check in checks if check["result"] == "wrong"],
    }
    write_whole(out, (json.dumps(content, indent=1, allow_nan=False) + "\n").encode())


ROOT = Path(__file__).resolve().parents[2]
CAPTION = re.compile(r"^\*(?P<text>[^*]+)\.\* <!-- (?P<files>[^>]+) -->$", re.M)
SUITES = re.compile(
    r"^!\[Speed against cuBLAS[^]]*(?=\]\(\S+\)\n\n\*[^*]+\* <!-- (?P<files>[^>]+) -->$)", re.M
)
TABLE = re.compile(
    r"^<!-- (?P<kind>suites|shapes): (?P<files>[^>]+) -->\n(?s:.*?)^<!-- end -->$", re.M
)
BY_HAND = "no file"
"""Stands for the files of a table whose figures are kept nowhere else."""


def documents() -> list[Path]:
    """The documents that may have tables of results."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def tables() -> None:
    """Write the tables of suites and the captions of all tables anew."""
    for path in documents():
        text = path.read_text("utf-8")
        if (new := rewritten(text)) != text:
            path.write_text(new, "utf-8")
            print(path.relative_to(ROOT))


def rewritten(text: str) -> str:
    """A document whose tables, captions and pictures' texts state what their result files do."""

    def table(match: re.Match[str]) -> str:
        kind, files = match["kind"], match["files"]
        lines = "\n".join(MARKDOWN[kind](_result_files(files.split())))
        above = f"*{caption(files.split())}.* <!-- {files} -->"
        return f"<!-- {kind}: {files} -->\n\n{above}\n\n{lines}\n\n<!-- end -->"

    def stated(match: re.Match[str]) -> str:
        files = match["files"]
        made = match["text"] if files == BY_HAND else caption(files.split())
        return f"*{made}.* <!-- {files} -->"

    text = TABLE.sub(table, text)
    text = SUITES.sub(lambda match: f"![{means(match['files'].split())}", text)
    return CAPTION.sub(stated, text)


def matched(row: Row) -> bool:
    """Whether the winner is at most the spread slower than cuBLAS."""
    return bool(row["ours_us"] - row["cublas_us"] <= max(0.0, *row["spread"].values()))


def suites_markdown(suites: Sequence[Row]) -> Iterator[str]:
    """A table with one row for each suite. For 8 bits, the shapes that cuBLAS takes without padding
    replace the comparison with cuBLASLt."""
    padded = any("padded" in row for suite in suites for row in suite["rows"])
    other = "hot, unpadded shapes" if padded else "hot, over cuBLASLt's best"
    yield from markdown_head(
        *("precision", "cuBLAS in", "hot", "cold", other, "worst of these"),
        *("shapes we match or beat", "worst shape"),
    )
    for suite in suites:
        rows = suite["rows"]
        few = [row for row in rows if not row["padded"]] if padded else rows
        second, worst = _mean_and_worst(few, "ratio" if padded else "ratio_lt")
        yield markdown_row(
            f"`{_precision(rows[0])}`",
            f"`{rows[0]['vendor']}`",
            f"**{suite['geomean']:.2f}**",
            f"{suite['cold']['geomean']:.2f}",
            f"{second} ({len(few)})" if padded else second,
            worst,
            f"{sum(map(matched, rows))} of {len(rows)}",
            _mean_and_worst(rows, "ratio")[1],
        )


def shapes_markdown(suites: Sequence[Row]) -> Iterator[str]:
    """A table with one row for each shape."""
    yield from markdown_head(
        *("M x N x K", "autotune, us", "cuBLAS, us", "speed-up", "over cuBLASLt's best", "cold"),
        *("TFLOP/s", "error / cuBLAS's", "tried", "won by"),
    )
    for row in (row for suite in suites for row in suite["rows"]):
        yield markdown_row(
            _spaced(row),
            *(f"{row[name]:.{2 if row[name] < 100 else 1}f}" for name in ("ours_us", "cublas_us")),
            f"**{row['ratio']:.2f}**",
            *(cell(ratio, "{:.2f}") for ratio in (row["ratio_lt"], row["cold"]["ratio"])),
            f"{row['tflops']:.{1 if row['tflops'] < 100 else 0}f}",
            cell(_ratio(row["error"], row["reference_error"]), "{:.2f}"),
            str(row["trials"]),
            f"`{family_of(row)}`",
        )


MARKDOWN = {"suites": suites_markdown, "shapes": shapes_markdown}


def _mean_and_worst(rows: Sequence[Row], ratio: str) -> tuple[str, str]:
    worst = min(rows, key=lambda row: float(row[ratio]))
    mean = statistics.geometric_mean(row[ratio] for row in rows)
    return f"{mean:.2f}", f"{worst[ratio]:.2f} at {_spaced(worst)}"


def _precision(row: Row) -> str:
    """The precision and what else all shapes of a suite share, such as `f8:nt:scale=row`."""
    return str(problem_of(row)).partition(":")[2].removesuffix(":nn")


def _spaced(row: Row) -> str:
    return " x ".join(map(str, row["shape"]))


def markdown_head(*names: str) -> Iterator[str]:
    """The two lines above the rows of a Markdown table."""
    yield markdown_row(*names)
    yield "|" + "---|" * len(names)


def markdown_row(*cells: str) -> str:
    """A row of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def caption(patterns: Sequence[str]) -> str:
    """The devices of result files, each with the dates and the cuBLAS of its measurements.

    Args:
        patterns: files below `docs/results`, or else below the repository.

    Raises:
        FileNotFoundError: if a pattern matches no file.
    """
    found: dict[str, list[Row]] = {}
    for content in _result_files(patterns):
        found.setdefault(content["device"], []).append(content)
    return "; ".join(f"{device}, {_measured(made)}" for device, made in found.items())


def means(patterns: Sequence[str]) -> str:
    """The geometric means of suites, by precision and in the order of their devices."""
    found: dict[str, list[str]] = {}
    suites = _result_files(patterns)
    for suite in suites:
        found.setdefault(suite["rows"][0]["compute"], []).append(f"{suite['geomean']:.2f}")
    devices = " and ".join(dict.fromkeys(suite["device"] for suite in suites))
    listed = ", ".join(f"{compute} {' and '.join(values)}" for compute, values in found.items())
    shapes = len(suites[0]["rows"])
    return f"Speed against cuBLAS on {shapes} shapes, geometric means on {devices}: {listed}"


def _result_files(patterns: Sequence[str]) -> list[Row]:
    """The result files below `docs/results`, or else below the repository."""
    found: list[Row] = []
    for pattern in patterns:
        paths = sorted((ROOT / "docs" / "results").glob(pattern)) or sorted(ROOT.glob(pattern))
        if not paths:
            raise FileNotFoundError(f"docs/results/{pattern}: no such file")
        found += [json.loads(path.read_text("utf-8")) for path in paths]
    return found


def _measured(made: Sequence[Mapping[str, str]]) -> str:
    """The dates of results and their versions of cuBLAS."""
    days = sorted(each["date"][: len("2026-11-21")] for each in made)
    versions = sorted({each["cublas"] for each in made})
    when = days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}"
    return f"{when}, cuBLAS {' and '.join(versions)}"


def geomean(ratios: Sequence[float]) -> float:
    """Geometric mean of ratios; a failed look-up counts as 0.01."""
    return math.exp(sum(math.log(max(ratio, 0.01)) for ratio in ratios) / len(ratios))


PAGE = ROOT / "docs" / "results.md"
"""The page of the tables that are made from result files."""


def table_of(text: str, title: str) -> tuple[str, str]:
    """The file, relative to the page, and the lines of a table in a page.

    Raises:
        ValueError: if the page has no place for it: `<!-- TITLE: FILE -->` and `<!-- end -->`.
    """
    found = re.findall(_place(title), text)
    if len(found) != 1:
        line = f"<!-- {title}: FILE -->, <!-- end -->"
        raise ValueError(f"{PAGE.name} has {len(found)} places for the table; it needs one: {line}")
    file, lines = found[0]
    return file, lines


def with_table(text: str, title: str, file: str, lines: Iterable[str]) -> str:
    """A page whose table is made of `lines`, and which names the file they come from."""
    table_of(text, title)
    table = "".join(f"{line}\n" for line in lines)
    placed = f"<!-- {title}: {file} -->\n\n{table}\n<!-- end -->"
    return re.sub(_place(title), lambda _: placed, text)


def measured_page(
    text: str, title: str, path: Path, markdown: Callable[[Sequence[Row]], Iterable[str]]
) -> str:
    """A page with the caption and the table of a result file below `docs/results`."""
    path = path.resolve()
    name = path.relative_to(PAGE.parent / "results").as_posix()
    rows = json.loads(path.read_text("utf-8"))["rows"]
    lines = f"*{caption([name])}.* <!-- {name} -->", "", *markdown(rows)
    return with_table(text, title, path.relative_to(PAGE.parent).as_posix(), lines)


def write_table(title: str, path: Path, markdown: Callable[[Sequence[Row]], Iterable[str]]) -> None:
    """Writes the caption and the table of a result file into the page."""
    text = measured_page(PAGE.read_text("utf-8"), title, path, markdown)
    write_whole(PAGE, text.encode())


def _place(title: str) -> str:
    return rf"<!-- {re.escape(title)}: (\S+) -->\n((?s:.*?))<!-- end -->"


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(pack)
    app.command()(tables)
    app.command()(vendor)
    app()
