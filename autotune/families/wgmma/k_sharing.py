"""Rules of `wgmma` on clusters, split-K, stream-K and waves, and how it adds up products."""

from __future__ import annotations

from autotune.device import Device
from autotune.families.family import ParameterFunction, Rule
from autotune.families.shared import tiling
from autotune.families.shared.arguments import along_k
from autotune.families.shared.limits import workspace_fault
from autotune.families.shared.tiling import fill, last_block_fault, longest_split, split_waves_fault
from autotune.families.summation import (
    EXACT,
    Summation,
    SummationOrder,
    chain,
    from_zero,
    in_order,
    split_evenly,
    split_length,
)
from autotune.families.wgmma.parameters import WgmmaParams
from autotune.families.wgmma.tiles import (
    CLUSTERS,
    FEW_ITERATIONS,
    LINE_BYTES,
    SPLIT_ITERATIONS,
    estimate,
    kernel_operands,
)
from autotune.problem import SCALE_BLOCK, Problem
from autotune.problem.integers import ceil_div

TILE = ("swap", "bm", "bn")
CLUSTER_TILE = (*TILE, "cluster")
SPLIT_TILE = (*CLUSTER_TILE, "split_k")
K_SHARING = (*SPLIT_TILE, "reduction", "workers")
WARPGROUPS = (*TILE, "consumers", "schedule")
RING = (*WARPGROUPS, "low", "bk", "min_blocks", "store")
"""Parameters that several rules need together."""

SLOWEST = 1.4
"""Factor of the best estimated time up to which a tile is tried."""
FULLER = 1.05
"""Factor by which split-K must fill the SMs better than fewer splits would."""
FULL_WAVES = 0.95
"""Fill of the SMs above which stream-K gains nothing."""
FEW_WAVES = 4
"""Waves of tiles up to which a partial wave is worth sharing."""
MERGED_STAGES = 5
"""Stages of two lines that must fit, as ten of one line do."""
ALTERNATED = 1.5
"""Work units of a worker from which pingpong hides the stores of enough of them."""
PAIR, LARGEST_SPLIT_CLUSTER = 2, 4
"""Blocks of the clusters that share stream-K and are tried in groups of few tiles, and tiles of
the largest that share splits of K with others."""
L2_RATE = 35
"""Bytes a cycle that L2 serves every SM without delay; it serves 55 at most (H200)."""
ONE_SIDED = 1.3
"""Factor by which a cluster may read more than one turned by 90 degrees."""
GROUPED_ROWS = (768, 2048)
"""Rows of C of a group of tiles: about as much of A as L2 keeps beside B."""
GROUPED_WAVES, FEW_GROUP = 3, 2
"""Tiles an SM up to which all tiles are in L2 anyway and only the order in which SMs ask for the
same lines matters, and the group that is tried then."""


def _block_fault(p: WgmmaParams, problem: Problem, device: Device) -> str | None:
    """Stages of two lines halve the waiting if there are enough of them."""
    bk = p.bk
    if bk * problem.element_bytes <= LINE_BYTES:
        return None
    if problem.k < SPLIT_ITERATIONS * bk:
        return f"K={problem.k} has less than {SPLIT_ITERATIONS} k-iterations of {bk}"
    if (fitting := p.fitting_stages(problem, device)) < MERGED_STAGES:
        return f"{fitting} stages of {bk} fit; {MERGED_STAGES} at least"
    return None


def _cluster_fault(p: WgmmaParams, problem: Problem, device: Device) -> str | None:
    """The blocks of a cluster share operands of their tiles: each loads a part for all."""
    shape = p.shape
    if shape.m * shape.n == 1:
        return None
    multiplied = device.tensor_rate(problem.compute) or 1.0

    def rate_of(m: int, n: int) -> float:
        return p.l2_rate(problem, multiplied, m, n)

    rows, columns = p.grid(problem)
    could_turn = rows >= shape.n and columns >= shape.m
    if could_turn and rate_of(shape.m, shape.n) > ONE_SIDED * rate_of(shape.n, shape.m):
        return f"blocks of {p.tile_m}x{p.tile_n} would share the smaller operand"
    half = (shape.m // 2, shape.n) if shape.m >= shape.n else (shape.m, shape.n // 2)
    if (smaller := rate_of(*half)) < L2_RATE:
        return f"{smaller:.0f} bytes a cycle from L2 suffice with smaller clusters"
    if p.tiles(problem) > 1.1 * rows * columns:
        return f"{rows}x{columns} tiles leave clusters of {p.cluster} partly empty"
    return None


def _parts_fault(p: WgmmaParams, problem: Problem, _device: Device) -> str | None:
    """A block loads whole swizzled spans of 8 rows."""
    operand_a, operand_b = kernel_operands(p.swap)
    for operand, side, sharers in (
        (operand_a, p.tile_m, p.shape.n),
        (operand_b, p.tile_n, p.shape.m),
    ):
        lines_of_rows = problem.element_bytes != 2 or along_k(problem, operand)
        if lines_of_rows and side % (8 * sharers):
            return f"{side} rows of {operand} have no {sharers} parts of whole swizzled spans"
    return None


def _split_cluster_fault(p: WgmmaParams, _problem: Problem, _device: Device) -> str | None:
    shape = CLUSTERS[p.cluster]
    if p.split_k == 1:
        return None if shape.k == 1 else f"no splits of K for cluster={p.cluster}"
    if p.split_k % shape.k or (shape.k > 1 and p.schedule == "pingpong"):
        return f"not with cluster={p.cluster}, schedule={p.schedule}"
    if shape.m * shape.n > LARGEST_SPLIT_CLUSTER:
        return f"clusters of {p.cluster} with splits of K wait for too many blocks"
    return None


def _split_length_fault(p: WgmmaParams, problem: Problem, _device: Device) -> str | None:
    if p.split_k == 1:
        return None
    iterations = ceil_div(problem.k, p.bk)
    least = SPLIT_ITERATIONS if iterations >= FEW_ITERATIONS else SPLIT_ITERATIONS // 2
    if longest_split(iterations, p.split_k) >= least:
        return None
    return f"{iterations} k-iterations do not go into {p.split_k} splits of {least} or more"


def _split_gain_fault(p: WgmmaParams, problem: Problem, device: Device) -> str | None:
    if p.split_k == 1:
        return None
    count, sms = p.count(problem), device.sms
    if count * (p.split_k - 1) < p.min_blocks * sms and count < sms:
        return None
    return split_waves_fault(count, p.split_k, sms, FEW_WAVES, FULLER)


def _reduction_fault(p: WgmmaParams, _problem: Problem, _device: Device) -> str | None:
    splits = p.grid_splits
    if (splits > 1) != (p.reduction == "fused"):
        return f"split_k={p.split_k}, cluster={p.cluster} with reduction={p.reduction}"
    if splits == 1:
        return None
    return last_block_fault(4 * splits * p.elements // p.reducers)


def _cluster_waves_fault(p: WgmmaParams, problem: Problem, device: Device) -> str | None:
    """The SMs of a cluster lie together, so that large clusters leave some idle."""
    size = p.shape.blocks
    if size == 1:
        return None
    reached = device.cluster_sms(size)
    if reached == 0:
        return f"no cluster of {size} is resident"
    waves = ceil_div(p.units(problem), reached)
    if waves <= ceil_div(p.count(problem) * p.split_k, device.sms):
        return None
    return f"clusters of {size} reach {reached} of {device.sms} SMs and need {waves} waves"


def _lone_fault(p: WgmmaParams, _problem: Problem, _device: Device) -> str | None:
    if p.min_blocks == 1 or p.shape.blocks == 1:
        return None
    return f"clusters of {p.shape.blocks} with one block an SM alone"


def _resident_fault(p: WgmmaParams, _problem: Problem, device: Device) -> str | None:
    resident = p.min_blocks * device.cluster_sms(p.shape.blocks)
    if p.workers in (0, resident):
        return None
    return f"{p.workers} workers; {resident} blocks are resident"


def _stream_workers_fault(p: WgmmaParams, _problem: Problem, _device: Device) -> str | None:
    return None if p.workers or p.reduction != "stream" else "stream-K needs workers"


def _units_fault(p: WgmmaParams, problem: Problem, device: Device) -> str | None:
    """Workers pay if there are more work units than workers, resident blocks if units fill them."""
    workers = p.workers
    if p.reduction == "stream":
        return None
    if workers and p.shape.k > 1:
        return "the blocks of a split-K cluster compute one tile and exit"
    units = p.units(problem)
    if units <= (p.min_blocks - 1) * device.sms:
        return f"{units} work units do not make {p.min_blocks} blocks an SM"
    if workers:
        least = int(ALTERNATED * workers) if p.schedule == "pingpong" else workers
        return None if units > least else f"{units} work units; {workers} workers need over {least}"
    if p.schedule == "pingpong":
        return "pingpong consumers alternate the tiles of resident workers"
    if p.min_blocks == 1 and units > 2 * device.sms:
        return f"{units} blocks one after the other, and each fills its buffers again"
    return None


def _stream_fault(p: WgmmaParams, problem: Problem, device: Device) -> str | None:
    if p.reduction != "stream":
        return None
    if problem.batch > 1 or p.shape.blocks > PAIR or p.shape.k > 1:
        return f"not with batch={problem.batch}, cluster={p.cluster}"
    if p.schedule == "pingpong":
        return f"not with schedule={p.schedule}"
    count = p.tiles(problem)
    if fill(count, device.sms) > FULL_WAVES or count > 2 * FEW_WAVES * device.sms:
        return f"{count} tiles keep {device.sms} SMs busy as they are"
    if count * ceil_div(problem.k, p.bk) < SPLIT_ITERATIONS * p.workers:
        least = SPLIT_ITERATIONS
        return f"{count} tiles leave {p.workers} workers less than {least} k-iterations"
    return None


def _time_fault(p: WgmmaParams, problem: Problem, device: Device) -> str | None:
    """Other tiles, clusters or splits of K can use the SMs and L2 better."""
    rough = estimate(problem, device)
    factor = rough.cycles(p, streamed=p.reduction == "stream") / rough.least
    if factor <= SLOWEST:
        return None
    return f"about {factor:.2f} of the best tiles' time; {SLOWEST} at most"


def _workspace_fault(p: WgmmaParams, problem: Problem, device: Device) -> str | None:
    return workspace_fault(4 * p.partial_floats(problem) + p.packed_bytes(problem), device)


def _group_fault(p: WgmmaParams, problem: Problem, device: Device) -> str | None:
    """Rows of clusters whose tiles are computed together, for reuse in L2."""
    rows, columns = p.cluster_rows_and_columns(problem)
    if p.group == 1:
        return None
    if columns == 1 or p.group > rows:
        return f"{rows}x{columns} tiles have no groups of {p.group} rows"
    if p.count(problem) <= GROUPED_WAVES * device.sms:
        tried = p.group == FEW_GROUP and p.shape.blocks <= PAIR
        few = f"{p.count(problem)} tiles are few for {device.sms} SMs"
        return None if tried else f"{few}; groups of {FEW_GROUP} are tried, in clusters of {PAIR}"
    (least, most), grouped = GROUPED_ROWS, p.group * p.bm * p.blocks_down
    if least <= grouped <= most:
        return None
    return f"groups of {grouped} rows of C; {least} to {most} suit L2"


SHARING_RULES = (
    Rule("block of K", _block_fault, RING, for_speed=True),
    Rule("clusters", _cluster_fault, CLUSTER_TILE, for_speed=True),
    Rule("clusters", _parts_fault, CLUSTER_TILE),
    Rule("split-K", _split_cluster_fault, ("cluster", "split_k", "schedule")),
    Rule("clusters", _cluster_waves_fault, SPLIT_TILE, for_speed=True),
    Rule("split-K", _split_length_fault, ("bk", "split_k")),
    Rule(
        "split-K",
        _split_gain_fault,
        (*TILE, "min_blocks", "split_k"),
        for_speed=True,
        for_shape=True,
    ),
    Rule("time", _time_fault, (*SPLIT_TILE, "reduction"), for_speed=True, for_shape=True),
    Rule("reduction", _reduction_fault, (*SPLIT_TILE, "reduction")),
    Rule("clusters", _lone_fault, (*CLUSTER_TILE, "min_blocks"), for_speed=True),
    Rule("workers", _resident_fault, (*CLUSTER_TILE, "min_blocks", "workers")),
    Rule("workers", _stream_workers_fault, ("reduction", "workers")),
    Rule("workers", _units_fault, (*K_SHARING, "schedule", "min_blocks")),
    Rule("stream-K", _stream_fault, (*K_SHARING, "bk", "schedule")),
    Rule("workspace", _workspace_fault, (*K_SHARING, "source", "low", "pack")),
    Rule("group", _group_fault, (*CLUSTER_TILE, "group"), for_speed=True),
)


def summation(p: WgmmaParams, problem: Problem) -> Summation:
    """Each consumer adds up promoted runs; blocks are added up then."""
    if p.reduction == "stream":
        size = p.shape.blocks
        tiles, workers = p.tiles(problem) // size, p.workers // size
        length = problem.k * tiling.mean_part(tiles, workers)
        blocks = tiling.splits_of_a_tile(tiles, workers)
    else:
        length, blocks = split_length(problem.k, p.split_k, p.bk), p.split_k
    promoted = SCALE_BLOCK if problem.precision.eight_bit else p.promote * p.bk
    run = min(length, promoted) if p.promote else length
    return Summation(in_order(length / run, blocks), run)


def summation_order(p: WgmmaParams, problem: Problem) -> SummationOrder | None:
    """Each split is a chain, promoted or not. The splits of a cluster are added up first, then
    those of different clusters. Splits of stream-K begin where the number of tiles has it."""
    if p.reduction == "stream":
        return None
    if problem.precision.operand.integer:
        return EXACT
    promoted = SCALE_BLOCK if problem.precision.eight_bit else p.promote * p.bk
    run = promoted if p.promote else 0
    steps = split_evenly(ceil_div(problem.k, p.bk), p.split_k)
    tree = [chain(count * p.bk, run) for count in steps]
    together = CLUSTERS[p.cluster].k
    if 1 < together < p.split_k:
        starts = range(0, p.split_k, together)
        tree = [from_zero(tree[start : start + together]) for start in starts]
    source = "registers" if p.source == "registers" else "shared"
    low = "" if p.low == "none" else f" low={p.low}"
    instruction = f"wgmma {problem.compute} swap={p.swap} {source}{low}"
    return SummationOrder(instruction, from_zero(tree) if p.split_k > 1 else tree[0])


SUMMATION = ParameterFunction(summation, (*K_SHARING, "bk", "promote"))
SUMMATION_ORDER = ParameterFunction(
    summation_order, ("swap", "source", "low", "bk", "promote", "cluster", "split_k", "reduction")
)
