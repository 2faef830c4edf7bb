"""Whether the tuned kernel of a product of a compiled graph gains over cuBLAS."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch

from autotune import runtime, settings
from autotune.api import shapes
from autotune.api.shapes import Shapes
from autotune.device import Device
from autotune.errors import AutotuneError
from autotune.lookup.answer import Answer
from autotune.lookup.lookup import finder, recorded
from autotune.measure.objective import time_objective
from autotune.problem import Epilogue, Problem
from autotune.records import Records, Store
from autotune.report import cell, gain
from autotune.report.layers import FASTER, NOT_TIMED, UNKNOWN, why_kept, why_too_little
from autotune.settings import Policy
from autotune.tuning.options import Search


@dataclass(frozen=True)
class ProductChoice:
    """The choice for a product of a graph.

    Attributes:
        problem: the product, with what its kernel would compute behind it.
        ours_us: microseconds of the tuned kernel, measured or expected; None if unknown.
        cublas_us: those of cuBLAS.
        why: why the product stays as it is; None if the tuned kernel replaces it.
    """

    problem: Problem
    ours_us: float | None = None
    cublas_us: float | None = None
    why: str | None = None

    @property
    def gain(self) -> float | None:
        """Gain of the tuned kernel over cuBLAS, 0.25 = 25 %."""
        return gain(self.cublas_us, self.ours_us)

    def __str__(self) -> str:
        times = [cell(us, "{:.2f} us") or "-" for us in (self.ours_us, self.cublas_us)]
        figures = f"{times[0]:>12} {times[1]:>12} {cell(self.gain, '{:+.1%}'):>8}"
        return f"{self.problem!s:40} {figures}  {self.why or 'tuned kernel'}"


def choice_table(choices: Iterable[ProductChoice]) -> str:
    """The choices as lines, equal ones counted."""
    head = f"{'':5} {'product':40} {'ours':>12} {'cuBLAS':>12} {'gain':>8}  runs"
    counts = Counter(choices)
    return "\n".join((head, *(f"{count:4}x {choice}" for choice, count in counts.items())))


class Chooser:
    """Compares tuned kernels with cuBLAS on a GPU.

    Attributes:
        launched: how the kernels are launched, by the arguments of the operators.

    Args:
        ordinal: number of the GPU.
        device: the GPU.
        policy: whether shapes without a record are raced, and whether cold times decide.
        min_gain: the least gain over cuBLAS, 0.05 = 5 %.
    """

    def __init__(self, ordinal: int, device: Device, policy: Policy, min_gain: float) -> None:
        self._ordinal, self._device = ordinal, device
        self._policy, self._min_gain = policy, min_gain
        dependent = policy.dependent and device.compute_capability >= (9, 0)
        self.launched = {"cold": policy.cold, "dependent": dependent}
        self._objective = time_objective(policy.cold)
        self._records = Records(Store(settings.cache_dir()))
        self._choices: dict[tuple[Problem, bool], ProductChoice] = {}

    def race(self, problems: Iterable[Problem]) -> None:
        """Races the problems without a record, if the policy and the process allow it; a warning
        says why, if it cannot.

        While the stream is captured nothing is raced: the GPU has to run other work for it.
        """
        if not self._policy.tune or settings.mode().frozen:
            return
        missing = Shapes(problems)
        for problem in [*missing]:
            answer = recorded(problem, self._device, self._records, self._objective)
            if answer is not None and answer.enough(quick=True):
                del missing[problem]
        if not missing or torch.cuda.is_current_stream_capturing():
            return
        torch.cuda.synchronize(self._ordinal)  # what still runs would disturb the times
        search = Search(effort="quick", objective=self._objective).limited()
        try:
            shapes.tune_shapes(missing, search, f"gpu:{self._ordinal}")
        except AutotuneError as error:
            warnings.warn(f"{len(missing)} products are not raced: {error}", stacklevel=2)
        for problem in missing:
            runtime.current().forget(problem)
        self._records = Records(Store(settings.cache_dir()))

    def choice(self, problem: Problem, any_m: bool) -> ProductChoice:
        """The choice for a product; with `any_m` the kernel may gain at another recorded M."""
        key = problem, any_m
        if key not in self._choices:
            self._choices[key] = self._chosen(problem, any_m)
        return self._choices[key]

    def _chosen(self, problem: Problem, any_m: bool) -> ProductChoice:
        choice = self._compared(problem)
        if choice.why is None or not any_m:
            return choice
        for record in self._records.records(self._device):
            if replace(record.problem, m=problem.m) == problem:
                further = self._compared(record.problem)
                if further.why is None:
                    return further
        return choice

    def _compared(self, problem: Problem) -> ProductChoice:
        answer = self._measured(problem)
        if answer is None:
            find = finder(settings.mode())
            answer = find(problem, self._device, self._records, self._objective)
        if answer is None:
            return ProductChoice(problem, why=UNKNOWN)
        record, entry, estimate = answer.record, answer.entry, answer.objective.estimate
        if answer.how not in ("exact", "range") or record is None or entry is None:
            choice = ProductChoice(problem, answer.time_us, answer.vendor_us)
            why = FASTER if answer.vendor else why_too_little(choice.gain, self._min_gain)
            return replace(choice, why=why)
        ours = estimate(entry.measurement)
        cublas = record.baseline and estimate(record.baseline)
        if ours is None:
            return ProductChoice(problem, answer.time_us, why=NOT_TIMED)
        why = why_kept(record, ours, cublas, self._min_gain)
        return ProductChoice(problem, ours.time_us, cublas.time_us if cublas else None, why)

    def _measured(self, problem: Problem) -> Answer | None:
        """The recorded answer; without one, that of the product without its bias, which costs a
        kernel next to nothing."""
        epilogue = problem.epilogue
        plain = Epilogue(activation=epilogue.activation, residual=epilogue.residual)
        for asked in (problem, replace(problem, epilogue=plain)):
            answer = recorded(asked, self._device, self._records, self._objective)
            if answer is not None and answer.record and answer.record.evidence == "measured":
                return answer
        return None
