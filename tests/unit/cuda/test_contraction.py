"""Kernels that promise the bits of the CPU contract no product with a sum."""

from __future__ import annotations

import pytest

from autotune.cuda import compiler
from autotune.families.shared.quantizing import Quantizing
from autotune.problem import ELEMENT_TYPES


@pytest.mark.parametrize("scale", ["tensor", "row", "block"])
@pytest.mark.parametrize("source", ["f32", "f16", "bf16"])
def test_quantising_rounds_the_product_before_the_int8_number(source: str, scale: str) -> None:
    quantizing = Quantizing(ELEMENT_TYPES[source], ELEMENT_TYPES["i8"], scale, 16, 1024, vector=4)
    for launch in quantizing.plan().launches:
        text = compiler.ptx(launch.template, "sm_90")
        assert isinstance(text, bytes), text.reason
        # ptxas contracts `add`, and never `add.rn`.
        assert b"add.f32" not in text
        assert b"fma" not in text
        assert (b"add.rn.f32" in text) == (launch.template.kernel == "quantize")
