"""The verb that writes recorded kernels for other programs: export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autotune.cli.options import Json, ObjectiveName, ProblemOptions, with_problem_options
from autotune.cli.output import show_json


@with_problem_options
def export(
    shapes: Annotated[
        list[str],
        typer.Argument(
            metavar="MxNxK...",
            help="Problems, such as 4096x4096x4096 or 512x512x64:bf16:batch=8:bias_relu.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder of the files.")],
    *,
    name: Annotated[
        str, typer.Option(help="Name of the library, its functions and its files: a C identifier.")
    ] = "gemm",
    format: Annotated[
        str,
        typer.Option(help="Format: c (a library); cubin, ptx or cu (a file a kernel); or json."),
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
    json: Json = False,
) -> None:
    """Write the kernels of problems as a C library, or one by one, with their launch plans.

    A problem that is not tuned gets the kernel that `best` prints, and is marked so.
    """
    from autotune import export
    from autotune.targets import sources

    written = export.write(
        shapes,
        out,
        name,
        devices=device or (sources.DEFAULT,),
        format=format,
        objective=objective,
        **options,
    )
    products = [
        {
            "problem": str(gemm.problem),
            "device": gemm.device.name,
            "how": gemm.answer.how,
            "objective": gemm.answer.objective,
            "config": str(gemm.answer.config),
        }
        for gemm in written.library.gemms
    ]
    if json:
        show_json({"files": [str(path) for path in written.files], "products": products})
        return
    for product in products:
        print("{how:9} {problem} on {device}: {config}".format(**product))
    for path in written.files:
        print(path)
