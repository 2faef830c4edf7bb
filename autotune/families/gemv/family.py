"""One pass over the larger operand, for at most 16 rows or columns of C (`cuda_src/gemv.cu`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd

from autotune.device import Device
from autotune.families.base import Work
from autotune.families.config import Config, Value
from autotune.families.gemv.rules import (
    ROWS,
    VECTOR,
    flat,
    register_estimate,
    rules,
    share,
    shared_bytes,
    strips,
)
from autotune.families.legacy import Params, Rule, adapted
from autotune.families.plan import Alignment, Argument, Launch, LaunchPlan, Resources, Template
from autotune.families.shared.arguments import operands, variants
from autotune.families.shared.layout import along_k
from autotune.families.shared.precisions import CUDA_CORES
from autotune.problem import Problem

SPLITS = (
    *(1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64),
    *(80, 96, 128, 160, 192, 256, 320, 384, 512),
)

AT_ONCE = 8
"""Shares of K whose sums a thread loads together (`gemv.cu`)."""


@dataclass(frozen=True)
class Gemv:
    """A thread has `rows` sums for each of `columns` columns. A block is `across` x `ways` threads,
    of which the `ways` share K and load `depth` steps each at a time; `split_k` blocks share K.

    With `stages` = 1 a batch goes through registers, with more cp.async brings `stages` - 1 of them
    ahead. Where C has fewer columns than rows, C^T = op(B)^T op(A)^T is computed: its rows are the
    columns of C.
    """

    @property
    def name(self) -> str:
        return "gemv"

    @property
    def computes(self) -> tuple[str, ...]:
        return CUDA_CORES

    def domain(self, problem: Problem, device: Device) -> dict[str, tuple[Value, ...]]:
        """Every value of every parameter; the rules decide which go together."""
        del problem, device
        return {
            "rows": ROWS,
            "columns": (1, 2, 4, 8),
            "depth": (4, 8, 16, 32),
            "across": (1, 2, 4, 8, 16, 32, 64),
            "ways": (1, 2, 4, 8, 16, 32, 64, 128, 256, 512),
            "split_k": SPLITS,
            "stages": (1, 2, 3, 4),
        }

    def rules(self, problem: Problem, device: Device) -> tuple[Rule, ...]:
        """The reasons to reject a combination on `device`."""
        return rules(problem, device)

    def estimate(self, config: Config) -> Resources:
        """Threads, shared memory of the layout that takes most, and a guess of the registers."""
        p: Params = config.values
        shared = max(shared_bytes(p, runs) for runs in (False, True))
        return Resources(p["across"] * p["ways"], register_estimate(p), shared)

    def work(self, config: Config, problem: Problem) -> Work:
        """What one block does. A turn is a batch: `depth` steps of each of the `ways`."""
        p: Params = config.values
        form, _ = flat(problem)
        warps, batches = p["across"] * p["ways"] / 32, p["ways"] * p["depth"]
        # Vectors of a thread: of the larger operand, which behind cp.async goes through shared
        # memory, and of the smaller one, which all lanes read.
        large, small = (p["depth"] * p[name] / VECTOR for name in ("columns", "rows"))
        through = 2 * large if p["stages"] > 1 else 0
        tile = p["rows"] * p["across"] * p["columns"]
        return Work(
            blocks=strips(p, form) * p["split_k"] * problem.batch,
            rows=p["rows"],
            columns=p["across"] * p["columns"],
            warps=-(-p["across"] * p["ways"] // 32),
            turns=-(-share(p, form) // batches),
            issue=warps * (p["depth"] * p["rows"] * p["columns"] + small + through / 2),
            copies=warps * large + batches * p["rows"] / 32,
            shared=warps * (small + VECTOR * (large + through)) + batches * p["rows"] / 32,
            bytes=problem.element_bytes * batches * (form.m + p["across"] * p["columns"]),
            ahead=p["stages"] - 1,
            end=2 * p["ways"] * tile / 32,
            gathers=_gathers(p),
            traits=("gemv", f"gemv {'async' if p['stages'] > 1 else 'staged'}"),
        )

    def plan(self, config: Config, problem: Problem, alignment: Alignment) -> LaunchPlan:
        """One launch; the last block of each strip of C adds up what the others have left."""
        p: Params = config.values
        form, exchanged = flat(problem)
        aligned = replace(alignment, a=alignment.b, b=alignment.a) if exchanged else alignment
        launch = Launch(
            template=_template(p, form, aligned, exchanged),
            grid=(strips(p, form), p["split_k"], problem.batch),
            block=(p["across"] * p["ways"], 1, 1),
            shared=shared_bytes(p, along_k(form, "b")),
            arguments=(
                *(_exchanged(form) if exchanged else operands(form)),
                Argument("i32", share(p, form)),
                Argument("pointer", "workspace"),
                Argument("pointer", "counters"),
            ),
        )
        counters = strips(p, form) * problem.batch if p["split_k"] > 1 else 0
        return LaunchPlan(config, (launch,), _workspace(p, form), counters)


GEMV = adapted(Gemv(), sources=("gemv.cu",), order=30, search_order=3, tensor_cores=False)


def _gathers(p: Params) -> float:
    """Loads that a thread of the last block of a strip waits for one after the other."""
    if p["split_k"] == 1:
        return 0
    vectors = p["rows"] * p["columns"] * p["across"] / VECTOR
    together: float = AT_ONCE * p["across"] * p["ways"] / vectors
    return max(1.0, int(p["split_k"]) / together)


def _template(p: Params, form: Problem, alignment: Alignment, exchanged: bool) -> Template:
    along_k_a, along_k_b = along_k(form, "a"), along_k(form, "b")
    # Vectors of the smaller operand are not transposed on the way.
    va = gcd(alignment.a, form.k if along_k_a else form.m) if along_k_a == along_k_b else 1
    vb = gcd(alignment.b, form.k) if along_k_b else gcd(alignment.b, form.n, p["columns"])
    names = ("rows", "columns", "depth", "across", "ways", "stages")
    return Template(
        "gemv.cu",
        "gemv",
        (
            *((name.upper(), p[name]) for name in names),
            *variants(form),
            ("VA", va),
            ("VB", vb),
            ("EXCHANGED", int(exchanged)),
        ),
    )


def _exchanged(form: Problem) -> tuple[Argument, ...]:
    """The operands of C^T: what the kernel takes as A is B."""
    pairs = (("a", "b"), ("lda", "ldb"), ("stride_a", "stride_b"))
    other: dict[object, str] = {**dict(pairs), **{b: a for a, b in pairs}}
    return tuple(replace(one, value=other.get(one.value, one.value)) for one in operands(form))


def _workspace(p: Params, form: Problem) -> int:
    """Bytes of the tiles of C that blocks leave for the last one."""
    if p["split_k"] == 1:
        return 0
    tile: int = form.element_bytes * p["rows"] * p["columns"] * p["across"]
    return tile * strips(p, form) * int(p["split_k"]) * form.batch
