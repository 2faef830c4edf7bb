"""The fields of a problem that only some precisions have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune.errors import ProblemError
from autotune.problem.epilogue import GATE_SPAN, Epilogue
from autotune.problem.precision import PRECISIONS

if TYPE_CHECKING:
    from autotune.problem.problem import Problem


def check_output(problem: Problem) -> None:
    """Checks an output other than the default.

    Raises:
        ProblemError: if the precision does not have it.
    """
    names = [element.name for element in problem.precision.outputs]
    if problem.output not in names:
        legal = ", ".join(dict.fromkeys(["same", *names]))
        raise ProblemError(
            f"compute {problem.compute} has no output {problem.output!r}; give one of {legal}"
        )
    if problem.output == "i32" and not (problem.scale == "none" and problem.epilogue.plain):
        raise ProblemError(
            f"output i32 has no scales and no epilogue, here scale {problem.scale} and epilogue "
            f"{problem.epilogue}; leave them out or give another output"
        )
    if problem.has_fp8_output and problem.has_residual:
        raise ProblemError(
            f"output {problem.output} has no residual, here epilogue {problem.epilogue}; leave it "
            "out or give another output"
        )


def check_epilogue(problem: Problem) -> None:
    """Checks an epilogue beyond a bias and an activation.

    Raises:
        ProblemError: if the precision does not have it; for swiglu, if N is no whole number of
            pairs of `GATE_SPAN` columns.
    """
    if problem.element_bytes > 2:
        able = [row.name for row in PRECISIONS.values() if row.operand.bytes <= 2]
        raise ProblemError(_only("epilogue", problem.epilogue, able, problem.compute))
    if problem.gated and problem.n % (2 * GATE_SPAN):
        raise ProblemError(
            f"epilogue {problem.epilogue} takes {GATE_SPAN} columns of gates and {GATE_SPAN} of "
            f"what they are for; N is {problem.n}, give a multiple of {2 * GATE_SPAN}"
        )


def check_eight_bit(problem: Problem) -> None:
    """Checks fields that only some precisions of 8 bits have.

    Raises:
        ProblemError: if the problem's precision is none of them.
    """
    precision = problem.precision
    if problem.scale not in precision.scales:
        able = [row.name for row in PRECISIONS.values() if problem.scale in row.scales]
        raise ProblemError(_only("scale", problem.scale, able, problem.compute))
    if problem.accumulate == "fast" and precision.fast_sum_error is None:
        able = [row.name for row in PRECISIONS.values() if row.fast_sum_error is not None]
        raise ProblemError(_only("accumulate", problem.accumulate, able, problem.compute))
    if problem.e5m2 != "a" and precision.second is None:
        able = [row.name for row in PRECISIONS.values() if row.second is not None]
        raise ProblemError(_only("e5m2", problem.e5m2, able, problem.compute))


def kept_fields(problem: Problem, compute: str) -> dict[str, str]:
    """The fields of a problem that change in another precision: those that it does not have get
    their defaults."""
    row, kept = PRECISIONS[compute], {"compute": compute}
    if problem.output not in ("same", *(element.name for element in row.outputs)):
        kept["output"] = "same"
    if problem.scale not in row.scales:
        kept["scale"] = "none"
    if row.fast_sum_error is None:
        kept["accumulate"] = "exact"
    if row.second is None:
        kept["e5m2"] = "a"
    if row.operand.bytes > 2 and not problem.epilogue.elementwise:
        kept["epilogue"] = Epilogue(problem.has_bias)
    return kept


def _only(field: str, value: str, able: list[str], compute: str) -> str:
    computes = ", ".join(able)
    return f"{field} {value} is for compute {computes}, not {compute}; leave one out"
