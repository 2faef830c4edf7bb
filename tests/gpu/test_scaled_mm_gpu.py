"""fp8 and int8 tensors with scales on a real GPU: matmul, the operator, torch.compile, graphs."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest

import autotune
from autotune.errors import ArrayError

pytestmark = pytest.mark.usefixtures("untuned")

M, N, K = 64, 256, 512
E4M3, E5M2 = "float8_e4m3fn", "float8_e5m2"
GRANULARITIES = ("tensor", "row", "block")


@pytest.fixture
def scaled_mm(torch: Any) -> Any:
    import autotune.torch

    torch.manual_seed(0)
    if torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("needs compute capability 9.0")
    return autotune.torch.scaled_mm


def operands(torch: Any, a: str = E4M3, b: str = E4M3, k: int = K) -> tuple[Any, Any]:
    """A (64 x k) and B (k x 256), which is stored transposed."""

    def drawn(rows: int, dtype: str) -> Any:
        values = torch.randn(rows, k, device="cuda") * (20 if dtype == "int8" else 1)
        return values.to(getattr(torch, dtype))

    return drawn(M, a), drawn(N, b).t()


def scales(torch: Any, granularity: str, k: int = K) -> tuple[Any, Any]:
    """Scales as `torch._scaled_mm` takes them."""
    blocks = -(-k // 128)
    shapes: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
        "tensor": ((), ()),
        "row": ((M, 1), (1, N)),
        "block": ((blocks, M), (N // 128, blocks)),
    }
    a, b = (torch.rand(shape, device="cuda") + 0.5 for shape in shapes[granularity])
    return (a.t(), b.t()) if granularity == "block" else (a, b)


def reference(a: Any, b: Any, scale_a: Any, scale_b: Any) -> Any:
    def dequantised(matrix: Any, of: Any) -> Any:
        if of.dim() == 2:
            for axis, size in enumerate(matrix.shape):
                if of.shape[axis] not in (1, size):
                    of = of.repeat_interleave(128, dim=axis).narrow(axis, 0, size)
        return matrix.double() * of.double()

    return dequantised(a, scale_a) @ dequantised(b, scale_b)


def error_of(result: Any, wanted: Any) -> float:
    return float((result.double() - wanted).norm() / wanted.norm())


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("granularity", GRANULARITIES)
@pytest.mark.parametrize("types", [(E4M3, E4M3), (E5M2, E4M3), (E4M3, E5M2), (E5M2, E5M2)])
def test_fp8_products_are_right(
    torch: Any, scaled_mm: Any, types: tuple[str, str], granularity: str, fast: bool
) -> None:
    a, b = operands(torch, *types)
    of_a, of_b = scales(torch, granularity)
    wanted = reference(a, b, of_a, of_b)
    for dtype, limit in ((torch.bfloat16, 3e-3), (torch.float16, 1e-3), (torch.float32, 1e-3)):
        result = scaled_mm(a, b, of_a, of_b, out_dtype=dtype, use_fast_accum=fast)
        assert (result.dtype, result.shape) == (dtype, (M, N))
        assert error_of(result, wanted) < limit


@pytest.mark.parametrize("granularity", ["tensor", "row"])
def test_scales_mean_what_they_do_in_pytorch(torch: Any, scaled_mm: Any, granularity: str) -> None:
    a, b = operands(torch)
    of_a, of_b = scales(torch, granularity)
    theirs = torch._scaled_mm(a, b, of_a, of_b, out_dtype=torch.bfloat16)
    ours = scaled_mm(a, b, of_a, of_b)
    assert error_of(ours, theirs.double()) < 3e-3


def test_last_block_may_be_shorter(torch: Any, scaled_mm: Any) -> None:
    a, b = operands(torch, k=464)
    of_a, of_b = scales(torch, "block", k=464)
    wanted = reference(a, b, of_a, of_b)
    assert error_of(scaled_mm(a, b, of_a, of_b), wanted) < 3e-3


def test_bias_is_added(torch: Any, scaled_mm: Any) -> None:
    a, b = operands(torch)
    of_a, of_b = scales(torch, "row")
    bias = torch.randn(N, device="cuda", dtype=torch.bfloat16)
    wanted = reference(a, b, of_a, of_b) + bias.double()
    assert error_of(scaled_mm(a, b, of_a, of_b, bias), wanted) < 3e-3


@pytest.mark.parametrize("granularity", GRANULARITIES)
@pytest.mark.parametrize("output", [E4M3, E5M2])
@pytest.mark.parametrize("columns", [N, N - 1])
def test_fp8_results_have_a_scale_and_their_largest_size(
    torch: Any, scaled_mm: Any, columns: int, output: str, granularity: str
) -> None:
    a, b = operands(torch)
    of_a, of_b = scales(torch, granularity)
    b, of_b = b[:, :columns], of_b[:, :columns] if granularity == "row" else of_b
    dtype = getattr(torch, output)
    wanted = reference(a, b, of_a, of_b)
    scale = (torch.finfo(dtype).max / 2 / wanted.abs().max()).float()
    amax = torch.zeros(1, device="cuda")
    result = scaled_mm(a, b, of_a, of_b, out_dtype=dtype, scale_result=scale, amax=amax)
    assert float(amax) == pytest.approx(float(wanted.abs().max()), rel=1e-3)
    nearest = (wanted * scale.double()).float().to(dtype)
    # Sums in another order may end on the other side of the middle between two numbers, and a sum
    # near zero has the error of its terms, which the scale enlarges.
    assert float((result.float() == nearest.float()).double().mean()) > 0.99
    step, largest = torch.finfo(dtype).eps, float(nearest.float().abs().max())
    assert torch.allclose(result.float(), nearest.float(), rtol=step, atol=1e-3 * largest)


def test_int8_sums_are_exact(torch: Any, scaled_mm: Any) -> None:
    a, b = operands(torch, "int8", "int8")
    sums: Any = autotune.matmul(a, b, out_dtype=torch.int32)
    wanted = a.double() @ b.double()
    assert bool((sums.double() == wanted).all())
    with pytest.raises(ArrayError, match="alpha=1 and beta=0"):
        autotune.matmul(a, b, sums, alpha=2.0)
    of_a, of_b = scales(torch, "row")
    result = scaled_mm(a, b, of_a, of_b)
    assert error_of(result, reference(a, b, of_a, of_b)) < 3e-3


@pytest.mark.usefixtures("scaled_mm")
def test_kernels_pass_the_first_use_check(torch: Any) -> None:
    a, b = operands(torch)
    of_a, of_b = scales(torch, "row")
    autotune.matmul(a, b, scale_a=of_a, scale_b=of_b, policy=autotune.Policy(verify=True))


@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_compiled_without_a_graph_break(torch: Any, scaled_mm: Any, granularity: str) -> None:
    a, b = operands(torch)
    of_a, of_b = scales(torch, granularity)
    compiled = torch.compile(lambda *arrays: scaled_mm(*arrays).relu(), fullgraph=True)
    assert torch.equal(compiled(a, b, of_a, of_b), scaled_mm(a, b, of_a, of_b).relu())
    operator = torch.ops.autotune.scaled_mm.default
    torch.library.opcheck(operator, (a, b, of_a, of_b), test_utils="test_faketensor")


def test_operator_keeps_to_its_schema(torch: Any, scaled_mm: Any) -> None:
    del scaled_mm
    a, b = operands(torch, "int8", "int8")  # the check itself multiplies, which fp8 tensors cannot
    operator = torch.ops.autotune.scaled_mm.default
    torch.library.opcheck(operator, (a, b, *scales(torch, "row")), test_utils="test_schema")


def test_graph_replays_with_new_contents(torch: Any, scaled_mm: Any) -> None:
    a, b = operands(torch)
    of_a, of_b = scales(torch, "row")
    scaled_mm(a, b, of_a, of_b)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = scaled_mm(a, b, of_a, of_b)
    of_a.mul_(2)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(result, scaled_mm(a, b, of_a, of_b))


@pytest.mark.parametrize(("compute", "scale"), [("f8", "row"), ("f8", "block"), ("i8", "row")])
def test_patch_quantises_the_layers_of_a_model(
    torch: Any, scaled_mm: Any, compute: str, scale: str
) -> None:
    del scaled_mm
    layers = [torch.nn.Linear(512, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 512, bias=False)]
    model = torch.nn.Sequential(*layers).to("cuda", torch.bfloat16).eval()
    x = torch.randn(64, 512, device="cuda", dtype=torch.bfloat16)
    with torch.no_grad():
        wanted = model(x)
        untimed = autotune.torch.patch(model, compute=compute, scale=scale)
        assert untimed.replaced == ("0", "2")
        result = model(x)
        assert 0 < error_of(result, wanted.double()) < 0.1
        compiled = torch.compile(model, fullgraph=True)
        assert error_of(compiled(x), result.double()) < 0.02
        text = StringIO()
        timed: Any = autotune.torch.patch(model, compute=compute, scale=scale, sample=x, file=text)
        assert all(0 < (row.error or 0) < 0.1 and row.gain is not None for row in timed.rows)
        assert "linear layers quantised to" in text.getvalue()
        autotune.torch.unpatch(model)
        assert torch.equal(model(x), wanted)
