"""Shapes with counts, such as a model's: their file, and their tuning under one budget.

{"schema": 1, "shapes": {"16x4096x4096:bf16:nt:bias": 32, "16x16384x4096:bf16:nt": 32}}

Seconds of search go where they are expected to save most. A search of t seconds leaves a share
exp(-t / T) of what tuning can save. With one T for all the savings of all problems together are
largest if every search ends at the same rate of saving.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, TypeVar

from msgspec import Meta

from autotune import files, roofline
from autotune.api import tuning
from autotune.api.tuning import ProgressLike
from autotune.device import Device
from autotune.errors import (
    AutotuneError,
    BudgetError,
    CacheError,
    DeviceError,
    MissingError,
    ProblemError,
    UsageError,
    require_list,
)
from autotune.families.registry import AUTO, families_of
from autotune.files import limits, output
from autotune.files.decoding import convert, parse, require_schema
from autotune.lookup.answer import Answer, recorded_prediction
from autotune.lookup.lookup import recorded
from autotune.measure import targets
from autotune.measure.devices import DEFAULT, DeviceLike
from autotune.measure.targets import TargetOpener
from autotune.problem import Problem, ProblemDefaults, ProblemLike, problems_of
from autotune.records import Records, Store
from autotune.report.listing import NO_TIME, TUNED, ShapeRow, ShapesReport
from autotune.settings import cache_dir
from autotune.tuning.options import Search, enough, require_time

if TYPE_CHECKING:
    from typing_extensions import Unpack

SCHEMA = 1

LIST = output.OutputKind("list of shapes", (b'{\n  "schema": 1,\n  "shapes": {',))

_Shapes = dict[str, Annotated[int, Meta(ge=1)]]

ShapesLike = Mapping[ProblemLike, int] | Iterable[ProblemLike]
"""Shapes with their counts, or a list in which each counts as often as it stands there."""


class Shapes(Counter[Problem]):
    """The number of runs of each GEMM: a `collections.Counter` of problems that has a file."""

    @classmethod
    def of(cls, shapes: ShapesLike, **fields: Unpack[ProblemDefaults]) -> Shapes:
        """The shapes of a list or mapping. The keywords are for shapes that do not state a field.

        Raises:
            ProblemError: for an impossible shape.
            UsageError: for a count below 1, a range, or one shape in place of a list.
        """
        require_list("shapes", str(shapes) if isinstance(shapes, Problem) else shapes)
        counted = cls()
        pairs = shapes.items() if isinstance(shapes, Mapping) else ((shape, 1) for shape in shapes)
        for shape, count in pairs:
            if not isinstance(count, int) or count < 1:
                raise UsageError(f"{shape} counts {count!r}; give a whole number of at least 1")
            if isinstance(shape, str) and ".." in shape:
                raise UsageError(f"{shape} is a range, which is tuned alone; give its sizes, or it")
            if not isinstance(shape, (Problem, Sequence)):
                raise ProblemError(f"shape is {shape!r}; give a text, a Problem or (m, n, k)")
            (problem,) = problems_of((shape,), **fields)
            counted[problem] += count
        return counted

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Shapes:
        """The shapes in a file that `save` wrote, or in a text with a line for each.

        Raises:
            UsageError: if it cannot be read or is not such a file.
        """
        try:
            data = files.read(Path(path), limits.DOCUMENT)
            if not data.lstrip().startswith(b"{"):
                return cls._of_lines(data.decode("utf-8-sig"))
            fields = require_schema(parse(data), "list of shapes", SCHEMA)
            counts = convert(fields.get("shapes"), _Shapes, "shapes")
            return cls({Problem.parse(text): count for text, count in counts.items()})
        except OSError as error:
            raise UsageError(f"{path}: cannot be read: {error.strerror}; give another") from error
        except ValueError as error:
            raise UsageError(f"{path}: no list of shapes: {error}") from error

    @classmethod
    def _of_lines(cls, text: str) -> Shapes:
        """The shapes of a text, each in a line; blank lines and those with # do not count."""
        lines = (line.strip() for line in text.splitlines())
        try:
            return cls.of(line for line in lines if line and not line.startswith("#"))
        except UsageError as error:
            form = "a line holds a shape, such as 16x4096x4096:bf16:nt"
            raise ValueError(f"{error}; {form}") from error

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the file, or leaves it unchanged; the most frequent shapes come first.

        Raises:
            AutotuneError: if it cannot be written, or something else than such a list is there.
        """
        counts = {str(problem): count for problem, count in self.most_common()}
        data = json.dumps({"schema": SCHEMA, "shapes": counts}, indent=2).encode() + b"\n"
        output.write(Path(path), data, LIST)

    def __str__(self) -> str:
        return "\n".join(f"{count:6} x {problem}" for problem, count in self.most_common())


T = TypeVar("T")

TIME_CONSTANT_S = 3.0
"""T. Half of 24 problems were within 2 % of their best known time after 4.3 s of search on an H100
(`docs/search.md`), where a kernel chosen without a search loses some 10 %."""

LEAST_S = 3.0
"""Shortest search: its workers need 2 s to start, and the leaders are timed at the end."""

LEAST_GAIN = 0.005
"""Share of a kernel's time below which what is left to save is not worth a search."""

UNTUNED_LOSS = 0.1
"""Loss of a kernel chosen without a search: on an H100 it was 11 % (`docs/python.md`)."""

LAUNCH_US = 2.0
"""Least time of a kernel, however small."""

ENDED = 0.9
"""A search that takes less than this share of its budget ended by itself."""


def tune_shapes(
    shapes: Mapping[Problem, int],
    options: Search,
    device: DeviceLike = DEFAULT,
    devices: str | Sequence[int] | None = None,
    family: str = AUTO,
    *,
    progress: ProgressLike = False,
) -> ShapesReport:
    """Tunes shapes one after the other under one budget: `autotune.tune` of several shapes with
    its arguments decoded.

    The loss of a shape without a record is expected to be 10 %, and falls with each second of
    search. None that is recorded is raced. Each search is recorded as it ends, so that an interrupt
    loses none, and a second call goes on where the first ended.

    Args:
        shapes: number of runs of each shape.
        options: how each shape is searched. All searches share the seconds; None is the default.
        device: as for `autotune.tune`.
        devices: several GPUs of one model in its place.
        family: as for `autotune.tune`.
        progress: as for `autotune.tune`.

    Raises:
        UsageError: for an unknown device, an energy, or several devices and a race.
        AutotuneError: as `autotune.tune`.
    """
    require_time(options, "tuning several shapes")
    if options.quick and devices is not None:
        raise UsageError("quick takes no devices; leave either out")
    began = monotonic()
    place = _Place(targets.resolve(device), targets.measures(device), options, family)
    rows = {problem: place.row(problem, count) for problem, count in shapes.items()}
    gains = {row.problem: place.gain(row) for row in rows.values() if row.why is None}
    count = sum(not gain.settled for gain in gains.values())
    budget = options.shared_seconds(count)
    with (
        tuning.shown_all(count, options.objective, progress) as observed,
        TargetOpener(device, numbers=devices, seed=options.seed, quick=options.quick) as opener,
    ):

        def search(problem: Problem, seconds: float) -> bool:
            limited = replace(options, seconds=seconds).begun(monotonic())
            observer, earlier = observed(problem, seconds), rows[problem]
            run = partial(tuning.search_at, opener, problem, limited)
            row = _searched(earlier, partial(run, family=family, observer=observer))
            rows[problem] = row
            took = row.searched_s - earlier.searched_s
            return row.why is not None or took < ENDED * seconds

        spend(gains, budget - (monotonic() - began), search)
    report = ShapesReport(place.tuned(row) for row in rows.values())
    reasons = [row.why for row in report]
    if NO_TIME in reasons and None not in reasons:
        raise BudgetError(
            f"budget is {budget:g} s, which was over before a shape was tuned; give "
            f"{enough(budget, count):g} s or more"
        )
    return report


def _searched(row: ShapeRow, search: Callable[[], object]) -> ShapeRow:
    """The row of a shape after a search, with what went wrong.

    Raises:
        AutotuneError: if the machine is at fault, so that other shapes would fail as well.
    """
    began = monotonic()
    try:
        search()
    except (MissingError, CacheError, DeviceError):
        raise
    except BudgetError:
        row = replace(row, why=row.why if row.searched_s else NO_TIME)
    except AutotuneError as error:
        row = replace(row, why=str(error))
    return replace(row, searched_s=row.searched_s + monotonic() - began)


@dataclass(frozen=True)
class _Place:
    """The device, options and family with which shapes are tuned."""

    device: Device
    measured: bool
    options: Search
    family: str

    def row(self, problem: Problem, count: int) -> ShapeRow:
        """The row of a shape before it is tuned."""
        try:
            targets.check_memory(problem, self.device)
            families_of(self.family, problem)
        except UsageError as error:
            return ShapeRow(problem, count, None, why=str(error))
        return ShapeRow(problem, count, self._answer(problem))

    def gain(self, row: ShapeRow) -> Gain:
        """The time that tuning a shape can save."""
        least_us = 1e6 * roofline.least_hot_seconds(row.problem, self.device)
        time_us = row.time_us or row.count * max(least_us, LAUNCH_US)
        record = row.answer.record if row.answer else None
        if row.answer is None or record is None:
            return Gain(time_us, UNTUNED_LOSS)
        if record.problem != row.problem:
            return Gain(time_us, row.answer.expected_loss or 0.0)
        usable = record.evidence == "measured" or not self.measured
        if self.options.quick and usable:
            return Gain(time_us, 0.0)
        return Gain(time_us, UNTUNED_LOSS, record.provenance.seconds if usable else 0.0)

    def tuned(self, row: ShapeRow) -> ShapeRow:
        """The row of a shape after the searches."""
        if row.why is not None and not row.searched_s:
            return row
        if row.searched_s:
            return replace(row, answer=self._answer(row.problem))
        return replace(row, why=TUNED if self.gain(row).settled else NO_TIME)

    def _answer(self, problem: Problem) -> Answer | None:
        """The recorded answer alone: a guess takes a second a shape, and no search needs it."""
        records, objective = Records(Store(cache_dir())), self.options.objective
        answer = recorded(problem, self.device, records, objective)
        if answer is None and not self.measured:
            return recorded_prediction(problem, self.device, records.load(self.device, problem))
        return answer


@dataclass(frozen=True)
class Gain:
    """The time that tuning a problem can save.

    Attributes:
        time_us: the time of its runs together, as they are now, in microseconds.
        loss: how much longer they take than after a full search; 0.1 is 10 %.
        searched_s: seconds of search so far.
    """

    time_us: float
    loss: float
    searched_s: float = 0.0

    @property
    def left(self) -> float:
        """The loss that is left."""
        return self.loss * math.exp(-self.searched_s / TIME_CONSTANT_S)

    @property
    def saving_us(self) -> float:
        """Microseconds that a full search still saves."""
        return self.time_us * self.left

    @property
    def settled(self) -> bool:
        """Whether further search is expected to save less than `LEAST_GAIN`."""
        return self.left < LEAST_GAIN


def spend(
    gains: Mapping[T, Gain],
    budget_s: float,
    search: Callable[[T, float], bool],
    clock: Callable[[], float] = monotonic,
) -> None:
    """Spends a budget on searches, one after another; what one leaves is shared by the rest.

    Args:
        gains: time that tuning each problem can save.
        budget_s: seconds for all.
        search: searches a problem for some seconds; returns whether it ended by itself, so that it
            need not go on. The others do if time is left.
        clock: the time in seconds.
    """
    began, pending = clock(), {key: gain for key, gain in gains.items() if not gain.settled}
    while seconds := shares(pending, budget_s - (clock() - began)):
        problem = max(seconds, key=lambda key: pending[key].saving_us)
        gain, started = pending.pop(problem), clock()
        if search(problem, seconds[problem]):
            continue
        spent = replace(gain, searched_s=gain.searched_s + clock() - started)
        if not spent.settled:
            pending[problem] = spent


def shares(gains: Mapping[T, Gain], budget_s: float) -> dict[T, float]:
    """Seconds for each search, the most promising first; those that would get less than `LEAST_S`
    get none."""
    chosen = sorted(gains, key=lambda key: gains[key].saving_us, reverse=True)
    while chosen and budget_s >= LEAST_S:
        rates = [math.log(max(gains[key].saving_us, 1e-300)) for key in chosen]
        rate = (sum(rates) - budget_s / TIME_CONSTANT_S) / len(chosen)
        seconds = {
            key: TIME_CONSTANT_S * (own - rate) for key, own in zip(chosen, rates, strict=True)
        }
        if len(chosen) == 1 or seconds[chosen[-1]] >= LEAST_S:
            return seconds
        chosen.pop()
    return {}
