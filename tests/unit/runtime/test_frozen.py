"""The frozen mode: nothing is tuned, guessed, compiled or written."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.fake_driver import FakeCuda
from support.fake_frameworks import FakeTorch
from support.fake_runner import tiled
from support.runtime_case import NAIVE, Case
from support.sample_records import H100, SQUARE, entry, record

import autotune
from autotune import runtime, settings
from autotune.cli import main
from autotune.cuda import compiler, nvrtc
from autotune.cuda.cache import cached
from autotune.cuda.program import Program
from autotune.errors import FrozenError, UsageError
from autotune.families.plan import Template
from autotune.problem import Problem
from autotune.records import Store, bundle
from autotune.report import doctor
from autotune.runtime import Kernel
from autotune.runtime.launcher import Driver
from autotune.runtime.matmul import Matmul
from autotune.runtime.state import Runtime
from autotune.settings import Mode
from autotune.tuning.retiming import retime


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("AUTOTUNE_MODE", raising=False)
    current = runtime.current
    yield tmp_path / "cache"
    current.cache_clear()


def frozen_case(missing: str = "vendor", *, recorded: bool = True, compiled: bool = True) -> Case:
    """A runtime in the frozen mode."""
    case = Case(config=NAIVE if recorded else None)
    build: Callable[[Template, str], Any] = case._build

    def kept(template: Template, arch: str) -> Any:
        if not compiled:
            raise FrozenError(f"{template.kernel} is not compiled")
        return build(template, arch)

    mode = Mode("frozen", missing)
    case.runtime = Runtime(Driver(case.cuda), case._find, case._plan, kept, mode)
    case.matmul = Matmul(case.runtime)
    return case


def tensors(case: Case, monkeypatch: pytest.MonkeyPatch) -> tuple[FakeTorch, list[Any]]:
    torch = FakeTorch(case.cuda)
    monkeypatch.setitem(sys.modules, "torch", torch)
    shapes = (5, 3), (3, 7), (5, 7)
    return torch, [torch.on("cuda:0", case.matrix(*shape)) for shape in shapes]


# Products.


@pytest.mark.parametrize("missing", ["vendor", "raise"])
def test_recorded_product_runs_its_kernel(missing: str) -> None:
    case = frozen_case(missing)
    a, b, out = case.operands(5, 7, 3)
    case.matmul(a, b, out)
    assert np.allclose(out.host, a.host @ b.host, atol=1e-5)


@pytest.mark.parametrize("state", [{"recorded": False}, {"compiled": False}], ids=str)
def test_other_products_go_to_the_vendor(monkeypatch: pytest.MonkeyPatch, state: Any) -> None:
    case = frozen_case(**state)
    torch, (a, b, out) = tensors(case, monkeypatch)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            case.matmul(a, b, out)
    assert np.allclose(out.host, a.host @ b.host, atol=1e-5)
    assert [name for name, _ in torch.products] == ["mm", "mm"]
    assert (len(case.looked_up), case.built, case.cuda.launches) == (1, [], [])


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"recorded": False}, r"5x7x3:f32:nn is not recorded on NVIDIA H100.*mode is frozen"),
        ({"compiled": False}, "naive is not compiled"),
    ],
    ids=str,
)
def test_other_products_raise_if_asked_to(
    monkeypatch: pytest.MonkeyPatch, state: Any, message: str
) -> None:
    case = frozen_case("raise", **state)
    torch, operands = tensors(case, monkeypatch)
    with pytest.raises(FrozenError, match=message):
        case.matmul(*operands)
    assert torch.products == []


def test_product_that_the_vendor_does_not_serve_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    case = frozen_case(recorded=False)
    with pytest.raises(FrozenError, match="the mode is frozen, and cuBLAS does not serve"):
        case.matmul(*case.operands(5, 7, 3))
    _, (a, b, out) = tensors(case, monkeypatch)
    with pytest.raises(FrozenError, match="cuBLAS does not serve"):
        case.matmul(a, b, out, policy=autotune.Policy(vendor=False))


@pytest.mark.parametrize("missing", ["vendor", "raise"])
def test_kernel_without_a_record_raises(missing: str) -> None:
    case = frozen_case(missing, recorded=False)
    with pytest.raises(FrozenError, match="is not recorded"):
        Kernel(case.runtime, Problem(5, 7, 3), 0)
    with pytest.raises(FrozenError, match="is not recorded"):
        case.runtime.warm([Problem(5, 7, 3)], 0, 1)


# The process.


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    fake = FakeCuda()
    monkeypatch.setattr(Driver, "load", lambda: Driver(fake))
    runtime.current.cache_clear()
    return fake


@pytest.mark.usefixtures("driver")
def test_mode_has_a_matmul_of_its_own() -> None:
    tuning = runtime.current()
    with autotune.policy(frozen=True):
        strict = runtime.current()
        with autotune.policy(frozen="raise"):
            assert runtime.current().runtime.mode == Mode("frozen", "raise")
        assert runtime.current() is strict
    assert runtime.current() is tuning
    assert tuning.runtime.mode == Mode()


@pytest.mark.usefixtures("driver")
def test_variable_freezes_the_process(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.setenv("AUTOTUNE_MODE", "frozen:raise")
    with pytest.raises(FrozenError, match=r"autotune tune 32x32x8:f32:nn` where tuning is allowed"):
        autotune.kernel(32, 32, 8)
    assert not cache.exists()


def test_look_up_does_not_guess(cache: Path) -> None:
    Store(cache).save(record(replace(entry(16, 100.0), config=tiled(16))))
    with autotune.policy(frozen=True):
        assert autotune.choose(SQUARE, device=H100).how == "exact"
        with pytest.raises(FrozenError, match="64x64x64:f32:nn is not recorded"):
            autotune.choose("64x64x64", device=H100)


def test_nothing_is_tuned(cache: Path) -> None:
    with autotune.policy(frozen=True):
        with pytest.raises(FrozenError, match="cannot tune 64x64x64:f32:nn: the mode is frozen"):
            autotune.tune("64x64x64", device=H100)
        with pytest.raises(FrozenError, match="cannot tune scale"):
            autotune.tune_kernel(
                "__global__ void scale(float *x) {}",
                "scale",
                {"N": [1]},
                arguments=[np.zeros(4, np.float32)],
                reference=lambda x: [x],
                grid=1,
                block=32,
            )
        with pytest.raises(FrozenError, match="64x64x64:f32:nn: the mode is frozen"):
            autotune.tune("64x64x64", device=H100, effort="quick")
        with pytest.raises(FrozenError, match="cannot measure records again"):
            next(iter(retime([], *[None] * 3)))  # type: ignore[arg-type]
    assert not cache.exists()


def test_matmul_that_tunes_elsewhere_runs_what_is_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = frozen_case(recorded=False)
    monkeypatch.setattr(runtime, "current", lambda: case.matmul)
    monkeypatch.setattr(settings, "mode", lambda: Mode("frozen"))
    torch, (a, b, out) = tensors(case, monkeypatch)
    autotune.matmul(a, b, out, policy=autotune.Policy(tune=True))
    assert [name for name, _ in torch.products] == ["mm"]


# Programs.


def test_only_kept_programs_are_taken(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    template = Template("naive.cu", "naive", (("VECTOR", 1),))
    monkeypatch.setattr(compiler, "compiler_version", lambda *_: "NVRTC 1")
    monkeypatch.setenv("AUTOTUNE_MODE", "frozen")
    for kept in (cache, None):
        with pytest.raises(FrozenError, match=r"naive.* is not compiled for sm_90"):
            compiler.compile(template, "sm_90", cache=kept)
    with pytest.raises(FrozenError, match=r"cannot compile naive.* to PTX: the mode is frozen"):
        compiler.ptx(template, "sm_90")
    assert not cache.exists()
    key = compiler.named_keys([template], "sm_90")[template]
    program = Program(template, "sm_90", b"cubin", "naive", 32, 0, 0, 0, 1, "NVRTC 1", key, "")
    built = cached(cache, key, template, "sm_90", lambda: program)
    assert compiler.compile(template, "sm_90", cache=cache) == built


@pytest.fixture
def _no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that fails the test where it is called."""

    def build(*_: object) -> None:
        raise AssertionError("compiled in the frozen mode")

    monkeypatch.setattr(nvrtc, "build", build)
    monkeypatch.setattr(nvrtc, "ptx", build)
    monkeypatch.setattr(nvrtc, "version", lambda: "NVRTC 1")
    monkeypatch.setenv("AUTOTUNE_MODE", "frozen")


VERBS = {
    "occupancy": "sm_90 --tile-width 16",
    "export": "4096x4096x4096 --device h100 --out OUT",
    "export unrecorded": "64x64x64 --device h100 --out OUT",
    "best": "64x64x64 --device h100",
    "tune": "64x64x64 --device replay:h100",
    "check": "--against OUT.xz --device replay:h100",
}


@pytest.mark.usefixtures("_no_compiler")
@pytest.mark.parametrize("verb", VERBS)
def test_verb_refuses_to_compile_in_one_line(
    verb: str, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = record(replace(entry(16, 100.0), config=tiled(16)))
    Store(cache).save(saved)
    before = sorted(cache.rglob("*"))
    (tmp_path / "out.xz").write_bytes(bundle.dumps([saved]))
    words = VERBS[verb].replace("OUT", str(tmp_path / "out"))
    with pytest.raises(SystemExit) as ended:
        main([verb.split()[0], *words.split()])
    shown = capsys.readouterr().err
    assert (ended.value.code, shown.count("\n")) == (FrozenError.exit_status, 1)
    assert "frozen" in shown
    assert sorted(cache.rglob("*")) == before


@pytest.mark.usefixtures("_no_compiler")
def test_occupancy_of_a_user_kernel_is_refused() -> None:
    with pytest.raises(FrozenError, match="is not compiled for sm_90, and the mode is frozen"):
        autotune.kernel_occupancy(
            "__global__ void scale(float *x) {}", "scale", {"N": [1]}, block=32, device=H100
        )


@pytest.mark.usefixtures("_no_compiler")
def test_doctor_does_not_compile() -> None:
    (check,) = [check for check in doctor.checks() if check.name == "compilation"]
    assert (check.ok, check.detail) == (None, "not tried: the mode is frozen")


# The setting.


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        (None, Mode()),
        ("", Mode()),
        ("auto", Mode()),
        ("quick", Mode("quick")),
        ("frozen", Mode("frozen", "vendor")),
        ("frozen:raise", Mode("frozen", "raise")),
    ],
)
def test_variable_names_the_mode(
    monkeypatch: pytest.MonkeyPatch, text: str | None, mode: Mode
) -> None:
    if text is not None:
        monkeypatch.setenv("AUTOTUNE_MODE", text)
    assert settings.mode() == mode


@pytest.mark.parametrize("text", ["cold", "frozen:never"])
def test_unknown_modes_are_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("AUTOTUNE_MODE", text)
    with pytest.raises(UsageError, match=r"give auto, quick, frozen .* or frozen:raise"):
        settings.mode()


def test_unknown_choice_is_refused() -> None:
    with (
        pytest.raises(UsageError, match="frozen is 'cublas'; give True, False or 'raise'"),
        autotune.policy(frozen="cublas"),  # type: ignore[arg-type]
    ):
        pass
    assert settings.mode() == Mode()


def test_mode_ends_with_its_block() -> None:
    with pytest.raises(ZeroDivisionError), settings.entered(Mode("frozen")):
        raise ZeroDivisionError
    assert settings.mode() == Mode()
