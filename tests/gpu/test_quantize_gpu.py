"""Quantising on a real GPU: by itself, before a product, compiled and in graphs."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

import autotune
from autotune.errors import ArrayError

pytestmark = pytest.mark.usefixtures("untuned")

GRANULARITIES = ("tensor", "row", "block")
DTYPES = ("float8_e4m3fn", "float8_e5m2", "int8")
# Rows of a warp, of a block, of few and of many rows; odd ones; beyond registers; split.
SHAPES = (
    *((1, 1), (3, 128), (16, 14336), (17, 1000), (300, 4096), (1000, 333), (300, 36000)),
    *((2, 100_000), (5000, 64), (70, 32_776)),
)


@pytest.fixture
def quantized(torch: Any) -> Any:
    """Quantises on the CPU, with the bits that the kernel gives."""
    from autotune.torch.scaled import quantize_by_torch

    torch.manual_seed(0)
    return quantize_by_torch


@pytest.fixture
def products(torch: Any) -> None:
    if torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("needs compute capability 9.0")


def drawn(torch: Any, *shape: int, dtype: str = "bfloat16") -> Any:
    """Normal numbers in which rows differ in size."""
    sizes = 2.0 ** torch.randint(-8, 8, (*shape[:-1], 1), device="cuda")
    return (torch.randn(shape, device="cuda") * sizes).to(getattr(torch, dtype))


def assert_bits(torch: Any, results: tuple[Any, Any], wanted: tuple[Any, Any]) -> None:
    (q, scales), (wanted_q, wanted_scales) = results, wanted
    assert torch.equal(scales.cpu(), wanted_scales)
    assert q.dtype == wanted_q.dtype
    assert torch.equal(q.cpu().view(torch.uint8), wanted_q.view(torch.uint8))


@pytest.mark.parametrize("scale", GRANULARITIES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("source", ["bfloat16", "float16", "float32"])
def test_bits_are_those_of_the_cpu(
    torch: Any, quantized: Any, source: str, dtype: str, scale: str
) -> None:
    target = getattr(torch, dtype)
    for shape in SHAPES:
        x = drawn(torch, *shape, dtype=source)
        assert_bits(torch, autotune.quantize(x, target, scale), quantized(x.cpu(), scale, target))


@pytest.mark.parametrize("scale", GRANULARITIES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_extremes_have_the_bits_of_the_cpu(
    torch: Any, quantized: Any, dtype: str, scale: str
) -> None:
    x = drawn(torch, 9, 4096, dtype="float32")
    x[0] = 0
    x[1], x[2, :9], x[3, 7] = x[1] * 1e-42, float("inf"), -float("inf")
    x[4, 100:200], x[5, 4], x[6] = 3.4e38, float("nan"), -float("inf")
    target = getattr(torch, dtype)
    q, scales = autotune.quantize(x, target, scale)
    wanted = quantized(x.cpu(), scale, target)
    assert torch.equal(scales.cpu(), wanted[1])
    numbers, expected = q.cpu().float(), wanted[0].float()
    assert bool(((numbers == expected) | (numbers.isnan() & expected.isnan())).all())
    assert dtype == "int8" or bool(numbers[5, 4].isnan())
    assert int(numbers.isnan().sum()) == (dtype != "int8")


@pytest.mark.parametrize("scale", ["row", "block"])
def test_views_are_read_from_any_address(torch: Any, quantized: Any, scale: str) -> None:
    whole = drawn(torch, 40, 1100)
    target = torch.float8_e4m3fn
    for skip in range(9):
        x = whole[:, skip : skip + 1000]
        assert_bits(torch, autotune.quantize(x, target, scale), quantized(x.cpu(), scale, target))


@pytest.mark.parametrize("scale", GRANULARITIES)
def test_nothing_is_written_beside_the_results(torch: Any, quantized: Any, scale: str) -> None:
    x = drawn(torch, 37, 1000)
    memory = torch.full((39, 1040), 77, device="cuda", dtype=torch.int8)
    wanted = quantized(x.cpu(), scale, torch.int8)
    numbers = torch.full((wanted[1].numel() + 2,), 5.0, device="cuda")
    scales = numbers[1:-1].view(wanted[1].shape)
    q = memory[1:-1, 16:1016]
    autotune.quantize(x, "int8", scale, out=(q, scales))
    assert_bits(torch, (q, scales), wanted)
    q.fill_(77)
    assert bool((memory == 77).all())
    assert numbers[0] == numbers[-1] == 5


@pytest.mark.parametrize("scale", GRANULARITIES)
def test_batches_are_quantised_matrix_by_matrix(torch: Any, quantized: Any, scale: str) -> None:
    x = drawn(torch, 3, 20, 520)
    q, scales = autotune.quantize(x, "e4m3", scale)
    if scale == "tensor":
        wanted = quantized(x.view(60, 520).cpu(), scale, torch.float8_e4m3fn)
        assert_bits(torch, (q.view(60, 520), scales), wanted)
        return
    for matrix in range(3):
        wanted = quantized(x[matrix].cpu(), scale, torch.float8_e4m3fn)
        assert_bits(torch, (q[matrix], scales[matrix]), wanted)


def test_number_of_the_caller_is_the_scale(torch: Any) -> None:
    x = drawn(torch, 100, 1000)
    scale = torch.tensor([0.5], device="cuda")
    q, scales = autotune.quantize(x, "e4m3", scale)
    assert scales is scale
    wanted = (x.float() * 2).clamp(-448, 448).to(torch.float8_e4m3fn)
    assert torch.equal(q.view(torch.uint8), wanted.view(torch.uint8))


@pytest.mark.parametrize("scale", GRANULARITIES)
def test_runs_give_the_same_bits(torch: Any, quantized: Any, scale: str) -> None:
    del quantized
    x = drawn(torch, 1000, 4096)
    first = autotune.quantize(x, "e4m3", scale)
    for _ in range(50):
        again = autotune.quantize(x, "e4m3", scale)
        assert torch.equal(first[0].view(torch.uint8), again[0].view(torch.uint8))
        assert torch.equal(first[1], again[1])


@pytest.mark.parametrize("scale", GRANULARITIES)
def test_graph_replays_with_new_contents(torch: Any, quantized: Any, scale: str) -> None:
    x = drawn(torch, 100, 4096)
    autotune.quantize(x, "e4m3", scale)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = autotune.quantize(x, "e4m3", scale)
    x.mul_(-3)
    graph.replay()
    torch.cuda.synchronize()
    assert_bits(torch, results, quantized(x.cpu(), scale, torch.float8_e4m3fn))


def test_cupy_and_pycuda_arrays_are_quantised(torch: Any, quantized: Any) -> None:
    del torch
    cupy = pytest.importorskip("cupy")
    x = cupy.random.standard_normal((50, 1000), dtype=cupy.float32)
    q, scales = autotune.quantize(x, "int8")
    import torch as own_torch

    wanted = quantized(own_torch.from_numpy(x.get()), "row", own_torch.int8)
    assert (q.get() == wanted[0].numpy()).all()
    assert (scales.get() == wanted[1].numpy()).all()


# Before a product.


def weight(torch: Any, scale: str, dtype: str) -> tuple[Any, Any]:
    """A B of (1000 x 512), stored transposed, and its scales for `autotune.matmul`."""
    from autotune.torch.scaled import quantize_weight

    w = torch.randn(512, 1000, device="cuda")
    codes, scales = quantize_weight(w, scale, getattr(torch, dtype))
    return codes.t(), scales


@pytest.mark.usefixtures("products", "quantized")
@pytest.mark.parametrize(
    ("compute", "scale"),
    [*(("f8", scale) for scale in GRANULARITIES), ("f8e5", "row"), ("i8", "row"), ("i8", "tensor")],
)
@pytest.mark.parametrize("rows", [1, 16, 300])
def test_product_is_that_of_the_quantised_matrix(
    torch: Any, rows: int, compute: str, scale: str
) -> None:
    b, of_b = weight(torch, scale, "int8" if compute == "i8" else "float8_e4m3fn")
    target = {"f8": "e4m3", "f8e5": "e5m2", "i8": "int8"}[compute]
    for source in ("bfloat16", "float32"):
        a = drawn(torch, rows, 1000, dtype=source)
        result: Any = autotune.matmul(a, b, compute=compute, scale_b=of_b, scale=scale)
        q, of_a = autotune.quantize(a, target, scale)
        wanted: Any = autotune.matmul(
            q, b, scale_a=of_a, scale_b=of_b, scale=scale, policy=autotune.Policy(vendor=False)
        )
        error = (result.double() - wanted.double()).norm() / wanted.double().norm()
        assert error < 1e-2  # another pitch of A may choose another kernel


@pytest.mark.usefixtures("products", "quantized")
def test_streams_have_operands_of_their_own(torch: Any) -> None:
    b, of_b = weight(torch, "row", "float8_e4m3fn")
    a = [drawn(torch, 300, 1000) for _ in range(4)]
    multiply = partial(autotune.matmul, b=b, compute="f8", scale_b=of_b)
    wanted: list[Any] = [multiply(each) for each in a]
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in a]
    results: list[Any] = []
    for _ in range(20):
        for each, stream in zip(a, streams, strict=True):
            with torch.cuda.stream(stream):
                results.append(multiply(each))
    torch.cuda.synchronize()
    for number, result in enumerate(results):
        assert torch.equal(result, wanted[number % 4])


@pytest.mark.usefixtures("products", "quantized")
@pytest.mark.parametrize("dependent", [False, True])
def test_graph_of_products_replays_with_new_contents(torch: Any, dependent: bool) -> None:
    b, of_b = weight(torch, "row", "float8_e4m3fn")
    a = drawn(torch, 16, 1000)
    out = torch.empty(16, 512, device="cuda", dtype=torch.bfloat16)
    policy = autotune.Policy(dependent=dependent)
    multiply = partial(autotune.matmul, a, b, out, compute="f8", scale_b=of_b, policy=policy)
    multiply()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(10):
            multiply()
    a.mul_(5)
    graph.replay()
    torch.cuda.synchronize()
    replayed = out.clone()
    multiply()
    assert torch.equal(replayed, out)


@pytest.mark.usefixtures("products")
@pytest.mark.parametrize("scale", GRANULARITIES)
def test_operators_are_compiled_without_a_graph_break(
    torch: Any, quantized: Any, scale: str
) -> None:
    from autotune.torch import scaled_mm
    from autotune.torch.scaled import quantize

    del quantized
    b, of_b = weight(torch, scale, "float8_e4m3fn")
    of_b = of_b[None] if scale == "row" else of_b.t() if scale == "block" else of_b
    a = drawn(torch, 64, 1000)
    multiply = torch.compile(lambda a: scaled_mm(a, b, None, of_b).relu(), fullgraph=True)
    assert torch.equal(multiply(a), scaled_mm(a, b, None, of_b).relu())
    compiled = torch.compile(lambda a: quantize(a * 2, scale), fullgraph=True)
    for ours, wanted in zip(compiled(a), quantize(a * 2, scale), strict=True):
        assert torch.equal(ours.float(), wanted.float())
    for arguments in ((a, scale, torch.float8_e4m3fn), (a[:0], scale, torch.int8)):
        torch.library.opcheck(
            torch.ops.autotune.quantize.default,
            arguments,
            test_utils=("test_schema", "test_faketensor"),
        )


@pytest.mark.usefixtures("quantized")
def test_bad_input_is_refused(torch: Any) -> None:
    x = drawn(torch, 10, 1000)
    with pytest.raises(ArrayError, match="it must be row-major"):
        autotune.quantize(x.t())
    with pytest.raises(ArrayError, match="x is on the CPU"):
        autotune.quantize(x.cpu())
    with pytest.raises(ArrayError, match="overlaps x"):
        autotune.quantize(x, "int8", out=x.view(torch.int8)[:, :1000])
    with pytest.raises(ArrayError, match="give f8, f8e5 or i8 to quantise A"):
        autotune.matmul(x, x.t(), scale_b=torch.ones(1, device="cuda"))
