"""Kernel arguments and template arguments that families share, and how operands lie in memory."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from autotune.families.plan import Argument, Constant, Struct
from autotune.families.shared.cuda_enums import enumerator
from autotune.problem import Problem
from autotune.problem.call import WORDS
from autotune.problem.integers import ceil_div


def words(*names: str) -> tuple[Argument, ...]:
    """The arguments that are words of a call, such as `words("a", "lda")`."""
    return tuple(Argument(WORDS[name], name) for name in names)


def call_struct(**replaced: Argument) -> Argument:
    """The struct `Call` of `cuda_src/include/common/call.cuh`, first among the arguments of a tuned
    kernel: the operands, the scratch memory, the pitches and strides, and whether B is ready.

    Args:
        replaced: members by name that are not the words of the same name, such as the pointer and
            the pitch of a packed operand.
    """
    members = {
        name: Argument(type, name)
        for wanted in ("pointer", "i64", "i32")
        for name, type in WORDS.items()
        if type == wanted
    }
    return Argument("struct", Struct("Call", (*{**members, **replaced}.items(),)))


def read_as(name: str, operand: str) -> dict[str, Argument]:
    """The members of `Call` by which a kernel reads the caller's `operand` as its own `name`."""
    members = (name, f"ld{name}", f"stride_{name}")
    return dict(zip(members, words(operand, f"ld{operand}", f"stride_{operand}"), strict=True))


def struct(name: str, **members: Argument) -> Argument:
    """A struct that a kernel takes by value, such as the family's schedule; its members in the
    order of its declaration in `cuda_src/`."""
    return Argument("struct", Struct(name, (*members.items(),)))


def divisor(value: int) -> Argument:
    """The struct `Divisor` of `cuda_src/include/common/divisor.cuh`, which divides by `value`."""
    return struct("Divisor", value=Argument("i32", value), magic=Argument("i64", magic(value)))


def magic(value: int) -> int:
    """The number with which `Divisor` divides by `value`.

    Source: Granlund and Montgomery, "Division by Invariant Integers using Multiplication", 1994.
    """
    shift = (value - 1).bit_length()
    return ceil_div(2 ** (31 + shift), value) + (shift << 32)


def sizes_and_factors(problem: Problem) -> tuple[Argument, ...]:
    """m, n, k, alpha and beta, last among the arguments of a tuned kernel and of a rung."""
    sizes = (Argument("i32", size) for size in (problem.m, problem.n, problem.k))
    return (*sizes, *words("alpha", "beta"))


def operands(problem: Problem) -> tuple[Argument, ...]:
    """The plain arguments of the textbook kernels, in order."""
    return (
        *words("a", "lda", "b", "ldb", "c", "ldc"),
        *sizes_and_factors(problem),
        *words("bias", "stride_a", "stride_b", "stride_c"),
    )


def constants(p: object, *names: str) -> tuple[tuple[str, Constant], ...]:
    """The template arguments that are parameters of a configuration, such as BM for `bm`."""
    return tuple((name.upper(), getattr(p, name)) for name in names)


def transposes(problem: Problem) -> tuple[tuple[str, Constant], ...]:
    """The template arguments of the layout: whether an operand is stored transposed."""
    return ("TRANS_A", problem.layout[0] == "t"), ("TRANS_B", problem.layout[1] == "t")


def epilogue(problem: Problem) -> tuple[str, Constant]:
    """The template argument of the epilogue."""
    return "EPILOGUE", enumerator("Epilogue", problem.epilogue)


def each_type(problem: Problem) -> tuple[tuple[str, Constant], ...]:
    """The template arguments of the types: TYPE_A, TYPE_B, and OUTPUT of C and the bias."""
    elements = *problem.operand_elements, problem.output_element
    return tuple(
        (name, enumerator("ElementType", element.enumerator))
        for name, element in zip(("TYPE_A", "TYPE_B", "OUTPUT"), elements, strict=True)
    )


def scale(problem: Problem) -> tuple[str, Constant]:
    """The template argument of the scales."""
    return "SCALE", enumerator("Scale", problem.scale)


def variants(problem: Problem) -> tuple[tuple[str, Constant], ...]:
    """The template arguments of the layout and the epilogue."""
    return *transposes(problem), epilogue(problem)


_TURNED = {"n": "t", "t": "n"}
_EXCHANGED = {"a": "b", "b": "a", "ab": "ab"}


def along_k(problem: Problem, operand: str) -> bool:
    """Whether the rows of `a` or `b` run along K as it is stored."""
    return problem.layout[0] == "n" if operand == "a" else problem.layout[1] == "t"


@lru_cache(maxsize=64)
def transposed(problem: Problem) -> Problem:
    """The problem of C^T = op(B)^T op(A)^T: M and N trade places, and so do A and B.

    It has no SwiGLU: the pairs of columns become rows.
    """
    layout = _TURNED[problem.layout[1]] + _TURNED[problem.layout[0]]
    mixed = problem.precision.second is not None
    e5m2 = _EXCHANGED[problem.e5m2] if mixed else problem.e5m2
    epilogue = "none" if problem.gated else problem.epilogue
    return replace(problem, m=problem.n, n=problem.m, layout=layout, e5m2=e5m2, epilogue=epilogue)
