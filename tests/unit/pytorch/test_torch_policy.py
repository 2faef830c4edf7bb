"""Policies in PyTorch: at each call, at trace time, and those that patched layers keep."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from support.torch_runtime import StandIn  # noqa: E402
from torch import nn  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import autotune  # noqa: E402
from autotune import Policy, settings  # noqa: E402
from autotune.errors import UsageError  # noqa: E402
from autotune.settings import Mode  # noqa: E402
from autotune.torch import (  # noqa: E402
    Linear,
    mm,
    operator,
    patch,
    scaled_mm,
    unpatch,
)
from autotune.torch.linear import PatchedLinear, patched  # noqa: E402

A, B = (3, 4), (4, 5)


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    """Nothing compiled by an earlier test."""
    yield
    torch.compiler.reset()


def test_product_follows_the_block_and_its_own_policy(gpu: StandIn) -> None:
    a, b = torch.randn(A), torch.randn(B)
    with autotune.policy(cold=True, dependent=True) as block:
        mm(a, b)
        mm(a, b, policy=Policy(vendor=False))
        assert settings.policy() is block
    mm(a, b)
    mm(a, b, policy=Policy(dependent=True))
    assert gpu.policies == [block, Policy(vendor=False), Policy(), Policy(dependent=True)]


def test_frozen_product_freezes_the_process_for_itself(
    gpu: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Mode] = []
    run = StandIn.__call__

    def noting(self: StandIn, *operands: Any, **options: Any) -> Any:
        seen.append(settings.mode())
        return run(self, *operands, **options)

    monkeypatch.setattr(StandIn, "__call__", noting)
    a, b = torch.randn(A), torch.randn(B)
    mm(a, b, policy=Policy(frozen="raise"))
    mm(a, b)
    assert seen == [Mode("frozen", "raise"), Mode()]
    assert len(gpu.problems) == 2


def test_layer_follows_the_block_or_its_own_policy(gpu: StandIn) -> None:
    following, own = Linear(4, 5), Linear(4, 5, policy=Policy(cold=True))
    x = torch.randn(2, 3, 4)
    with autotune.policy(vendor=False), torch.no_grad():
        following(x)
        own(x)
    assert gpu.policies == [Policy(vendor=False), Policy(cold=True)]


def test_gradients_take_the_launches_of_the_forward_pass(gpu: StandIn) -> None:
    a, b = (torch.randn(shape, requires_grad=True) for shape in (A, B))
    with autotune.policy(dependent=True):
        result = mm(a, b)
    result.sum().backward()
    assert gpu.dependent == [True] * 3


# Compiled.


def test_compiled_product_is_dependent_as_it_was_traced(gpu: StandIn) -> None:
    compiled = torch.compile(lambda a, b: mm(a, b), fullgraph=True, backend="aot_eager")
    a, b = torch.randn(A), torch.randn(B)
    with autotune.policy(dependent=True):
        result = compiled(a, b)
    with autotune.policy(vendor=False, cold=True):
        compiled(a, b)
    torch.testing.assert_close(result, a @ b)
    assert gpu.policies == [Policy(dependent=True), Policy(dependent=True, vendor=False, cold=True)]


def test_compiled_product_takes_a_policy_of_its_own(gpu: StandIn) -> None:
    own = Policy(dependent=True)

    def product(a: Any, b: Any) -> Any:
        return mm(a, b, policy=own) + mm(a, b, policy=Policy())

    compiled = torch.compile(product, fullgraph=True, backend="aot_eager")
    compiled(torch.randn(A), torch.randn(B))
    assert gpu.dependent == [True, False]


@pytest.mark.parametrize("dependent", [False, True])
def test_compiled_layers_take_dependent_launches(gpu: StandIn, dependent: bool) -> None:
    kept = nn.Linear(4, 4)
    patched([kept], Policy(dependent=dependent))
    model = nn.Sequential(Linear(4, 4, policy=Policy(dependent=dependent)), kept, Linear(4, 4))
    compiled, x = torch.compile(model, fullgraph=True, backend="aot_eager"), torch.randn(A)
    with torch.no_grad(), autotune.policy(dependent=not dependent):
        torch.testing.assert_close(compiled(x), model(x))
    assert gpu.dependent == [dependent, dependent, not dependent] * 2


# Batch invariance.


class Noted(TorchDispatchMode):  # type: ignore[misc]
    """Notes the operators of this package."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        if func.namespace == "autotune":
            self.names.append(func._opname)
        return func(*args, **(kwargs or {}))


def ran(grad: bool = False, **options: Any) -> tuple[list[str], Any]:
    """The operators that a product on a GPU runs, and its result."""
    with FakeTensorMode(), Noted() as noted:
        a = torch.empty(A, device="cuda", requires_grad=grad)
        b, bias = (torch.empty(shape, device="cuda") for shape in (B, 5))
        return noted.names, mm(a, b, bias, **options)


def test_invariant_policy_chooses_the_operator() -> None:
    for activation in (None, "gelu"):
        with autotune.policy(batch_invariant=True):
            names, result = ran(activation=activation)
        assert (names, result.shape) == (["mm_batch_invariant"], (3, 5))
    assert ran(policy=Policy())[0] == ["mm"]


def test_recorded_gradient_sets_invariance_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    # Without a GPU, PyTorch crashes where it records the gradient of a fake tensor on one.
    monkeypatch.setattr(operator, "_eager_mm", lambda *_: "mm")
    invariant = Policy(batch_invariant=True)
    assert ran(grad=True, policy=invariant) == ([], "mm")
    with torch.no_grad():
        assert ran(grad=True, policy=invariant)[0] == ["mm_batch_invariant"]


def test_invariant_product_under_autocast_has_its_type() -> None:
    torch.set_autocast_enabled("cuda", True)  # `torch.autocast` does not, without a GPU
    torch.set_autocast_dtype("cuda", torch.bfloat16)
    try:
        names, result = ran(policy=Policy(batch_invariant=True))
    finally:
        torch.set_autocast_enabled("cuda", False)
        torch.set_autocast_dtype("cuda", torch.float16)
    assert (names, result.dtype) == (["mm_batch_invariant"], torch.bfloat16)


def test_invariant_product_with_a_residual_adds_it() -> None:
    with FakeTensorMode():
        a, b, c = (torch.empty(shape, device="cuda") for shape in (A, B, (3, 5)))
        assert mm(a, b, residual=c, policy=Policy(batch_invariant=True)).shape == (3, 5)


def test_invariant_product_takes_no_compute() -> None:
    with pytest.raises(UsageError, match="compute is tf32; a batch-invariant product takes that"):
        ran(compute="tf32", policy=Policy(batch_invariant=True))


def test_scaled_product_is_not_invariant() -> None:
    q, one = torch.ones(A).to(torch.float8_e4m3fn), torch.ones(1)
    with (
        autotune.policy(batch_invariant=True),
        pytest.raises(UsageError, match=r"scaled_mm is not batch-invariant; call autotune\.matmul"),
    ):
        scaled_mm(q, q.t(), one, one)


# Patched layers.


def test_patched_layer_keeps_its_policy_until_it_is_unpatched(gpu: StandIn) -> None:
    layer = nn.Linear(4, 5)
    patched([layer], Policy(cold=True))
    assert isinstance(layer, PatchedLinear)
    with autotune.policy(vendor=False), torch.no_grad():
        layer(torch.randn(A))
        assert unpatch(layer) == ("",)
        patched([layer], None)
        layer(torch.randn(A))
    assert gpu.policies == [Policy(cold=True), Policy(vendor=False)]
    unpatch(layer)
    assert "policy" not in vars(layer)


def test_patch_in_the_frozen_mode_does_not_tune() -> None:
    for policy in (Policy(tune=True, frozen=True), Policy(tune="quick", frozen="raise")):
        assert patch(nn.Linear(4, 5), policy=policy).kept == ("",)
    with autotune.policy(frozen=True):
        assert patch(nn.Linear(4, 5), policy=Policy(tune=True)).kept == ("",)


def test_patch_has_few_arguments() -> None:
    assert len(inspect.signature(patch).parameters) <= 10
