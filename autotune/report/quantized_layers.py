"""The quantised and kept linear layers of a model, as a table."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.text import Text

from autotune.report import cell
from autotune.report.layers import layer_table

NOTE = (
    "gain: PyTorch's time over that of the quantised layer with its input's quantisation, less 1; "
    "error: of its result, relative to PyTorch's"
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
        if self.plain_us is None or self.quantized_us is None:
            return None
        return self.plain_us / self.quantized_us - 1


@dataclass(frozen=True)
class QuantizedReport:
    """Which linear layers of a model were quantised, and why the others were kept.

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


def render(report: QuantizedReport) -> RenderableType:
    """A line for each layer, with the reason why it is kept."""
    count = f"{len(report.replaced)} of {len(report.rows)} linear layers quantised"
    title = Text(f"{count} to {report.compute}, scale {report.scale}", style="bold")
    if not report.rows:
        return title
    table = layer_table("layer", ("M", "N", "K", "PyTorch", "quantised", "gain", "error"))
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
    return Group(title, table, Text(NOTE, style="dim"))
