"""The verb that puts recorded kernels into other programs: export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autotune.cli.output import (
    Accuracy,
    Batch,
    Compute,
    Epilogue,
    Json,
    Layout,
    Output,
    show_json,
)


def export(
    shapes: Annotated[
        list[str],
        typer.Argument(
            metavar="MxNxK...",
            help="Products, such as 4096x4096x4096 or 512x512x64:bf16:batch=8:bias_relu.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the files go.")],
    name: Annotated[
        str, typer.Option(help="Of the library, its functions and its files: a C identifier.")
    ] = "gemm",
    format: Annotated[
        str,
        typer.Option(help="c, a library; or cubin, ptx, cu, a file for each kernel; or json."),
    ] = "c",
    compute: Compute = "f32",
    layout: Layout = "nn",
    batch: Batch = 1,
    epilogue: Epilogue = "none",
    output: Output = "same",
    accuracy: Accuracy = "exact",
    device: Annotated[
        list[str] | None,
        typer.Option(
            "--device",
            metavar="NAME|FILE",
            help="As of `tune`; may be given several times.  [default: gpu]",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Write the kernels of products as a C library, or one by one, with their launch plans.

    What was not tuned is exported as `best` answers for it, and marked so.
    """
    from autotune import export
    from autotune.targets import targets

    written = export.write(
        shapes,
        out,
        name,
        compute=compute,
        layout=layout,
        batch=batch,
        epilogue=epilogue,
        output=output,
        accuracy=accuracy,
        devices=device or (targets.DEFAULT,),
        format=format,
    )
    products = [
        {
            "problem": str(one.problem),
            "device": one.device.name,
            "how": one.answer.how,
            "config": str(one.answer.config),
        }
        for one in written.library.products
    ]
    if json:
        show_json({"files": [str(path) for path in written.files], "products": products})
        return
    for product in products:
        print("{how:9} {problem} on {device}: {config}".format(**product))
    for path in written.files:
        print(path)
