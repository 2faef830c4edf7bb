"""The verb about user kernels: tune-kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autotune.cli.options import DeviceSpec, EffortName, Json, search_fields
from autotune.cli.output import Interrupted, show, show_json


def tune_kernel(
    spec: Annotated[
        Path,
        typer.Argument(
            metavar="SPEC.py", help="Python file whose KERNEL has the keywords of tune_kernel."
        ),
    ],
    *,
    device: DeviceSpec = None,
    effort: EffortName = None,
    trials: Annotated[
        int | None,
        typer.Option(help="Stop at this number of trials, earlier and concurrent runs included."),
    ] = None,
    budget: Annotated[str | None, typer.Option(help="Time limit: 60s, 2m or 90 (seconds).")] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed.")] = None,
    sampler: Annotated[
        str | None, typer.Option(help="Sampler: gp, tpe, random or exhaustive.")
    ] = None,
    jobs: Annotated[int | None, typer.Option(help="Compiler threads.")] = None,
    objective: Annotated[
        str | None,
        typer.Option(help="What to minimise: the hot or cold (L2 flushed) time, or energy."),
    ] = None,
    storage: Annotated[str | None, typer.Option(help="Optuna storage of the trials.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
    occupancy: Annotated[
        bool,
        typer.Option(
            "--occupancy", help="Print what each configuration occupies instead; needs no GPU."
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Search the fastest configuration of your own CUDA kernel and record it.

    The file runs as Python. Options replace what its KERNEL says. Running it again continues.
    """
    from autotune.api import kernel_specs
    from autotune.errors import UsageError

    if occupancy:
        if json:
            raise UsageError("the occupancy of user kernels has no JSON; leave either out")
        print(kernel_specs.spec_occupancy(spec, device))
        return
    limits = {"effort": effort, "trials": trials, "seed": seed}
    means = {"sampler": sampler, "jobs": jobs, "objective": objective, "storage": storage}
    fields = search_fields(budget, **limits, **means)
    changes = ({"device": device} if device else {}) | ({"progress": False} if quiet else {})
    try:
        record = kernel_specs.tune_spec(spec, changes, fields)
    except KeyboardInterrupt:
        raise Interrupted("what was measured is kept; run again to go on") from None
    if json:
        from autotune.records import codec

        show_json(codec.encode(record))
        return
    from autotune.report import kernel_record

    show(kernel_record.render(record))
