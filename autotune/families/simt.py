"""The register-tiled fp32 kernel on the CUDA cores, `cuda_src/simt.cu`."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from autotune.config import Config, Value
from autotune.device import Device
from autotune.families.base import Params, Rule, Work
from autotune.families.conventions import operands, transposes
from autotune.families.simt_rules import (
    block_count,
    register_estimate,
    rules,
    shared_bytes,
    thread_count,
)
from autotune.plan import Alignment, Argument, Launch, LaunchPlan, Resources, Template
from autotune.problem import Problem

ORDERS = ("rows", "columns", "snake")
COPIES = ("staged", "async")
REDUCE_THREADS = 256


@dataclass(frozen=True)
class Simt:
    """Block tile bm x bn x bk, warp tile wm x wn, thread tile tm x tn, and how data moves.

    `stages` buffers are filled by `copy` (`async`: cp.async, sm_80 and later; `staged`: through
    registers), `fragments` sets of registers hold what is multiplied in the `order` of the thread
    tile, `min_blocks` resident blocks bound the registers, `group` tile rows are walked together,
    and `split_k` blocks share the K of one tile.
    """

    @property
    def name(self) -> str:
        return "simt"

    def domain(self, problem: Problem, device: Device) -> dict[str, tuple[Value, ...]]:
        """Every value of every parameter; the rules decide which go together."""
        del problem, device
        return {
            "bm": (32, 64, 128, 256),
            "bn": (32, 64, 128, 256),
            "wm": (16, 32, 64, 128),
            "wn": (16, 32, 64, 128),
            "tm": (4, 8, 16),
            "tn": (4, 8, 16),
            "bk": (8, 16, 32),
            "split_k": (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192),
            "group": (1, 4, 8),
            "copy": COPIES,
            "stages": (2, 3, 4, 5),
            "fragments": (1, 2),
            "min_blocks": (1, 2, 3, 4),
            "order": ORDERS,
        }

    def rules(self, problem: Problem, device: Device) -> tuple[Rule, ...]:
        """The reasons to reject a combination on `device`."""
        return rules(problem, device)

    def estimate(self, config: Config) -> Resources:
        """Threads, shared memory and a guess of the registers."""
        values = config.values
        return Resources(thread_count(values), register_estimate(values), shared_bytes(values))

    def work(self, config: Config, problem: Problem) -> Work:
        """What one block does, for the cost model."""
        p: Params = config.values
        warps = thread_count(p) // 32
        fma = warps * p["tm"] * p["tn"]
        # For each step of K: float4 loads of fragments, which keep the load path busy twice as long
        # as an issue slot; the copies into shared memory with their addresses; and the barrier and
        # loop control that the bk steps of a tile share.
        fragment_loads = 2 * warps * (p["tm"] + p["tn"]) / 4
        copies = (p["bm"] + p["bn"]) / 32 * (2.25 if p["copy"] == "async" else 2.5)
        control = 12 * warps / p["bk"]
        splits = p["split_k"]
        return Work(
            blocks=block_count(p, problem) * splits,
            steps=-(-problem.k // splits),
            issue=fma + fragment_loads + copies + control,
            bytes=problem.element_bytes * (p["bm"] + p["bn"]),
            latency_steps=p["bk"] * (p["stages"] - 1),
            tile=(p["bm"], p["bn"]),
            partials=_workspace(problem, splits),
        )

    def plan(self, config: Config, problem: Problem, alignment: Alignment) -> LaunchPlan:
        """One launch, and a second that adds up the partial products if K is split."""
        p: Params = config.values
        splits = p["split_k"]
        product = Launch(
            template=_template(p, problem, alignment),
            grid=(block_count(p, problem), splits, 1),
            block=(thread_count(p), 1, 1),
            shared=shared_bytes(p, problem.layout),
            arguments=(
                *(_partial_operands(problem) if splits > 1 else operands(problem)),
                Argument("i32", p["group"]),
            ),
        )
        launches = (product, _reduce(problem, alignment, splits)) if splits > 1 else (product,)
        return LaunchPlan(problem, config, alignment, launches, _workspace(problem, splits))


SIMT = Simt()


def _workspace(problem: Problem, splits: int) -> int:
    """Bytes of the partial products."""
    return problem.element_bytes * problem.m * problem.n * splits if splits > 1 else 0


def _template(p: Params, problem: Problem, alignment: Alignment) -> Template:
    m, n, k = problem.m, problem.n, problem.k
    asynchronous = p["copy"] == "async"
    along_k_a, along_k_b = problem.layout[0] == "n", problem.layout[1] == "t"
    # cp.async cannot transpose vectors: an operand that runs along K comes float by float.
    va = 1 if asynchronous and along_k_a else gcd(alignment.a, k if along_k_a else m)
    vb = 1 if asynchronous and along_k_b else gcd(alignment.b, k if along_k_b else n)
    vc = gcd(4 if p["split_k"] > 1 else alignment.c, n)
    whole = m % p["bm"] == 0 and n % p["bn"] == 0 and k % p["bk"] == 0
    names = ("bm", "bn", "bk", "wm", "wn", "tm", "tn", "stages")
    return Template(
        "simt.cu",
        "simt",
        (
            *((name.upper(), p[name]) for name in names),
            ("ASYNC", int(asynchronous)),
            ("FRAGMENTS", p["fragments"]),
            ("ORDER", ORDERS.index(p["order"])),
            ("MIN_BLOCKS", p["min_blocks"]),
            *transposes(problem),
            ("VA", va),
            ("VB", vb),
            ("VC", vc),
            ("CHECK", int(not whole)),
        ),
    )


def _partial_operands(problem: Problem) -> tuple[Argument, ...]:
    """The operands of a split product: it goes to the workspace, without gaps, as it is."""
    instead = {
        "c": Argument("pointer", "workspace"),
        "ldc": Argument("i64", problem.n),
        "alpha": Argument("f32", 1.0),
        "beta": Argument("f32", 0.0),
    }
    return tuple(instead.get(str(argument.value), argument) for argument in operands(problem))


def _reduce(problem: Problem, alignment: Alignment, splits: int) -> Launch:
    vector = gcd(alignment.c, problem.n)
    rows = min(8, 1 << (splits.bit_length() - 1))
    columns = REDUCE_THREADS // rows
    elements = problem.m * problem.n // vector
    return Launch(
        template=Template("simt.cu", "split_k_reduce", (("VECTOR", vector),)),
        grid=(-(-elements // columns), 1, 1),
        block=(columns, rows, 1),
        shared=problem.element_bytes * REDUCE_THREADS * vector,
        arguments=(
            Argument("pointer", "workspace"),
            Argument("i32", splits),
            Argument("pointer", "c"),
            Argument("i64", "ldc"),
            Argument("i32", problem.m),
            Argument("i32", problem.n),
            Argument("f32", "alpha"),
            Argument("f32", "beta"),
        ),
    )
