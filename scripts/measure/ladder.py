"""The recorded ladder of 4096 x 4096 x 4096: its times, and the counters of each rung.

    python scripts/measure/ladder.py times autotune/data/recordings/h100/ladder-4096.json
    python scripts/measure/ladder.py counters autotune/data/recordings/h100/counters-4096.json

needs a GPU. `times` tunes the kernels that end each precision, unless they are recorded, and times
all rungs in one round. `counters` needs `ncu` and the right to read counters: it starts this script
under `ncu`, which runs each rung once. `autotune ladder` prints the times, `--why` the counters.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from results import of_this_machine, provenance

from autotune import settings
from autotune.api.ladder import ladder
from autotune.cuda import compiler
from autotune.cuda.program import CompileFailure
from autotune.device import Device
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.ladder import RUNGS
from autotune.files import write_whole
from autotune.measure.bench import GemmBench
from autotune.measure.devices import driver_version, probe
from autotune.measure.runner import Candidate
from autotune.measure.session import open_session
from autotune.model import space
from autotune.problem import Problem
from autotune.tuning.ladder import STALLS, problems
from autotune.tuning.pipeline import resources_of

SIDE = 4096
COUNTERS = {
    "time_ns": "gpu__time_duration.sum",
    "instructions": "smsp__inst_executed.sum",
    "issued": "smsp__issue_active.avg.per_cycle_active",
    "warps": "smsp__warps_active.avg.per_cycle_active",
    "load_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "load_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "shared_cycles": "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "bank_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "l2_bytes": "l1tex__m_xbar2l1tex_read_bytes.sum",
    "dram_bytes": "dram__bytes.sum",
}
"""The counters of a rung, with their names in Nsight Compute: times in nanoseconds; instructions
issued a cycle by a scheduler, and its resident warps; sectors of 32 bytes; cycles of the path to
shared memory, and those lost to bank conflicts; bytes from L2 to the SMs, and of device memory."""
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
        device = session.device
        for problem in problems(SIDE):
            bench = GemmBench(session, problem, cache=None)
            values = bench.operands.values(1.0, 0.0)
            for rung in RUNGS:
                config = rung.config(device)
                if rung.compute == problem.compute and not space.rejection(config, problem, device):
                    session.bind(prepared(config, problem, device))(values)()
                    session.synchronize()


def prepared(config: Config, problem: Problem, device: Device) -> Candidate:
    """The candidate with its program."""
    plan = registry.plan(config, problem)
    program = compiler.compile(plan.main.template, device.arch, cache=settings.cache_dir())
    assert not isinstance(program, CompileFailure), program.reason
    return Candidate(config, plan, (program,), resources_of(plan.main, program))


def counted(rows: Iterable[dict[str, str]]) -> dict[str, dict[str, float]]:
    """The counters of each kernel from the rows of a CSV of Nsight Compute."""
    names, found = metrics(), defaultdict[str, dict[str, float]](dict)
    for row in rows:
        if name := names.get(row["Metric Name"]):
            kernel = row["Kernel Name"].split("(")[0]
            found[kernel][name] = float(row["Metric Value"].replace(",", ""))
    return found


def times(out: Annotated[Path, typer.Argument(help="JSON file to write.")]) -> None:
    """Writes the ladder, timed in one round."""
    climbed = ladder(SIDE, tune=True)
    write(out, {**of_this_machine(climbed.device), **asdict(climbed)})


def counters(out: Annotated[Path, typer.Argument(help="JSON file to write.")]) -> None:
    """Writes the counters of each rung by its number."""
    kernels = "|".join(rung.kernel for rung in RUNGS)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "counters.csv"
        subprocess.run(
            [
                *("ncu", "--csv", "--print-units", "base", "--clock-control", "none"),
                *("--kernel-name", f"regex:^({kernels})$", "--metrics", ",".join(metrics())),
                *("--log-file", log, sys.executable, __file__, "launch"),
            ],
            check=True,
        )
        lines = [line for line in log.read_text().splitlines() if not line.startswith("==")]
    found = counted(csv.DictReader(lines))
    by_number = {rung.number: found[rung.kernel] for rung in RUNGS if rung.kernel in found}
    facts = provenance(probe().name, driver_version(), compiler.compiler_version())
    write(out, {**facts, "counters": by_number})


def write(out: Path, content: dict[str, Any]) -> None:
    write_whole(out, (json.dumps(content, indent=1) + "\n").encode())


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False)
    for command in (times, counters, launch):
        app.command()(command)
    app()
