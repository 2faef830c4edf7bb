"""The legal values of a problem's fields."""

from __future__ import annotations

from typing import Literal, TypedDict, get_args

from autotune.errors import ProblemError
from autotune.problem.aliases import COMPUTE_ALIASES
from autotune.problem.precision import PRECISIONS

Layout = Literal["nn", "nt", "tn", "tt"]
Epilogue = Literal[
    "none",
    "bias",
    "relu",
    "bias_relu",
    "gelu",
    "bias_gelu",
    "gelu_tanh",
    "bias_gelu_tanh",
    "silu",
    "bias_silu",
]
Output = Literal["same", "f32"]

COMPUTES = tuple(PRECISIONS)
LAYOUTS: tuple[str, ...] = get_args(Layout)
# In the order of the kernels' EPILOGUE argument: bit 0 is the bias, the rest the activation.
EPILOGUES: tuple[str, ...] = get_args(Epilogue)
ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu")
OUTPUTS: tuple[str, ...] = get_args(Output)
ACCURACIES = ("exact", "near")

LARGEST_DIMENSION = 2**31 - 1
LARGEST_BATCH = 65535
"""Blocks of a grid along z, where kernels find their matrix (CUDA programming guide)."""

VALUES = {"compute": COMPUTES, "layout": LAYOUTS, "epilogue": EPILOGUES, "output": OUTPUTS}
"""The values of each field that is a word."""


class ProblemFields(TypedDict, total=False):
    """The fields of a problem beside its sizes, as keywords.

    Attributes:
        compute: the precision: `f32`, `tf32`, `tf32x3`, `f16` or `bf16`; by default `f32`.
        layout: how A and B are stored: `nn`, `nt`, `tn` or `tt`; by default `nn`.
        batch: number of matrices of C; by default 1.
        epilogue: `none`, `bias`, an activation (`relu`, `gelu`, `gelu_tanh` or `silu`) or both,
            such as `bias_relu`; by default `none`.
        output: `f32` for C and the bias in fp32 where A and B have 16 bits; by default `same`.
    """

    compute: str
    layout: str
    batch: int
    epilogue: str
    output: str


def epilogue_of(bias: bool, activation: str | None) -> str:
    """The epilogue that adds a bias or not and then applies an activation or none.

    Raises:
        ProblemError: for an unknown activation.
    """
    if activation is not None and activation not in ACTIVATIONS:
        raise ProblemError(
            f"unknown activation {activation!r}; give one of {', '.join(ACTIVATIONS)} or None"
        )
    return "_".join(filter(None, ("bias" if bias else None, activation))) or "none"


def compute_of(compute: str, accuracy: str) -> str:
    """The compute for an accuracy: `exact` keeps it, `near` turns `f32` into `tf32x3`.

    Raises:
        ProblemError: for an unknown accuracy, or if `near` has no meaning for the compute.
    """
    if accuracy not in ACCURACIES:
        raise ProblemError(f"unknown accuracy {accuracy!r}; give one of {', '.join(ACCURACIES)}")
    if accuracy == "exact":
        return compute
    compute = COMPUTE_ALIASES.get(compute.lower(), compute)
    near = {name: row.near for name, row in PRECISIONS.items() if row.near is not None}
    if compute not in near:
        served = ", ".join(name for name, target in near.items() if name != target)
        raise ProblemError(f"accuracy near is for compute {served}, not {compute}; leave one out")
    return near[compute]
