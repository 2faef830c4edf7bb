"""Tables and pictures of results: rows as data, and their rendering for a terminal."""

from __future__ import annotations


def precision(compute: str) -> str:
    """A compute as people write it, such as `fp32` for `f32`."""
    return {"f32": "fp32", "f16": "fp16"}.get(compute, compute)


def vendor(compute: str) -> str:
    """What a product of that compute is compared with: cuBLAS has no `tf32x3` of its own."""
    return "cuBLAS in fp32" if compute == "tf32x3" else "cuBLAS"


def cell(value: float | None, form: str) -> str:
    """A value in the given format, such as `{:.1%}`; empty if there is none."""
    return "" if value is None else form.format(value)
