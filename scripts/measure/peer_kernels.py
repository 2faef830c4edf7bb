"""Compares Kernel Tuner with autotune on kernels of users, on GPUs of this machine.

    pip install --group compare  # and CuPy for the GPU's CUDA
    python scripts/measure/peer_kernels.py docs/results/h100/peer-kernels.json --seeds 2 --index 0,1

The kernels are those of `examples/kernels`. Both tuners search the same space with the same data,
each in its own process with its own empty caches, for the same seconds of wall clock from the call.
Kernel Tuner compiles by NVRTC (CuPy) where it can, else by nvcc (PyCUDA). It verifies nothing
unless `--answer` gives it the expected results; then a wrong configuration ends its search.

At the end a third process compiles all winners of a kernel by nvcc, verifies them and times them
interleaved on the same arrays, so that one clock judges both. A ratio above 1 says that autotune's
winner is faster. The first result counts from the call.

Several GPUs take kernels side by side, each with its share of the cores. A crash or a process that
takes too long costs its own row. Other kernels of a file made with the same settings stay in it.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from functools import partial
from itertools import product
from math import ceil, prod
from pathlib import Path
from statistics import median
from time import monotonic, time
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

sys.path.append(str(Path(__file__).resolve().parents[1] / "fit"))
sys.path.append(str(Path(__file__).resolve().parents[2] / "examples" / "kernels"))

import replay
import results
from apart import on_gpus
from cases import CASES, Case, evaluated
from references import Array

OURS, THEIRS = "autotune", "kernel tuner"
TUNERS = OURS, THEIRS

SHOWN = Console(width=120, soft_wrap=True)
Row = dict[str, Any]
Config = Mapping[str, Any]

PREPARED_S, LATE = 60.0, 3.0
"""Seconds for imports and data, and the multiple of its budget that a tuner may take."""

JUDGED_S, SAMPLE_US, MOST_SAMPLES = 3.0, 1000.0, 60
"""Seconds of the final timing of a kernel, microseconds of one sample, most samples of a winner."""

HEADS = {"us": "us", "trials": "trials", "first s": "first_s", "wall s": "wall_s"}
"""Columns of the table and the figures of a run that they show."""

RTOL = 1e-4
"""Tolerance of floats, relative to an element and to the mean magnitude; integers are equal."""


def main(
    out: Annotated[Path, typer.Argument(help="File of the results.")],
    cases: Annotated[str, typer.Option(help="Kernels, separated by commas.")] = ",".join(CASES),
    seconds: Annotated[float, typer.Option(help="Seconds for each tuner.")] = 11.0,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each tuner.")] = 1,
    index: Annotated[str, typer.Option(help="GPUs, separated by commas.")] = "0",
    answer: Annotated[
        bool, typer.Option("--answer", help="Kernel Tuner verifies, by NumPy's allclose.")
    ] = False,
    strategy: Annotated[
        str, typer.Option(help="Strategy of Kernel Tuner.")
    ] = "adaptive_tabu_greywolf",
    commit: Annotated[str, typer.Option(help="Commit; by default that of this checkout.")] = "",
) -> None:
    """Tunes kernels with both tuners and compares the winners."""
    if unknown := {*(names := cases.split(","))} - {*CASES}:
        raise typer.BadParameter(f"no kernel {', '.join(sorted(unknown))}; there are {[*CASES]}")
    gpus = index.split(",")
    settings = {
        "versions": replay.versions(
            *("tile-autotune", "kernel_tuner", "cupy-cuda13x", "pycuda", "numpy", "optuna")
        ),
        "toolkit": toolkit() or results.UNKNOWN,
        "commit": commit or results.head() or results.UNKNOWN,
        "seconds": seconds,
        "answer": answer,
        "strategy": strategy,
        "seeds": seeds,
        "gpus": len(gpus),
        "cores": len(os.sched_getaffinity(0)),
    }
    rows = {row["case"]: row for row in results.rows_in(out, settings)}
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for row in contest(names, settings, gpus, Path(folder)):
            rows[row["case"]] = row
            content = contents(settings, [rows[name] for name in CASES if name in rows])
            out.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n")
    SHOWN.print(table(content))
    for tuner in TUNERS:
        SHOWN.print(f"{tuner}: {totals(content['summary'][tuner])}")


def contents(settings: Row, rows: Sequence[Row]) -> Row:
    """What the file of results has."""
    device, driver = (
        next((row[name] for row in rows if name in row), "") for name in ("device", "driver")
    )
    origin = results.provenance(device, driver, settings["toolkit"], commit=settings["commit"])
    return {**settings, **origin, "summary": summary(rows), "rows": [*rows]}


def contest(
    names: Sequence[str], settings: Row, gpus: Sequence[str], folder: Path
) -> Iterator[Row]:
    """A row for each kernel; each GPU takes the next kernel with its share of the cores."""
    cores = sorted(os.sched_getaffinity(0))

    def prepared(name: str) -> Row:
        (folder / name).mkdir()
        task = {"case": name, "folder": str(folder / name), "job": "prepare"}
        return apart(task, limit=4 * PREPARED_S, place=("", cores))

    def contested(item: tuple[str, Row], gpu: str, own: list[int]) -> Row:
        name, made = item
        row: Row = {"case": name, "configs": len(CASES[name].legal()), "runs": []}
        if "broken" in made:
            return row | made
        options = {name: settings[name] for name in ("seconds", "answer", "strategy")}
        task = {"case": name, "folder": str(folder / name), **options}
        return row | compared(task, range(settings["seeds"]), partial(apart, place=(gpu, own)))

    with ThreadPoolExecutor(max(1, len(cores) // 2)) as pool:
        made = [*pool.map(prepared, names)]
    yield from on_gpus(gpus, zip(names, made, strict=True), contested)


def compared(task: Row, seeds: Sequence[int], run: Callable[..., Row]) -> Row:
    """The runs of both tuners on a kernel, and its winners timed."""
    name: str = task["case"]
    runs: list[Row] = []
    limit = PREPARED_S + LATE * task["seconds"]
    for seed in seeds:
        # The order alternates, so that neither tuner always gets the warmer device.
        for tuner in TUNERS if seed % 2 == 0 else TUNERS[::-1]:
            outcome: Row = {"tuner": tuner, "seed": seed}
            outcome |= run({**task, "job": tuner, "seed": seed}, limit=limit)
            runs.append(outcome)
            SHOWN.print(told(name, outcome), markup=False)
    configs = [outcome["config"] for outcome in runs if outcome.get("config")]
    winners = [config for place, config in enumerate(configs) if config not in configs[:place]]
    judged = run({**task, "job": "judge", "winners": winners}, limit=2 * PREPARED_S)
    times = judged.pop("times", [])
    for outcome in runs:
        if times and outcome.get("config"):
            outcome["judged"] = times[winners.index(outcome["config"])]
    found = ratios(runs)
    faults = [judged["broken"]] if "broken" in judged else []
    faults += [f"{run['tuner']}: {run['judged']['wrong']}" for run in runs if wrong(run)]
    shown = [f"{ratio:.3f}" for ratio in found] or ["no ratio"]
    SHOWN.print(f"{name}: {', '.join([*shown, *faults])}", markup=False)
    return {"runs": runs, **judged, "ratios": found}


def wrong(run: Row) -> bool:
    """Whether the winner of a run is wrong."""
    return "wrong" in run.get("judged", {})


def ratios(runs: Sequence[Row]) -> list[float]:
    """For each seed the time of Kernel Tuner's winner over that of autotune's."""
    times = {
        (run["seed"], run["tuner"]): run["judged"]["us"]
        for run in runs
        if "us" in run.get("judged", {})
    }
    seeds = dict.fromkeys(run["seed"] for run in runs)
    return [
        times[seed, THEIRS] / times[seed, OURS]
        for seed in seeds
        if {(seed, THEIRS), (seed, OURS)} <= {*times}
    ]


def told(name: str, run: Row) -> str:
    """A line about a run."""
    figures = (
        f"{run['trials']} trials, {run['failures']} failed, first after {run['first_s']:.1f} s, "
        f"{run['wall_s']:.1f} s, best {run['us']:.2f} us"
        if run.get("config")
        else "no winner"
    )
    broken = f"; {run['broken']}" if "broken" in run else ""
    return f"{name}, {run['tuner']}, seed {run['seed']}: {figures}{broken}"


def apart(task: Row, *, limit: float, place: tuple[str, list[int]]) -> Row:
    """The outcome of a task in its own process; `broken` says why there is none."""
    gpu, cores = place
    folder = Path(task["folder"])
    with tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as caches:
        request, outcome = Path(caches) / "task.json", Path(caches) / "outcome.json"
        request.write_text(json.dumps(task))
        environment = os.environ | {
            "CUDA_VISIBLE_DEVICES": gpu,
            "CUPY_CACHE_DIR": f"{caches}/cupy",
            "CUDA_CACHE_PATH": f"{caches}/driver",
            "AUTOTUNE_CACHE_DIR": f"{caches}/autotune",
            "TMPDIR": caches,
        }
        with (Path(caches) / "log").open("w+") as log:
            child = subprocess.Popen(
                [sys.executable, __file__, "child", str(request), str(outcome)],
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
                preexec_fn=partial(os.sched_setaffinity, 0, cores),
            )
            late = ""
            try:
                child.wait(limit)
            except subprocess.TimeoutExpired:
                late = f"ended after {limit:.0f} s"
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
            if outcome.exists():
                return dict(json.loads(outcome.read_text()))
            log.seek(0)
            last = [line for line in log.read().splitlines() if line.strip()][-1:]
            return {"broken": late or f"exit status {child.returncode}: {''.join(last)}"}


def child(request: Path, outcome: Path) -> None:
    """Does a task and writes its outcome."""
    task = json.loads(request.read_text())
    case = CASES[task["case"]]
    job = {"prepare": prepare, OURS: run_autotune, THEIRS: run_kernel_tuner, "judge": judge}
    done = job[task["job"]](case, task)
    written = outcome.with_suffix(".tmp")
    written.write_text(json.dumps(done, default=float))
    written.rename(outcome)


def prepare(case: Case, task: Row) -> Row:
    """Writes the arguments of the kernel and the expected arrays."""
    arguments = case.arguments()
    answer = case.reference(*arguments)
    for name, arrays in (("argument", arguments), ("answer", answer)):
        for place, array in enumerate(arrays):
            if array is not None:
                np.save(Path(task["folder"]) / f"{name}-{place}.npy", array)
    return {}


def call(task: Row) -> tuple[list[Any], list[Array | None]]:
    """The arguments and the expected arrays, as `prepare` wrote them."""
    folder = Path(task["folder"])
    count = len([*folder.glob("argument-*.npy")])
    arguments = [np.load(folder / f"argument-{place}.npy") for place in range(count)]
    paths = [folder / f"answer-{place}.npy" for place in range(count)]
    answer = [np.load(path) if path.exists() else None for path in paths]
    return [each if each.ndim else each[()] for each in arguments], answer


def run_autotune(case: Case, task: Row) -> Row:
    """Tunes by autotune."""
    from autotune import Search
    from autotune.measure.measurement import Measurement
    from autotune.tuning.trials import Observer, Progress, Trial

    class Clock(Observer):
        first, trials, failures = 0.0, 0, 0

        def trial(self, trial: Trial, progress: Progress) -> None:
            self.trials, self.failures = progress.trials, progress.failures
            if not self.first and isinstance(trial.outcome, Measurement):
                self.first = time()

    arguments, answer = call(task)
    clock, broken = Clock(), {}
    search = Search(seconds=task["seconds"], seed=task["seed"])
    began = time()
    try:
        record = case.tune(arguments, answer, search=search, device="gpu", progress=clock)
        best = record.best
        found = {
            "config": dict(best.config.values),
            "us": best.measurement.time_us,
            "first_s": clock.first - began,
        }
    except Exception as error:
        found, broken = {}, {"broken": told_of(error)}
    counts = {"trials": clock.trials, "failures": clock.failures}
    return {"wall_s": time() - began, **counts, **found, **broken}


def told_of(error: Exception) -> str:
    """An error in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def language(case: Case, arguments: Sequence[Any]) -> str:
    """The backend of Kernel Tuner: what NVRTC or CuPy cannot do is left to nvcc and PyCUDA."""
    hosted = re.search(r"#include <c\w+>", case.path.read_text(encoding="utf-8"))
    structured = any(isinstance(argument, np.void) for argument in arguments)
    return "PYCUDA" if hosted or structured else "CUPY"


def includes() -> list[str]:
    """Options for the folders of CUDA's headers."""
    from cuda.pathfinder import find_nvidia_header_directory

    folders = (find_nvidia_header_directory(library) for library in ("cudart", "cccl"))
    return [f"-I{folder}" for folder in folders if folder]


def link_by_nvcc() -> None:
    """Has PyCUDA find the library that it links: it looks in few places."""
    nvcc = Path(shutil.which("nvcc") or "nvcc").resolve()
    toolkits = [nvcc.parent.parent, *sorted(Path("/usr/local").glob("cuda*"))]
    for toolkit, folder in product(toolkits, ("lib64", "lib")):
        if (toolkit / folder / "libcudadevrt.a").exists():
            os.environ["LD_LIBRARY_PATH"] = str(toolkit / folder)
            return


def kernel_tuner_call(case: Case, task: Row, arguments: Sequence[Any], lang: str) -> Row:
    """The arguments of Kernel Tuner's `tune_kernel`."""
    divisors = {
        f"grid_div_{axis}": [*factors] for axis, factors in zip("xyz", case.grid_div, strict=False)
    }
    compiled = ["--std=c++17", *includes()] if lang == "CUPY" else ["-std=c++17"]
    memory: Row = {} if case.constants is None else {"cmem_args": case.constants()}
    if case.shared:
        memory["smem_args"] = {"size": partial(evaluated, case.shared)}
    return {
        "kernel_name": case.kernel,
        "kernel_source": str(case.path),
        "problem_size": case.extents,
        "arguments": arguments,
        "tune_params": {name: [*values] for name, values in case.parameters.items()},
        **{"grid_div_x": [], "grid_div_y": [], "grid_div_z": []},
        **divisors,
        "restrictions": [*case.constraints],
        "lang": lang,
        "compiler_options": compiled,
        "strategy": task["strategy"],
        "strategy_options": {"time_limit": task["seconds"]},
        "seed": task["seed"],
        "quiet": True,
        **memory,
    }


def run_kernel_tuner(case: Case, task: Row) -> Row:
    """Tunes by Kernel Tuner; its cache file has what it measured, also where it fails."""
    import kernel_tuner
    from kernel_tuner.util import read_cache

    arguments, answer = call(task)
    lang = language(case, arguments)
    keywords = kernel_tuner_call(case, task, arguments, lang)
    if task["answer"]:
        magnitude = max(float(np.abs(each).mean()) for each in answer if each is not None)
        keywords |= {"answer": answer, "atol": RTOL * magnitude}
    if lang == "PYCUDA":
        link_by_nvcc()
    random.seed(task["seed"])
    np.random.seed(task["seed"])
    with tempfile.TemporaryDirectory() as folder:
        path, broken = Path(folder) / "cache.json", {}
        began = time()
        try:
            kernel_tuner.tune_kernel(**keywords, cache=str(path))
        except Exception as error:
            broken = {"broken": told_of(error)}
        wall = time() - began
        tried = (
            [*read_cache(str(path), open_cache=False)["cache"].values()] if path.exists() else []
        )
    good = [result for result in tried if "__error__" not in result]
    found: Row = {}
    if good:
        best = min(good, key=lambda result: result["time"])
        found = {
            "config": {name: best[name] for name in case.parameters},
            "us": 1e3 * best["time"],
            "first_s": datetime.fromisoformat(good[0]["timestamp"]).timestamp() - began,
        }
    counts = {"trials": len(tried), "failures": len(tried) - len(good)}
    return {"lang": lang, "wall_s": wall, **counts, **found, **broken}


def judge(case: Case, task: Row) -> Row:
    """Verifies and times the winners interleaved, on the same arrays."""
    from pycuda import autoprimaryctx, driver

    device, version = autoprimaryctx.device, driver.get_driver_version()
    arch = "sm_{}{}".format(*device.compute_capability())
    arguments, answer = call(task)
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        cubins = [*pool.map(partial(cubin, case, arch=arch), task["winners"])]
    on_device = [
        driver.to_device(each) if isinstance(each, np.ndarray) else each for each in arguments
    ]
    launches: dict[int, Callable[[], None]] = {}
    times: list[Row] = []
    for place, (config, code) in enumerate(zip(task["winners"], cubins, strict=True)):
        if isinstance(code, str):
            times.append({"wrong": code.splitlines()[0]})
            continue
        launch = launcher(case, config, code, on_device)
        for before, pointer in zip(arguments, on_device, strict=True):
            if isinstance(before, np.ndarray):
                driver.memcpy_htod(pointer, before)
        try:
            launch()
            driver.Context.synchronize()
        except driver.Error as error:
            times.append({"wrong": str(error)})
            break
        fault = faults(answer, on_device, driver)
        times.append({"wrong": fault} if fault else {})
        if not fault:
            launches[place] = launch
    times += [{"wrong": "not judged"}] * (len(task["winners"]) - len(times))
    for place, samples in interleaved(launches, driver).items():
        low, middle, high = (float(at) for at in np.percentile(samples, (25, 50, 75)))
        times[place] = {"us": middle, "spread_us": high - low, "samples": len(samples)}
    driven = f"{version // 1000}.{version % 1000 // 10}"
    return {"device": device.name(), "driver": driven, "times": times}


def cubin(case: Case, config: Config, *, arch: str) -> bytes | str:
    """The machine code of a configuration by nvcc, or the compiler's complaint."""
    text = f'#include "{case.path}"\n'
    if case.is_template:
        instance = re.sub(r"\w+", lambda word: str(config.get(word[0], word[0])), case.kernel)
        text += f"const void* used() {{ return (const void*)&{instance}; }}\n"
    else:
        text = "".join(f"#define {name} {value}\n" for name, value in config.items()) + text
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder) / "winner.cu", Path(folder) / "winner.cubin"
        source.write_text(text)
        command = ["nvcc", "-cubin", f"-arch={arch}", "-std=c++17", "-o", str(made), str(source)]
        compiled = subprocess.run(command, capture_output=True, text=True, check=False)
        return compiled.stderr or "nvcc failed" if compiled.returncode else made.read_bytes()


def launcher(
    case: Case, config: Config, code: bytes, arguments: Sequence[Any]
) -> Callable[[], None]:
    """A function that launches a configuration."""
    from pycuda import driver

    module = driver.module_from_buffer(code)
    function = module.get_function(symbol(case, code))
    for name, array in (case.constants or dict)().items():
        driver.memcpy_htod(module.get_global(name)[0], array)
    grid, block = geometry(case, config)
    shared = evaluated(case.shared, config)

    def launch() -> None:
        function(*arguments, grid=grid, block=block, shared=shared)

    return launch


def symbol(case: Case, code: bytes) -> str:
    """The kernel's name in machine code, by its section; that of a template is mangled."""
    plain = case.kernel.partition("<")[0].encode()
    (found,) = {name for name in re.findall(rb"\.text\.(\w+)", code) if plain in name}
    return str(found.decode())


def geometry(case: Case, config: Config) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Blocks and threads along x, y and z."""
    covered = [prod(config[name] for name in factors) for factors in case.grid_div]
    sizes = case.extents(config)
    grid = [ceil(size / step) for size, step in zip(sizes, covered, strict=True)]
    block = tuple(int(config.get(f"block_size_{axis}", 1)) for axis in "xyz")
    return (*grid, *(1,) * (3 - len(grid))), block


def faults(answer: Sequence[Array | None], on_device: Sequence[Any], driver: Any) -> str:
    """What is wrong with the results; empty if nothing is."""
    for place, expected in enumerate(answer):
        if expected is None:
            continue
        actual = np.empty_like(expected)
        driver.memcpy_dtoh(actual, on_device[place])
        if count := int((~close(actual, expected)).sum()):
            return f"{count} elements of argument {place} are wrong"
    return ""


def close(actual: Array, expected: Array) -> Array:
    """Which elements are as expected."""
    if expected.dtype.kind != "f":
        return np.asarray(actual == expected)
    allowed = RTOL * (np.abs(expected) + np.abs(expected).mean())
    return np.asarray(np.abs(actual - expected) <= allowed)


def interleaved(launches: Mapping[int, Callable[[], None]], driver: Any) -> dict[int, list[float]]:
    """Samples of each launch in microseconds, taken in turns, hot."""
    start, end = driver.Event(), driver.Event()

    def sample(launch: Callable[[], None], count: int) -> float:
        start.record()
        for _ in range(count):
            launch()
        end.record()
        end.synchronize()
        return float(end.time_since(start)) * 1e3 / count

    counts = {}
    for place, launch in launches.items():
        sample(launch, 2)
        counts[place] = max(2, ceil(SAMPLE_US / sample(launch, 3)))
    samples: dict[int, list[float]] = {place: [] for place in launches}
    began = monotonic()
    for turn in range(MOST_SAMPLES):
        order = [*launches] if turn % 2 == 0 else [*launches][::-1]
        for place in order:
            samples[place].append(sample(launches[place], counts[place]))
        if monotonic() - began > JUDGED_S:
            break
    return samples


def summary(rows: Sequence[Row]) -> Row:
    """The figures over all kernels."""
    all_ratios = [ratio for row in rows for ratio in row.get("ratios", ())]
    content: Row = {"kernels": len(rows), "ratios": len(all_ratios)}
    if all_ratios:
        content |= {
            "geomean": results.geomean(all_ratios),
            "worst": min(all_ratios),
            "faster": sum(ratio > 1.01 for ratio in all_ratios),
            "slower": sum(ratio < 0.99 for ratio in all_ratios),
        }
    for tuner in TUNERS:
        runs = [run for row in rows for run in row["runs"] if run["tuner"] == tuner]
        won = [run for run in runs if run.get("config")]
        content[tuner] = {
            "runs": len(runs),
            "winners": len(won),
            "wrong": sum(map(wrong, won)),
            **{
                name: [min(found), median(found), max(found)]
                for name in ("trials", "first_s", "wall_s")
                if (found := [run[name] for run in won])
            },
        }
    return content


def table(content: Row) -> Table:
    """A row for each kernel and seed; times are those of the judge."""
    total = content["summary"]
    title = "geometric mean {geomean:.3f}, worst {worst:.3f}" if total["ratios"] else "no ratio"
    shown = Table("kernel", title=title.format(**total), box=None)
    heads = (f"{short}\n{head}" for head in HEADS for short in ("autot.", "K.T."))
    for head in ("seed", "ratio", *heads):
        shown.add_column(head, justify="right", no_wrap=True)
    for row in content["rows"]:
        for seed in range(content["seeds"]):
            runs = [run for run in row["runs"] if run["seed"] == seed]
            pair = [run for tuner in TUNERS for run in runs if run["tuner"] == tuner]
            ratio = "".join(f"{ratio:.3f}" for ratio in ratios(runs))
            cells = [figure(run, head) for head in HEADS for run in pair]
            shown.add_row(row["case"], str(seed), ratio, *cells)
    return shown


def totals(total: Row) -> str:
    """The runs of a tuner in a line; medians, and ranges in parentheses."""
    words = {"trials": "trials", "first_s": "s to the first result", "wall_s": "s of wall clock"}
    spans = [
        f"{middle:.3g} {words[name]} ({low:.3g} to {high:.3g})"
        for name, (low, middle, high) in ((name, total[name]) for name in words if name in total)
    ]
    winners = f"{total['winners']} of {total['runs']} runs have a winner, {total['wrong']} wrong"
    return ", ".join([winners, *spans])


def figure(run: Row, head: str) -> str:
    """A cell of the table."""
    if wrong(run) and head == "us":
        return "wrong"
    value = (run.get("judged", {}) if head == "us" else run).get(HEADS[head])
    return "none" if value is None else f"{value}" if head == "trials" else f"{value:.1f}"


def toolkit() -> str:
    """The compiler of the winners, and its version."""
    try:
        shown = subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return "".join(f"nvcc {release}" for release in re.findall(r"release ([\d.]+)", shown.stdout))


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        child(*map(Path, sys.argv[2:]))
    else:
        typer.run(main)
