"""The compiler options that a user may give, and those that are refused."""

from __future__ import annotations

from typing import Any

import pytest

from autotune.errors import UsageError
from autotune.user_kernels.options import check_options


def test_options_of_the_compiler_are_kept() -> None:
    options = ["--use_fast_math", "-DN=4096", "-UDEBUG", "-w", "--std=c++20", "-lineinfo"]
    options += ["--maxrregcount=64", "-Xptxas=-O1,-v", "--ptxas-options=--warn-on-spills"]
    assert check_options(options, ["TILE"]) == tuple(options)


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


@pytest.mark.parametrize("options", ["-G", ["fast"], [7], 7, ["-Xptxas", "v"]])
def test_other_values_are_no_options(options: Any) -> None:
    with pytest.raises(UsageError, match="give a list of the compiler's options"):
        check_options(options, [])
