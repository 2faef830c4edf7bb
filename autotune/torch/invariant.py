"""The operator `autotune::mm_batch_invariant` and its layers: rows have the same bits in every
batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from autotune import runtime, settings
from autotune.api import ranges
from autotune.errors import ArrayError
from autotune.lookup.answer import Answer
from autotune.lookup.batch_invariant import batch_invariant
from autotune.problem import Problem
from autotune.problem.arguments import Span
from autotune.records import Records, Store
from autotune.report.layers import Report, Row
from autotune.runtime.frameworks.libraries import tf32_allowed
from autotune.settings import Policy
from autotune.torch.layer_groups import LayerGroup
from autotune.torch.linear import patched
from autotune.torch.operands import contiguous, readable, result_shape
from autotune.torch.operator import by_torch, policy_with
from autotune.torch.rows import Rows, rows_of
from autotune.tuning.options import Search

SCHEMA = "mm_batch_invariant(Tensor a, Tensor b, Tensor? bias=None, bool dependent=False) -> Tensor"
NO_RANGE = "no batch-invariant range"


def register(library: Any) -> None:
    """Defines the operator, with its implementations for GPUs, the CPU and fake tensors."""
    library.define(SCHEMA)
    library.impl("mm_batch_invariant", on_gpu, "CUDA")
    library.impl("mm_batch_invariant", _on_cpu, "CPU")
    torch.library.register_fake("autotune::mm_batch_invariant", _fake, lib=library)


def on_gpu(a: Any, b: Any, bias: Any = None, dependent: bool = False) -> Any:
    """The matmul by a kernel of the batch-invariant range of its N and K."""
    compute = "tf32" if a.dtype is torch.float32 and tf32_allowed(torch) else None
    multiply, policy = runtime.batch_invariant(), policy_with(dependent)
    try:
        return multiply(a, b, bias=bias, compute=compute, policy=policy)
    except ArrayError:
        # Only now, as nearly all operands need no copy.
        result_shape(a, b, bias)
    (copied,) = contiguous(bias)
    a, b = readable(a, "A"), readable(b, "B")
    return multiply(a, b, bias=copied, compute=compute, policy=policy)


def _on_cpu(a: Any, b: Any, bias: Any = None, dependent: bool = False) -> Any:
    del dependent
    return by_torch(a, b, bias)


def _fake(a: Any, b: Any, bias: Any = None, dependent: bool = False) -> Any:
    """An empty result for fake tensors, which have sizes but no memory."""
    del dependent
    return a.new_empty(result_shape(a, b, bias))


def patch_invariant(
    groups: Sequence[LayerGroup], rows: Rows, options: Search | None, policy: Policy | None
) -> Report:
    """Patches the layers that a batch-invariant range serves, however fast cuBLAS is.

    Args:
        groups: the layers of the model.
        rows: the numbers of rows, as `patch` takes them.
        options: how missing ranges are tuned; None tunes none.
        policy: the policy that the layers keep; None follows the current one at each call.
    """
    usable = [group for group in groups if group.obstacle is None]
    devices = {group.ordinal: runtime.probe(group.ordinal) for group in usable}
    records = Records(Store(settings.cache_dir()))
    table: list[Row] = []
    for group in groups:
        numbers = rows_of(rows, group.layer)
        if group.obstacle is not None or numbers == {}:
            table.append(Row(group.layer, why=group.obstacle or "not among the shapes"))
            continue
        device, counts = devices[group.ordinal], tuple(numbers or (1,))
        if options and batch_invariant(_plain(group, 1), device, records) is None:
            span = Span(_plain(group, max(counts)), "m", 1)
            ranges.tune(span, options, device=f"gpu:{group.ordinal}", batch_invariant=True)
        judged = [
            _row(group, m, batch_invariant(_plain(group, m), device, records)) for m in counts
        ]
        if all(row.replaced for row in judged):
            patched(group.modules, policy)
        table += judged
    return Report(tuple(device.name for device in devices.values()), tuple(table))


def _plain(group: LayerGroup, m: int) -> Problem:
    """The product of the layers without a bias, which does not change the order of summation."""
    return group.layer.problems(m)[-1]


def _row(group: LayerGroup, m: int, answer: Answer | None) -> Row:
    if answer is None:
        return Row(group.layer, m, why=NO_RANGE)
    return Row(group.layer, m, answer.problem, answer.time_us, replaced=True)
