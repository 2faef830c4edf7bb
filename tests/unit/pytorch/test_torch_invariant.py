"""Linear layers with batch invariance, on the CPU."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from autotune.errors import UsageError  # noqa: E402
from autotune.settings import Policy  # noqa: E402
from autotune.torch import patch, unpatch  # noqa: E402
from autotune.torch.linear import patched  # noqa: E402


@pytest.mark.parametrize("bias", [False, True])
def test_operator_is_pytorchs_product_on_the_cpu(bias: bool) -> None:
    layer, x = nn.Linear(4, 5, bias), torch.randn(3, 4)
    result = torch.ops.autotune.mm_batch_invariant(x, layer.weight.t(), layer.bias)
    torch.testing.assert_close(result, layer(x))


def test_operator_has_the_shape_of_its_result() -> None:
    with torch.device("meta"):
        a, b = torch.empty(3, 4), torch.empty(4, 5)
    assert torch.ops.autotune.mm_batch_invariant(a, b).shape == (3, 5)


def test_layer_with_a_gradient_is_a_patched_layer() -> None:
    layer = nn.Linear(4, 5)
    patched([layer], Policy(batch_invariant=True))
    x = torch.randn(3, 4, requires_grad=True)
    layer(x).sum().backward()
    torch.testing.assert_close(x.grad, layer.weight.sum(0).expand(3, 4))
    assert unpatch(layer) == ("",)


def test_layers_off_the_gpu_stay() -> None:
    report = patch(nn.Linear(4, 5), rows=3, policy=Policy(batch_invariant=True))
    assert [row.why for row in report.rows] == ["on cpu"]


def test_eight_bits_are_refused() -> None:
    with pytest.raises(UsageError, match="no compute of 8 bits"):
        patch(nn.Linear(4, 5), compute="f8", policy=Policy(batch_invariant=True))
