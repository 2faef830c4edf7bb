"""Definitions of user kernels, and the messages that refuse invalid ones."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.sample_records import H100
from support.sample_user_kernels import kernel, tunable

from autotune.errors import UsageError
from autotune.families.config import Config
from autotune.files import limits
from autotune.records.kernel_record import Geometry
from autotune.user_kernels.geometry import rejection
from autotune.user_kernels.source import Compilation, check_options, unpacked

P = {"TILE": (8, 16), "ROWS": (1,)}
CONFIG = Config.of("k", {"TILE": 8, "ROWS": 1})


@pytest.mark.parametrize(
    ("name", "plain", "expression"),
    [
        ("k", "k", "k<8, 1>"),
        ("k<ROWS>", "k", "k<1>"),
        (" my::k < float, TILE , 2*ROWS > ", "my::k", "my::k< float, 8 , 2*1 >"),
        ("k<TILED, TILE>", "k", "k<TILED, 8>"),
        ("k<>", "k", "k"),
        ("k<Pair<TILE>{}>", "k", "k<Pair<8>{}>"),
    ],
)
def test_name_states_the_template_arguments(name: str, plain: str, expression: str) -> None:
    definition = kernel(name=name, parameters=P)
    assert (definition.name, definition.source.template(CONFIG).expression) == (plain, expression)


def test_kernel_without_parameters_is_no_template() -> None:
    plain = kernel(name="k", parameters={})
    (config,) = plain.combinations()
    assert (str(config), plain.source.template(config).expression) == ("k", "k")


def test_family_is_the_name_without_namespaces() -> None:
    (config, _) = kernel(name="a::b::k", parameters=P).combinations()
    assert Config.parse(str(config)) == config == CONFIG


def test_combinations_follow_the_order_of_the_parameters() -> None:
    all_ = kernel(parameters={"A": (2, 1), "B": range(2)}).combinations()
    assert [tuple(config.values.values()) for config in all_] == [(2, 0), (2, 1), (1, 0), (1, 1)]


def test_parameter_values_are_deduplicated() -> None:
    assert kernel(parameters={"A": np.array([4, 2, 4])}).parameters == {"A": (4, 2)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "two words"}, "give the name of the kernel, such as 'transpose'"),
        ({"name": 7}, "name is 7"),
        ({"source": 7}, "source is 7; give CUDA C\\+\\+ as text"),
        ({"source": "k.cu"}, r"for a file give pathlib.Path\('k.cu'\)"),
        ({"source": Path("no/such.cu")}, "no/such.cu cannot be read: .*No such file"),
        ({"source": Path("/dev/zero")}, "/dev/zero cannot be read: .*Is a character device"),
        ({"parameters": {"2A": (1,)}}, "a parameter is called '2A'; give a C\\+\\+ identifier"),
        ({"parameters": {"family": (1,)}}, "other than 'family'"),
        ({"parameters": {"A": ()}}, "A has 0 values; give 1 to 256"),
        ({"parameters": {"A": range(257)}}, "A has 257 values; give 1 to 256"),
        ({"parameters": {"A": 8}}, "values of A are 8; give a sequence of values"),
        ({"parameters": {"A": "88"}}, "values of A are '88'"),
        ({"parameters": {"A": (1.5, float("nan"))}}, "A has the value nan; give whole numbers"),
        ({"parameters": {"A": (1.5, "word")}}, "A has the value 'word'; give .* of one kind"),
        (
            {"parameters": {"A": ("16",)}},
            "A has the value '16'; give a word .* that is not a number",
        ),
        ({"parameters": {"A": ("pair<a, b>",)}}, "without commas, .* name a type with commas"),
        ({"parameters": {"A": (10**15,)}}, "A has the value 1000000000000000; give numbers below"),
        ({"compile": Compilation(options="-G")}, "options is '-G'; give a list of"),
        ({"compile": Compilation(options=["fast"])}, r"options is \['fast'\]"),
        ({"constraints": {"even": True}}, "constraint 'even' is True; give .* a function"),
        ({"constraints": {" ": lambda _: True}}, "constraint ' ' is .*; give a short reason"),
        ({"compile": Compilation(include=["no/such"])}, "include has 'no/such', which is no"),
    ],
)
def test_invalid_definitions_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        kernel(**changes)


def test_headers_are_found_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "mine.cu").write_text('#include "mine.cuh"\n')
    (tmp_path / "mine.cuh").write_text('#include "deep/inner.cuh"\n#include <cuda_fp16.h>\n')
    (tmp_path / "more" / "deep").mkdir(parents=True)
    (tmp_path / "more" / "deep" / "inner.cuh").write_text('#include "../beside.cuh"\n')
    (tmp_path / "more" / "beside.cuh").write_text("// beside\n")
    mine = kernel(
        source=tmp_path / "mine.cu", compile=Compilation(include=[str(tmp_path / "more")])
    )
    assert (mine.source.file, mine.source.folders) == ("mine.cu", (".", "more"))
    assert {path for path, _ in mine.source.files} == {
        *("mine.cu", "mine.cuh", "more/deep/inner.cuh", "more/beside.cuh")
    }
    assert mine.includes == (tmp_path, tmp_path / "more")


def make_large(path: Path) -> None:
    path.touch()
    os.truncate(path, limits.SOURCE + 1)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (os.mkfifo, "named pipe"),
        (Path.mkdir, "directory"),
        (lambda path: path.symlink_to("/dev/zero"), "character device"),
        (make_large, f"{limits.SOURCE + 1} bytes"),
    ],
)
def test_source_of_another_kind_is_refused(
    tmp_path: Path, make: Callable[[Path], object], reason: str
) -> None:
    make(tmp_path / "mine.cu")
    with pytest.raises(UsageError, match=rf"mine\.cu cannot be read: .*{reason}"):
        kernel(source=tmp_path / "mine.cu")


def test_source_folder_keeps_the_text_as_read(tmp_path: Path) -> None:
    (tmp_path / "mine.cu").write_text("// one\n")
    mine = kernel(source=tmp_path / "mine.cu")
    (tmp_path / "mine.cu").write_text("// two\n")
    with unpacked(mine.source, mine.includes) as (folder, _):
        assert (folder / "mine.cu").read_text() == "// one\n"
    assert not folder.exists()


# Geometry


@pytest.mark.parametrize(
    ("extent", "grid"),
    [
        (7, (7, 1, 1)),
        ((7, 6), (7, 6, 1)),
        ([7, np.int64(6), 5], (7, 6, 5)),
        (lambda p: p["THREADS"] // 4, (8, 1, 1)),
        (lambda p: (1, p["EACH"]), (1, 2, 1)),
    ],
)
def test_grid_is_one_to_three_numbers(extent: Any, grid: tuple[int, int, int]) -> None:
    config = Config.of("saxpy", {"THREADS": 32, "EACH": 2})
    (launch,) = tunable(grid=extent).plan(config).launches
    assert (launch.grid, launch.block, launch.shared) == (grid, (32, 1, 1), 0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"grid": lambda p: 1000 / p["EACH"]}, "grid of saxpy:.* has 1000.0; give whole numbers"),
        ({"grid": (1, 1, 1, 1)}, r"grid of .* is \(1, 1, 1, 1\); give a whole number, or 2 or 3"),
        ({"block": lambda _: None}, "block of .* has None"),
        ({"shared": lambda _: (4, 4)}, r"shared of .* has \(4, 4\)"),
        (
            {"shared": lambda p: p["TILE"]},
            "shared fails for saxpy:THREADS=32,EACH=1: KeyError: 'TILE'; it is called with a "
            "mapping from THREADS, EACH to their values",
        ),
        ({"constraints": {"odd": lambda p: p.TILE}}, "constraint 'odd' fails for .*AttributeError"),
        ({"grid": lambda p: p.pop("EACH")}, "grid fails"),
    ],
)
def test_invalid_geometry_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        _ = kernel(**changes).geometries


@pytest.mark.parametrize(
    ("grid", "block", "shared", "reason", "detail"),
    [
        ((0, 1, 1), (32, 1, 1), 0, "grid", "0 x 1 x 1 blocks, CUDA allows 1 to 2147483647 x 65535"),
        ((1, 65536, 1), (32, 1, 1), 0, "grid", "1 x 65536 x 1 blocks"),
        (
            (1, 1, 1),
            (1, 1, 65),
            0,
            "block",
            "1 x 1 x 65 threads, CUDA allows 1 to 1024 x 1024 x 64",
        ),
        ((1, 1, 1), (64, 32, 1), 0, "threads", "64 x 32 x 1 are 2048 threads a block, NVIDIA H100"),
        ((1, 1, 1), (32, 1, 1), 232449, "shared memory", "needs 232449 bytes a block, NVIDIA H100"),
        ((1, 1, 1), (32, 1, 1), -1, "shared memory", "needs -1 bytes"),
    ],
)
def test_unlaunchable_geometry_is_rejected_with_numbers(
    grid: tuple[int, int, int], block: tuple[int, int, int], shared: int, reason: str, detail: str
) -> None:
    rejected = rejection(Geometry(grid, block, shared), H100)
    assert rejected is not None
    assert (rejected.reason, rejected.detail[: len(detail)]) == (reason, detail)


def test_limits_themselves_are_allowed() -> None:
    most = Geometry((2**31 - 1, 65535, 65535), (1024, 1, 1), 232448)
    assert rejection(most, H100) is None


def test_options_of_the_compiler_are_kept() -> None:
    options = ["--use_fast_math", "-DN=4096", "-UDEBUG", "-w", "--std=c++20", "-lineinfo"]
    options += ["--maxrregcount=64", "-Xptxas=-O1,-v", "--ptxas-options=--warn-on-spills"]
    assert check_options(options, ["TILE"]) == tuple(options)


def test_value_may_be_an_element_of_its_own() -> None:
    options = [
        "-D",
        "N=4",
        "-Xptxas",
        "-O1,-v",
        "-std",
        "c++20",
        "-w",
        "-U",
        "M",
        "-diag-suppress=1",
    ]
    joined = "-DN=4", "-Xptxas=-O1,-v", "-std=c++20", "-w", "-UM", "-diag-suppress=1"
    assert check_options(options, ["TILE"]) == joined


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-I", "/opt"], "'-I/opt': give folders of headers as `include`"),
        (["-arch", "sm_80"], "'-arch=sm_80': kernels are compiled for `device`"),
        (["-w", "-D", "TILE=32"], "'-DTILE=32', and TILE is tuned"),
        (["--define-macro", "TILE=32"], "'--define-macro=TILE=32', and TILE is tuned"),
        (["-Xptxas", "-arch=sm_80"], "'-Xptxas=-arch=sm_80': kernels are compiled for"),
        (["-rdc=true"], "it makes, reads or writes other files"),
    ],
)
def test_two_elements_hide_no_refused_option(options: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_options(options, ["TILE"])


def test_levels_of_a_host_compiler_are_left_out() -> None:
    assert check_options(["-O3", "-w"], []) == ("-w",)


@pytest.mark.parametrize(
    "option",
    [
        *("-DTILE", "-DTILE=32", "-D TILE=32", "-D=TILE=32", "-DTILE(x)=x", "-UTILE", "-U TILE"),
        *("--define-macro=TILE=32", "--define-macro TILE=32", "--undefine-macro=TILE"),
    ],
)
def test_option_that_defines_a_tuned_macro_is_refused(option: str) -> None:
    with pytest.raises(UsageError, match="TILE is tuned; give its values in `parameters`"):
        check_options([option], ["TILE", "ROWS"])
    assert check_options([option], ["TIL", "TILES"]) == (option,)


@pytest.mark.parametrize(
    ("option", "remedy"),
    [
        *((option, "`device`") for option in ("-arch=sm_80", "--gpu-architecture=compute_80")),
        *((option, "`device`") for option in ("-gencode=arch=compute_80", "-code=sm_80")),
        *((option, "`device`") for option in ("-Xptxas=-arch=sm_80", "-Xptxas=-v,--gpu-name=a")),
        *((option, "`include`") for option in ("-I/opt", "-I /opt", "-I=/opt", "-isystem=/opt")),
        ("--include-path=/opt", "`include`"),
        ("-include=a.h", "#include in the source"),
        ("--pre-include=a.h", "#include in the source"),
        *((option, "files") for option in ("-time=a.csv", "--time=a.csv", "--keep", "-o=a", "-MD")),
        *((option, "files") for option in ("--fdevice-time-trace=a", "--pch", "--create-pch=a")),
        *((option, "files") for option in ("--use-pch=a", "--pch-dir=a", "-Xptxas=-o=a", "-MF=a")),
        *((option, "files") for option in ("-save-temps", "-odir=a", "--output-file=a", "-M")),
        *((option, "files") for option in ("--generate-dependencies", "-optf=a", "-ccbin=a")),
    ],
)
def test_refused_option_names_what_takes_its_place(option: str, remedy: str) -> None:
    with pytest.raises(UsageError) as raised:
        check_options(["-w", option], [])
    assert str(raised.value).startswith(f"options has '{option}'")
    assert remedy in str(raised.value)


@pytest.mark.parametrize("options", ["-G", ["fast"], [7], 7, ["v", "-Xptxas"]])
def test_other_values_are_no_options(options: Any) -> None:
    with pytest.raises(UsageError, match="give a list of the compiler's options"):
        check_options(options, [])
