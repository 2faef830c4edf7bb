"""The answer to a look-up: what to run for a problem, and why."""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any, Literal

from autotune.cuda import cublaslt
from autotune.device import Device
from autotune.errors import NotFoundError
from autotune.families import cublaslt as family
from autotune.families.config import Config
from autotune.families.summation import MARGIN
from autotune.measure.measurement import Evidence
from autotune.measure.objective import HOT, Objective
from autotune.model.legality import Legality, as_tuned, for_compute
from autotune.model.space import AccuracyFilter
from autotune.problem import Problem
from autotune.problem.problem import relative_bound
from autotune.problem.vendor_faults import known_fault
from autotune.records import Entry, Record

How = Literal["exact", "range", "nearest", "related", "predicted"]


@dataclass(frozen=True)
class Answer:
    """The configuration to run for a problem, and why.

    Attributes:
        problem: the problem asked about.
        device: the device that runs it.
        config: the configuration to run.
        how: `exact`, the problem is recorded; `range`, a tuned range covers it; `nearest`, a record
            of a similar problem; `related`, a record of another GPU of the same architecture;
            `predicted`, the cost model's choice.
        evidence: what `time_us` rests on; for anything but an exact record it is `predicted`.
        record: the record that holds the configuration; None for the cost model's choice.
        time_us: measured or predicted time of one run in microseconds: cold if that is the
            `objective`, else hot; None if unknown.
        note: one line for the user: where the answer comes from and how to get a better one.
        expected_loss: expected loss against full tuning, 0.03 for 3 %; None if unknown.
        vendor: whether the vendor's library is faster: as measured on this problem, on the point of
            the range that serves it, or on the same GEMM with another epilogue; or as expected from
            its times on other problems.
        objective: what the configuration was chosen by; `hot` also where another was asked for but
            the records have no such measurements.
        vendor_us: expected time of the vendor's library in microseconds where the problem is not
            recorded; None if unknown.
        advice: one line for the user of a card without records: what to run, and how long it
            takes; else empty.
    """

    problem: Problem
    device: Device
    config: Config
    how: How
    evidence: Evidence
    record: Record | None
    time_us: float | None
    note: str
    expected_loss: float | None = None
    vendor: bool = False
    objective: Objective = HOT
    vendor_us: float | None = None
    advice: str = ""

    def __str__(self) -> str:
        """The configuration, its time and where it comes from, in lines; `autotune.table` has the
        answer in full."""
        time = "" if self.time_us is None else f": {self.time_us:.2f} us, {self.evidence}"
        faster = ["the vendor's library is faster"] if self.vendor else []
        lines = f"{self.problem} on {self.device.name}{time}", str(self.config), *faster, self.note
        return "\n".join(lines)

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        """Shows the lines of `str` in IPython."""
        printer.text(str(self))

    @property
    def vendor_loss(self) -> float | None:
        """Expected loss against the vendor's library, 0.03 for 3 %; below 0 where the configuration
        is expected to be faster, None if unknown."""
        if self.vendor_us is None or self.time_us is None:
            return None
        return 1 - self.vendor_us / self.time_us

    @property
    def final(self) -> bool:
        """Whether the problem, or the point of a range that serves it, was tuned to the end."""
        unfinished = self.record is not None and not self.record.provenance.final
        return self.how in ("exact", "range") and not unfinished

    def enough(self, quick: bool) -> bool:
        """Whether the problem needs no tuning, or not even a race where that is enough."""
        return self.final or (quick and self.how in ("exact", "range"))

    @property
    def entry(self) -> Entry | None:
        """The configuration's entry in the record, which may be of another problem."""
        entries = self.record.entries if self.record else ()
        return next(
            (entry for entry in entries if for_compute(entry.config, self.problem) == self.config),
            None,
        )


FIRST_RACE_S, RACE_S = 4.6, 1.2
"""Seconds of a quick race on an H200: of the first shape of a process, and the median of 120
(`docs/results/h200/left-out.json`)."""


def untuned_card(device: Device, shapes: int = 0, option: str = "") -> str:
    """Advice for a card without records: the command to run, and how long it takes.

    Args:
        device: the card.
        shapes: how many are to be tuned; 0 if that is unknown.
        option: the `--device` of the command.
    """
    takes = f"{FIRST_RACE_S:.0f} s for the first and {RACE_S:g} s for each further one"
    if shapes:
        takes = f"about {FIRST_RACE_S + RACE_S * (shapes - 1):.0f} s for {shapes}"
    return (
        f"{device.name} has no records: `autotune tune shapes.json --effort quick{option}` races "
        f"the shapes of a model, {takes}; `autotune.torch.recording` notes them"
    )


def tune_command(problem: Problem, option: str = "") -> str:
    """The command that a note names; `option` is its `--device`."""
    return f"`autotune tune {problem}{option}`"


def unrecorded(problem: Problem, device: Device) -> str:
    """Why nothing runs a problem in the frozen mode."""
    return (
        f"{problem} is not recorded on {device.name}, and the mode is frozen; "
        f"{tune_command(problem)} where tuning is allowed, or import its record"
    )


def recorded_answer(
    problem: Problem,
    device: Device,
    record: Record,
    how: How,
    loss: float,
    objective: Objective = HOT,
) -> Answer | None:
    """The answer from a record of the problem itself; None if none of its entries is legal.

    An algorithm of cuBLASLt serves only with its version of the library; else the kernels do.
    """
    objective = recorded_objective(record, objective)
    fault = library_fault(record) if record.best_by(objective).library else ""
    usable = record.without_library if fault else record
    entry = None if usable is None else best_legal(usable, problem, device, objective)
    if usable is None or entry is None:
        return None
    record, estimate = usable, objective.estimate(entry.measurement)
    note = f"{problem} on {record.device.name}: {record.evidence} {record.provenance.date}"
    return Answer(
        problem=problem,
        device=device,
        config=entry.config,
        how=how,
        evidence=record.evidence,
        record=record,
        time_us=estimate.time_us if estimate else None,
        note=f"{note}; {fault}" if fault else note,
        expected_loss=loss,
        vendor=vendor_wins(record, problem, objective),
        objective=objective,
    )


def without_library(answer: Answer) -> Answer:
    """The answer by the package's own kernels in the same record; itself if it is one of them.

    Raises:
        NotFoundError: if the record has none that is legal.
    """
    problem, record, own = answer.problem, answer.record, None
    if answer.config.family != family.NAME or record is None:
        return answer
    if (kernels := record.without_library) is not None:
        stated = answer.how, answer.expected_loss or 0.0, answer.objective
        own = recorded_answer(problem, answer.device, kernels, *stated)
    if own is None:
        command = tune_command(problem)
        raise NotFoundError(f"{problem} is recorded by cuBLASLt alone; {command} finds kernels")
    return replace(own, vendor=answer.vendor)


def library_fault(record: Record) -> str:
    """Why an algorithm of cuBLASLt in a record cannot run, as the end of a note; empty if it can:
    the version of the library that is loaded, else installed, is the record's."""
    recorded, present = record.library_version, cublaslt.version()
    if recorded == present:
        return ""
    loaded = f"{present} is loaded" if present else "it is not installed"
    return f"faster by cuBLASLt {recorded}, but {loaded}"


def recorded_prediction(problem: Problem, device: Device, record: Record | None) -> Answer | None:
    """The answer from the problem's record if that rests on the cost model alone; else None."""
    if record is None or record.evidence != "predicted":
        return None
    return recorded_answer(problem, device, record, "predicted", expected_loss("model", 0.0))


def vendor_wins(record: Record, problem: Problem, objective: Objective) -> bool:
    """Whether the vendor's library was measured to be faster on a problem, and can run it: not
    SwiGLU, which it was timed on with gates apart."""
    return not problem.gated and record.vendor_wins_by(objective)


def unverified_fault(answer: Answer, version: str) -> str | None:
    """The known fault of a version of cuBLAS that the answer's problem may meet; None without one.

    The library's default call does not state its algorithm, so only a result that was verified on
    this very problem with this very version rules the fault out.

    Args:
        answer: the answer.
        version: of cuBLAS, such as `13.1.0`; empty if it is unknown.
    """
    baseline = answer.record.baseline if answer.record and answer.how == "exact" else None
    if baseline is not None and version and baseline.library == version:
        return None
    return known_fault(version, answer.device.compute_capability, answer.problem)


def without_faulty_vendor(answer: Answer, version: str) -> Answer:
    """The answer, without the vendor's library if its installed version has an `unverified_fault`.

    Then the configuration runs, and the note says why.
    """
    fault = unverified_fault(answer, version) if answer.vendor else None
    if fault is None:
        return answer
    verify = f"{fault}, or {tune_command(answer.problem)}, which verifies cuBLAS"
    note = f"{answer.note}; {verify}; {answer.config} runs instead"
    return replace(answer, vendor=False, note=note)


def recorded_objective(record: Record, objective: Objective) -> Objective:
    """The objective, or `hot` if the record has no such measurements."""
    return HOT if record.of(objective) is None else objective


def best_legal(
    record: Record,
    problem: Problem,
    device: Device,
    objective: Objective,
    accuracy: AccuracyFilter | None = None,
    legal: Legality | None = None,
) -> Entry | None:
    """The record's best entry that the problem can run today and that keeps today's bound on the
    error; None if there is none.

    `accuracy` checks entries that were not verified on the problem; `legal` replaces the default
    legality.
    """

    def time_us(entry: Entry) -> float:
        estimate = objective.estimate(entry.measurement)
        return math.inf if estimate is None else estimate.time_us

    entries = (record.best_by(objective), *sorted(record.entries, key=time_us))
    legal = legal or Legality(problem, as_tuned(device, record.device))
    for entry in entries:
        if entry.library and library_fault(record):
            continue
        runs = legal(entry.config) and _keeps_bound(entry, record)
        if runs and (accuracy is None or accuracy.passes(entry.config)):
            return entry
    return None


def _keeps_bound(entry: Entry, record: Record) -> bool:
    """Whether an entry's measured error is within the bound; earlier versions allowed more."""
    error, baseline = entry.measurement.relative_error, record.baseline
    if error is None or baseline is None or baseline.relative_error is None:
        return True
    return error <= MARGIN * relative_bound(record.problem, baseline.relative_error)


def expected_loss(how: Literal["near", "model"], deviation: float) -> float:
    """The loss against full tuning that an answer had on average, 0.03 for 3 %.

    The figures were measured on shapes left out one by one (`scripts/fit/left_out.py`).
    `data/expected_loss.json` keeps them with their source.

    Args:
        how: `near`, where neighbours corrected the cost model; `model`, where it stands alone.
        deviation: standard deviation of the log of the predicted time.
    """
    bounds, losses = _losses()[how]
    return losses[bisect_right(bounds, deviation)]


@cache
def _losses() -> dict[str, tuple[list[float], list[float]]]:
    """Ascending deviations for each kind, and the losses below, between and above them."""
    data = resources.files("autotune") / "data" / "expected_loss.json"
    rows = json.loads(data.read_text(encoding="utf-8"))["losses"]
    return {how: (row["deviations"], row["losses"]) for how, row in rows.items()}
