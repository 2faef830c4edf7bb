"""The legal values of a problem's fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypedDict, get_args

from autotune.errors import ProblemError
from autotune.problem.aliases import DtypeLike, spelled
from autotune.problem.epilogue import EPILOGUES, NO_EPILOGUE
from autotune.problem.precision import PRECISIONS

Layout = Literal["nn", "nt", "tn", "tt"]
Output = Literal["same", "f32", "f16", "bf16", "i32", "e4m3", "e5m2"]
Scale = Literal["none", "tensor", "row", "block"]
Accumulate = Literal["exact", "fast"]
E5m2 = Literal["a", "b", "ab"]
AccuracyText = Literal["exact", "near"]

COMPUTES = tuple(PRECISIONS)
LAYOUTS: tuple[str, ...] = get_args(Layout)
OUTPUTS: tuple[str, ...] = get_args(Output)
# In the order of the kernels' SCALE argument.
SCALES: tuple[str, ...] = get_args(Scale)
ACCUMULATES: tuple[str, ...] = get_args(Accumulate)
E5M2_OPERANDS: tuple[str, ...] = get_args(E5m2)
ACCURACIES: tuple[str, ...] = get_args(AccuracyText)

LARGEST_DIMENSION = 2**31 - 1
LARGEST_BATCH = 65535
"""Blocks of a grid along z, where kernels find their matrix (CUDA programming guide)."""

SCALE_BLOCK = 128
"""Sides of a block with a scale of its own: 1x128 of A, 128x128 of B."""

VALUES: Mapping[str, tuple[str, ...]] = {
    "compute": COMPUTES,
    "layout": LAYOUTS,
    "epilogue": EPILOGUES,
    "output": OUTPUTS,
    "scale": SCALES,
    "accumulate": ACCUMULATES,
    "e5m2": E5M2_OPERANDS,
}
"""The values of each field that is a word."""

USUAL: Mapping[str, object] = {
    "batch": 1,
    "epilogue": NO_EPILOGUE,
    "output": "same",
    "scale": "none",
    "accumulate": "exact",
    "e5m2": "a",
}
"""The defaults of the fields that texts and records state only where they differ."""


class ProblemFields(TypedDict, total=False):
    """The fields of a problem beside its sizes, as keywords.

    Attributes:
        compute: the precision, one of `COMPUTES` or a dtype (`bfloat16`, `torch.bfloat16`,
            `np.float16`); by default `f32`.
        layout: how A and B are stored: `nn`, `nt`, `tn` or `tt`; by default `nn`.
        batch: number of matrices of C; by default 1.
        epilogue: `none`, `bias`, an activation (`relu`, `gelu`, `gelu_tanh` or `silu`) or both,
            such as `bias_relu`; for operands of 16 and 8 bits also `residual`, `bias_residual`
            or `swiglu`; by default `none`.
        output: type of C and the bias, a word or a dtype, if the precision has a choice; by default
            `same`, the first of its outputs.
        scale: of 8-bit operands: `none`, one scale a `tensor`, a `row` of A and column of B, or a
            `block`; by default `none`.
        accumulate: of fp8: `exact`, sums promoted to fp32 every 128 of K, or `fast`; by default
            `exact`.
        e5m2: the operand of `f8e5` that is e5m2: `a`, `b` or `ab`; by default `a`.
    """

    compute: DtypeLike
    layout: str
    batch: int
    epilogue: str
    output: DtypeLike
    scale: str
    accumulate: str
    e5m2: str


def compute_of(compute: DtypeLike, accuracy: AccuracyText) -> DtypeLike:
    """The compute for an accuracy: `exact` keeps it, `near` turns `f32` into `tf32x3`.

    Raises:
        ProblemError: for an unknown accuracy, or if `near` has no meaning for the compute.
    """
    if accuracy not in ACCURACIES:
        raise ProblemError(f"unknown accuracy {accuracy!r}; give one of {', '.join(ACCURACIES)}")
    if accuracy == "exact":
        return compute
    named = spelled("compute", compute)
    near = {name: row.near for name, row in PRECISIONS.items() if row.near is not None}
    if named not in near:
        served = ", ".join(name for name, target in near.items() if name != target)
        raise ProblemError(f"accuracy near is for compute {served}, not {named}; leave one out")
    return near[str(named)]
