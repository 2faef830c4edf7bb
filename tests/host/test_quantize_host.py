"""`quantize.cu` on the CPU, compared with NumPy bit by bit."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray
from support import quantising
from support.host_cases import BUFFERS, buffers, name_of, numbers, stored
from support.host_cuda import Program, build

from autotune.families.plan import Launch
from autotune.families.shared import quantizing
from autotune.families.shared.quantizing import Quantizing
from autotune.problem import ELEMENT_TYPES

FILLER = 0xEE
PAIRS = (("bf16", "e4m3"), ("f16", "i8"), ("f32", "e5m2"))
WIDEST = {"bf16": 8, "f16": 8, "f32": 4}


@dataclass(frozen=True)
class Case:
    """A quantisation of values of shape (batch, rows, columns), with gaps after rows."""

    quantizing: Quantizing
    values: NDArray[np.float32]
    gap: int = 0
    fixed: float | None = None

    @property
    def matrix(self) -> NDArray[Any]:
        """The values as they are stored."""
        return stored(self.values, self.quantizing.source.name)

    @property
    def pitch(self) -> int:
        return self.quantizing.columns + self.gap

    @property
    def wanted(self) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
        exact = numbers(self.matrix).astype(np.float32)
        target, scale = self.quantizing.target.name, self.quantizing.scale
        return quantising.quantised(exact, target, scale, self.fixed)


def case(
    pair: tuple[str, str],
    scale: str,
    shape: tuple[int, int, int],
    vector: int | None = None,
    gap: int = 0,
    fixed: float | None = None,
) -> Case:
    """Normal random values in which groups differ in size."""
    random = np.random.default_rng(0)
    values = random.standard_normal(shape, np.float32)
    values *= 2.0 ** random.integers(-9, 9, (*shape[:2], 1))
    return case_of(values.astype(np.float32), pair, scale, vector, gap, fixed)


def case_of(
    values: NDArray[np.float32],
    pair: tuple[str, str],
    scale: str,
    vector: int | None = None,
    gap: int = 0,
    fixed: float | None = None,
) -> Case:
    batch, rows, columns = values.shape
    source, target = (ELEMENT_TYPES[name] for name in pair)
    width = WIDEST[pair[0]] if vector is None else vector
    sizes = rows, columns, batch, width
    quantizing = Quantizing(source, target, scale, *sizes, fixed=fixed is not None)
    return Case(quantizing, values, gap, fixed)


@pytest.fixture(scope="module", autouse=True)
def small() -> Iterator[None]:
    """Few threads, so that small matrices take every path."""
    with pytest.MonkeyPatch.context() as patched:
        small = {"FEW_ROWS": 8, "SPLIT_ROWS": 3, "MOST_THREADS": 64, "PARTS": 3, "THREADS": 64}
        for name, value in small.items():
            patched.setattr(quantizing, name, value)
        yield


def ordinary() -> dict[str, list[Case]]:
    """Cases by what they show."""
    return {
        "rows of a warp": [case(pair, "row", (2, 5, 1000)) for pair in PAIRS],
        "few rows": [case(PAIRS[0], "row", (1, 3, 400), gap=8)],
        "rows of a block": [case(PAIRS[2], "row", (1, 9, 1032), gap=4)],
        "rows beyond registers": [case(PAIRS[2], "row", (1, 5, 2052))],
        "split rows": [case(PAIRS[2], "row", (1, 2, 9000), gap=4)],
        "blocks": [case(pair, "block", (2, 6, 648), gap=16) for pair in PAIRS],
        "odd rows": [case(PAIRS[0], "row", (1, 9, 1001), 1, gap=1)],
        "odd blocks": [case(PAIRS[1], "block", (1, 3, 517), 1, gap=1)],
        "tensor": [case(PAIRS[0], "tensor", (2, 3, 5000), gap=8)],
        "fixed": [case(PAIRS[1], "tensor", (1, 3, 800), fixed=0.07)],
    }


def extreme() -> dict[str, list[Case]]:
    """Cases of zeros, of the smallest and largest numbers, and of no numbers, by their name."""
    largest, tiny = np.finfo(np.float32).max, np.float32(1e-45)
    rows = {
        "zeros": [0, -0.0, 0, 0],
        "denormals": [tiny, -3 * tiny, 0, 1e-40],
        "small": [1.3e-38, 0, -2e-38, 0],
        "largest": [largest, -largest, 1, 0],
        "infinities": [np.inf, 3, -np.inf, -1],
        "only infinities": [np.inf, 0, -np.inf, 0],
        "NaN": [np.nan, 2, -1, 0.25],
    }
    values = np.zeros((1, 9, 1000), np.float32)
    for row, head in enumerate(rows.values()):
        values[0, row, :4] = values[0, row, 700:704] = head
    half = np.where(np.isfinite(values), values.clip(-6e4, 6e4), values)
    return {
        "rows": [case_of(values, PAIRS[2], "row"), case_of(values, PAIRS[0], "row")],
        "rows of half": [case_of(half, PAIRS[1], "row")],
        "blocks": [case_of(values, PAIRS[2], "block")],
        "scale of 0": [case_of(half, PAIRS[1], "tensor", fixed=0.0)],
        "tiny scale": [case_of(half, PAIRS[1], "tensor", fixed=1e-42)],
        "zero tensor": [case_of(np.zeros((2, 3, 5000), np.float32), PAIRS[0], "tensor")],
    }


@pytest.fixture(scope="module")
def program(small: None, host_objects: Path) -> Program:  # noqa: ARG001 - its constants
    cases = chain(*ordinary().values(), *extreme().values())
    launches = chain(*(each.quantizing.plan().launches for each in cases))
    return build({launch.template for launch in launches}, host_objects)


@pytest.mark.parametrize("name", ordinary())
def test_numbers_and_scales_are_those_of_numpy(program: Program, name: str) -> None:
    check(program, ordinary()[name])


@pytest.mark.parametrize("name", extreme())
def test_extremes_are_quantised_as_numpy_does(program: Program, name: str) -> None:
    check(program, extreme()[name])


def test_cases_take_every_path() -> None:
    plans = [each.quantizing.plan() for each in chain(*ordinary().values())]
    main = [plan.main.template.numbers for plan in plans]
    assert {values["SCALE"] for values in main} == {1, 2, 3}
    assert {(values["SPLIT"], values["FIXED"]) for values in main} == {(0, 0), (1, 0), (0, 1)}
    assert {values["VECTOR"] for values in main} == {1, 4, 8}
    assert {values["THREADS"] // values["LANES"] for values in main} == {1, 2}


def check(program: Program, cases: Sequence[Case]) -> None:
    """Runs the cases; bytes and scales must be those of NumPy, and gaps must stay."""
    for each, (memory, scales) in zip(cases, run(program, cases), strict=True):
        codes, wanted = each.wanted
        np.testing.assert_array_equal(scales, wanted.ravel())
        gaps = np.full(memory.size, True)
        steps = each.quantizing.rows * each.pitch, each.pitch, 1
        as_strided(gaps, codes.shape, steps)[:] = False
        np.testing.assert_array_equal(as_strided(memory, codes.shape, steps), codes)
        assert (memory[gaps] == FILLER).all()


def run(
    program: Program, cases: Sequence[Case]
) -> list[tuple[NDArray[np.uint8], NDArray[np.float32]]]:
    """The memory of q and the scales of each case, computed by one process."""
    # The launcher returns one buffer: each case runs once for q, and once for the scales.
    jobs = [_job(each, returned) for each in cases for returned in ("c", "scale_a")]
    process = subprocess.run(
        [program.path], input=b"".join(jobs), capture_output=True, timeout=120, check=False
    )
    results, output = [], process.stdout
    for each in cases:
        size, scales = _size(each), 4 * each.wanted[1].size
        assert len(output) >= size + scales, process.stderr.decode(errors="replace")[:4000]
        memory = np.frombuffer(output[:size], np.uint8).copy()
        results.append((memory, np.frombuffer(output[size : size + scales], np.float32)))
        output = output[size + scales :]
    return results


def _size(case: Case) -> int:
    """Elements from the first of the matrices to the last."""
    quantizing = case.quantizing
    return (quantizing.batch * quantizing.rows - 1) * case.pitch + quantizing.columns


def _job(case: Case, returned: str) -> bytes:
    """The launches of a case as `launcher.cpp` reads them; it returns the buffer `c`, which q and
    its scales trade if the scales are to be `returned`."""
    plan, matrix = case.quantizing.plan(), case.matrix
    source = np.frombuffer(b"\xff" * (_size(case) * matrix.itemsize), matrix.dtype).copy()
    steps = [matrix.itemsize * step for step in (matrix.shape[1] * case.pitch, case.pitch, 1)]
    as_strided(source, matrix.shape, steps)[:] = matrix
    scales = case.wanted[1]
    before = scales if case.fixed is not None else np.full_like(scales, np.nan)
    names = {"c": "c", "scale_a": "scale_a"}
    if returned == "scale_a":
        names = {"c": "scale_a", "scale_a": "c"}
    contents = {
        "a": source.tobytes(),
        names["c"]: bytes([FILLER]) * _size(case),
        names["scale_a"]: before.tobytes(),
        "workspace": b"\xff" * plan.workspace,
    }
    vector = case.quantizing.vector
    starts = {"a": vector * matrix.itemsize, names["c"]: vector, "workspace": 16}
    job = struct.pack("<I", len(plan.launches)) + buffers(contents, starts)
    return job + b"".join(_launch(launch, case.pitch, names) for launch in plan.launches)


def _launch(launch: Launch, pitch: int, names: dict[str, str]) -> bytes:
    name = name_of(launch.template).encode()
    job = struct.pack("<I", len(name)) + name
    job += struct.pack("<7I", *launch.grid, *launch.block, launch.shared)
    job += struct.pack("<I", len(launch.arguments))
    for argument in launch.arguments:
        value = argument.value
        if argument.type == "pointer":
            job += struct.pack("<cI", b"p", BUFFERS.index(names.get(str(value), str(value))))
        elif isinstance(value, int):
            job += struct.pack("<ci", b"i", value)
        else:
            job += struct.pack("<cq", b"l", pitch)
    return job
