"""`best`, `choose` and exports answer from a batch-invariant range, as `matmul` does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support import sample_range
from support.command_line import answer, own_machine, printed, run
from support.fake_runner import UNKNOWN, compiled
from support.sample_range import ORDER, TEXT, TOP, of_order, sized
from support.sample_records import entry, record

import autotune
from autotune import settings
from autotune.api import lookups
from autotune.cuda import compiler
from autotune.errors import NotFoundError, UsageError
from autotune.export import write
from autotune.measure import targets
from autotune.measure.recording import Origin
from autotune.records import FamilyRecord, Store

BEST = ("--device", "h100", "--batch-invariant")
UNSERVED = "64x64x128:bf16:nt"
COMMAND = "`autotune tune 1..8192x64x128:bf16:nt --batch-invariant --device h100`"


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without a GPU, whose cache has the range, and a faster kernel in no order."""
    folder = own_machine(monkeypatch, tmp_path)
    sample_range.save(folder)
    Store(folder).save(record(entry(16, 0.5), problem=sized(16), device=sample_range.H100))
    monkeypatch.setattr(targets, "here", lambda: UNKNOWN)
    return folder


def test_choose_is_the_kernel_of_the_range() -> None:
    chosen = autotune.choose(sized(20), device="h100", batch_invariant=True)
    assert (chosen.config, chosen.how, chosen.vendor) == (of_order(16)[0], "range", False)
    assert autotune.choose(sized(16), device="h100").config != chosen.config


def test_best_is_the_record_of_a_tuned_size() -> None:
    found = autotune.best(sized(16), device="h100", batch_invariant=True)
    assert isinstance(found, FamilyRecord)
    assert (found.order, found.best.config) == (ORDER, of_order(16)[0])
    with pytest.raises(
        NotFoundError, match=r"not a tuned size .* `autotune best 20x512x1024:bf16:nt"
    ):
        autotune.best(sized(20), device="h100", batch_invariant=True)


def test_family_is_refused() -> None:
    with pytest.raises(UsageError, match="takes no family"):
        autotune.best(sized(16), device="h100", family="wgmma", batch_invariant=True)
    assert run("best", str(sized(16)), *BEST, "--family", "wgmma") == 2


@pytest.mark.parametrize("exact", [(), ("--exact",)])
def test_size_without_a_range_says_what_to_tune(
    exact: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("best", UNSERVED, *BEST, *exact) == 3
    assert COMMAND in capsys.readouterr().err


def test_best_prints_the_kernel_of_the_range(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "best", str(sized(20)), *BEST)
    assert text.startswith("20x512x1024:bf16:nt --batch-invariant on NVIDIA H100")
    assert f"in the order of {TEXT}" in " ".join(text.split())
    data = answer(capsys, "best", str(sized(20)), *BEST)
    assert (data["config"], data["order"], data["vendor"]) == (str(of_order(16)[0]), ORDER, False)
    assert answer(capsys, "best", str(sized(16)), "--device", "h100")["order"] is None


def test_exact_size_prints_its_record(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "best", str(sized(16)), *BEST, "--exact")
    assert text.startswith("16x512x1024:bf16:nt --batch-invariant on NVIDIA H100")
    assert run("best", str(sized(20)), *BEST, "--exact") == 3


def test_stale_range_names_its_own_command(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "here", lambda: Origin("", "", "changed"))
    chosen = autotune.choose(sized(20), device="h100", batch_invariant=True)
    assert not [*lookups.warnings_of(chosen, 0)], "without a GPU nobody can act"
    monkeypatch.setattr(targets, "resolve", lambda _: chosen.device)
    (warning,) = lookups.warnings_of(chosen, 0)
    assert f"`autotune tune {TEXT} --batch-invariant --device gpu:0`" in warning
    assert cache.exists()


def test_export_has_the_kernels_of_the_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler, "compile", lambda template, arch, **_: compiled(template, arch))
    shapes = [sized(16), replace(TOP, m=20, epilogue="bias")]
    exported = {"format": "json", "batch_invariant": True}
    written = write(shapes, tmp_path / "out", devices=["h100"], **exported)  # type: ignore[arg-type]
    assert [gemm.answer.config for gemm in written.library.gemms] == [of_order(16)[0]] * 2
    assert not written.library.fallbacks
    with pytest.raises(NotFoundError, match=r"`autotune tune 1..8192x64x128:bf16:nt --batch-inv"):
        write([UNSERVED], tmp_path / "none", devices=["h100"], **exported)  # type: ignore[arg-type]
    assert not (tmp_path / "none").exists()
    assert settings.cache_dir().exists()
