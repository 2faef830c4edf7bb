"""A recorded algorithm of cuBLASLt is launched by matmul, kernel and PyTorch's operators."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from export_gpu import compiled, gemm_call
from runtime_gpu import SPLIT, excess_of
from support.paths import import_path
from support.sample_records import entry, record

import autotune
from autotune import runtime
from autotune.cuda import compiler, cublaslt
from autotune.device import Device
from autotune.errors import MissingError
from autotune.export import gather
from autotune.export.library import fastest_algorithm
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.cublaslt import NAME, config_of
from autotune.lookup.answer import Answer, recorded_answer
from autotune.measure.measurement import Measurement
from autotune.measure.objective import HOT, Objective
from autotune.problem import Problem
from autotune.records import Record, Store
from autotune.runtime import Kernel
from autotune.runtime.launcher import Driver
from autotune.runtime.matmul import Matmul
from autotune.runtime.state import Runtime
from autotune.settings import Policy

TYPES = {"f32": "float32", "tf32": "float32", "f16": "float16", "bf16": "bfloat16"}


SHORT = (
    "mma:compute={},swap=0,bm=64,bn=64,bk=32,wm=32,wn=32,slices=1,copy=async,pack=none,stages=2,"
    "split_k=1,promote=0,min_blocks=1,store=direct,group=1"
)


class Recorded:
    """A matmul whose records have one algorithm of the heuristic, before a kernel of ours."""

    def __init__(self, driver: Driver, programs: Path, rank: int = 0) -> None:
        self.driver, self.rank = driver, rank
        self.runtime = Runtime(
            driver, self.find, registry.plan, partial(compiler.compile, cache=programs)
        )
        self.matmul = Matmul(self.runtime)
        self.library = self.runtime.gpu(0).cublaslt

    def record(self, problem: Problem) -> Record:
        """The record of a problem, by an algorithm that takes workspace where `rank` is -1."""
        with self.driver.entered(0):
            found = self.library.heuristic(problem)
        if self.rank < 0:
            found = [each for each in found if each.workspace] or pytest.skip("no workspace")
        if not found:
            pytest.skip(f"cuBLASLt has no algorithm for {problem}")
        configs = [config_of(*found[max(0, self.rank) % len(found)])]
        if not problem.precision.eight_bit:
            own = SHORT.format(problem.compute)
            configs.append(Config.parse(own) if problem.element_bytes == 2 else SPLIT)
        entries = [
            replace(entry(16, 10.0 + place), config=config) for place, config in enumerate(configs)
        ]
        device = self.driver.probe(0)
        source = f"{NAME}:{self.library.version}"
        known: Record = record(*entries, problem=problem, device=device, source=source)
        return known

    def find(self, problem: Problem, device: Device, objective: Objective) -> Answer | None:
        """The answer of that record."""
        known = self.record(problem)
        answer = recorded_answer(problem, device, known, "exact", 0.0, objective)
        assert answer is not None
        assert answer.config.family == NAME
        return answer


@pytest.fixture(params=[0, 1, 2, -1])
def recorded(
    request: pytest.FixtureRequest, driver: Driver, torch: Any, programs: Path
) -> Recorded:
    torch.zeros(1, device="cuda")
    try:
        return Recorded(driver, programs, request.param)
    except MissingError as error:
        pytest.skip(str(error))


def _random(torch: Any, *shape: int, compute: str = "f32") -> Any:
    return torch.randn(*shape, device="cuda").to(getattr(torch, TYPES[compute]))


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("compute", ["f32", "f16", "bf16"])
def test_views_of_a_batch_are_multiplied(
    torch: Any, recorded: Recorded, compute: str, layout: str
) -> None:
    def view(letter: str, rows: int, columns: int) -> Any:
        rows, columns = (columns, rows) if letter == "t" else (rows, columns)
        whole = _random(torch, 3, rows + 1, columns + 8, compute=compute)[:, 1:, :columns]
        return whole.transpose(1, 2) if letter == "t" else whole

    a, b = view(layout[0], 64, 512), view(layout[1], 512, 136)
    out = view("n", 64, 136)
    rest = -0.5 * out.double()
    memory = out._base
    before = memory.clone()
    recorded.matmul(a, b, out, 0.75, -0.5)
    assert excess_of(out, a, b, 0.75, rest, compute) <= 0
    before[:, 1:, :136] = out
    assert torch.equal(memory, before)


def test_bias_and_activation_are_fused(torch: Any, recorded: Recorded) -> None:
    for shift in (0.0, 1.0):
        shapes = (96, 256), (256, 128), (128,)
        a, b, bias = (_random(torch, *shape, compute="f16") for shape in shapes)
        bias += shift
        out: Any = recorded.matmul(a, b, bias=bias, activation="relu")
        wanted = torch.relu(a.double() @ b.double() + bias.double())
        assert float((out.double() - wanted).abs().max()) < 0.05


@pytest.mark.parametrize("gaps", [(1, 1), (8, 3), (3, 8)], ids=str)
@pytest.mark.parametrize("compute", ["f32", "tf32", "f16", "bf16"])
def test_odd_pitches_and_strides_are_right_or_left_to_our_kernel(
    torch: Any, recorded: Recorded, compute: str, gaps: tuple[int, int]
) -> None:
    def view(rows: int, columns: int) -> Any:
        """Matrices with gaps in elements between rows and between matrices."""
        pitch = columns + gaps[0]
        stride = rows * pitch + gaps[1]
        memory = _random(torch, 3 * stride, compute=compute)
        return torch.as_strided(memory, (3, rows, columns), (stride, pitch, 1))

    a, b, out = view(64, 512), view(512, 136), view(64, 136)
    recorded.matmul(a, b, out, compute=compute)
    assert excess_of(out, a, b, compute=compute) <= 0


@pytest.mark.parametrize("scale", ["tensor", "row"])
def test_scales_of_8_bits_are_the_librarys(torch: Any, recorded: Recorded, scale: str) -> None:
    if recorded.rank < 0:
        pytest.skip("few algorithms of 8 bits take a workspace")
    m, n, k = 128, 256, 512
    a, b = (_random(torch, *shape).to(torch.float8_e4m3fn) for shape in ((m, k), (n, k)))
    for factor in (0.5, 2.0):
        sizes = (m, n) if scale == "row" else (1, 1)
        of_a, of_b = (factor + torch.rand(size, device="cuda") for size in sizes)
        out: Any = recorded.matmul(a, b.t(), scale_a=of_a, scale_b=of_b)
        left, right = a.double() * of_a[:, None].double(), b.double() * of_b[:, None].double()
        wanted, sizes = left @ right.t(), left.abs() @ right.t().abs()
        # C is rounded to the 8 bits of bfloat16, and the sums keep 14 bits.
        assert bool(((out.double() - wanted).abs() <= 2**-8 * wanted.abs() + 2**-11 * sizes).all())


@pytest.mark.parametrize("shape", [(96, 384, 320), (64, 128, 4096), (1024, 1024, 1024)])
@pytest.mark.parametrize("compute", ["f32", "tf32", "bf16"])
def test_first_call_in_a_graph_is_captured(
    torch: Any, recorded: Recorded, compute: str, shape: tuple[int, int, int]
) -> None:
    m, n, k = shape
    a, b = _random(torch, m, k, compute=compute), _random(torch, k, n, compute=compute)
    out = torch.empty(m, n, device="cuda", dtype=a.dtype)
    recorded.runtime.resolve(Problem(m, n, k, compute), 0)
    del vars(recorded.runtime.gpu(0))["cublaslt"]  # it is opened again during the capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        recorded.matmul(a, b, out, compute=compute)
    a.normal_()
    recorded.matmul(a, b, torch.empty_like(out), compute=compute)  # has a workspace of its own
    graph.replay()
    torch.cuda.synchronize()
    assert excess_of(out, a, b, compute=compute) <= 0


def test_threads_with_their_own_streams_do_not_interfere(torch: Any, recorded: Recorded) -> None:
    excesses = []

    def work() -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            a, b, out = (_random(torch, 256, 256) for _ in range(3))
            for _ in range(50):
                recorded.matmul(a, b, out)
            excesses.append(excess_of(out, a, b))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(excesses) == 4
    assert max(excesses) <= 0


def test_kernel_is_the_algorithm_and_passes_its_check(torch: Any, recorded: Recorded) -> None:
    problem = Problem(128, 256, 512)
    kernel = Kernel(recorded.runtime, problem, 0)
    a, b, out = _random(torch, 128, 512), _random(torch, 512, 256), _random(torch, 128, 256)
    kernel(a, b, out, policy=Policy(verify=True))
    assert kernel.config.family == NAME
    assert excess_of(out, a, b) <= 0
    own = Kernel(recorded.runtime, problem, 0, library=False)
    own(a, b, out)
    assert own.config == SPLIT
    assert excess_of(out, a, b) <= 0


def test_odd_operands_run_the_next_kernel(torch: Any, recorded: Recorded) -> None:
    memory = _random(torch, 64 * 64 + 1)
    a, b = memory[1:].view(64, 64), _random(torch, 64, 64)
    assert excess_of(recorded.matmul(a, b), a, b) <= 0
    a = torch.full((64, 64), float("nan"), device="cuda")
    assert not recorded.matmul(a, b, torch.ones_like(b), 0.0, 0.0).any()


# The exported library.

EXPORTED = tuple(
    map(Problem.parse, ("96x384x320", "64x128x4096:nt", "512x512x512:tf32:tn", "64x96x128:batch=3"))
)


def test_exported_library_calls_the_same_algorithm(
    torch: Any, recorded: Recorded, programs: Path, tmp_path: Path
) -> None:
    library = gather(
        *("lib", EXPORTED, [recorded.driver.probe(0)]),
        lambda problem, device: recorded.find(problem, device, HOT),
        partial(compiler.compile, cache=programs),
        algorithm=lambda problem, _: fastest_algorithm(recorded.record(problem), HOT),
    )
    built = compiled(tmp_path, library, cublaslt=True)
    stream = torch.cuda.current_stream().cuda_stream
    for problem in EXPORTED:
        matrices = zip(problem.stored_rows, problem.leading_dimensions, strict=True)
        a, b, c = (_random(torch, problem.batch, *shape) for shape in matrices)
        call = gemm_call(problem, a=a.data_ptr(), b=b.data_ptr(), c=c.data_ptr())
        size = built.workspace(call)
        space = torch.empty(max(1, size), dtype=torch.uint8, device="cuda")
        built.prepare(space.data_ptr(), size, stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            built.matmul(call, space.data_ptr(), size, torch.cuda.current_stream().cuda_stream)
        kernels = _profiled(torch, graph.replay)
        assert "simt<Params>" not in kernels
        left = a.transpose(1, 2) if problem.layout[0] == "t" else a
        right = b.transpose(1, 2) if problem.layout[1] == "t" else b
        expected: Any = recorded.matmul(left, right, compute=problem.compute)
        assert torch.equal(c, expected)


# Records in the cache.


@pytest.fixture
def stored(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    (tmp_path / "programs").symlink_to(programs)
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path))
    runtime.current.cache_clear()
    yield Store(tmp_path)
    runtime.current.cache_clear()


@pytest.fixture
def layer(stored: Store, driver: Driver, programs: Path) -> Problem:
    """A layer's product whose record has an algorithm, faster than cuBLAS by its own choice."""
    problem = Problem(64, 192, 256, layout="nt", epilogue="bias")
    known = Recorded(driver, programs).record(problem)
    stored.save(replace(known, baseline=Measurement(20.0)))
    return problem


def _profiled(torch: Any, act: Callable[[], object]) -> str:
    """The kernels that run, by their names."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        act()
        torch.cuda.synchronize()
    return " ".join(event.key for event in profile.key_averages())


def test_operators_and_layers_of_pytorch_launch_it(torch: Any, layer: Problem) -> None:
    import autotune.torch as own

    x = _random(torch, layer.m, layer.k)
    plain = torch.nn.Linear(layer.k, layer.n, device="cuda").requires_grad_(False)
    wanted, weight, bias = plain(x), plain.weight, plain.bias
    replaced = own.Linear(layer.k, layer.n, device="cuda").requires_grad_(False)
    replaced.load_state_dict(plain.state_dict())
    patched = torch.nn.Sequential(plain)
    own.patch(patched, layer.m)
    assert isinstance(patched[0], own.Linear)
    assert runtime.current().runtime.resolve(layer, 0).config.family == NAME
    for act in (
        lambda: own.mm(x, weight.t(), bias),
        lambda: autotune.matmul(x, weight.t(), bias=bias),
        torch.compile(lambda: own.mm(x, weight.t(), bias), backend="aot_eager"),
        lambda: replaced(x),
        lambda: patched(x),
    ):
        assert torch.allclose(act(), wanted, atol=1e-4)
        assert "simt<Params>" not in _profiled(torch, act)
    with autotune.policy(vendor=False):
        for act in (lambda: own.mm(x, weight.t(), bias), lambda: patched(x)):
            assert torch.allclose(act(), wanted, atol=1e-4)
            assert "simt<Params>" in _profiled(torch, act)


def test_other_version_leaves_the_next_kernel(
    stored: Store, driver: Driver, programs: Path
) -> None:
    problem = Problem(64, 192, 256)
    known = Recorded(driver, programs).record(problem)
    source = known.provenance.source.replace(cublaslt.version(), "1.2.3")
    stored.save(replace(known, provenance=replace(known.provenance, source=source)))
    answer = autotune.choose(problem)
    assert answer.config == SPLIT
    assert f"faster by cuBLASLt 1.2.3, but {cublaslt.version()} is loaded" in answer.note


PYCUDA = """
import numpy as np
import {context}
from pathlib import Path
from pycuda import gpuarray
from autotune.runtime.launcher import Driver
from test_cublaslt_launch_gpu import Recorded
recorded = Recorded(Driver.load(), Path("{programs}"))
a, b = (np.random.standard_normal((256, 256)).astype(np.float32) for _ in "ab")
out = recorded.matmul(gpuarray.to_gpu(a), gpuarray.to_gpu(b))
print(abs(out.get() - a.astype("f8") @ b.astype("f8")).max() < 1e-3)
"""


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize("context", ["pycuda.autoprimaryctx", "pycuda.autoinit"])
def test_pycuda_arrays_in_primary_and_own_contexts(context: str, programs: Path) -> None:
    pytest.importorskip("pycuda.driver")
    code = PYCUDA.format(context=context, programs=programs)
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": import_path(Path(__file__).parent, *map(Path, sys.path))},
    )
    assert done.stdout.strip() == "True", done.stderr
