"""Kernel arguments and template arguments that the families share."""

from __future__ import annotations

from autotune.families.plan import Argument, Constant
from autotune.families.shared.cuda_enums import enumerator
from autotune.problem import Problem


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


def transposes(problem: Problem) -> tuple[tuple[str, Constant], ...]:
    """The template arguments of the layout: whether an operand is stored transposed."""
    return ("TRANS_A", problem.layout[0] == "t"), ("TRANS_B", problem.layout[1] == "t")


def epilogue(problem: Problem) -> tuple[str, Constant]:
    """The template argument of the epilogue."""
    return "EPILOGUE", enumerator("Epilogue", problem.epilogue)


def type_arguments(problem: Problem) -> tuple[tuple[str, Constant], ...]:
    """The template arguments of the types: TYPE of A and B, OUTPUT of C and the bias."""
    types = (("TYPE", problem.precision.operand), ("OUTPUT", problem.output_element))
    return tuple((name, enumerator("ElementType", element.name)) for name, element in types)


def variants(problem: Problem) -> tuple[tuple[str, Constant], ...]:
    """The template arguments of the layout and the epilogue."""
    return *transposes(problem), epilogue(problem)
