"""The verb help, and the topics that it explains: shapes, devices and families."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches

import click
from click.shell_completion import CompletionItem

from autotune.cli.options import VerbArgument, VerbCommand, alternatives, matching
from autotune.errors import UsageError


def _complete(
    ctx: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    del parameter
    root = ctx.find_root().command
    verbs = root.list_commands(ctx) if isinstance(root, click.Group) else []
    return matching((*TOPICS, *verbs), incomplete)


@click.command("help", cls=VerbCommand)
@click.argument(
    "words",
    nargs=-1,
    cls=VerbArgument,
    metavar="[TOPIC|VERB]...",
    text="shapes, devices or families; or a verb, such as tune or cache list.",
    shell_complete=_complete,
)
@click.pass_context
def help_(context: click.Context, words: tuple[str, ...]) -> None:
    """Explain shapes, devices or families, or print the help of a verb."""
    root = context.find_root()
    if len(words) == 1 and words[0] in TOPICS:
        formatter = context.make_formatter()
        TOPICS[words[0]](formatter)
        click.echo(formatter.getvalue().rstrip("\n"))
        return
    click.echo(_context_of(root, words).get_help())


def _context_of(root: click.Context, words: Sequence[str]) -> click.Context:
    """The context of a verb."""
    context = root
    for word in words:
        verbs = context.command.commands if isinstance(context.command, click.Group) else {}
        if word not in verbs:
            close = get_close_matches(word, [*TOPICS, *verbs], 1)
            hint = f"did you mean {close[0]!r}?" if close else f"there is {', '.join(TOPICS)}"
            raise UsageError(f"no topic or verb {word!r}; {hint}")
        context = click.Context(verbs[word], parent=context, info_name=word)
    return context


def _shapes(formatter: click.HelpFormatter) -> None:
    from autotune import problem

    formatter.write_text(
        "A shape is MxNxK, such as 4096x4096x4096, with words after colons in any order: "
        "512x512x64:bf16:tn:batch=8:bias_relu:out=f32. It stands for C = op(A) op(B) with op(A) of "
        "M x K, op(B) of K x N and C of M x N."
    )
    rows = [
        ("precision", f"{alternatives(problem.COMPUTES)}.  [default: f32]"),
        (
            "layout",
            f"Storage of A and B, t is transposed: {alternatives(problem.LAYOUTS)}.  [default: nn]",
        ),
        ("batch=N", "Number of matrices of C.  [default: 1]"),
        ("epilogue", f"{alternatives(problem.EPILOGUES)}.  [default: none]"),
        (
            "out=TYPE",
            f"Type of C and the bias: {alternatives(problem.OUTPUTS)}.  [default: same as A and B; "
            "bf16 for 8-bit operands]",
        ),
        (
            "scale=KIND",
            f"Scales of 8-bit operands: {alternatives(problem.SCALES)}.  [default: none]",
        ),
        ("sums", f"Sums of fp8: {alternatives(problem.ACCUMULATES)}.  [default: exact]"),
        (
            "e5m2=OPERAND",
            f"Operand of f8e5 in e5m2: {alternatives(problem.E5M2_OPERANDS)}.  [default: a]",
        ),
    ]
    with formatter.section("Words"):
        formatter.write_dl(rows)
    formatter.write_paragraph()
    formatter.write_text(
        "tf32x3 computes fp32 matrices nearly as accurately as f32, on tensor cores."
    )
    with formatter.section("In the place of a shape"):
        formatter.write_dl(
            [
                ("1..512x4096x4096", "A range of one size: tune, report."),
                ("shapes.json", "A file of shapes with counts, or with a shape a line: tune."),
                ("saxpy", "A user kernel by its name: best, report, export, cache list."),
                ("saxpy_spec.py", "The file of a user kernel: tune, occupancy."),
            ]
        )


def _devices(formatter: click.HelpFormatter) -> None:
    formatter.write_text("The device states the source of times, and every answer repeats it.")
    with formatter.section("Devices"):
        formatter.write_dl(
            [
                ("gpu, gpu:1", "The first or another GPU of this machine: measured.  [default]"),
                ("gpu:0,1, gpu:all", "Several GPUs of one model, which share the work: tune."),
                ("replay:h100", "A recorded sweep of an H100: replayed."),
                ("replay:stencil", "A recorded user kernel, which tune searches without a shape."),
                ("replay:FILE.json.gz", "Your recording, a folder of them, or Kernel Tuner's."),
                (
                    "h100, card.json",
                    "A device of the catalogue (`autotune device --list`) or a file of `autotune "
                    "device --json`: predicted, unless this machine has that GPU.",
                ),
                ("sm_86", "The limits of an SM of a compute capability: device, occupancy."),
            ]
        )


def _families(formatter: click.HelpFormatter) -> None:
    from autotune.families import cublaslt, registry

    formatter.write_text(
        "A family is a kernel and its parameters. auto tries the searched ones that serve the "
        "precision, and the algorithms of an installed cuBLASLt; a family by name is tuned and "
        "recorded alone."
    )
    searched = (*registry.searched(), cublaslt.NAME)
    alone = {name: "" if name in searched else "; by name only" for name in registry.FAMILIES}
    with formatter.section("Families"):
        formatter.write_dl(
            [
                (name, f"{alternatives(family.precisions)}{alone[name]}")
                for name, family in registry.FAMILIES.items()
            ]
        )


TOPICS: Mapping[str, Callable[[click.HelpFormatter], None]] = {
    "shapes": _shapes,
    "devices": _devices,
    "families": _families,
}
"""The function that writes each topic."""
