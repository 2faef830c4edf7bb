"""The numbers with which blocks of `wgmma` find their work, made once for all blocks."""

from __future__ import annotations

from autotune.families.plan import Argument
from autotune.families.shared.arguments import divisor, struct
from autotune.families.wgmma.tiles import WgmmaKSharing
from autotune.problem import Problem
from autotune.problem.integers import ceil_div


def schedule_struct(
    sharing: WgmmaKSharing, bk: int, group: int, problem: Problem, start_partials: int
) -> Argument:
    """The struct `WgmmaSchedule` of `cuda_src/include/k_sharing/tile_scheduler.cuh`.

    A tile is computed by a cluster, whose blocks work together. Partial sums start `start_partials`
    floats into the workspace.
    """
    rows, columns = sharing.cluster_rows_and_columns(problem)
    steps = ceil_div(problem.k, bk)
    part_steps, longer_parts = divmod(steps, sharing.split_k)
    group = min(group, rows)
    return struct(
        "WgmmaSchedule",
        start_partials=Argument("i64", start_partials),
        tiles=divisor(rows * columns),
        shares=divisor(sharing.grid_splits),
        group_tiles=divisor(group * columns),
        group=divisor(group),
        last_group=divisor(rows % group or group),
        rows=Argument("i32", rows),
        columns=Argument("i32", columns),
        steps=Argument("i32", steps),
        batch=Argument("i32", problem.batch),
        streamed=Argument("i32", sharing.streamed(problem)),
        part_steps=Argument("i32", part_steps),
        longer_parts=Argument("i32", longer_parts),
    )
