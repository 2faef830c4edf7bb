"""Records of user kernels on disk."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from support.logged import logs
from support.sample_records import H100, SQUARE, entry, record

from autotune.families.config import Config
from autotune.files import checksum
from autotune.problem.call import KernelCall
from autotune.records import KernelRecord, Store, codec
from autotune.records.kernel_record import (
    Geometry,
    KernelEntry,
    KernelLaunch,
    KernelSource,
    KernelStep,
)
from autotune.report import cache

CALL = KernelCall("my::transpose", ("float32[64,32]", "float32[32,64]", "int32=64", "float64=0.1"))


def kernel_record(call: KernelCall = CALL, time_us: float = 10.0) -> KernelRecord:
    own = replace(entry(16, time_us), config=Config.of("transpose", {"TILE": 32, "ROWS": 8}))
    return KernelRecord(H100, "measured", (KernelEntry.of(own),), None, record().provenance, call)


def test_kernel_record_survives_its_file() -> None:
    assert codec.loads(codec.dumps(kernel_record())) == kernel_record()


def test_file_states_the_kernel_and_its_arguments() -> None:
    data = codec.encode(kernel_record())
    assert data["kernel"] == {"name": "my::transpose", "arguments": list(CALL.arguments)}
    assert "problem" not in data


def test_saved_record_is_found_by_its_call(store: Store) -> None:
    store.save(kernel_record())
    assert store.kernel(H100, CALL) == kernel_record()
    assert store.kernel(H100, KernelCall("my::transpose", CALL.arguments[:2])) is None


def test_records_of_one_call_are_merged(store: Store) -> None:
    store.save(kernel_record(time_us=10.0))
    second = replace(kernel_record().entries[0], config=Config.of("transpose", {"TILE": 8}))
    merged = store.save(replace(kernel_record(), entries=(second,)))
    assert {str(kept.config) for kept in merged.entries} == {
        "transpose:TILE=32,ROWS=8",
        "transpose:TILE=8",
    }


def test_kernel_records_are_kept_apart_from_problems(store: Store) -> None:
    store.save(kernel_record())
    store.save(record(problem=SQUARE))
    assert [record.problem for record in store.records(H100)] == [SQUARE]


def test_problem_record_in_a_kernels_file_is_skipped(store: Store) -> None:
    store.save(kernel_record())
    (path,) = (store.root / "kernels").rglob("*.json")
    path.write_bytes(codec.dumps(record(problem=SQUARE)))
    with logs("skipped: holds measured 4096x4096x4096:f32:nn"):
        assert store.kernel(H100, CALL) is None


def test_kernel_record_in_a_problems_file_is_skipped(store: Store) -> None:
    store.save(record(problem=SQUARE))
    store.path(H100, SQUARE).write_bytes(codec.dumps(kernel_record()))
    with logs(r"skipped: holds measured my::transpose\(float32"):
        assert store.load(H100, SQUARE) is None


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (7, "kernel is 7; it must be an object"),
        ({"name": "k"}, r"kernel\.arguments is missing"),
        ({"name": "k", "arguments": "int32=1"}, r"arguments is 'int32=1'; it must be a list"),
        ({"name": "k", "arguments": [1]}, r"kernel\.arguments\[0\] is 1; it must be a text"),
        ({"arguments": []}, r"kernel\.name is missing"),
    ],
)
def test_malformed_kernel_is_refused(kernel: object, message: str) -> None:
    data = json.loads(codec.dumps(kernel_record())) | {"kernel": kernel}
    with pytest.raises(ValueError, match=message):
        codec.loads(json.dumps(data | {checksum.CHECKSUM: checksum.of(data)}).encode())


# With their source

SOURCE = KernelSource(
    name="my::transpose",
    form="my::transpose<float, {TILE}>",
    file="a/t.cu",
    files=(("a/t.cu", '#include "b.cuh"\n'), ("b/b.cuh", "#pragma once\n")),
    folders=("b",),
    defines=True,
    options=("--use_fast_math",),
)

GEOMETRIES = Geometry((2, 1, 1), (32, 8, 1), 4224), Geometry((1, 1, 1), (64, 1, 1), 0)


def launchable() -> KernelRecord:
    launch = KernelLaunch(SOURCE, CALL, GEOMETRIES[:1])
    plain = kernel_record()
    own = replace(plain.entries[0], launch=launch)
    other = replace(own, config=Config.of("transpose", {"TILE": 8, "ROWS": 0.5}), launch=None)
    return replace(plain, entries=(own, other), verified="transpose:TILE=8")


def test_record_with_source_survives_its_file() -> None:
    assert codec.loads(codec.dumps(launchable())) == launchable()


STEPS = (
    KernelStep("my::transpose", "my::transpose<float, {TILE}>", (0, 1)),
    KernelStep("my::sum", "my::sum", (1, 2, 3), cooperative=True),
)
OF_STEPS = replace(
    CALL, arguments=("float32[64]", "float32[1]", "float64[scratch]", "int32=...", "float32=0.5")
)


def of_steps(**changes: Any) -> KernelRecord:
    """The record of two kernels, with memory and a number that the configuration determines."""
    fields: dict[str, Any] = {"steps": STEPS, "geometries": GEOMETRIES, "own": ((2, 4096), (3, 8))}
    launch = KernelLaunch(SOURCE, OF_STEPS, **fields | changes)
    plain = kernel_record(OF_STEPS)
    return replace(plain, entries=(replace(plain.entries[0], launch=launch),))


def test_record_of_several_kernels_survives_its_file() -> None:
    assert codec.loads(codec.dumps(of_steps())) == of_steps()
    assert codec.loads(codec.line(of_steps())) == of_steps()


def test_record_of_one_kernel_has_no_word_of_steps() -> None:
    data: Any = codec.encode(launchable())
    assert set(data["kernel"]) == {"name", "arguments", "source", "verified"}
    assert set(data["entries"][0]) & {"further", "own"} == set()


def test_text_of_a_record_has_a_line_for_each_of_several_kernels() -> None:
    assert str(of_steps()).splitlines()[-2:] == [
        "my::transpose: 2 x 1 x 1 blocks of 32 x 8 x 1 threads, 4224 bytes of shared memory",
        "my::sum: 1 x 1 x 1 blocks of 64 x 1 x 1 threads, 0 bytes of shared memory, cooperative",
    ]
    assert "blocks of" not in str(launchable())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"own": ((2, 4096),)}, r"values \(\(2, 4096\),\) for arguments \[2, 3\]"),
        ({"own": ((2, 0), (3, 8))}, "scratch memory of 0 bytes at argument 2"),
        ({"geometries": GEOMETRIES[:1]}, "shorter"),
        (
            {"steps": (STEPS[0], replace(STEPS[1], takes=(5,)))},
            "my::sum takes argument 5; there are 5",
        ),
        ({"steps": (STEPS[0], replace(STEPS[1], form="x"))}, "is not an instance of a kernel"),
        ({"steps": (STEPS[0], replace(STEPS[1], name="a;b", form="a;b"))}, "not an instance"),
    ],
)
def test_record_whose_steps_do_not_fit_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        codec.loads(codec.dumps(of_steps(**changes)))


def test_plan_names_arguments_by_place() -> None:
    entry = launchable().best
    (launch,) = entry.launchable().plan(entry.config).launches
    assert [(argument.type, argument.value) for argument in launch.arguments] == [
        *(("pointer", "argument 0"), ("pointer", "argument 1")),
        *(("i32", "argument 2"), ("f64", "argument 3")),
    ]
    assert launch.template.expression == "my::transpose<float, 32>"
    assert launch.template.preamble == ('#define TILE 32\n#define ROWS 8\n#line 1 "a/t.cu"\n')


def test_source_is_unpacked_with_its_folders() -> None:
    with SOURCE.unpacked() as (folder, folders):
        assert (folder / "a/t.cu").read_text() == SOURCE.text
        assert [(path / "b.cuh").is_file() for path in folders] == [True]


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("source", "files", 0, 0), "../t.cu", r"path '../t.cu' of a source is"),
        (("source", "files", 1, 0), "/etc/b.cuh", r"path '/etc/b.cuh' of a source is"),
        (("source", "folders", 0), "..", r"path '..' of a source is"),
        (("source", "file"), "c.cu", r"a source without its file 'c.cu'"),
        (
            ("source", "form"),
            "my::transpose<{TILE.real}>",
            r"names 'TILE.real', no parameter of transpose",
        ),
        (("source", "form"), "my::transpose<{WIDTH}>", r"names 'WIDTH', no parameter of transpose"),
        (("arguments", 2), "word=7", r"argument 'word=7' is of no type that a kernel takes"),
    ],
)
def test_source_that_cannot_be_is_refused(
    path: tuple[str | int, ...], value: str, message: str
) -> None:
    data = json.loads(codec.dumps(launchable()))
    at = data["kernel"]
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    with pytest.raises(ValueError, match=message):
        codec.loads(json.dumps(data | {checksum.CHECKSUM: checksum.of(data)}).encode())


@pytest.mark.parametrize("grid", [[0, 1, 1], [1, 65536, 1], [1, 1]])
def test_impossible_geometry_is_refused(grid: list[int]) -> None:
    data = json.loads(codec.dumps(launchable()))
    data["entries"][0]["launch"]["grid"] = grid
    with pytest.raises(ValueError, match=r"entries\[0\].launch.grid"):
        codec.loads(json.dumps(data | {checksum.CHECKSUM: checksum.of(data)}).encode())


def written(**source: object) -> dict[str, object]:
    """The document of a record whose source has other fields, sealed."""
    data: dict[str, Any] = json.loads(codec.dumps(launchable()))
    data["kernel"]["source"] |= source
    return data | {checksum.CHECKSUM: checksum.of(data)}


HOSTILE: list[tuple[dict[str, object], str]] = [
    ({"options": ["--time=/tmp/x"]}, "option '--time=/tmp/x' of the compiler is not allowed in"),
    ({"files": [["a/t.cu", '#include "/etc/passwd"']]}, "a/t.cu includes '/etc/passwd'; a record"),
    ({"files": [["a/t.cu", "#in\0clude"]]}, "a character of the code 0"),
    ({"files": [["a/t.cu", ""], ["", ""]]}, "path '' of a source is empty"),
    ({"files": [["a/t.cu", ""], [".", ""]]}, "a file in the place of a folder"),
    ({"files": [["a/t.cu", ""], ["a", ""]]}, "a file in the place of a folder"),
    ({"files": [["a/t.cu", ""], ["x" * 5000, ""]]}, "path 'x*... of a source is empty, too long"),
    ({"files": [["a/t.cu", ""], ["\u00e9" * 200, ""]]}, "of a source is empty, too long"),
    ({"files": [["a/t.cu", ""], ["a\nb", ""]]}, "path .* characters that cannot be quoted"),
    ({"files": [["a/t.cu", ""], ["/etc/x", ""]]}, "path '/etc/x' of a source is empty.*absolute"),
    ({"folders": ["../b"]}, r"path '../b' of a source .* has '\.\.'"),
    ({"name": "*/ int x; /*"}, "is not an instance of a kernel"),
    ({"form": "{TILE.__class__}"}, "is not an instance of a kernel 'my::transpose'"),
    ({"form": "my::transpose<{TILE}>\n#include <x>"}, "is not an instance of a kernel"),
    ({"form": "my::transpose<{TILE.__class__}>"}, "names 'TILE.__class__', no parameter of"),
    ({"form": "my::transpose<{TILE[0]}>"}, r"names 'TILE\[0\]', no parameter of"),
]


@pytest.mark.parametrize(("source", "message"), HOSTILE)
def test_source_that_is_more_than_data_is_refused(source: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        codec.loads(json.dumps(written(**source)).encode())


@pytest.mark.parametrize("config", ["k:return=1", "k:TILE.x=1", "k:A=x;y", 'k:A="x"', "k:__A=1"])
def test_parameter_that_is_no_macro_is_refused(config: str) -> None:
    data = json.loads(codec.dumps(kernel_record()))
    data["entries"][0] |= {"config": config}
    del data["entries"][0]["params"]
    with pytest.raises(ValueError, match=r"entries\[0\]: parameter .* give an identifier"):
        codec.loads(json.dumps(data | {checksum.CHECKSUM: checksum.of(data)}).encode())


@pytest.mark.parametrize("field", ["name", "arguments"])
def test_call_with_control_characters_is_refused(field: str) -> None:
    data = json.loads(codec.dumps(kernel_record()))
    data["kernel"][field] = "k\nx" if field == "name" else ["int32=8*\\\n/ int x; /*"]
    with pytest.raises(ValueError, match=rf"kernel\.{field}.* it must be a text"):
        codec.loads(json.dumps(data | {checksum.CHECKSUM: checksum.of(data)}).encode())


def test_source_that_reads_other_files_is_left_out_of_the_record() -> None:
    source = replace(SOURCE, options=("-I/opt/cutlass/include",))
    made = launchable()
    assert made.entries[0].launch is not None
    own = replace(made.entries[0], launch=replace(made.entries[0].launch, source=source))
    kept = codec.loads(codec.dumps(replace(made, entries=(own,))))
    assert isinstance(kept, KernelRecord)
    assert (kept.best.config, kept.best.launch) == (own.config, None)


def test_digest_tells_sources_apart() -> None:
    others = replace(SOURCE, options=()), replace(SOURCE, files=(("a/t.cu", ""),), folders=())
    assert len({source.digest for source in (SOURCE, *others)}) == 3


FILE = "/etc/passwd"
FILES = {"a/x.h": "", "a/y/z.h": '#include "../x.h"\n'}


def fault(text: str = "", *options: str) -> str | None:
    files = tuple({"k.cu": text, **FILES}.items())
    return KernelSource("k", "k", "k.cu", files, ("a",), options=options).fault


@pytest.mark.parametrize(
    "text",
    [
        f'#include "{FILE}"',
        f"%:include <{FILE}>",
        f'??=include "{FILE}"',
        f'#inc\\\nlude "{FILE}"',
        f'#inc??/\nlude "{FILE}"',
        f'/*x*/ # /*y*/ include "{FILE}"',
        f'#\rinclude\x0b"{FILE}"',
        f'#include_next "{FILE}"',
        f'#import "{FILE}"',
        f'#embed "{FILE}"',
        f'#define S "{FILE}"\n#include S',
        f'#include "a/x.h" \\ \n#include "{FILE}"',
        f'R"x(/*)x";\n#include "{FILE}"\n/* */',
        f'#if __has_include("{FILE}")',
        "#if __has_include(S)",
        '#include "../x"',
        '#include "y/../../../x"',
        "#include <cuda/../../x>",
        '#include "a\\x.h"',
    ],
)
def test_source_that_may_read_any_file_is_refused(text: str) -> None:
    assert "k.cu includes" in (fault(f"int x;\n{text}\n") or "")


@pytest.mark.parametrize(
    "text",
    [
        '#include "x.h"',
        '#include "a/../a/x.h"',
        "#include <cuda_fp16.h>\n#include <cub/cub.cuh>",
        "#ifdef __has_include\n#if __has_include(<cuda_bf16.h>)",
        '#if defined(__has_include) && __has_include("x.h")',
        "#define TEXT(x) #x\n#pragma once\n// includes nothing",
    ],
)
def test_own_headers_and_those_of_cuda_are_taken(text: str) -> None:
    assert fault(text) is None


@pytest.mark.parametrize(
    "option",
    [
        "--time=/tmp/x",
        "--pre-include=/proc/self/environ",
        "-I/home",
        "--include-path=/home",
        "--create-pch=/tmp/x",
        "--pch-dir=/tmp",
        "--fdevice-time-trace=/tmp/x",
        "--gpu-architecture=sm_80",
        "-arch=sm_80",
        "--ptxas-options=--output-file=/tmp/x",
        "-Xptxas",
        '-DX="/etc/passwd"',
        "--use_fast_math\n--time=x",
        "--std=c++17 -I/x",
    ],
)
def test_option_outside_the_list_is_refused(option: str) -> None:
    assert "option" in (fault("", option) or "")


@pytest.mark.parametrize(
    "option",
    [
        *("--use_fast_math", "-use_fast_math", "-lineinfo", "--fmad=false", "--maxrregcount=64"),
        *("--std=c++20", "-DTILE=32", "-DT=my::type<3>", "--define-macro=FAST", "-Xptxas=-O3"),
    ],
)
def test_option_of_the_list_is_taken(option: str) -> None:
    assert fault("", option) is None


# Compilers


def test_record_keeps_the_compiler_and_the_macros_of_a_launch() -> None:
    source = replace(SOURCE, compiler="nvcc", launch_macros=("kernel_tuner", "grid_size_x"))
    entry = launchable().best
    launch = replace(entry.launchable(), source=source)
    kept = replace(launchable(), entries=(replace(entry, launch=launch),))
    assert codec.loads(codec.dumps(kept)) == kept
    (planned,) = launch.plan(entry.config).launches
    assert planned.template.compiler == "nvcc"
    assert planned.template.options[-2:] == ("-Dkernel_tuner=1", "-Dgrid_size_x=2")


def test_source_for_nvrtc_is_written_as_before() -> None:
    source = json.loads(codec.dumps(launchable()))["kernel"]["source"]
    names = "name", "form", "file", "files", "folders", "defines", "options"
    assert tuple(source) == names
    assert SOURCE.digest == "ef3e52d2d53a741b4be0324c99859f2ad2fc3300119442566b34f47ca08d662e"


def test_entry_keeps_the_source_of_its_configuration() -> None:
    record = launchable()
    other = replace(SOURCE, files=(("a/t.cu", '#include "b.cuh"\n// other\n'), SOURCE.files[1]))
    launch = KernelLaunch(other, CALL, (Geometry((1, 1, 1), (8, 8, 1), 0),))
    kept = replace(record, entries=(record.best, replace(record.entries[1], launch=launch)))
    assert codec.loads(codec.dumps(kept)) == kept
    assert codec.loads(codec.line(kept)) == kept
    digests = f"source {SOURCE.digest[:12]}, {other.digest[:12]}, options"
    assert digests in cache.kernels([kept])


def test_entry_with_a_source_that_reads_elsewhere_is_refused() -> None:
    record = launchable()
    other = replace(SOURCE, files=(("a/t.cu", '#include "b.cuh"\n'), SOURCE.files[1]), folders=())
    launch = KernelLaunch(other, CALL, (Geometry((1, 1, 1), (8, 8, 1), 0),))
    data = json.loads(
        codec.dumps(
            replace(record, entries=(record.best, replace(record.entries[1], launch=launch)))
        )
    )
    data["entries"][1]["source"]["files"][0][1] = '#include "/etc/passwd"\n'
    text = json.dumps(data | {checksum.CHECKSUM: checksum.of(data)}).encode()
    with pytest.raises(ValueError, match="includes '/etc/passwd'"):
        codec.loads(text)


@pytest.mark.parametrize(
    "line",
    [
        '#pragma GCC dependency "/etc/passwd"',
        '_Pragma("GCC dependency \\"/etc/passwd\\"")',
        '#pragma GCC pch_preprocess "/etc/passwd"',
        '#pragma GCC /**/ dependency "../../x.h"',
    ],
)
def test_pragma_of_a_host_compiler_that_reads_files_is_refused(line: str) -> None:
    assert KernelSource("k", "k", "k.cu", (("k.cu", f"{line}\n"),)).fault is not None


def test_unknown_compiler_in_a_record_is_refused() -> None:
    data = json.loads(codec.dumps(launchable()))
    data["kernel"]["source"]["compiler"] = "sh"
    with pytest.raises(ValueError, match=r"source\.compiler: Invalid enum value 'sh'"):
        codec.loads(json.dumps(data | {checksum.CHECKSUM: checksum.of(data)}).encode())
