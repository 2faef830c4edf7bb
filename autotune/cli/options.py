"""Options that several verbs share, the problem's among them, and texts of help."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from autotune.cli.output import SECONDS

if TYPE_CHECKING:
    from autotune.problem import ProblemDefaults

    ProblemOptions = ProblemDefaults
else:
    ProblemOptions = dict  # the problem's modules are imported by the verbs that need them

Shape = Annotated[
    str,
    typer.Argument(
        metavar="MxNxK",
        help="Sizes of the GEMM, such as 4096x4096x4096 or 512x512x64:bf16:batch=8:bias_relu.",
    ),
]
DeviceSpec = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="NAME|FILE",
        help="Device: gpu (gpu:1 is the second), replay:h100 or replay:FILE.json.gz (a recording), "
        "or a name of the catalogue or a JSON file (predicted).  [default: gpu]",
    ),
]
DeviceNumbers = Annotated[
    str | None,
    typer.Option(
        "--devices",
        metavar="N,...|all",
        help="Several GPUs of one model in place of --device; they share the work.",
    ),
]
BatchInvariant = Annotated[
    bool, typer.Option("--batch-invariant", help="By the batch-invariant ranges alone.")
]

ObjectiveName = Annotated[
    str,
    typer.Option(
        "--objective", help="What chooses the kernel: hot or cold (L2 flushed) time, or energy."
    ),
]
EffortName = Annotated[
    str | None,
    typer.Option(
        "--effort",
        help="Effort of the search: quick (a race, in seconds), default, long or exhaustive.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

METAVARS: dict[object, str] = {str: "TEXT", int: "INTEGER", float: "FLOAT", Path: "PATH"}
"""The metavar of an option that names none, by the type of its value."""

PROBLEM_OPTIONS = {
    "compute": Annotated[str | None, typer.Option(help="Precision: {computes}.  [default: f32]")],
    "layout": Annotated[
        str | None, typer.Option(help="Storage of A and B: {layouts}.  [default: nn]")
    ],
    "batch": Annotated[
        int | None,
        typer.Option(metavar="N", help="Number of matrices of C.  [default: 1]"),
    ],
    "epilogue": Annotated[str | None, typer.Option(help="Epilogue: {epilogues}.  [default: none]")],
    "output": Annotated[
        str | None,
        typer.Option(help="Type of C and the bias: {outputs}.  [default: same as A and B]"),
    ],
    "scale": Annotated[
        str | None,
        typer.Option(help="Scales of 8-bit operands: {scales}.  [default: none]"),
    ],
    "accumulate": Annotated[
        str | None,
        typer.Option(help="Sums of fp8: {accumulates}.  [default: exact]"),
    ],
    "e5m2": Annotated[
        str | None, typer.Option(help="Operand of f8e5 in e5m2: {e5m2_operands}.  [default: a]")
    ],
    "accuracy": Annotated[
        str | None,
        typer.Option(help="Accuracy: exact, or near to compute f32 as tf32x3.  [default: exact]"),
    ],
}
"""The options of a problem, by the keywords of `problem_of`."""


def search_fields(budget: str | None, **stated: object) -> dict[str, Any]:
    """The fields of a `Search` that the options of a verb state; None is not stated.

    Raises:
        UsageError: for a malformed budget.
    """
    fields = {**stated, "seconds": None if budget is None else parse_seconds(budget)}
    return {name: value for name, value in fields.items() if value is not None}


def parse_seconds(text: str) -> float:
    """Seconds of `60s`, `2m`, `1.5h` or `90`.

    Raises:
        UsageError: for another form.
    """
    from autotune.errors import UsageError

    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text.strip().lower())
    if match is None:
        raise UsageError(f"malformed budget {text!r}; give 60s, 2m or 90 (seconds)")
    return float(match[1]) * SECONDS[match[2]]


def with_problem_options(verb: Callable[..., None]) -> Callable[..., None]:
    """Gives a verb the options of a problem in place of its parameter `options`, which receives
    those that the user gave."""
    signature = inspect.signature(verb, eval_str=True)

    @wraps(verb)
    def command(**values: Any) -> None:
        options = {name: values.pop(name) for name in PROBLEM_OPTIONS}
        stated = {name: value for name, value in options.items() if value is not None}
        verb(options=cast("ProblemOptions", stated), **values)

    command.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*_replaced(signature.parameters.values())]
    )
    command.__annotations__ = {
        parameter.name: parameter.annotation
        for parameter in command.__signature__.parameters.values()  # type: ignore[attr-defined]
    }
    return command


def _replaced(parameters: Iterable[inspect.Parameter]) -> Iterable[inspect.Parameter]:
    """The parameters, with the options of a problem in place of `options`."""
    for parameter in parameters:
        if parameter.name != "options":
            yield parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            continue
        for name, annotation in PROBLEM_OPTIONS.items():
            yield inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
            )


class VerbCommand(TyperCommand):
    """A verb whose help texts list names from tables, such as the precisions.

    The lists are filled in when the help is shown, as the tables take long to import.
    """

    def get_params(self, ctx: Any) -> list[Any]:
        return _prepared(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        for parameter in self.params:
            text = getattr(parameter, "help", None)
            if text and "{" in text:
                parameter.help = text.format_map(_Lists())  # type: ignore[attr-defined]
        super().format_help(ctx, formatter)


class VerbGroup(TyperGroup):
    """Verbs whose list in the help has the first sentence of each, whole."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _prepared(super().get_params(ctx))

    def help_of(self, name: str) -> str:
        """The help of a verb."""
        return self.commands[name].help or ""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        del ctx
        sentences = {name: _first_sentence(self.help_of(name)) for name in self.commands}
        with formatter.section("Commands"):
            formatter.write_dl([*sentences.items()])


def _prepared(parameters: list[Any]) -> list[Any]:
    """The parameters, which take values that need no validation as they are, and which the help
    shows by their metavars alone.

    Typer validates by Pydantic, whose import takes as long as all else before a verb starts.
    """
    for parameter in parameters:
        annotation = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
        if annotation is not None and "process_value" not in vars(parameter):
            parameter.process_value = partial(
                _processed, parameter, annotation, parameter.process_value
            )
        if parameter.param_type_name == "argument":
            _describe(parameter)
        elif parameter.metavar is None and not parameter.is_flag:
            parameter.metavar = METAVARS.get(annotation)
    return parameters


def _describe(argument: Any) -> None:
    """Sets how usage and help show an argument: typer's versions add brackets of their own, and the
    name of the Python type."""
    if "get_usage_pieces" in vars(argument):
        return
    name, record = argument.metavar, argument.get_help_record
    argument.get_usage_pieces = lambda _: [name if argument.required else f"[{name}]"]
    argument.get_help_record = lambda ctx: (name, record(ctx)[1])


def _processed(
    parameter: Any, annotation: object, process: Callable[[Any, Any], Any], ctx: Any, value: Any
) -> Any:
    """The value of a parameter, as `process` makes it; not validated if it is of its annotation's
    type, as texts and most defaults are, or absent."""
    texts = annotation == list[str] and value and all(isinstance(text, str) for text in value)
    absent = value is None and not parameter.required
    plain = absent and annotation in (bool, str, int, float, Path)
    if not texts and not plain and type(value) is not annotation:
        return process(ctx, value)
    value = [*value] if texts else value
    return value if parameter.callback is None else parameter.callback(ctx, parameter, value)


def _first_sentence(text: str) -> str:
    """The first sentence of a help text, without its period."""
    return " ".join(text.partition("\n\n")[0].split()).partition(". ")[0].removesuffix(".")


class _Lists(dict[str, str]):
    """The lists that a help text may name."""

    def __missing__(self, name: str) -> str:
        from autotune import problem

        if name == "families":
            from autotune.families import registry

            return _listed(registry.FAMILIES)
        words: dict[str, Iterable[str]] = {
            "computes": problem.COMPUTES,
            "layouts": problem.LAYOUTS,
            "epilogues": problem.EPILOGUES,
            "outputs": problem.OUTPUTS,
            "scales": problem.SCALES,
            "accumulates": problem.ACCUMULATES,
            "e5m2_operands": problem.E5M2_OPERANDS,
        }
        return _listed(words[name])


def _listed(words: Iterable[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} or {last}"
