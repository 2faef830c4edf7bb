"""What the verbs share: options, and how results are printed."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import RenderableType

    from autotune.api.ranges import Span
    from autotune.problem import Problem

Shape = Annotated[
    str,
    typer.Argument(
        metavar="MxNxK",
        help="Sizes of the product, such as 4096x4096x4096 or 512x512x64:bf16:batch=8:bias_relu.",
    ),
]
DeviceSpec = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="NAME|FILE",
        help="gpu (the default; gpu:1 is the second), replay:h100 (a recording), or a name of "
        "the catalogue or a JSON file (predicted).",
    ),
]
DeviceNumbers = Annotated[
    str | None,
    typer.Option(
        "--devices",
        metavar="N,...|all",
        help="In the place of --device: several GPUs of one model, which share the work.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Compute = Annotated[
    str,
    typer.Option(
        help="The precision: f32, tf32, tf32x3 (fp32 operands), f16 or bf16 (16-bit operands)."
    ),
]
Accuracy = Annotated[
    str,
    typer.Option(help="exact, or near: fp32 operands and nearly its accuracy, as tf32x3."),
]
Output = Annotated[
    str, typer.Option(help="same, or f32: C and the bias in fp32 though A and B have 16 bits.")
]
Layout = Annotated[str, typer.Option(help="How A and B are stored: nn, nt, tn or tt.")]
Batch = Annotated[int, typer.Option(metavar="N", help="Products at once.")]
Epilogue = Annotated[
    str,
    typer.Option(help="At the end: none, bias, relu, bias_relu, gelu or bias_gelu."),
]

SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
"""Of the units of times on the command line."""

# Wide enough for every table, where no terminal says how wide it is.
PIPE_WIDTH = 160


def problem_of(
    shape: str, compute: str, layout: str, batch: int, epilogue: str, accuracy: str, output: str
) -> Problem:
    """The problem that the arguments pose; what the shape's own text names comes first.

    Raises:
        ProblemError: if they pose none.
    """
    from autotune.problem import Problem, compute_of

    problem = Problem.parse(
        shape, compute=compute, layout=layout, batch=batch, epilogue=epilogue, output=output
    )
    return replace(problem, compute=compute_of(problem.compute, accuracy))


def span_of(
    shape: str, compute: str, layout: str, batch: int, epilogue: str, accuracy: str, output: str
) -> Span:
    """As `problem_of`, of a shape with a range.

    Raises:
        ProblemError: if the arguments pose none.
    """
    from autotune.api.ranges import Span
    from autotune.problem import compute_of

    span = Span.parse(
        shape, compute=compute, layout=layout, batch=batch, epilogue=epilogue, output=output
    )
    chosen = compute_of(span.problem.compute, accuracy)
    return replace(span, problem=replace(span.problem, compute=chosen))


def show(renderable: RenderableType, width: int = PIPE_WIDTH) -> None:
    """Prints a table; `width` is taken where the output is no terminal."""
    from rich.console import Console

    # A closed standard output is None.
    terminal = sys.stdout is not None and sys.stdout.isatty()
    Console(width=None if terminal else width).print(renderable)


def show_json(data: object) -> None:
    """Prints data as indented JSON."""
    print(json.dumps(data, indent=2, allow_nan=False))
