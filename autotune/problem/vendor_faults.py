"""Faults of cuBLAS that NVIDIA's release notes state, by version, and the problems they touch.

Fault 6580689: split-K of `cublasLtMatmul` leaves out the end of K, without an error. Its conditions
are that SPLITK_NUM does not divide K, that K // SPLITK_NUM is a multiple of the stage's K, that the
algorithm's ID is 66, and a compute capability of 9.0, 10.x or 11.x. It came with cuBLAS 12.6.3
(CUDA 12.6 Update 2) and is mended in 13.8.0 (CUDA 13.4 Update 1).

Source: release notes of CUDA Toolkit 13.4 Update 1, section cuBLAS. Those of the patch releases up
to 13.6.2 do not name it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from autotune.problem.problem import Problem
from autotune.problem.vendor import library_sizes

SINCE, MENDED = (12, 6, 3), (13, 8, 0)
CAPABILITIES = {(9, 0)}, {10, 11}
"""The compute capabilities of the fault, and the major numbers of others."""
ALGORITHM = 66
"""CUBLASLT_ALGO_CONFIG_ID of the algorithms that have the fault."""

STAGE_BYTES = 128
"""Bytes of a row of A or B in one stage: 64 numbers of 16 bits, 32 of tf32, 128 of fp8. A stage
of 256 bytes is a multiple, so that its splits are among those of this size."""

MOST_SPLITS = 160
"""The largest split that is assumed where the algorithm is not known: the SMs of a B300. On an H100
the heuristic of 13.1.0 splits K up to 132 times, as often as the card has SMs."""


@lru_cache(maxsize=1024)
def known_fault(
    version: str,
    compute_capability: tuple[int, int],
    problem: Problem,
    split_k: int | None = None,
    *,
    algorithm: int | None = None,
) -> str | None:
    """The fault that a version of cuBLAS may have on a problem, in one line; None without one.

    A problem is touched if any algorithm that is possible by the arguments has the fault. The
    library's default call does not state its algorithm: there a touched problem may be right.

    Args:
        version: of cuBLAS or cuBLASLt, such as `13.1.0`; an empty one, of a library that does not
            state it, has no known fault.
        compute_capability: of the GPU, such as (9, 0).
        problem: the problem.
        split_k: the algorithm's SPLITK_NUM, at most 1 without split-K; None if unknown.
        algorithm: its CUBLASLT_ALGO_CONFIG_ID; None if unknown.
    """
    numbers = tuple(map(int, re.findall(r"\d+", version)[:3]))
    named, majors = CAPABILITIES
    faulty = bool(numbers) and SINCE <= numbers < MENDED
    if not faulty or (compute_capability not in named and compute_capability[0] not in majors):
        return None
    if algorithm not in (None, ALGORITHM):
        return None
    k = library_sizes(problem)[2] if problem.precision.eight_bit else problem.k
    stage = STAGE_BYTES // problem.operand_elements[0].bytes
    splits: Iterable[int] = range(2, MOST_SPLITS + 1) if split_k is None else (split_k,)
    if not any(drops_tail(k, split, stage) for split in splits):
        return None
    return (
        f"cuBLAS {version} may leave out the end of K = {k} on this GPU where it splits K "
        f"(NVIDIA's release notes, 6580689); install {'.'.join(map(str, MENDED))} or newer"
    )


def drops_tail(k: int, split: int, stage_k: int) -> bool:
    """Whether a split of K leaves its end to no block, by NVIDIA's condition."""
    return split > 1 and k % split != 0 and (share := k // split) > 0 and share % stage_k == 0
