"""The script that times batch-invariant kernels, and the table that the documents have of it."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from batch_invariant import (
    CHECKED,
    CUBLAS,
    FREE,
    OURS,
    ROWS,
    TRITON,
    WORKSPACE,
    Side,
    markdown,
    summary,
    timed,
)

US = {OURS: 10.0, CUBLAS: 9.0, WORKSPACE: 12.0, TRITON: 20.0}


def row(
    compute: str, us: dict[str, float], differing: dict[str, int] | None = None
) -> dict[str, Any]:
    times = {name: {"us": time, "spread_us": 0.1} for name, time in us.items()}
    return {
        "compute": compute,
        "layer": [4096, 4096],
        "order": "wgmma bf16 swap=1 shared 4096",
        "checked": 13,
        "differing": dict.fromkeys(us, 0) | (differing or {}),
        "times": {str(m): times for m in ROWS},
    }


LAYERS = [
    row("bf16", US, {CUBLAS: 9}),
    row("bf16", US | {CUBLAS: 16.0}, {CUBLAS: 2}),
    row("f8", US | {FREE: 5.0}),
]


def test_summary_has_times_over_ours_and_counts_of_other_bits() -> None:
    found = summary(LAYERS)
    assert {*found["bf16"]} == {CUBLAS, WORKSPACE, TRITON}
    assert found["bf16"][CUBLAS]["geomean"] == pytest.approx(1.2)
    assert found["bf16"][CUBLAS]["by_rows"] == dict.fromkeys(ROWS, pytest.approx(1.2))
    assert found["bf16"][CUBLAS]["differing"] == 11
    assert found["f8"][FREE]["geomean"] == pytest.approx(0.5)


def test_table_has_a_column_for_each_kernel() -> None:
    head, _, *lines = markdown(LAYERS)
    assert head.split(" | ")[1:] == [
        "cuBLAS, free choice",
        "cuBLAS without split-K",
        "Triton, persistent",
        "ours, any order |",
    ]
    assert len(lines) == 2 * (len(ROWS) + 2)
    assert lines[4] == "| `bf16`, all | **1.20** | **1.20** | **2.00** |  |"
    assert lines[5] == "| `bf16`, other bits | 11 of 26 | 0 of 26 | 0 of 26 |  |"
    assert lines[-1].endswith("| 0 of 13 | 0 of 13 | 0 of 13 | 0 of 13 |")


def test_kernels_take_turns_over_processes() -> None:
    asked: list[str] = []

    def side(word: str, name: str, m: int) -> float:
        assert (word, m) == ("sample", 16)
        asked.append(name)
        return US[name]

    sides: Any = [(side, (OURS, CUBLAS)), (side, (WORKSPACE,))]
    times = timed(sides, 16)
    assert asked[:6] == [OURS, CUBLAS, WORKSPACE, WORKSPACE, OURS, CUBLAS]
    assert {name: item["us"] for name, item in times.items()} == {
        name: US[name] for name in (OURS, CUBLAS, WORKSPACE)
    }


@pytest.fixture
def side(monkeypatch: pytest.MonkeyPatch) -> Side:
    """Kernels on the CPU: one whose bits are fixed, one whose bits depend on the rows."""
    torch = pytest.importorskip("torch")
    made = Side("bf16", 24, 32, (OURS, TRITON), device="cpu")
    a, b, *_ = made.operands
    exact = (a.double() @ b.double().t()).bfloat16()

    def product(name: str, m: int) -> Any:
        nudged = exact[:m] * (1 + 2**-7 if name == TRITON and m < 100 else 1)
        return partial(torch.clone, nudged)

    monkeypatch.setattr(made, "call", product)
    return made


def test_other_bits_are_counted(side: Side) -> None:
    assert side.check() == {OURS: 0, TRITON: sum(m < 100 for m in CHECKED)}


def test_wrong_result_is_refused(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    product = side.call
    wrong = lambda name, m: lambda: product(name, m)() * 1.1  # noqa: E731
    monkeypatch.setattr(side, "call", wrong)
    with pytest.raises(ValueError, match=r"ours has a relative error of 0\.1"):
        side.check()
