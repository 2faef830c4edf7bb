"""`autotune.torch.inductor`: the rewritten graphs of `torch.compile`, on the CPU."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from support.sample_records import H100, record  # noqa: E402
from support.torch_runtime import StandIn  # noqa: E402
from torch._dynamo.utils import counters  # noqa: E402
from torch._inductor import config, custom_graph_pass  # noqa: E402
from torch._inductor.codegen import common  # noqa: E402
from torch._inductor.utils import fresh_inductor_cache  # noqa: E402

import autotune.torch  # noqa: E402
from autotune import Policy, runtime  # noqa: E402
from autotune.errors import ArrayError, UsageError  # noqa: E402
from autotune.problem import Problem  # noqa: E402
from autotune.records import Store  # noqa: E402
from autotune.settings import cache_dir  # noqa: E402
from autotune.torch import compiled, graph_pass, scaled  # noqa: E402
from autotune.torch.graph_pass import Chooser, ProductChoice  # noqa: E402
from autotune.torch.operator import Product, by_torch  # noqa: E402
from autotune.torch.scaled import ScaledProduct  # noqa: E402

functional = torch.nn.functional


class Launches:
    """Stands for the runtime: it multiplies by PyTorch, and notes what it ran."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.strides: list[Any] = []
        self.policies: list[Policy] = []

    def run(self, a: Any, b: Any, out: Any, options: Any, further: Any) -> Any:
        bias, residual = further.get("bias"), further.get("residual")
        self.problems.append(" ".join(filter(None, (*further, *options[2:4]))))
        self.strides.append((tuple(a.stride()), tuple(b.stride())))
        self.policies.append(options[-1])
        if "scale_a" in further:
            scales = further["scale_a"], further["scale_b"]
            return out.copy_(scaled.by_torch(ScaledProduct(a, b, *scales, bias, out.dtype)))
        return out.copy_(by_torch(Product(a, b, bias, options[2], residual=residual)))


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Launches]:
    """The pass takes the CPU for an H100 on which every kernel gains and nothing is raced."""
    stand_in = Launches()
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(graph_pass, "DEVICE", "cpu")
    monkeypatch.setattr(runtime, "probe", lambda _: H100)
    monkeypatch.setattr(compiled, "multiplier", lambda: stand_in)
    monkeypatch.setattr(Chooser, "race", lambda *_: None)
    monkeypatch.setattr(
        Chooser, "choice", lambda _self, problem, _any_m: ProductChoice(problem, 1.0, 2.0)
    )
    torch.manual_seed(0)
    with config.patch(fx_graph_cache=False):
        torch.compiler.reset()
        yield stand_in
    torch.compiler.reset()


def drawn(*shape: int, dtype: Any = torch.bfloat16, grad: bool = False) -> Any:
    return torch.randn(shape, dtype=dtype).requires_grad_(grad)


def same(result: Any, expected: Any) -> None:
    """Asserts results that differ by the rounding of bf16 at most."""
    error = (result.double() - expected.double()).norm() / expected.double().norm()
    assert float(error) < 2**-7


X, W, BIAS, W2, BIAS2 = (2, 8, 64), (128, 64), (128,), (64, 128), (64,)

PRODUCTS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...], str]] = {
    "mm": (torch.mm, ((8, 64), (64, 32)), ""),
    "addmm": (torch.addmm, ((32,), (8, 64), (64, 32)), "bias"),
    "addmm of a matrix": (torch.addmm, ((8, 32), (8, 64), (64, 32)), "residual"),
    "bmm": (torch.bmm, ((3, 8, 64), (3, 64, 32)), ""),
    "baddbmm": (torch.baddbmm, ((3, 8, 32), (3, 8, 64), (3, 64, 32)), "residual"),
}


@pytest.mark.parametrize("case", PRODUCTS.values(), ids=PRODUCTS)
def test_product_is_replaced(launches: Launches, case: Any) -> None:
    function, shapes, operands = case
    arguments = [drawn(*shape) for shape in shapes]
    with autotune.torch.inductor():
        result = torch.compile(function, fullgraph=True)(*arguments)
    assert launches.problems == [operands]
    same(result, function(*arguments))


def linear(x: Any, w: Any, bias: Any) -> Any:
    return functional.linear(x, w, bias)


EPILOGUES: dict[str, tuple[Callable[..., Any], str]] = {
    "relu": (torch.relu, "bias relu"),
    "gelu": (functional.gelu, "bias gelu"),
    "gelu_tanh": (lambda x: functional.gelu(x, approximate="tanh"), "bias gelu_tanh"),
    "silu": (functional.silu, "bias silu"),
    "gelu of GPT-2": (
        lambda x: 0.5 * x * (1.0 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3.0))),
        "bias gelu_tanh",
    ),
}


@pytest.mark.parametrize("activation", EPILOGUES.values(), ids=EPILOGUES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_activation_is_fused_before_a_product(
    launches: Launches, activation: Any, dtype: Any
) -> None:
    function, operands = activation

    def mlp(x: Any, w: Any, bias: Any, w2: Any, bias2: Any) -> Any:
        return linear(function(linear(x, w, bias)), w2, bias2)

    arguments = [drawn(*shape, dtype=dtype) for shape in (X, W, BIAS, W2, BIAS2)]
    with autotune.torch.inductor(), torch.no_grad():
        result = torch.compile(mlp, fullgraph=True)(*arguments)
    compute = " f32" if dtype is torch.float32 else ""
    assert launches.problems == [operands + compute, "bias" + compute]
    same(result, mlp(*arguments))


def test_activation_beside_other_pointwise_work_is_left(launches: Launches) -> None:
    def gated(x: Any, w: Any, up: Any) -> Any:
        return functional.silu(x @ w.t()) * up

    arguments = drawn(8, 64), drawn(*W), drawn(8, 128)
    with autotune.torch.inductor():
        result = torch.compile(gated, fullgraph=True)(*arguments)
    assert launches.problems == [""]
    same(result, gated(*arguments))


def test_residual_of_another_shape_is_fused(launches: Launches) -> None:
    def block(x: Any, y: Any, w2: Any, bias2: Any) -> Any:
        return linear(y, w2, bias2) + x

    arguments = drawn(*X), drawn(2, 8, 128), drawn(*W2), drawn(*BIAS2)
    with autotune.torch.inductor():
        result = torch.compile(block, fullgraph=True)(*arguments)
    assert launches.problems == ["bias residual"]
    same(result, block(*arguments))


def test_replaced_product_may_be_the_next_residual(launches: Launches) -> None:
    def blocks(x: Any, w: Any) -> Any:
        for _ in range(3):
            x = x + x @ w
        return x

    x, w = drawn(2, 8, 64), drawn(64, 64) / 8
    with autotune.torch.inductor():
        result = torch.compile(blocks, fullgraph=True)(x, w)
    assert launches.problems == ["residual"] * 3
    same(result, blocks(x, w))


def test_batch_of_one_matrix_is_not_copied(launches: Launches) -> None:
    def repeated(x: Any, w: Any) -> Any:
        return torch.bmm(x, w.expand(3, -1, -1))

    x, w = drawn(3, 8, 64), drawn(64, 32)
    with autotune.torch.inductor():
        result = torch.compile(repeated, fullgraph=True)(x, w)
    assert launches.strides == [((512, 64, 1), (0, 32, 1))]
    same(result, repeated(x, w))


def test_residual_that_inductor_does_not_store_stays(launches: Launches) -> None:
    def block(x: Any, w: Any) -> Any:
        x = torch.sin(x) + 1
        return functional.rms_norm(x, (64,)) @ w + x

    x, w = drawn(2, 8, 64), drawn(64, 64)
    with autotune.torch.inductor():
        result = torch.compile(block, fullgraph=True)(x, w)
    assert launches.problems == [""]
    same(result, block(x, w))


def test_residual_with_other_strides_stays(launches: Launches) -> None:
    def added(x: Any, w: Any, r: Any) -> Any:
        return x @ w + r.t()

    arguments = drawn(8, 64), drawn(64, 32), drawn(32, 8)
    with autotune.torch.inductor():
        result = torch.compile(added, fullgraph=True)(*arguments)
    assert not launches.problems
    same(result, added(*arguments))


def test_launch_copies_operands_that_no_kernel_reads(
    launches: Launches, gpu: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> Any:
        raise ArrayError("B has strides")

    monkeypatch.setattr(launches, "run", refuse)
    a, b, bias, out = drawn(8, 64), drawn(64, 64)[:, ::2], drawn(32), drawn(8, 32)
    compiled.launch(a, b, bias, named=("bias",), out=out, activation="relu", cold=True)
    same(out, torch.relu(a @ b + bias))
    assert gpu.policies == [Policy(cold=True)]


def doubled(c: Any, a: Any, b: Any) -> Any:
    return torch.addmm(c, a, b, beta=2)


SQUARE = (8, 8), (8, 8)
UNSERVED = {
    "complex": (torch.mm, [drawn(*shape, dtype=torch.complex64) for shape in SQUARE]),
    "integers": (torch.mm, [torch.ones(shape, dtype=torch.int64) for shape in SQUARE]),
    "empty": (torch.mm, [drawn(0, 8), drawn(8, 8)]),
    "strides": (torch.mm, [drawn(8, 16)[:, ::2], drawn(8, 8)]),
    "factors": (doubled, [drawn(8), drawn(8, 8), drawn(8, 8)]),
}


@pytest.mark.parametrize("operands", UNSERVED.values(), ids=UNSERVED)
def test_unserved_products_stay(launches: Launches, operands: Any) -> None:
    function, arguments = operands
    with autotune.torch.inductor() as switch:
        result = torch.compile(function, fullgraph=True)(*arguments)
    assert not launches.problems
    assert not switch.rows
    torch.testing.assert_close(result, function(*arguments))


def test_products_that_do_not_gain_stay(
    launches: Launches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        Chooser, "choice", lambda _self, problem, _: ProductChoice(problem, 2, 1, "slower")
    )
    x, w = drawn(8, 64), drawn(64, 32)
    with autotune.torch.inductor() as switch:
        same(torch.compile(torch.mm, fullgraph=True)(x, w), x @ w)
    assert not launches.problems
    assert [row.why for row in switch.rows] == ["slower"]


def test_kernels_read_the_strides_of_the_graph(launches: Launches) -> None:
    def transposed(x: Any, w: Any) -> Any:
        return (x + 1).t() @ w.t()

    x, w = drawn(64, 8), drawn(32, 64)
    with autotune.torch.inductor() as switch:
        same(torch.compile(transposed, fullgraph=True)(x, w), transposed(x, w))
    assert launches.strides == [((1, 8), (1, 64))]
    assert [str(row.problem) for row in switch.rows] == ["8x32x64:bf16:tt"]


@pytest.mark.usefixtures("launches")
def test_gradients_run_tuned_kernels() -> None:
    operands = [drawn(*shape, dtype=torch.float32, grad=True) for shape in (X, W, BIAS)]
    with autotune.torch.inductor() as switch:
        torch.compile(linear, fullgraph=True)(*operands).square().sum().backward()
    gradients = [operand.grad for operand in operands]
    for operand in operands:
        operand.grad = None
    linear(*operands).square().sum().backward()
    for gradient, operand in zip(gradients, operands, strict=True):
        torch.testing.assert_close(gradient, operand.grad, rtol=1e-4, atol=1e-3)
    assert sorted(str(row.problem) for row in switch.rows) == [
        "128x64x16:f32:tn",
        "16x128x64:f32:nt:bias",
        "16x64x128:f32:nn",
    ]


@pytest.mark.usefixtures("launches")
def test_saved_input_of_an_activation_is_kept() -> None:
    def mlp(x: Any, w: Any, bias: Any, w2: Any, bias2: Any) -> Any:
        return linear(functional.gelu(linear(x, w, bias)), w2, bias2)

    operands = [drawn(*shape, dtype=torch.float32, grad=True) for shape in (X, W, BIAS, W2, BIAS2)]
    with autotune.torch.inductor():
        torch.compile(mlp, fullgraph=True)(*operands).sum().backward()
    gradients = [operand.grad.clone() for operand in operands]
    for operand in operands:
        operand.grad = None
    mlp(*operands).sum().backward()
    for gradient, operand in zip(gradients, operands, strict=True):
        torch.testing.assert_close(gradient, operand.grad, rtol=1e-3, atol=1e-3)


def test_symbolic_rows_compile_once(launches: Launches) -> None:
    graphs = []

    def counted(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return torch._inductor.compile(graph, inputs)

    def block(x: Any, w: Any, bias: Any) -> Any:
        return linear(x, w, bias) + x

    run = torch.compile(block, fullgraph=True, backend=counted)
    w, bias = drawn(64, 64), drawn(64)
    with autotune.torch.inductor() as switch:
        for batch, rows in ((2, 8), (3, 24), (7, 5)):
            x = drawn(batch, rows, 64)
            for axis in (0, 1):
                torch._dynamo.mark_dynamic(x, axis)
            same(run(x, w, bias), block(x, w, bias))
    assert launches.problems == ["bias residual"] * 3
    assert len(graphs) == 1
    assert [str(row.problem) for row in switch.rows] == ["16x64x64:bf16:nt:bias_residual"]


@pytest.mark.usefixtures("launches")
def test_autocast_multiplies_in_its_type() -> None:
    x, w = drawn(8, 64, dtype=torch.float32), drawn(64, 32, dtype=torch.float32)
    with autotune.torch.inductor() as switch, torch.autocast("cpu", torch.bfloat16):
        torch.compile(torch.mm, fullgraph=True)(x, w)
    assert [str(row.problem) for row in switch.rows] == ["8x32x64:bf16:nn"]


def test_tf32_follows_the_setting_of_the_time_of_tracing(launches: Launches) -> None:
    x, w = drawn(8, 64, dtype=torch.float32), drawn(64, 32, dtype=torch.float32)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high")
        with autotune.torch.inductor() as switch:
            torch.compile(torch.mm, fullgraph=True)(x, w)
    finally:
        torch.set_float32_matmul_precision(before)
    assert [str(row.problem) for row in switch.rows] == ["8x32x64:tf32:nn"]
    assert launches.problems == ["tf32"]


def test_policy_reaches_the_kernels(launches: Launches) -> None:
    policy = Policy(cold=False, dependent=True)
    with autotune.torch.inductor(policy):
        run = torch.compile(torch.mm, fullgraph=True)
        run(drawn(8, 64), drawn(64, 32))
    assert launches.policies == [policy]


REFUSED: dict[str, dict[str, Any]] = {
    "batch_invariant=True": {"policy": Policy(batch_invariant=True)},
    "tune=True": {"policy": Policy(tune=True)},
    "vendor=False": {"policy": Policy(vendor=False)},
    "min_gain": {"min_gain": -1.0},
}


@pytest.mark.parametrize("word", REFUSED)
def test_impossible_arguments_are_refused(word: str) -> None:
    with pytest.raises(UsageError, match=word):
        autotune.torch.inductor(**REFUSED[word])
    assert common.custom_backend_passes.get("cuda") is None


def test_import_leaves_inductor_unimported() -> None:
    code = "import sys, autotune.torch; print('torch._inductor.lowering' in sys.modules)"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert output.stdout.strip() == b"False"


# Inductor's hooks.


class OwnPass(custom_graph_pass.CustomGraphPass, custom_graph_pass.CustomGraphModulePass):  # type: ignore[misc]
    """A pass that the program has set."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, _graph: Any) -> None:
        self.calls += 1

    def uuid(self) -> str:
        return "own"


@pytest.fixture(params=["back end", "setting"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Both places of the pass: the oldest PyTorch has no passes of back ends."""
    common.init_backend_registration()
    if request.param == "back end":
        return lambda: common.custom_backend_passes.get("cpu")
    monkeypatch.delattr(common, "custom_backend_passes")
    return lambda: config.post_grad_custom_post_pass


def test_pass_runs_in_either_place(launches: Launches, place: Callable[[], Any]) -> None:
    x, w = drawn(8, 64), drawn(64, 32)
    before = place()
    with autotune.torch.inductor() as switch:
        assert place() is switch
        torch.compile(torch.mm, fullgraph=True)(x, w)
    assert launches.problems == [""]
    assert place() is before


def test_pass_of_the_program_runs_too(launches: Launches, place: Callable[[], Any]) -> None:
    own = OwnPass()
    graph_pass._hook(own)
    try:
        alone = autotune.torch.inductor()
        keyed = alone.uuid()
        torch.compile(torch.mm, fullgraph=True)(drawn(8, 64), drawn(64, 32))
        alone.close()
        assert place() is own
    finally:
        graph_pass._hook(None)
    assert own.calls == 1
    assert launches.problems == [""]
    with autotune.torch.inductor() as without:
        assert without.uuid() != keyed


@pytest.mark.usefixtures("launches")
def test_innermost_switch_decides() -> None:
    with autotune.torch.inductor() as outer, autotune.torch.inductor(Policy()) as inner:
        torch.compile(torch.mm, fullgraph=True)(drawn(8, 64), drawn(64, 32))
    assert (len(outer.rows), len(inner.rows)) == (0, 1)
    assert common.custom_backend_passes.get("cpu") is None


def test_outer_switch_may_be_closed_first(launches: Launches) -> None:
    outer, inner = autotune.torch.inductor(), autotune.torch.inductor()
    outer.close()
    inner.close()
    assert common.custom_backend_passes.get("cpu") is None
    torch.compile(torch.mm, fullgraph=True)(drawn(8, 64), drawn(64, 32))
    assert not launches.problems


@pytest.mark.usefixtures("launches")
def test_setting_can_be_copied() -> None:
    with autotune.torch.inductor():
        config.get_config_copy()  # as Inductor does for its logs


@pytest.mark.usefixtures("launches")
def test_cpp_wrapper_leaves_the_graph(caplog: pytest.LogCaptureFixture) -> None:
    graph = torch.fx.Graph()
    with (
        config.patch(cpp_wrapper=True),
        caplog.at_level(logging.INFO, "autotune"),
        autotune.torch.inductor() as switch,
    ):
        switch(graph)
    assert "cpp_wrapper is on" in caplog.text


@pytest.mark.usefixtures("launches")
def test_choices_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "autotune"), autotune.torch.inductor() as switch:
        torch.compile(torch.mm, fullgraph=True)(drawn(8, 64), drawn(64, 32))
    assert "8x32x64:bf16" in caplog.text
    assert "1.00 us" in str(switch)
    assert "+100.0%" in str(switch)


# The cache of compiled graphs.


def test_cached_graphs_are_keyed_by_the_records(launches: Launches) -> None:
    x, w = drawn(8, 64), drawn(64, 32)

    def hits() -> int:
        torch.compiler.reset()
        before = counters["inductor"]["fxgraph_cache_hit"]
        same(torch.compile(torch.mm, fullgraph=True)(x, w), x @ w)
        return int(counters["inductor"]["fxgraph_cache_hit"] - before)

    with config.patch(fx_graph_cache=True), fresh_inductor_cache(), autotune.torch.inductor():
        assert (hits(), hits()) == (0, 1)
        assert len(launches.problems) == 2
        Store(cache_dir()).save(record(problem=Problem(8, 32, 64)))
        assert (hits(), hits()) == (0, 1)
    with config.patch(fx_graph_cache=True), fresh_inductor_cache():
        hits()
        assert len(launches.problems) == 4


@pytest.mark.usefixtures("launches")
def test_key_names_policy_and_gain() -> None:
    arguments: tuple[dict[str, Any], ...] = {}, {"min_gain": 0.1}, {"policy": Policy()}
    keys = set()
    for given in arguments:
        with autotune.torch.inductor(**given) as switch:
            keys.add(switch.uuid())
    assert len(keys) == len(arguments)


def test_scaled_product_is_replaced(launches: Launches) -> None:
    a, b = (drawn(32, 64).to(torch.float8_e4m3fn) for _ in range(2))
    scales = torch.tensor(0.5), torch.tensor(0.25)

    def multiply(a: Any, b: Any, scale_a: Any, scale_b: Any) -> Any:
        return torch._scaled_mm(a, b.t(), scale_a, scale_b, out_dtype=torch.bfloat16)

    with autotune.torch.inductor() as switch:
        result = torch.compile(multiply, fullgraph=True)(a, b, *scales)
    assert launches.problems == ["scale_a scale_b"]
    assert [str(row.problem) for row in switch.rows] == ["32x32x64:f8:nt:scale=tensor"]
    same(result, multiply(a, b, *scales))


def test_other_threads_compile_with_the_pass(launches: Launches) -> None:
    # As autograd does with the backward graph of a GPU.
    with autotune.torch.inductor():
        run = torch.compile(torch.mm, fullgraph=True)
        thread = threading.Thread(target=run, args=(drawn(8, 64), drawn(64, 32)))
        thread.start()
        thread.join()
    assert launches.problems == [""]
