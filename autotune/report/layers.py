"""The table of a model's linear layers: where tuned kernels gain, by recorded times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from rich.console import Group, RenderableType
from rich.text import Text

from autotune.device import Device
from autotune.lookup.answer import Answer
from autotune.lookup.lookup import recorded
from autotune.measure.measurement import Timed, tied
from autotune.problem import Epilogue, Problem
from autotune.records import Record, Records, Store
from autotune.records.ranges import Range
from autotune.report import cell, gain
from autotune.report.tables import FittedTable

NOTE = "gain: cuBLAS's time over the tuned kernel's, less 1"
FASTER, TIE, UNKNOWN = "cuBLAS is faster", "a tie", "no record"
NOT_TIMED = "cuBLAS was not timed"


@dataclass(frozen=True)
class Layer:
    """Linear layers of one shape, `x W^T + bias`.

    Attributes:
        names: their names in the model.
        outputs: N.
        inputs: K.
        compute: the precision, or the name of the weights' type if no kernel takes it.
        bias: whether they have one.
    """

    names: tuple[str, ...]
    outputs: int
    inputs: int
    compute: str
    bias: bool

    def problems(self, m: int) -> tuple[Problem, ...]:
        """The layers' GEMM with `m` rows of x, and the same without its bias, which costs a kernel
        next to nothing.

        Raises:
            ProblemError: if `m` is not a possible size.
        """
        plain = Problem(m, self.outputs, self.inputs, self.compute, "nt")  # as x @ weight.t() is
        return (replace(plain, epilogue=Epilogue(bias=True)), plain) if self.bias else (plain,)


@dataclass(frozen=True)
class Row:
    """Linear layers of one shape with one number of rows of x.

    Attributes:
        layer: the layers.
        m: rows of x; None if no number of rows is recorded.
        problem: the problem whose record decided; None if there is none.
        ours_us: microseconds of the fastest kernel recorded for it.
        cublas_us: microseconds of cuBLAS.
        replaced: whether tuned kernels replace these layers.
        why: why they do not, or not for this M; None if the kernel gains enough.
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
        """Gain of the tuned kernel over cuBLAS, 0.25 = 25 %; below 0 it is slower."""
        return gain(self.cublas_us, self.ours_us)


@dataclass(frozen=True)
class Report:
    """The report of replaced linear layers, with the reason for each layer that was kept.

    Attributes:
        devices: names of the GPUs that hold the layers.
        rows: one for each shape and number of rows, the layers of a shape one after the other.
    """

    devices: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def replaced(self) -> tuple[str, ...]:
        """Names of the layers that tuned kernels serve."""
        return self._names(True)

    @property
    def kept(self) -> tuple[str, ...]:
        """Names of the unchanged layers."""
        return self._names(False)

    def _names(self, replaced: bool) -> tuple[str, ...]:
        names = (name for row in self.rows if row.replaced == replaced for name in row.layer.names)
        return tuple(dict.fromkeys(names))


@dataclass(frozen=True)
class LayerRecords:
    """The measured problems and tuned ranges of a device, by which its layers are compared."""

    device: Device
    records: Records
    problems: frozenset[Problem]
    ranges: tuple[Range, ...]

    @classmethod
    def on(cls, device: Device, store: Store) -> LayerRecords:
        """The records on a device, of the store and of the package."""
        records = Records(store)
        measured = frozenset(
            record.problem for record in records.records(device) if record.evidence == "measured"
        )
        return cls(device, records, measured, records.ranges(device))

    def answer(self, layer: Layer, m: int) -> Answer | None:
        """The recorded answer for layers with `m` rows; None if nothing was measured."""
        for problem in layer.problems(m):
            if problem in self.problems or any(tuned.point(problem) for tuned in self.ranges):
                answer = recorded(problem, self.device, self.records)
                if answer is not None:
                    return answer
        return None


def compare_layer(
    layer: Layer, row_counts: Iterable[int] | None, records: LayerRecords, min_gain: float
) -> tuple[Row, ...]:
    """The layers with each number of rows; all are replaced if one number gains enough.

    Args:
        layer: the layers.
        row_counts: values of M; None takes all that are recorded.
        records: measured records.
        min_gain: least gain over cuBLAS, 0.05 = 5 %.
    """
    if row_counts is None:
        row_counts = sorted({p.m for p in records.problems if p in layer.problems(p.m)})
    rows = [_row(layer, m, records.answer(layer, m), min_gain) for m in row_counts]
    if not rows:
        return (Row(layer, why=UNKNOWN),)
    gains = any(row.why is None for row in rows)
    return tuple(replace(row, replaced=gains) for row in rows)


def _row(layer: Layer, m: int, answer: Answer | None, min_gain: float) -> Row:
    record, entry = (answer.record, answer.entry) if answer else (None, None)
    if record is None or entry is None or record.evidence != "measured":
        return Row(layer, m, why=UNKNOWN)
    ours, cublas = entry.measurement, record.baseline
    why = why_kept(record, ours, cublas, min_gain)
    return Row(layer, m, record.problem, ours.time_us, cublas.time_us if cublas else None, why=why)


def why_kept(record: Record, ours: Timed, cublas: Timed | None, min_gain: float) -> str | None:
    """Why a record leaves its problem to cuBLAS; None if the kernel gains enough, or cuBLAS was
    wrong."""
    if cublas is None:
        return None if record.provenance.baseline_fault else NOT_TIMED
    if tied(ours, cublas):
        return TIE
    return why_too_little(gain(cublas.time_us, ours.time_us), min_gain)


def why_too_little(gain: float | None, min_gain: float) -> str | None:
    """Why a gain over cuBLAS is too little; None if it is not."""
    if gain is None:
        return UNKNOWN
    if gain <= 0:
        return FASTER
    return f"gain below {min_gain:.0%}" if gain < min_gain else None


def layer_table(report: Report) -> RenderableType:
    """A line for each shape and number of rows, with the reason why layers are kept."""
    replaced, kept = len(report.replaced), len(report.kept)
    title = Text(f"{replaced} of {replaced + kept} linear layers replaced", style="bold")
    if report.devices:
        title.append(f" on {', '.join(report.devices)}")
    if not report.rows:
        return title
    table = _table("layers", ("M", "N", "K", "type", "ours", "cuBLAS", "gain"))
    for row in report.rows:
        table.add_row(*_cells(row), style=None if row.replaced else "dim")
    return Group(title, table, Text(NOTE, style="dim"))


def _table(first: str, figures: Sequence[str]) -> FittedTable:
    """An empty table of layers: their names, a column for each figure, and the outcome."""
    table = FittedTable()
    table.add(first, kind="prose")
    table.add(*figures)
    table.add("", kind="prose", worth=-0.5)
    return table


def _cells(row: Row) -> tuple[str, ...]:
    layer = row.layer
    # A model that is itself a linear layer has no name.
    first, count = layer.names[0] or "the model", len(layer.names)
    return (
        first if count == 1 else f"{count}: {first}, ...",
        cell(row.m, "{}"),
        *(str(layer.outputs), str(layer.inputs), layer.compute),
        cell(row.ours_us, "{:.1f} us"),
        cell(row.cublas_us, "{:.1f} us"),
        cell(row.gain, "{:+.1%}"),
        _outcome(row),
    )


def _outcome(row: Row) -> str:
    point = row.problem.m if row.problem else row.m
    times = "" if point == row.m else f" (times of M={point})"
    if not row.replaced:
        return f"kept: {row.why}{times}"
    if row.why is None:
        return f"replaced{times}"
    remark = "but cuBLAS serves this M" if row.why == FASTER else row.why
    return f"replaced, {remark}{times}"


QUANTIZED_NOTE = (
    "gain: PyTorch's time over the quantised layer's, input quantisation included, less 1; "
    "error: of the layer's result, relative to PyTorch's"
)


@dataclass(frozen=True)
class QuantizedRow:
    """A linear layer.

    Attributes:
        name: its name in the model.
        outputs: N.
        inputs: K.
        m: rows of the sample; None if it was not run.
        plain_us: microseconds of PyTorch's layer.
        quantized_us: microseconds of the quantised layer, with the quantisation of its input.
        error: error of its result, by the Frobenius norm, relative to PyTorch's.
        replaced: whether it is quantised now.
        why: why it is not.
    """

    name: str
    outputs: int
    inputs: int
    m: int | None = None
    plain_us: float | None = None
    quantized_us: float | None = None
    error: float | None = None
    replaced: bool = False
    why: str | None = None

    @property
    def gain(self) -> float | None:
        """Gain over PyTorch's layer, 0.25 = 25 %."""
        return gain(self.plain_us, self.quantized_us)


@dataclass(frozen=True)
class QuantizedReport:
    """The report of quantised linear layers, with the reason for each layer that was kept.

    Attributes:
        compute: their precision.
        scale: the granularity of their scales.
        rows: one for each layer.
    """

    compute: str
    scale: str
    rows: tuple[QuantizedRow, ...]

    @property
    def replaced(self) -> tuple[str, ...]:
        """Names of the quantised layers."""
        return tuple(row.name for row in self.rows if row.replaced)

    @property
    def kept(self) -> tuple[str, ...]:
        """Names of the unchanged layers."""
        return tuple(row.name for row in self.rows if not row.replaced)


def quantized_table(report: QuantizedReport) -> RenderableType:
    """A line for each layer, with the reason why it is kept."""
    count = f"{len(report.replaced)} of {len(report.rows)} linear layers quantised"
    title = Text(f"{count} to {report.compute}, scale {report.scale}", style="bold")
    if not report.rows:
        return title
    table = _table("layer", ("M", "N", "K", "PyTorch", "quantised", "gain", "error"))
    for row in report.rows:
        table.add_row(
            row.name or "the model",
            cell(row.m, "{}"),
            *(str(row.outputs), str(row.inputs)),
            cell(row.plain_us, "{:.1f} us"),
            cell(row.quantized_us, "{:.1f} us"),
            cell(row.gain, "{:+.1%}"),
            cell(row.error, "{:.2%}"),
            "quantised" if row.replaced else f"kept: {row.why}",
            style=None if row.replaced else "dim",
        )
    return Group(title, table, Text(QUANTIZED_NOTE, style="dim"))
