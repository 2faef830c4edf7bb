"""The numbers with which blocks of `wgmma` find their work, made once for all blocks."""

from __future__ import annotations

from autotune.families.plan import Argument
from autotune.families.shared.arguments import magic
from autotune.families.wgmma.tiles import WgmmaKSharing
from autotune.problem import Problem
from autotune.problem.integers import ceil_div


def schedule_arguments(
    sharing: WgmmaKSharing, bk: int, group: int, problem: Problem
) -> tuple[Argument, ...]:
    """The arguments that become `Schedule` in `cuda_src/include/k_sharing/tile_scheduler.cuh`.

    Tiles are those of a cluster, whose blocks work together.
    """
    rows, columns = sharing.cluster_rows_and_columns(problem)
    steps = ceil_div(problem.k, bk)
    part_steps, longer_parts = divmod(steps, sharing.split_k)
    group = min(group, rows)
    last_group = rows % group or group
    return (
        Argument("i32", rows),
        Argument("i32", columns),
        Argument("i32", steps),
        Argument("i32", problem.batch),
        Argument("i32", sharing.streamed(problem)),
        Argument("i32", part_steps),
        Argument("i32", longer_parts),
        Argument("i64", magic(rows * columns)),
        *_divisor(sharing.grid_splits),
        *_divisor(group),
        Argument("i64", magic(group * columns)),
        *_divisor(last_group),
    )


def _divisor(value: int) -> tuple[Argument, Argument]:
    return Argument("i32", value), Argument("i64", magic(value))
