"""Compilation: resources of a program, failures as values, the program cache."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from support.logged import logs
from support.paths import TESTS

from autotune import settings
from autotune.cuda import cache as program_cache
from autotune.cuda import compiler, nvrtc, program
from autotune.cuda.compiler import compile
from autotune.cuda.program import CompileFailure, Program, source_hash
from autotune.errors import MissingError
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.plan import Template
from autotune.families.shared.arguments import each_type, scale
from autotune.families.shared.quantizing import Quantizing
from autotune.files import checksum, limits
from autotune.problem import ELEMENT_TYPES, Problem

KERNELS = """
#include "outer.cuh"

template <int N> __global__ void __launch_bounds__(N) scaled(float* x) {
    __shared__ float tile[N];
    tile[threadIdx.x] = FACTOR * x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = tile[N - 1 - threadIdx.x];
}

// Its name begins like the one above: a search for that text alone would find both.
__global__ void scaled_once(float* x) { x[threadIdx.x] *= FACTOR; }

// 64 running sums do not fit into the 32 registers that two blocks of 1024 threads leave.
template <int N> __global__ void __launch_bounds__(1024, 2) crowded(float* x) {
    float sum[64] = {};
    for (int i = 0; i < N; ++i)
        for (int j = 0; j < 64; ++j)
            sum[j] = sum[j] * sum[(j + 17) % 64] + x[i * 64 + j];
    for (int j = 0; j < 64; ++j) x[threadIdx.x * 64 + j] = sum[j];
}
"""


TILED = Config.parse("tiled:tile_width=16,specialized=1")


def scaled(n: int = 64) -> Template:
    return Template("kernels.cu", "scaled", (("N", n),))


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    root = tmp_path / "sources"
    (root / "include").mkdir(parents=True)
    (root / "kernels.cu").write_text(KERNELS)
    (root / "include" / "outer.cuh").write_text('#pragma once\n#include "inner.cuh"\n')
    (root / "include" / "inner.cuh").write_text("#pragma once\n#define FACTOR 2.0f\n")
    (root / "include" / "unused.cuh").write_text("#pragma once\n")
    return root


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[Template]:
    """The templates that NVRTC compiled."""
    seen: list[Template] = []
    build = nvrtc.build

    def counted(
        template: Template, arch: str, sources: Path, includes: Sequence[Path], *, here: bool
    ) -> nvrtc.Output:
        seen.append(template)
        return build(template, arch, sources, includes, here=here)

    monkeypatch.setattr(nvrtc, "build", counted)
    return seen


@pytest.fixture
def without_nvrtc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)


def compiled(
    template: Template, sources: Path, cache: Path | None = None, arch: str = "sm_90"
) -> Program:
    result = compiler.compile(template, arch, cache=cache, sources=sources)
    assert isinstance(result, Program), result.log
    return result


def failed(template: Template, sources: Path, arch: str = "sm_90") -> CompileFailure:
    result = compiler.compile(template, arch, cache=None, sources=sources)
    assert isinstance(result, CompileFailure)
    return result


def programs(cache: Path) -> list[Path]:
    return list(cache.rglob("*.program"))


# Programs and their resources


def test_cubin_is_an_elf_file_with_the_symbol(sources: Path) -> None:
    program = compiled(scaled(), sources)
    assert program.cubin.startswith(b"\x7fELF")
    assert program.symbol.encode() in program.cubin


def test_symbol_is_the_mangled_template_instance(sources: Path) -> None:
    # Itanium C++ ABI: _Z, length and name, template argument 64 of type int, returns void.
    assert compiled(scaled(), sources).symbol == "_Z6scaledILi64EEvPf"


def test_kernel_is_told_from_one_with_a_longer_name(sources: Path) -> None:
    program = compiled(Template("kernels.cu", "scaled_once"), sources)
    assert program.symbol == "_Z11scaled_oncePf"


def test_kernel_with_spare_registers_does_not_spill(sources: Path) -> None:
    program = compiled(scaled(), sources)
    assert (program.spills, program.local, program.barriers) == (0, 0, 1)


def test_kernel_without_enough_registers_spills(sources: Path) -> None:
    program = compiled(Template("kernels.cu", "crowded", (("N", 8),)), sources)
    assert program.registers == 32
    assert program.spills > 0
    assert program.local > 0


@pytest.mark.parametrize("number", [75, 80, 86, 89, 90, 100, 120])
def test_every_supported_architecture_compiles(sources: Path, number: int) -> None:
    assert compiled(scaled(), sources, arch=f"sm_{number}").arch == f"sm_{number}"


def test_working_directory_is_not_searched_for_headers(
    sources: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "mine.cuh").write_text("#define N 1\n")
    (sources / "stray.cu").write_text('#include "mine.cuh"\n__global__ void stray() {}\n')
    monkeypatch.chdir(tmp_path)
    assert "mine.cuh" in failed(Template("stray.cu", "stray"), sources).reason


# Architecture-specific code

HOPPER = """
template <int READS> __global__ void __launch_bounds__(128)
multiply(float* out, unsigned long long p, unsigned long long q) {
    float d[4] = {out[0], out[1], out[2], out[3]};
    asm volatile("wgmma.fence.sync.aligned;");
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1,"
                 "1, 0, 0;" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(p), "l"(q));
    if (READS) d[0] += 1.0f;
    asm volatile("wgmma.commit_group.sync.aligned;");
    asm volatile("wgmma.wait_group.sync.aligned 0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) :: "memory");
    for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = d[i];
}
template <int N> __device__ __noinline__ void step(float* d, unsigned long long p) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %4, 1, 1,"
                 "1, 0, 0;" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(p));
}
template <int N> __global__ void calls(float* out, unsigned long long p) {
    asm volatile("wgmma.fence.sync.aligned;");
    step<N>(out, p);
    asm volatile("wgmma.commit_group.sync.aligned;\\nwgmma.wait_group.sync.aligned 0;");
}
template <int THREADS> __global__ void __launch_bounds__(THREADS, 1) lowers(float* out) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    out[threadIdx.x] = 1;
}
template <int N> __global__ void lowers_from_unknown(float* out) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    out[threadIdx.x] = 1;
}
"""


@pytest.fixture
def hopper(sources: Path) -> Path:
    (sources / "hopper.cu").write_text(HOPPER)
    return sources


def specific(kernel: str, *arguments: tuple[str, int]) -> Template:
    return Template("hopper.cu", kernel, arguments, specific=True)


def test_specific_template_is_compiled_for_sm_90a(hopper: Path) -> None:
    assert compiled(specific("multiply", ("READS", 0)), hopper).arch == "sm_90a"


def test_general_template_cannot_use_sm_90a_instructions(hopper: Path) -> None:
    general = Template("hopper.cu", "multiply", (("READS", 0),))
    assert "not supported on .target 'sm_90'" in failed(general, hopper).log


def test_cache_separates_specific_from_general_code(sources: Path, cache: Path) -> None:
    general = compiled(scaled(), sources, cache)
    specific = compiled(replace(scaled(), specific=True), sources, cache)
    assert (general.arch, specific.arch) == ("sm_90", "sm_90a")
    assert general.key != specific.key
    assert compiled(replace(scaled(), specific=True), sources, cache) == specific


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (specific("multiply", ("READS", 1)), "wgmma.wait_group is injected"),
        (specific("calls", ("N", 1)), "wgmma.wait_group is injected"),
        (
            specific("lowers_from_unknown", ("N", 1)),
            "'setmaxnreg' ignored; unable to determine register",
        ),
    ],
)
def test_performance_loss_in_the_log_is_a_failure(
    hopper: Path, template: Template, reason: str
) -> None:
    assert failed(template, hopper).reason.startswith(reason)


def test_effective_setmaxnreg_is_no_failure(hopper: Path) -> None:
    assert compiled(specific("lowers", ("THREADS", 128)), hopper).spills == 0


def test_serialised_wgmma_gives_the_compilers_reason() -> None:
    # The wording of NVRTC 13.5.
    log = (
        "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are "
        "serialized due to insufficient register resources for the wgmma pipeline in the function "
        "'f' in line 3\nptxas info    : 0 bytes gmem\n"
    )
    assert str(program.loss(log)).startswith(
        "wgmma.mma_async instructions are serialized due to ins"
    )
    assert program.loss(NVRTC_13_5) is None


# Failures are values


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("template <int N> __global__ void f() { undeclared(); }", "bad.cu(1): error"),
        ('template <int N> __global__ void f() { static_assert(N > 9, "N"); }', "static assert"),
        ("template <int N> __global__ void g() {}", 'identifier "f" is undefined'),
        ('#include "nowhere.cuh"', "nowhere.cuh"),
        (
            "template <int N> __global__ void f(float* x)"
            "{ __shared__ float s[20000]; s[x[0] > 0] = 1; __syncthreads(); x[1] = s[(int)x[2]]; }",
            "uses too much shared data",
        ),
    ],
)
def test_compile_error_is_a_value_with_its_reason(sources: Path, source: str, reason: str) -> None:
    (sources / "bad.cu").write_text(source)
    assert reason in failed(Template("bad.cu", "f", (("N", 8),)), sources).reason


def test_compile_error_keeps_the_whole_log(sources: Path) -> None:
    (sources / "bad.cu").write_text("__global__ void f() { one(); two(); }")
    log = failed(Template("bad.cu", "f"), sources).log
    assert '"one" is undefined' in log
    assert '"two" is undefined' in log


def test_unknown_architecture_is_a_value(sources: Path) -> None:
    assert "gpu-architecture" in failed(scaled(), sources, arch="sm_1").reason


def test_missing_source_is_a_value_naming_the_file(sources: Path) -> None:
    assert "absent.cu: No such file" in failed(Template("absent.cu", "f"), sources).reason


@pytest.mark.parametrize(
    ("make", "reason"),
    [(os.mkfifo, "named pipe"), (lambda path: path.symlink_to("/dev/zero"), "character device")],
)
def test_source_of_another_kind_is_a_value(
    sources: Path, make: Callable[[Path], None], reason: str
) -> None:
    make(sources / "pipe.cu")
    failure = failed(Template("pipe.cu", "f"), sources).reason
    assert "pipe.cu" in failure
    assert reason in failure


def test_failure_is_not_cached(sources: Path, cache: Path) -> None:
    compiler.compile(scaled(-1), "sm_90", cache=cache, sources=sources)
    assert programs(cache) == []


# The cache


def test_second_request_is_served_from_the_cache(
    sources: Path, cache: Path, builds: list[Template]
) -> None:
    first = compiled(scaled(), sources, cache)
    assert compiled(scaled(), sources, cache) == first
    assert builds == [scaled()]


def test_moved_checkout_still_hits_the_cache(
    sources: Path, cache: Path, builds: list[Template]
) -> None:
    compiled(scaled(), sources, cache)
    compiled(scaled(), sources.rename(sources.with_name("moved")), cache)
    assert len(builds) == 1


@pytest.mark.parametrize("changed", ["kernels.cu", "include/outer.cuh", "include/inner.cuh"])
def test_key_covers_source_and_reachable_headers(sources: Path, changed: str) -> None:
    before = compiled(scaled(), sources).key
    (sources / changed).write_text((sources / changed).read_text() + "\n")
    assert compiled(scaled(), sources).key != before


def test_key_ignores_unreachable_headers(sources: Path) -> None:
    before = compiled(scaled(), sources).key
    (sources / "include" / "unused.cuh").write_text("#define OTHER\n")
    assert compiled(scaled(), sources).key == before


def test_key_covers_arguments_architecture_and_compiler(
    sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {
        compiled(scaled(), sources).key,
        compiled(scaled(32), sources).key,
        compiled(scaled(), sources, arch="sm_80").key,
    }
    monkeypatch.setattr(nvrtc, "version", lambda: "NVRTC 99.0")
    assert len(keys | {compiled(scaled(), sources).key}) == 4


def test_key_covers_the_options(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = compiled(scaled(), sources).key
    monkeypatch.setattr(nvrtc, "OPTIONS", (*nvrtc.OPTIONS, "--generate-line-info"))
    assert compiled(scaled(), sources).key != before


def flip_last_byte(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: b"",
        lambda data: data[:40],
        lambda data: data[: len(data) // 2],
        lambda data: data[:-1],
        flip_last_byte,
        lambda data: data.replace(b'"registers": ', b'"registers": 1'),
        lambda data: data.replace(b"\n", b" "),
    ],
)
def test_damaged_program_file_is_a_miss_and_rewritten(
    sources: Path, cache: Path, damage: Callable[[bytes], bytes]
) -> None:
    program = compiled(scaled(), sources, cache)
    (path,) = programs(cache)
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    again = compiled(scaled(), sources, cache)
    assert replace(again, log="") == replace(program, log="")
    assert program_cache._read(path, program.key, scaled(), "sm_90") == again


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("registers", -1),
        ("registers", "40"),
        ("registers", 10**20),
        ("shared", None),
        ("spills", 1.5),
        ("symbol", ""),
        ("symbol", 3),
        ("log", []),
        ("registers", None),
    ],
)
def test_sealed_program_with_impossible_values_is_a_miss(
    sources: Path, cache: Path, field: str, value: object
) -> None:
    program = compiled(scaled(), sources, cache)
    (path,) = programs(cache)
    header, _, cubin = checksum.unsealed_code(program.key, path.read_bytes()).partition(b"\n")
    changed = json.dumps({**json.loads(header), field: value}).encode()
    path.write_bytes(checksum.sealed_code(program.key, changed + b"\n" + cubin))
    assert program_cache.fault(path) is not None
    again = compiled(scaled(), sources, cache)
    assert replace(again, log="") == replace(program, log="")


def oversize(path: Path) -> None:
    path.touch()
    os.truncate(path, limits.PROGRAM + 1)


@pytest.mark.parametrize("make", [os.mkfifo, oversize, lambda path: path.symlink_to("/dev/zero")])
def test_program_file_of_another_kind_is_a_miss_and_replaced(
    sources: Path, cache: Path, make: Callable[[Path], None]
) -> None:
    program = compiled(scaled(), sources, cache)
    (path,) = programs(cache)
    path.unlink()
    make(path)
    assert program_cache.fault(path) is not None
    again = compiled(scaled(), sources, cache)
    assert replace(again, log="") == replace(program, log="")
    assert (path.is_symlink(), program_cache.fault(path)) == (False, None)


def test_directory_in_place_of_a_program_costs_a_warning(sources: Path, cache: Path) -> None:
    program = compiled(scaled(), sources, cache)
    (path,) = programs(cache)
    path.unlink()
    path.mkdir()
    with logs("compiled programs are not kept: .*Is a directory"):
        assert compiled(scaled(), sources, cache).cubin == program.cubin


def test_renamed_program_file_is_not_loaded(sources: Path, cache: Path) -> None:
    own = compiled(scaled(64), sources, cache)
    (path,) = programs(cache)
    smaller = compiled(scaled(32), sources, cache)
    path.write_bytes(path.with_name(f"{smaller.key}.program").read_bytes())
    assert "renamed" in str(program_cache.fault(path))
    assert compiled(scaled(64), sources, cache).cubin == own.cubin


def test_program_file_with_another_cubin_is_not_loaded(sources: Path, cache: Path) -> None:
    own, smaller = compiled(scaled(64), sources, cache), compiled(scaled(32), sources)
    (path,) = programs(cache)
    path.write_bytes(path.read_bytes().replace(own.cubin, smaller.cubin))
    assert program_cache.fault(path) is not None
    assert compiled(scaled(64), sources, cache).cubin == own.cubin


def test_keys_are_the_cached_programs_file_stems(cache: Path) -> None:
    template = registry.plan(TILED, Problem(64, 64, 64)).main.template
    program = compiler.compile(template, "sm_90", cache=cache)
    assert isinstance(program, Program)
    assert {*compiler.named_keys([template], "sm_90").values()} == {
        path.stem for path in program_cache.paths(cache)
    }


def test_simultaneous_requests_compile_once(
    sources: Path, cache: Path, builds: list[Template]
) -> None:
    with ThreadPoolExecutor(8) as pool:
        results = set(pool.map(lambda _: compiled(scaled(), sources, cache), range(8)))
    assert len(results) == 1
    assert builds == [scaled()]


@pytest.mark.parametrize(
    "make", [Path.touch, os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero")]
)
def test_whatever_lies_in_place_of_the_lock_is_no_obstacle(
    sources: Path, cache: Path, make: Callable[[Path], None]
) -> None:
    path = cache / "programs" / f"{compiled(scaled(), sources).key}.lock"
    path.parent.mkdir(parents=True)
    make(path)
    program = compiled(scaled(), sources, cache)
    assert [path.stem for path in programs(cache)] == [program.key]


def test_cache_without_locks_is_used(
    sources: Path, cache: Path, builds: list[Template], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refused)
    for _ in range(2):
        compiled(scaled(), sources, cache)
    assert builds == [scaled()]
    assert [path.suffix for path in (cache / "programs").iterdir()] == [".program"]


def test_parallel_compilations_keep_their_own_logs(sources: Path, cache: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        sizes = [32 * n for n in range(1, 13)]
        results = list(pool.map(lambda n: compiled(scaled(n), sources, cache), sizes))
    assert [result.shared for result in results] == [4 * n for n in sizes]


def test_compiling_leaves_only_program_files(sources: Path, cache: Path) -> None:
    compiled(scaled(), sources, cache)
    assert [path for path in cache.rglob("*.*") if path.suffix != ".program"] == []


def test_clear_counts_programs_and_removes_leftovers(sources: Path, cache: Path) -> None:
    compiled(scaled(), sources, cache)
    (cache / "programs" / "partial.tmp").touch()
    assert program_cache.clear(cache) == 1
    assert list((cache / "programs").iterdir()) == []


def test_size_counts_programs_and_their_bytes(sources: Path, cache: Path) -> None:
    assert program_cache.size(cache) == (0, 0)
    compiled(scaled(), sources, cache)
    assert program_cache.size(cache) == (1, programs(cache)[0].stat().st_size)


@contextmanager
def small_files() -> Iterator[None]:
    """Fails writes past 64 bytes of a file, like a full disk."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)


def test_full_disk_costs_a_warning_naming_the_cache(sources: Path, cache: Path) -> None:
    with logs(rf"not kept: .*{cache}/programs: File"), small_files():
        compiled(scaled(), sources, cache)
    assert list((cache / "programs").iterdir()) == []


def test_read_only_cache_costs_a_warning_naming_it(
    sources: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.mkdir(mode=0o500)
    monkeypatch.setattr(os, "access", lambda *_: False)  # chmod does not bind root
    with logs("(not writable|Permission denied); set AUTOTUNE"):
        compiled(scaled(), sources, cache)


def test_cache_that_is_a_file_costs_a_warning(sources: Path, cache: Path) -> None:
    cache.write_text("mine")
    with logs("not a directory"):
        compiled(scaled(), sources, cache)
    assert cache.read_text() == "mine"


# The choice of compiler


def test_version_names_nvrtc() -> None:
    assert compiler.compiler_version().startswith("NVRTC 1")


def test_source_hash_covers_all_sources_named(sources: Path) -> None:
    (sources / "more.cu").write_text("")
    single = source_hash("kernels.cu", directory=sources)
    assert source_hash("kernels.cu", "more.cu", directory=sources) != single


def test_cache_hit_imports_nothing_that_starts_processes(sources: Path, cache: Path) -> None:
    compiled(scaled(), sources, cache)
    script = (
        "import sys, pathlib; from autotune.cuda import compiler;"
        "from autotune.families.plan import Template;"
        "compiler.compile(Template('kernels.cu', 'scaled', (('N', 64),)), 'sm_90',"
        f"cache=pathlib.Path({str(cache)!r}), sources=pathlib.Path({str(sources)!r}));"
        "sys.exit('autotune.child_process' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_nvrtc_bindings_without_library_count_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    from cuda.bindings import nvrtc as bindings

    def gone() -> None:
        raise RuntimeError("libnvrtc.so.13 not found")

    monkeypatch.setattr(bindings, "nvrtcVersion", gone)
    assert nvrtc.version() is None


@pytest.mark.usefixtures("without_nvrtc")
def test_no_compiler_says_what_to_install(sources: Path) -> None:
    with pytest.raises(MissingError, match=r"pip install 'tile-autotune\[cu13\]'"):
        compiler.compile(scaled(), "sm_90", cache=None, sources=sources)


# The log of ptxas, as NVRTC 13.5 and nvcc 13.0 wrote it for kernels of the same kind.

NVRTC_13_5 = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_ZN2ns2kkILi3EEEvPf' for 'sm_90'
ptxas info    : Function properties for _ZN2ns2kkILi3EEEvPf
ptxas         .     256 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 34 registers, used 2 barriers, 320 bytes cumulative stack size, 512 bytes smem
ptxas info    : Compile time = 11.573 ms
ptxas info    : Function properties for _Z6helperfi
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Compiling entry function 'plain' for 'sm_90'
ptxas info    : Function properties for plain
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers
"""
NVCC_13_0 = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z1kILi8EEvPKfPf' for 'sm_90'
ptxas info    : Function properties for _Z1kILi8EEvPKfPf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 19 registers, used 1 barriers, 1024 bytes smem
ptxas info    : Compile time = 48.975 ms
"""


@pytest.mark.parametrize(
    ("log", "kernel", "symbol", "usage"),
    [
        (NVRTC_13_5, "ns::kk", "_ZN2ns2kkILi3EEEvPf", (34, 512, 320, 20, 2)),
        (NVRTC_13_5, "plain", "plain", (8, 0, 0, 0, 0)),
        (NVCC_13_0, "k", "_Z1kILi8EEvPKfPf", (19, 1024, 0, 0, 1)),
    ],
)
def test_log_gives_symbol_and_usage(
    log: str, kernel: str, symbol: str, usage: tuple[int, ...]
) -> None:
    assert program.symbol(log, kernel) == symbol
    names = "registers", "shared", "local", "spills", "barriers"
    assert program.usage(log, symbol) == dict(zip(names, usage, strict=True))


def test_log_with_two_instances_yields_no_symbol() -> None:
    twice = NVCC_13_0 + NVCC_13_0.replace("Li8E", "Li9E")
    assert program.symbol(twice, "k") is None


# Sources outside the package


def test_headers_are_searched_in_the_given_folders(tmp_path: Path) -> None:
    source, header = "template <int N> __global__ void k(int* x) { *x = N * FACTOR; }", "two.cuh"
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    (tmp_path / "here" / "k.cu").write_text(f'#include "{header}"\n{source}')
    (tmp_path / "there" / header).write_text("#define FACTOR 2\n")

    def built(*includes: Path) -> Program | CompileFailure:
        template = Template("k.cu", "k", (("N", 3),))
        here = tmp_path / "here"
        return compiler.compile(template, "sm_90", cache=None, sources=here, includes=includes)

    assert isinstance(built(tmp_path / "there"), Program)
    assert isinstance(built(), CompileFailure)


def test_hash_of_the_packages_sources_follows_every_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "include").mkdir()
    (tmp_path / "k.cu").write_text('#include "deep.cuh"')
    monkeypatch.setattr(settings, "source_dir", lambda: tmp_path)
    hashes = [source_hash("k.cu")]
    for text in ("int a;", "int bc;"):
        (tmp_path / "include" / "deep.cuh").write_text(text)
        hashes.append(source_hash("k.cu"))
    assert len({*hashes}) == 3
    assert source_hash("k.cu") == hashes[-1]


def test_source_hash_covers_nested_headers(tmp_path: Path) -> None:
    inner = tmp_path / "there" / "detail" / "inner.cuh"
    inner.parent.mkdir(parents=True)
    (tmp_path / "k.cu").write_text('#include "detail/outer.cuh"\n')
    (inner.parent / "outer.cuh").write_text('#include "inner.cuh"\n')
    hashes = set()
    for text in ("#define FACTOR 2\n", "#define FACTOR 3\n"):
        inner.write_text(text)
        folders = [tmp_path / "there"]
        hashes.add(source_hash("k.cu", directory=tmp_path, includes=folders))
    assert len(hashes) == 2


def test_template_instance_may_be_spelt_out(sources: Path) -> None:
    template = Template("kernels.cu", "scaled", (("N", 32),), form="scaled<2 * {N}>")
    assert compiled(template, sources).symbol == "_Z6scaledILi64EEvPf"


@pytest.mark.parametrize("scale", ["tensor", "row", "block"])
@pytest.mark.parametrize("source", ["f32", "f16", "bf16"])
def test_quantising_rounds_the_product_before_the_int8_number(source: str, scale: str) -> None:
    quantizing = Quantizing(ELEMENT_TYPES[source], ELEMENT_TYPES["i8"], scale, 16, 1024, vector=4)
    for launch in quantizing.plan().launches:
        text = compiler.ptx(launch.template, "sm_90")
        assert isinstance(text, bytes), text.reason
        # ptxas contracts `add`, and never `add.rn`.
        assert b"add.f32" not in text
        assert b"fma" not in text
        assert (b"add.rn.f32" in text) == (launch.template.kernel == "quantize")


@pytest.mark.parametrize("text", ["f8e5:scale=row", "i8:scale=row", "f16:out=f32"])
def test_planted_kernels_compile(text: str) -> None:
    problem = Problem.parse(f"8x8x8:{text}")
    template = Template(
        "planted.cu", "planted", (*each_type(problem), scale(problem), ("FAULT", 12))
    )
    program = compile(template, "sm_90", cache=None, sources=TESTS / "gpu")
    assert isinstance(program, Program)
