"""The PyTorch operator, the layer and patched models on a real GPU."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch_inference
from runtime_gpu import SIMT, excess_of

from autotune import runtime
from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.measure.measurement import Measurement
from autotune.model import space
from autotune.problem import Problem
from autotune.records import Entry, Provenance, Record, Store
from autotune.runtime import UntunedWarning
from autotune.runtime.launcher import Driver
from autotune.settings import Policy
from autotune.tuning.options import Search

TYPES = {"f32": "float32", "tf32": "float32", "tf32x3": "float32", "f16": "float16",
         "bf16": "bfloat16"}  # fmt: skip


ACTIVATED: dict[str | None, tuple[str, dict[str, str]]] = {
    None: ("", {}),
    "relu": ("relu", {}),
    "gelu": ("gelu", {}),
    "gelu_tanh": ("gelu", {"approximate": "tanh"}),
    "silu": ("silu", {}),
}


ROWS, IN, OUT = 64, 256, 192


LAYER = Problem(ROWS, OUT, IN, layout="nt", epilogue="bias")


@pytest.fixture(autouse=True)
def untuned() -> Iterator[None]:
    """Most shapes here are untuned."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UntunedWarning)
        yield


@pytest.fixture(autouse=True)
def store(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A cache with its own records for each test; the compiled programs are shared."""
    (cache / "programs").mkdir(exist_ok=True)
    (tmp_path / "programs").symlink_to(cache / "programs")
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path))
    runtime.current.cache_clear()
    yield Store(tmp_path)
    runtime.current.cache_clear()


@pytest.fixture
def mm(torch: Any) -> Any:
    import autotune.torch  # noqa: F401

    torch.manual_seed(0)
    return torch.ops.autotune.mm


def drawn(torch: Any, *shape: int, dtype: str = "float32", grad: bool = False) -> Any:
    return torch.randn(shape, device="cuda", dtype=getattr(torch, dtype), requires_grad=grad)


def close(torch: Any, result: Any, expected: Any, tolerance: float) -> None:
    """Asserts an error below `tolerance` times the largest expected element."""
    scale = float(expected.abs().max())
    torch.testing.assert_close(
        result.double(), expected.double(), rtol=0, atol=tolerance * scale, check_device=False
    )


@pytest.mark.parametrize("compute", TYPES)
@pytest.mark.parametrize("layout", ["nn", "nt", "tn"])
def test_results_are_correct(torch: Any, mm: Any, compute: str, layout: str) -> None:
    shapes = (ROWS, IN), (IN, OUT)
    a, b = (
        drawn(torch, *shape, dtype=TYPES[compute])
        if letter == "n"
        else drawn(torch, *shape[::-1], dtype=TYPES[compute]).t()
        for shape, letter in zip(shapes, layout, strict=True)
    )
    bias = drawn(torch, OUT, dtype=TYPES[compute])
    result = mm(a, b, bias, None, compute)
    assert excess_of(result, a, b, rest=bias.double(), compute=compute) <= 0


@pytest.mark.parametrize("activation", ACTIVATED)
def test_operator_passes_pytorch_opcheck(torch: Any, mm: Any, activation: str | None) -> None:
    w, bias = drawn(torch, OUT, IN, grad=True), drawn(torch, OUT, grad=True)
    operands = drawn(torch, ROWS, IN, grad=True), w.t(), bias, activation
    assert set(torch.library.opcheck(mm, operands).values()) == {"SUCCESS"}


@pytest.mark.parametrize("activation", ACTIVATED)
@pytest.mark.parametrize("compute", ["f32", "bf16"])
def test_gradients_match_pytorch(torch: Any, mm: Any, compute: str, activation: str | None) -> None:
    dtype = TYPES[compute]
    operands = [
        drawn(torch, *shape, dtype=dtype, grad=True) for shape in ((ROWS, IN), (OUT, IN), (OUT,))
    ]
    twins = [argument.detach().double().requires_grad_() for argument in operands]
    gradient = drawn(torch, ROWS, OUT, dtype=dtype)
    x, w, bias = operands
    mm(x, w.t(), bias, activation, compute).backward(gradient)
    plain = torch.nn.functional.linear(*twins)
    if activation is not None:
        name, keywords = ACTIVATED[activation]
        plain = getattr(torch.nn.functional, name)(plain, **keywords)
    plain.backward(gradient.double())
    # In 16 bits, rounding may move an input of relu across 0.
    tolerance = 1e-5 if compute == "f32" else 3e-2
    for argument, twin in zip(operands, twins, strict=True):
        close(torch, argument.grad, twin.grad, tolerance)


def test_gradient_of_a_sum_matches_pytorch(torch: Any, mm: Any) -> None:
    x, w = drawn(torch, ROWS, IN, grad=True), drawn(torch, OUT, IN, grad=True)
    mm(x, w.t()).sum().backward()
    close(torch, w.grad, x.detach().sum(0).expand(OUT, IN), 1e-5)


def test_operator_is_twice_differentiable(torch: Any, mm: Any) -> None:
    x, w = drawn(torch, ROWS, IN, grad=True), drawn(torch, OUT, IN, grad=True)
    penalties = []
    matmuls: list[Callable[[], Any]] = [lambda: mm(x, w.t()), lambda: x @ w.t()]
    for matmul in matmuls:
        first = torch.autograd.grad(matmul().square().sum(), x, create_graph=True)[0]
        penalties.append(torch.autograd.grad(first.square().sum(), w)[0])
    close(torch, penalties[0], penalties[1], 1e-4)


def test_inductor_compiles_the_operator_into_one_graph(torch: Any, mm: Any) -> None:
    pytest.importorskip("triton")
    w, bias = drawn(torch, OUT, IN), drawn(torch, OUT)

    def model(x: Any) -> Any:
        return mm(x * 2, w.t(), bias, "gelu") + 1

    compiled = torch.compile(model, fullgraph=True, dynamic=True)
    for rows in (16, 48, 100):
        x = drawn(torch, rows, IN)
        close(torch, compiled(x), model(x), 1e-5)


def test_inductor_compiles_training(torch: Any, mm: Any) -> None:
    pytest.importorskip("triton")
    del mm
    from autotune.torch import Linear

    gradients = []
    layer = Linear(IN, OUT, activation="gelu", device="cuda")
    x = drawn(torch, ROWS, IN)
    for run in (layer, torch.compile(layer, fullgraph=True)):
        layer.zero_grad()
        run(x).square().sum().backward()
        gradients.append(layer.weight.grad.clone())
    close(torch, gradients[0], gradients[1], 1e-5)


def test_autocast_computes_in_16_bits(torch: Any, mm: Any) -> None:
    a, b = drawn(torch, ROWS, IN), drawn(torch, IN, OUT)
    with torch.autocast("cuda", torch.bfloat16):
        result = mm(a, b)
    assert result.dtype is torch.bfloat16
    assert excess_of(result, a.bfloat16(), b.bfloat16(), compute="bf16") <= 0


@pytest.mark.parametrize("view", ["every other column", "one row for all", "no rows"])
def test_strides_that_no_kernel_reads_are_copied(torch: Any, mm: Any, view: str) -> None:
    matrix = drawn(torch, ROWS, 2 * IN)
    a = {"every other column": matrix[:, ::2], "one row for all": matrix[:1, :IN].expand(ROWS, IN),
         "no rows": matrix[:0, :IN]}[view]  # fmt: skip
    b = drawn(torch, IN, OUT)
    result = mm(a, b)
    assert result.shape == (len(a), OUT)
    assert not len(a) or excess_of(result, a, b) <= 0


def test_fp32_follows_the_pytorch_setting(
    torch: Any, mm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from autotune.torch import operator

    computes: list[str | None] = []
    matmul = runtime.current()

    def spy(a: Any, b: Any, *, compute: str | None, **rest: Any) -> Any:
        computes.append(compute)
        return matmul(a, b, compute=compute, **rest)

    monkeypatch.setattr(operator, "multiplier", lambda: spy)
    a, b = drawn(torch, ROWS, IN), drawn(torch, IN, OUT)
    before = torch.get_float32_matmul_precision()
    for setting in ("highest", "high"):
        torch.set_float32_matmul_precision(setting)
        mm(a, b)
    torch.set_float32_matmul_precision(before)
    monkeypatch.undo()
    assert computes == [None, "tf32"]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_linear_matches_pytorch(torch: Any, dtype: str) -> None:
    from autotune.torch import Linear

    layer = Linear(IN, OUT, activation="relu", device="cuda", dtype=getattr(torch, dtype))
    x = drawn(torch, 2, ROWS, IN, dtype=dtype)
    plain = torch.nn.functional.linear(x.double(), layer.weight.double(), layer.bias.double())
    with torch.no_grad():
        close(torch, layer(x), plain.relu(), 1e-5)


def invented_record(
    driver: Driver, problem: Problem, config: Config, tuned_us: float, cublas: float
) -> Record:
    """A record of a kernel that works, with invented times."""
    entry = Entry(config, Measurement(tuned_us), Resources(128, 64, 0), 0.5, "warps")
    provenance = Provenance("13.0", "NVRTC 13.0", "", "0.1.0", "2026-11-21T12:00:00Z", 1, 1, 1.0)
    return Record(driver.probe(0), "measured", (entry,), Measurement(cublas), provenance, problem)


@pytest.fixture
def model(torch: Any, store: Store, driver: Driver) -> Any:
    """A linear layer with an activation in fp32, recorded as faster by the tuned kernel."""
    store.save(invented_record(driver, LAYER, SIMT, 1.0, 2.0))
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(IN, OUT, device="cuda"), torch.nn.ReLU())


def patched(model: Any, **options: Any) -> Any:
    from autotune.torch import patch

    return patch(model, file=StringIO(), **options)


def test_patched_model_computes_the_same(torch: Any, model: Any) -> None:
    x = drawn(torch, ROWS, IN)
    with torch.no_grad():
        before = model(x)
        assert patched(model).replaced == ("0",)
        close(torch, model(x), before, 1e-5)


def test_layer_that_cublas_runs_faster_is_kept(torch: Any, store: Store, driver: Driver) -> None:
    store.save(invented_record(driver, LAYER, SIMT, 2.0, 1.0))
    assert patched(torch.nn.Linear(IN, OUT, device="cuda")).kept == ("",)


def test_graph_captures_a_patched_model(torch: Any, model: Any) -> None:
    patched(model)
    x = drawn(torch, ROWS, IN)
    with torch.inference_mode():
        model(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = model(x)
        x.copy_(drawn(torch, ROWS, IN))
        graph.replay()
        close(torch, out, model(x), 0)


def test_threads_with_their_own_streams_share_a_patched_model(torch: Any, model: Any) -> None:
    patched(model)
    wrong: list[float] = []

    def work(seed: int) -> None:
        stream = torch.cuda.Stream()
        with torch.inference_mode(), torch.cuda.stream(stream):
            generator = torch.Generator("cuda").manual_seed(seed)
            for rows in (ROWS, 1, ROWS, 33) * 10:
                x = torch.randn(rows, IN, device="cuda", generator=generator)
                result, weight = model(x).double(), model[0].weight.double()
                expected = (x.double() @ weight.t() + model[0].bias.double()).relu()
                wrong.append(float((result - expected).abs().max()))
            stream.synchronize()

    run_together([partial(work, seed) for seed in range(4)])
    assert len(wrong) == 160
    assert max(wrong) < 1e-4


def test_patch_tunes_shapes_without_a_record(torch: Any, store: Store, driver: Driver) -> None:
    pytest.importorskip("pycuda")
    layer = torch.nn.Linear(128, 96, bias=False, device="cuda", dtype=torch.bfloat16)
    report = patched(layer, rows=32, policy=Policy(tune=True), search=Search(trials=5))
    record = store.load(driver.probe(0), Problem(32, 96, 128, "bf16", "nt"), "measured")
    assert record is not None
    assert report.rows[0].ours_us == record.best.measurement.time_us


def test_example_runs(torch: Any, capsys: pytest.CaptureFixture[str]) -> None:
    model = torch_inference.model_of(torch, IN, OUT)
    assert torch_inference.compare(torch, model, ROWS) < 0.05
    out = capsys.readouterr().out
    assert "0 of 4 linear layers replaced" in out
    assert "us patched" in out


def test_example_patches_recorded_layers(
    torch: Any, store: Store, driver: Driver, capsys: pytest.CaptureFixture[str]
) -> None:
    up = Problem(ROWS, OUT, IN, "bf16", "nt")
    config = space.feasible(up, driver.probe(0), "mma").configs[0]
    store.save(invented_record(driver, up, config, 1.0, 2.0))
    model = torch_inference.model_of(torch, IN, OUT)
    assert torch_inference.compare(torch, model, ROWS) < 0.05
    assert "2 of 4 linear layers replaced" in capsys.readouterr().out


def run_together(works: list[Callable[[], None]]) -> None:
    """Runs each function in a thread of its own."""
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
