"""A batch-invariant range of bf16 with two tuned sizes, on an H100."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

from autotune.device import find
from autotune.families.config import Config
from autotune.model import space
from autotune.problem import Problem
from autotune.records import FamilyRecord, Store, ranges
from autotune.records.ranges import Range, Segment
from support.sample_records import entry, record

H100 = find("h100")
ORDER = "wgmma bf16 swap=1 shared 1024"
TOP = Problem(256, 512, 1024, "bf16", "nt")
TEXT = "4..256x512x1024:bf16:nt"


def sized(m: int) -> Problem:
    """The problem with so many rows."""
    return replace(TOP, m=m)


@cache
def of_order(m: int) -> tuple[Config, Config]:
    """The configurations recorded for a size."""
    first, second, *_ = space.feasible(sized(m), H100, "wgmma", ORDER).configs
    return first, second


def save(root: Path, source: str = "5e1f") -> None:
    """Records the range with the sizes 16 and 256 in a store; its kernels take 1 and 2 us."""
    store = Store(root)
    for m in (16, 256):
        entries = [replace(entry(16, 1.0 + n), config=each) for n, each in enumerate(of_order(m))]
        plain = record(*entries, problem=sized(m), device=H100, source=source)
        made = plain.device, plain.evidence, plain.entries, plain.baseline, plain.provenance
        store.save(FamilyRecord(*made, plain.problem, "auto", ORDER))
    segments = Segment(4, 32, 16), Segment(33, 256, 256)
    ranges.save(root, Range(H100, TOP, "m", segments, order=ORDER))
