"""How public functions take a problem.

These are the same problem:

    problem_of(4096, 4096, 4096, compute="bf16")
    problem_of((4096, 4096, 4096), compute="bf16")
    problem_of("4096x4096x4096:bf16")
    problem_of(Problem(4096, 4096, 4096, "bf16"))
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from autotune.errors import ProblemError, require_list
from autotune.problem.fields import AccuracyText, ProblemFields, compute_of
from autotune.problem.problem import Problem

if TYPE_CHECKING:
    from typing_extensions import Unpack

ProblemLike = str | Problem | Sequence[int]
"""A problem as text, as a `Problem` or as (m, n, k)."""


class ProblemDefaults(ProblemFields, total=False):
    """The fields of a problem as keywords, and the accuracy that may change its compute.

    Attributes:
        accuracy: `near` computes `f32` as `tf32x3`; by default `exact`.
    """

    accuracy: AccuracyText


class ProblemArguments(ProblemDefaults, total=False):
    """The keywords of functions that take one problem.

    Attributes:
        m: rows of A and C, if the sizes are not positional.
        n: columns of B and C.
        k: columns of A, rows of B.
    """

    m: int
    n: int
    k: int


def problem_of(
    *problem: ProblemLike | int,
    m: int | None = None,
    n: int | None = None,
    k: int | None = None,
    accuracy: AccuracyText = "exact",
    **fields: Unpack[ProblemFields],
) -> Problem:
    """The problem that the arguments of a public function describe.

    Args:
        problem: the problem as text, as a `Problem` or as (m, n, k), or its three sizes.
        m: rows of A and C, if the sizes are not positional.
        n: columns of B and C.
        k: columns of A, rows of B.
        accuracy: `near` computes `f32` as `tf32x3`; else `exact`.
        fields: the fields that the problem does not state itself.

    Raises:
        ProblemError: for an impossible problem, or a field that differs from what the problem
            states.
        TypeError: for an unknown keyword.
    """
    stated = _stated(problem, (m, n, k), fields)
    for name, value in fields.items():
        changed: dict[str, object] = {name: value}
        if replace(stated, **changed) != stated:  # type: ignore[arg-type]
            raise ProblemError(
                f"{problem[0]} has {name} {getattr(stated, name)}, the argument {name} is {value}; "
                "leave one out"
            )
    return replace(stated, compute=compute_of(stated.compute, accuracy))


def problems_of(
    shapes: Iterable[ProblemLike],
    *,
    accuracy: AccuracyText = "exact",
    **fields: Unpack[ProblemFields],
) -> list[Problem]:
    """The problems of a list. The keywords are for texts and sizes that do not state a field.

    Raises:
        ProblemError: for an impossible problem.
        TypeError: for an unknown keyword.
    """
    require_list("shapes", str(shapes) if isinstance(shapes, Problem) else shapes)
    fields["compute"] = compute_of(fields.get("compute", "f32"), accuracy)
    return [_one(shape, fields) for shape in shapes]


def _stated(
    problem: tuple[ProblemLike | int, ...],
    keywords: tuple[int | None, int | None, int | None],
    fields: ProblemFields,
) -> Problem:
    """The problem as it states itself; the fields complete it."""
    named = [size is not None for size in keywords]
    if len(problem) == 1 and not any(named):
        (shape,) = problem
        if isinstance(shape, str | Problem) or hasattr(shape, "__len__"):
            return _one(cast("ProblemLike", shape), fields)
    sizes: list[Any] = [*problem, *keywords[len(problem) :]]
    if len(sizes) != 3 or None in sizes or any(named[: len(problem)]):
        raise ProblemError(
            "give one problem: a text such as 4096x4096x4096:bf16, a Problem, (m, n, k) or m, n, k"
        )
    return _one(sizes, fields)


def _one(shape: ProblemLike, fields: ProblemFields) -> Problem:
    if isinstance(shape, Problem):
        return shape
    if isinstance(shape, str):
        return Problem.parse(shape, **fields)
    if not hasattr(shape, "__len__"):
        raise ProblemError(f"a shape is {shape!r}; give one such as 4096x4096x4096, or (m, n, k)")
    if len(shape) != 3:
        raise ProblemError(f"shape {tuple(shape)} has {len(shape)} sizes; give (m, n, k)")
    m, n, k = shape
    return Problem(m, n, k, **fields)
