"""What exports hand to C, C++ and JSON: headers, the files of each format, and their plans.

`user.c`, `user.cpp` and `user_kernel.c` are programs of users; each has to compile as it is.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support import surfaces
from support.command_line import own_machine, run
from support.exported_library import C11, CXX17, STRICT, fake_build
from support.fake_runner import tiled
from support.sample_recording import DEVICE
from support.sample_records import entry, record
from support.sample_user_kernels import recorded

from autotune.cuda import compiler
from autotune.problem import Problem
from autotune.records import Store

SNAPSHOT = "exports.json"
EXPORT = "export"
"""The verb; one that is renamed changes its words here and in `EXPORTS`."""
GEMM, KERNEL = ("64x48x40", "--device", DEVICE), ("saxpy",)
EXPORTS: dict[str, tuple[str, ...]] = {
    "c": GEMM,
    "c with PTX": (*GEMM, "--ptx"),
    "c with bench": (*GEMM, "--bench"),
    "c with cuBLASLt": (*GEMM, "--cublaslt"),
    "cubin": (*GEMM, "--format", "cubin"),
    "cubin with PTX": (*GEMM, "--format", "cubin", "--ptx"),
    "ptx": (*GEMM, "--format", "ptx"),
    "cu": (*GEMM, "--format", "cu"),
    "json": (*GEMM, "--format", "json"),
    "kernel, c": KERNEL,
    "kernel, c with PTX": (*KERNEL, "--ptx"),
    "kernel, cubin": (*KERNEL, "--format", "cubin"),
    "kernel, cubin with PTX": (*KERNEL, "--format", "cubin", "--ptx"),
    "kernel, h": (*KERNEL, "--format", "h"),
    "kernel, json": (*KERNEL, "--format", "json"),
}
"""The words of each export."""
LIBRARIES = "c", "c with PTX", "c with bench", "c with cuBLASLt"


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for each export: of a problem that cuBLAS is faster on, or of a user kernel."""
    root = tmp_path_factory.mktemp("exports")
    with pytest.MonkeyPatch.context() as patch:
        store = Store(own_machine(patch, root))
        store.save(recorded())
        own = replace(entry(16, 900.0), config=tiled(16))
        store.save(record(own, problem=Problem(64, 48, 40), baseline_us=500.0))
        patch.setattr(compiler, "compile", lambda template, arch, **_: fake_build(template, arch))
        patch.setattr(compiler, "ptx", lambda *_, **__: b".target sm_90\n")
        for title, words in EXPORTS.items():
            assert run(EXPORT, *words, "--out", str(root / title)) == 0, title
        yield root


def declarations(header: str) -> list[str]:
    """A line for each macro, function, type, field and value of a C header, without comments."""
    text = re.sub(r"/\*.*?\*/", " ", header, flags=re.DOTALL)
    text = re.sub(r"#ifdef __cplusplus.*?#endif", " ", text, flags=re.DOTALL)
    lines = [
        " ".join(line.split())
        for line in re.findall(r"^#(?:include|define \w+|if|elif) .+$", text, re.M)
    ]
    code = " ".join(re.sub(r"^#.*$", " ", text, flags=re.MULTILINE).split())
    for head, body, tail in re.findall(r"([^;{}]+)(?:\{([^}]*)\}([^;{}]*))?;", code):
        lines.append(f"{head.strip()}{' {...}' if body else ''}{tail.rstrip()};")
        if head.strip().startswith("enum"):
            lines += [f"    {value.strip()}," for value in body.split(",")]
        else:
            lines += [f"    {line};" for field in body.split(";") for line in declared(field)]
    return lines


def declared(field: str) -> Iterator[str]:
    """Each of the names in a declaration such as `const void *a, *b` with its type."""
    if not field.strip():
        return
    first, *others = field.strip().split(",")
    type_, name = re.fullmatch(r"(.*?)\s*(\**\w+(?:\[\w*\])?)", first).groups()  # type: ignore[union-attr]
    for declarator in (name, *map(str.strip, others)):
        yield f"{type_} {declarator}"


def compile_only(program: str, compiler: tuple[str, ...], folder: Path) -> None:
    command = [*compiler, *STRICT, "-fsyntax-only", f"-I{folder}", str(surfaces.SURFACES / program)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def test_header_keeps_its_declarations(exports: Path) -> None:
    text = (exports / "c" / "gemm.h").read_text()
    lines = declarations(re.sub(r'(GEMM_VERSION) ".*"', r'\1 "..."', text))
    surfaces.hold("gemm.h.txt", lines)


def test_header_is_the_same_with_every_option(exports: Path) -> None:
    headers = {(exports / title / "gemm.h").read_bytes() for title in LIBRARIES}
    assert len(headers) == 1


@pytest.mark.parametrize("compiler", [C11, CXX17], ids=["C11", "C++17"])
def test_program_of_a_c_user_compiles(exports: Path, compiler: tuple[str, ...]) -> None:
    compile_only("user.c", compiler, exports / "c")


def test_program_of_a_c_user_uses_every_name() -> None:
    names = re.findall(
        r"\bGEMM_(?!H\b)\w+|\bgemm_\w+|(?<=^    ).*?\w+(?=;)",
        "\n".join(surfaces.read("gemm.h.txt")),
        re.MULTILINE,
    )
    words = {re.split(r"[\s*]", name)[-1] for name in names}
    assert len(words) > 100
    used = set(re.findall(r"\w+", (surfaces.SURFACES / "user.c").read_text()))
    assert words - used == set()


def test_program_of_a_cpp_user_compiles(exports: Path) -> None:
    compile_only("user.cpp", ("g++", "-std=c++17"), exports / "c")


def test_header_of_a_kernel_keeps_its_declarations(exports: Path) -> None:
    surfaces.hold("kernel.h.txt", declarations((exports / "kernel, c" / "saxpy.h").read_text()))


@pytest.mark.parametrize("compiler", [C11, CXX17], ids=["C11", "C++17"])
def test_program_of_a_kernel_user_compiles(exports: Path, compiler: tuple[str, ...]) -> None:
    compile_only("user_kernel.c", compiler, exports / "kernel, c")


def test_header_of_values_keeps_its_macros(exports: Path) -> None:
    surfaces.hold("values.h.txt", declarations((exports / "kernel, h" / "saxpy.h").read_text()))


@pytest.mark.parametrize("title", EXPORTS)
def test_export_keeps_its_files_and_plans(exports: Path, title: str) -> None:
    folder = exports / title
    names = {re.sub(r"_?[0-9a-f]{12}", "_KEY", path.name) for path in folder.iterdir()}
    surfaces.hold(SNAPSHOT, sorted(names), f"files of {title}")
    (manifest,) = folder.glob("*.json")
    shape = surfaces.shape_of(json.loads(manifest.read_text()), ("params", "files", "values"))
    surfaces.hold(SNAPSHOT, shape, f"plans of {title}")
