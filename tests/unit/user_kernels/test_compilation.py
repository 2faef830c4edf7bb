"""Files as people write them compile, by NVRTC or by nvcc; mistakes are named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.logged import logs

from autotune.api.kernels import kernel_occupancy
from autotune.cuda import nvcc
from autotune.cuda.program import Program, source_hash
from autotune.errors import MissingError, UsageError
from autotune.user_kernels import compilation
from autotune.user_kernels.compilation import Declaration, declarations, with_compiler
from autotune.user_kernels.definition import UserKernel, define_kernel
from autotune.user_kernels.source import Compilation, Source
from autotune.user_kernels.table import KernelRow

NVCC = pytest.mark.skipif(nvcc.version() is None, reason="nvcc is not installed")
DEFINES = Compilation(defines=True)
TILES = {"TILE": (32, 64)}


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path / "cache"))


def rows(
    source: Source,
    name: str = "k",
    parameters: Mapping[str, Sequence[Any]] = TILES,
    compile: Compilation = DEFINES,
    **geometry: Any,
) -> tuple[KernelRow, ...]:
    """The configurations of a kernel, compiled for an A100."""
    block = {"block": 64, **geometry}
    table = kernel_occupancy(source, name, parameters, compile=compile, device="a100", **block)
    return table.rows


def shared(source: Source, name: str = "k", **changes: Any) -> list[int]:
    """The static shared memory of each configuration, all of which compile."""
    resources = []
    for row in rows(source, name, **changes):
        assert row.resources is not None, row.rejection
        resources.append(row.resources.shared)
    return resources


def chosen(source: Source, name: str = "k", compile: Compilation = DEFINES) -> str:
    """The compiler that is chosen for a kernel."""
    return with_compiler(defined(source, name, compile), "sm_80").source.compiler


def defined(source: Source, name: str = "k", compile: Compilation = DEFINES) -> UserKernel:
    return define_kernel(
        source, name, TILES, constraints=None, grid=1, block=64, shared=0, compile=compile
    )


BODY = """
    __shared__ float s[TILE];
    s[threadIdx.x % TILE] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = s[0];
"""
KERNEL = f"__global__ void k(float* x) {{{BODY}}}\n"
MATMUL = """
#define CEIL_DIV(M, N) (((M) + (N)-1) / (N))
template <const int BM, const int BN>
__global__ void __launch_bounds__((BM * BN) / 8, 1)
    k(int M, float alpha, const float* A, float* B) {
    __shared__ float s[BM * BN];
    assert(BM % 8 == 0);
    s[threadIdx.x] = A[blockIdx.x * CEIL_DIV(M, BN) + threadIdx.x];
    __syncthreads();
    B[threadIdx.x] = alpha * s[threadIdx.x];
}
"""

# What each needs is in its name. All have 4 TILE bytes of static shared memory.
NVRTC_FILES = {
    "nothing": KERNEL,
    "a kernel in an unnamed namespace": f"namespace {{ {KERNEL} }}",
    "a static kernel": f"static {KERNEL}",
    "several kernels in a block of extern C": f'extern "C" {{ {KERNEL} '
    "__global__ void kk(float* x) { x[0] = 1; } __global__ void k2(float* x) { x[0] = 2; } }",
    "types of the runtime": f"__device__ cudaError_t status = cudaSuccess;\n{KERNEL}",
    "a texture object": "__device__ float at(cudaTextureObject_t t) { return tex1D<float>(t, 1); }"
    + KERNEL,
    "half precision": "#include <cuda_fp16.h>\n__device__ __half h(float x) { return x; }\n"
    + KERNEL,
    "cooperative groups": "#include <cooperative_groups.h>\n"
    "__device__ void sync() { cooperative_groups::this_thread_block().sync(); }" + KERNEL,
    "its own macro": f"#ifndef TILE\n#define TILE 8\n#endif\n{KERNEL}",
    "a comment between braces": f"/* {{ */ // }}\n{KERNEL}",
}
NVCC_FILES = {
    "a main": KERNEL + "int main() { k<<<1, 64>>>(nullptr); return 0; }",
    "cstdio": f"#include <cstdio>\n{KERNEL}",
    "printf and main": "#include <stdio.h>\n"
    + KERNEL
    + 'int main() { float* x; cudaMalloc(&x, 4); k<<<1, 1>>>(x); printf("%f", 1.0f); }',
    "algorithm": "#include <algorithm>\n#include <vector>\n"
    f"int most(std::vector<int> v) {{ return *std::max_element(v.begin(), v.end()); }}{KERNEL}",
    "an unnamed namespace beside a main": "#include <cassert>\n"
    f"namespace {{ {KERNEL} }} int main() {{}}",
    "extern C beside a main": f'#include <iostream>\nextern "C" {{ {KERNEL} }}\n'
    'int main() { std::cout << "done"; }',
    "static beside a main": f"#include <cstdlib>\nstatic {KERNEL} int main() {{ return rand(); }}",
    "a host function in a header of CUDA": f"#include <cuda_runtime.h>\n{KERNEL}"
    "void check(cudaError_t e) { if (e != cudaSuccess) cudaGetErrorString(e); }",
}


@pytest.mark.parametrize("source", NVRTC_FILES.values(), ids=NVRTC_FILES)
def test_file_of_device_code_compiles(source: str) -> None:
    assert shared(source) == [128, 256]
    assert chosen(source) == "nvrtc"


@NVCC
@pytest.mark.parametrize("source", NVCC_FILES.values(), ids=NVCC_FILES)
def test_file_with_host_code_compiles_by_nvcc(source: str) -> None:
    with logs(r"k is compiled by nvcc \d.*; NVRTC: .*error"):
        assert chosen(source) == "nvcc"
    assert shared(source) == [128, 256]


@NVCC
@pytest.mark.parametrize("source", NVRTC_FILES.values(), ids=NVRTC_FILES)
def test_nvcc_compiles_what_nvrtc_does(source: str) -> None:
    assert shared(source, compile=Compilation(defines=True, compiler="nvcc")) == [128, 256]


@NVCC
def test_tutorial_headers_compile(tmp_path: Path) -> None:
    include = "#pragma once\n#include <cassert>\n#include <cstdio>\n#include <cuda_runtime.h>\n"
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "tiled.cuh").write_text(include + MATMUL)
    (tmp_path / "runner.cu").write_text(f'{include}#include "kernels/tiled.cuh"\nint main() {{}}')
    sizes = {"BM": (16, 32), "BN": (16,)}
    for source in (tmp_path / "runner.cu", tmp_path / "kernels" / "tiled.cuh"):
        kernel = shared(source, parameters=sizes, compile=Compilation(), block=32)
        assert kernel == [1024, 2048]


@NVCC
def test_instance_is_told_from_those_that_main_launches() -> None:
    source = (
        "#include <cstdio>\n"
        "template <int TILE> __global__ void k(float* x) {" + BODY + "}\n"
        "template <int TILE> __global__ void k(double* x) { x[0] = TILE; }\n"
        "int main() { k<8><<<1, 8>>>((float*)0); k<16><<<1, 8>>>((float*)0); }"
    )
    assert shared(source, "k<TILE>(float*)", compile=Compilation()) == [128, 256]
    assert shared(source, "k<TILE>(double*)", compile=Compilation()) == [0, 0]


def test_header_includes_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "util").mkdir()
    (tmp_path / "k.cu").write_text('#include "util/load.cuh"\n' + KERNEL)
    (tmp_path / "util" / "load.cuh").write_text('#include "types.cuh"\n')
    (tmp_path / "util" / "types.cuh").write_text("typedef float real;\n")
    assert shared(tmp_path / "k.cu") == [128, 256]


@pytest.mark.parametrize(
    "data",
    [
        b"\xef\xbb\xbf" + KERNEL.encode(),
        "// größer\n".encode("latin-1") + KERNEL.encode(),
        "// щ\r\n".encode("koi8-r") + KERNEL.encode(),
    ],
    ids=["byte order mark", "latin-1", "koi8-r"],
)
@pytest.mark.parametrize("compiler", ["nvrtc", pytest.param("nvcc", marks=NVCC)])
def test_file_in_any_encoding_compiles(data: bytes, compiler: Any, tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_bytes(data)
    compile = Compilation(defines=True, compiler=compiler)
    assert shared(tmp_path / "k.cu", compile=compile) == [128, 256]


def test_text_with_a_byte_order_mark_compiles() -> None:
    assert shared("\ufeff" + KERNEL) == [128, 256]


@pytest.mark.parametrize("compiler", ["nvrtc", pytest.param("nvcc", marks=NVCC)])
def test_name_of_300_letters_compiles(compiler: Any) -> None:
    name = "k" * 300
    source = KERNEL.replace("void k(", f"void {name}(")
    compile = Compilation(defines=True, compiler=compiler)
    assert shared(source, name, compile=compile) == [128, 256]


def test_several_files_are_searched_for_headers(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "k.cu").write_text('#include "part.cu"\n' + KERNEL)
    (tmp_path / "far" / "part.cu").write_text("__device__ float half_of(float x) { return x / 2; }")
    (tmp_path / "far" / "other.cu").write_text("")
    part, other = tmp_path / "far" / "part.cu", tmp_path / "far" / "other.cu"
    assert shared([tmp_path / "k.cu", part]) == [128, 256]
    with pytest.raises(UsageError, match=r"k\.cu does not include .*other\.cu; include it"):
        shared([tmp_path / "k.cu", part, other])


def test_source_is_a_function_of_the_parameters() -> None:
    def source(p: Mapping[str, Any]) -> str:
        return KERNEL.replace("TILE", str(2 * p["TILE"]))

    assert shared(source, "k<>", compile=Compilation()) == [256, 512]
    with pytest.raises(UsageError, match=r"source of k:TILE=32 is 7; return CUDA C\+\+ as text"):
        shared(lambda _: 7)  # type: ignore[arg-type, return-value]


OVERLOADS = """
__global__ void k(float* x) { __shared__ float s[TILE]; s[threadIdx.x] = 1; x[0] = s[1]; }
__global__ void k(float* x, int n) { x[n] = 1; }
"""


@pytest.mark.parametrize(
    "source", [OVERLOADS, pytest.param(f"#include <cstdio>\n{OVERLOADS}", marks=NVCC)]
)
def test_overload_is_chosen_by_its_signature(source: str) -> None:
    assert shared(source, "k(float*)") == [128, 256]
    assert shared(source, "k(float *x, int)") == [0, 0]
    with pytest.raises(UsageError, match=r"such as 'k\(float\* x\)', 'k\(float\* x, int n\)'"):
        shared(source)


# Macros


@NVCC
def test_override_behind_host_code_is_refused() -> None:
    with pytest.raises(UsageError, match="the source sets TILE to 64"):
        rows(f"#include <cstdio>\n#define TILE 64\n{KERNEL}int main() {{}}")


def test_macros_of_a_launch_are_those_of_kernel_tuner() -> None:
    source = """
    #ifndef kernel_tuner
    #error kernel_tuner is not defined
    #endif
    __global__ void k(float* x) {
        __shared__ float s[1000 * grid_size_x + 100 * grid_size_y + 10 * block_size_x + TILE / 32
                           - grid_size_z + block_size_z];
        s[threadIdx.x] = block_size_y; x[0] = s[1];
    }
    """
    words = [1000 + 200 + 320 - 1 + 1 + tile for tile in (1, 2)]
    assert shared(source, grid=(1, 2), block=(32, 4)) == [4 * count for count in words]


def test_macros_of_a_launch_are_left_out_where_unread() -> None:
    assert defined(KERNEL).source.launch_macros == ()
    used = defined(f"// kernel_tuner\n{KERNEL}").source
    assert (used.launch_macros, "launch_macros" in used.fields) == (("kernel_tuner",), True)
    assert "launch_macros" not in defined(KERNEL).source.fields


# Mistakes


@pytest.mark.parametrize("head", ["", pytest.param("#include <cstdio>\n", marks=NVCC)])
@pytest.mark.parametrize(
    ("name", "source", "compile", "message"),
    [
        ("k<>", KERNEL, Compilation(), "k: unknown identifier TILE is a parameter: set compile="),
        ("kk", f"namespace a {{ {KERNEL} }} {KERNEL}", DEFINES, "no such kernel; it has a::k, k"),
        (
            "kk",
            f"#define K(n) __global__ void n(float* x)\nK(k) {{{BODY}}}",
            DEFINES,
            "outside macros",
        ),
        ("b::k", f"namespace b {{}} {KERNEL}", DEFINES, "b::k: the source has no such kernel"),
        ("k", KERNEL.replace("TILE", "8"), Compilation(), "k: the kernel is not a template; set"),
    ],
)
def test_mistake_is_named(
    head: str, name: str, source: str, compile: Compilation, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        rows(head + source, name, compile=compile)


def test_error_of_the_source_is_the_compilers() -> None:
    (row, _) = rows('#include "helper_cuda.h"\n' + KERNEL)
    assert row.rejection is not None
    assert 'k.cu(1): catastrophic error: cannot open source file "helper_cuda.h"' in str(
        row.rejection.detail
    )


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            f"#include <cstdio>\n{KERNEL}",
            r'"cstdio".*; NVRTC compiles no host code: install a CUDA',
        ),
        (f"{KERNEL}int main() {{}}", "host functions are not allowed.*; NVRTC compiles no host"),
        (f"#include <cub/missing.cuh>\n{KERNEL}", r"pip install 'tile-autotune\[kernels\]'"),
    ],
)
def test_without_nvcc_the_error_says_what_it_takes(
    source: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvcc, "version", lambda: None)
    with pytest.raises(MissingError, match=message):
        rows(source)


def test_forced_nvcc_that_is_missing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvcc, "version", lambda: None)
    with pytest.raises(MissingError, match="nvcc is not installed; install a CUDA toolkit"):
        rows(KERNEL, compile=Compilation(compiler="nvcc"))


def test_forced_nvrtc_compiles_no_host_code() -> None:
    compile = Compilation(defines=True, compiler="nvrtc")
    (row, _) = rows(f"#include <cstdio>\n{KERNEL}", compile=compile)
    assert row.rejection is not None
    assert '"cstdio"' in row.rejection.detail


def test_unknown_compiler_is_refused() -> None:
    with pytest.raises(UsageError, match="compiler is 'clang'; give 'nvrtc' or 'nvcc'"):
        defined(KERNEL, compile=Compilation(compiler="clang"))  # type: ignore[arg-type]


def test_first_configuration_too_large_keeps_nvrtc() -> None:
    source = f"__device__ float pad[TILE];{KERNEL.replace('TILE', 'TILE * 4096')}"
    assert chosen(source) == "nvrtc"
    assert all(row.rejection and row.rejection.reason == "compile" for row in rows(source))


@NVCC
def test_option_that_nvcc_alone_knows_takes_nvcc() -> None:
    with logs("NVRTC: .*unrecognized option"):
        assert chosen(KERNEL, compile=Compilation(defines=True, options=["-Xcompiler", "-O1"]))


def test_headers_are_hashed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[str] = []

    def counted(source: str, **folders: Any) -> str:
        hashed.append(source)
        return source_hash(source, **folders)

    monkeypatch.setattr(compilation, "source_hash", counted)
    kernel = defined(KERNEL)
    with compilation.compiling(kernel) as (compile, _):
        for config in kernel.combinations():
            assert isinstance(compile(kernel.template(config), "sm_80"), Program)
    assert hashed == ["k.cu"]


def test_declarations_have_their_namespaces() -> None:
    text = """
    // __global__ void no(int);
    namespace a::b { namespace {
    template <int N, class T = int>
    __global__ void __launch_bounds__(N * (2 + 1), 1)
    first(T* x, int n = (3)) { if (n) { x[0] = '}' == 1; } }
    } }
    extern "C" { __global__ __launch_bounds__(64) void second(float *x, void (*f)(int)); }
    static void __global__ third() {}
    """
    assert declarations(text) == [
        Declaration("a::b::first", "(T* x, int n = (3))", True),
        Declaration("second", "(float *x, void (*f)(int))", False),
        Declaration("third", "()", False),
    ]
