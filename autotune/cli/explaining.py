"""The verb that says why: explain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli.options import (
    DeviceSpec,
    Json,
    ObjectiveName,
    ProblemOptions,
    Shape,
    with_problem_options,
)
from autotune.cli.output import show, show_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from autotune.device import Device
    from autotune.families.config import Config, Value
    from autotune.families.plan import Resources
    from autotune.lookup.answer import Answer
    from autotune.problem import Problem
    from autotune.report.explanation import Explanation


@with_problem_options
def explain(
    shape: Shape,
    config: Annotated[
        str | None,
        typer.Argument(
            metavar="CONFIG",
            help="Configuration, such as tiled:tile_width=16. Parameters that it leaves open are "
            "the winner's, or those of the fastest by the cost model.",
            show_default=False,
        ),
    ] = None,
    *,
    options: ProblemOptions,
    device: DeviceSpec = None,
    compile: Annotated[
        bool, typer.Option("--compile", help="Compile it for its registers, not estimate them.")
    ] = False,
    objective: ObjectiveName = "hot",
    json: Json = False,
) -> None:
    """Print why the best kernel of a problem won, or what the rules say of another configuration.

    Every rule is listed with the numbers that it reads, and the first that is broken with what is
    wrong. A configuration that no rule rejects also has its occupancy and its predicted time.
    """
    from autotune.api import lookups
    from autotune.problem import problem_of
    from autotune.report import explained, explanation
    from autotune.runners.objective import objective_named
    from autotune.targets.sources import DEFAULT

    problem, decides = problem_of(shape, **options), objective_named(objective)
    answer = lookups.answered(problem, device or DEFAULT, decides)
    winner = explanation.explain(answer.config, problem, answer.device, answer)
    variant, added = _variant(config, answer, compile) if config else (None, {})
    if json:
        show_json(explained.to_json(answer, winner, variant))
    else:
        show(explained.render(answer, winner, variant, added))


def _variant(text: str, answer: Answer, compile: bool) -> tuple[Explanation, Mapping[str, Value]]:
    """The explanation of a configuration, and the parameters that its text leaves open."""
    from autotune.report import explanation

    config, added = explanation.completed(text, answer)
    variant = explanation.explain(config, answer.problem, answer.device, answer)
    if compile and variant.fit is not None:
        resources = _compiled(config, answer.problem, answer.device)
        variant = explanation.explain(config, answer.problem, answer.device, answer, resources)
    return variant, added


def _compiled(config: Config, problem: Problem, device: Device) -> Resources:
    """The resources of a configuration's main launch as compiled."""
    from autotune import compiler, settings
    from autotune.errors import AutotuneError
    from autotune.families import registry
    from autotune.tuning.evaluate import resources_of

    launch = registry.plan(config, problem).main
    program = compiler.compile(launch.template, device.arch, cache=settings.cache_dir())
    if isinstance(program, compiler.CompileFailure):
        raise AutotuneError(f"{config} for {device.arch}: {program.reason}")
    return resources_of(launch, program)
