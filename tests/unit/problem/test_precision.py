"""The table of precisions, checked against the sources and libraries that repeat parts of it."""

import re

import numpy as np
import pytest

from autotune.device import find
from autotune.errors import ConfigError, ProblemError
from autotune.families import registry
from autotune.families.registry import AUTO, families_of
from autotune.problem import (
    COMPUTES,
    ELEMENT_TYPES,
    EPILOGUES,
    PRECISIONS,
    ElementType,
    Precision,
    Problem,
    compute_of,
)
from autotune.settings import source_dir

ROWS = [*PRECISIONS.values()]


def test_computes_keep_their_order() -> None:
    assert COMPUTES[:5] == ("f32", "tf32", "tf32x3", "f16", "bf16")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_rows_refer_to_rows_of_the_table(row: Precision) -> None:
    assert {row.vendor, row.near, row.twin} <= {*PRECISIONS, None}
    assert all(ELEMENT_TYPES[element.name] is element for element in (row.operand, *row.outputs))
    assert {row.operand, row.second} <= {*ELEMENT_TYPES.values(), None}
    assert row.tensor_map.bytes == row.operand.bytes


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_twins_are_mutual(row: Precision) -> None:
    assert row.twin is None or PRECISIONS[row.twin].twin == row.name


@pytest.mark.parametrize("element", ELEMENT_TYPES.values(), ids=lambda element: element.name)
def test_each_element_type_names_its_default_precision(element: ElementType) -> None:
    if element.compute is None:
        assert all(row.operand is not element for row in ROWS)
    else:
        assert PRECISIONS[element.compute].operand is element


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_default_output_is_same(row: Precision) -> None:
    plain = Problem(4, 4, 4, row.name)
    assert (plain.output, plain.output_type) == ("same", row.outputs[0].name)
    wide = Problem(4, 4, 4, row.name, output="f32")
    assert wide.output_type == "f32"
    assert (wide == plain) == (row.outputs[0].name == "f32")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_interface_has_the_bytes_of_the_element(row: Precision) -> None:
    assert np.dtype(row.operand.interface).itemsize == row.operand.bytes


@pytest.mark.parametrize(("name", "dtype"), [("f32", np.float32), ("f16", np.float16)])
def test_roundoff_and_underflow_match_numpy(name: str, dtype: type[np.floating]) -> None:
    element, info = ELEMENT_TYPES[name], np.finfo(dtype)
    assert element.mantissa_bits == info.nmant
    if name == "f16":
        assert element.roundoff == info.eps / 2
        assert element.underflow == info.smallest_subnormal / 2


def test_cuda_sources_number_element_types_alike() -> None:
    source = (source_dir() / "include" / "common" / "number.cuh").read_text(encoding="utf-8")
    types = re.search(r"enum class ElementType { (.*) };", source)
    assert types is not None
    numbers = {name.lower(): number for number, name in enumerate(types[1].split(", "))}
    assert {row.enumerator: row.number for row in ELEMENT_TYPES.values()} == numbers


def test_cuda_sources_number_epilogues_alike() -> None:
    source = (source_dir() / "include" / "common" / "epilogue.cuh").read_text(encoding="utf-8")
    epilogues = re.search(r"enum class Epilogue {(.*?)};", source, re.DOTALL)
    assert epilogues is not None
    assert tuple(epilogues[1].lower().replace(",", " ").split()) == EPILOGUES
    activations = ("none", "relu", "gelu", "gelu_tanh", "silu", "none", "none")
    for number, name in enumerate(EPILOGUES):
        problem = Problem(4, 16, 4, "bf16", epilogue=name)
        assert problem.has_bias == bool(number & 1)
        assert problem.has_residual == (number >> 1 == 5)
        assert problem.gated == (number >> 1 == 6)
        assert (problem.activation or "none") == activations[number >> 1]


def test_tensor_rates_are_relative_to_fp16() -> None:
    h100 = find("h100")
    rates = {row.name: h100.tensor_rate(row.name) for row in ROWS if row.name in COMPUTES[:5]}
    assert rates == {"f32": None, "tf32": 1024, "tf32x3": 1024, "f16": 2048, "bf16": 2048}


@pytest.mark.parametrize(
    ("device", "rates"),
    [
        *(
            ("h100", (4096, 4096, 4096)),
            ("l4", (1024, 1024, 1024)),
            ("a100-40", (None, None, 2048)),
        ),
        *(("t4", (None, None, None)), ("b200", (8192, 8192, 8192))),
    ],
)
def test_eight_bits_have_twice_the_rate_of_fp16(
    device: str, rates: tuple[float | None, ...]
) -> None:
    assert tuple(find(device).tensor_rate(name) for name in ("f8", "f8e5", "i8")) == rates


def test_integer_sums_keep_the_full_rate_of_a_geforce_card() -> None:
    rtx_4090 = find("rtx-4090")
    assert (rtx_4090.tensor_rate("f8"), rtx_4090.tensor_rate("i8")) == (512, 1024)


@pytest.mark.parametrize(
    ("compute", "near"), [("f32", "tf32x3"), ("tf32x3", "tf32x3"), ("tf32", None), ("bf16", None)]
)
def test_near_accuracy_selects_the_precision_of_the_row(compute: str, near: str | None) -> None:
    if near is not None:
        assert compute_of(compute, "near") == near
        return
    with pytest.raises(ProblemError, match=f"accuracy near is for compute f32, not {compute}; "):
        compute_of(compute, "near")


def test_precision_without_kernels_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "tuned", lambda _: ())
    with pytest.raises(ConfigError, match="no kernel family computes f16; give another compute"):
        families_of(AUTO, Problem(4, 4, 4, "f16"))
