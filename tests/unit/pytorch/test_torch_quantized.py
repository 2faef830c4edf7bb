"""Quantised tensors and linear layers, on the CPU."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.quantising import quantised as quantised_by_numpy

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode  # noqa: E402

import autotune.torch  # noqa: E402
from autotune import runtime  # noqa: E402
from autotune.errors import ArrayError, UsageError  # noqa: E402
from autotune.settings import Policy  # noqa: E402
from autotune.torch import operator, scaled  # noqa: E402
from autotune.torch.linear import PatchedLinear, Quantization, patched, unpatched  # noqa: E402
from autotune.torch.scaled import quantize, quantize_weight  # noqa: E402

scaled_mm = autotune.torch.scaled_mm
TYPES = {torch.float8_e4m3fn: 0.07, torch.float8_e5m2: 0.14, torch.int8: 0.02}


@pytest.fixture(autouse=True)
def anew() -> None:
    torch.manual_seed(0)


def expanded(scales: Any, scale: str, shape: tuple[int, int]) -> Any:
    """The scale of each element of a matrix that `quantize` made."""
    if scale == "row":
        return scales[:, None].expand(shape)
    if scale == "tensor":
        return scales.expand(shape)
    return scales.repeat_interleave(128, 0)[: shape[1]].t()


@pytest.mark.parametrize("scale", ["row", "tensor", "block"])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_quantised_numbers_are_near(dtype: Any, scale: str) -> None:
    x = torch.randn(5, 300)
    x[2] = 0
    q, scales = quantize(x, scale, dtype)
    assert (q.dtype, q.shape, scales.dtype) == (dtype, x.shape, torch.float32)
    assert scales.shape == {"row": (5,), "tensor": (1,), "block": (3, 5)}[scale]
    back = q.float() * expanded(scales, scale, (5, 300))
    assert (back - x).norm() / x.norm() < TYPES[dtype]
    assert bool((back[2] == 0).all())


@pytest.mark.parametrize("scale", ["row", "tensor", "block"])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_bits_are_those_of_the_kernel(dtype: Any, scale: str) -> None:
    x = torch.randn(9, 300) * 2.0 ** torch.arange(-40, 50, 10)[:, None]
    x[0] = 0
    x[1, 5], x[2, 7], x[3, :3] = float("inf"), float("nan"), torch.tensor([1e-45, -3e-45, 0])
    x[4, 100], x[5, 4] = -3.4e38, -float("inf")
    q, scales = quantize(x, scale, dtype)
    element = {torch.float8_e4m3fn: "e4m3", torch.float8_e5m2: "e5m2"}.get(dtype, "i8")
    codes, wanted = quantised_by_numpy(x.numpy()[None], element, scale)
    assert (scales.numpy() == wanted[0]).all()
    is_nan = np.isnan(x.numpy())
    assert (q.view(torch.uint8).numpy() == codes[0])[~is_nan].all()
    assert bool((q.float()[2, 7] == 0) if element == "i8" else q.float()[2, 7].isnan())


@pytest.mark.parametrize("scale", ["row", "tensor", "block"])
def test_operator_has_a_fake_implementation(scale: str) -> None:
    for x in (torch.randn(5, 300, dtype=torch.bfloat16), torch.randn(0, 300)):
        with FakeTensorMode() as mode:
            faked = quantize(mode.from_tensor(x), scale, torch.int8)
        for fake, result in zip(faked, quantize(x, scale, torch.int8), strict=True):
            assert isinstance(fake, FakeTensor)
            assert (fake.shape, fake.dtype) == (result.shape, result.dtype)
            assert fake.stride() == result.stride()


def test_gpu_gets_rows_that_the_kernel_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def quantizer(x: Any, dtype: Any, scale: str, out: None) -> tuple[Any, Any]:
        assert x.stride(1) == 1
        assert not x.requires_grad
        assert out is None
        seen.append(x)
        return scaled.quantize_by_torch(x, scale, dtype)

    monkeypatch.setattr(runtime, "current", lambda: SimpleNamespace(runtime=None))
    monkeypatch.setattr(scaled, "quantizer", lambda _: quantizer)
    rows = torch.randn(5, 300, dtype=torch.bfloat16)
    for x in (rows, rows[:, :128], rows.t().contiguous().t(), rows.clone().requires_grad_()):
        q, scales = scaled.quantize_on_gpu(x, "row", torch.int8)
        wanted = quantize(x, "row", torch.int8)
        assert torch.equal(q, wanted[0])
        assert torch.equal(scales, wanted[1])
    assert seen[1].data_ptr() == rows.data_ptr()
    for x in (rows.double(), rows[:0]):
        scaled.quantize_on_gpu(x, "row", torch.int8)
    assert len(seen) == 4


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_weights_have_scales_of_square_blocks(dtype: Any) -> None:
    weight = torch.randn(200, 300)
    q, scales = quantize_weight(weight, "block", dtype)
    assert scales.shape == (2, 3)
    back = q.float() * scales.repeat_interleave(128, 0).repeat_interleave(128, 1)[:200, :300]
    assert (back - weight).norm() / weight.norm() < TYPES[dtype]


def test_unknown_words_are_refused() -> None:
    with pytest.raises(UsageError, match="scale is 'column'; give row, tensor or block"):
        quantize(torch.ones(2, 2), "column")
    with pytest.raises(UsageError, match=r"dtype is torch\.float16; give one of torch\.float8"):
        quantize(torch.ones(2, 2), dtype=torch.float16)
    with pytest.raises(UsageError, match="compute is bf16, scale row; give f8, f8e5 or i8"):
        Quantization("bf16", "row")


@pytest.mark.parametrize("scale", ["row", "tensor", "block"])
def test_scaled_mm_multiplies_the_scales(scale: str) -> None:
    a, b = torch.randn(5, 300), torch.randn(200, 300)
    (q, of_a), (w, of_b) = quantize(a, scale), quantize_weight(b, scale, torch.float8_e4m3fn)
    if scale == "row":
        of_a, of_b = of_a[:, None], of_b[None]
    elif scale == "block":
        of_a, of_b = of_a.t(), of_b.t()
    bias = torch.randn(200)
    result = scaled_mm(q, w.t(), of_a, of_b, bias, torch.float32)
    wanted = a @ b.t() + bias
    assert (result - wanted).norm() / wanted.norm() < 0.1


@pytest.mark.parametrize("scale", ["row", "tensor", "block"])
@pytest.mark.parametrize("compute", ["f8", "f8e5", "i8", None])
def test_scaled_mm_quantises_its_input(compute: str | None, scale: str) -> None:
    a, weight = torch.randn(5, 300, dtype=torch.bfloat16), torch.randn(200, 300)
    w, of_b = quantize_weight(weight, scale, torch.int8 if compute == "i8" else torch.float8_e4m3fn)
    types = {"i8": torch.int8, "f8e5": torch.float8_e5m2}
    q, of_a = quantize(a, scale, types.get(compute or "f8", torch.float8_e4m3fn))
    if scale == "row":
        of_a, of_b = of_a[:, None], of_b[None]
    elif scale == "block":
        of_a, of_b = of_a.t(), of_b.t()
    result = scaled_mm(a, w.t(), None, of_b, compute=compute)
    assert torch.equal(result, scaled_mm(q, w.t(), of_a, of_b))


def test_gpu_gets_the_input_with_the_scales_of_b(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def multiply(a: Any, b: Any, **options: Any) -> Any:
        calls.append((a, options))
        if not a.is_contiguous():
            raise ArrayError("strides")
        return torch.empty(a.shape[0], b.shape[1], dtype=options["out_dtype"])

    monkeypatch.setattr(runtime, "current", lambda: multiply)
    a, weight = torch.randn(300, 5, dtype=torch.bfloat16).t(), torch.randn(200, 300)
    w, of_b = quantize_weight(weight, "block", torch.float8_e4m3fn)
    result = scaled.on_gpu(
        scaled.ScaledProduct(
            *(a, w.t(), None, of_b.t()), use_fast_accum=True, compute="f8e5", dependent=True
        )
    )
    assert (result.shape, result.dtype) == ((5, 200), torch.bfloat16)
    refused, copied = calls
    assert refused[0].data_ptr() == a.data_ptr()
    options = copied[1]
    assert torch.equal(options["scale_b"], of_b)
    assert options["scale_a"] is options["bias"] is None
    given = {name: options[name] for name in ("compute", "accumulate", "policy")}
    assert given == {"compute": "f8e5", "accumulate": "fast", "policy": Policy(dependent=True)}


def test_input_that_cannot_be_quantised_is_refused() -> None:
    q, one = torch.ones(3, 4).to(torch.float8_e4m3fn), torch.ones(1)
    with pytest.raises(ArrayError, match="scale_a and scale_b belong together"):
        scaled_mm(q, q.t(), None, one)
    with pytest.raises(ArrayError, match="B is float8_e4m3fn; i8 quantises A alone"):
        scaled_mm(torch.ones(3, 4), q.t(), None, one, compute="i8")
    with pytest.raises(ArrayError, match=r"scale_b is \(1, 7\); a B of \(4, 3\) takes one number"):
        scaled_mm(torch.ones(3, 4), q.t(), None, torch.ones(1, 7))


def test_scaled_mm_refuses_operands_that_do_not_fit() -> None:
    q = torch.ones(3, 4).to(torch.float8_e4m3fn)
    one = torch.ones(1)
    with pytest.raises(ArrayError, match="the inner sizes 4 and 3 differ"):
        scaled_mm(q, q, one, one)
    with pytest.raises(ArrayError, match=r"bias is \(4,\); the product has 3 columns"):
        scaled_mm(q, q.t(), one, one, torch.ones(4))


def test_scaled_mm_is_compiled_by_inductor() -> None:
    """The code that PyTorch generates around the operator gives what the operator gives."""
    q = torch.randn(16, 32).to(torch.float8_e4m3fn)
    x, one, fp8 = torch.randn(16, 32), torch.ones(1), torch.float8_e4m3fn

    def plain(q: Any) -> Any:
        return scaled_mm(q, q.t(), one, one).relu()

    def quantising(x: Any) -> Any:
        return scaled_mm(x, q.t(), None, one).relu()

    def with_fp8_result(q: Any, amax: Any) -> Any:
        return scaled_mm(q, q.t(), one, one, out_dtype=fp8, scale_result=one / 2, amax=amax)

    assert torch.equal(torch.compile(plain, fullgraph=True)(q), plain(q))
    assert torch.equal(torch.compile(quantising, fullgraph=True)(x), quantising(x))
    amax, wanted = torch.zeros(1), torch.zeros(1)
    result = torch.compile(with_fp8_result, fullgraph=True)(q, amax)
    assert torch.equal(result.float(), with_fp8_result(q, wanted).float())
    assert amax == wanted > 0


@pytest.mark.parametrize("compute", ["f8", "f8e5", "i8"])
@pytest.mark.parametrize("shape", [(4, 256), (2, 3, 256), (256,)], ids=str)
def test_quantised_layer_is_near_the_layer(compute: str, shape: tuple[int, ...]) -> None:
    layer = nn.Linear(256, 64, dtype=torch.bfloat16).eval()
    before = dict(layer.state_dict())
    x = torch.randn(shape, dtype=torch.bfloat16)
    wanted = layer(x)
    patched([layer], None, Quantization(compute, "row"))
    result = layer(x)
    assert isinstance(layer, PatchedLinear)
    assert (result.dtype, result.shape) == (torch.bfloat16, wanted.shape)
    assert (result - wanted).norm() / wanted.norm() < 0.1
    assert not torch.equal(result, wanted)
    assert layer.state_dict().keys() == before.keys()
    unpatched(layer)
    assert type(layer) is nn.Linear
    assert torch.equal(layer(x), wanted)
    assert list(layer.buffers()) == []


def test_quantised_layer_is_compiled_without_a_graph_break() -> None:
    layer = nn.Linear(256, 64, dtype=torch.bfloat16).eval()
    patched([layer], None, Quantization("f8", "row"))
    compiled = torch.compile(layer, fullgraph=True, backend="eager")
    x = torch.randn(4, 256, dtype=torch.bfloat16)
    with torch.no_grad():
        assert torch.equal(compiled(x), layer(x))


def test_layer_in_training_is_not_quantised() -> None:
    layer = nn.Linear(256, 64, dtype=torch.bfloat16)
    x = torch.randn(4, 256, dtype=torch.bfloat16)
    wanted = layer(x)
    patched([layer], None, Quantization("f8", "row"))
    assert torch.equal(layer(x), wanted)
    layer(x).sum().backward()
    assert layer.weight.grad is not None


def test_layer_passes_its_policy_on(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Policy] = []

    def multiply(a: Any, b: Any, **options: Any) -> Any:
        assert options["scale_b"] is not None
        seen.append(options["policy"])
        return torch.empty(a.shape[0], b.shape[1], dtype=options["out_dtype"])

    monkeypatch.setattr(runtime, "current", lambda: multiply)
    library = torch.library.Library("autotune", "IMPL")
    on_gpu = operator.called_with(scaled.ScaledProduct, scaled.on_gpu)
    library.impl("scaled_mm", on_gpu, "CPU", allow_override=True)
    for policy in (None, Policy(dependent=True), Policy(cold=True)):
        layer = nn.Linear(256, 64, dtype=torch.bfloat16).eval()
        patched([layer], policy, Quantization("f8", "row"))
        with autotune.policy(vendor=False):
            layer(torch.randn(4, 256, dtype=torch.bfloat16))
    library._destroy()
    assert seen == [Policy(vendor=False), Policy(dependent=True), Policy(cold=True)]
