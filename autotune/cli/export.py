"""The verbs that write files: export, kernels for other programs; and report, pictures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autotune.cli.options import (
    VerbCommand,
    batch_invariant_option,
    complete_devices,
    complete_formats,
    complete_named,
    device_option,
    family_option,
    json_option,
    names_kernel,
    objective_option,
    path_option,
    refuse,
    shape_argument,
    show_json,
)
from autotune.errors import UsageError

if TYPE_CHECKING:
    from autotune.export import ExportedGemm
    from autotune.export.user_kernels import ExportedKernel, KernelLibrary
    from autotune.measure.objective import Objective


@click.command("export", cls=VerbCommand)
@shape_argument(
    "MxNxK|KERNEL...",
    "Shapes, such as 512x512x64:bf16:batch=8:bias_relu (see `autotune help shapes`); or user "
    "kernels, by name.",
    nargs=-1,
    required=True,
    shell_complete=complete_named,
)
@path_option("--out", "DIR", "Folder of the files.", required=True)
@click.option(
    "--name",
    metavar="WORD",
    help="Name of the library, its functions and its files: a C identifier.  [default: gemm, or "
    "the name of the user kernel]",
)
@click.option(
    "--format",
    metavar="NAME",
    default="c",
    shell_complete=complete_formats,
    help="Format: c (a library); cubin, ptx or cu (a file a kernel); json; or, of user kernels, h "
    "(a header with the best values).  [default: c]",
)
@objective_option
@click.option(
    "--device",
    multiple=True,
    metavar="NAME|FILE",
    shell_complete=complete_devices,
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
    "--cublaslt", is_flag=True, help="Let format c call cuBLASLt for shapes that it was faster on."
)
@json_option
def export(
    shapes: tuple[str, ...],
    out: Path,
    name: str | None,
    format: str,
    objective: Objective,
    device: tuple[str, ...],
    batch_invariant: bool,
    ptx: bool,
    bench: bool,
    cublaslt: bool,
    json: bool,
) -> None:
    """Write the kernels of shapes as a C library, or one by one, with their launch plans.

    A shape that is not tuned gets the kernel that `best` prints, and is marked so. User kernels
    are exported as `tune` recorded them, for all devices, or for the devices of --device.
    """
    from autotune import export
    from autotune.measure.devices import DEFAULT

    chosen: dict[str, Any] = {"format": format, "objective": objective, "ptx": ptx}
    if kernels := [word for word in shapes if names_kernel(word)]:
        refuse("a user kernel", bench=bench, cublaslt=cublaslt, batch_invariant=batch_invariant)
        if len(kernels) < len(shapes):
            raise UsageError("shapes and user kernels go into exports of their own; give either")
        calls = export.write_kernels(kernels, out, name, devices=device, **chosen)
        _show(calls.files, "calls", map(partial(_call, calls.library), calls.library.kernels), json)
        return
    chosen |= {"batch_invariant": batch_invariant, "bench": bench, "cublaslt": cublaslt}
    devices = device or (DEFAULT,)
    written = export.write(shapes, out, name or "gemm", devices=devices, **chosen)
    _show(written.files, "products", map(_product, written.library.gemms), json)


def _show(files: Sequence[Path], name: str, rows: Iterable[dict[str, str]], json: bool) -> None:
    if json:
        show_json({"files": [str(path) for path in files], name: [*rows]})
        return
    for row in rows:
        head = f"{row['how']:9} {row['problem']}" if "how" in row else row["call"]
        print(f"{head} on {row['device']}: {row['config']}")
    for path in files:
        print(path)


def _product(gemm: ExportedGemm) -> dict[str, str]:
    return {
        "problem": str(gemm.problem),
        "device": gemm.device.name,
        "how": gemm.answer.how,
        "objective": str(gemm.answer.objective),
        "config": str(gemm.answer.config),
    }


def _call(library: KernelLibrary, kernel: ExportedKernel) -> dict[str, str]:
    return {
        "call": str(kernel.call),
        "device": kernel.device.name,
        "function": library.functions[kernel.call],
        "config": str(kernel.entry.config),
    }


@click.command("report", cls=VerbCommand)
@shape_argument(
    "[MxNxK|KERNEL]...",
    "Shapes, ranges or user kernels; none reports the whole cache.",
    nargs=-1,
    shell_complete=complete_named,
)
@device_option
@family_option("Report searches of this kernel family alone.")
@path_option("--out", "FILE", "The page.  [default: report.html]")
@click.option("--open", "open_page", is_flag=True, help="Open the page in a browser.")
@json_option
def report(
    shapes: tuple[str, ...],
    device: str | None,
    family: str | None,
    out: Path | None,
    open_page: bool,
    json: bool,
) -> None:
    """Write an offline page of pictures: why a kernel won, or how several shapes fare.

    One shape or user kernel shows its search, roofline, parameters, occupancy, leaders and
    trials; several show an overview. --json prints the data instead, without plotly, and writes a
    page only with --out. Exit status 3 if nothing is recorded.
    """
    from autotune import settings
    from autotune.records import Store
    from autotune.report.pages import page
    from autotune.report.pages.overview import Overview, overview_of
    from autotune.report.pages.record import Analysis, analysis_of
    from autotune.report.selection import selected

    if open_page and json and out is None:
        raise UsageError("--json writes no page to open; give --out")
    store = Store(settings.cache_dir())
    selection = selected(shapes, device, store, family)
    data: Analysis | Overview = (
        analysis_of(selection, store) if selection.single else overview_of(selection)
    )
    if out is not None or not json:
        path = out or Path("report.html")
        page.write(path, data.page())
        if not json:
            print(f"{path}: {data.summary}")
        if open_page:
            page.open_page(path)
    if json:
        show_json(asdict(data))
