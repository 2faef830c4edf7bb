"""Times the look-ups of two versions of the package on shapes that nobody tuned, in one run.

    python scripts/versions.py OUT.json ../earlier-checkout 3072x3072x3072:bf16 96x8192x2048:f32

Both versions look each shape up with the shipped records alone, as `matmul` does. Their kernels and
cuBLAS are then timed interleaved, hot; this version compiles and verifies them all. `--tuned FILE`
adds the shapes of a file of `untuned.py`, with their tuned kernels. The file is written after each
shape.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import monotonic
from typing import Annotated

import typer
from left_out_rows import geomean
from provenance import provenance
from untuned import SHOWN, timed
from untuned_rows import TUNED, VENDOR, read

import autotune
from autotune.errors import AutotuneError
from autotune.families.config import Config
from autotune.files import write_whole
from autotune.measure import devices, targets
from autotune.measure.measurement import Measurement
from autotune.measure.targets import TargetOpener
from autotune.problem import Problem

BEFORE, AFTER = "before", "after"
_CHOOSE = """
import json, os, sys, warnings
warnings.simplefilter("ignore")
from pathlib import Path
from autotune import runtime
from autotune.lookup.lookup import lookup
from autotune.problem import Problem
from autotune.records import Store

device = runtime.current().runtime.gpu(0).device
store = Store(Path(os.environ["AUTOTUNE_CACHE_DIR"]))
answers = {text: lookup(Problem.parse(text), device, store) for text in json.load(sys.stdin)}
print(json.dumps({t: [str(a.config), bool(a.vendor), a.how] for t, a in answers.items() if a}))
"""


def main(
    out: Annotated[Path, typer.Argument(help="JSON file for the rows.")],
    earlier: Annotated[Path, typer.Argument(help="Checkout of the earlier version.")],
    shapes: Annotated[list[str] | None, typer.Argument(help="Shapes that nobody tuned.")] = None,
    tuned: Annotated[Path | None, typer.Option(help="File of `untuned.py`.")] = None,
    count: Annotated[int, typer.Option(help="Number of shapes of that file.")] = 60,
    seconds: Annotated[float, typer.Option(help="No shape starts after these seconds.")] = 3600.0,
    commit: Annotated[str, typer.Option(help="Commit; by default that of this checkout.")] = "",
) -> None:
    """Prints a line for each shape, and the geometric means."""
    began, device = monotonic(), targets.resolve(devices.DEFAULT)
    taken: dict[str, dict[str, Config]] = {str(Problem.parse(text)): {} for text in shapes or ()}
    for row in read(tuned)[:count] if tuned else ():
        taken[row.problem] = {TUNED: Config.parse(row.configs[TUNED])}
    here = Path(autotune.__file__).parents[1]
    choices = {kind: chosen(tree, [*taken]) for kind, tree in ((BEFORE, earlier), (AFTER, here))}
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as cache, TargetOpener(devices.DEFAULT) as places:
        os.environ["AUTOTUNE_CACHE_DIR"] = cache
        for text, known in taken.items():
            if monotonic() - began > seconds:
                break
            configs = {kind: Config.parse(choices[kind][text][0]) for kind in (BEFORE, AFTER)}
            problem = Problem.parse(text)
            try:
                runner = places.target(problem).runner
                outcomes = timed(configs | known, problem, runner)
            except AutotuneError as error:
                SHOWN.print(f"{problem}: {error}", style="red", markup=False)
                continue
            rows.append(
                {
                    "problem": text,
                    "configs": {kind: str(config) for kind, config in configs.items()},
                    "left_to_vendor": [kind for kind in configs if choices[kind][text][1]],
                    "times_us": {
                        kind: item.time_us
                        for kind, item in outcomes.items()
                        if isinstance(item, Measurement)
                    },
                }
            )
            SHOWN.print(text, rows[-1]["times_us"], rows[-1]["left_to_vendor"], markup=False)
            origin = targets.here()
            content = {
                **provenance(device.name, origin.driver, origin.compiler, commit=commit),
                "clusters": targets.resolve(enter=True).clusters,
                **{kind: figures(rows, kind) for kind in (BEFORE, AFTER)},
                "rows": rows,
            }
            write_whole(out, (json.dumps(content, indent=1) + "\n").encode())
    for kind in (BEFORE, AFTER):
        SHOWN.print(kind, figures(rows, kind))


def chosen(tree: Path, texts: list[str]) -> dict[str, tuple[str, bool, str]]:
    """The configuration that a version looks up for each problem, whether it leaves the problem to
    cuBLAS, and where its answer comes from."""
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        answer = subprocess.run(
            [sys.executable, "-c", _CHOOSE],
            input=json.dumps(texts),
            cwd=tree,  # whose package comes first
            env=environment | {"AUTOTUNE_CACHE_DIR": cache},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    choices: dict[str, tuple[str, bool, str]] = json.loads(answer.stdout)
    return choices


def figures(rows: list[dict[str, object]], kind: str) -> dict[str, object]:
    """Geometric means and the worst of a version's look-ups, beside the fastest of the kernels
    and beside cuBLAS, which multiplies where they leave the product to it."""
    beside_best, beside_vendor, failed = [], [], 0
    for row in rows:
        times: dict[str, float] = dict(row["times_us"])  # type: ignore[call-overload]
        vendor = times.pop(VENDOR, None)
        if kind not in times:
            failed += 1
            continue
        beside_best.append(min(times.values()) / times[kind])
        if vendor:
            left = kind in row["left_to_vendor"]  # type: ignore[operator]
            beside_vendor.append(1.0 if left else vendor / times[kind])
    return {
        "shapes": len(rows),
        "failed": failed,
        "of_best": geomean(beside_best),
        "worst": min(beside_best),
        "below_0.9": sum(speed < 0.9 for speed in beside_best),
        "over_vendor": geomean(beside_vendor) if beside_vendor else None,
        "slower_than_vendor": sum(speed < 0.98 for speed in beside_vendor),
    }


if __name__ == "__main__":
    typer.run(main)
