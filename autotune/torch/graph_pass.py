"""The pass of `inductor` over graphs: it compares the tuned kernels of their matrix products with
cuBLAS, and replaces the products that gain by `autotune::chosen_mm`.

Importing this imports Inductor, which takes a second.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import chain
from typing import Any

import torch
from torch._guards import detect_fake_mode
from torch._inductor import config, custom_graph_pass
from torch._inductor.codegen import common
from torch.fx import Graph, Node

from autotune import runtime, settings
from autotune.api import shapes
from autotune.api.shapes import Shapes
from autotune.cuda import cublaslt
from autotune.device import Device
from autotune.errors import ArrayError, AutotuneError, ProblemError, UsageError
from autotune.lookup.answer import Answer, unverified_fault
from autotune.lookup.lookup import finder, recorded, state
from autotune.measure.objective import time_objective
from autotune.problem import Epilogue, Problem
from autotune.records import Records, Store
from autotune.report import cell, gain
from autotune.report.layers import FASTER, NOT_TIMED, UNKNOWN, why_kept, why_too_little
from autotune.runtime.arrays import memory_of
from autotune.runtime.frameworks import tf32_allowed
from autotune.runtime.operands import CallOptions
from autotune.settings import Policy
from autotune.torch.fusing import GraphProduct, aten, products
from autotune.torch.operator import described
from autotune.torch.recording import problem_of_tensors, scaled_problem
from autotune.tuning.options import Search

log = logging.getLogger("autotune")

DEVICE = "cuda"

_MODULE_PASS: Any = getattr(custom_graph_pass, "CustomGraphModulePass", object)


class Inductor(custom_graph_pass.CustomGraphPass, _MODULE_PASS):  # type: ignore[misc]
    """The switch that `inductor` returns: a pass over graphs, until it is closed."""

    def __init__(self, policy: Policy, min_gain: float) -> None:
        self.policy, self.min_gain = policy, min_gain
        self.rows: list[ProductChoice] = []
        former = _hooked()
        self._restored, self._open = former, True
        # The innermost switch decides alone.
        self._before: Any = former._before if isinstance(former, Inductor) else former
        _hook(self)

    def close(self) -> None:
        """Restores Inductor's settings. Programs that are compiled already stay as they are."""
        self._open = False
        while isinstance(current := _hooked(), Inductor) and not current._open:
            _hook(current._restored)

    def __enter__(self) -> Inductor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __str__(self) -> str:
        return choice_table(self.rows)

    def __deepcopy__(self, _memo: object) -> Inductor:
        return self  # PyTorch copies its settings to print them

    def uuid(self) -> str | None:
        """The part of the key of Inductor's cache that names all that the choices depend on; None,
        which leaves the cache unused, if the program's own pass has none."""
        before = None if self._before is None else getattr(self._before, "uuid", lambda: None)()
        if before is None and self._before is not None:
            return None
        records, cublas = state(Store(settings.cache_dir())), cublaslt.version()
        own = records, cublas, settings.mode(), self.policy, self.min_gain
        return sha256(repr((before, own if self._open else None)).encode()).hexdigest()

    def __call__(self, code: Any) -> None:
        """Replaces the products that gain in a graph, or in the graph of a module."""
        if self._before is not None:
            self._before(code)
        if not self._open:
            return
        if reason := _refusal():
            log.info("inductor leaves a graph as it is: %s", reason)
            return
        graph = code if isinstance(code, Graph) else code.graph
        choosers = self._choosers(_served(graph))
        # Read again: a product that is replaced may be an operand of a later one.
        chosen = [_replaced(graph, each, choosers[each[0].gpu]) for each in _served(graph)]
        if chosen:
            self.rows += chosen
            log.info("%s", choice_table(chosen))

    def _choosers(self, served: Iterable[tuple[Variant, ...]]) -> dict[int, Chooser]:
        """The chooser of each GPU, after its races."""
        problems: dict[int, list[Problem]] = {}
        for variant in chain.from_iterable(served):
            problems.setdefault(variant.gpu, []).append(variant.problem)
        choosers = {}
        for gpu, listed in problems.items():
            choosers[gpu] = Chooser(gpu, runtime.probe(gpu), self.policy, self.min_gain)
            choosers[gpu].race(listed)
        return choosers


def _hooked() -> Any:
    """The pass that Inductor runs last over graphs of GPUs; None for none."""
    passes = _backend_passes()
    return config.post_grad_custom_post_pass if passes is None else passes.get(DEVICE)


def _hook(own: Any) -> None:
    """Makes Inductor run a pass last over graphs of GPUs."""
    passes = _backend_passes()
    if passes is None:
        config.post_grad_custom_post_pass = own
    else:
        passes[DEVICE] = own


def _backend_passes() -> Any:
    """Inductor's passes by the device of a graph; None in the oldest releases of PyTorch.

    They hold for all threads, as autograd compiles a backward graph in its own. The settings do so
    only in releases without these passes.
    """
    passes = getattr(common, "custom_backend_passes", None)
    if passes is not None:
        common.init_backend_registration()  # replaces what is there, the first time
    return passes


def _refusal() -> str | None:
    """Why Inductor cannot call the launches in the code that it generates now; None if it can."""
    for name in ("cpp_wrapper", "fx_wrapper"):
        if getattr(config, name, False):
            return f"{name} is on, and the launches are in Python"
    return None


@dataclass(frozen=True)
class ProductChoice:
    """The choice for a product of a graph.

    Attributes:
        problem: the product, with what its kernel would compute behind it.
        ours_us: microseconds of the tuned kernel, measured or expected; None if unknown.
        cublas_us: those of cuBLAS.
        why: why the product stays as it is; None if the tuned kernel replaces it.
    """

    problem: Problem
    ours_us: float | None = None
    cublas_us: float | None = None
    why: str | None = None

    @property
    def gain(self) -> float | None:
        """Gain of the tuned kernel over cuBLAS, 0.25 = 25 %."""
        return gain(self.cublas_us, self.ours_us)

    def __str__(self) -> str:
        times = [cell(us, "{:.2f} us") or "-" for us in (self.ours_us, self.cublas_us)]
        figures = f"{times[0]:>12} {times[1]:>12} {cell(self.gain, '{:+.1%}'):>8}"
        return f"{self.problem!s:40} {figures}  {self.why or 'tuned kernel'}"


def choice_table(choices: Iterable[ProductChoice]) -> str:
    """The choices as lines, equal ones counted."""
    head = f"{'':5} {'product':40} {'ours':>12} {'cuBLAS':>12} {'gain':>8}  runs"
    counts = Counter(choices)
    return "\n".join((head, *(f"{count:4}x {choice}" for choice, count in counts.items())))


class Chooser:
    """Compares tuned kernels with cuBLAS on a GPU.

    Attributes:
        launched: how the kernels are launched, by the arguments of the operators.

    Args:
        ordinal: number of the GPU.
        device: the GPU.
        policy: whether shapes without a record are raced, and whether cold times decide.
        min_gain: the least gain over cuBLAS, 0.05 = 5 %.
    """

    def __init__(self, ordinal: int, device: Device, policy: Policy, min_gain: float) -> None:
        self._ordinal, self._device = ordinal, device
        self._policy, self._min_gain = policy, min_gain
        dependent = policy.dependent and device.compute_capability >= (9, 0)
        self.launched = {"cold": policy.cold, "dependent": dependent}
        self._objective = time_objective(policy.cold)
        self._records = Records(Store(settings.cache_dir()))
        self._choices: dict[tuple[Problem, bool], ProductChoice] = {}

    def race(self, problems: Iterable[Problem]) -> None:
        """Races the problems without a record, if the policy and the process allow it; a warning
        says why, if it cannot.

        While the stream is captured nothing is raced: the GPU has to run other work for it.
        """
        if not self._policy.tune or settings.mode().frozen:
            return
        missing = Shapes(problems)
        for problem in [*missing]:
            answer = recorded(problem, self._device, self._records, self._objective)
            if answer is not None and answer.enough(quick=True):
                del missing[problem]
        if not missing or torch.cuda.is_current_stream_capturing():
            return
        torch.cuda.synchronize(self._ordinal)  # what still runs would disturb the times
        search = Search(effort="quick", objective=self._objective).limited()
        try:
            shapes.tune_shapes(missing, search, f"gpu:{self._ordinal}")
        except AutotuneError as error:
            settings.warn_once(f"{len(missing)} products are not raced: {error}")
        for problem in missing:
            runtime.current().forget(problem)
        self._records = Records(Store(settings.cache_dir()))

    def choice(self, problem: Problem, any_m: bool) -> ProductChoice:
        """The choice for a product; with `any_m` the kernel may gain at another recorded M."""
        key = problem, any_m
        if key not in self._choices:
            self._choices[key] = self._chosen(problem, any_m)
        return self._choices[key]

    def _chosen(self, problem: Problem, any_m: bool) -> ProductChoice:
        choice = self._compared(problem)
        if choice.why is None or not any_m:
            return choice
        for record in self._records.records(self._device):
            if replace(record.problem, m=problem.m) == problem:
                further = self._compared(record.problem)
                if further.why is None:
                    return further
        return choice

    def _compared(self, problem: Problem) -> ProductChoice:
        answer = self._measured(problem)
        if answer is None:
            find = finder(settings.mode())
            answer = find(problem, self._device, self._records, self._objective)
        if answer is None:
            return ProductChoice(problem, why=UNKNOWN)
        if unverified_fault(answer, cublaslt.version()):
            return ProductChoice(problem, answer.time_us)
        record, entry, estimate = answer.record, answer.entry, answer.objective.estimate
        if answer.how not in ("exact", "range") or record is None or entry is None:
            choice = ProductChoice(problem, answer.time_us, answer.vendor_us)
            why = FASTER if answer.vendor else why_too_little(choice.gain, self._min_gain)
            return replace(choice, why=why)
        ours = estimate(entry.measurement)
        cublas = record.baseline and estimate(record.baseline)
        if ours is None:
            return ProductChoice(problem, answer.time_us, why=NOT_TIMED)
        why = why_kept(record, ours, cublas, self._min_gain)
        return ProductChoice(problem, ours.time_us, cublas.time_us if cublas else None, why)

    def _measured(self, problem: Problem) -> Answer | None:
        """The recorded answer; without one, that of the product without its bias, which costs a
        kernel next to nothing."""
        epilogue = problem.epilogue
        plain = Epilogue(activation=epilogue.activation, residual=epilogue.residual)
        for asked in (problem, replace(problem, epilogue=plain)):
            answer = recorded(asked, self._device, self._records, self._objective)
            if answer is not None and answer.record and answer.record.evidence == "measured":
                return answer
        return None


@dataclass(frozen=True)
class Variant:
    """A product of a graph, alone or with nodes behind it, as a problem.

    Attributes:
        product: its nodes.
        problem: the problem, of the sizes with which the graph is compiled.
        gpu: number of the GPU.
        any_m: whether its M is symbolic.
    """

    product: GraphProduct
    problem: Problem
    gpu: int
    any_m: bool


def _served(graph: Graph) -> Iterator[tuple[Variant, ...]]:
    """The products of a graph that kernels take, each as the problems of its variants."""
    for variants in products(graph):
        served = tuple(filter(None, map(_as_problem, variants)))
        if served:
            yield served


def _as_problem(product: GraphProduct) -> Variant | None:
    values = {name: node.meta["val"] for name, node in product.operands.items()}
    device = product.node.meta["val"].device
    if device.type != DEVICE:
        return None
    try:
        operands = {name: _example(value) for name, value in values.items()}
        if product.scaled:
            dtype, fast = product.options["out_dtype"], product.options["fast"]
            problem = scaled_problem(**operands, out_dtype=dtype, use_fast_accum=fast)
        else:
            problem = problem_of_tensors(operands, CallOptions(**product.options))
        _check_readable(operands)
    except (ArrayError, ProblemError, UsageError):
        return None  # no kernel takes it
    any_m = not isinstance(values["a"].shape[-2], int)
    return None if problem is None else Variant(product, problem, device.index or 0, any_m)


def _check_readable(operands: Mapping[str, Any]) -> None:
    """Refuses operands that a kernel cannot read in place: copies may cost more than it gains."""
    for name, operand in operands.items():
        if name in ("a", "b"):
            memory_of(described(operand, name))
        elif not name.startswith("scale") and not operand.is_contiguous():
            raise ArrayError(f"{name} has strides {operand.stride()}; it has to be contiguous")


def _example(value: Any) -> Any:
    """A tensor without memory, of the sizes with which the graph is compiled.

    Raises:
        ArrayError: for a size that depends on the data.
    """
    sizes = [[_hint(size) for size in listed] for listed in (value.shape, value.stride())]
    return torch.empty_strided(*sizes, dtype=value.dtype, device="meta")


def _hint(size: Any) -> int:
    if isinstance(size, int):
        return size
    hint = size.node.hint
    if hint is None:
        raise ArrayError(f"the size {size} depends on the data")
    return int(hint)


def _replaced(graph: Graph, variants: tuple[Variant, ...], chooser: Chooser) -> ProductChoice:
    """The choice for a product. It replaces the most fused variant that gains in the graph."""
    for variant in variants:
        choice = chooser.choice(variant.problem, variant.any_m)
        if choice.why is None:
            _replace(graph, variant.product, chooser.launched)
            break
    return choice


def _replace(graph: Graph, product: GraphProduct, launched: Mapping[str, bool]) -> None:
    """Puts the operator in the place of the product and of what follows it."""
    named: dict[str, Any] = {**product.operands, **product.options, **launched}
    value = product.node.meta["val"]
    with graph.inserting_before(product.end):
        if product.view is not None and "residual" in named:
            named["residual"] = _call(
                graph, aten.view.default, (named["residual"], [-1, *value.shape[1:]]), {}
            )
        if value.dtype is torch.float32 and not product.scaled:
            named["compute"] = "tf32" if tf32_allowed(torch) else "f32"
        arguments = named.pop("a"), named.pop("b")
        new = _call(graph, torch.ops.autotune.chosen_mm.default, arguments, named)
        if product.view is not None:
            new = _call(graph, product.view.target, (new, *product.view.args[1:]), {})
    product.end.replace_all_uses_with(new)
    _erase(graph, product.end)


def _call(graph: Graph, target: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Node:
    """A new node with its fake result."""
    node = graph.call_function(target, arguments, named)
    fakes = torch.fx.map_arg((arguments, named), lambda each: each.meta["val"])
    mode = detect_fake_mode(fakes)
    with mode:
        node.meta["val"] = target(*fakes[0], **fakes[1])
    return node


def _erase(graph: Graph, node: Node) -> None:
    """Removes a node that nothing reads any more, and its inputs that only it read."""
    unread = {node: None}
    while unread:
        node, _ = unread.popitem()
        inputs = node.all_input_nodes
        graph.erase_node(node)
        unread |= {each: None for each in inputs if each.op == "call_function" and not each.users}
