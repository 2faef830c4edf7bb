"""What a suite says of its shapes: the rows of its file, their summary, and a table."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.table import Table

from autotune.device import Device
from autotune.files import write_whole
from autotune.problem import LAYOUTS, PRECISIONS, Problem
from autotune.records import Record
from autotune.report import cell
from autotune.runners.base import Measurement

Row = dict[str, Any]


@dataclass(frozen=True)
class Ceilings:
    """What a device does at most: FLOP/s in a precision, bytes/s of a copy."""

    flops: float
    bytes: float


# Measured: a loop of nothing but FFMA, and a device-to-device copy (bytes read and written).
ARITHMETIC = {("H100 80GB HBM3", "f32"): 66.0e12, ("H200", "f32"): 66.0e12}
MEMORY = {"H100 80GB HBM3": 2996e9, "H200": 4.3e12}


def ceilings(device: Device, compute: str = "f32") -> Ceilings:
    """What was measured on cards of that name, or else the peaks that follow from its clocks."""
    flops = (one for (name, of), one in ARITHMETIC.items() if name in device.name and of == compute)
    copied = (one for name, one in MEMORY.items() if name in device.name)
    return Ceilings(next(flops, device.peak(compute)), next(copied, device.memory_bandwidth))


def of_vendor(compute: str) -> str:
    """The precision of the vendor baseline: cuBLAS has no `tf32x3`; its fp32 is as accurate."""
    return PRECISIONS[compute].vendor or compute


@dataclass(frozen=True)
class Finals:
    """The last round of a shape: all of it was timed interleaved, on the same operands.

    `rivals` are the results of cuBLASLt's heuristic by name, its first choice first.
    """

    ours: Measurement
    cublas: Measurement | None = None
    rivals: Mapping[str, Measurement] = field(default_factory=dict)

    @property
    def cublaslt_us(self) -> float | None:
        """The fastest of the rivals."""
        return min((one.time_us for one in self.rivals.values()), default=None)

    @property
    def cublaslt_cold_us(self) -> float | None:
        """The fastest of the rivals when cold, which another may be than when hot."""
        cold = (one.cold_us for one in self.rivals.values())
        return min((time for time in cold if time is not None), default=None)


def row(problem: Problem, record: Record, finals: Finals, seconds: float, most: Ceilings) -> Row:
    """One shape; times in microseconds, ratios above 1 where we are faster."""
    ours, cublas = finals.ours, finals.cublas
    roofline_us = 1e6 * max(problem.flops / most.flops, problem.bytes / most.bytes)
    cublas_us, cublas_cold_us = (cublas.time_us, cublas.cold_us) if cublas else (None, None)
    return {
        "shape": [problem.m, problem.n, problem.k],
        "compute": problem.compute,
        "layout": problem.layout,
        "output": problem.output,
        "vendor": of_vendor(problem.compute),
        "ours_us": ours.time_us,
        "cublas_us": cublas_us,
        "cublaslt_us": finals.cublaslt_us,
        "ratio": _ratio(cublas_us, ours.time_us),
        "ratio_lt": _ratio(finals.cublaslt_us, ours.time_us),
        "cold": {
            "ours_us": ours.cold_us,
            "cublas_us": cublas_cold_us,
            "cublaslt_us": finals.cublaslt_cold_us,
            "ratio": _ratio(cublas_cold_us, ours.cold_us),
            "ratio_lt": _ratio(finals.cublaslt_cold_us, ours.cold_us),
        },
        "spread": {"ours_us": ours.spread_us, "cublas_us": cublas and cublas.spread_us},
        "cublaslt": {
            name: {
                "us": one.time_us,
                "spread_us": one.spread_us,
                "cold_us": one.cold_us,
                "error": one.relative_error,
            }
            for name, one in finals.rivals.items()
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


def problem_of(row: Row) -> Problem:
    """What a row is of."""
    m, n, k = row["shape"]
    # The first suites were in fp32 alone.
    return Problem(m, n, k, row["compute"], row["layout"], output=row.get("output", "same"))


def family_of(row: Row) -> str:
    """The family that won."""
    return str(row["config"]).partition(":")[0]


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Geometric means and worst shapes against cuBLAS, hot and cold, and against cuBLASLt; on how
    many shapes each family won."""
    cold = [one["cold"] for one in rows]
    errors = [_ratio(one["error"], one["reference_error"]) for one in rows]
    return {
        **_spanned(one["ratio"] for one in rows),
        "cold": _spanned(one["ratio"] for one in cold),
        "cublaslt": {
            **_spanned(one["ratio_lt"] for one in rows),
            "cold": _spanned(one["ratio_lt"] for one in cold),
        },
        "worst_shape": worst_shape(rows),
        "families": dict(Counter(map(family_of, rows)).most_common()),
        "largest_error_ratio": max((one for one in errors if one is not None), default=None),
        "layouts": layouts(rows),
    }


def worst_shape(rows: Sequence[Row]) -> str | None:
    """The shape on which cuBLAS is furthest ahead, or least behind; None if it was not timed."""
    known = [one for one in rows if one["ratio"] is not None]
    return problem_of(min(known, key=lambda one: one["ratio"])).shape if known else None


def layouts(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Of each shape in several layouts, the speed of the others as a share of that of nn."""
    times: dict[tuple[int, ...], dict[str, float]] = {}
    for one in rows:
        times.setdefault(tuple(one["shape"]), {})[one["layout"]] = one["ours_us"]
    return [
        {"shape": list(shape), **{name: known["nn"] / known[name] for name in LAYOUTS[1:]}}
        for shape, known in times.items()
        if known.keys() >= set(LAYOUTS)
    ]


@dataclass
class Sheet:
    """The file of a suite, written whole after every row.

    Attributes:
        path: of the file.
        device: the name of the only device that it has rows of.
        source: the hash of the only kernel sources.
        commit: what the run was made from.
        most: the ceilings of the roofline.
        rows: by problem.
    """

    path: Path
    device: str
    source: str
    commit: str
    most: Ceilings
    rows: dict[Problem, Row] = field(default_factory=dict)

    def resume(self) -> None:
        """Takes over the rows of the file if they are of this device and these sources."""
        if not self.path.exists():
            return
        made = json.loads(self.path.read_text())
        if (made["device"], made["source"]) == (self.device, self.source):
            self.rows = {problem_of(row): row for row in made["rows"]}

    def add(self, problem: Problem, record: Record, row: Row) -> None:
        """Puts a row, in the place of an older one, and writes the file."""
        self.rows[problem] = row
        rows = [*self.rows.values()]
        made = {
            "device": self.device,
            "evidence": record.evidence,
            "driver": record.provenance.driver,
            "toolkit": record.provenance.compiler,
            "commit": self.commit,
            "source": self.source,
            "date": record.provenance.date,
            "ceilings": asdict(self.most),
            "rows": rows,
            **summary(rows),
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(made, indent=1, allow_nan=False) + "\n"
        write_whole(self.path, text.encode())


def table(rows: Sequence[Row]) -> Table:
    """The rows in 110 columns, with the geometric means and the worst of several."""
    drawn = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    drawn.add_column("shape", no_wrap=True)
    for header in (
        *("us", "cuBLAS\nus", "\nratio", "cold\nratio", "Lt\nratio", "cold Lt\nratio"),
        *("roof-\nline", "error\nratio", "tried", "s"),
    ):
        drawn.add_column(header, justify="right", no_wrap=True)
    drawn.add_column("won by", no_wrap=True)
    for one in rows:
        drawn.add_row(
            problem_of(one).shape + ("" if one["layout"] == "nn" else f" {one['layout']}"),
            f"{one['ours_us']:.2f}",
            cell(one["cublas_us"], "{:.2f}"),
            *(cell(ratio, "{:.2f}") for ratio in _ratios(one)),
            f"{one['roofline_share']:.0%}",
            cell(_ratio(one["error"], one["reference_error"]), "{:.2f}"),
            str(one["trials"]),
            f"{one['tune_s']:.0f}",
            family_of(one),
        )
    if len(rows) > 1:
        drawn.add_section()
        for name, form in (("geomean", "{:.3f}"), ("worst", "{:.2f}")):
            columns = (_spanned(column)[name] for column in zip(*map(_ratios, rows), strict=True))
            drawn.add_row(name, "", "", *(cell(ratio, form) for ratio in columns))
    return drawn


def layout_table(rows: Sequence[Row]) -> Table:
    """How fast the layouts are beside nn."""
    drawn = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    drawn.add_column("of the speed of nn")
    for name in LAYOUTS[1:]:
        drawn.add_column(name, justify="right")
    for one in layouts(rows):
        shares = (f"{one[name]:.1%}" for name in LAYOUTS[1:])
        drawn.add_row("x".join(map(str, one["shape"])), *shares)
    return drawn


def _ratios(row: Row) -> tuple[float | None, ...]:
    return row["ratio"], row["cold"]["ratio"], row["ratio_lt"], row["cold"]["ratio_lt"]


def _spanned(ratios: Iterable[float | None]) -> dict[str, float | None]:
    known = [one for one in ratios if one is not None]
    geomean = statistics.geometric_mean(known) if known else None
    return {"geomean": geomean, "worst": min(known, default=None)}


def _ratio(theirs: float | None, ours: float | None) -> float | None:
    return theirs / ours if theirs and ours else None
