"""Calls of a recorded algorithm of cuBLASLt, on a fake library and the fake GPU."""

from __future__ import annotations

import gc
import shutil
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.fake_dlpack import Exchange
from support.fake_driver import Matrix
from support.fake_frameworks import FakeTorch, Interface, Tensor
from support.native_library import built_library
from support.numpy_cublaslt import FakeCublasLt
from support.numpy_types import decoded
from support.runtime_case import NAIVE, Case
from support.sample_records import entry, record

from autotune import runtime
from autotune.cuda import cublaslt
from autotune.cuda.cublaslt import CublasLt
from autotune.device import Device
from autotune.errors import NotFoundError, RunnerError
from autotune.families.cublaslt import config_of
from autotune.families.plan import Algorithm
from autotune.lookup.answer import Answer, recorded_answer, without_library
from autotune.measure.objective import Objective
from autotune.problem import LAYOUTS, Problem
from autotune.runtime import Kernel
from autotune.settings import Policy

ALGORITHM = Algorithm(66, 20, 1, 0, 0, 0, 16, 0, 0)
PLAIN = config_of(ALGORITHM, 0)
SPLIT = config_of(ALGORITHM._replace(split_k=3), 8192)
PARTIAL = config_of(ALGORITHM._replace(id=8), 0)
"""An algorithm that takes rows of multiples of 8 elements alone."""


@dataclass
class LibraryCase(Case):
    """A runtime whose records have an algorithm of cuBLASLt before the naive kernel."""

    library: FakeCublasLt = field(default_factory=FakeCublasLt)

    def _find(self, problem: Problem, device: Device, objective: Objective) -> Answer | None:
        self.looked_up.append(problem)
        assert self.config is not None
        timed = ((self.config, 9.0), (NAIVE, 10.0))
        entries = [replace(entry(16, time_us), config=config) for config, time_us in timed]
        known = record(*entries, problem=problem, device=device, source="cublaslt:13.0.0 naive:1")
        answer = recorded_answer(problem, device, known, "exact", 0.0, objective)
        return answer and replace(answer, vendor=self.vendor)

    @property
    def ran(self) -> list[int]:
        """The numbers of the algorithms that ran."""
        return [number for number, _, _ in self.library.products]


@pytest.fixture
def case(monkeypatch: pytest.MonkeyPatch) -> LibraryCase:
    case = LibraryCase(config=PLAIN)
    monkeypatch.setattr(CublasLt, "load", lambda: CublasLt(case.library))
    monkeypatch.setattr(cublaslt, "version", lambda: "13.0.0")
    return case


@pytest.fixture
def torch(case: LibraryCase, monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    module = FakeTorch(case.cuda)
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


def close(result: Matrix, expected: Matrix) -> bool:
    return np.allclose(result, expected, rtol=1e-5, atol=1e-5)


def aligned(case: Case, *shape: int, dtype: str = "float32", skip: int = 0) -> Interface:
    """A random matrix at a multiple of 16 bytes, or `skip` elements behind one."""
    values = case.matrix(*shape, dtype=dtype)
    memory: Any = np.zeros(values.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 16 + skip * values.itemsize
    placed = memory[start : start + values.nbytes].view(values.dtype).reshape(shape)
    placed[:] = values
    case.cuda.hold(memory)
    return Interface(placed)


def operands(case: Case, m: int = 8, n: int = 12, k: int = 4) -> Any:
    return [aligned(case, *shape) for shape in ((m, k), (k, n), (m, n))]


def test_recorded_algorithm_multiplies(case: LibraryCase) -> None:
    a, b, out = operands(case)
    before = out.host.copy()
    case.matmul(a, b, out, 0.5, 2.0)
    assert close(out.host, 0.5 * (a.host @ b.host) + 2 * before)
    assert (case.ran, case.cuda.launches, case.built) == ([66], [], [])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_views_with_pitches_and_batches_are_multiplied(case: LibraryCase, layout: str) -> None:
    def view(letter: str, rows: int, columns: int) -> Any:
        rows, columns = (columns, rows) if letter == "t" else (rows, columns)
        whole = aligned(case, 3, rows, columns + 4).host[:, :, :columns]
        return Interface(whole.swapaxes(1, 2) if letter == "t" else whole)

    a, b, out = view(layout[0], 8, 16), view(layout[1], 16, 12), view("n", 8, 12)
    case.matmul(a, b, out)
    assert close(out.host, a.host @ b.host)
    assert case.ran == [66]


def test_bias_and_activation_are_the_librarys(case: LibraryCase) -> None:
    a, b, out = operands(case)
    for _ in range(2):
        bias = aligned(case, 12)
        case.matmul(a, b, out, bias=bias, activation="relu")
        assert close(out.host, np.maximum(a.host @ b.host + bias.host, 0))
    assert case.ran == [66, 66]


def test_result_of_16_bits_is_rounded_once(case: LibraryCase) -> None:
    shapes = ((8, 16), (16, 8), (8, 8))
    a, b, out = (aligned(case, *shape, dtype="float16") for shape in shapes)
    case.matmul(a, b, out)
    expected = (decoded(a.host) @ decoded(b.host)).astype(np.float16)
    assert np.array_equal(out.host, expected)


def test_call_runs_on_the_current_stream(case: LibraryCase, torch: FakeTorch) -> None:
    arrays: Any = [torch.on("cuda:0", operand.host) for operand in operands(case)]
    for stream in (5, 6):
        torch.current = stream
        case.matmul(*arrays)
    assert [stream for _, stream, _ in case.library.products] == [5, 6]


def test_each_stream_has_its_own_workspace(case: LibraryCase, torch: FakeTorch) -> None:
    case.config = SPLIT
    arrays: Any = [torch.on("cuda:0", operand.host) for operand in operands(case)]
    for stream in (5, 6, 5):
        torch.current = stream
        case.matmul(*arrays)
    first, second, third = (workspace for _, _, workspace in case.library.products)
    assert first == third != second
    assert {first, second} == set(case.cuda.allocations)


def test_captured_call_opens_the_library_and_allocates(case: LibraryCase, torch: FakeTorch) -> None:
    case.config = SPLIT
    arrays: Any = [torch.on("cuda:0", operand.host) for operand in operands(case)]
    torch.current, case.cuda.captures = 5, {5: 1}
    case.matmul(*arrays)
    assert case.ran == [66]


def test_threads_multiply_at_once(case: LibraryCase) -> None:
    wrong = []

    def work() -> None:
        a, b, out = operands(case)
        bias = aligned(case, 12)
        for _ in range(20):
            case.matmul(a, b, out, bias=bias)
            wrong.append(not close(out.host, a.host @ b.host + bias.host))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [False] * 80


# What runs otherwise.


@pytest.mark.parametrize("policy", [Policy(vendor=False), Policy(dependent=True)])
def test_policy_without_the_vendor_runs_our_kernel(case: LibraryCase, policy: Policy) -> None:
    a, b, out = operands(case)
    case.matmul(a, b, out, policy=policy)
    assert (case.ran, len(case.cuda.launches)) == ([], 1)
    case.matmul(a, b, out)
    assert case.ran == [66]


def test_alpha_of_0_reads_no_operand(case: LibraryCase) -> None:
    a, b, out = operands(case)
    case.matmul(a, b, out, 0.0)
    assert (case.ran, len(case.cuda.launches)) == ([], 1)


@pytest.mark.parametrize("place", range(3))
def test_operand_between_16_bytes_runs_our_kernel(case: LibraryCase, place: int) -> None:
    arrays: Any = operands(case)
    arrays[place] = aligned(case, *arrays[place].host.shape, skip=1)
    case.matmul(*arrays)
    assert close(arrays[2].host, arrays[0].host @ arrays[1].host)
    assert (case.ran, len(case.cuda.launches)) == ([], 1)


def test_refused_pitch_runs_our_kernel(case: LibraryCase) -> None:
    case.config = PARTIAL
    for k, expected in ((8, [8]), (4, [])):
        case.library.products.clear()
        a, b, out = operands(case, 8, 16, k)
        case.matmul(a, b, out)
        assert close(out.host, a.host @ b.host)
        assert case.ran == expected


def test_workspace_beyond_the_recorded_one_runs_our_kernel(case: LibraryCase) -> None:
    case.config = config_of(ALGORITHM._replace(split_k=3), 4096)
    case.matmul(*operands(case))
    assert (case.ran, len(case.cuda.launches)) == ([], 1)


def test_library_that_refuses_a_handle_leaves_our_kernel(
    case: LibraryCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load() -> CublasLt:
        raise RunnerError("cublasLtCreate returned status 1")

    monkeypatch.setattr(CublasLt, "load", load)
    case.matmul(*operands(case))
    assert len(case.cuda.launches) == 1


def test_faster_choice_of_the_vendor_multiplies(case: LibraryCase, torch: FakeTorch) -> None:
    case.vendor = True
    a, b, out = (torch.on("cuda:0", operand.host) for operand in operands(case))
    case.matmul(a, b, out)
    assert (case.ran, case.cuda.launches) == ([], [])
    case.matmul(a, b, out, policy=Policy(vendor=False))
    assert (case.ran, len(case.cuda.launches)) == ([], 1)


def test_refused_product_is_reported(case: LibraryCase) -> None:
    case.library.status = 13
    with pytest.raises(RunnerError, match="cublasLtMatmul returned status 13 for cublaslt:id=66"):
        case.matmul(*operands(case))


def test_record_of_algorithms_alone_has_no_other_kernel(case: LibraryCase) -> None:
    problem, device = Problem(8, 12, 4), case.runtime.gpu(0).device
    alone = record(replace(entry(16, 9.0), config=PLAIN), problem=problem, device=device)
    known = Answer(problem, device, PLAIN, "exact", "measured", alone, 9.0, "")
    with pytest.raises(NotFoundError, match="is recorded by cuBLASLt alone"):
        without_library(known)


# Kernels of one problem.


def test_kernel_runs_the_algorithm(case: LibraryCase) -> None:
    kernel = Kernel(case.runtime, Problem(8, 12, 4), 0)
    a, b, out = operands(case)
    kernel.bind(a, b, out)()
    kernel.launch(*(operand.host.ctypes.data for operand in (a, b, out)))
    assert (kernel.config, case.ran) == (PLAIN, [66, 66])
    kernel(a, b, out, policy=Policy(dependent=True))
    assert (len(case.ran), len(case.cuda.launches)) == (2, 1)


def test_kernel_without_the_library_is_ours(case: LibraryCase) -> None:
    kernel = Kernel(case.runtime, Problem(8, 12, 4), 0, library=Policy(vendor=False).library)
    kernel(*operands(case))
    assert (kernel.config, case.ran) == (NAIVE, [])


@pytest.mark.parametrize("policy", [Policy(), Policy(vendor=False)])
def test_warm_up_prepares_what_runs(
    case: LibraryCase, monkeypatch: pytest.MonkeyPatch, policy: Policy
) -> None:
    monkeypatch.setattr(runtime, "current", lambda: case.matmul)
    (answer,) = runtime.load_all([Problem(8, 12, 4)], 0, policy=policy)
    built, (a, b, out) = len(case.built), operands(case)
    case.matmul(a, b, out, policy=policy)
    assert (len(case.built), bool(case.ran)) == (built, policy.vendor)
    assert answer.config == (PLAIN if policy.vendor else NAIVE)


def test_verify_checks_the_algorithm(case: LibraryCase) -> None:
    a, b, out = operands(case)
    case.matmul(a, b, out, policy=Policy(verify=True))
    assert (len(case.ran), case.cuda.launches) == (3, [])


def test_dropped_calls_free_their_descriptions(case: LibraryCase) -> None:
    arrays: Any = operands(case)
    case.matmul(*arrays)
    assert case.library._held
    case.matmul.forget(Problem(8, 12, 4))
    case.matmul._checked.clear()
    gc.collect()
    assert case.library._held == {}


# Machine code.


@pytest.fixture
def machine_code(
    case: LibraryCase, tmp_path: Path, torch: FakeTorch, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Exchange]:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    exchange, torch.records = Exchange(), False
    monkeypatch.setattr(Tensor, "__dlpack_c_exchange_api__", exchange.capsule, raising=False)
    case.cuda.make_context()
    with built_library(tmp_path):
        yield exchange


def test_machine_code_calls_the_library(
    case: LibraryCase, torch: FakeTorch, machine_code: Exchange
) -> None:
    a, b, out = (torch.on("cuda:0", operand.host) for operand in operands(case))
    case.matmul(a, b, out, 0.5)
    case.matmul._bound.clear()
    a.host[:] += 1
    machine_code.stream = 33
    assert case.calls(lambda: case.matmul(a, b, out, 0.5)) == ["cuCtxGetId"]
    assert close(out.host, 0.5 * (a.host @ b.host))
    assert [stream for _, stream, _ in case.library.products] == [None, 33]


@pytest.mark.usefixtures("machine_code")
def test_machine_code_reports_a_refused_product(case: LibraryCase, torch: FakeTorch) -> None:
    arrays: Any = [torch.on("cuda:0", operand.host) for operand in operands(case)]
    case.matmul(*arrays)
    case.library.status = 13
    with pytest.raises(RunnerError, match="cublasLtMatmul returned status 13"):
        case.matmul(*arrays)
