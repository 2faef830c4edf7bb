"""The verb that writes recorded kernels for other programs: export."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli.options import (
    BatchInvariant,
    Json,
    ObjectiveName,
    ProblemOptions,
    with_problem_options,
)
from autotune.cli.output import show_json

if TYPE_CHECKING:
    from autotune.export import WrittenExport
    from autotune.runners.objective import Objective

_KERNEL = re.compile(r"\s*[A-Za-z_]")
"""The start of a kernel's name; shapes start with a number."""


@with_problem_options
def export(
    shapes: Annotated[
        list[str],
        typer.Argument(
            metavar="MxNxK|KERNEL...",
            help="Problems, such as 4096x4096x4096 or 512x512x64:bf16:batch=8:bias_relu; or user "
            "kernels, by name.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder of the files.")],
    *,
    name: Annotated[
        str | None,
        typer.Option(
            help="Name of the library, its functions and its files: a C identifier.  "
            "[default: gemm, or that of the user kernel]"
        ),
    ] = None,
    format: Annotated[
        str,
        typer.Option(
            help="Format: c (a library); cubin, ptx or cu (a file a kernel); json; or, of user "
            "kernels, h (a header with the best values)."
        ),
    ] = "c",
    options: ProblemOptions,
    objective: ObjectiveName = "hot",
    device: Annotated[
        list[str] | None,
        typer.Option(
            "--device",
            metavar="NAME|FILE",
            help="Device, as for tune; repeatable.  [default: gpu]",
        ),
    ] = None,
    batch_invariant: BatchInvariant = False,
    ptx: Annotated[
        bool,
        typer.Option("--ptx", help="Add PTX, which later GPUs compile: to format c or cubin."),
    ] = False,
    bench: Annotated[
        bool,
        typer.Option("--bench", help="Add bench.c to format c: times every shape beside cuBLAS."),
    ] = False,
    cublaslt: Annotated[
        bool,
        typer.Option(
            "--cublaslt", help="Let format c call cuBLASLt for shapes that it was faster on."
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Write the kernels of problems as a C library, or one by one, with their launch plans.

    A problem that is not tuned gets the kernel that `best` prints, and is marked so. User kernels
    are exported as `tune_kernel` recorded them, for all devices or those of --device.
    """
    from autotune import export
    from autotune.errors import UsageError
    from autotune.runners.objective import objective_named
    from autotune.targets import sources

    decides = objective_named(objective)

    if kernels := [word for word in shapes if _KERNEL.match(word)]:
        if bench or cublaslt:
            raise UsageError(
                "--bench and --cublaslt are for problems: no library runs user kernels"
            )
        _export_kernels(shapes, kernels, out, name, device or (), format, decides, ptx, json)
        return
    written = export.write(
        shapes,
        out,
        name or "gemm",
        devices=device or (sources.DEFAULT,),
        format=format,
        objective=decides,
        batch_invariant=batch_invariant,
        ptx=ptx,
        bench=bench,
        cublaslt=cublaslt,
        **options,
    )
    products = _products(written)
    if json:
        show_json({"files": [str(path) for path in written.files], "products": products})
        return
    for product in products:
        print("{how:9} {problem} on {device}: {config}".format(**product))
    for path in written.files:
        print(path)


def _products(written: WrittenExport) -> list[dict[str, str]]:
    """A row for each exported problem and device."""
    return [
        {
            "problem": str(gemm.problem),
            "device": gemm.device.name,
            "how": gemm.answer.how,
            "objective": str(gemm.answer.objective),
            "config": str(gemm.answer.config),
        }
        for gemm in written.library.gemms
    ]


def _export_kernels(
    words: Sequence[str],
    kernels: Sequence[str],
    out: Path,
    name: str | None,
    devices: Sequence[str],
    format: str,
    objective: Objective,
    ptx: bool,
    json: bool,
) -> None:
    from autotune.errors import UsageError
    from autotune.export import write_kernels

    if len(kernels) < len(words):
        raise UsageError("problems and user kernels go into exports of their own; give either")
    written = write_kernels(
        kernels, out, name, devices=devices, format=format, objective=objective, ptx=ptx
    )
    calls = [
        {
            "call": str(kernel.call),
            "device": kernel.device.name,
            "function": written.library.functions[kernel.call],
            "config": str(kernel.entry.config),
        }
        for kernel in written.library.kernels
    ]
    if json:
        show_json({"files": [str(path) for path in written.files], "calls": calls})
        return
    for call in calls:
        print("{call} on {device}: {config}".format(**call))
    for path in written.files:
        print(path)
