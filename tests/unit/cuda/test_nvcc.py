"""nvcc compiles host code beside a kernel, within limits, and runs nothing of its arguments."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import get_ident
from time import monotonic, sleep

import pytest

from autotune.cuda import compiler, nvcc
from autotune.cuda.program import CompileFailure, Program
from autotune.families.plan import Template

pytestmark = pytest.mark.skipif(nvcc.version() is None, reason="nvcc is not installed")

HOSTED = (
    "#include <cstdio>\nnamespace { template <int N> __global__ void k(float* x) { x[0] = N; } }"
)
# Each level doubles the text four times: compiling it takes hours.
ENDLESS = (
    "#define M0 x+\n"
    + "".join(f"#define M{n + 1} M{n} M{n} M{n} M{n}\n" for n in range(19))
    + "template <int N> __global__ void k(float* x) { int y = N; x[0] = M19 0; }"
)


def template(source: str = "k.cu", **changes: object) -> Template:
    return Template(source, "k", (("N", 8),), form="k<{N}>", compiler="nvcc", **changes)  # type: ignore[arg-type]


def compiled(
    folder: Path, text: str = HOSTED, cache: Path | None = None, **changes: object
) -> Program | CompileFailure:
    instance = template(**changes)  # type: ignore[arg-type]
    (folder / instance.source).parent.mkdir(exist_ok=True)
    (folder / instance.source).write_text(text)
    return compiler.compile(instance, "sm_80", cache=cache, sources=folder, includes=())


def test_program_names_nvcc_and_its_version(tmp_path: Path) -> None:
    program = compiled(tmp_path)
    assert isinstance(program, Program)
    assert program.compiler == nvcc.version()
    assert (program.registers > 0, program.shared, program.cubin[:4]) == (True, 0, b"\x7fELF")


def test_second_request_is_served_from_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = compiled(tmp_path, cache=tmp_path / "cache")
    monkeypatch.setattr(nvcc, "build", None)
    assert compiled(tmp_path, cache=tmp_path / "cache") == first
    monkeypatch.setattr(nvcc, "version", lambda: "nvcc 1.0.0")
    with pytest.raises(TypeError):  # it would be built
        compiled(tmp_path, cache=tmp_path / "cache")


def test_error_is_the_compilers(tmp_path: Path) -> None:
    failure = compiled(tmp_path, "#include <cstdio>\nnonsense")
    assert isinstance(failure, CompileFailure)
    assert failure.reason.startswith("k.cu(2): error:")


@pytest.mark.parametrize("kind", ["nvcc", "nvrtc"])
def test_ptx_names_the_kernel_as_the_cubin_does(kind: str, tmp_path: Path) -> None:
    text = HOSTED.partition("\n")[2]
    (tmp_path / "k.cu").write_text(text)
    instance = Template("k.cu", "k", (("N", 8),), form="k<{N}>", compiler=kind)
    places = {"sources": tmp_path, "includes": ()}
    program = compiler.compile(instance, "sm_80", cache=None, **places)  # type: ignore[arg-type]
    assert isinstance(program, Program)
    for symbol in (program.symbol, "_ZN21_GLOBAL__N__elsewhere1kILi8EEEvPf"):
        ptx = compiler.ptx(instance, "sm_80", symbol=symbol, **places)  # type: ignore[arg-type]
        assert isinstance(ptx, bytes)
        assert f".entry {symbol}(" in ptx.decode()


def test_compilation_over_the_time_limit_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvcc, "SECONDS", 1.0)
    failure = compiled(tmp_path, ENDLESS)
    assert isinstance(failure, CompileFailure)
    assert failure.reason == "error: nvcc took longer than 1 s and was stopped"


def test_stopped_compilation_fails_at_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as threads:
        thread = threads.submit(get_ident).result()
        began, outcome = monotonic(), threads.submit(compiled, tmp_path, ENDLESS)
        while thread not in nvcc._running:
            sleep(0.01)
        compiler.stop_compiling([thread])
        assert isinstance(outcome.result(60), CompileFailure)
        assert monotonic() - began < 30
    assert not nvcc._running


@pytest.mark.parametrize(
    "text", ["$(touch {run})", "`touch {run}`", '"; touch {run}; "', "\\", "a\ntouch {run}"]
)
def test_argument_that_a_shell_would_run_is_refused(text: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    failure = compiled(tmp_path, options=(f"-DX={text.format(run=run)}",))
    assert isinstance(failure, CompileFailure)
    assert failure.reason.startswith("error: nvcc cannot take '-DX=")
    assert not run.exists()


def test_folder_that_a_shell_would_run_is_refused(tmp_path: Path) -> None:
    failure = compiled(tmp_path, source="$(touch run)/k.cu")
    assert isinstance(failure, CompileFailure)
    assert "nvcc cannot take" in failure.reason


def test_quoted_characters_reach_the_source(tmp_path: Path) -> None:
    text = f'{HOSTED}\nstatic_assert((X) == 1, "");'
    assert isinstance(compiled(tmp_path, text, options=("-DX=3 > 2 & 1",)), Program)


@pytest.mark.parametrize("name", ["UNROLLED", "unroll"])
def test_macro_in_a_pragma_unrolls_the_loop(tmp_path: Path, name: str) -> None:
    text = f"""
    template <int N> __global__ void k(float* x) {{
    #  pragma unroll ({name})
        for (int i = 0; i < 512; ++i) x[i * blockDim.x] += N;
    }}"""
    programs = [compiled(tmp_path, text, macros=((name, str(count)),)) for count in (1, 2, 128)]
    sizes = [len(program.cubin) for program in programs if isinstance(program, Program)]
    assert len(sizes) == 3
    assert sizes[0] < sizes[2] > sizes[1] + 2000


def test_headers_of_wheels_come_after_those_of_nvcc(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = tmp_path / "wheel"
    wheel.mkdir()
    (wheel / "cublas_v3.h").write_text("constexpr int THREE = 3;\n")
    (wheel / "cuda_fp16.h").write_text("#error the header of another version\n")
    monkeypatch.setattr(nvcc, "cuda_headers", lambda: (wheel,))
    text = '#include <cublas_v3.h>\n#include <cuda_fp16.h>\nstatic_assert(THREE == 3, "");\n'
    (tmp_path / "k.cu").write_text(text + HOSTED)
    places = {"sources": tmp_path, "includes": (wheel,)}
    program = compiler.compile(template(), "sm_80", cache=None, **places)  # type: ignore[arg-type]
    assert isinstance(program, Program), program.log


def test_messages_name_headers_by_their_own_paths(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a.cuh").write_text("nonsense\n")
    failure = compiled(tmp_path, f'#include "deep/a.cuh"\n{HOSTED}')
    assert isinstance(failure, CompileFailure)
    assert failure.reason.startswith("deep/a.cuh(1): error:")
