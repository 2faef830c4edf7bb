"""Programs of `torch.compile` with `autotune.torch.inductor()` on a real GPU."""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from runtime_gpu import SIMT

from autotune import runtime
from autotune.families.plan import Resources
from autotune.measure.measurement import Measurement
from autotune.problem import Problem
from autotune.records import Entry, Provenance, Record, Store
from autotune.runtime import UntunedWarning
from autotune.runtime.launcher import Driver
from autotune.settings import Policy

ROWS, IN, OUT = 64, 256, 512
RECORDED = Policy()
"""Records and look-ups decide, and nothing is raced."""


@pytest.fixture(autouse=True)
def store(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A cache with its own records for each test, and graphs that no other test has compiled; the
    compiled kernels are shared."""
    compiler = pytest.importorskip("torch").compiler
    (cache / "programs").mkdir(exist_ok=True)
    (tmp_path / "programs").symlink_to(cache / "programs")
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    runtime.current.cache_clear()
    compiler.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UntunedWarning)
        yield Store(tmp_path)
    compiler.reset()
    runtime.current.cache_clear()


@pytest.fixture
def faster(driver: Driver, store: Store) -> Callable[..., None]:
    """Saves invented records of kernels that work: they are twice as fast as cuBLAS."""

    def save(*texts: str, cublas_us: float = 2.0) -> None:
        for text in texts:
            entry = Entry(SIMT, Measurement(1.0), Resources(128, 64, 0), 0.5, "warps")
            run = Provenance("13.0", "NVRTC", "", "0.1.0", "2026-11-26T12:00:00Z", 1, 1, 1.0)
            baseline, problem = Measurement(cublas_us), Problem.parse(text)
            device = driver.probe(0)
            store.save(Record(device, "measured", (entry,), baseline, run, problem))

    return save


def error(result: Any, expected: Any) -> float:
    """The relative error of a result, by the Frobenius norm."""
    return float((result.double() - expected).norm() / expected.norm())


def mlp(torch: Any, dtype: Any) -> Any:
    torch.manual_seed(0)
    first, second = torch.nn.Linear(IN, OUT), torch.nn.Linear(OUT, IN)
    return torch.nn.Sequential(first, torch.nn.GELU(), second).to("cuda", dtype)


MLP = (f"{ROWS}x{OUT}x{IN}:f32:nt:bias_gelu", f"{ROWS}x{IN}x{OUT}:f32:nt:bias")
BACKWARD = (f"{ROWS}x{OUT}x{IN}:f32:nn", f"{IN}x{OUT}x{ROWS}:f32:tn", f"{OUT}x{IN}x{ROWS}:f32:tn")


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_activation_and_bias_match_float64(torch: Any, faster: Any, mode: str | None) -> None:
    from autotune.torch import inductor

    faster(*MLP)
    model, x = mlp(torch, torch.float32), torch.randn(ROWS, IN, device="cuda")
    with inductor(RECORDED) as choices, torch.no_grad():
        compiled = torch.compile(model, fullgraph=True, mode=mode)
        results = [compiled(x).clone() for _ in range(4)]  # the later ones replay a graph
    assert [str(row.problem) for row in choices.rows if row.why is None] == [*MLP]
    for result in results:
        assert error(result, model.double()(x.double())) < 1e-6
        model.float()


def test_gradients_match_float64(torch: Any, faster: Any) -> None:
    from autotune.torch import inductor

    faster(MLP[0].replace("_gelu", ""), MLP[1], *BACKWARD)
    model, x = mlp(torch, torch.float32), torch.randn(ROWS, IN, device="cuda")
    with inductor(RECORDED) as choices:
        torch.compile(model, fullgraph=True)(x).square().sum().backward()
    assert {*BACKWARD} <= {str(row.problem) for row in choices.rows if row.why is None}
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    model.double()(x.double()).square().sum().backward()
    for gradient, parameter in zip(gradients, model.parameters(), strict=True):
        assert error(gradient, parameter.grad) < 1e-5


def test_symbolic_rows_run_without_recompiling(torch: Any, faster: Any) -> None:
    from autotune.torch import inductor

    faster(f"{ROWS}x{OUT}x{IN}:f32:nt")
    faster(f"96x{OUT}x{IN}:f32:nt", cublas_us=0.5)  # runs cuBLAS
    w = torch.randn(OUT, IN, device="cuda")
    graphs = []

    def linear(x: Any, w: Any) -> Any:
        return torch.nn.functional.linear(x, w)

    def counting(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return torch._inductor.compile(graph, inputs)

    with inductor(RECORDED) as choices:
        compiled = torch.compile(linear, fullgraph=True, dynamic=True, backend=counting)
        for rows in (ROWS, 96, 17, 1000):
            x = torch.randn(rows, IN, device="cuda")
            assert error(compiled(x, w), x.double() @ w.t().double()) < 1e-6
    assert len(graphs) == 1
    assert [row.why for row in choices.rows] == [None]


def test_race_records_the_products_of_a_graph(torch: Any, store: Store, driver: Driver) -> None:
    from autotune.torch import inductor

    x, w = (torch.randn(128, 384, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    with inductor() as choices, torch.no_grad():
        result = torch.compile(torch.nn.functional.linear, fullgraph=True)(x, w)
    assert error(result, x.double() @ w.t().double()) < 4e-3
    record = store.load(driver.probe(0), choices.rows[0].problem)
    assert record is not None
    assert record.provenance.quick


def test_cached_graph_is_used_until_a_record_changes(torch: Any, faster: Any) -> None:
    from torch._dynamo.utils import counters
    from torch._inductor.utils import fresh_inductor_cache

    from autotune.torch import inductor

    x, w = torch.randn(ROWS, IN, device="cuda"), torch.randn(IN, OUT, device="cuda")

    def hits() -> int:
        torch.compiler.reset()
        before = counters["inductor"]["fxgraph_cache_hit"]
        result = torch.compile(torch.mm, fullgraph=True)(x, w)
        assert error(result, x.double() @ w.double()) < 1e-6
        return int(counters["inductor"]["fxgraph_cache_hit"] - before)

    faster(f"{ROWS}x{OUT}x{IN}:f32")
    with fresh_inductor_cache(), inductor(RECORDED) as choices:
        assert [hits(), hits()] == [0, 1]
        faster(f"{ROWS}x{OUT}x{IN}:f32", cublas_us=0.5)
        assert [hits(), hits()] == [0, 1]
    assert [row.why for row in choices.rows] == [None, "cuBLAS is faster"]


def test_scaled_product_matches_pytorch(torch: Any) -> None:
    from autotune.torch import graph_pass, inductor

    if torch.cuda.get_device_capability() < (8, 9):
        pytest.skip("no fp8")
    a, b = (torch.randn(64, 128, device="cuda").to(torch.float8_e4m3fn) for _ in range(2))
    scales = [torch.tensor(0.5, device="cuda"), torch.tensor(0.25, device="cuda")]

    def multiply(a: Any, b: Any, scale_a: Any, scale_b: Any) -> Any:
        return torch._scaled_mm(a, b.t(), scale_a, scale_b, out_dtype=torch.bfloat16)

    with pytest.MonkeyPatch.context() as patched, inductor(RECORDED) as choices:
        gains = graph_pass.Chooser.choice
        patched.setattr(
            graph_pass.Chooser,
            "choice",
            lambda *arguments: graph_pass.ProductChoice(gains(*arguments).problem, 1.0, 2.0),
        )
        result = torch.compile(multiply, fullgraph=True)(a, b, *scales)
    assert [str(row.problem) for row in choices.rows] == ["64x64x128:f8:nt:scale=tensor"]
    assert error(result, a.double() @ b.double().t() / 8) < 4e-3


def block(torch: Any, hidden: int, wide: int) -> Any:
    """A Llama-shaped block without attention, in bf16."""
    nn, functional = torch.nn, torch.nn.functional

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(hidden, 3 * hidden // 2, bias=False)
            self.out = nn.Linear(hidden, hidden, bias=False)
            self.gate = nn.Linear(hidden, wide, bias=False)
            self.up = nn.Linear(hidden, wide, bias=False)
            self.down = nn.Linear(wide, hidden, bias=False)
            self.norms = nn.ModuleList(nn.RMSNorm(hidden, eps=1e-6) for _ in range(2))

        def forward(self, x: Any) -> Any:
            x = x + self.out(self.qkv(self.norms[0](x))[..., :hidden])
            y = self.norms[1](x)
            return x + self.down(functional.silu(self.gate(y)) * self.up(y))

    torch.manual_seed(0)
    return Block().to("cuda", torch.bfloat16).requires_grad_(False)


@pytest.mark.parametrize("rows", [1, 16])
def test_block_is_as_accurate_and_as_fast_as_plain(torch: Any, rows: int) -> None:
    """Both run in turn, so that the clock changes alike for them."""
    from autotune.torch import inductor

    model = block(torch, 4096, 14336)
    x = torch.randn(1, rows, 4096, device="cuda", dtype=torch.bfloat16)
    with torch.no_grad():
        plain = torch.compile(model, options={"triton.cudagraphs": True})
        results = [plain(x).clone()]
        with inductor():
            # Other options, or PyTorch would take the graph that is compiled already.
            ours = torch.compile(model, options={"triton.cudagraphs": True, "max_fusion_size": 63})
            results.append(ours(x).clone())
        times = [in_turn(torch, plain, ours, x) for _ in range(15)]
        expected = model.double()(x.double())
    errors = [error(result, expected) for result in results]
    assert errors[1] < 1.2 * errors[0]
    assert statistics.median(plain_ms / ours_ms for plain_ms, ours_ms in times) > 0.98


def in_turn(torch: Any, *arguments: Any) -> list[float]:
    """Milliseconds of ten runs of each function."""
    *functions, x = arguments
    times = []
    for function in functions:
        for _ in range(2):
            function(x)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(10):
            function(x)
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return times
