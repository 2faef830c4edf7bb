"""What the verbs share: options, and how results are printed."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import RenderableType

Shape = Annotated[
    str,
    typer.Argument(
        metavar="MxNxK",
        help="Sizes of the product, such as 4096x4096x4096 or 512x512x64:batch=8:bias_relu.",
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
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Compute = Annotated[str, typer.Option(help="The precision: f32.")]
Layout = Annotated[str, typer.Option(help="How A and B are stored: nn, nt, tn or tt.")]
Batch = Annotated[int, typer.Option(metavar="N", help="Products at once.")]
Epilogue = Annotated[
    str,
    typer.Option(help="At the end: none, bias, relu, bias_relu, gelu or bias_gelu."),
]

# Wide enough for every table, where no terminal says how wide it is.
PIPE_WIDTH = 160


def show(renderable: RenderableType, width: int = PIPE_WIDTH) -> None:
    """Prints a table; `width` is taken where the output is no terminal."""
    from rich.console import Console

    # A closed standard output is None.
    terminal = sys.stdout is not None and sys.stdout.isatty()
    Console(width=None if terminal else width).print(renderable)


def show_json(data: object) -> None:
    """Prints data as indented JSON."""
    print(json.dumps(data, indent=2, allow_nan=False))
