"""The table of quantised layers."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from autotune.report.layers import QuantizedReport, QuantizedRow, quantized_table

FASTER = QuantizedRow("mlp.up", 14336, 4096, 16, 30.0, 15.0, 0.0321, replaced=True)
SLOWER = QuantizedRow("mlp.down", 4096, 14336, 16, 30.0, 60.0, 0.03, why="gains less than 0%")
UNTIMED = QuantizedRow("head", 128, 64, replaced=True)


def shown(report: QuantizedReport) -> list[str]:
    console = Console(file=StringIO(), width=120)
    console.print(quantized_table(report))
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined, no-any-return]


def test_each_layer_has_its_gain_and_error() -> None:
    title, _, *lines, _, _ = shown(QuantizedReport("f8", "row", (FASTER, SLOWER, UNTIMED)))
    assert title.rstrip() == "2 of 3 linear layers quantised to f8, scale row"
    words = [" ".join(line.split()) for line in lines]
    assert words[0] == "mlp.up 16 14336 4096 30.0 us 15.0 us +100.0% 3.21% quantised"
    assert words[1].endswith("-50.0% 3.00% kept: gains less than 0%")
    assert words[2] == "head 128 64 quantised"


def test_report_names_quantised_and_kept_layers() -> None:
    report = QuantizedReport("f8", "row", (FASTER, SLOWER, UNTIMED))
    assert (report.replaced, report.kept) == (("mlp.up", "head"), ("mlp.down",))


def test_model_without_layers_has_a_title_only() -> None:
    assert len(shown(QuantizedReport("i8", "row", ()))) == 1
