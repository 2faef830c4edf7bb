"""Times the kernels of two checkouts in turns on a GPU, on twelve shapes.

    python scripts/measure/kernel_race.py race before/ code/before . code/after --json race.json

`before/` and `.` are checkouts, and the folders hold their kernels as `machine_code.py compile`
made them, so that the GPU's machine needs no compiler of the same version. A process of each
checkout loads its kernels, binds them with its own code and verifies them. Both then take turns,
each round in the other order: the hot time of a replayed CUDA graph. A shape has a row for each
family that serves it. The ratio is the median over the rounds of after / before, its spread half
of its interquartile range. The process that allocates second gets other places in memory, which
make the same kernel up to 5 % slower on thin shapes: so each side is first once, and a row has the
geometric mean of both ratios.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer
from results import provenance
from rich.console import Console
from rich.table import Table

import autotune
from autotune.cuda.cache import ProgramHeader
from autotune.cuda.program import Program
from autotune.device import Device
from autotune.errors import RunnerError
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.plan import LaunchPlan, Resources
from autotune.files import write_whole
from autotune.lookup.neighbours import accuracy_filter
from autotune.measure.bench import GemmBench
from autotune.measure.measurement import Failure
from autotune.measure.runner import Candidate
from autotune.measure.session import Run, Session, open_session
from autotune.measure.timing import Timer
from autotune.model import cost
from autotune.model.space import sample
from autotune.problem import Problem

SHAPES = (
    *("4096x4096x4096:f32", "512x512x512:f32:nt", "1x4096x4096:f32:nt:bias"),
    *("1023x1025x1021:f32:tn", "2048x2048x2048:tf32x3", "1001x1003x1005:tf32x3:nt"),
    *("4096x4096x4096:bf16:nt:bias_gelu", "512x512x512:bf16", "16x4096x4096:bf16:nt:residual"),
    *("2047x2049x2045:bf16", "4096x4096x4096:f8:nt:scale=row", "32x8192x4096:f8:nt:scale=row"),
)
"""Square, small, thin and odd shapes."""


FILE = "programs.json"
"""The file of a folder of kernels."""


ROUNDS, REPLAY_US, REPLAY_RUNS = 31, 2_000.0, (1, 200)
"""Rounds; about the microseconds of a replay; its fewest and most runs."""


CONSOLE = Console(width=120, soft_wrap=True)


app = typer.Typer(pretty_exceptions_enable=False)


def cases(device: Device) -> Iterator[tuple[Problem, Config]]:
    """The shapes, each with the configuration of each family that is predicted fastest."""
    for text in SHAPES:
        problem = Problem.parse(text)
        accurate = accuracy_filter(problem, device, ()).accurate
        for family in registry.tuned(problem):
            legal = accurate(sample(problem, device, family))
            for _, config in cost.rank(legal, problem, device)[:1]:
                yield problem, config


@app.command()
def race(
    before: Annotated[Path, typer.Argument(help="Checkout before.")],
    code_before: Annotated[Path, typer.Argument(help="Folder of its kernels.")],
    after: Annotated[Path, typer.Argument(help="Checkout after.")],
    code_after: Annotated[Path, typer.Argument(help="Folder of its kernels.")],
    rounds: Annotated[int, typer.Option(min=3, help="Rounds, in which both take turns.")] = ROUNDS,
    family: Annotated[str, typer.Option(help="Race kernels of this family alone.")] = "",
    out: Annotated[Path | None, typer.Option("--json", help="JSON file for the rows.")] = None,
    commit: Annotated[str, typer.Option(help="Commit; by default that of this checkout.")] = "",
) -> None:
    """Prints a row for each shape and family, and the geometric mean of each family."""
    wanted = [entry for entry in shared(code_before, code_after) if family in entry["config"]]
    places = (before.resolve(), code_before.resolve()), (after.resolve(), code_after.resolve())
    runs: list[list[dict[str, Any]]] = []
    for first in (0, 1):
        with ExitStack() as stack:
            started = {
                place: stack.enter_context(closing(Side(*places[place])))
                for place in (first, 1 - first)
            }
            sides = started[0], started[1]
            runs.append([raced(entry, sides, rounds, first) for entry in wanted])
            device, driver, compiler = (
                sides[1].hello[key] for key in ("device", "driver", "compiler")
            )
    rows = [joined(*pair) for pair in zip(*runs, strict=True)]
    for row in rows:
        CONSOLE.print(line(row), markup=False, highlight=False)
    CONSOLE.print(table(rows))
    if out:
        content = {
            **provenance(device, driver, compiler, commit=commit),
            "rounds": rounds,
            "families": summary(rows),
            "rows": rows,
        }
        write_whole(out, (json.dumps(content, indent=1) + "\n").encode())
    if any("failure" in row for row in rows):
        raise typer.Exit(1)


def shared(before: Path, after: Path) -> list[dict[str, Any]]:
    """The shapes and configurations that both folders have kernels for."""
    texts = [
        {(entry["problem"], entry["config"]): entry for entry in content(folder)["race"]}
        for folder in (before, after)
    ]
    return [entry for key, entry in texts[1].items() if key in texts[0]]


def content(folder: Path) -> dict[str, Any]:
    """What `machine_code.py` wrote about a folder of kernels."""
    read: dict[str, Any] = json.loads((folder / FILE).read_text(encoding="utf-8"))
    return read


class Side:
    """A process of a checkout that runs its kernels on request.

    Attributes:
        hello: its device, driver and compiler.
    """

    def __init__(self, tree: Path, code: Path) -> None:
        """Starts the process.

        Raises:
            SystemExit: if it ends, or does not import the checkout's package.
        """
        paths = [str(tree), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        script = tree / "scripts/measure/kernel_race.py"
        if not script.exists():  # a checkout from before the scripts had folders
            script = tree / "scripts/measure/kernel_race.py"
        self._process = subprocess.Popen(
            [sys.executable, str(script), "serve", str(code)],
            cwd=tree,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.hello = self._answer()
        if Path(self.hello["package"]).parent != tree:
            raise SystemExit(f"{tree}: its process imports {self.hello['package']}")

    def close(self) -> None:
        """Ends the process."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(60)

    def ask(self, **request: str) -> dict[str, Any]:
        """The answer to a request."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout
        text = self._process.stdout.readline()
        if not text:
            raise SystemExit(f"a process ended with status {self._process.wait()}")
        answer: dict[str, Any] = json.loads(text)
        return answer


def raced(
    entry: Mapping[str, Any], sides: Sequence[Side], rounds: int = ROUNDS, first: int = 0
) -> dict[str, Any]:
    """The row of a shape and a configuration: the medians, and the ratio with its spread. The side
    with the number `first` allocates its operands first."""
    row = {"problem": entry["problem"], "config": entry["config"]}
    for place in (first, 1 - first):
        answer = sides[place].ask(open=entry["problem"], config=entry["config"])
        if "failure" in answer:
            return {**row, "failure": answer["failure"]}
    times: list[list[float]] = [[] for _ in sides]
    order = [*range(len(sides))]
    for _ in range(rounds):
        for place in order:
            times[place].append(sides[place].ask(do="time")["us"])
        order.reverse()
    ratios = [after / before for before, after in zip(*times, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    medians = [statistics.median(each) for each in times]
    return {
        **row,
        "before_us": medians[0],
        "after_us": medians[1],
        "ratio": middle,
        "spread": (high - low) / 2,
    }


def joined(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """The row of both orders: geometric means, and the larger spread."""
    failed = next((row for row in (first, second) if "failure" in row), None)
    if failed is not None:
        return dict(failed)
    means = {key: math.sqrt(first[key] * second[key]) for key in ("before_us", "after_us", "ratio")}
    ratios = [first["ratio"], second["ratio"]]
    return {**first, **means, "spread": max(first["spread"], second["spread"]), "ratios": ratios}


def line(row: Mapping[str, Any]) -> str:
    """A row in one line."""
    name = f"{row['problem']} {row['config'].partition(':')[0]}"
    if "failure" in row:
        return f"{name}: {row['failure']}"
    times = f"{row['before_us']:.2f} us before, {row['after_us']:.2f} us after"
    return f"{name}: {times}: {row['ratio']:.4f} +- {row['spread']:.4f}"


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """For each family the number of rows, the geometric mean of their ratios and the largest."""
    ratios: dict[str, list[float]] = {}
    for row in rows:
        if "ratio" in row:
            ratios.setdefault(row["config"].partition(":")[0], []).append(row["ratio"])
    return {
        name: {
            "rows": len(each),
            "geometric_mean": statistics.geometric_mean(each),
            "largest": max(each),
        }
        for name, each in sorted(ratios.items())
    }


def table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """The summary of each family."""
    shown = Table(title="time after / time before")
    for name in ("family", "rows", "geometric mean", "largest"):
        shown.add_column(name, justify="left" if name == "family" else "right")
    for name, figures in summary(rows).items():
        mean, largest = figures["geometric_mean"], figures["largest"]
        shown.add_row(name, f"{figures['rows']:.0f}", f"{mean:.4f}", f"{largest:.4f}")
    return shown


@app.command(hidden=True)
def serve(code: Annotated[Path, typer.Argument(help="Folder of kernels.")]) -> None:
    """Answers requests on standard input: a side of a race."""
    with open_session() as session:
        racer = Racer(session, code)
        say(racer.hello)
        for text in sys.stdin:
            request = json.loads(text)
            if "open" in request:
                say(racer.open(request["open"], request["config"]))
            else:
                say({"us": racer.time()})
        racer.close()


def say(answer: Mapping[str, Any]) -> None:
    """Prints an answer."""
    print(json.dumps(answer), flush=True)


class Racer:
    """Runs the kernels of a folder on a session, one configuration after the other."""

    def __init__(self, session: Session, code: Path) -> None:
        self._session, self._code = session, code
        self._entries = content(code)
        self._rows = {row["name"]: row for row in self._entries["programs"]}
        self._timer = Timer(session)
        self._bench: GemmBench | None = None
        self._graph, self._runs = ExitStack(), 1
        self._replay: Run | None = None

    @property
    def hello(self) -> dict[str, str]:
        """The checkout's package, the device, the driver and the compiler."""
        compiler = next(row["compiler"] for row in self._rows.values() if "compiler" in row)
        return {
            "package": str(Path(autotune.__file__).parent),
            "device": self._session.device.name,
            "driver": self._session.driver,
            "compiler": compiler,
        }

    def open(self, text: str, config: str) -> dict[str, Any]:
        """Binds and verifies a configuration, which is timed from now on."""
        self.close()
        problem = Problem.parse(text)
        if self._bench is None:
            self._bench = GemmBench(self._session, problem, cache=None)
            self._bench.warm_up()
        elif self._bench.operands.problem != problem:
            self._bench.switch_to(problem)
        try:
            candidate = self.candidate(problem, config)
        except RunnerError as error:
            return {"failure": str(error)}
        verdict = self._bench.verify(candidate)
        if isinstance(verdict, Failure):
            return {"failure": f"{verdict.stage}: {verdict.reason}"}
        self._bench.operands.clear_counters()
        run = self._session.bind(candidate)(self._bench.operands.values(1.0, 0.0))
        least, most = REPLAY_RUNS
        self._runs = max(least, min(most, round(REPLAY_US / verdict.time_us)))
        self._replay = self._graph.enter_context(self._timer.replayable(run, self._runs))
        return {"runs": self._runs, "relative_error": verdict.relative}

    def candidate(self, problem: Problem, config: str) -> Candidate:
        """The configuration with its programs from the folder.

        Raises:
            RunnerError: if one of them did not compile.
        """
        plan = registry.plan(Config.parse(config), problem)
        names = next(
            entry["programs"]
            for entry in self._entries["race"]
            if (entry["problem"], entry["config"]) == (str(problem), config)
        )
        programs = tuple(self._program(name, plan, place) for place, name in enumerate(names))
        main, program = plan.main, programs[plan.product]
        used = Resources(main.threads, program.registers, program.shared + main.shared)
        return Candidate(plan.config, plan, programs, used)

    def _program(self, name: str, plan: LaunchPlan, place: int) -> Program:
        row = self._rows[name]
        if "reason" in row:
            raise RunnerError(f"{name}: {row['reason']}")
        header = {field.name: row.get(field.name, "") for field in fields(ProgramHeader)}
        return Program(
            template=plan.launches[place].template,
            arch=row["target"],
            cubin=(self._code / f"{name}.cubin").read_bytes(),
            key=name,
            **header,
        )

    def time(self) -> float:
        """Microseconds of a run in a replay behind an untimed one."""
        assert self._replay
        self._replay()
        begin = self._session.mark()
        self._replay()
        end = self._session.mark()
        end.synchronize()
        return 1e3 * begin.time_till(end) / self._runs

    def close(self) -> None:
        """Ends the configuration that is timed."""
        self._graph.close()
        self._graph, self._replay = ExitStack(), None


if __name__ == "__main__":
    app()
