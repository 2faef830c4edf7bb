"""The vendor baseline of SwiGLU: a product with gates and values in two halves, then SiLU and a
multiplication."""

from __future__ import annotations

from typing import Any

from autotune.gpu.padded_run import PaddedRun
from autotune.gpu.session import Run
from autotune.problem import GATE_SPAN, Problem

Copy = tuple[Any, Any]
"""The destination and the source of a copy."""


def apart(to: Any, source: Any, axis: int) -> Copy:
    """The copy of interleaved gates and values to two halves along an axis."""
    shape = tuple(source.shape)
    pairs = shape[axis] // (2 * GATE_SPAN)
    halves = to.reshape(*shape[:axis], 2, pairs, GATE_SPAN, *shape[axis + 1 :])
    interleaved = source.reshape(*shape[:axis], pairs, 2, GATE_SPAN, *shape[axis + 1 :])
    return halves, interleaved.swapaxes(axis, axis + 1)


def halves_of(product: Any) -> tuple[Any, Any]:
    """The gates and the values of a product, its two halves."""
    half = product.shape[-1] // 2
    return product[..., :half], product[..., half:]


def pairs_of(product: Any, c: Any) -> tuple[Any, Any, Any]:
    """The gates of a product, and what they are for, that are interleaved, and C in their shape."""
    *rows, columns = product.shape
    pairs = product.reshape(*rows, columns // (2 * GATE_SPAN), 2, GATE_SPAN)
    return pairs[..., 0, :], pairs[..., 1, :], c.reshape(*rows, -1, GATE_SPAN)


def combine(torch: Any, gate: Any, up: Any, out: Any) -> None:
    """`out = silu(gate) up`; `gate` becomes its SiLU."""
    torch.ops.aten.silu_(gate)
    torch.mul(gate, up, out=out)


def gated_run(torch: Any, problem: Problem, multiply: Any, a: Any, b: Any, c: Any) -> Run:
    """A run of PyTorch's function of A and B; B is copied beforehand, with its gates apart."""
    *batch, k, n = b.shape
    turned = problem.layout[1] == "t"
    sizes = (n, k) if turned else (k, n)
    weights = torch.empty((*batch, *sizes), dtype=b.dtype, device=b.device)
    parted = weights.swapaxes(-1, -2) if turned else weights
    to, source = apart(parted, b, len(batch) + 1)
    product = torch.empty((*c.shape[:-1], n), dtype=c.dtype, device=c.device)
    gate, up = halves_of(product)

    def run() -> None:
        multiply(a, parted, out=product)
        combine(torch, gate, up, c)

    return PaddedRun(run, lambda: to.copy_(source), _nothing)


def _nothing() -> None:
    """Does nothing: C is where it belongs."""
