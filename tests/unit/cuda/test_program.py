"""What a cubin states about the launches of its kernel."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.cuda import compiler
from autotune.cuda.program import CODE_DIGITS, LaunchBounds, Program, code_digest, sections
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


# The hash of machine code

SCALED = """
namespace {{
struct Params {{ {member} float* x; float factor; int n; }};

__device__ float row[4] = {{1, 2, 3, 4}};
__constant__ float table[64] = {{{constant}, 2, 3, 4}};
}}

template <int N> __global__ void k(const __grid_constant__ Params p) {{
    __shared__ float tile[N];
    const int i = blockIdx.x * N + threadIdx.x;
    tile[threadIdx.x] = i < p.n ? p.x[i] * table[threadIdx.x % 64] : row[i % 4];
    __syncthreads();
    p.x[i] = tile[N - 1 - threadIdx.x] {operator} p.factor;
}}
"""


def digest_of(
    folder: Path,
    member: str = "",
    operator: str = "*",
    constant: str = "1",
    size: int = 128,
    arch: str = "sm_90",
) -> str:
    """The digest of the kernel with a member in front of its parameters, or another instruction."""
    (folder / "k.cu").write_text(SCALED.format(member=member, operator=operator, constant=constant))
    template = Template("k.cu", "k", (("N", size),))
    program = compiler.compile(template, arch, cache=None, sources=folder)
    assert isinstance(program, Program), program.log
    return code_digest([program])


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90"])
@pytest.mark.parametrize("member", ["double* added;", "double* added[5];", "long long added[100];"])
def test_member_before_the_parameters_leaves_the_digest(
    arch: str, member: str, tmp_path: Path
) -> None:
    plain = digest_of(tmp_path, arch=arch)
    assert len(plain) == CODE_DIGITS
    assert digest_of(tmp_path, member, arch=arch) == plain


@pytest.mark.parametrize(
    "changed", [{"operator": "+"}, {"constant": "7"}, {"size": 64}, {"arch": "sm_86"}], ids=str
)
def test_changed_code_has_another_digest(changed: dict[str, Any], tmp_path: Path) -> None:
    assert digest_of(tmp_path, **({"arch": "sm_80"} | changed)) != digest_of(tmp_path, arch="sm_80")


def test_digest_covers_every_launch_with_its_resources(tmp_path: Path) -> None:
    program = compiled("", tmp_path)
    digests = [
        code_digest(programs)
        for programs in (
            [program],
            [program, program],
            [replace(program, registers=program.registers + 8)],
            [replace(program, shared=program.shared + 16)],
        )
    ]
    assert len({*digests}) == 4
    assert code_digest([replace(program, symbol="other", key="", log="")]) == digests[0]


def test_program_without_machine_code_has_no_digest(tmp_path: Path) -> None:
    program = compiled("", tmp_path)
    assert code_digest([]) == ""
    assert code_digest([program, replace(program, cubin=b"")]) == ""
