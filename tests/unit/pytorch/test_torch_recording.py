"""`autotune.torch.recording`: the shapes that a model runs, and `patch` by them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from io import StringIO
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

import autotune.torch  # noqa: E402
from autotune import Shapes  # noqa: E402
from autotune.problem import Problem  # noqa: E402
from autotune.torch.patching import checked_rows, rows_of  # noqa: E402

F: Any = nn.functional


def noted(run: Callable[[], Any]) -> dict[str, int]:
    with autotune.torch.recording() as shapes:
        run()
    return {str(problem): count for problem, count in shapes.items()}


def drawn(*shape: int, dtype: Any = torch.float32) -> Any:
    return torch.ones(shape, dtype=dtype)


class Conv1D(nn.Module):  # type: ignore[misc]
    """The linear layer of GPT-2: its weight is stored as (inputs, outputs)."""

    def __init__(self, outputs: int, inputs: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(drawn(inputs, outputs)), nn.Parameter(drawn(outputs))

    def forward(self, x: Any) -> Any:
        rows = torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight)
        return rows.view(*x.shape[:-1], -1)


CALLS: dict[str, tuple[Callable[[], Any], dict[str, int]]] = {
    "mm": (lambda: torch.mm(drawn(3, 5), drawn(5, 6)), {"3x6x5:f32:nn": 1}),
    "mm of a transposed view": (
        lambda: torch.mm(drawn(3, 5), drawn(6, 5).t()),
        {"3x6x5:f32:nt": 1},
    ),
    "mm with an output": (
        lambda: torch.mm(drawn(3, 5), drawn(5, 6), out=drawn(3, 6)),
        {"3x6x5:f32:nn": 1},
    ),
    "mm of strides that are copied": (
        lambda: torch.mm(drawn(3, 10)[:, ::2], drawn(5, 6)),
        {"3x6x5:f32:nn": 1},
    ),
    "addmm with a bias": (
        lambda: torch.addmm(drawn(6), drawn(3, 5), drawn(5, 6)),
        {"3x6x5:f32:nn:bias": 1},
    ),
    "addmm with a matrix": (
        lambda: torch.addmm(drawn(3, 6), drawn(3, 5), drawn(5, 6)),
        {"3x6x5:f32:nn": 1},
    ),
    "bmm": (lambda: torch.bmm(drawn(2, 3, 5), drawn(2, 5, 6)), {"3x6x5:f32:nn:batch=2": 1}),
    "baddbmm": (
        lambda: torch.baddbmm(drawn(2, 3, 6), drawn(2, 3, 5), drawn(2, 5, 6)),
        {"3x6x5:f32:nn:batch=2": 1},
    ),
    "matmul of heads": (lambda: drawn(2, 4, 3, 5) @ drawn(2, 4, 5, 6), {"3x6x5:f32:nn:batch=8": 1}),
    "linear": (lambda: F.linear(drawn(2, 3, 5), drawn(6, 5)), {"6x6x5:f32:nt": 1}),
    "a linear layer": (lambda: nn.Linear(5, 6)(drawn(2, 3, 5)), {"6x6x5:f32:nt:bias": 1}),
    "Conv1D of GPT-2": (lambda: Conv1D(6, 5)(drawn(2, 3, 5)), {"6x6x5:f32:nn:bias": 1}),
    "int8": (
        lambda: torch._int_mm(drawn(32, 64, dtype=torch.int8), drawn(64, 32, dtype=torch.int8)),
        {"32x32x64:i8:nn:out=i32": 1},
    ),
    "the operator": (
        lambda: autotune.torch.mm(drawn(3, 5), drawn(5, 6), drawn(6), "gelu"),
        {"3x6x5:f32:nn:bias_gelu": 1},
    ),
    "the operator with a residual": (
        lambda: autotune.torch.mm(
            drawn(3, 5, dtype=torch.bfloat16),
            drawn(5, 6, dtype=torch.bfloat16),
            drawn(6, dtype=torch.bfloat16),
            residual=drawn(3, 6, dtype=torch.bfloat16),
        ),
        {"3x6x5:bf16:nn:bias_residual": 1},
    ),
    "scaled_mm": (
        lambda: autotune.torch.scaled_mm(
            drawn(32, 64).to(torch.float8_e4m3fn),
            drawn(48, 64).to(torch.float8_e4m3fn).t(),
            drawn(32, 1),
            drawn(1, 48),
            use_fast_accum=True,
        ),
        {"32x48x64:f8:nt:scale=row:fast": 1},
    ),
    "scaled_mm with a residual": (
        lambda: autotune.torch.scaled_mm(
            drawn(32, 64).to(torch.float8_e4m3fn),
            drawn(64, 48).to(torch.float8_e4m3fn),
            drawn(1),
            drawn(1),
            residual=drawn(32, 48, dtype=torch.bfloat16),
        ),
        {"32x48x64:f8:nn:residual:scale=tensor": 1},
    ),
    "scaled_mm with an fp8 result": (
        lambda: autotune.torch.scaled_mm(
            drawn(32, 64).to(torch.float8_e4m3fn),
            drawn(64, 48).to(torch.float8_e4m3fn),
            *(drawn(1), drawn(1)),
            out_dtype=torch.float8_e5m2,
            scale_result=drawn(1),
            amax=torch.zeros(1),
        ),
        {"32x48x64:f8:nn:scale=tensor:out=e5m2": 1},
    ),
    "scaled_mm of an input to quantise": (
        lambda: autotune.torch.scaled_mm(
            *(drawn(32, 64), drawn(48, 64).to(torch.float8_e4m3fn).t(), None, drawn(1, 48)),
            compute="f8e5",
            use_fast_accum=True,
        ),
        {"32x48x64:f8e5:nt:scale=row:fast": 1},
    ),
    "an empty product": (lambda: torch.mm(drawn(0, 5), drawn(5, 6)), {}),
    "another type": (lambda: torch.mm(drawn(3, 5).double(), drawn(5, 6).double()), {}),
}


@pytest.mark.parametrize(("run", "expected"), CALLS.values(), ids=CALLS)
def test_products_are_noted(run: Callable[[], Any], expected: dict[str, int]) -> None:
    assert noted(run) == expected


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_layers_are_noted_in_every_mode(mode: Callable[[], Any]) -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4, bias=False))

    def run() -> None:
        with mode():
            for _ in range(3):
                model(drawn(2, 3, 8))

    assert noted(run) == {"6x16x8:f32:nt:bias": 3, "6x4x16:f32:nt": 3}


def test_results_are_those_without_recording() -> None:
    model, x = nn.Linear(8, 16), torch.randn(2, 3, 8)
    with torch.inference_mode():
        expected = model(x)
        with autotune.torch.recording():
            assert torch.equal(model(x), expected)


def test_backward_passes_are_noted() -> None:
    layer, x = nn.Linear(8, 16, bias=False), torch.randn(3, 8, requires_grad=True)
    counts = noted(lambda: layer(x).sum().backward())
    assert [text.partition(":")[0] for text in counts] == ["3x16x8", "16x8x3", "3x8x16"]


def test_models_without_memory_are_noted() -> None:
    with torch.device("meta"):
        layer, x = nn.Linear(8, 16, dtype=torch.bfloat16), torch.empty(5, 8, dtype=torch.bfloat16)
    assert noted(lambda: layer(x)) == {"5x16x8:bf16:nt:bias": 1}


def test_autocast_products_are_noted_in_its_type() -> None:
    def run() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            torch.mm(drawn(3, 5), drawn(5, 6))

    assert noted(run) == {"3x6x5:bf16:nn": 1}


@pytest.mark.skipif("dtype" not in torch.ops.aten.mm.overloads(), reason="needs PyTorch 2.8")
def test_wider_outputs_are_noted() -> None:
    a = torch.empty(3, 5, dtype=torch.bfloat16, device="meta")
    run = partial(torch.mm, a, a.t(), out_dtype=torch.float32)
    assert noted(run) == {"3x3x5:bf16:nt:out=f32": 1}


def test_fake_models_are_noted() -> None:
    with FakeTensorMode():
        x, weight, bias = (torch.empty(size, device="cuda") for size in ((3, 5), (6, 5), (6,)))
        assert noted(lambda: F.linear(x, weight, bias)) == {"3x6x5:f32:nt:bias": 1}


def test_nothing_is_noted_afterwards() -> None:
    with autotune.torch.recording() as shapes:
        pass
    torch.mm(drawn(3, 5), drawn(5, 6))
    assert shapes == {}


# Rows of layers, for `patch`.


def test_layer_takes_its_own_rows() -> None:
    from autotune.report.layers import Layer

    layer = Layer(("up", "down"), 96, 32, "bf16", True)
    bias, plain = layer.problems(16)
    shapes = Shapes({bias: 3, plain: 2, layer.problems(2048)[0]: 1, Problem(5, 96, 40): 9})
    assert rows_of(shapes, layer) == {16: 5, 2048: 1}
    assert rows_of((4, 8), layer) == {4: 2, 8: 2}
    assert rows_of(None, layer) is None


def test_shapes_are_rows_of_patch() -> None:
    shapes = Shapes()
    assert checked_rows(shapes) is shapes


def test_layer_that_did_not_run_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    from support.sample_records import H100

    from autotune import runtime
    from autotune.torch import patching

    monkeypatch.setattr(runtime, "probe", lambda _: H100)
    monkeypatch.setattr(patching, "_ordinal", lambda _: 0)
    report: Any = autotune.torch.patch(nn.Linear(8, 16), Shapes(), file=StringIO())
    assert [row.why for row in report.rows] == ["not among the shapes"]
