"""Runtimes that run a fixed configuration, and the error that a result may have."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache as remembered
from functools import partial
from pathlib import Path
from typing import Any

from candidate_samples import with_values
from problem_cases import Case

from autotune.cuda import compiler
from autotune.device import Device
from autotune.families import registry
from autotune.families.config import Config, Value
from autotune.families.plan import Alignment, LaunchPlan
from autotune.lookup.answer import Answer
from autotune.measure.objective import Objective
from autotune.problem import Problem
from autotune.runtime.launcher import Driver
from autotune.runtime.state import Runtime


def _simt(tile: int, warp: str, split_k: int, stages: int) -> Config:
    return Config.parse(
        f"simt:bm={tile},bn={tile},{warp},slices=1,bk=16,copy=async,stages={stages},fragments=2,"
        f"min_blocks=1,split_k={split_k},reduction={'fused' if split_k > 1 else 'none'},workers=0,"
        f"chunks=1,pack=none,group=1,fence=0,order={'columns' if tile > 64 else 'rows'}"
    )


NAIVE = Config.parse("naive:mapping=coalesced,block=16")


TILED = Config.parse("tiled:tile_width=32,specialized=0")


SIMT = _simt(64, "wm=32,wn=32,tm=8,tn=4", 1, 3)


SPLIT = _simt(64, "wm=32,wn=32,tm=8,tn=4", 2, 2)


LARGE = _simt(128, "wm=32,wn=64,tm=8,tn=8", 1, 5)  # uses 81 KiB of shared memory


CONFIGS = (NAIVE, TILED, _simt(32, "wm=16,wn=32,tm=4,tn=4", 1, 2), SIMT, SPLIT, LARGE)


def runtime_of(driver: Driver, cache: Path | None, config: Config) -> Runtime:
    """A runtime with `config` as the record of every problem."""

    def find(problem: Problem, device: Device, objective: Objective) -> Answer:
        del objective
        return Answer(problem, device, config, "exact", "measured", None, None, "")

    return Runtime(driver, find, _plan, partial(compiler.compile, cache=cache))


def drawn(driver: Driver, cache: Path | None, family: str, values: Mapping[str, Value]) -> Runtime:
    """A runtime that picks a configuration of the family with these values for every problem."""

    @remembered
    def find(problem: Problem, device: Device, objective: Objective) -> Answer:
        del objective
        config = with_values(Case(problem), family, values, device, cache).config
        return Answer(problem, device, config, "exact", "measured", None, None, "")

    return Runtime(driver, find, _plan, partial(compiler.compile, cache=cache))


def _plan(config: Config, problem: Problem, alignment: Alignment) -> LaunchPlan:
    return registry.find(config.family).plan(config, problem, alignment)


# Relative error of a product of two elements: both are rounded, each by 2^-10 at most, or split
# into two parts that leave a remainder.
_PRODUCTS = {"tf32": 2.0**-9, "tf32x3": 48 * 2.0**-24}


# Relative error of rounding a result.
_RESULTS = {"float16": 2.0**-11, "bfloat16": 2.0**-8}


_LEAST_HALF = 2.0**-25


TRUNCATED = 8.0
"""Tensor cores truncate: each product, and the sum it is added to, loses up to 2 units in the last
place. That is more often than they add, and twice as much as rounding."""


def excess_of(
    result: Any, a: Any, b: Any, alpha: float = 1, rest: Any = 0, compute: str = "f32"
) -> float:
    """The largest error beyond that of rounding each of K products and sums, relative to |C|.

    Higham, Accuracy and Stability of Numerical Algorithms, 3.5: |error| <= gamma_k |A| |B|; two
    more roundings for alpha and beta. Operands of 16 bits are exact as they are.
    """
    kind = str(result.dtype).removeprefix("torch.")
    a, b = a.double(), b.double()
    expected, sizes = alpha * (a @ b) + rest, abs(alpha) * (a.abs() @ b.abs())
    unit = 2.0**-24 * (1 if compute == "f32" else TRUNCATED)
    allowed = (a.shape[-1] + 2) * unit * (sizes + abs(rest)) + _PRODUCTS.get(compute, 0.0) * sizes
    if kind in _RESULTS:
        allowed = allowed + _RESULTS[kind] * (expected.abs() + allowed) + _LEAST_HALF
    return float(((result.double() - expected).abs() - allowed).max())
