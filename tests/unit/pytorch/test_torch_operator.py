"""`torch.ops.autotune.mm`: its results, its gradients, and its calls of the runtime."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from support.torch_runtime import StandIn, described  # noqa: E402

import autotune.torch  # noqa: E402
from autotune.errors import ArrayError, AutotuneError, FrozenError, ProblemError  # noqa: E402
from autotune.runtime import CallOptions  # noqa: E402
from autotune.runtime.operands import problem_of  # noqa: E402
from autotune.settings import Mode  # noqa: E402

mm = torch.ops.autotune.mm
SHAPES = {
    "matrices": ((3, 4), (4, 5)),
    "batches": ((2, 3, 4), (2, 4, 5)),
    "a batch by a matrix": ((2, 3, 4), (4, 5)),
    "a matrix by a batch": ((3, 4), (2, 4, 5)),
    "a batch of one": ((1, 3, 4), (2, 4, 5)),
    "by a batch of one": ((2, 3, 4), (1, 4, 5)),
    "two batch axes": ((2, 6, 3, 4), (2, 6, 4, 5)),
    "two batch axes by a matrix": ((2, 6, 3, 4), (4, 5)),
    "two batch axes by one": ((2, 6, 3, 4), (6, 4, 5)),
}
ACTIVATED = {
    None: lambda x: x,
    "relu": torch.relu,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": torch.nn.GELU(approximate="tanh"),
    "silu": torch.nn.functional.silu,
}
EPILOGUES = [(bias, activation) for bias in (False, True) for activation in ACTIVATED]
each_shape = pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    """The same random numbers in each test, and nothing compiled by an earlier one."""
    torch.manual_seed(0)
    yield
    torch.compiler.reset()


def drawn(*shape: int, dtype: Any = torch.float32, grad: bool = False) -> Any:
    return torch.randn(shape, dtype=dtype, requires_grad=grad)


def doubles(*shapes: tuple[int, ...]) -> list[Any]:
    return [drawn(*shape, dtype=torch.float64, grad=True) for shape in shapes]


def test_importing_the_package_does_not_import_pytorch() -> None:
    program = "import sys, autotune; assert 'torch' not in sys.modules; autotune.torch.Linear"
    subprocess.run([sys.executable, "-c", program], check=True)


@each_shape
@pytest.mark.parametrize(("biased", "activation"), EPILOGUES)
def test_cpu_result_is_that_of_pytorch(
    shapes: tuple[Any, Any], biased: bool, activation: str | None
) -> None:
    a, b, bias = drawn(*shapes[0]), drawn(*shapes[1]), drawn(5)
    expected = ACTIVATED[activation](a @ b + (bias if biased else 0))
    torch.testing.assert_close(mm(a, b, bias if biased else None, activation), expected)


# Which axes are summed follows from the shapes, and what is multiplied from the activation.
@pytest.mark.parametrize(
    ("shapes", "activation"),
    [
        *((shapes, "gelu") for shapes in SHAPES.values()),
        *((SHAPES["matrices"], activation) for activation in ACTIVATED if activation != "gelu"),
    ],
    ids=str,
)
def test_first_and_second_gradients_are_correct(
    shapes: tuple[Any, Any], activation: str | None
) -> None:
    operands = doubles(*shapes, (5,))
    assert torch.autograd.gradcheck(lambda *inputs: mm(*inputs, activation), operands)
    assert torch.autograd.gradgradcheck(lambda *inputs: mm(*inputs, activation), operands)


@pytest.mark.parametrize(("biased", "activation"), EPILOGUES)
def test_operator_passes_pytorch_opcheck(biased: bool, activation: str | None) -> None:
    a, b, bias = drawn(3, 4, grad=True), drawn(5, 4, grad=True).t(), drawn(5, grad=True)
    passed = torch.library.opcheck(mm, (a, b, bias if biased else None, activation))
    assert set(passed.values()) == {"SUCCESS"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_result_is_row_major_in_the_operand_type(dtype: Any) -> None:
    result = mm(drawn(3, 4, dtype=dtype), drawn(2, 4, 5, dtype=dtype))
    assert (result.dtype, result.stride()) == (dtype, (15, 5, 1))


@pytest.mark.parametrize(("biased", "activation"), EPILOGUES)
def test_compiler_makes_one_graph_for_all_sizes(biased: bool, activation: str | None) -> None:
    graphs = []

    def backend(graph: Any, _inputs: Any) -> Callable[..., Any]:
        graphs.append(graph)
        forward: Callable[..., Any] = graph.forward
        return forward

    b, bias = drawn(4, 5), drawn(5) if biased else None
    compiled = torch.compile(mm, fullgraph=True, dynamic=True, backend=backend)
    for m in (3, 7, 31):
        a = drawn(m, 4)
        torch.testing.assert_close(compiled(a, b, bias, activation), mm(a, b, bias, activation))
    assert len(graphs) == 1


@pytest.mark.parametrize("activation", ACTIVATED)
def test_compiled_gradients_equal_eager_gradients(activation: str | None) -> None:
    gradients = []
    for function in (mm, torch.compile(mm, fullgraph=True, dynamic=True, backend="aot_eager")):
        torch.manual_seed(1)
        operands = [drawn(6, 4, grad=True), drawn(4, 5, grad=True), drawn(5, grad=True)]
        function(*operands, activation).square().sum().backward()
        gradients.append([operand.grad for operand in operands])
    torch.testing.assert_close(*gradients)


BF16 = torch.bfloat16


def test_residual_is_added(gpu: StandIn) -> None:
    a, b, bias, residual = (drawn(*shape, dtype=BF16) for shape in ((3, 4), (4, 5), (5,), (5, 3)))
    result = mm(a, b, bias, residual=residual.t())
    wanted = torch.addmm(bias.double(), a.double(), b.double()) + residual.t().double()
    torch.testing.assert_close(result.double(), wanted, rtol=0.02, atol=0.02)
    assert [problem.epilogue for problem in gpu.problems] == ["bias_residual"]


def test_residual_has_gradients() -> None:
    a, b, bias, residual = doubles((2, 3, 4), (4, 5), (5,), (2, 3, 5))

    def added(*operands: Any) -> Any:
        return mm(*operands[:3], residual=operands[3])

    assert torch.autograd.gradcheck(added, (a, b, bias, residual))
    mm(a, b, residual=residual).sum().backward()
    assert torch.equal(residual.grad, torch.ones_like(residual))


def test_residual_compiles_to_one_graph() -> None:
    compiled = torch.compile(mm, fullgraph=True, backend="aot_eager")
    a, b, residual = drawn(3, 4), drawn(4, 5), drawn(3, 5)
    torch.testing.assert_close(compiled(a, b, residual=residual), a @ b + residual)


def test_residual_follows_autocast() -> None:
    with torch.autocast("cpu", dtype=BF16):
        result = mm(drawn(3, 4), drawn(4, 5), residual=drawn(3, 5))
    assert result.dtype == BF16


@pytest.mark.parametrize(
    ("activation", "shape", "error", "message"),
    [
        ("relu", (3, 5), ProblemError, "a residual comes without an activation"),
        (None, (5,), ArrayError, r"residual is \(5,\); the product is \(3, 5\)"),
    ],
)
def test_wrong_residual_is_refused(
    activation: str | None, shape: tuple[int, ...], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        mm(drawn(3, 4), drawn(4, 5), activation=activation, residual=drawn(*shape))


def test_kernel_applies_the_epilogue_without_a_gradient(gpu: StandIn) -> None:
    mm(drawn(3, 4), drawn(4, 5), drawn(5), "gelu")
    assert [problem.epilogue for problem in gpu.problems] == ["bias_gelu"]


@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "silu"])
def test_activation_follows_the_kernel_with_a_gradient(gpu: StandIn, activation: str) -> None:
    mm(drawn(3, 4, grad=True), drawn(4, 5), drawn(5), activation)
    assert [problem.epilogue for problem in gpu.problems] == ["bias"]


@pytest.mark.parametrize(
    ("forward", "backward"),
    # For C = A B with gradient G of C: that of A is G B^T, that of B is A^T G. The gradient of a
    # transposed operand is stored transposed too, so its transpose is computed.
    [("nn", ["nt", "tn"]), ("nt", ["nn", "tn"]), ("tn", ["nt", "nn"]), ("tt", ["tt", "tt"])],
)
def test_gradients_read_operands_without_copies(
    gpu: StandIn, forward: str, backward: list[str]
) -> None:
    stored = [drawn(3, 4), drawn(4, 5)]
    a, b = (
        (operand if letter == "n" else operand.t().contiguous().t()).requires_grad_()
        for operand, letter in zip(stored, forward, strict=True)
    )
    mm(a, b).backward(drawn(3, 5))
    assert gpu.layouts == [forward, *backward]
    assert (a.grad.stride(), b.grad.stride()) == (a.stride(), b.stride())


def test_expanded_gradient_is_copied_once(gpu: StandIn) -> None:
    mm(drawn(3, 4, grad=True), drawn(4, 5, grad=True)).sum().backward()
    assert (len(gpu.problems), gpu.refused) == (3, 0)


def test_operand_without_gradient_costs_no_matmul(gpu: StandIn) -> None:
    mm(drawn(3, 4), drawn(4, 5, grad=True)).backward(drawn(3, 5))
    assert gpu.layouts == ["nn", "tn"]


def test_gradient_of_a_shared_matrix_is_one_matmul(gpu: StandIn) -> None:
    mm(drawn(2, 3, 4), drawn(4, 5, grad=True)).backward(drawn(2, 3, 5))
    assert [(p.m, p.n, p.k, p.batch) for p in gpu.problems[1:]] == [(4, 5, 6, 1)]


@pytest.mark.parametrize(
    "view",
    [lambda x: x[:, ::2], lambda x: x[:1, :4].expand(3, 4), lambda x: x[:1, :1].expand(3, 4)],
    ids=["every other column", "one row for all", "one number"],
)  # fmt: skip
def test_operands_that_no_kernel_reads_are_copied(gpu: StandIn, view: Callable[[Any], Any]) -> None:
    a, b = view(drawn(3, 8)), drawn(4, 5)
    torch.testing.assert_close(mm(a, b), a @ b)
    assert len(gpu.problems) == 1


def test_bias_with_gaps_is_copied(gpu: StandIn) -> None:
    a, b, bias = drawn(3, 4), drawn(4, 5), drawn(5, 2)[:, 0]
    torch.testing.assert_close(mm(a, b, bias), a @ b + bias)
    assert len(gpu.problems) == 1


@pytest.mark.parametrize(
    "sizes", [((0, 4), (4, 5)), ((3, 0), (0, 5)), ((3, 4), (4, 0)), ((0, 3, 4), (4, 5))], ids=str
)
def test_sizes_of_0_are_as_in_pytorch(gpu: StandIn, sizes: tuple[Any, Any]) -> None:
    a, b = drawn(*sizes[0]), drawn(*sizes[1])
    torch.testing.assert_close(mm(a, b), a @ b)
    assert (len(gpu.problems), gpu.refused) == (1, 0)  # the runtime takes them


@pytest.fixture
def precision() -> Iterator[Any]:
    before = torch.get_float32_matmul_precision()
    yield torch.set_float32_matmul_precision
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize(("setting", "compute"), [("highest", "f32"), ("high", "tf32")])
def test_fp32_follows_the_pytorch_setting(
    gpu: StandIn, precision: Callable[[str], None], setting: str, compute: str
) -> None:
    precision(setting)
    mm(drawn(3, 4), drawn(4, 5))
    assert gpu.problems[0].compute == compute


def test_explicit_compute_overrides_the_setting(
    gpu: StandIn, precision: Callable[[str], None]
) -> None:
    precision("high")
    for compute in ("f32", "tf32x3"):
        mm(drawn(3, 4), drawn(4, 5), compute=compute)
    assert [problem.compute for problem in gpu.problems] == ["f32", "tf32x3"]


def test_gradients_use_the_compute_of_the_forward_pass(gpu: StandIn) -> None:
    mm(drawn(3, 4, grad=True), drawn(4, 5, grad=True), compute="tf32x3").backward(drawn(3, 5))
    assert [problem.compute for problem in gpu.problems] == ["tf32x3"] * 3


@pytest.mark.parametrize("dependent", [False, True])
def test_gradients_launch_like_the_forward_pass(gpu: StandIn, dependent: bool) -> None:
    a, b = drawn(3, 4, grad=True), drawn(4, 5, grad=True)
    mm(a, b, None, "relu", dependent=dependent).backward(drawn(3, 5))
    assert gpu.dependent == [dependent] * 3


def test_launches_are_independent_by_default(gpu: StandIn) -> None:
    mm(drawn(3, 4, grad=True), drawn(4, 5)).sum().backward()
    assert gpu.dependent == [False, False]


def test_autocast_keeps_dependent_launches(gpu: StandIn) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        mm(drawn(3, 4), drawn(4, 5), dependent=True)
    assert gpu.dependent == [True]


@pytest.mark.parametrize(("compute", "dtype"), [(None, torch.bfloat16), ("tf32", torch.float32),
                                                ("f16", torch.float16)])  # fmt: skip
def test_autocast_converts_to_the_type_of_the_compute(compute: str | None, dtype: Any) -> None:
    a, b, bias = drawn(3, 4), drawn(4, 5, dtype=torch.float16), drawn(5)
    with torch.autocast("cpu", torch.bfloat16):
        result = mm(a, b, bias, None, compute)
    expected = torch.addmm(bias.to(dtype), a.to(dtype), b.to(dtype))
    assert result.dtype is dtype
    torch.testing.assert_close(result, expected, rtol=1e-2, atol=1e-2)


def test_autocast_gradients_have_the_operand_types() -> None:
    a, b = drawn(3, 4, grad=True), drawn(4, 5, grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        mm(a, b).sum().backward()
    assert (a.grad.dtype, b.grad.dtype) == (torch.float32, torch.float32)


def test_autocast_can_be_compiled() -> None:
    compiled = torch.compile(mm, fullgraph=True, backend="aot_eager")
    with torch.autocast("cpu", torch.bfloat16):
        assert compiled(drawn(3, 4), drawn(4, 5)).dtype is torch.bfloat16


BAD: dict[str, tuple[tuple[Any, ...], type[AutotuneError], str]] = {
    "inner sizes": (((3, 4), (5, 6)), ArrayError, "the inner sizes 4 and 5 differ"),
    "batches": (((2, 3, 4), (3, 4, 5)), ArrayError, "the batches 2 and 3 differ"),
    "a vector": (((4,), (4, 5)), ArrayError, r"A has 1 dimensions \(4,\)"),
    "batch axes": (((2, 3, 3, 4), (2, 4, 5)), ArrayError, r"the batches \(2, 3\) and \(2\) differ"),
    "bias": (((3, 4), (4, 5), (4,)), ArrayError, r"bias is \(4,\); the product has 5 columns"),
    "activation": (((3, 4), (4, 5), None, "tanh"), ProblemError, "unknown activation 'tanh'"),
    "compute": (((3, 4), (4, 5), None, None, "f4"), ProblemError, "unknown compute 'f4'"),
    "16 bits": (((3, 4), (4, 5), None, None, "bf16"), ArrayError, "bf16 multiplies bfloat16"),
}
each_bad = pytest.mark.parametrize(("invalid", "error", "message"), BAD.values(), ids=BAD)


def operands(arguments: tuple[Any, ...]) -> list[Any]:
    return [drawn(*argument) if isinstance(argument, tuple) else argument for argument in arguments]


@each_bad
def test_invalid_operands_are_refused(
    invalid: tuple[Any, ...], error: type[AutotuneError], message: str
) -> None:
    with pytest.raises(error, match=message):
        mm(*operands(invalid))


@each_bad
def test_invalid_operands_are_refused_while_tracing(
    invalid: tuple[Any, ...], error: type[AutotuneError], message: str
) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(), pytest.raises(error, match=message):
        mm(*operands(invalid))


def test_fake_result_on_a_gpu_has_shape_type_and_device() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        a, w = (torch.empty(m, 4, dtype=torch.bfloat16, device="cuda") for m in (3, 5))
        result = mm(a, w.t())
    properties = tuple(result.shape), result.stride(), result.dtype, result.device.type
    assert properties == ((3, 5), (5, 1), torch.bfloat16, "cuda")


def test_unsupported_type_is_refused_while_tracing() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        a = torch.empty(4, 4, dtype=torch.float64, device="cuda")
        with pytest.raises(ArrayError, match="A is float64; the kernels take"):
            mm(a, a)


@pytest.mark.parametrize("case", ["inner sizes", "batches", "a vector", "batch axes", "16 bits"])
def test_messages_equal_those_of_the_runtime(case: str) -> None:
    a, b, *rest = operands(BAD[case][0])
    with pytest.raises(ArrayError) as by_operator:
        mm(a, b, *rest)
    infos = {"a": described(a, "A"), "b": described(b, "B")}
    with pytest.raises(ArrayError) as by_runtime:
        problem_of(infos, CallOptions(compute=rest[-1] if rest else None))
    assert str(by_operator.value) == str(by_runtime.value)


@pytest.mark.parametrize(
    ("b", "message"),
    [(torch.zeros(4, 5, dtype=torch.float16), "A is float32, B float16; convert one of them"),
     (torch.zeros(4, 5, device="meta"), "A is on cpu, B on meta; move one of them")],
    ids=["type", "device"],
)  # fmt: skip
def test_operands_of_two_types_or_devices_are_refused(b: Any, message: str) -> None:
    with pytest.raises(ArrayError, match=message):
        mm(drawn(3, 4), b)


def test_bias_of_another_type_is_refused() -> None:
    with pytest.raises(ArrayError, match="A is float32, bias float64; convert one of them"):
        mm(drawn(3, 4), drawn(4, 5), drawn(5, dtype=torch.float64))


def test_integer_operands_are_refused() -> None:
    a = torch.ones(4, 4, dtype=torch.int32)
    with pytest.raises(ArrayError, match="A is int32; the kernels take float32, float16, bfloat16"):
        mm(a, a)


def test_functional_gradients_are_refused() -> None:
    with pytest.raises(RuntimeError, match="setup_context"):
        torch.func.grad(lambda a: mm(a, drawn(4, 5)).sum())(drawn(3, 4))


def test_python_function_equals_the_operator() -> None:
    a, b, bias = drawn(3, 4), drawn(4, 5), drawn(5)
    for context in (torch.enable_grad, torch.no_grad, torch.inference_mode):
        with context():
            result = autotune.torch.mm(a, b, bias, "relu")
            torch.testing.assert_close(result, mm(a, b, bias, "relu"))


def test_python_function_records_gradients() -> None:
    a, b = drawn(3, 4), drawn(4, 5, grad=True)
    autotune.torch.mm(a, b).sum().backward()
    torch.testing.assert_close(b.grad, a.t() @ torch.ones(3, 5))


@pytest.mark.parametrize("missing", ["vendor", "raise"])
def test_frozen_operator_leaves_unrecorded_products_to_pytorch(
    gpu: StandIn, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    def refuse(_: StandIn, *operands: Any, **options: Any) -> Any:
        raise FrozenError(f"{len(operands)} operands, {len(options)} options: not recorded")

    mode = SimpleNamespace(mode=Mode("frozen", missing))
    monkeypatch.setattr(gpu, "runtime", mode, raising=False)
    monkeypatch.setattr(StandIn, "__call__", refuse)
    a, b, bias = drawn(3, 4), drawn(4, 5), drawn(5)
    if missing == "raise":
        with pytest.raises(FrozenError):
            mm(a, b, bias, "relu")
    else:
        torch.testing.assert_close(mm(a, b, bias, "relu"), torch.relu(a @ b + bias))


def test_sum_without_a_summand_is_left_to_pytorch(
    gpu: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: StandIn, *operands: Any, **options: Any) -> Any:
        raise ArrayError(f"{len(operands)} operands, {len(options)} options: nothing to sum")

    monkeypatch.setattr(StandIn, "__call__", refuse)
    bias = drawn(5)
    result = mm(torch.empty(3, 0), torch.empty(0, 5), bias, "relu")
    torch.testing.assert_close(result, torch.relu(bias).expand(3, 5))
    assert gpu.problems == []
