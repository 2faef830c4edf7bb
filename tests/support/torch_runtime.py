"""A fake runtime that checks CPU tensors by the rules for a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import pytest
import torch

from autotune import runtime
from autotune.problem import Problem
from autotune.runtime import CallOptions, arrays
from autotune.runtime.operands import problem_of
from autotune.settings import DEFAULT_POLICY, Policy
from autotune.torch import operator


class StandIn:
    """Checks operands as the runtime does, then runs PyTorch's matmul.

    Attributes:
        problems: the problems that were run.
        operands: A, B and the biases of these.
        policies: the policy of each of them.
        refused: how often operands were refused.
    """

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.operands: list[Any] = []
        self.policies: list[Policy] = []
        self.refused = 0

    def __call__(
        self,
        a: Any,
        b: Any,
        *,
        bias: Any = None,
        activation: str | None = None,
        compute: str | None = None,
        policy: Policy = DEFAULT_POLICY,
        residual: Any = None,
    ) -> Any:
        first, second = described(a, "A"), described(b, "B")
        further = {"bias": bias, "residual": residual}
        infos = {"a": first, "b": second}
        infos |= {name: described(t, name) for name, t in further.items() if t is not None}
        self.refused += 1
        problem = problem_of(infos, CallOptions(activation=activation, compute=compute))
        if bias is not None:
            arrays.check_vector(described(bias, "bias"), problem.n, 0, first.dtype)
        if residual is not None:
            out = described(a.new_empty((*a.shape[:-1], problem.n)), "out")
            place = arrays.check_out(out, out.shape, 0)
            arrays.check_residual(described(residual, "residual"), out, place, 0)
        self.refused -= 1
        self.problems.append(problem)
        self.operands += [operand for operand in (a, b, bias) if operand is not None]
        self.policies.append(policy)
        product = operator.Product(a, b, bias, activation, residual=residual)
        return operator.by_torch(product)

    @property
    def dependent(self) -> list[bool]:
        """For each problem so far, whether it was a dependent launch."""
        return [policy.dependent for policy in self.policies]

    @property
    def layouts(self) -> list[str]:
        """The layouts of the problems so far."""
        return [problem.layout for problem in self.problems]


def described(tensor: Any, name: str) -> arrays.ArrayInfo:
    """A tensor as if it were on GPU 0."""
    recorded = tensor.requires_grad and torch.is_grad_enabled()
    dtype = str(tensor.dtype).removeprefix("torch.")
    shape, strides = tuple(tensor.shape), tuple(tensor.stride())
    return arrays.ArrayInfo(name, shape, strides, dtype, 0, recorded=recorded)


@contextmanager
def standing_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    """The operator treats CPU tensors like those of a GPU, up to the fake runtime."""
    stand_in = StandIn()
    library = torch.library.Library("autotune", "IMPL")
    with monkeypatch.context() as patched:
        patched.setattr(runtime, "current", lru_cache(lambda: stand_in))
        patched.setattr(operator, "multiplier", lambda: stand_in)
        library.impl("mm", operator.on_gpu, "CPU", allow_override=True)
        yield stand_in
    library._destroy()
