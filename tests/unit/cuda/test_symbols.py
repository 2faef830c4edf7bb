"""The `__constant__` variables of compiled programs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune.cuda import compiler
from autotune.cuda.program import Program
from autotune.cuda.symbols import as_in_cubin, constants, placed, unfilled
from autotune.families.plan import Template

SOURCE = """
__constant__ float plain[9];
static __constant__ int hidden;
namespace f { __constant__ double named[2]; namespace { __constant__ char inner[3]; } }
namespace { __constant__ short unnamed[4]; }
extern "C" __constant__ float c_name[5];
template <int N> __constant__ float of_template[N];
extern "C" __global__ void k(float* x, int i) {
    x[i] = plain[i] + hidden + f::named[i] + f::inner[i] + unnamed[i] + c_name[i]
        + of_template<8>[i] + of_template<6>[i];
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    folder: Path = tmp_path_factory.mktemp("source")
    (folder / "k.cu").write_text(SOURCE)
    template = Template("k.cu", "k", form="k")
    compiled = compiler.compile(template, "sm_80", cache=None, sources=folder, includes=())
    assert isinstance(compiled, Program), compiled.log
    return compiled


def test_variables_have_their_names_and_sizes(program: Program) -> None:
    assert sorted((name, size) for name, _, size in constants(program.cubin)) == [
        *(("c_name", 20), ("f::inner", 3), ("f::named", 16), ("hidden", 4)),
        *(("of_template", 24), ("of_template", 32), ("plain", 36), ("unnamed", 8)),
    ]


@pytest.mark.parametrize("cubin", [b"", b"\x7fELF", b"ptx"])
def test_other_data_has_no_variables(cubin: bytes) -> None:
    assert constants(cubin) == []


def test_contents_go_to_the_symbols_of_their_name(program: Program) -> None:
    content: Any = np.zeros(16, np.uint8)
    names = {"f::named": content, "of_template": content, "left_out": content}
    symbols = [symbol for symbol, _ in placed(program, names)]
    assert len(symbols) == 3
    assert "_ZN1f5namedE" in symbols
    assert placed(replace(program, cubin=b""), {}) == []


def test_contents_larger_than_the_variable_are_refused(program: Program) -> None:
    with pytest.raises(ValueError, match="constant hidden is given 5 bytes, the variable has 4"):
        placed(program, {"hidden": np.zeros(5, np.uint8)})


def unnamed(stamp: str) -> str:
    """The symbol of a kernel in an unnamed namespace, as one compilation names it."""
    name = f"00000000_4_k_cu_{stamp}_16560"
    return f"_ZN40_INTERNAL_{name}42_GLOBAL__N__{name}1kEPf"


def test_names_of_unnamed_namespaces_become_those_of_the_cubin() -> None:
    ptx = ".const .f32 w;\n.entry {0}(.param {0}_0)\n{{ ld.const.f32 %f1, [w]; }}\n"
    own, other = (unnamed(stamp) for stamp in ("270fb744", "18ac44e0"))
    text = ptx.format(own).encode()
    assert as_in_cubin(text, other) == ptx.format(other).encode()
    assert as_in_cubin(text, "_Z1kPf") == text
    assert (unfilled(text, own), unfilled(text, other)) == (["w"], [])
