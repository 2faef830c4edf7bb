"""Sources of records read and write no file but their own."""

from __future__ import annotations

import pytest

from autotune.records import kernel_record

FILE = "/etc/passwd"
FILES = {"a/x.h": "", "a/y/z.h": '#include "../x.h"\n'}


def fault(text: str = "", *options: str) -> str | None:
    return kernel_record.source_fault({"k.cu": text, **FILES}, ("a",), options)


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
