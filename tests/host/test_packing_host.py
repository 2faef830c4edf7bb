"""The copies of operands that `pack.cu` makes, on the CPU, bit by bit."""

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
from support.host_cases import BUFFERS, name_of
from support.host_cuda import Program, build

from autotune.families.plan import Launch
from autotune.families.shared import packing
from autotune.families.shared.packing import Copy

Kind = tuple[int, bool, bool]
"""Bytes of an element, whether it is transposed, whether it has a second plane."""
Bits = NDArray[Any]
"""Elements as unsigned integers: batch, rows, columns."""

# Below a vector, a whole one, below and above tiles of 32 rows and 32 vectors, tall and flat.
SHAPES = (
    *((1, 1), (1, 3), (2, 7), (5, 16), (33, 65), (32, 128), (97, 31)),
    *((3, 1029), (1100, 2), (1100, 1)),
)
KINDS = (
    *((2, False, False), (4, False, False)),
    *((4, True, False), (4, False, True), (4, True, True)),
)
FILLER = 0xEE


@dataclass(frozen=True)
class Operand:
    """What is copied: its elements, and how many lie from row to row and matrix to matrix."""

    stored: Bits
    ld: int
    stride: int

    @property
    def memory(self) -> bytes:
        """Matrices as they lie in memory, ones in the gaps, ending with the last element."""
        batch, rows, columns = self.stored.shape
        size = (batch - 1) * self.stride + (rows - 1) * self.ld + columns
        memory = np.full(size, -1).astype(self.stored.dtype)
        steps = [memory.itemsize * step for step in (self.stride, self.ld, 1)]
        as_strided(memory, self.stored.shape, steps)[:] = self.stored
        return memory.tobytes()


@dataclass(frozen=True)
class Try:
    """One launch; its operands start `skip` elements (B one more) behind a multiple of 16 bytes."""

    copies: tuple[Copy, ...]
    operands: dict[str, Operand]
    skip: int = 0

    @property
    def size(self) -> int:
        return max(copy.start + copy.bytes for copy in self.copies)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    alone = [_copy("a", (1, 1), kind) for kind in KINDS] + [_copy("b", (1, 1), KINDS[0])]
    pairs = [
        (_copy("a", (1, 1), kind_a), _copy("b", (1, 1), kind_b))
        for kind_a, kind_b in product(KINDS[1:], KINDS[1:])
    ]
    sixteen = (_copy("a", (1, 1), KINDS[0]), _copy("b", (1, 1), KINDS[0]))
    launches = [packing.launch(copies) for copies in ([copy] for copy in alone)]
    launches += [packing.launch(copies) for copies in (*pairs, sixteen)]
    return build(
        {launch.template for launch in launches}, Path(tmp_path_factory.getbasetemp(), "host")
    )


@pytest.mark.parametrize("skip", range(8))
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_copies_rows_from_any_address(program: Program, kind: Kind, skip: int) -> None:
    tries = [
        random_try(_copy("a", shape, kind), padding=padding, skip=skip)
        for shape in SHAPES
        for padding in (0, 1, 3)
    ]
    check(program, tries)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_copies_each_matrix_of_a_batch(program: Program, kind: Kind) -> None:
    copy = replace(_copy("a", (37, 71), kind), batch=3)
    check(program, [random_try(copy), random_try(copy, gap=5, padding=1, skip=1)])


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_rows_of_whole_lines_read_nothing_beyond_the_operand(program: Program, kind: Kind) -> None:
    tries = [
        random_try(replace(_copy("a", shape, kind), batch=2, line=128), padding=padding, skip=skip)
        for shape in SHAPES
        for padding, skip in ((0, 0), (1, 1), (3, 7))
    ]
    check(program, tries)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_copies_a_shared_matrix_for_all_of_a_batch(program: Program, kind: Kind) -> None:
    check(program, [random_try(replace(_copy("a", (37, 71), kind), batch=3), shared=True)])


@pytest.mark.parametrize(
    ("of_a", "of_b"), [(KINDS[0], KINDS[0]), *product(KINDS[1:], KINDS[1:])], ids=str
)
def test_one_launch_copies_both_operands(program: Program, of_a: Kind, of_b: Kind) -> None:
    a = replace(_copy("a", (37, 171), of_a), batch=2, start=32)
    b = replace(_copy("b", (171, 39), of_b), batch=2, start=32 + a.bytes + 16)
    check(program, [random_try(a, b, padding=1, skip=1), random_try(b, a, gap=3)])


def test_b_alone_is_copied(program: Program) -> None:
    check(program, [random_try(_copy("b", (37, 71), KINDS[0]), skip=1)])


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_limited_grid_loops_over_the_rest(
    program: Program, monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    monkeypatch.setattr(packing, "LARGEST_GRID", 3)
    copy = _copy("a", (130, 1100), kind)
    assert packing.launch([copy]).grid == (3, 1, 1)
    check(program, [random_try(copy, skip=1)])


@pytest.mark.parametrize("transposed", [False, True])
def test_the_low_plane_keeps_infinities_out_and_nan_in(program: Program, transposed: bool) -> None:
    bits = [0x7F800000, 0xFF800000, 0x7F800001, 0xFFFFFFFF, 0, 0x80000000, 1, 0x7F7FFFFF]
    operand = Operand(np.array([[bits]], np.uint32), len(bits), 0)
    copy = _copy("a", (1, len(bits)), (4, transposed, True))
    (memory,) = run(program, [Try((copy,), {"a": operand})])
    value = plane(memory, copy, copy.low_start).ravel().view(np.float32)
    assert (value[:2] == 0).all()
    assert np.isnan(value[2:4]).all()
    assert np.isfinite(value[4:]).all()


def _copy(operand: str, shape: tuple[int, int], kind: Kind) -> Copy:
    element_bytes, transposed, low = kind
    return Copy(operand, *shape, 1, element_bytes, transposed=transposed, low=low)


def random_try(
    *copies: Copy, padding: int = 0, gap: int = 0, skip: int = 0, shared: bool = False
) -> Try:
    """Random operands with `padding` elements between rows and `gap` between matrices."""
    random = np.random.default_rng(0)
    operands = {}
    for copy in copies:
        shape = (1 if shared else copy.batch, copy.rows, copy.columns)
        bits = random.standard_normal(shape, np.float32).view(np.uint32)
        stored: Bits = bits if copy.element_bytes == 4 else (bits >> 7).astype(np.uint16)
        ld = copy.columns + padding
        operands[copy.operand] = Operand(stored, ld, 0 if shared else copy.rows * ld + gap)
    return Try(copies, operands, skip)


def check(program: Program, tries: Sequence[Try]) -> None:
    """Runs the launches; copies are the operands bit by bit, and nothing else is written."""
    for each, memory in zip(tries, run(program, tries), strict=True):
        outside = np.full(len(memory), True)
        for copy in each.copies:
            outside[copy.start : copy.start + copy.bytes] = False
            stored = each.operands[copy.operand].stored
            turned = stored.swapaxes(1, 2) if copy.transposed else stored
            copied = plane(memory, copy, copy.start)
            wanted = np.broadcast_to(turned, copied.shape)
            assert np.array_equal(copied, wanted)
            if copy.low:
                assert np.array_equal(plane(memory, copy, copy.low_start), rest(wanted))
        assert (np.frombuffer(memory, np.uint8)[outside] == FILLER).all()


def plane(memory: bytes, copy: Copy, start: int) -> Bits:
    """The plane of a copy that starts at `start`, without its padding."""
    kind = np.uint32 if copy.element_bytes == 4 else np.uint16
    flat: Bits = np.frombuffer(memory, kind, copy.batch * copy.stride, start)
    whole = flat.reshape(copy.batch, copy.stored_rows, copy.pitch)
    return whole[..., : copy.stored_columns]


def rest(bits: Bits) -> Bits:
    """What truncation to tf32 leaves of finite floats, rounded to tf32, halves away from zero."""
    whole = np.ascontiguousarray(bits).view(np.float32)
    kept = (whole.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    fraction, exponent = np.frexp(whole.astype(np.float64) - kept)
    scaled = fraction * 2**11
    rounded = np.copysign(np.floor(np.abs(scaled) + 0.5), scaled) / 2**11
    result: Bits = np.ldexp(rounded, exponent).astype(np.float32).view(np.uint32)
    return result


def run(program: Program, tries: Sequence[Try]) -> list[bytes]:
    """The workspace after each launch, computed by one process."""
    done = subprocess.run(
        [program.path],
        input=b"".join(_job(trial) for trial in tries),
        capture_output=True,
        timeout=120,
        check=False,
    )
    sizes = [trial.size for trial in tries]
    assert len(done.stdout) == sum(sizes), done.stderr.decode(errors="replace")[:4000]
    ends = list(accumulate(sizes))
    return [done.stdout[end - size : end] for size, end in zip(sizes, ends, strict=True)]


def _job(trial: Try) -> bytes:
    """The launch in the form that `launcher.cpp` reads."""
    contents = {name: operand.memory for name, operand in trial.operands.items()}
    # What comes back is the buffer of C: it takes the place of the workspace.
    contents["c"] = bytes([FILLER]) * trial.size
    element = trial.copies[0].element_bytes
    starts = {
        "a": 16 + trial.skip * element % 16,
        "b": 16 + (trial.skip + 1) * element % 16,
        "c": 16,
    }
    job = struct.pack("<I", 1)
    for name in BUFFERS:
        content = contents.get(name, b"")
        job += struct.pack("<II", starts.get(name, 4), len(content)) + content
    return job + _launch(packing.launch(trial.copies), trial.operands)


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
            code, form = {"i32": (b"i", "<ci"), "i64": (b"l", "<cq")}[argument.type]
            job += struct.pack(form, code, steps.get(value, 0) if isinstance(value, str) else value)
    return job
