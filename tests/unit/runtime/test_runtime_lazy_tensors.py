"""Tensors whose memory does not hold their elements, on the fake GPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from support.fake_frameworks import Tensor, TorchType, _Device
from support.runtime_case import TYPED, Case

from autotune.errors import ArrayError
from autotune.problem import Problem
from autotune.runtime import Kernel
from autotune.runtime.matmul import Matmul
from autotune.runtime.quantized import Quantizer

NEGATED = "is lazily negated (is_neg), its memory has the other sign; give .resolve_neg()"


@pytest.fixture
def case() -> Case:
    return Case(config=TYPED)


def negated(tensor: Tensor) -> Tensor:
    """A view of the same memory with the negative bit, as of `torch.imag` of a conjugate."""
    return Tensor(tensor.host, tensor.device, negative=True)


def tensor(case: Case, *shape: int, dtype: str = "bfloat16") -> Tensor:
    return Tensor(case.matrix(*shape, dtype=dtype))


def plain(case: Case) -> dict[str, Tensor]:
    """The operands of a product with a bias and a residual, by their names in messages."""
    shapes = {"A": (5, 3), "B": (3, 7), "out": (5, 7), "bias": (7,), "residual": (5, 7)}
    return {name: tensor(case, *shape) for name, shape in shapes.items()}


def scaled(case: Case) -> dict[str, Tensor]:
    """The operands of a product of fp8 with an fp8 result, by their names in messages."""
    fp8 = "float8_e4m3fn"
    matrices = {"A": (5, 3), "B": (3, 7), "out": (5, 7)}
    numbers = "scale_a", "scale_b", "scale_result", "amax"
    return {name: tensor(case, *shape, dtype=fp8) for name, shape in matrices.items()} | {
        name: tensor(case, 1, dtype="float32") for name in numbers
    }


def multiply(run: Callable[..., Any], operands: dict[str, Tensor]) -> Any:
    """Calls with A, B and C by position, and the others by name."""
    a, b, out, *_ = operands.values()
    return run(a, b, out, **{name: operands[name] for name in [*operands][3:]})


def refused(case: Case, act: Callable[[], object]) -> str:
    """The message of the refusal, which is one line; asserts that nothing is launched."""
    before = len(case.cuda.launches)
    with pytest.raises(ArrayError) as error:
        act()
    assert len(case.cuda.launches) == before
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("place", ["A", "B", "out", "bias", "residual"])
@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.usefixtures("torch")
def test_lazily_negated_operand_is_refused(case: Case, place: str, warm: bool) -> None:
    operands = plain(case)
    if warm:  # the plain tensors of the same memory are bound
        multiply(case.matmul, operands)
    operands[place] = negated(operands[place])
    message = refused(case, lambda: multiply(case.matmul, operands))
    assert message == f"{place} {NEGATED}"


@pytest.mark.parametrize("place", ["A", "scale_a", "scale_b", "scale_result", "amax"])
@pytest.mark.usefixtures("torch")
def test_lazily_negated_scale_is_refused(case: Case, place: str) -> None:
    operands = scaled(case)
    multiply(case.matmul, operands)
    operands[place] = negated(operands[place])
    message = refused(case, lambda: multiply(case.matmul, operands))
    assert message == f"{place} {NEGATED}"


@pytest.mark.usefixtures("torch")
def test_negated_operand_without_out_is_refused(case: Case) -> None:
    a, b, *_ = plain(case).values()
    case.matmul(a, b)
    assert refused(case, lambda: case.matmul(a, negated(b))) == f"B {NEGATED}"


@pytest.mark.usefixtures("torch")
def test_plain_tensor_is_served_after_a_negated_one(case: Case) -> None:
    operands = plain(case)
    refused(case, lambda: multiply(case.matmul, operands | {"A": negated(operands["A"])}))
    multiply(case.matmul, operands)
    assert len(case.cuda.launches) == 1


@pytest.mark.usefixtures("torch")
def test_kernel_of_a_problem_refuses_negated_tensors(case: Case) -> None:
    a, b, out, *_ = plain(case).values()
    own = Kernel(case.runtime, Problem(5, 7, 3, "bf16"), 0)
    own(a, b, out)
    assert refused(case, lambda: own(negated(a), b, out)) == f"A {NEGATED}"
    assert refused(case, lambda: own.bind(a, b, negated(out))) == f"out {NEGATED}"


@pytest.mark.usefixtures("torch")
def test_tuning_refuses_negated_tensors(case: Case) -> None:
    a, b, *_ = plain(case).values()
    refused(case, lambda: case.matmul.tune(negated(a), b, lambda *_: None))


@pytest.mark.usefixtures("torch")
def test_quantising_refuses_negated_tensors(case: Case) -> None:
    quantize, x = Quantizer(case.runtime), tensor(case, 5, 64)
    q, scales = quantize(x, "e4m3", "row", None)
    assert refused(case, lambda: quantize(negated(x), "e4m3", "row", None)) == f"x {NEGATED}"
    out = q, negated(scales)
    assert refused(case, lambda: quantize(x, "e4m3", "row", out)) == f"scales {NEGATED}"


@pytest.mark.parametrize("name", ["A", "out", "bias", "scale_b"])
@pytest.mark.usefixtures("torch")
def test_quantised_product_refuses_negated_tensors(case: Case, name: str) -> None:
    run = partial(Matmul(case.runtime), compute="f8")
    operands: dict[str, Any] = {
        "a": tensor(case, 5, 300),
        "b": Tensor(case.matrix(7, 300, dtype="float8_e4m3fn").T),
        "out": tensor(case, 5, 7),
        "bias": tensor(case, 7),
        "scale_b": tensor(case, 7, dtype="float32"),
    }
    run(**operands)
    operands[name.lower()] = negated(operands[name.lower()])
    assert refused(case, lambda: run(**operands)) == f"{name} {NEGATED}"


class Wrapper(Tensor):
    """A subclass that implements PyTorch's operations itself."""

    __torch_dispatch__: Any = object()


def fail(*_: Any) -> Any:
    raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage")


META = _Device("meta", None)
ODD: dict[str, tuple[dict[str, Any], str]] = {
    "sparse": (
        {"layout": "torch.sparse_coo", "data_ptr": fail},
        "A has the layout torch.sparse_coo; give a dense tensor (.to_dense())",
    ),
    "nested": (
        {"is_nested": True, "stride": fail},
        "A is nested; give a plain tensor, such as by torch.nested.to_padded_tensor",
    ),
    "quantised": (
        {"is_quantized": True, "dtype": TorchType("torch.qint8")},
        "A is quantised to torch.qint8; give .dequantize(), or .int_repr() and its scale",
    ),
    "meta": (
        {"device": META, "data_ptr": lambda: 0},
        "A is on the meta device, without elements; give a tensor on a CUDA device",
    ),
    "zero": ({"data_ptr": lambda: 0}, "A has no memory (a lazy zero, a tensor inside"),
    "in a transform": ({"data_ptr": fail}, "A has no memory (a lazy zero, a tensor inside"),
}
"""How tensors differ from plain ones in PyTorch 2.14, and the beginning of the refusal."""


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.usefixtures("torch")
def test_tensor_without_plain_memory_is_refused(case: Case, kind: str, warm: bool) -> None:
    changes, message = ODD[kind]
    operands = plain(case)
    if warm:
        multiply(case.matmul, operands)
    for name, value in changes.items():
        setattr(operands["A"], name, value)
    assert refused(case, lambda: multiply(case.matmul, operands)).startswith(message)


@pytest.mark.parametrize("place", ["A", "B", "out", "bias", "residual"])
@pytest.mark.usefixtures("torch")
def test_wrapper_subclass_is_refused(case: Case, place: str) -> None:
    operands = plain(case)
    operands[place] = Wrapper(operands[place].host)
    message = refused(case, lambda: multiply(case.matmul, operands))
    assert message == (
        f"{place} is a Wrapper, which does not own its memory; give a plain torch.Tensor"
    )


def test_real_tensors_are_read_or_refused(case: Case) -> None:
    torch: Any = pytest.importorskip("torch")
    framework = case.runtime.framework(torch.ones(1), "A")
    column = torch.complex(torch.zeros(8), torch.ones(8)).conj().imag.unsqueeze(1)
    with pytest.raises(ArrayError, match=r"B is lazily negated .* \.resolve_neg\(\)"):
        framework.describe(column, "B")
    assert framework.read(column)[1] != framework.read(column.resolve_neg())[1]
    assert framework.describe(column.resolve_neg(), "B").strides == (1, 1)
    assert framework.negated is not None
    assert (framework.negated(column), framework.negated(column.resolve_neg())) == (True, False)
