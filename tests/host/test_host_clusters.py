"""Emulated clusters on the CPU: small kernels agree with numpy, and each broken kernel fails."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.host_cases import Case, HostFault, random_case
from support.host_cuda import HOST, Program, build, check, run

from autotune.families.config import Config
from autotune.families.plan import Alignment, Argument, Launch, LaunchPlan, Template, TensorMap
from autotune.problem import Problem

WRONG = "error nan|error [0-9.e+]+, tolerance"
DEADLOCK = "deadlock:"
SIZES = (1, 2, 4, 8)
BROKEN_SIZE = 2
LAUNCHES = 4
"""Launches of a case: blocks go on in another order in each."""

MULTICAST_SOUND = {"waits at the end": 0, "releases what is loaded again": 1}
MULTICAST_DEFECTS = {
    "exits before peers arrive": (
        2,
        r"an arrival at a barrier of block \d of the cluster, which has exited|"
        r"a block ends while an arrival of another is on its way to the mbarrier at byte \d+",
    ),
    "loads for an exited block": (15, "a multicast to block 1 of the cluster, which has exited"),
    "exits before a load for it": (
        3,
        r"a multicast to block 1 of the cluster, which has exited|"
        r"a block ends while a bulk load of block \d is on its way to byte \d+",
    ),
    "begins before its peers": (
        4,
        r"which has not begun|the mbarrier at byte \d+ of block \d was not initialised",
    ),
    "counts its own arrivals only": (5, f"more arrivals at an mbarrier|{WRONG}"),
    "releases a stage too early": (6, WRONG),
    "leaves a block out": (7, rf"{DEADLOCK}[^$]*of block 1 wait for parity 0 of the barrier at"),
    "loads for a block too far": (8, "a multicast to block 2 of a cluster of 2"),
    "loads for no block": (9, "a multicast to no block"),
    "expects its own part only": (10, f"{DEADLOCK}|{WRONG}|more arrivals|bytes come that were not"),
    "expects too much": (11, f"{DEADLOCK}[^$]*, which lacks 0 arrivals and 16 bytes,"),
    "announces bytes in vain": (12, "a block ends with 48 bytes announced that have not come at"),
    "expects less of the last stage": (
        13,
        r"ends with 1024 bytes come that were not announced|a bulk load of block \d is on its way|"
        f"{WRONG}",
    ),
    "arrives too far": (14, "an arrival at a barrier of block 2 of a cluster of 2"),
}
EXCHANGE_DEFECTS = {
    "reads before stores are released": (1, "error nan"),
    "never releases its stores": (2, "a thread ends without releasing its stores in other blocks"),
    "ends before a store comes": (
        3,
        r"a block ends while a store of block 1 is on its way to byte \d+|which has exited",
    ),
    "stores in an exited block": (
        4,
        "a store in the shared memory of block 0 of the cluster, which has exited",
    ),
    "arrives at an exited block": (
        12,
        "an arrival at a barrier of block 0 of the cluster, which has exited",
    ),
    "announces too much": (13, "1048576 bytes outstanding at an mbarrier"),
    "stores before its peer begins": (
        5,
        "in the shared memory of block 0 of the cluster, which has not begun",
    ),
    "stores too far": (6, "a store in the shared memory of block 2 of a cluster of 2"),
    "stores past the end": (7, r"16 bytes at byte \d+ of shared memory of \d+"),
    "stores misaligned": (8, "a misaligned store of 16 bytes in another block"),
    "arrives twice": (9, "a thread arrives twice at the cluster's barrier"),
    "leaves lanes out": (10, "divergent cluster barrier: some threads of a warp of block 1"),
    "waits for nobody": (11, rf"{DEADLOCK}[^$]*of block 0 wait for the cluster at"),
}


def _case(
    kernel: str, problem: Problem, blocks: int, defect: int, launch: tuple[int, int, int]
) -> Case:
    """A case of a kernel with `Params`; `launch` is its grid, its block and its shared memory."""
    template = Template(f"{kernel}.cu", kernel, (("BLOCKS", blocks),), named=True)
    grid, block, shared = launch
    arguments = (
        *(Argument("pointer", "a"), Argument("i64", "lda")),
        *(Argument("pointer", "b"), Argument("i64", "ldb")),
        *(Argument("pointer", "c"), Argument("i64", "ldc"), Argument("i32", problem.k)),
        Argument("i32", defect),
    )
    launches = (Launch(template, (grid, 1, 1), (block, 1, 1), shared, arguments),)
    plan = LaunchPlan(Config(kernel), launches)
    return random_case(problem, plan, Alignment.dense(problem), problem.leading_dimensions)


def _multicast(blocks: int, defect: int = 0, steps: int = 5) -> Case:
    """Two clusters whose blocks have 4 rows of C each."""
    problem = Problem(8 * blocks, 32, 8 * blocks * steps)
    shared = 2 * blocks * 1024 + 5 * 8
    case = _case("broken_multicast", problem, blocks, defect, (2 * blocks, 64, shared))
    (launch,) = case.plan.launches
    box = TensorMap("b", 0, "f32", 32, problem.k, 1, "ldb", "stride_b", (32, 8), 0)
    arguments = (Argument("tensor_map", box), *launch.arguments[:2], *launch.arguments[4:])
    return replace(case, plan=replace(case.plan, launches=(replace(launch, arguments=arguments),)))


def _exchange(blocks: int, defect: int = 0, clusters: int = 2) -> Case:
    """Clusters that have 4 rows of C each; a block has 5 of K."""
    problem = Problem(4 * clusters, 32, 5 * blocks)
    launch = clusters * blocks, 32, blocks * 512 + 8
    return _case("broken_exchange", problem, blocks, defect, launch)


@pytest.fixture(scope="module")
def program(host_objects: Path) -> Program:
    cases = [make(size) for make in (_multicast, _exchange) for size in SIZES]
    templates = (launch.template for case in cases for launch in case.plan.launches)
    return build(templates, host_objects, sources=HOST)


@pytest.mark.parametrize("blocks", SIZES)
@pytest.mark.parametrize("sound", MULTICAST_SOUND)
def test_multicast_matches_numpy(program: Program, sound: str, blocks: int) -> None:
    number = MULTICAST_SOUND[sound]
    check(program, [_multicast(blocks, number, steps) for steps in (1, 2, 5) * LAUNCHES])


@pytest.mark.parametrize("defect", MULTICAST_DEFECTS)
def test_broken_multicast_fails(program: Program, defect: str) -> None:
    number, report = MULTICAST_DEFECTS[defect]
    with pytest.raises(HostFault, match=report):
        check(program, [_multicast(BROKEN_SIZE, number)] * LAUNCHES)


@pytest.mark.parametrize("blocks", SIZES)
def test_exchange_matches_numpy(program: Program, blocks: int) -> None:
    check(program, [_exchange(blocks)] * LAUNCHES)


@pytest.mark.parametrize("defect", EXCHANGE_DEFECTS)
def test_broken_exchange_fails(program: Program, defect: str) -> None:
    number, report = EXCHANGE_DEFECTS[defect]
    with pytest.raises(HostFault, match=report):
        check(program, [_exchange(BROKEN_SIZE, number)] * LAUNCHES)


def test_grid_of_broken_clusters_fails(program: Program) -> None:
    case = _exchange(BROKEN_SIZE)
    launch = replace(case.plan.launches[0], grid=(3, 1, 1))
    with pytest.raises(HostFault, match="a grid of 3 blocks is not in whole clusters of 2"):
        run(program, [replace(case, plan=replace(case.plan, launches=(launch,)))])


@pytest.mark.parametrize(
    ("x", "y", "report"),
    [(16, 1, "a cluster of 16 blocks"), (1, 2, "a cluster 1 2 1; only x is emulated")],
)
def test_unusual_cluster_fails(
    tmp_path: Path, host_objects: Path, x: int, y: int, report: str
) -> None:
    dimensions = "template <class Params> __global__ void __cluster_dims__(Params::X, Params::Y, 1)"
    (tmp_path / "empty.cu").write_text(f"{dimensions} empty() {{}}")
    template = Template("empty.cu", "empty", (("X", x), ("Y", y)), named=True)
    plan = LaunchPlan(Config("empty"), (Launch(template, (x, y, 1), (32, 1, 1), 0, ()),))
    problem = Problem(1, 1, 1)
    case = random_case(problem, plan, Alignment.dense(problem), problem.leading_dimensions)
    with pytest.raises(HostFault, match=report):
        run(build([template], host_objects, sources=tmp_path), [case])
