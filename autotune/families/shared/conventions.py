"""What the kernel families share: their first arguments, their layouts, the limits of a launch."""

from __future__ import annotations

from autotune.device import Device
from autotune.families.plan import Argument
from autotune.problem import EPILOGUES, Problem

LARGEST_GRID_X, LARGEST_GRID_YZ = 2**31 - 1, 65535
"""Blocks along x, and along y or z, of a grid (CUDA programming guide)."""

CUDA_CORES = ("f32", "tf32", "tf32x3")
"""Computes that the families with IEEE fp32 products serve: none asks for better ones."""


def operands(problem: Problem) -> tuple[Argument, ...]:
    """The arguments that every kernel which computes C takes first, in order."""
    return (
        Argument("pointer", "a"),
        Argument("i64", "lda"),
        Argument("pointer", "b"),
        Argument("i64", "ldb"),
        Argument("pointer", "c"),
        Argument("i64", "ldc"),
        Argument("i32", problem.m),
        Argument("i32", problem.n),
        Argument("i32", problem.k),
        Argument("f32", "alpha"),
        Argument("f32", "beta"),
        Argument("pointer", "bias"),
        Argument("i64", "stride_a"),
        Argument("i64", "stride_b"),
        Argument("i64", "stride_c"),
    )


def transposes(problem: Problem) -> tuple[tuple[str, int], ...]:
    """The template arguments of the layout: 1 for an operand that is stored transposed."""
    return ("TRANS_A", int(problem.layout[0] == "t")), ("TRANS_B", int(problem.layout[1] == "t"))


def along_k(problem: Problem, operand: str) -> bool:
    """Whether the rows of `a` or `b` run along K as it is stored."""
    return problem.layout[0] == "n" if operand == "a" else problem.layout[1] == "t"


def epilogue(problem: Problem) -> tuple[str, int]:
    """The template argument of the epilogue, as `cuda_src/include/epilogue.cuh` takes it."""
    return "EPILOGUE", EPILOGUES.index(problem.epilogue)


def type_arguments(problem: Problem) -> tuple[tuple[str, int], ...]:
    """The template arguments of the types, as `cuda_src/include/number.cuh` numbers them: TYPE of A
    and B, OUTPUT of C and the bias."""
    types = (("TYPE", problem.precision.operand), ("OUTPUT", problem.output_element))
    return tuple((name, element.number) for name, element in types)


def variants(problem: Problem) -> tuple[tuple[str, int], ...]:
    """The template arguments of all that a problem has compiled in: its layout and epilogue."""
    return *transposes(problem), epilogue(problem)


def square_tiles(problem: Problem, side: int) -> int:
    """How many tiles of side x side elements cover one C of the batch."""
    return -(-problem.m // side) * -(-problem.n // side)


def threads_fault(threads: int, device: Device) -> str | None:
    """What is wrong with a block of `threads` on the device, if anything."""
    if threads <= device.threads_per_block:
        return None
    return f"needs {threads} threads a block, {device.name} allows {device.threads_per_block}"


def grid_fault(blocks: int) -> str | None:
    """What is wrong with a grid of `blocks` along x, if anything."""
    if blocks <= LARGEST_GRID_X:
        return None
    return f"needs {blocks} blocks, a grid allows {LARGEST_GRID_X}"
