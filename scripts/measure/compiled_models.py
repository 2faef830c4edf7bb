"""Times models compiled by `torch.compile`: plainly, with our kernels, and by max-autotune.

    pip install torch transformers
    python scripts/measure/compiled_models.py docs/results/h100/compiled-models.json
    python scripts/measure/compiled_models.py OUT.json --models llama,vision --rows 16 --seconds 60

The models are those of `zoo.py`. Rows are the tokens of a call: one sequence, or several where real
ones are shorter.

    eager          the model as PyTorch runs it
    plain          torch.compile(model, mode="reduce-overhead")
    raced          the same with `inductor()`, which races the shapes while it compiles
    tuned          the same with `inductor()`, after `--seconds` of `autotune.tune` for the model
    max-autotune   torch.compile(model, mode="max-autotune")

Each variant has its own process, its own empty caches and, while it compiles, all cores. Shapes are
static, and each number of rows is compiled anew. Compile seconds are those until the third call
returns, after a small function has started Inductor's workers; the races are part of them.

The processes then take turns on the GPU. In each turn a variant queues a burst of calls behind a
kernel that waits. CUDA events around the burst give the time of the GPU without that of the host;
`wall_us` is that of a burst on an idle GPU, the host's part included. Both are medians.

The error is that of the last hidden states, relative to the same weights in fp64 by Frobenius norm.
Norms and softmaxes that a model computes in fp32 stay in fp32.
The table divides it by plain's.
"""

from __future__ import annotations

import gc
import json
import math
import statistics
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata
from pathlib import Path
from threading import Lock
from time import perf_counter
from typing import Annotated, Any

import typer
from apart import Apart, Failed, burst_us, median, on_gpus
from results import geomean, markdown_head, markdown_row, of_this_machine, rows_in, write_table
from rich.console import Console
from zoo import MODELS, built, checksum, hidden_states, reference

import autotune
from autotune.files import write_whole
from autotune.measure import devices, targets
from autotune.report import cell

EAGER, PLAIN, RACED, TUNED, MAX = "eager", "plain", "raced", "tuned", "max-autotune"
VARIANTS = EAGER, PLAIN, RACED, TUNED, MAX
OURS = RACED, TUNED
MODES = {"reduce-overhead": "max-autotune", "default": "max-autotune-no-cudagraphs"}
"""Modes of `torch.compile`, and the mode of max-autotune that captures as they do."""

ROWS = (1, 16, 128, 2048)
ALL_ROWS = ",".join(map(str, ROWS))
ROUNDS, BURST_US, MOST_CALLS = 21, 2000.0, 16
"""Turns of each variant, microseconds of a burst, most calls of a burst."""

TITLE = "compiled models"
"""The title of the table in the documents."""

SHOWN = Console(width=120, soft_wrap=True)
Row = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """What a process runs.

    Attributes:
        model, variant: names.
        folder: where the variant's caches lie, and beside them the references of the model.
        mode: of `torch.compile`.
        seconds: of tuning the model's shapes; for `tuned` alone.
        rows: all numbers of rows, whose shapes are tuned together.
        gpu, cores: where the process runs; an empty `gpu` is the CPU.
    """

    model: str
    variant: str
    folder: Path
    mode: str = "reduce-overhead"
    seconds: float = 0.0
    rows: Sequence[int] = ROWS
    gpu: str = "0"
    cores: Sequence[int] = ()

    def environment(self) -> dict[str, str]:
        """The GPU and the empty caches of the process."""
        own = self.folder / self.variant
        return {
            "CUDA_VISIBLE_DEVICES": self.gpu,
            "TORCHINDUCTOR_CACHE_DIR": str(own / "inductor"),
            "TRITON_CACHE_DIR": str(own / "triton"),
            "AUTOTUNE_CACHE_DIR": str(own / "autotune"),
        }


class Program:
    """A model in one variant, one number of rows at a time."""

    def __init__(self, task: Task) -> None:
        import torch

        self.task, self.torch = task, torch
        self.device = "cuda" if task.gpu else "cpu"
        self.run: Callable[[], Any] = lambda: None
        self.calls = 1
        self.open = ExitStack()
        self.open.enter_context(torch.inference_mode())
        if task.variant != EAGER:  # starts the workers of Inductor
            torch.compile(lambda x: x.sin() + 1)(torch.ones(64, device=self.device))

    def start(self) -> Row:
        """Enters `inductor()`, tunes for it, and returns the seconds of tuning."""
        variant, tune_s = self.task.variant, 0.0
        if variant in OURS:
            import autotune.torch

            if variant == TUNED:
                tune_s = self.tune()
            # By itself it races shapes without a record, and ranks by cold times.
            policy = autotune.Policy(cold=True) if variant == TUNED else None
            self.open.enter_context(autotune.torch.inductor(policy))
        return {"tune_s": tune_s}

    def tune(self) -> float:
        """Tunes the shapes of the model in all numbers of rows; returns the seconds."""
        with autotune.torch.recording() as shapes:
            for rows in self.task.rows:
                model, inputs = built(self.torch, self.task.model, rows, self.device)
                model(**inputs)
        del model
        self.forget()
        began = perf_counter()
        autotune.tune(shapes, seconds=self.task.seconds, objective="cold", progress=False)
        return perf_counter() - began

    def prepare(self, rows: int) -> Row:
        """Builds the model, compiles it, and returns its seconds of compiling and its error."""
        self.forget()
        torch, variant = self.torch, self.task.variant
        model, inputs = built(torch, self.task.model, rows, self.device)
        path = self.task.folder / f"reference-{rows}.pt"
        if variant == EAGER:
            torch.save({"sum": checksum(model), "output": reference(model, inputs)}, path)
        else:
            mode = MODES[self.task.mode] if variant == MAX else self.task.mode
            model = torch.compile(model, mode=mode, dynamic=False)
        self.run = partial(model, **inputs)
        began = perf_counter()
        for _ in range(3):  # the second warms a CUDA graph up, the third captures it
            output = hidden_states(self.run())
        self.wait()
        seconds = perf_counter() - began
        exact = torch.load(path)
        if exact["sum"] != checksum(model):
            raise ValueError(f"the weights of {variant} differ from those of {EAGER}")
        expected = exact["output"].to(self.device)
        error = float((output.double() - expected).norm() / expected.norm())
        if not math.isfinite(error):
            raise ValueError(f"{variant} returned numbers that are not finite")
        wall_us = min(self.wall_us() for _ in range(5))
        self.calls = max(1, min(MOST_CALLS, round(BURST_US / wall_us)))
        return {"compile_s": 0.0 if variant == EAGER else seconds, "error": error}

    def sample(self) -> tuple[float, float]:
        """Microseconds of the GPU, and of the clock on the wall, of a call."""
        wall_us = self.wall_us()
        if not self.task.gpu:
            return wall_us, wall_us
        return burst_us(self.torch, self.run, self.calls, wall_us * self.calls), wall_us

    def wall_us(self) -> float:
        """Microseconds of a call of a burst, as the host's clock has them."""
        self.wait()
        began = perf_counter()
        for _ in range(self.calls):
            self.run()
        self.wait()
        return 1e6 * (perf_counter() - began) / self.calls

    def wait(self) -> None:
        """Waits for the GPU."""
        if self.task.gpu:
            self.torch.cuda.synchronize()

    def forget(self) -> None:
        """Frees the model, its compiled code and its CUDA graphs."""
        self.run = lambda: None
        self.torch.compiler.reset()
        gc.collect()
        if self.task.gpu:
            self.torch.cuda.empty_cache()


def main(
    out: Annotated[Path, typer.Argument(help="JSON file for the figures.")],
    models: Annotated[str, typer.Option(help="Models, separated by commas.")] = ",".join(MODELS),
    rows: Annotated[str, typer.Option(help="Rows, separated by commas.")] = ALL_ROWS,
    skip: Annotated[
        list[str] | None, typer.Option(help="A variant that is not run; repeatable.")
    ] = None,
    mode: Annotated[
        str, typer.Option(help="Of torch.compile: reduce-overhead or default.")
    ] = "reduce-overhead",
    seconds: Annotated[
        float, typer.Option(help="Seconds of tuning a model for `tuned`; 0 skips it.")
    ] = 0.0,
    limit: Annotated[
        float, typer.Option(help="No number of rows starts after these seconds.")
    ] = 420.0,
    index: Annotated[str, typer.Option(help="GPUs, separated by commas.")] = "0",
    page: Annotated[bool, typer.Option("--page", help="Only write the documents' table.")] = False,
    commit: Annotated[str, typer.Option(help="Commit; by default that of this checkout.")] = "",
) -> None:
    """Prints the times of each model and number of rows, and geometric means."""
    if page:
        write_table(TITLE, out, markdown)
        return
    names = models.split(",")
    skipped = {*(skip or ()), *(() if seconds else (TUNED,))}
    refuse_unknown(names, skipped, mode)
    variants = [variant for variant in VARIANTS if variant not in skipped]
    gpus = index.split(",")
    origin = of_this_machine(devices.probe(int(gpus[0])).name, commit)
    settings: Row = {
        "device": origin["device"],
        "cublas": origin["cublas"],
        "mode": mode,
        "seconds": seconds,
        "asked": variants,
        "source": targets.here().source,
        "versions": {name: version(name) for name in ("torch", "triton", "transformers")},
    }
    measured, lock = rows_in(out, settings), Lock()
    done = {(row["model"], row["rows"]) for row in measured}
    numbers = sorted({int(number) for number in rows.split(",")})
    missing = {name: [m for m in numbers if (name, m) not in done] for name in names}
    out.parent.mkdir(parents=True, exist_ok=True)

    def add(row: Row) -> None:
        with lock:
            measured.append(row)
            measured.sort(key=lambda row: ([*MODELS].index(row["model"]), row["rows"]))
            content = {**origin, **settings, "summary": summary(measured), "rows": measured}
            write_whole(out, (json.dumps(content, indent=1, allow_nan=False) + "\n").encode())
            SHOWN.print(line(row), markup=False)

    wanted = {name: some for name, some in missing.items() if some}
    contest(wanted, {**settings, "limit": limit}, gpus, add)
    SHOWN.print(*markdown(measured), sep="\n", markup=False)
    for text in conclusions(summary(measured)):
        SHOWN.print(text, markup=False)


def refuse_unknown(names: Sequence[str], skipped: Set[str], mode: str) -> None:
    """Raises `typer.BadParameter` for names that the script does not know."""
    for kind, given, known in (
        ("model", names, MODELS),
        ("variant", skipped, VARIANTS),
        ("mode", [mode], MODES),
    ):
        if unknown := {*given} - {*known}:
            raise typer.BadParameter(f"no {kind} {', '.join(sorted(unknown))}; give {[*known]}")
    if {EAGER, PLAIN} & skipped:
        raise typer.BadParameter("eager has the reference, and plain is what others compare with")


def version(name: str) -> str:
    """The version of an installed package; empty if there is none."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def contest(
    missing: Mapping[str, Sequence[int]],
    settings: Row,
    gpus: Sequence[str],
    add: Callable[[Row], None],
) -> None:
    """Runs models for numbers of rows; each GPU takes the next model, with its share of cores.

    Args:
        missing: the numbers of rows of each model.
        settings: those of the file, and `limit`, the seconds after which no number of rows begins.
        gpus: their numbers.
        add: takes a row.
    """
    until = perf_counter() + settings["limit"]

    def run(name: str, gpu: str, cores: list[int]) -> None:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            place = Path(folder), settings["mode"], settings["seconds"], missing[name], gpu, cores
            tasks = [Task(name, variant, *place) for variant in settings["asked"]]
            run_model(tasks, until, add)

    deque(on_gpus(gpus, missing, run), maxlen=0)


@dataclass
class Field:
    """The variants of a model that still run.

    Attributes:
        model: its name.
        programs: by variant.
        failures: why others do not.
    """

    model: str
    programs: dict[str, Any] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def ask(self, *request: Any, turn: int = 0) -> dict[str, Any]:
        """The answers to a request, one variant after the other, in odd turns from the last one.

        A variant that fails is closed and asked no more.
        """
        order = [*self.programs][:: -1 if turn % 2 else 1]
        answers = {variant: self._answer(variant, request) for variant in order}
        return {variant: answer for variant, answer in answers.items() if answer is not None}

    def _answer(self, variant: str, request: tuple[Any, ...]) -> Any:
        program = self.programs[variant]
        try:
            answer = program(*request)
            if request[0] == "prepare" and answer["compile_s"]:
                text = f"{self.model}, {request[1]} rows, {variant}: {answer['compile_s']:.1f} s"
                SHOWN.print(f"{text} of compiling", markup=False)
            return answer
        except Failed as error:
            self.failures[variant] = str(error)
            SHOWN.print(f"{self.model}, {variant}: {error}", markup=False)
            program.close()
            del self.programs[variant]


def apart(task: Task) -> Apart:
    """The program of a task in a process of its own."""
    return Apart(partial(Program, task), task.environment(), task.cores)


def run_model(
    tasks: Sequence[Task],
    until: float,
    add: Callable[[Row], None],
    open_program: Callable[[Task], Any] = apart,
) -> None:
    """Runs the variants of a model for each of its numbers of rows that begins before `until`."""
    name, numbers = tasks[0].model, tasks[0].rows
    competing = Field(name)
    with ExitStack() as opened:
        if perf_counter() < until:
            for task in tasks:
                competing.programs[task.variant] = program = open_program(task)
                opened.callback(program.close)
        started = competing.ask("start")
        for place, number in enumerate(numbers):
            if perf_counter() >= until:
                left = ", ".join(map(str, numbers[place:]))
                SHOWN.print(f"{name}: no time for {left} rows; a second run continues")
                break
            variants = interleaved(competing, started, number)
            row = {"model": name, "rows": number, "variants": variants}
            add({**row, "failures": dict(competing.failures)})


def interleaved(competing: Field, started: Row, number: int) -> Row:
    """The figures of each variant for a number of rows."""
    prepared = competing.ask("prepare", number)
    samples: dict[str, list[tuple[float, float]]] = {}
    for turn in range(ROUNDS):
        for variant, sample in competing.ask("sample", turn=turn).items():
            samples.setdefault(variant, []).append(sample)
    return {
        variant: {
            **prepared[variant],
            "tune_s": started[variant]["tune_s"],
            **median([us for us, _ in samples[variant]]),
            "wall_us": statistics.median(wall for _, wall in samples[variant]),
        }
        for variant in prepared
        if variant in competing.programs
    }


def gain(row: Row, variant: str, over: str, figure: str = "us") -> float | None:
    """A figure of one variant over that of another; None if either did not run."""
    found = row["variants"]
    if variant not in found or over not in found:
        return None
    return float(found[over][figure] / found[variant][figure])


def line(row: Row) -> str:
    """A row in one line."""
    figures = ", ".join(
        f"{variant} {item['us']:.1f} us"
        + (f" ({item['compile_s']:.1f} s)" if item["compile_s"] else "")
        for variant, item in row["variants"].items()
    )
    return f"{row['model']}, {row['rows']} rows: {figures}"


def summary(rows: Sequence[Row]) -> Row:
    """For each variant of ours the geometric means and the worst of its gains, and its cost."""
    found = {}
    for variant in OURS:
        own = [row for row in rows if {variant, PLAIN} <= {*row["variants"]}]
        if not own:
            continue
        over = {base: spanned(own, variant, base) for base in (PLAIN, MAX)}
        errors = [
            row["variants"][variant]["error"] / row["variants"][PLAIN]["error"] for row in own
        ]
        found[variant] = {
            "over": {base: figures for base, figures in over.items() if figures},
            "wall_over_plain": geomean([gain(row, variant, PLAIN, "wall_us") or 0 for row in own]),
            "by_rows": {
                number: geomean(
                    [gain(row, variant, PLAIN) or 0 for row in own if row["rows"] == number]
                )
                for number in sorted({row["rows"] for row in own})
            },
            "largest_error_ratio": max(errors),
            "compile_s": seconds_of(own, variant),
        }
    return found


def spanned(rows: Sequence[Row], variant: str, base: str) -> Row:
    """The gains of a variant over another: mean, worst, where, and the share of compile seconds."""
    both = [(ratio, row) for row in rows if (ratio := gain(row, variant, base)) is not None]
    if not both:
        return {}
    worst, where = min(both, key=lambda pair: pair[0])
    shared = [row for _, row in both]
    return {
        "geomean": geomean([ratio for ratio, _ in both]),
        "worst": worst,
        "worst_case": f"{where['model']}, {where['rows']} rows",
        "compile_share": seconds_of(shared, variant) / seconds_of(shared, base),
    }


def seconds_of(rows: Sequence[Row], variant: str) -> float:
    """The compile seconds of a variant, added up."""
    return float(sum(row["variants"][variant]["compile_s"] for row in rows))


def conclusions(found: Row) -> Iterator[str]:
    """The lines below the table."""
    for variant, figures in found.items():
        for base, item in figures["over"].items():
            yield (
                f"{variant} over {base}: geomean {item['geomean']:.3f}, worst {item['worst']:.3f} "
                f"({item['worst_case']}), in {item['compile_share']:.2f} of its compile seconds"
            )
        by_rows = ", ".join(
            f"{number} rows {mean:.3f}" for number, mean in figures["by_rows"].items()
        )
        yield (
            f"{variant} over {PLAIN}: {by_rows}; host included {figures['wall_over_plain']:.3f}; "
            f"error at most {figures['largest_error_ratio']:.2f} of plain's"
        )


def markdown(rows: Sequence[Row]) -> Iterator[str]:
    """The table of the documents: a line for each model and variant of ours, and their means."""
    numbers = sorted({row["rows"] for row in rows})
    heads = [f"{number} rows" for number in numbers]
    others = "over max-autotune", "compile s", "plain", "max-autotune", "error over plain's"
    yield from markdown_head("over plain", *heads, *others)
    for variant in summary(rows):
        models = dict.fromkeys(row["model"] for row in rows)
        groups = {name: [row for row in rows if row["model"] == name] for name in models}
        for name, group in (*groups.items(), ("all", rows)):
            own = [row for row in group if {variant, PLAIN} <= {*row["variants"]}]
            found = summary(own).get(variant)
            if found is None:
                continue
            over, seconds = (
                found["over"].get(MAX),
                [seconds_of(own, kind) for kind in (variant, PLAIN)],
            )
            cells = (
                *(cell(found["by_rows"].get(number), "{:.3f}") for number in numbers),
                cell(over and over["geomean"], "{:.3f}"),
                *(f"{taken:.0f}" for taken in seconds),
                cell(over and found["compile_s"] / over["compile_share"], "{:.0f}"),
                f"{found['largest_error_ratio']:.2f}",
            )
            yield markdown_row(f"{name}, {variant}", *cells)


if __name__ == "__main__":
    typer.run(main)
