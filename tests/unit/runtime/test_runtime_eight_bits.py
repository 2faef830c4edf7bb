"""matmul of fp8 and int8 operands and their scales, on the fake GPU."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.fake_frameworks import CuPyArray, FakeCuPy, FakePyCuda, FakeTorch, GPUArray, Tensor
from support.numpy_types import decoded, encoded, name_of
from support.runtime_case import TYPED, Case

import autotune
from autotune import runtime
from autotune.api.matmul import matmul as public_matmul
from autotune.errors import ArrayError, NotFoundError
from autotune.problem import Problem
from autotune.runtime import Kernel

E4M3, E5M2 = "float8_e4m3fn", "float8_e5m2"
M, N, K = 5, 7, 300
ROUNDING = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1e-2, "int32": 0.0}
SHAPES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "tensor": ((1,), (1,)),
    "row": ((M,), (N,)),
    "block": ((3, M), (1, 3)),
}


@pytest.fixture
def case() -> Case:
    return Case(config=TYPED)


def tensors(case: Case, torch: FakeTorch, a: str = E4M3, b: str = E4M3) -> tuple[Any, Any]:
    """A (5 x 300) and B (300 x 7)."""
    left, right = (
        torch.on("cuda:0", case.matrix(*shape, dtype=dtype, factor=4))
        for shape, dtype in (((M, K), a), ((K, N), b))
    )
    return left, right


def scales(case: Case, torch: FakeTorch, *shapes: tuple[int, ...]) -> list[Tensor]:
    """Positive scales of those shapes."""
    made = []
    for shape in shapes:
        host = case.cuda.hold(np.asarray(0.5 + np.random.default_rng(3).random(shape), np.float32))
        made.append(torch.on("cuda:0", host))
    return made


def product(a: Any, b: Any) -> Any:
    return decoded(a.host).astype(float) @ decoded(b.host).astype(float)


def close(result: Any, expected: Any) -> bool:
    rounding = ROUNDING[name_of(result)]
    return np.allclose(decoded(result), expected, rtol=rounding, atol=20 * rounding)


# Types.


@pytest.mark.parametrize(
    ("a", "b", "problem"),
    [
        (E4M3, E4M3, Problem(M, N, K, "f8")),
        (E5M2, E4M3, Problem(M, N, K, "f8e5")),
        (E4M3, E5M2, Problem(M, N, K, "f8e5", e5m2="b")),
        (E5M2, E5M2, Problem(M, N, K, "f8e5", e5m2="ab")),
        ("int8", "int8", Problem(M, N, K, "i8")),
    ],
)
def test_types_decide_the_precision(
    case: Case, torch: FakeTorch, a: str, b: str, problem: Problem
) -> None:
    left, right = tensors(case, torch, a, b)
    out: Any = case.matmul(left, right)
    assert case.looked_up == [problem]
    assert out.dtype == "torch.bfloat16"
    assert close(out.host, product(left, right))


@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16"])
def test_out_dtype_decides_the_output(case: Case, torch: FakeTorch, dtype: str) -> None:
    a, b = tensors(case, torch)
    out: Any = case.matmul(a, b, out_dtype=f"torch.{dtype}")
    assert out.dtype == f"torch.{dtype}"
    assert close(out.host, product(a, b))
    given = torch.on("cuda:0", case.matrix(M, N, dtype=dtype))
    case.matmul(a, b, given)
    assert close(given.host, product(a, b))
    assert len(case.looked_up) == 1


def test_int8_sums_are_exact_in_int32(case: Case, torch: FakeTorch) -> None:
    a, b = tensors(case, torch, "int8", "int8")
    out: Any = case.matmul(a, b, out_dtype="int32")
    assert case.looked_up == [Problem(M, N, K, "i8", output="i32")]
    assert (out.host == product(a, b)).all()


@pytest.mark.parametrize(("alpha", "beta"), [(2.0, 0.0), (1.0, 1.0)])
def test_int32_refuses_factors(case: Case, torch: FakeTorch, alpha: float, beta: float) -> None:
    a, b = tensors(case, torch, "int8", "int8")
    out = torch.on("cuda:0", case.matrix(M, N, dtype="int32"))
    message = case.refused(a, b, out, alpha, beta)
    assert message == (
        f"alpha is {alpha}, beta {beta}; a product in int32 takes alpha=1 and beta=0: give another "
        "out"
    )
    case.matmul(a, b, out)
    with pytest.raises(ArrayError, match="alpha=1 and beta=0"):
        case.matmul(a, b, out, alpha, beta)


@pytest.mark.parametrize(
    ("a", "b", "keywords", "message"),
    [
        (E4M3, "int8", {}, "A is float8_e4m3fn, B int8; convert one of them"),
        (E4M3, "bfloat16", {}, "A is float8_e4m3fn, B bfloat16; convert one of them"),
        (
            *(E4M3, E4M3, {"compute": "bf16"}),
            "A and B are float8_e4m3fn; bf16 multiplies bfloat16: convert them or give "
            "compute='f8'",
        ),
        (
            *(E5M2, E4M3, {"compute": "f8"}),
            "A is float8_e5m2, B float8_e4m3fn; f8 multiplies float8_e4m3fn: convert them or give "
            "compute='f8e5'",
        ),
        (
            *(E4M3, E4M3, {"out_dtype": "i32"}),
            "compute f8 has no output 'i32'; give one of same, bf16, f16, f32, e4m3, e5m2",
        ),
        (
            *("int8", "int8", {"accumulate": "fast"}),
            "accumulate fast is for compute f8, f8e5, not i8; leave one out",
        ),
        (
            *("int8", "int8", {"out_dtype": "i32", "activation": "relu"}),
            "output i32 has no scales and no epilogue, here scale none and epilogue relu; leave "
            "them out or give another output",
        ),
    ],
)
def test_types_that_do_not_fit_are_refused(
    case: Case, torch: FakeTorch, a: str, b: str, keywords: Any, message: str
) -> None:
    assert case.refused(*tensors(case, torch, a, b), **keywords) == message


def test_out_of_another_type_is_refused(case: Case, torch: FakeTorch) -> None:
    a, b = tensors(case, torch)
    out = torch.on("cuda:0", case.matrix(M, N, dtype="int32"))
    message = (
        "out is int32; a product of float8_e4m3fn is bfloat16, float16, float32, float8_e4m3fn or "
        "float8_e5m2"
    )
    assert case.refused(a, b, out) == message


def test_out_dtype_has_to_be_that_of_out(case: Case, torch: FakeTorch) -> None:
    a, b = tensors(case, torch)
    out = torch.on("cuda:0", case.matrix(M, N))
    message = "out is float32, out_dtype f16; leave one of them out"
    assert case.refused(a, b, out, out_dtype="float16") == message


def test_fp8_below_compute_capability_8_9_is_refused(case: Case, torch: FakeTorch) -> None:
    case.config = None
    case.cuda.attributes |= {"COMPUTE_CAPABILITY_MAJOR": 8, "COMPUTE_CAPABILITY_MINOR": 6}
    message = "f8 needs compute capability 8.9; NVIDIA H100 80GB HBM3 has 8.6; it runs f32"
    with pytest.raises(NotFoundError, match=message):
        case.matmul(*tensors(case, torch))


# Scales.


@pytest.mark.parametrize("accumulate", [None, "exact", "fast"])
@pytest.mark.parametrize("scale", SHAPES)
def test_shapes_tell_the_granularity_of_scales(
    case: Case, torch: FakeTorch, scale: str, accumulate: str | None
) -> None:
    a, b = tensors(case, torch)
    scale_a, scale_b = scales(case, torch, *SHAPES[scale])
    out: Any = case.matmul(a, b, scale_a=scale_a, scale_b=scale_b, accumulate=accumulate)
    problem = Problem(M, N, K, "f8", scale=scale, accumulate=accumulate or "exact")
    assert case.looked_up == [problem]
    assert close(out.host, dequantised(a, b, scale_a, scale_b, scale))


def dequantised(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, scale: str) -> Any:
    left, right = (decoded(operand.host).astype(float) for operand in (a, b))
    k, n = right.shape
    of_rows, of_columns = scale_a.host, scale_b.host
    if scale == "row":
        of_rows = of_rows.reshape(-1, 1)
    if scale == "block":
        of_rows = np.repeat(of_rows, 128, axis=0)[:k].T
        of_columns = np.repeat(np.repeat(of_columns, 128, axis=0)[:n], 128, axis=1)[:, :k].T
    return (left * of_rows) @ (right * of_columns)


@pytest.mark.parametrize(
    ("shapes", "scale"),
    [
        (((), ()), "tensor"),
        (((1, 1), (1,)), "tensor"),
        (((M, 1), (1, N)), "row"),
        (((1, M), (1, 1, N)), "row"),
        (((1, 3, M), (1, 1, 3)), "block"),
    ],
)
def test_scales_may_have_axes_of_size_1(
    case: Case, torch: FakeTorch, shapes: Any, scale: str
) -> None:
    scale_a, scale_b = scales(case, torch, *shapes)
    case.matmul(*tensors(case, torch), scale_a=scale_a, scale_b=scale_b)
    assert [problem.scale for problem in case.looked_up] == [scale]


def test_named_granularity_decides_where_shapes_fit_two(case: Case, torch: FakeTorch) -> None:
    a, b = (torch.on("cuda:0", case.matrix(*shape, dtype=E4M3)) for shape in ((1, 8), (8, 1)))
    scale_a, scale_b = scales(case, torch, (1,), (1,))
    for scale in (None, "row"):
        case.matmul(a, b, scale_a=scale_a, scale_b=scale_b, scale=scale)
    assert [problem.scale for problem in case.looked_up] == ["tensor", "row"]


@pytest.mark.parametrize("scale", ["row", "block"])
def test_scales_of_a_batch_have_its_axis(case: Case, torch: FakeTorch, scale: str) -> None:
    a = torch.on("cuda:0", case.matrix(2, M, K, dtype=E4M3))
    b = torch.on("cuda:0", case.matrix(2, K, N, dtype=E4M3))
    scale_a, scale_b = scales(case, torch, *((2, *shape) for shape in SHAPES[scale]))
    out: Any = case.matmul(a, b, scale_a=scale_a, scale_b=scale_b)
    for i in range(2):
        left, right, rows, columns = (
            Tensor(operand.host[i]) for operand in (a, b, scale_a, scale_b)
        )
        assert close(out.host[i], dequantised(left, right, rows, columns, scale))


def test_int8_takes_scales_of_rows(case: Case, torch: FakeTorch) -> None:
    a, b = tensors(case, torch, "int8", "int8")
    scale_a, scale_b = scales(case, torch, *SHAPES["row"])
    out: Any = case.matmul(a, b, scale_a=scale_a, scale_b=scale_b, out_dtype="f32")
    assert close(out.host, dequantised(a, b, scale_a, scale_b, "row"))


def test_bias_and_activation_follow_the_scales(case: Case, torch: FakeTorch) -> None:
    a, b = tensors(case, torch)
    scale_a, scale_b = scales(case, torch, *SHAPES["row"])
    bias = torch.on("cuda:0", case.matrix(N, dtype="bfloat16"))
    out: Any = case.matmul(a, b, None, 2.0, 0.0, bias, "relu", scale_a=scale_a, scale_b=scale_b)
    wanted = 2 * dequantised(a, b, scale_a, scale_b, "row") + decoded(bias.host)
    assert close(out.host, np.maximum(wanted, 0))


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (
            ((M,), (1,)),
            "scale_a is (5,), scale_b (1,); 5x7x300:f8:nn takes (1,) and (1,) a tensor, or (5,) "
            "and (7,) a row, or (3, 5) and (1, 3) a block",
        ),
        (((M, 3), (3, 1)), "or (3, 5) and (1, 3) a block"),
        (((N,), (M,)), "scale_a is (7,), scale_b (5,); 5x7x300:f8:nn takes"),
    ],
)
def test_scales_of_other_shapes_are_refused(
    case: Case, torch: FakeTorch, shapes: Any, message: str
) -> None:
    scale_a, scale_b = scales(case, torch, *shapes)
    a, b = tensors(case, torch)
    assert message in case.refused(a, b, scale_a=scale_a, scale_b=scale_b)


def test_named_granularity_has_to_fit_the_scales(case: Case, torch: FakeTorch) -> None:
    a, b = tensors(case, torch)
    scale_a, scale_b = scales(case, torch, (1,), (1,))
    message = case.refused(a, b, scale_a=scale_a, scale_b=scale_b, scale="row")
    assert message == "scale_a is (1,), scale_b (1,); 5x7x300:f8:nn takes (5,) and (7,) a row"


@pytest.mark.parametrize(
    ("scale", "named", "message"),
    [
        (None, "row", "scale is row, but no scales came; give scale_a and scale_b"),
        ("row", "none", "scale is none, but scales came; leave scale_a and scale_b out"),
        ("row", "column", "unknown scale 'column'; give one of none, tensor, row, block"),
    ],
)
def test_named_granularity_has_to_fit_the_call(
    case: Case, torch: FakeTorch, scale: str | None, named: str, message: str
) -> None:
    made = scales(case, torch, *SHAPES[scale]) if scale else (None, None)
    a, b = tensors(case, torch)
    assert case.refused(a, b, scale_a=made[0], scale_b=made[1], scale=named) == message


@pytest.mark.parametrize("name", ["scale_a", "scale_b"])
def test_single_scale_is_refused(case: Case, torch: FakeTorch, name: str) -> None:
    a, b = tensors(case, torch)
    case.matmul(a, b)
    case.cuda.launches.clear()
    (single,) = scales(case, torch, (1,))
    message = case.refused(a, b, **{name: single})
    assert message == "scale_a and scale_b belong together; give both or none"


@pytest.mark.parametrize(
    ("dtype", "scale", "message"),
    [
        ("int8", "block", "scale block is for compute f8, f8e5, not i8; leave one out"),
        ("float16", "row", "scale row is for compute f8, f8e5, i8, not f16; leave one out"),
    ],
)
def test_scales_that_a_precision_lacks_are_refused(
    case: Case, torch: FakeTorch, dtype: str, scale: str, message: str
) -> None:
    a, b = tensors(case, torch, dtype, dtype)
    scale_a, scale_b = scales(case, torch, *SHAPES[scale])
    assert case.refused(a, b, scale_a=scale_a, scale_b=scale_b) == message


def test_scales_of_another_kind_are_refused(case: Case, torch: FakeTorch) -> None:
    a, b = tensors(case, torch)
    scale_a, scale_b = scales(case, torch, *SHAPES["row"])
    rows = np.repeat(scale_a.host, 2)
    wrong: dict[str, Tensor] = {
        "scale_a is float16; scales are float32: convert it": torch.on(
            "cuda:0", case.cuda.hold(scale_a.host.astype(np.float16))
        ),
        "scale_a is on the CPU; move it to a CUDA device": torch.on("cpu", scale_a.host),
        "A is on CUDA device 0, scale_a on 1; move one of them": torch.on("cuda:1", scale_a.host),
        "scale_a of shape (5,) has strides (2,); copy it with .contiguous()": torch.on(
            "cuda:0", case.cuda.hold(rows)[::2]
        ),
        "scale_a requires a gradient, which is not recorded; give .detach()": Tensor(
            scale_a.host, requires_grad=True
        ),
    }
    for message, other in wrong.items():
        assert case.refused(a, b, scale_a=other, scale_b=scale_b) == message


def test_output_over_a_scale_is_refused(case: Case, torch: FakeTorch) -> None:
    a, b = tensors(case, torch)
    out = torch.on("cuda:0", case.matrix(M, N))
    scale_a, scale_b = torch.on("cuda:0", out.host.reshape(-1)[:M]), *scales(case, torch, (N,))
    assert "overlaps scale_a at" in case.refused(a, b, out, scale_a=scale_a, scale_b=scale_b)


def test_misaligned_scale_is_refused(case: Case, torch: FakeTorch) -> None:
    a, b = tensors(case, torch)
    memory = case.cuda.hold(np.zeros(4 * M + 2, np.uint8))
    scale_a = torch.on("cuda:0", memory[2:].view(np.float32))
    (scale_b,) = scales(case, torch, (N,))
    assert "no multiple of its 4-byte elements" in case.refused(
        a, b, scale_a=scale_a, scale_b=scale_b
    )


# Kernels of one problem.

PROBLEM = Problem(M, N, K, "f8", scale="row", output="f32")


def test_kernel_takes_scales(case: Case, torch: FakeTorch) -> None:
    kernel = Kernel(case.runtime, replace(PROBLEM, accumulate="fast"), 0)
    a, b = tensors(case, torch)
    scale_a, scale_b = scales(case, torch, *SHAPES["row"])
    wanted = dequantised(a, b, scale_a, scale_b, "row")
    out: Any = kernel(a, b, scale_a=scale_a, scale_b=scale_b)
    assert close(out.host, wanted)
    out.host[:] = 0
    kernel.bind(a, b, out, scale_a=scale_a, scale_b=scale_b)()
    assert close(out.host, wanted)
    out.host[:] = 0
    addresses = [operand.data_ptr() for operand in (a, b, out, scale_a, scale_b)]
    kernel.launch(*addresses[:3], scale_a=addresses[3], scale_b=addresses[4])
    assert close(out.host, wanted)


def test_kernel_refuses_missing_scales(case: Case, torch: FakeTorch) -> None:
    kernel = Kernel(case.runtime, PROBLEM, 0)
    a, b = tensors(case, torch)
    with pytest.raises(ArrayError, match="scale is row, but no scales came"):
        kernel(a, b)
    with pytest.raises(ArrayError, match=r"scale_b is at 0x0; .* that is a multiple of 4"):
        kernel.launch(0x100, 0x100, 0x100, scale_a=0x100)
    with pytest.raises(ArrayError, match=r"scale_a is at 0x102; .* that is a multiple of 4"):
        kernel.launch(0x100, 0x100, 0x100, scale_a=0x102, scale_b=0x100)


def test_kernel_without_scales_refuses_them(case: Case) -> None:
    kernel = Kernel(case.runtime, Problem(M, N, K, "f8"), 0)
    with pytest.raises(ArrayError, match="scale_a is at 0x100; 5x7x300:f8:nn takes none: 0"):
        kernel.launch(0x100, 0x100, 0x100, scale_a=0x100, scale_b=0x100)


def test_kernel_in_int32_refuses_factors(case: Case) -> None:
    kernel = Kernel(case.runtime, Problem(M, N, K, "i8", output="i32"), 0)
    with pytest.raises(ArrayError, match=r"alpha is 2\.0, beta 0\.0; a product in int32"):
        kernel.launch(0x100, 0x100, 0x100, alpha=2.0)


# The public function.


def test_public_matmul_passes_scales_and_tunes(
    case: Case, torch: FakeTorch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "current", lambda: case.matmul)
    tuned: list[Problem] = []
    monkeypatch.setattr(
        "autotune.api.matmul._tune", lambda problem, *_, **__: tuned.append(problem)
    )
    case.how = "nearest"
    a, b = tensors(case, torch)
    scale_a, scale_b = scales(case, torch, *SHAPES["row"])
    with autotune.policy(tune=True):
        out: Any = public_matmul(
            a, b, scale_a=scale_a, scale_b=scale_b, accumulate="fast", out_dtype="fp32"
        )
    assert tuned == [replace(PROBLEM, accumulate="fast")]
    assert close(out.host, dequantised(a, b, scale_a, scale_b, "row"))


# Array libraries.


def test_cupy_multiplies_int8(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", FakeCuPy(case.cuda))
    a, b = (CuPyArray(case.matrix(*shape, dtype="int8", factor=9)) for shape in ((M, K), (K, N)))
    out: Any = case.matmul(a, b, out_dtype=np.int32)
    assert out.dtype.name == "int32"
    assert (out.host == product(a, b)).all()


def test_cupy_without_bfloat16_asks_for_another_output(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cupy", FakeCuPy(case.cuda))
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    a, b = (CuPyArray(case.matrix(*shape, dtype="int8")) for shape in ((M, K), (K, N)))
    assert case.refused(a, b).startswith("CuPy has no bfloat16 without ml_dtypes; install it")


def test_pycuda_multiplies_int8(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pycuda.gpuarray", FakePyCuda(case.cuda))
    a, b = (GPUArray(case.matrix(*shape, dtype="int8", factor=9)) for shape in ((M, K), (K, N)))
    out: Any = case.matmul(a, b, out_dtype="float32")
    assert close(out.host, product(a, b))
    case.cuda.launches.clear()
    message = case.refused(a, b)
    assert message == "PyCUDA has no bfloat16; give out= or another out_dtype="


# cuBLAS through PyTorch.


@pytest.fixture
def vendor(case: Case) -> Case:
    """A case where cuBLAS was measured to be faster."""
    case.vendor = True
    return case


def aligned(
    case: Case, torch: FakeTorch, a: str = E4M3, b: str = E4M3, k: int = 512
) -> tuple[Any, Any]:
    """A (32 x k) and B (k x 16), which is stored transposed."""
    left, right = (
        case.matrix(*shape, dtype=dtype) for shape, dtype in (((32, k), a), ((16, k), b))
    )
    return torch.on("cuda:0", left), torch.on("cuda:0", right.T)


@pytest.mark.parametrize(
    ("scale", "shapes", "seen"),
    [
        ("tensor", ((1,), (1,)), ((1,), (1,))),
        ("row", ((32,), (16,)), ((32, 1), (1, 16))),
        ("block", ((4, 32), (1, 4)), ((32, 4), (4, 1))),
    ],
)
def test_cublas_gets_the_scales(
    vendor: Case, torch: FakeTorch, scale: str, shapes: Any, seen: Any
) -> None:
    a, b = aligned(vendor, torch)
    scale_a, scale_b = scales(vendor, torch, *shapes)
    out: Any = vendor.matmul(a, b, scale_a=scale_a, scale_b=scale_b)
    assert vendor.cuda.launches == []
    assert torch.products == [
        ("_scaled_mm", {"scales": seen, "use_fast_accum": False, "out_dtype": "torch.bfloat16"})
    ]
    assert close(out.host, dequantised(a, b, scale_a, scale_b, scale))


def test_cublas_without_scales_gets_ones(vendor: Case, torch: FakeTorch) -> None:
    a, b = aligned(vendor, torch)
    for _ in range(2):
        vendor.matmul(a, b, accumulate="fast", activation="relu")
    calls = [(name, values.get("use_fast_accum")) for name, values in torch.products]
    assert calls == [("_scaled_mm", True), ("relu_", None)] * 2
    assert torch.made == 1


def test_ones_are_not_made_during_a_capture(vendor: Case, torch: FakeTorch) -> None:
    torch.capturing = True
    vendor.matmul(*aligned(vendor, torch))
    assert torch.products == []
    assert len(vendor.cuda.launches) == 1


def test_cublas_multiplies_int8_into_int32(vendor: Case, torch: FakeTorch) -> None:
    a, b = aligned(vendor, torch, "int8", "int8")
    vendor.matmul(a, b, out_dtype="i32")
    assert [name for name, _ in torch.products] == ["_int_mm"]


@pytest.mark.parametrize(
    ("types", "keywords"),
    [
        ((E5M2, E5M2), {}),
        ((E4M3, E4M3), {"alpha": 2.0}),
        (("int8", "int8"), {}),
        (("int8", "int8"), {"out_dtype": "f32"}),
    ],
)
def test_kernels_run_what_cublas_cannot(
    vendor: Case, torch: FakeTorch, types: tuple[str, str], keywords: Any
) -> None:
    vendor.matmul(*aligned(vendor, torch, *types), **keywords)
    assert torch.products == []
    assert len(vendor.cuda.launches) == 1


@pytest.mark.parametrize(("m", "n", "k"), [(8, 24, 64), (8, 16, 72)])
def test_cublas_needs_whole_vectors(vendor: Case, torch: FakeTorch, m: int, n: int, k: int) -> None:
    a = torch.on("cuda:0", vendor.matrix(m, k, dtype=E4M3))
    vendor.matmul(a, torch.on("cuda:0", vendor.matrix(n, k, dtype=E4M3).T))
    assert torch.products == []


def test_stored_values_round_trip() -> None:
    values = np.asarray([-8, -3, -0.5, 0, 1, 7, np.nan], np.float32)
    for dtype in (E4M3, E5M2):
        assert np.array_equal(decoded(encoded(values, dtype)), values, equal_nan=True)
