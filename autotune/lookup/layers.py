"""Which linear layers gain by a tuned kernel, by what was measured of it beside cuBLAS."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from autotune.device import Device
from autotune.lookup.lookup import Answer, lookup
from autotune.problem import Problem
from autotune.records import Store
from autotune.records.ranges import Range
from autotune.records.shipped import Records
from autotune.runners.estimates import tied

LAYOUT = "nt"
"""Of `x @ weight.t()`: both are stored row by row, the weight as (outputs, inputs)."""

FASTER, TIE, UNKNOWN = "cuBLAS is faster", "a tie", "no record"


@dataclass(frozen=True)
class Layer:
    """Linear layers of one shape, `x W^T + bias`.

    Attributes:
        names: of the layers in their model.
        outputs: N.
        inputs: K.
        compute: the precision, or the name of the weights' type if that is none of a kernel's.
        bias: whether there is one.
    """

    names: tuple[str, ...]
    outputs: int
    inputs: int
    compute: str
    bias: bool

    def problems(self, m: int) -> tuple[Problem, ...]:
        """What the layers multiply with `m` rows of x, and the same without its bias, which costs
        a kernel next to nothing.

        Raises:
            ProblemError: if there can be no so many rows.
        """
        plain = Problem(m, self.outputs, self.inputs, self.compute, LAYOUT)
        return (replace(plain, epilogue="bias"), plain) if self.bias else (plain,)


@dataclass(frozen=True)
class Row:
    """Linear layers of one shape with one number of rows.

    Attributes:
        layer: the layers.
        m: rows of x; None if nothing is known of any.
        problem: whose record decided; None if there is none.
        ours_us: microseconds of our fastest kernel there.
        cublas_us: those of cuBLAS.
        replaced: whether our kernels take the place of these layers.
        why: they do not, or not for this M; None if our kernel gains enough.
    """

    layer: Layer
    m: int | None = None
    problem: Problem | None = None
    ours_us: float | None = None
    cublas_us: float | None = None
    replaced: bool = False
    why: str | None = None

    @property
    def gain(self) -> float | None:
        """How much faster our kernel is, 0.25 = 25 %; below 0 it is slower."""
        if self.ours_us is None or self.cublas_us is None:
            return None
        return self.cublas_us / self.ours_us - 1


@dataclass(frozen=True)
class Report:
    """What became of the linear layers of a model.

    Attributes:
        devices: names of the GPUs that hold the layers.
        rows: one for each shape and number of rows, the layers of a shape one after the other.
    """

    devices: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def replaced(self) -> tuple[str, ...]:
        """Names of the layers that our kernels serve."""
        return tuple(self._names(True))

    @property
    def kept(self) -> tuple[str, ...]:
        """Names of the layers that stay as they were."""
        return tuple(self._names(False))

    def _names(self, replaced: bool) -> Iterator[str]:
        names = (name for row in self.rows if row.replaced == replaced for name in row.layer.names)
        return iter(dict.fromkeys(names))


@dataclass(frozen=True)
class Known:
    """All that is measured on a device."""

    device: Device
    store: Store
    problems: frozenset[Problem]
    ranges: tuple[Range, ...]

    @classmethod
    def on(cls, device: Device, store: Store) -> Known:
        """What the store and the package hold of the device."""
        library = Records(store)
        records = library.records(device)
        measured = frozenset(one.problem for one in records if one.evidence == "measured")
        return cls(device, store, measured, library.ranges(device))

    def answer(self, layer: Layer, m: int) -> Answer | None:
        """What was measured of layers with `m` rows; None if nothing was."""
        for problem in layer.problems(m):
            # A look-up of anything else ends with the model's choice, which takes its time.
            if problem in self.problems or any(one.point(problem) for one in self.ranges):
                answer = lookup(problem, self.device, self.store)
                if answer is not None and answer.how in ("exact", "range"):
                    return answer
        return None

    def rows(self, layer: Layer) -> tuple[int, ...]:
        """The M of which something was measured for such layers, ascending."""
        return tuple(sorted({p.m for p in self.problems if p in layer.problems(p.m)}))


def judged(
    layer: Layer, rows: Iterable[int] | None, known: Known, min_gain: float
) -> tuple[Row, ...]:
    """The layers with each number of rows, all replaced if one of these gains enough.

    Args:
        layer: the layers.
        rows: M; None takes all of which something was measured.
        known: what was measured.
        min_gain: that our kernel has to be faster by, 0.05 = 5 %.
    """
    numbers = known.rows(layer) if rows is None else tuple(rows)
    found = [_row(layer, m, known.answer(layer, m), min_gain) for m in numbers]
    if not found:
        return (Row(layer, why=UNKNOWN),)
    gains = any(row.why is None for row in found)
    return tuple(map(partial(replace, replaced=gains), found))


def _row(layer: Layer, m: int, answer: Answer | None, min_gain: float) -> Row:
    record, entry = (answer.record, answer.entry) if answer else (None, None)
    if record is None or entry is None or record.evidence != "measured":
        return Row(layer, m, why=UNKNOWN)
    ours, cublas = entry.measurement, record.baseline
    if cublas is None:
        return Row(layer, m, record.problem, ours.time_us, why="cuBLAS was not timed")
    row = Row(layer, m, record.problem, ours.time_us, cublas.time_us)
    if tied(ours, cublas):
        return replace(row, why=TIE)
    if cublas.time_us <= ours.time_us:
        return replace(row, why=FASTER)
    gain = cublas.time_us / ours.time_us - 1
    return replace(row, why=f"gain below {min_gain:.0%}" if gain < min_gain else None)
