"""An exported C library computes what Python computes, bit for bit, and as fast."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from export_gpu import Built, driver_path, exported, gemm_call
from runtime_gpu import excess_of, runtime_of
from support import exported_library
from support.exported_library import ON_GPU

from autotune.device import Device
from autotune.errors import RunnerError
from autotune.export import write, write_library
from autotune.families.config import Config
from autotune.model import cost, space
from autotune.model.space import sample
from autotune.problem import Problem
from autotune.runtime import Kernel
from autotune.runtime.launcher import Driver

EXAMPLES = Path(__file__).parents[2] / "examples"
UNTUNED = tuple(
    Problem.parse(f"{shape}:{compute}")
    for compute in ("f32", "tf32", "tf32x3", "f16", "bf16")
    for shape in ("640x384x512", "333x77x129")
)
ROUNDS, LAUNCHES = 30, 40
SLOWER = 1.02


@pytest.fixture(scope="module")
def built(
    torch: Any, driver: Driver, programs: Path, tmp_path_factory: pytest.TempPathFactory
) -> Built:
    device = driver.probe(0)
    configs = {problem: config_of(problem, device) for problem in ON_GPU}
    torch.zeros(1, device="cuda")
    library = exported(tmp_path_factory.mktemp("export"), configs, device, programs)
    library.call("warm_up")
    return library


@cache
def config_of(problem: Problem, device: Device) -> Config:
    """The tuned configuration, or where the device's space leaves it out the best expected."""
    tuned = exported_library.tuned_for(problem)
    if space.rejection(tuned, problem, device) is None:
        return tuned
    ((_, best), *_) = cost.rank(sample(problem, device), problem, device)
    return best


class Operands:
    """Random matrices of a problem without gaps, and two outputs."""

    def __init__(self, torch: Any, problem: Problem) -> None:
        self._torch, self.problem = torch, problem
        kinds = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
        operand_type, output_type = kinds[problem.operand_types[0]], kinds[problem.output_type]
        torch.manual_seed(1)
        rows = problem.stored_rows
        columns = problem.leading_dimensions

        def matrix(n: int, kind: Any) -> Any:
            shape = problem.batch, rows[n], columns[n]
            return torch.randn(*shape, device="cuda").to(kind)

        self.a, self.b, self.c = (
            matrix(0, operand_type),
            matrix(1, operand_type),
            matrix(2, output_type),
        )
        self.again = self.c.clone()
        self.bias = torch.randn(problem.n, device="cuda").to(output_type)
        self.added = self.bias.data_ptr() if problem.has_bias else 0

    @property
    def stream(self) -> int:
        handle: int = self._torch.cuda.current_stream().cuda_stream
        return handle

    def by_c(self, built: Built, dependent: bool = False) -> Callable[[], None]:
        """Calls the C library, which writes `again`."""
        gemm = gemm_call(
            *(self.problem,),
            a=self.a.data_ptr(),
            b=self.b.data_ptr(),
            c=self.again.data_ptr(),
            bias=self.added,
            dependent=int(dependent),
        )
        size = built.workspace(gemm)
        space = self._torch.full((max(size, 1),), 255, dtype=self._torch.uint8, device="cuda")
        built.prepare(space.data_ptr(), size, self.stream)

        def call() -> None:
            built.matmul(gemm, space.data_ptr(), size, self.stream)

        return call

    def by_python(self, kernel: Kernel) -> Callable[[], None]:
        """Calls the runtime, which writes `c`."""
        places = self.a.data_ptr(), self.b.data_ptr(), self.c.data_ptr()

        def call() -> None:
            kernel.launch(*places, self.stream, bias=self.added)

        return call


def kernel_of(driver: Driver, programs: Path, problem: Problem) -> Kernel:
    config = config_of(problem, driver.probe(0))
    return Kernel(runtime_of(driver, programs, config), problem, 0)


@pytest.mark.parametrize("problem", ON_GPU, ids=str)
def test_library_results_equal_python_bit_for_bit(
    torch: Any, driver: Driver, programs: Path, built: Built, problem: Problem
) -> None:
    operands = Operands(torch, problem)
    operands.by_python(kernel_of(driver, programs, problem))()
    run = operands.by_c(built)
    for _ in range(3):  # each call leaves the counters zero
        operands.again.fill_(float("nan"))
        run()
        torch.cuda.synchronize()
        assert torch.equal(operands.c, operands.again)


@pytest.mark.parametrize("problem", ON_GPU, ids=str)
def test_dependent_calls_in_a_row_give_the_same_bits(
    torch: Any, driver: Driver, built: Built, problem: Problem
) -> None:
    if driver.probe(0).compute_capability < (9, 0):
        pytest.skip("no programmatic dependent launch")
    operands = Operands(torch, problem)
    operands.by_c(built)()
    expected = operands.again.clone()
    run = operands.by_c(built, dependent=True)
    operands.again.fill_(float("nan"))
    for _ in range(8):
        run()
    assert torch.equal(operands.again, expected)


@pytest.mark.parametrize("problem", UNTUNED, ids=str)
@pytest.mark.parametrize("gap", [0, 1])
def test_other_shapes_are_correct(torch: Any, built: Built, problem: Problem, gap: int) -> None:
    operands = Operands(torch, problem)
    m, n, k = problem.m, problem.n, problem.k
    kind = operands.a.dtype
    a, b, c = (
        torch.randn(rows, columns + gap, device="cuda").to(kind)
        for rows, columns in ((m, k), (k, n), (m, n))
    )
    before = c.clone()
    steps = {"lda": k + gap, "ldb": n + gap, "ldc": n + gap}
    places = {"a": a.data_ptr(), "b": b.data_ptr(), "c": c.data_ptr()}
    built.matmul(gemm_call(problem, alpha=0.5, **steps, **places), 0, 0, operands.stream)
    torch.cuda.synchronize()
    assert excess_of(c[:, :n], a[:, :k], b[:, :n], 0.5, compute=problem.compute) <= 0
    assert torch.equal(c[:, n:], before[:, n:])


@pytest.mark.timing
@pytest.mark.parametrize("problem", ON_GPU, ids=str)
def test_library_is_as_fast_as_python(
    torch: Any,
    driver: Driver,
    programs: Path,
    built: Built,
    problem: Problem,
    record_property: Callable[[str, object], None],
) -> None:
    """Times both as graphs of many launches in sequence, so that only GPU time counts."""
    operands = Operands(torch, problem)
    calls = operands.by_python(kernel_of(driver, programs, problem)), operands.by_c(built)
    graphs = [_graph(torch, call) for call in calls]
    times: list[list[float]] = [[], []]
    for number in range(ROUNDS + 3):
        for which in (0, 1) if number % 2 else (1, 0):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            graphs[which].replay()
            end.record()
            end.synchronize()
            if number >= 3:
                times[which].append(start.elapsed_time(end) * 1e3 / LAUNCHES)
    by_python, by_c = median(times[0]), median(times[1])
    record_property("us", (by_python, by_c))
    print(f"{problem}: Python {by_python:.2f} us, C {by_c:.2f} us, ratio {by_c / by_python:.4f}")
    assert by_c / by_python <= SLOWER


def _graph(torch: Any, call: Callable[[], None]) -> Any:
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(LAUNCHES):
            call()
    return graph


def test_example_program_finds_every_gemm_correct(built: Built) -> None:
    program = built.folder / "example"
    sources = [built.folder / "main.c", built.folder / "lib.c"]
    command: list[str | Path] = [
        "gcc",
        "-std=c11",
        "-O2",
        *sources,
        "-ldl",
        "-lpthread",
        "-lm",
        "-o",
        program,
    ]
    subprocess.run(command, check=True)
    result = subprocess.run([program], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("right") == len(built.library.gemms)


def test_ptx_can_be_loaded(torch: Any, driver: Driver, built: Built, tmp_path: Path) -> None:
    torch.zeros(1, device="cuda")
    write_library(built.library, tmp_path, "ptx")
    # Kernels of one family have the same symbol: each file is asked for its own.
    symbols = {program.symbol for gemm in built.library.gemms for program in gemm.programs}
    loaded = 0
    for path in sorted(tmp_path.glob("*.ptx"))[:8]:
        text = path.read_text()
        (symbol,) = (name for name in symbols if f".entry {name}(" in text)
        try:
            driver.load_kernel(text.encode() + b"\0", symbol, 0, 0)
        except RunnerError as error:
            if "UNSUPPORTED_PTX_VERSION" not in str(error):
                raise
            pytest.skip("the compiler is newer than the driver")
        loaded += 1
    assert loaded >= 4


@pytest.fixture(scope="module")
def layer(torch: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that the examples need, exported with the command in their first lines."""
    torch.zeros(1, device="cuda")
    folder = tmp_path_factory.mktemp("layer")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTOTUNE_CACHE_DIR", str(folder / "cache"))
        write(["64x256x128:f32:bias_relu"], folder / "gemm", "gemm", devices=["gpu"])
    return folder


def test_c_example_runs(layer: Path) -> None:
    gemm, program = layer / "gemm", layer / "linear"
    sources = [EXAMPLES / "c" / "linear.c", gemm / "gemm.c", driver_path()]
    command: list[str | Path] = [
        "gcc",
        "-std=c11",
        f"-I{gemm}",
        *sources,
        "-ldl",
        "-lpthread",
        "-lm",
    ]
    subprocess.run([*command, "-o", program], check=True)
    result = subprocess.run([program], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (0, "largest error 0\n"), result.stderr


def test_cpp_example_runs(layer: Path) -> None:
    build, prefix = layer / "build", layer / "installed"
    link = f"-L{driver_path().parent} -l:{driver_path().name}"
    steps: list[list[str | Path]] = [
        ["cmake", "-S", layer / "gemm", "-B", build],
        ["cmake", "--build", build],
        ["cmake", "--install", build, "--prefix", prefix],
        ["cmake", "-S", EXAMPLES / "cpp", "-B", layer / "cpp", f"-DCMAKE_PREFIX_PATH={prefix}",
         f"-DCUDA_DRIVER={link}"],
        ["cmake", "--build", layer / "cpp"],
    ]  # fmt: skip
    for step in steps:
        subprocess.run(step, check=True, capture_output=True)
    result = subprocess.run([layer / "cpp" / "linear"], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (0, "largest error 0\n"), result.stderr
