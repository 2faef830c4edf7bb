"""The operand copies of `pack.cu`, run on the CPU and compared bit by bit."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray
from support.host_cases import BUFFERS, buffers, name_of
from support.host_cuda import Program, build

from autotune.families.plan import Launch
from autotune.families.shared import packing
from autotune.families.shared.packing import Copy

Kind = tuple[int, bool, bool]
"""Bytes of an element, whether the copy is transposed, whether it has a low plane."""
Bits = NDArray[Any]
"""Elements as unsigned integers: batch, rows, columns."""

# Less than a vector, one vector, below and above tiles of 32 rows and 32 vectors, tall and wide.
SHAPES = (
    *((1, 1), (1, 3), (2, 7), (5, 16), (33, 65), (32, 128), (97, 31)),
    *((3, 1029), (1100, 2), (1100, 1), (129, 257)),
)
KINDS = (
    *((1, False, False), (2, False, False), (4, False, False)),
    *((1, True, False), (4, True, False), (4, False, True), (4, True, True)),
)
PAIRS = tuple(pair for pair in product(KINDS, KINDS) if pair[0][0] == pair[1][0])
FILLER = 0xEE


@dataclass(frozen=True)
class Operand:
    """The source of a copy: its elements, and the steps between rows and between matrices."""

    stored: Bits
    ld: int
    stride: int

    @property
    def memory(self) -> bytes:
        """The matrices in memory, up to the last element; all bits of the gaps are 1."""
        batch, rows, columns = self.stored.shape
        size = (batch - 1) * self.stride + (rows - 1) * self.ld + columns
        memory = np.full(size, -1).astype(self.stored.dtype)
        steps = [memory.itemsize * step for step in (self.stride, self.ld, 1)]
        as_strided(memory, self.stored.shape, steps)[:] = self.stored
        return memory.tobytes()


@dataclass(frozen=True)
class LaunchCase:
    """A launch; operands start `skip` elements (B one more) past a multiple of 16 bytes."""

    copies: tuple[Copy, ...]
    operands: dict[str, Operand]
    skip: int = 0

    @property
    def size(self) -> int:
        return max(copy.start + copy.bytes for copy in self.copies)


@pytest.fixture(scope="module")
def program(host_objects: Path) -> Program:
    alone = [_copy("a", (1, 1), kind) for kind in KINDS] + [_copy("b", (1, 1), KINDS[0])]
    pairs = [(_copy("a", (1, 1), of_a), _copy("b", (1, 1), of_b)) for of_a, of_b in PAIRS]
    launches = [packing.launch([copy]) for copy in alone]
    launches += [packing.launch(copies) for copies in pairs]
    return build({launch.template for launch in launches}, host_objects)


# Every place of the first element within a vector of 16 bytes.
@pytest.mark.parametrize(
    ("kind", "skip"), [(kind, skip) for kind in KINDS for skip in range(16 // kind[0])], ids=str
)
def test_rows_are_copied_from_any_address(program: Program, kind: Kind, skip: int) -> None:
    cases = [
        random_case(_copy("a", shape, kind), padding=padding, skip=skip)
        for shape in SHAPES
        for padding in (0, 1, 3)
    ]
    check(program, cases)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_each_matrix_of_a_batch_is_copied(program: Program, kind: Kind) -> None:
    copy = replace(_copy("a", (37, 71), kind), batch=3)
    check(program, [random_case(copy), random_case(copy, gap=5, padding=1, skip=1)])


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_copies_of_whole_lines_stay_within_the_operand(program: Program, kind: Kind) -> None:
    cases = [
        random_case(replace(_copy("a", shape, kind), batch=2, line=128), padding=padding, skip=skip)
        for shape in SHAPES
        for padding, skip in ((0, 0), (1, 1), (3, 7))
    ]
    check(program, cases)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_shared_matrix_is_copied_for_each_of_a_batch(program: Program, kind: Kind) -> None:
    check(program, [random_case(replace(_copy("a", (37, 71), kind), batch=3), shared=True)])


@pytest.mark.parametrize(("of_a", "of_b"), PAIRS, ids=str)
def test_one_launch_copies_both_operands(program: Program, of_a: Kind, of_b: Kind) -> None:
    a = replace(_copy("a", (37, 171), of_a), batch=2, start=32)
    b = replace(_copy("b", (171, 39), of_b), batch=2, start=32 + a.bytes + 16)
    check(program, [random_case(a, b, padding=1, skip=1), random_case(b, a, gap=3)])


def test_b_is_copied_without_a(program: Program) -> None:
    check(program, [random_case(_copy("b", (37, 71), KINDS[0]), skip=1)])


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_limited_grid_loops_over_the_rest(
    program: Program, monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    monkeypatch.setattr(packing, "LARGEST_GRID", 3)
    copy = _copy("a", (130, 1100), kind)
    assert packing.launch([copy]).grid == (3, 1, 1)
    check(program, [random_case(copy, skip=1)])


@pytest.mark.parametrize("transposed", [False, True])
def test_low_plane_drops_infinities_and_keeps_nan(program: Program, transposed: bool) -> None:
    bits = [0x7F800000, 0xFF800000, 0x7F800001, 0xFFFFFFFF, 0, 0x80000000, 1, 0x7F7FFFFF]
    operand = Operand(np.array([[bits]], np.uint32), len(bits), 0)
    copy = _copy("a", (1, len(bits)), (4, transposed, True))
    (memory,) = run(program, [LaunchCase((copy,), {"a": operand})])
    value = plane(memory, copy, copy.low_start).ravel().view(np.float32)
    assert (value[:2] == 0).all()
    assert np.isnan(value[2:4]).all()
    assert np.isfinite(value[4:]).all()


def _copy(operand: str, shape: tuple[int, int], kind: Kind) -> Copy:
    element_bytes, transposed, low = kind
    return Copy(operand, *shape, 1, element_bytes, transposed=transposed, low=low)


def random_case(
    *copies: Copy, padding: int = 0, gap: int = 0, skip: int = 0, shared: bool = False
) -> LaunchCase:
    """Random operands with `padding` elements between rows and `gap` between matrices."""
    random = np.random.default_rng(0)
    operands = {}
    for copy in copies:
        shape = (1 if shared else copy.batch, copy.rows, copy.columns)
        bits = random.standard_normal(shape, np.float32).view(np.uint32)
        stored = bits if copy.element_bytes == 4 else (bits >> 7).astype(_bits(copy))
        ld = copy.columns + padding
        operands[copy.operand] = Operand(stored, ld, 0 if shared else copy.rows * ld + gap)
    return LaunchCase(copies, operands, skip)


def check(program: Program, cases: Sequence[LaunchCase]) -> None:
    """Runs the launches; copies must equal the operands bit by bit, and nothing else may change."""
    for case, memory in zip(cases, run(program, cases), strict=True):
        outside = np.full(len(memory), True)
        for copy in case.copies:
            outside[copy.start : copy.start + copy.bytes] = False
            stored = case.operands[copy.operand].stored
            operand = stored.swapaxes(1, 2) if copy.transposed else stored
            copied = plane(memory, copy, copy.start)
            expected = np.broadcast_to(operand, copied.shape)
            assert np.array_equal(copied, expected)
            if copy.low:
                assert np.array_equal(plane(memory, copy, copy.low_start), rest(expected))
        assert (np.frombuffer(memory, np.uint8)[outside] == FILLER).all()


def plane(memory: bytes, copy: Copy, start: int) -> Bits:
    """The plane of a copy that starts at `start`, without its padding."""
    elements: Bits = np.frombuffer(memory, _bits(copy), copy.batch * copy.stride, start)
    rows = elements.reshape(copy.batch, copy.stored_rows, copy.pitch)
    return rows[..., : copy.stored_columns]


def _bits(copy: Copy) -> np.dtype[Any]:
    return np.dtype(f"u{copy.element_bytes}")


def rest(bits: Bits) -> Bits:
    """The remainders of truncating finite floats to tf32, rounded to tf32, ties away from zero."""
    values = np.ascontiguousarray(bits).view(np.float32)
    truncated = (values.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    fraction, exponent = np.frexp(values.astype(np.float64) - truncated)
    scaled = fraction * 2**11
    rounded = np.copysign(np.floor(np.abs(scaled) + 0.5), scaled) / 2**11
    result: Bits = np.ldexp(rounded, exponent).astype(np.float32).view(np.uint32)
    return result


def run(program: Program, cases: Sequence[LaunchCase]) -> list[bytes]:
    """The workspace after each launch, computed by one process."""
    process = subprocess.run(
        [program.path],
        input=b"".join(_job(case) for case in cases),
        capture_output=True,
        timeout=120,
        check=False,
    )
    sizes = [case.size for case in cases]
    assert len(process.stdout) == sum(sizes), process.stderr.decode(errors="replace")[:4000]
    ends = list(accumulate(sizes))
    return [process.stdout[end - size : end] for size, end in zip(sizes, ends, strict=True)]


def _job(case: LaunchCase) -> bytes:
    """The launch in the format of `launcher.cpp`."""
    contents = {name: operand.memory for name, operand in case.operands.items()}
    # The launcher returns the buffer of C, so C stands in for the workspace.
    contents["c"] = bytes([FILLER]) * case.size
    element = case.copies[0].element_bytes
    starts = {
        "a": 16 + case.skip * element % 16,
        "b": 16 + (case.skip + 1) * element % 16,
        "c": 16,
    }
    job = struct.pack("<I", 1) + buffers(contents, starts)
    return job + _launch(packing.launch(case.copies), case.operands)


def _launch(launch: Launch, operands: dict[str, Operand]) -> bytes:
    steps = {f"ld{name}": operand.ld for name, operand in operands.items()}
    steps |= {f"stride_{name}": operand.stride for name, operand in operands.items()}
    name = name_of(launch.template).encode()
    job = struct.pack("<I", len(name)) + name
    job += struct.pack("<7I", *launch.grid, *launch.block, launch.shared)
    job += struct.pack("<I", len(launch.arguments))
    for argument in launch.arguments:
        value = argument.value
        if argument.type == "pointer":
            buffer = "c" if value == "workspace" else str(value)
            job += struct.pack("<cI", b"p", BUFFERS.index(buffer))
        else:
            code, form = {"i32": (b"i", "<ci"), "i64": (b"l", "<cq")}[str(argument.type)]
            job += struct.pack(form, code, steps.get(value, 0) if isinstance(value, str) else value)
    return job
