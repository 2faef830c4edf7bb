"""A fake cuBLASLt, which multiplies in host memory, and operands there."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.problem import Problem
from support.paths import TESTS

STREAM = 0x5EED  # the only stream the fake accepts
GAP = 2


@dataclass(frozen=True)
class Stored:
    """A row-major matrix with `GAP` elements between rows; bfloat16 as the uint16 of its bits."""

    words: NDArray[Any]

    @property
    def address(self) -> int:
        return int(self.words.ctypes.data)

    @property
    def matrix(self) -> NDArray[Any]:
        return self.values[:, :-GAP]

    @property
    def values(self) -> NDArray[Any]:
        if self.words.dtype == np.float32:
            return self.words
        return (self.words.astype(np.uint32) << 16).view(np.float32)


def stored(kind: str, rows: int, columns: int, transposed: bool = False) -> Stored:
    shape = (columns, rows + GAP) if transposed else (rows, columns + GAP)
    values = np.random.default_rng(rows).normal(size=shape).astype(np.float32)
    return Stored(values if kind == "f32" else (values.view(np.uint32) >> 16).astype(np.uint16))


def operands_of(problem: Problem) -> Any:
    left, right = (letter == "t" for letter in problem.layout)
    kind = problem.operand_types[0]
    a, b = stored(kind, problem.m, problem.k, left), stored(kind, problem.k, problem.n, right)
    c = stored(problem.output_type, problem.m, problem.n)
    lengths = tuple(matrix.words.shape[1] for matrix in (a, b, c))
    words = {name: each.address for name, each in zip("abc", (a, b, c), strict=True)}
    words |= {f"ld{name}": length for name, length in zip("abc", lengths, strict=True)}
    words |= dict.fromkeys(("stride_a", "stride_b", "stride_c", "workspace"), 0)

    def values(alpha: float, beta: float) -> dict[str, float]:
        return {**words, "alpha": alpha, "beta": beta}

    return SimpleNamespace(problem=problem, a=a, b=b, c=c, values=values)


def built(folder: Path) -> str:
    """The library, compiled into a folder."""
    path = folder / "libcublasLt.so"
    compiler, source = os.environ.get("CXX", "g++"), TESTS / "host" / "cublaslt.cpp"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", source, "-o", path], check=True)
    return str(path)
