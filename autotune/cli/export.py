"""The verb that writes recorded kernels for other programs: export."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autotune.cli import completion
from autotune.cli.answers import names_kernel
from autotune.cli.options import (
    ProblemOptions,
    VerbCommand,
    batch_invariant_option,
    json_option,
    objective_option,
    problem_options,
    shape_argument,
)
from autotune.cli.output import show_json
from autotune.errors import UsageError

if TYPE_CHECKING:
    from autotune.export import WrittenExport
    from autotune.measure.objective import Objective


@click.command("export", cls=VerbCommand)
@shape_argument(
    "MxNxK|KERNEL...",
    "Shapes, such as 512x512x64:bf16:batch=8:bias_relu (see `autotune help shapes`); or user "
    "kernels, by name.",
    nargs=-1,
    required=True,
    shell_complete=completion.named,
)
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder of the files.",
)
@click.option(
    "--name",
    metavar="WORD",
    help="Name of the library, its functions and its files: a C identifier.  [default: gemm, or "
    "that of the user kernel]",
)
@click.option(
    "--format",
    metavar="NAME",
    default="c",
    shell_complete=completion.formats,
    help="Format: c (a library); cubin, ptx or cu (a file a kernel); json; or, of user kernels, h "
    "(a header with the best values).  [default: c]",
)
@problem_options
@objective_option
@click.option(
    "--device",
    multiple=True,
    metavar="NAME|FILE",
    shell_complete=completion.devices,
    help="Device, as for tune; repeatable.  [default: gpu]",
)
@batch_invariant_option
@click.option(
    "--ptx", is_flag=True, help="Add PTX, which later GPUs compile: to format c or cubin."
)
@click.option(
    "--bench", is_flag=True, help="Add bench.c to format c: times every shape beside cuBLAS."
)
@click.option(
    "--cublaslt",
    is_flag=True,
    help="Let format c call cuBLASLt for shapes that it was faster on.",
)
@json_option
def export(
    shapes: tuple[str, ...],
    out: Path,
    name: str | None,
    format: str,
    options: ProblemOptions,
    objective: str,
    device: tuple[str, ...],
    batch_invariant: bool,
    ptx: bool,
    bench: bool,
    cublaslt: bool,
    json: bool,
) -> None:
    """Write the kernels of shapes as a C library, or one by one, with their launch plans.

    A shape that is not tuned gets the kernel that `best` prints, and is marked so. User kernels
    are exported as `tune` recorded them, for all devices or those of --device.
    """
    from autotune import export
    from autotune.measure import devices
    from autotune.measure.objective import objective_named

    decides = objective_named(objective)
    if kernels := [word for word in shapes if names_kernel(word)]:
        if bench or cublaslt:
            raise UsageError(
                "--bench and --cublaslt are for problems: no library runs user kernels"
            )
        _export_kernels(shapes, kernels, out, name, device, format, decides, ptx, json)
        return
    written = export.write(
        shapes,
        out,
        name or "gemm",
        devices=device or (devices.DEFAULT,),
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
