"""Programs that came with the package: found by their sources, without a compiler."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autotune import settings
from autotune.cuda import cache, compiler
from autotune.cuda.program import CompileFailure, Program
from autotune.errors import MissingError
from autotune.families.plan import Template

NAIVE = Template("split_k.cu", "split_k", (("VECTOR", 1), ("EPILOGUE", 0)), named=True)
SOURCES = {"made.cu": "5e1f", "split_k.cu": "5e1f"}


def program(template: Template, cubin: bytes = b"\x7fELF cubin") -> Program:
    return Program(
        *(template, "sm_90", cubin, "_Z4made"),
        *(32, 0, 0, 0, 1),
        *("NVRTC 13.0", "0", "long"),
    )


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An archive of two programs, and no compiler."""
    monkeypatch.setenv("AUTOTUNE_PROGRAMS_DIR", str(tmp_path))
    monkeypatch.setattr(cache, "source_hash", SOURCES.__getitem__)

    def no_compiler(*_: object) -> None:
        raise MissingError("no CUDA compiler")

    monkeypatch.setattr(compiler, "compiler_version", no_compiler)
    path = tmp_path / f"sm_90{cache.SUFFIX}"
    made = [program(NAIVE), program(Template("made.cu", "made"), b"other")]
    path.write_bytes(cache.archive_of(made, SOURCES))
    return path


def compile(template: Template, arch: str = "sm_90") -> Program | CompileFailure:
    return compiler.compile(template, arch, cache=None, with_installed=True)


@pytest.mark.usefixtures("archive")
def test_installed_program_needs_no_compiler() -> None:
    served = compile(NAIVE)
    assert isinstance(served, Program)
    assert (served.cubin, served.registers, served.arch) == (b"\x7fELF cubin", 32, "sm_90")
    assert served.key != getattr(compile(Template("made.cu", "made")), "key", None)
    assert (cache.installed_count("sm_90"), cache.installed_count("sm_80")) == (2, 0)


@pytest.mark.usefixtures("archive")
@pytest.mark.parametrize(
    ("template", "arch"),
    [(replace(NAIVE, arguments=(("VECTOR", 2), ("EPILOGUE", 0))), "sm_90"), (NAIVE, "sm_89")],
)
def test_other_program_is_compiled(template: Template, arch: str) -> None:
    assert not cache.is_installed(template, arch)
    with pytest.raises(MissingError):
        compile(template, arch)


@pytest.mark.usefixtures("archive")
def test_program_of_other_sources_does_not_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "source_hash", lambda _: "changed")
    assert cache.find_installed(NAIVE, "sm_90") is None


@pytest.mark.usefixtures("archive")
def test_tuning_measures_what_this_machine_compiles() -> None:
    with pytest.raises(MissingError):
        compiler.compile(NAIVE, "sm_90", cache=None)


def test_damaged_archive_costs_a_compilation(archive: Path) -> None:
    start = archive.read_bytes().index(b"\n") + 1
    archive.write_bytes(archive.read_bytes()[:start] + b"\xff" * 200)
    assert cache.find_installed(NAIVE, "sm_90") is None


def test_package_without_an_archive_has_no_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOTUNE_PROGRAMS_DIR", str(tmp_path))
    assert settings.programs_dir() == tmp_path
    assert cache.installed_count("sm_90") == 0
