"""The registry of kernel families."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune import families, settings
from autotune.cuda.program import source_hash
from autotune.device import find
from autotune.errors import ConfigError
from autotune.families import registry
from autotune.families.family import Family
from autotune.families.registry import FAMILIES
from autotune.families.textbook import TILED
from autotune.model import space
from autotune.problem import Problem

H100 = find("h100")


def test_families_are_ordered_from_plain_to_fast() -> None:
    names = ["ladder", "naive", "tiled", "simt", "gemv", "mma", "wgmma", "cublaslt"]
    assert list(FAMILIES) == names


@pytest.mark.parametrize(
    ("compute", "searched"),
    [
        ("f32", ("simt", "gemv")),
        ("tf32", ("wgmma", "mma", "simt", "gemv")),
        ("tf32x3", ("wgmma", "mma", "simt", "gemv")),
        ("f16", ("wgmma", "mma")),
        ("bf16", ("wgmma", "mma")),
        ("f8e5", ("wgmma", "mma")),
    ],
)
def test_search_tries_the_families_of_the_precision(
    compute: str, searched: tuple[str, ...]
) -> None:
    assert registry.tuned(Problem(512, 512, 512, compute)) == searched


def test_folder_with_families_is_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "fresh"
    package.mkdir()
    (package / "__init__.py").write_text(
        "from dataclasses import replace\n"
        "from autotune.families.textbook import TILED\n"
        'FAMILIES = (replace(TILED, name="fresh", sources=("fresh.cu",), order=5),)\n'
    )
    monkeypatch.setattr(families, "__path__", [*families.__path__, str(tmp_path)])
    assert "fresh" in {family.name for family in registry.declared()}


def test_sources_of_every_family_are_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = replace(TILED, name="fresh", sources=("fresh.cu",))
    monkeypatch.setattr(registry, "FAMILIES", {**FAMILIES, "fresh": fresh})
    assert "fresh.cu" in registry.kernel_sources()


def test_no_look_up_depends_on_kernels_for_reading() -> None:
    assert not {*registry.FAMILIES["ladder"].sources} & {*registry.kernel_sources()}


def test_every_kernel_source_is_declared() -> None:
    kernels = {path.name for path in settings.source_dir().glob("*.cu")}
    kernels -= {"compare_arrays.cu", "quantize.cu", "verify.cu"}  # no part of a configuration
    assert set(registry.kernel_sources()) == kernels


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_family_launches_exactly_its_declared_sources(family: Family[Any]) -> None:
    problems = (
        Problem(8, 512, 4096, family.precisions[0]),
        Problem(1001, 1003, 1005, family.precisions[0], "tt"),
        Problem(96, 96, 8192, family.precisions[0]),
        Problem(256, 256, 64, family.precisions[0]),
        Problem(256, 256, 64, family.precisions[-1], "nt"),
    )
    launched = {
        launch.template.source
        for problem in problems
        for config in space.spread(space.feasible(problem, H100, family.name).configs, 400)
        for launch in registry.plan(config, problem).launches
    }
    assert launched == set(family.sources)


def test_hash_of_a_record_covers_the_sources_in_order() -> None:
    names = ("gemv.cu", "mma.cu", "naive.cu", "pack.cu", "simt.cu", "split_k.cu", "tiled.cu")
    assert source_hash(*registry.kernel_sources()) == source_hash(*names, "wgmma.cu")


def test_auto_selects_the_searched_families() -> None:
    assert registry.families_of("auto", Problem(37, 53, 20)) == registry.tuned(Problem(37, 53, 20))


def test_family_name_selects_that_family() -> None:
    assert registry.families_of("naive", Problem(37, 53, 20)) == ("naive",)


def test_family_without_the_precision_is_refused() -> None:
    with pytest.raises(ConfigError, match="simt does not compute bf16"):
        registry.families_of("simt", Problem(37, 53, 20, "bf16"))
