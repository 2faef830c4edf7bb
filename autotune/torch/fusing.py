"""Matrix products in a graph of Inductor, with the bias, activation or residual behind them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true, sym_eq

from autotune.problem import SWIGLU
from autotune.torch.operator import ACTIVATIONS, DTYPES

aten = torch.ops.aten

VIEWS = aten.view.default, aten.reshape.default, aten._unsafe_view.default


def _written_out(x: Any) -> Any:
    """`gelu_tanh` as OpenAI's models and `transformers` spell it out."""
    cubed = 0.044715 * torch.pow(x, 3.0)
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + cubed)))


FORMS: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    *((name, function) for name, function in ACTIVATIONS.items() if name != SWIGLU),
    ("gelu_tanh", _written_out),
)
"""The activations, by their names, in the forms in which models compute them."""


@dataclass(frozen=True)
class GraphProduct:
    """A product in a graph, with the nodes behind it that one kernel can compute with it.

    Attributes:
        node: the product.
        end: the last of the nodes.
        operands: nodes by their names in `autotune::chosen_mm`.
        options: its other arguments.
        view: the view between the product and the nodes behind it; None without one.
    """

    node: Node
    end: Node
    operands: Mapping[str, Node]
    options: Mapping[str, Any] = field(default_factory=dict)
    view: Node | None = None

    @property
    def scaled(self) -> bool:
        """Whether the product comes from `torch._scaled_mm`."""
        return "scale_a" in self.operands


def products(graph: Graph) -> Iterator[tuple[GraphProduct, ...]]:
    """The products that a kernel may take, each as variants: the most fused first, the product by
    itself last."""
    for node in [*graph.nodes]:
        read = _READERS.get(node.target) if node.op == "call_function" else None
        product = read(node, *node.args, **node.kwargs) if read else None
        if product is not None and _plain(product):
            yield (*_fused(product), product)


def _plain(product: GraphProduct) -> bool:
    """Whether the operands and the product are strided tensors, none of them empty."""
    values = [node.meta.get("val") for node in (product.node, *product.operands.values())]
    return all(
        isinstance(value, torch.Tensor)
        and value.layout is torch.strided
        and not any(isinstance(size, int) and size == 0 for size in value.shape)
        for value in values
    )


def _mm(node: Node, a: Node, b: Node) -> GraphProduct:
    return GraphProduct(node, node, {"a": a, "b": b})


def _addmm(
    node: Node, added: Node, a: Node, b: Node, *, beta: Any = 1, alpha: Any = 1
) -> GraphProduct | None:
    product = _mm(node, a, b)
    return _adding(product, node, added, None) if beta == alpha == 1 else None


def _scaled_mm(
    node: Node,
    a: Node,
    b: Node,
    scale_a: Node,
    scale_b: Node,
    bias: Node | None = None,
    scale_result: Node | None = None,
    out_dtype: Any = None,
    use_fast_accum: bool = False,
) -> GraphProduct | None:
    if scale_result is not None:
        return None
    operands = {"a": a, "b": b, "scale_a": scale_a, "scale_b": scale_b}
    del out_dtype  # without one the result has the type of A
    options = {"out_dtype": node.meta["val"].dtype, "fast": use_fast_accum}
    if bias is not None:
        operands["bias"] = bias
    return GraphProduct(node, node, operands, options=options)


_READERS: Mapping[Any, Callable[..., GraphProduct | None]] = {
    aten.mm.default: _mm,
    aten.addmm.default: _addmm,
    aten.bmm.default: _mm,
    aten.baddbmm.default: _addmm,
    aten._scaled_mm.default: _scaled_mm,
}


def _adding(product: GraphProduct, end: Node, added: Any, view: Node | None) -> GraphProduct | None:
    """The product with a node that is added to it, as a bias or as a residual; None if no
    kernel adds it."""
    value = product.node.meta["val"]
    addend = added.meta.get("val") if isinstance(added, Node) else None
    if addend is None or addend.dtype != value.dtype or addend.device != value.device:
        return None
    # A view of the residual takes one size that is not a number.
    shaped = view is None or all(isinstance(size, int) for size in value.shape[1:])
    whole = _equal(end.meta["val"].shape, addend.shape) and value.dtype is not torch.float32
    if _equal(addend.shape, value.shape[-1:]) and "bias" not in product.operands:
        name = "bias"
    elif whole and shaped and "residual" not in product.operands and _in_memory(added):
        name = "residual"
    else:
        return None
    return replace(product, end=end, operands={**product.operands, name: added}, view=view)


def _equal(shape: Any, further: Any) -> bool:
    """Whether two shapes are equal for all symbolic sizes; this adds no guard."""
    return len(shape) == len(further) and bool(statically_known_true(sym_eq(shape, further)))


def _fused(product: GraphProduct) -> Iterator[GraphProduct]:
    """The product with what follows it, the most fused first.

    Inductor puts pointwise nodes into one kernel, so those whose result only such nodes read are
    left to it.
    """
    if product.scaled or product.node.meta["val"].dtype not in DTYPES:
        return
    start, view, base = product.node, None, product
    if (user := _only_user(start)) is not None and user.target in VIEWS:
        start = view = user
    variants = []
    added = _added_to(base, start, view)
    if added is not None and "residual" not in added.operands:
        variants.append(added)
        base, start = added, added.end
        added = _added_to(base, start, view)
    if added is not None:
        variants.append(added)
    if "residual" not in product.operands:
        for name, pattern in _activations(product.node.meta["val"].dtype):
            if (end := _match(pattern, start)) is not None:
                variants.append(replace(base, end=end, options={"activation": name}, view=view))
    yield from (variant for variant in reversed(variants) if _stored(variant.end))


def _only_user(node: Node) -> Node | None:
    return next(iter(node.users)) if len(node.users) == 1 else None


def _added_to(product: GraphProduct, start: Node, view: Node | None) -> GraphProduct | None:
    """The product with the node that its only user adds."""
    user = _only_user(start)
    if user is None or user.target is not aten.add.Tensor or user.kwargs.get("alpha", 1) != 1:
        return None
    added = next((addend for addend in user.args if addend is not start), None)
    return _adding(product, user, added, view)


def _in_memory(node: Node) -> bool:
    """Whether Inductor stores a node in memory anyway. A pointwise node that only pointwise nodes
    read is neither stored nor rounded."""
    while node.target in VIEWS:
        node = node.all_input_nodes[0]
    pointwise = node.op == "call_function" and torch.Tag.pointwise in node.target.tags
    return not pointwise or _stored(node)


def _stored(node: Node) -> bool:
    """Whether the memory has to hold the result: a product or the caller reads it."""
    return any(
        _stored(user)
        if user.target in (*VIEWS, aten.permute.default, aten.transpose.int)
        else user.op == "output" or user.target in _READERS
        for user in node.users
    )


@lru_cache(maxsize=8)
def _activations(dtype: Any) -> tuple[tuple[str, Graph], ...]:
    """Each activation as the nodes into which Inductor decomposes it."""
    from torch._inductor.decomposition import select_decomp_table
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    with FakeTensorMode():
        example = torch.empty(2, 16, dtype=dtype)
        table = select_decomp_table()
        return tuple(
            (name, make_fx(_of_one(function), decomposition_table=table)(example).graph)
            for name, function in FORMS
        )


def _of_one(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: function(x)


def _match(pattern: Graph, start: Node) -> Node | None:
    """The node that ends the pattern, if it begins with that input and nothing else reads the nodes
    between."""
    matched: dict[Node, Node] = {}
    for wanted in pattern.nodes:
        if wanted.op == "placeholder":
            matched[wanted] = start
        elif wanted.op == "call_function":
            source = next(iter(wanted.all_input_nodes))
            arguments = torch.fx.map_arg((wanted.args, dict(wanted.kwargs)), matched.get)
            node = next(
                (
                    user
                    for user in matched[source].users
                    if user.target is wanted.target and (user.args, dict(user.kwargs)) == arguments
                ),
                None,
            )
            if node is None:
                return None
            matched[wanted] = node
    end = next(reversed(matched.values()))
    inner = set(matched.values())
    return end if all(inner.issuperset(node.users) for node in inner - {end}) else None
