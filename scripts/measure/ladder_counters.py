"""Counters of each rung of the ladder, read by Nsight Compute.

    python scripts/measure/ladder_counters.py autotune/data/recordings/h100/counters-4096.json

needs a GPU, `ncu` and the right to read counters. It starts itself under `ncu`, which runs each
rung once at 4096 x 4096 x 4096. `autotune ladder --why N` prints what it wrote.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from results import provenance

from autotune import settings
from autotune.cuda import compiler
from autotune.cuda.program import CompileFailure
from autotune.families import registry
from autotune.families.ladder import RUNGS
from autotune.files import write_whole
from autotune.measure.bench import GemmBench
from autotune.measure.devices import driver_version, probe
from autotune.measure.runner import Candidate
from autotune.measure.session import open_session
from autotune.model import space
from autotune.tuning.ladder import COUNTERS, STALLS, problems
from autotune.tuning.pipeline import resources_of

SIDE = 4096
STALLED = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"


def metrics() -> dict[str, str]:
    """The metrics by their names in Nsight Compute."""
    return {
        **{ncu: name for name, ncu in COUNTERS.items()},
        **{STALLED.format(s): s for s in STALLS},
    }


def launch() -> None:
    """Runs each rung that the GPU can run, once."""
    with open_session() as session:
        for problem in problems(SIDE):
            bench = GemmBench(session, problem, cache=None)
            values = bench.operands.values(1.0, 0.0)
            for rung in RUNGS:
                config = rung.config(session.device)
                if rung.compute != problem.compute or space.rejection(
                    config, problem, session.device
                ):
                    continue
                plan = registry.plan(config, problem)
                program = compiler.compile(
                    plan.main.template, session.device.arch, cache=settings.cache_dir()
                )
                assert not isinstance(program, CompileFailure), program.reason
                resources = resources_of(plan.main, program)
                session.bind(Candidate(config, plan, (program,), resources))(values)()
                session.synchronize()


def counters(rows: Iterable[dict[str, str]]) -> dict[str, dict[str, float]]:
    """The counters of each kernel from the rows of a CSV of Nsight Compute."""
    names, found = metrics(), defaultdict[str, dict[str, float]](dict)
    for row in rows:
        if name := names.get(row["Metric Name"]):
            kernel = row["Kernel Name"].split("(")[0]
            found[kernel][name] = float(row["Metric Value"].replace(",", ""))
    return found


def main(out: Path) -> None:
    """Profiles this script and writes the counters of each rung by its number."""
    kernels = "|".join(rung.kernel for rung in RUNGS)
    with tempfile.NamedTemporaryFile("r", suffix=".csv") as log:
        subprocess.run(
            [
                *("ncu", "--csv", "--print-units", "base", "--clock-control", "none"),
                *("--kernel-name", f"regex:^({kernels})$", "--metrics", ",".join(metrics())),
                *("--log-file", log.name, sys.executable, __file__),
            ],
            check=True,
        )
        lines = [line for line in log if not line.startswith("==")]
    found = counters(csv.DictReader(lines))
    by_number = {str(rung.number): found[rung.kernel] for rung in RUNGS if rung.kernel in found}
    facts = provenance(probe().name, driver_version(), compiler.compiler_version())
    text = json.dumps({**facts, "counters": by_number}, indent=1) + "\n"
    write_whole(out, text.encode())


if __name__ == "__main__":
    main(Path(sys.argv[1])) if len(sys.argv) > 1 else launch()
