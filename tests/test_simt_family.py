import pytest

from autotune.config import Config
from autotune.families.simt import SIMT
from autotune.plan import Alignment, LaunchPlan
from autotune.problem import Problem

CONFIG = Config.parse(
    "simt:bm=64,bn=128,wm=32,wn=64,tm=8,tn=8,bk=16,split_k=1,group=1,copy=async,stages=3,"
    "fragments=2,min_blocks=2,order=columns"
)
SPLIT = Config.of("simt", {**CONFIG.values, "split_k": 4})
STAGED = Config.of("simt", {**CONFIG.values, "copy": "staged", "stages": 2})


def plan(config: Config, problem: Problem, alignment: Alignment | None = None) -> LaunchPlan:
    return SIMT.plan(config, problem, alignment or Alignment.dense(problem))


def argument(launched: LaunchPlan, name: str) -> int:
    return dict(launched.launches[0].template.arguments)[name]


def test_the_grid_covers_c() -> None:
    assert plan(CONFIG, Problem(65, 129, 16)).launches[0].grid == (2 * 2, 1, 1)


def test_threads_are_the_warps_of_the_block() -> None:
    assert plan(CONFIG, Problem(64, 128, 16)).launches[0].block == (2 * 2 * 32, 1, 1)


@pytest.mark.parametrize(("layout", "padding"), [("nn", 4), ("nt", 8), ("tn", 0), ("tt", 4)])
def test_only_transposed_operands_are_padded(layout: str, padding: int) -> None:
    shared = plan(CONFIG, Problem(64, 128, 64, layout=layout)).launches[0].shared
    assert shared == 4 * 3 * 16 * (64 + 128 + padding)


def test_edges_are_checked_only_where_there_are_any() -> None:
    shapes = [(64, 128, 16), (65, 128, 16), (64, 129, 16), (64, 128, 17)]
    assert [argument(plan(CONFIG, Problem(*shape)), "CHECK") for shape in shapes] == [0, 1, 1, 1]


def test_cp_async_transposes_float_by_float() -> None:
    launched = plan(CONFIG, Problem(64, 128, 64))
    assert (argument(launched, "VA"), argument(launched, "VB")) == (1, 4)


def test_staged_copies_use_the_widest_vectors_of_each_operand() -> None:
    launched = plan(STAGED, Problem(64, 128, 64), Alignment(a=4, b=2, c=1))
    assert [argument(launched, name) for name in ("VA", "VB", "VC")] == [4, 2, 1]


def test_vectors_never_cross_the_end_of_a_row() -> None:
    launched = plan(CONFIG, Problem(64, 126, 64), Alignment(4, 4, 4))
    assert (argument(launched, "VB"), argument(launched, "VC")) == (2, 2)


def test_a_whole_product_is_one_launch_without_workspace() -> None:
    launched = plan(CONFIG, Problem(64, 128, 64))
    assert (len(launched.launches), launched.workspace) == (1, 0)


def test_a_split_product_keeps_its_parts_in_the_workspace() -> None:
    assert plan(SPLIT, Problem(64, 128, 512)).workspace == 4 * 64 * 128 * 4


def test_parts_are_written_unscaled_and_the_sum_is_scaled_once() -> None:
    product, reduce = plan(SPLIT, Problem(64, 128, 512)).launches
    words = [
        {argument.value for argument in launch.arguments if isinstance(argument.value, str)}
        for launch in (product, reduce)
    ]
    assert words == [
        {"a", "lda", "b", "ldb", "workspace"},
        {"workspace", "c", "ldc", "alpha", "beta"},
    ]


def test_group_and_split_share_one_program() -> None:
    problem = Problem(1024, 1024, 1024)
    grouped = Config.of("simt", {**CONFIG.values, "group": 8, "split_k": 2})
    templates = [plan(config, problem).launches[0].template for config in (CONFIG, grouped)]
    assert templates[0] == templates[1]
