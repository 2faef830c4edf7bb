"""The files of an export, and the files it refuses to replace."""

from __future__ import annotations

import json
import os
import re
import stat
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from support import exported_library
from support.paths import ROOT
from support.sample_records import H100, record

from autotune.cuda import compiler
from autotune.cuda.program import CompileFailure
from autotune.device import Device
from autotune.device import find as find_device
from autotune.errors import AutotuneError, NotFoundError, UsageError
from autotune.export import FORMATS, ExportedLibrary, gather, write, write_library
from autotune.export.files import replace_files
from autotune.export.text import check_name
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.plan import Argument, Launch, LaunchPlan, Resources, Struct, TensorMap
from autotune.lookup.answer import Answer
from autotune.measure.measurement import Measurement
from autotune.measure.objective import COLD
from autotune.problem import Problem
from autotune.records import Entry, Store

NAIVE = Config.of("naive", {"mapping": "coalesced", "block": 16})
WIDE = Config.of("naive", {"mapping": "coalesced", "block": 32})
SMALL = Problem(64, 48, 40)


@pytest.fixture(scope="module")
def library() -> ExportedLibrary:
    return exported_library.library_of(exported_library.tuned())


@pytest.fixture
def small() -> ExportedLibrary:
    return exported_library.library_of({SMALL: NAIVE})


def test_problems_on_a_gpu_cover_split_k_and_copies() -> None:
    tuned = {problem: exported_library.tuned_for(problem) for problem in exported_library.ON_GPU}
    plans = [registry.plan(config, problem) for problem, config in tuned.items()]
    assert sum(plan.counters > 0 for plan in plans) >= 3
    assert sum(len(plan.launches) > 1 for plan in plans) >= 3


def document(library: ExportedLibrary, folder: Path, format: str = "json") -> Any:
    write_library(library, folder, format)
    return json.loads((folder / f"{library.name}.json").read_text())


def read_argument(data: Any) -> Argument:
    if data["type"] == "struct":
        members = ((member["name"], read_argument(member)) for member in data["members"])
        return Argument("struct", Struct(data["struct"], tuple(members)))
    value = data["value"]
    if isinstance(value, dict):
        value = TensorMap(**{**value, "box": tuple(value["box"])})
    return Argument(data["type"], value)


def read_plan(data: Any, library: ExportedLibrary, config: Config) -> LaunchPlan:
    """A plan read from its JSON, with the templates of the library's programs."""
    launches = tuple(
        Launch(
            library.programs[launch["kernel"]].template,
            tuple(launch["grid"]),
            tuple(launch["block"]),
            launch["shared"],
            tuple(map(read_argument, launch["arguments"])),
            launch["cluster"],
        )
        for launch in data["launches"]
    )
    return LaunchPlan(config, launches, data["workspace"], data["counters"], data["product"])


def test_json_has_the_whole_plan_of_every_gemm(library: ExportedLibrary, tmp_path: Path) -> None:
    data = document(library, tmp_path)
    read = {
        entry["problem"]: read_plan(entry["plan"], library, Config.parse(entry["config"]))
        for entry in data["products"]
    }
    assert read == {str(gemm.problem): gemm.plan for gemm in library.gemms}


def test_json_lists_every_file_with_its_hash(small: ExportedLibrary, tmp_path: Path) -> None:
    files = document(small, tmp_path, "c")["files"]
    hashes = {path.name: sha256(path.read_bytes()).hexdigest() for path in tmp_path.iterdir()}
    del hashes["lib.json"]
    assert files == hashes
    assert set(files) == {
        *("lib.h", "lib.hpp", "lib.c", "main.c", "CMakeLists.txt", "lib.pc.in", "README.md")
    }


def test_json_names_the_source_of_each_kernel(small: ExportedLibrary, tmp_path: Path) -> None:
    kernel, *_ = document(small, tmp_path)["kernels"]
    program, *_ = small.programs.values()
    assert kernel["template"] == program.template.values
    assert (kernel["source"], kernel["arch"]) == ("naive.cu", "sm_90")
    assert kernel["sha256"] == sha256(program.cubin).hexdigest()


def test_plans_name_the_cubin_files(small: ExportedLibrary, tmp_path: Path) -> None:
    kernels = {kernel["key"]: kernel for kernel in document(small, tmp_path, "cubin")["kernels"]}
    (program,) = small.gemms[0].programs
    file = tmp_path / kernels[program.key]["file"]
    assert (file.suffix, file.read_bytes()) == (".cubin", program.cubin)


def test_readme_has_the_source_of_each_kernel(small: ExportedLibrary, tmp_path: Path) -> None:
    write_library(small, tmp_path, "c")
    text = (tmp_path / "README.md").read_text()
    assert f"| `{SMALL}` | {H100.name} | exact | 10 us (measured) | `{NAIVE}` |" in text
    assert "| `f32:nn:none` | 9.0 | any | `simt:bm=64," in text


def test_cold_export_has_the_cold_kernels(tmp_path: Path) -> None:
    def find(problem: Problem, device: Device) -> Answer:
        answer = exported_library.answer_of(problem, device, NAIVE)
        return replace(answer, objective=COLD, time_us=12.5, evidence="measured")

    cold = gather("lib", [SMALL], [H100], find, exported_library.fake_build)
    assert [gemm["objective"] for gemm in document(cold, tmp_path)["products"]] == ["cold"]
    write_library(cold, tmp_path, "c")
    assert "| 12.5 us (measured, cold) |" in (tmp_path / "README.md").read_text()


def test_export_looks_up_by_its_objective(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path / "cache"))
    hot, cold = (
        Entry(config, Measurement(time_us, cold_us=cold_us), Resources(256, 32, 0), 1.0, "threads")
        for config, time_us, cold_us in ((NAIVE, 5.0, 9.0), (WIDE, 6.0, 8.0))
    )
    device = find_device("h100")
    Store(tmp_path / "cache").save(record(hot, cold, problem=SMALL, device=device))
    monkeypatch.setattr(compiler, "compile", lambda *at, **_: exported_library.fake_build(*at))
    written = {
        objective: write([SMALL], tmp_path / objective, devices=["h100"], objective=objective)
        for objective in ("hot", "cold")
    }
    answers = {key: export.library.gemms[0].answer for key, export in written.items()}
    assert {key: answer.config for key, answer in answers.items()} == {"hot": NAIVE, "cold": WIDE}
    assert answers["cold"].time_us == 8.0


def test_unknown_objective_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown objective 'warm'; give one of hot, cold"):
        write([SMALL], tmp_path, devices=["h100"], objective="warm")  # type: ignore[arg-type]


def test_library_name_replaces_the_templates_name(tmp_path: Path) -> None:
    library = exported_library.library_of({SMALL: NAIVE}, name="fast_mm")
    write_library(library, tmp_path, "c")
    texts = [path.read_text() for path in tmp_path.iterdir()]
    assert len(texts) == 8
    assert [text for text in texts if "gemm" in text.lower()] == []


@pytest.mark.parametrize(
    "name",
    [
        *("", "1st", "a-b", "a b", "../up", "/tmp/x", "a/b", "a.b", "ü", "a\n"),
        *("main", "bench", "class", "x" * 41),
    ],
)
def test_invalid_name_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="give another, such as gemm"):
        check_name(name)


@pytest.mark.parametrize("name", ["../lib.c", "/etc/lib.c", "a/b", "..", "."])
def test_file_outside_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="is not a file name in"):
        replace_files(tmp_path, "lib.json", {name: b""})
    assert list(tmp_path.iterdir()) == []


def test_export_replaces_its_own_files(small: ExportedLibrary, tmp_path: Path) -> None:
    write_library(small, tmp_path, "c")
    first = (tmp_path / "lib.c").read_text()
    changed = exported_library.library_of({replace(SMALL, k=41): NAIVE})
    write_library(changed, tmp_path, "c")
    assert (tmp_path / "lib.c").read_text() != first


@pytest.mark.parametrize("name", ["lib.c", "README.md", "CMakeLists.txt"])
def test_foreign_file_is_not_replaced(small: ExportedLibrary, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(AutotuneError, match=f"{name} is not as an export left it"):
        write_library(small, tmp_path, "c")
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_manifest_larger_than_any_is_not_read(small: ExportedLibrary, tmp_path: Path) -> None:
    (tmp_path / "lib.json").touch()
    os.truncate(tmp_path / "lib.json", 2**40)  # sparse; reading it takes many minutes
    with pytest.raises(AutotuneError, match=r"lib.json is not as an export left it"):
        write_library(small, tmp_path, "json")


def test_changed_file_is_not_replaced(small: ExportedLibrary, tmp_path: Path) -> None:
    write_library(small, tmp_path, "c")
    with (tmp_path / "main.c").open("a") as file:
        file.write("/* mine */")
    changed = exported_library.library_of({replace(SMALL, k=41): NAIVE})
    with pytest.raises(AutotuneError, match=r"main\.c is not as an export left it"):
        write_library(changed, tmp_path, "c")


def test_mode_of_a_replaced_file_is_kept(small: ExportedLibrary, tmp_path: Path) -> None:
    write_library(small, tmp_path, "c")
    for path in tmp_path.iterdir():
        path.chmod(0o600)
    changed = exported_library.library_of({replace(SMALL, k=41): NAIVE})
    written = write_library(changed, tmp_path, "c")
    assert {stat.S_IMODE(path.stat().st_mode) for path in written} == {0o600}


@pytest.mark.parametrize("text", ["{}", "[]", "{", '{"files": 3}', '{"files": []}'])
def test_foreign_json_file_is_not_replaced(
    small: ExportedLibrary, tmp_path: Path, text: str
) -> None:
    (tmp_path / "lib.json").write_text(text)
    with pytest.raises(AutotuneError, match=r"lib\.json is not as an export left it"):
        write_library(small, tmp_path, "json")


def test_symbolic_link_is_not_followed(small: ExportedLibrary, tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "folder"
    outside.write_text("precious")
    folder.mkdir()
    (folder / "lib.c").symlink_to(outside)
    with pytest.raises(AutotuneError, match=r"lib\.c is not as an export left it"):
        write_library(small, folder, "c")
    assert outside.read_text() == "precious"


def test_file_in_place_of_the_folder_is_refused(small: ExportedLibrary, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(AutotuneError, match=r"cannot write to .*give another folder"):
        write_library(small, tmp_path / "file", "c")


def test_failed_write_leaves_no_files(
    small: ExportedLibrary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device", str(target))

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(AutotuneError, match="No space left on device"):
        write_library(small, tmp_path, "c")
    assert list(tmp_path.iterdir()) == []


def test_unknown_format_lists_the_formats(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match="unknown format 'so'; give one of c, cubin, ptx, cu, json"
    ):
        write(["8x8x8"], tmp_path, format="so", devices=["h100"])
    assert FORMATS == ("c", "cubin", "ptx", "cu", "json")


@pytest.mark.parametrize(("shapes", "devices"), [([], ["h100"]), (["8x8x8"], [])])
def test_export_without_shapes_or_devices_is_refused(
    tmp_path: Path, shapes: list[str], devices: list[str]
) -> None:
    with pytest.raises(UsageError, match="give at least one of each"):
        write(shapes, tmp_path, devices=devices)


def test_problem_without_a_kernel_is_named() -> None:
    with pytest.raises(NotFoundError, match=f"no kernel can run {SMALL} on {H100.name}"):
        gather("lib", [SMALL], [H100], lambda *_: None, exported_library.fake_build)


def test_kernel_that_does_not_compile_is_named() -> None:
    with pytest.raises(AutotuneError, match=r"naive<.*> does not compile for sm_90: why"):
        gather(
            "lib",
            [SMALL],
            [H100],
            lambda problem, device: exported_library.answer_of(problem, device, NAIVE),
            lambda template, arch: CompileFailure(template, arch, "why", ""),
        )


def test_gpu_tests_pass_every_field_of_a_product(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "gpu"))
    from export_gpu import Product

    header = (ROOT / "autotune" / "export" / "templates" / "gemm.h").read_text("utf-8")
    _, _, rest = header.partition("typedef struct gemm_product {")
    declared, _, _ = rest.partition("} gemm_product;")
    names = re.findall(r"(\w+)\s*[,;]", re.sub(r"/\*.*?\*/", "", declared, flags=re.DOTALL))
    assert names == [row[0] for row in Product._fields_]


@pytest.mark.parametrize(
    ("shapes", "devices", "message"),
    [
        ("64x64x64", ["h100"], r"shapes is '64x64x64'; give a list: \['64x64x64'\]"),
        (["64x64x64"], "h100", r"devices is 'h100'; give a list: \['h100'\]"),
        (["64x64x64"], 1, r"devices is 1; give a list: \[1\]"),
    ],
)
def test_one_value_in_place_of_a_list_is_refused(
    shapes: Any, devices: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=f"^{message}$"):
        write(shapes, tmp_path, devices=devices)
