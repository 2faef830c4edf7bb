"""What a cubin states about the launches of its kernel."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.cuda import compiler
from autotune.cuda.program import LaunchBounds, Program, sections
from autotune.families.plan import Launch, Template


def compiled(attributes: str, folder: Path) -> Program:
    text = f"__global__ void {attributes} k(float* x) {{ x[threadIdx.x] *= 2; }}\n"
    (folder / "k.cu").write_text(text)
    program = compiler.compile(Template("k.cu", "k"), "sm_90", cache=None, sources=folder)
    assert isinstance(program, Program), program.log
    return program


def launch(block: tuple[int, int, int], grid: tuple[int, int, int] = (1, 1, 1)) -> Launch:
    return Launch(Template("k.cu", "k"), grid, block, 0, ())


@pytest.mark.parametrize(
    ("attributes", "bounds"),
    [
        ("", LaunchBounds()),
        ("__launch_bounds__(128)", LaunchBounds(threads=128)),
        ("__launch_bounds__(256, 4)", LaunchBounds(threads=256)),
        ("__maxnreg__(32)", LaunchBounds()),
        (
            "__block_size__((64, 2, 1))",
            LaunchBounds(block=(64, 2, 1), grid_of_clusters=True),
        ),
        (
            "__block_size__((64, 1, 1), (2, 2, 1))",
            LaunchBounds(block=(64, 1, 1), cluster=(2, 2, 1), grid_of_clusters=True),
        ),
        (
            "__launch_bounds__(64) __cluster_dims__(16, 1, 1)",
            LaunchBounds(threads=64, cluster=(16, 1, 1)),
        ),
        ("__cluster_dims__()", LaunchBounds(open_cluster=True)),
    ],
)
def test_bounds_are_those_of_the_source(
    attributes: str, bounds: LaunchBounds, tmp_path: Path
) -> None:
    assert compiled(attributes, tmp_path).bounds == bounds


@pytest.mark.parametrize(
    ("bounds", "refused", "reason"),
    [
        (
            LaunchBounds(threads=128),
            launch((64, 4, 1)),
            "launch bound: 256 threads a block, the kernel's launch bound is 128",
        ),
        (
            LaunchBounds(block=(64, 2, 1)),
            launch((128, 1, 1)),
            "required block: 128 x 1 x 1 threads, the kernel requires 64 x 2 x 1",
        ),
        (
            LaunchBounds(cluster=(4, 4, 1)),
            launch((32, 1, 1), (4, 4, 1)),
            "cluster: 16 blocks a cluster, CUDA allows 8 without an opt-in",
        ),
        (LaunchBounds(open_cluster=True), launch((32, 1, 1)), "cluster: .* write __cluster_dims__"),
        (
            LaunchBounds(cluster=(2, 2, 1)),
            launch((32, 1, 1), (4, 3, 1)),
            "grid: 4 x 3 x 1 blocks, not a multiple of the cluster's 2 x 2 x 1",
        ),
    ],
)
def test_launch_beyond_the_bounds_is_refused(
    bounds: LaunchBounds, refused: Launch, reason: str
) -> None:
    refusal = bounds.refusal(refused)
    assert refusal is not None
    assert re.match(reason, ": ".join(refusal))


@pytest.mark.parametrize(
    ("bounds", "allowed"),
    [
        (LaunchBounds(), launch((1024, 1, 1))),
        (LaunchBounds(threads=128), launch((64, 2, 1))),
        (LaunchBounds(block=(64, 2, 1)), launch((64, 2, 1))),
        (LaunchBounds(cluster=(2, 2, 1)), launch((32, 1, 1), (4, 2, 3))),
        (LaunchBounds(cluster=(8, 1, 1), grid_of_clusters=True), launch((32, 1, 1))),
    ],
)
def test_launch_within_the_bounds_is_allowed(bounds: LaunchBounds, allowed: Launch) -> None:
    assert bounds.refusal(allowed) is None


def test_damaged_cubin_states_nothing(tmp_path: Path) -> None:
    program = compiled("__launch_bounds__(128)", tmp_path)
    assert ".nv.info._Z1kPf" in sections(program.cubin)
    for cubin in (b"", b"cubin", program.cubin[:100], program.cubin[:-2000]):
        assert replace(program, cubin=cubin).bounds == LaunchBounds()
