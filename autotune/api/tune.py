"""`autotune.tune`: tunes a problem, a range of sizes, or several problems under one budget."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from numbers import Integral
from os import PathLike
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, TypedDict, overload

from autotune.api import ranges, shapes, tuning
from autotune.api.shapes import Shapes, ShapesLike
from autotune.api.tuning import ProgressLike
from autotune.api.words import naming
from autotune.errors import ProblemError, UsageError
from autotune.families.registry import AUTO
from autotune.measure.devices import DEFAULT, DeviceLike, gpu_numbers
from autotune.measure.objective import Objective
from autotune.problem import Problem, ProblemDefaults, ProblemLike, problem_of
from autotune.problem.arguments import Span
from autotune.records import Record
from autotune.tuning.options import Search, stated

if TYPE_CHECKING:
    from typing import TypeGuard

    from typing_extensions import Unpack

    from autotune.measure.objective import ObjectiveText
    from autotune.problem.words import DtypeLike
    from autotune.records.ranges import Range
    from autotune.report.listing import ShapesReport
    from autotune.tuning.options import Effort

DevicesLike = DeviceLike | Sequence[int]
"""A device, or several GPUs of this machine by their numbers."""

_GPUS = re.compile(r"(?:(?:gpu|cuda):)?(all|\d+(?:,\d+)+)", re.IGNORECASE)


class TuneOptions(TypedDict, total=False):
    """The keywords of `tune`, which documents them."""

    compute: DtypeLike | None
    layout: str | None
    device: DevicesLike
    family: str
    effort: Effort | None
    seconds: float | None
    trials: int | None
    objective: ObjectiveText | Objective | None
    search: Search | None
    batch_invariant: bool
    progress: ProgressLike


# A text may be that of a range, which no type tells. It is also a sequence of texts, for mypy.
@overload
def tune(  # type: ignore[overload-overlap]
    problem: str, /, **options: Unpack[TuneOptions]
) -> Record | Any: ...


@overload
def tune(problem: Problem | Sequence[int], /, **options: Unpack[TuneOptions]) -> Record: ...


@overload
def tune(m: int, n: int, k: int, /, **options: Unpack[TuneOptions]) -> Record: ...


@overload
def tune(problem: Span, /, **options: Unpack[TuneOptions]) -> Range: ...


@overload
def tune(
    problem: ShapesLike | PathLike[str], /, **options: Unpack[TuneOptions]
) -> ShapesReport: ...


@naming(search=Search)
def tune(
    *problem: ProblemLike | Span | ShapesLike | PathLike[str] | int,
    compute: DtypeLike | None = None,
    layout: str | None = None,
    device: DevicesLike = DEFAULT,
    family: str = "auto",
    effort: Effort | None = None,
    seconds: float | None = None,
    trials: int | None = None,
    objective: ObjectiveText | Objective | None = None,
    search: Search | None = None,
    batch_invariant: bool = False,
    progress: ProgressLike = True,
) -> Record | Range | ShapesReport:
    """Searches the fastest kernel of a problem and records the best ten.

        tune("4096x4096x4096:bf16")
        tune(4096, 4096, 4096, compute="bf16", device="h100", effort="long")
        tune("1..512x4096x4096:bf16")
        tune(["16x4096x4096:bf16:nt", "16x14336x4096:bf16:nt"], seconds=60)

    A second call continues from the measurements of the first. The cache directory holds them.

    A **range** is searched at its ends and raced at one size of each octave between them; sizes
    with a record are not tuned again. The range is recorded after each size, so that an interrupt
    loses none.

    **Several** problems share the seconds, which go where they are expected to save most: a
    problem's weight is how often it runs, times its time, times the loss that is expected against
    full tuning. A problem whose loss is expected to be below 0.5 % is not searched.

    Args:
        problem: text, a `Problem`, (m, n, k) or three sizes; a range, as text with one size as
            LOW..HIGH or as a `Span`; a list of problems, in which each counts as often as it
            stands there, `Shapes` or another mapping of problems to their counts, or the path of a
            file of shapes, such as `autotune.torch.recording` notes.
        compute: precision, if the problem does not state it.
        layout: storage of A and B, likewise. All other fields stand in the text or the `Problem`.
        device: `gpu` or a number (measured), `replay:h100` or `replay:FILE.json.gz` (a
            recording), or a name of the catalogue, a JSON file or a `Device` (predicted). Several
            GPUs of one model share the work: `[0, 1]`, `"0,1"` or `"all"`; not for a range.
        family: kernel family: `wgmma`, `mma` (tensor cores), `simt`, `gemv` (for at most 16 rows or
            columns of C), `cublaslt` (its algorithms), `tiled` or `naive`; `auto` searches the
            first five, as far as they serve the compute.
        effort: `quick` races the eight most promising configurations, six that their times
            suggest, three algorithms of cuBLASLt and cuBLAS instead of searching, in seconds; the
            record says so, and a search replaces it. `default` takes at most 60 s, `long` 400
            trials in at most 300 s, `exhaustive` tries everything. Several problems share 20 s for
            each, 100 s with `long` and `exhaustive`.
        seconds: end this number of seconds after the call.
        trials: stop each search at this number of configurations, including the trials of earlier
            calls and of other processes.
        objective: `hot` minimises the time with inputs as the last run left them in L2, `cold` the
            time with L2 flushed, `energy` (of one problem) the joules of a run among the ten
            fastest hot. The best by each is recorded.
        search: everything about the search in one value; `effort`, `seconds`, `trials` and
            `objective` replace its fields.
        batch_invariant: for a range of M, whether all kernels add up in one order of summation, so
            that the bits of a row of C do not depend on the rows beside it. Only calls with
            `batch_invariant` run these kernels.
        progress: whether to show a progress bar, on standard error; `lines` for plain lines, which
            notebooks get too; or an observer, which receives the progress events instead.

    Returns:
        The record of one problem; the `Range`; or of several problems a `ShapesReport`, with a row
        for each. `print` shows each of them.

    Raises:
        UsageError: for an impossible problem, an unknown device, or invalid limits.
        MissingError: without a GPU, a driver or a compiler, where they are needed.
        CacheError: if the cache directory cannot be written.
        BudgetError: if the budget was over before anything was tuned.
        AutotuneError: if no configuration works.
    """
    began = monotonic()
    own = stated(search, effort=effort, seconds=seconds, trials=trials, objective=objective)
    if own.score is not None:
        raise UsageError("score is of tune_kernel; give an objective")
    (place, numbers), asked = _place(device), _asked(problem, _fields(compute, layout))
    if isinstance(asked, Span):
        own.refuse_recording("a range takes")
        if numbers is not None:
            raise UsageError(f"a range takes one device, not {numbers!r}; give one")
        if family != AUTO:
            raise UsageError("a range takes no family; leave it out")
        each = own.limited(family)  # whose default seconds are for each search
        options = each if own.seconds is None else each.begun(began)
        return ranges.tune(
            asked,
            options,
            place,
            progress=progress,
            batch_invariant=batch_invariant,
        )
    if batch_invariant:
        raise UsageError("batch invariance is of a range; give one, such as 1..8192x4096x4096:bf16")
    if isinstance(asked, Shapes):
        options = own.each_limited(family)
        return shapes.tune_shapes(asked, options, place, numbers, family, progress=progress)
    options = own.limited(family).begun(began)
    return tuning.search(asked, options, place, numbers, family, progress=progress)


def _place(device: DevicesLike) -> tuple[DeviceLike, str | Sequence[int] | None]:
    """The device, and the GPUs that stand in its place, if there are several."""
    if isinstance(device, str):
        if several := _GPUS.fullmatch(device.strip()):
            return DEFAULT, several[1].lower()
        return (
            (DEFAULT, device.strip()) if "," in device and gpu_numbers(device) else (device, None)
        )
    return (DEFAULT, device) if isinstance(device, Sequence) else (device, None)


def _asked(problem: tuple[Any, ...], fields: ProblemDefaults) -> Problem | Span | Shapes:
    """The problem, the range or the counted shapes that the arguments of `tune` stand for."""
    asked, *further = problem or ((),)
    if isinstance(asked, Span):
        return asked
    if isinstance(asked, str) and ".." in asked and not further:
        return Span.parse(asked, **fields)
    if further or not problem or not _is_several(asked):
        return _problem(problem, fields)
    if not isinstance(asked, PathLike):
        return Shapes.of(asked, **fields)
    if fields:
        raise UsageError(f"{asked} states the {' and '.join(fields)} of its shapes; leave it out")
    return Shapes.load(asked)


def _fields(compute: DtypeLike | None, layout: str | None) -> ProblemDefaults:
    fields: ProblemDefaults = {}
    if compute is not None:
        fields["compute"] = compute
    if layout is not None:
        fields["layout"] = layout
    return fields


def _is_several(asked: object) -> TypeGuard[ShapesLike | PathLike[str]]:
    """Tells several problems, or a file of them, from one problem: three sizes are one."""
    if isinstance(asked, (str, Problem)):
        return False
    if isinstance(asked, Sequence) and asked:
        return not all(isinstance(size, Integral) for size in asked)
    return isinstance(asked, (PathLike, Iterable))


def _problem(problem: tuple[Any, ...], fields: ProblemDefaults) -> Problem:
    try:
        return problem_of(*problem, **fields)
    except ProblemError as error:
        for text in problem:
            if isinstance(text, str) and Path(text).is_file():
                raise UsageError(f"{text} is a file; give pathlib.Path({text!r})") from error
        raise
