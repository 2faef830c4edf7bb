"""The vendor baseline of 8-bit operands, with PyTorch faked by NumPy."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided
from results import is_padded
from support.fake_session import FakeSession
from support.host_cases import numbers, random_scales, stored
from support.oracle_errors import error_unit, largest_error
from support.oracle_products import product

from autotune.measure.baseline import PaddedRun, open_baseline
from autotune.measure.operands import GUARD, GuardedMatrix, Operands
from autotune.measure.oracle import activated, library_tolerance
from autotune.problem import ELEMENT_TYPES, Problem
from autotune.problem.vendor import library_sizes

STORED = {"e4m3": "u1", "e5m2": "u1", "i8": "i1", "bf16": "<u2", "f16": "<f2", "f32": "<f4"}
STORED |= {"i32": "<i4"}


class Tensor(np.ndarray[Any, Any]):
    """An array with the methods of a tensor that the baseline uses."""

    def t(self) -> Any:
        return self.T

    def copy_(self, source: Any) -> None:
        if self.dtype == np.uint16 != source.dtype:  # bfloat16
            self[...] = stored(np.asarray(source, np.float32), "bf16")
        else:
            self[...] = source

    def to(self, dtype: Any) -> Any:
        return self.astype(dtype)


def fake_torch(problem: Problem, calls: list[dict[str, Any]]) -> Any:
    """A PyTorch that refuses what the real one refuses."""
    kind_a, kind_b = problem.operand_types

    def scaled_mm(a: Any, b: Any, scale_a: Any, scale_b: Any, **options: Any) -> None:
        calls.append({"shapes": (a.shape, b.shape, scale_a.shape, scale_b.shape), **options})
        (m, k), n = a.shape, b.shape[1]
        assert (k % 16, n % 16, a.strides[1], b.strides[0]) == (0, 0, 1, 1)
        left, right = (numbers(np.asarray(x), kind) for x, kind in ((a, kind_a), (b, kind_b)))
        if problem.scale == "block":
            assert (scale_a.strides, scale_b.strides[0]) == ((4, 4 * m), 4)
            left *= np.repeat(scale_a, 128, axis=1)
            right *= np.repeat(np.repeat(scale_b, 128, axis=0), 128, axis=1)
        result = left * (scale_a if problem.scale != "block" else 1) @ right
        result *= scale_b if problem.scale != "block" else 1
        result += 0 if options["bias"] is None else numbers(np.asarray(options["bias"]))
        options["out"][...] = stored(result.astype(np.float32), problem.output_type)

    def int_mm(a: Any, b: Any, *, out: Any) -> None:
        calls.append({"shapes": (a.shape, b.shape)})
        assert (a.shape[0] > 16, a.shape[1] % 8, b.shape[1] % 8) == (True, 0, 0)
        out[...] = a.astype(np.int64) @ b.astype(np.int64)

    def array(elements: Any, **_: object) -> Any:
        interface = dict(elements.__cuda_array_interface__)
        return np.asarray(SimpleNamespace(__array_interface__=interface)).view(Tensor)

    def strided(elements: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
        steps = [elements.itemsize * step for step in strides]
        return as_strided(elements, shape, steps, subok=True)

    def zeros(shape: tuple[int, ...], dtype: Any, device: object) -> Any:  # noqa: ARG001
        return np.zeros(shape, dtype).view(Tensor)

    def ones(shape: tuple[int, ...], dtype: Any, device: object) -> Any:  # noqa: ARG001
        return np.ones(shape, dtype).view(Tensor)

    def add(result: Any, residual: Any, *, out: Any) -> None:
        kind = problem.output_type
        total = numbers(np.asarray(result), kind) + numbers(np.asarray(residual), kind)
        out[...] = stored(total.astype(np.float32), kind)

    def silu(out: Any) -> None:
        values = activated(numbers(np.asarray(out), problem.output_type), "silu")
        out[...] = stored(values.astype(np.float32), problem.output_type)

    def mul(gate: Any, up: Any, *, out: Any) -> None:
        values = np.multiply(*(numbers(np.asarray(x), problem.output_type) for x in (gate, up)))
        out[...] = stored(values.astype(np.float32), problem.output_type)

    return SimpleNamespace(
        add=add,
        mul=mul,
        ops=SimpleNamespace(aten=SimpleNamespace(silu_=silu)),
        **{element.dtype: np.dtype(STORED[name]) for name, element in ELEMENT_TYPES.items()},
        cuda=SimpleNamespace(
            is_available=lambda: True,
            ExternalStream=lambda *_, **__: None,
            stream=lambda _: nullcontext(),
        ),
        device=lambda *_: None,
        as_tensor=array,
        as_strided=strided,
        zeros=zeros,
        ones=ones,
        relu_=lambda out: out.copy_(np.maximum(numbers(np.asarray(out)), 0)),
        _scaled_mm=scaled_mm,
        _int_mm=int_mm,
    )


def memory(matrix: GuardedMatrix) -> Any:
    """The elements of a buffer as stored, without gaps."""
    size = ELEMENT_TYPES[matrix.type].bytes
    start = matrix.allocation.words.view(np.uint8)[GUARD:][: size * matrix.length]
    return start.view(STORED[matrix.type]).reshape(-1, matrix.columns)


def opened(
    problem: Problem, monkeypatch: pytest.MonkeyPatch, calls: list[dict[str, Any]]
) -> tuple[Any, Operands]:
    monkeypatch.setitem(sys.modules, "torch", fake_torch(problem, calls))
    session: Any = FakeSession()
    operands = Operands(session, problem)
    random = np.random.default_rng(0)
    kinds = *problem.operand_types, *[problem.output_type] * 2
    buffers = operands.a, operands.b, operands.bias, operands.residual
    for matrix, kind in zip(buffers[: 3 + problem.has_residual], kinds, strict=False):
        filled = memory(matrix)
        filled[...] = stored(8 * random.standard_normal(filled.shape, np.float32), kind)
    for scales, values in zip(
        (operands.scale_a, operands.scale_b), random_scales(problem) or (), strict=False
    ):
        memory(scales.vector)[0] = values.reshape(-1)
    return open_baseline(session, operands), operands


PROBLEMS = [
    *(f"48x32x64:f8:nt:scale={scale}" for scale in ("none", "tensor", "row")),
    *("48x32x64:f8:nt:fast:out=f32", "1x32x64:f8:nt:scale=row", "48x32x64:f8e5:nt:e5m2=ab"),
    *("37x53x71:f8:nt:scale=row", "48x32x64:f8:tn:scale=row", "5x6x7:f8:nn:out=f16"),
    *("48x32x64:f8:nt:bias_relu", "37x53x71:f8:nt:bias:scale=tensor"),
    *("48x32x64:f8:nt:bias_residual", "37x53x71:f8:nt:residual:scale=row"),
    *(f"48x32x64:f8:{rest}:swiglu" for rest in ("nt:scale=row", "tn:scale=tensor", "nt:fast")),
    *("37x272x200:f8:nt:scale=block:swiglu", "37x48x71:f8:nt:scale=row:swiglu"),
    *(
        "48x128x512:f8:nt:scale=block",
        "37x53x200:f8:nt:scale=block",
        "33x129x640:f8:tt:scale=block",
    ),
    *("48x32x64:i8:nt:out=i32", "48x32x64:i8:nt", "48x32x64:i8:nt:scale=row"),
    *("1x32x64:i8:nt:scale=row", "37x53x71:i8:nn:scale=tensor", "37x53x71:i8:nt:out=i32"),
]


@pytest.mark.parametrize("text", PROBLEMS)
def test_baseline_of_8_bits_computes_the_problem(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, calls = Problem.parse(text), list[dict[str, Any]]()
    baseline, operands = opened(problem, monkeypatch, calls)
    if isinstance(baseline, PaddedRun):
        baseline.whole()
    else:
        baseline()
    a, b = (
        numbers(memory(matrix), kind)
        for matrix, kind in zip((operands.a, operands.b), problem.operand_types, strict=True)
    )
    bias = numbers(memory(operands.bias))[0]
    residual = numbers(memory(operands.residual)) if problem.has_residual else None
    scales = random_scales(problem)
    wanted = product(problem, a, b, bias=bias, scales=scales, residual=residual)
    unit: Any = 1.0
    tolerance = 64 * library_tolerance(problem)  # the operands are eight times as large
    if problem.gated:
        sums = product(replace(problem, epilogue="none"), a, b, scales=scales)
        unit = error_unit(sums, tolerance)
    error = largest_error(problem, numbers(memory(operands.c)), wanted, unit)
    assert error <= tolerance
    copied, integer = isinstance(baseline, PaddedRun), problem.compute == "i8"
    apart = is_padded(problem) or problem.gated
    assert copied == (apart or (integer and problem.output != "i32"))


def test_library_gives_no_scaled_result_in_fp8(monkeypatch: pytest.MonkeyPatch) -> None:
    baseline, _ = opened(Problem.parse("48x32x64:f8:nt:out=e4m3"), monkeypatch, [])
    assert baseline is None


def test_timed_run_leaves_the_copies_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, calls = Problem.parse("37x53x71:f8:nt:scale=row"), list[dict[str, Any]]()
    baseline, operands = opened(problem, monkeypatch, calls)
    baseline.whole()
    before = memory(operands.c).copy()
    memory(operands.a)[...] = 0
    memory(operands.c)[...] = 0
    baseline()
    assert not memory(operands.c).any()
    baseline.after()
    np.testing.assert_array_equal(memory(operands.c), before)
    assert calls[0]["shapes"] == ((37, 80), (80, 64), (37, 1), (1, 64))


@pytest.mark.parametrize(("accumulate", "fast"), [("exact", False), ("fast", True)])
def test_accumulation_decides_fast_accumulation_of_cublas(
    accumulate: str, fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, calls = Problem(16, 16, 16, "f8", "nt", accumulate=accumulate), list[dict[str, Any]]()
    opened(problem, monkeypatch, calls)[0]()
    assert calls[0]["use_fast_accum"] is fast


@pytest.mark.parametrize("text", ["16x16x16:f8:nt:batch=2", "32x16x16:i8:nt:bias"])
def test_8_bits_without_a_function_have_no_baseline(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert opened(Problem.parse(text), monkeypatch, [])[0] is None


@pytest.mark.parametrize(
    ("text", "sizes", "padded"),
    [
        ("4096x4096x4096:f8:nt:scale=row", (4096, 4096, 4096), False),
        ("4096x4096x4096:f8:nn", (4096, 4096, 4096), True),
        ("37x53x71:f8:nt", (37, 64, 80), True),
        ("37x53x71:f8:nt:scale=block", (40, 128, 512), True),
        ("16x4096x4096:i8:nt", (32, 4096, 4096), True),
        ("17x4104x4104:i8:nt", (17, 4104, 4104), False),
        ("4097x4095x4093:i8:nt", (4097, 4096, 4096), True),
        ("37x53x71:bf16", (37, 53, 71), False),
    ],
)
def test_library_pads_what_it_refuses(text: str, sizes: tuple[int, int, int], padded: bool) -> None:
    problem = Problem.parse(text)
    assert is_padded(problem) == padded
    if problem.precision.eight_bit:
        assert library_sizes(problem) == sizes
