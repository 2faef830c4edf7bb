"""`autotune.torch.Linear`, and `patch`, which turns the layers of a model into such layers."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from support.fake_runner import tiled  # noqa: E402
from support.sample_records import H100, entry, record  # noqa: E402
from support.torch_runtime import StandIn  # noqa: E402
from torch import nn  # noqa: E402

from autotune import runtime, settings  # noqa: E402
from autotune.api import tuning  # noqa: E402
from autotune.api.shapes import Shapes  # noqa: E402
from autotune.errors import ArrayError, ProblemError, UsageError  # noqa: E402
from autotune.measure import targets  # noqa: E402
from autotune.measure.targets import TargetOpener  # noqa: E402
from autotune.problem import Problem  # noqa: E402
from autotune.records import Record, Store  # noqa: E402
from autotune.settings import Policy  # noqa: E402
from autotune.torch import Linear, patch, patching, unpatch  # noqa: E402
from autotune.torch.linear import PatchedLinear  # noqa: E402
from autotune.tuning.options import Search  # noqa: E402

ROWS = 64

WIDE = Problem(ROWS, 96, 32, layout="nt", epilogue="bias")

NARROW = Problem(ROWS, 32, 96, layout="nt")


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    """The same random numbers in each test, and nothing compiled by an earlier one."""
    torch.manual_seed(0)
    yield
    torch.compiler.reset()


@pytest.mark.parametrize(
    "shape", [(4,), (3, 4), (2, 3, 4), (2, 1, 3, 4), (0, 4), (2, 0, 4)], ids=str
)
@pytest.mark.parametrize("activation", [None, "relu", "gelu", "silu"])
@pytest.mark.parametrize("bias", [False, True])
def test_linear_matches_pytorch(shape: tuple[int, ...], activation: str | None, bias: bool) -> None:
    layer, x = Linear(4, 5, bias, activation), torch.randn(shape)
    expected = nn.functional.linear(x, layer.weight, layer.bias)
    if activation is not None:
        expected = getattr(nn.functional, activation)(expected)
    torch.testing.assert_close(layer(x), expected)


def test_leading_dimensions_become_rows_of_one_matmul(gpu: StandIn) -> None:
    layer = Linear(4, 5, activation="relu", compute="tf32x3")
    with torch.no_grad():
        layer(torch.randn(2, 3, 4))
    assert gpu.problems == [Problem(6, 5, 4, "tf32x3", "nt", epilogue="bias_relu")]


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4)], ids=str)
@pytest.mark.parametrize("dependent", [False, True])
def test_layer_makes_dependent_launches_on_request(
    gpu: StandIn, shape: tuple[int, ...], dependent: bool
) -> None:
    for layer in (
        Linear(4, 5, policy=Policy(dependent=dependent)),
        Linear.of(nn.Linear(4, 5), policy=Policy(dependent=dependent)),
    ):
        layer(torch.randn(shape)).sum().backward()
    assert gpu.dependent == [dependent] * 4


def test_weight_gradient_is_stored_like_the_weight(gpu: StandIn) -> None:
    layer = Linear(4, 5)
    layer(torch.randn(3, 4)).sum().backward()
    assert gpu.layouts == ["nt", "tn"]
    assert layer.weight.grad.stride() == layer.weight.stride()


def test_state_dict_is_that_of_nn_linear() -> None:
    original, linear, x = nn.Linear(4, 5), Linear(4, 5), torch.randn(3, 4)
    linear.load_state_dict(original.state_dict())
    original.load_state_dict(linear.state_dict())
    torch.testing.assert_close(linear(x), original(x))


def test_layer_of_another_shares_its_parameters() -> None:
    original = nn.Linear(4, 5, dtype=torch.bfloat16).eval()
    linear = Linear.of(original, "relu", "bf16")
    assert (linear.weight is original.weight, linear.bias is original.bias) == (True, True)
    assert (linear.activation, linear.compute, linear.training) == ("relu", "bf16", False)


def test_layer_of_another_may_have_no_bias() -> None:
    assert Linear.of(nn.Linear(4, 5, bias=False)).bias is None


def test_repr_names_activation_and_compute() -> None:
    text = "Linear(in_features=4, out_features=5, bias=True, activation=relu, compute=tf32)"
    assert repr(Linear(4, 5, activation="relu", compute="tf32")) == text


@pytest.mark.parametrize(
    ("activation", "compute", "message"),
    [("tanh", None, "unknown activation 'tanh'"), (None, "f4", "unknown compute 'f4'")],
)
def test_unknown_activation_or_compute_is_refused(
    activation: str | None, compute: str | None, message: str
) -> None:
    with pytest.raises(ProblemError, match=message):
        Linear(4, 5, activation=activation, compute=compute)


@pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 2, 8)], ids=str)
def test_input_of_another_size_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ArrayError, match=f"the inner sizes {shape[-1]} and 4 differ"):
        Linear(4, 5)(torch.randn(shape))


@pytest.mark.parametrize("dynamic", [False, True])
def test_linear_compiles_into_one_graph(dynamic: bool) -> None:
    layer = Linear(4, 5, activation="gelu")
    compiled = torch.compile(layer, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for shape in ((3, 4), (2, 3, 4), (5, 3, 4)):
        x = torch.randn(shape)
        torch.testing.assert_close(compiled(x), layer(x))


class Model(nn.Module):  # type: ignore[misc]
    """Two linear layers of one shape, one of another, and layers that are not patched."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(32, 96)
        self.second = nn.Linear(32, 96)
        self.down = nn.Linear(96, 32, bias=False)
        self.other = nn.Bilinear(32, 32, 32)

    def forward(self, x: Any) -> Any:
        return self.down(torch.relu(self.first(x)) + self.second(x))


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """An empty store on a machine that treats CPU tensors as those of its only GPU, an H100."""
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(settings, "shipped_dir", lambda: tmp_path / "shipped")
    monkeypatch.setattr(runtime, "probe", lambda ordinal: [H100][ordinal])
    monkeypatch.setattr(patching, "_ordinal", lambda _: 0)
    return Store(tmp_path)


def measured(problem: Problem, tuned_us: float, cublas: float) -> Record:
    best = replace(entry(16, tuned_us), config=tiled(16))
    return record(best, problem=problem, baseline_us=cublas)


def patched(model: Any, *rows: int, **options: Any) -> tuple[Any, str]:
    """The report and the printed text."""
    text = StringIO()
    return patch(model, rows or None, file=text, **options), text.getvalue()


def classes(model: Any) -> list[type]:
    return [type(layer) for layer in (model.first, model.second, model.down)]


def test_patch_replaces_only_layers_that_gain(store: Store) -> None:
    store.save(measured(WIDE, 100.0, 125.0))
    store.save(measured(NARROW, 100.0, 80.0))
    model = Model()
    report, _ = patched(model, ROWS)
    assert classes(model) == [PatchedLinear, PatchedLinear, nn.Linear]
    assert (report.replaced, report.kept) == (("first", "second"), ("down",))


def test_patched_model_computes_the_same_by_the_operator(store: Store, gpu: StandIn) -> None:
    store.save(measured(WIDE, 100.0, 125.0))
    model, x = Model(), torch.randn(2, 32, 32)
    expected = model(x)
    patched(model)
    torch.testing.assert_close(model(x), expected)
    assert gpu.problems == [WIDE, WIDE]


def test_table_shows_patched_layers_and_their_gain(store: Store) -> None:
    store.save(measured(WIDE, 100.0, 125.0))
    _, text = patched(Model(), ROWS)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert lines[0] == f"2 of 3 linear layers replaced on {H100.name}"
    assert "2: first, ... 64 96 32 f32 100.0 us 125.0 us +25.0% replaced" in lines
    assert "down 64 32 96 f32 kept: no record" in lines


def test_card_without_records_is_told_what_to_run(store: Store) -> None:
    _, text = patched(Model(), ROWS)
    told = " ".join(text.split())
    assert f"{H100.name} has no records: `autotune tune shapes.json --effort quick`" in told
    assert "about 6 s for 2;" in told
    store.save(measured(WIDE, 100.0, 125.0))
    assert "has no records" not in patched(Model(), ROWS)[1]


def test_table_is_printed_to_standard_output(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    store.save(measured(WIDE, 100.0, 125.0))
    patch(Model())
    assert capsys.readouterr().out.startswith("2 of 3 linear layers replaced")


def test_patch_keeps_parameters_hooks_and_names(store: Store) -> None:
    store.save(measured(WIDE, 100.0, 125.0))
    model, seen = Model(), []
    model.first.register_forward_hook(lambda *_: seen.append("called"))
    before = dict(model.named_parameters())
    patched(model)
    model(torch.randn(3, 32))
    after = dict(model.named_parameters())
    assert {name: id(module) for name, module in after.items()} == {
        name: id(module) for name, module in before.items()
    }
    assert seen == ["called"]


@pytest.mark.parametrize("dependent", [False, True])
def test_patched_layers_make_dependent_launches_on_request(
    store: Store, gpu: StandIn, dependent: bool
) -> None:
    store.save(measured(WIDE, 100.0, 125.0))
    model = Model()
    patched(model, policy=Policy(dependent=dependent))
    model(torch.randn(3, 32))
    assert gpu.dependent == [dependent] * 2
    assert unpatch(model) == ("first", "second")
    assert classes(model) == [nn.Linear] * 3


def test_unpatch_restores_the_model(store: Store) -> None:
    store.save(measured(WIDE, 100.0, 125.0))
    model = Model()
    before = repr(model)
    patched(model)
    assert (unpatch(model), repr(model)) == (("first", "second"), before)


def test_unpatch_leaves_explicit_linear_layers() -> None:
    model = nn.Sequential(Linear(4, 5))
    assert (unpatch(model), type(model[0])) == ((), Linear)


def test_patching_again_starts_afresh(store: Store) -> None:
    store.save(measured(WIDE, 100.0, 125.0))
    model = Model()
    patched(model)
    report, _ = patched(model, min_gain=0.5)
    assert (classes(model), report.replaced) == ([nn.Linear] * 3, ())


def test_copy_of_a_patched_model_is_patched(store: Store) -> None:
    store.save(measured(WIDE, 100.0, 125.0))
    model = Model()
    patched(model)
    assert classes(copy.deepcopy(model)) == classes(model)


def test_patch_accepts_a_single_layer(store: Store) -> None:
    store.save(measured(WIDE, 100.0, 125.0))
    layer = nn.Linear(32, 96)
    _, text = patched(layer)
    assert type(layer) is PatchedLinear
    assert "the model" in text


def test_patched_model_compiles_into_one_graph(store: Store) -> None:
    store.save(measured(WIDE, 100.0, 125.0))
    model, x = Model(), torch.randn(3, 32)
    patched(model)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), model(x))


def test_fp32_layers_use_tf32_records_if_pytorch_allows_tf32(store: Store) -> None:
    store.save(measured(replace(WIDE, compute="tf32"), 100.0, 125.0))
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        report, _ = patched(Model())
    finally:
        torch.set_float32_matmul_precision(before)
    assert report.replaced == ("first", "second")


@pytest.mark.usefixtures("store")
def test_layers_of_unsupported_types_are_kept() -> None:
    report, text = patched(nn.Linear(32, 96).double())
    assert (report.kept, "kept: no kernel has this type" in text) == (("",), True)


class Subclass(nn.Linear):  # type: ignore[misc]
    """A subclass, whose forward may differ."""


def test_subclasses_of_linear_are_kept(store: Store) -> None:
    store.save(measured(WIDE, 100.0, 125.0))
    model = nn.Sequential(Subclass(32, 96))
    report, _ = patched(model)
    assert (report.rows, type(model[0])) == ((), Subclass)


def test_layers_with_tensor_subclasses_are_kept(store: Store) -> None:
    store.save(measured(WIDE, 100.0, 125.0))
    quantized, layer = type("Quantized", (torch.Tensor,), {}), nn.Linear(32, 96)
    layer.weight = nn.Parameter(layer.weight.detach().as_subclass(quantized))
    report, _ = patched(layer)
    assert [row.why for row in report.rows] == ["the weight is a Quantized"]


def test_layers_not_on_a_gpu_are_kept() -> None:
    report, _ = patched(Model())
    assert {row.why for row in report.rows} == {"on cpu"}
    assert report.devices == ()


FAST: Any = "fast"  # no word of a policy


@pytest.mark.parametrize(
    ("options", "message"),
    [({"rows": 0}, "rows is 0; give whole numbers of at least 1"),
     ({"rows": []}, r"rows is \[\]"), ({"rows": [64, 1.5]}, r"rows is \[64, 1.5\]"),
     ({"min_gain": -0.1}, "min_gain is -0.1"), ({"min_gain": float("nan")}, "min_gain is nan"),
     ({"policy": Policy(tune=True)}, "tune without rows"),
     ({"policy": Policy(tune=FAST)}, "tune is 'fast'; give True, False or 'quick'"),
     ({"rows": 1, "search": Search()}, "search without tune"),
     ({"rows": 1, "policy": Policy(tune="quick"), "search": Search(effort="long")}, "effort long"),
     ({"rows": 1, "policy": Policy(tune=True), "search": Search(recording="x")}, "no recording")],
)  # fmt: skip
def test_invalid_arguments_of_patch_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        patch(Model(), **options)


@pytest.mark.usefixtures("gpu")
def test_patch_tunes_missing_records_on_request(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[tuple[Problem, Any]] = []
    forgotten: list[Problem] = []

    def search(_: TargetOpener, problem: Problem, options: Search, **__: Any) -> Record:
        searched.append((problem, options.seconds))
        return store.save(measured(problem, 100.0, 125.0))

    monkeypatch.setattr(tuning, "search_at", search)
    monkeypatch.setattr(targets, "resolve", lambda _: H100)
    monkeypatch.setattr(targets, "measures", lambda _: True)
    monkeypatch.setattr(StandIn, "forget", lambda _, problem: forgotten.append(problem), False)
    store.save(measured(WIDE, 100.0, 90.0))
    report, text = patched(Model(), ROWS, policy=Policy(tune=True), search=Search(seconds=5))
    assert [problem for problem, _ in searched] == [NARROW]
    assert searched[0][1] == pytest.approx(5, abs=0.5)
    assert forgotten == [NARROW]
    assert (report.replaced, "1 shape" in text) == (("down",), True)


@pytest.mark.usefixtures("gpu")
def test_patch_tunes_noted_shapes_under_one_budget(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[tuple[Problem, Any]] = []
    forgotten: list[Problem] = []

    def search(_: TargetOpener, problem: Problem, options: Search, **__: Any) -> Record:
        searched.append((problem, options.seconds))
        return store.save(measured(problem, 100.0, 125.0))

    monkeypatch.setattr(tuning, "search_at", search)
    monkeypatch.setattr(targets, "resolve", lambda _: H100)
    monkeypatch.setattr(targets, "measures", lambda _: True)
    monkeypatch.setattr(StandIn, "forget", lambda _, problem: forgotten.append(problem), False)
    text = StringIO()
    shapes = Shapes({WIDE: 2, NARROW: 1})
    report = patch(Model(), shapes, policy=Policy(tune=True), search=Search(seconds=5), file=text)
    assert [problem for problem, _ in searched] == [WIDE, NARROW]
    assert searched[-1][1] == pytest.approx(10, abs=0.5)  # the first search took no time
    assert forgotten == [WIDE, NARROW]
    assert report.replaced == ("first", "second", "down")
    assert "2 shapes, 3 runs" in text.getvalue()
