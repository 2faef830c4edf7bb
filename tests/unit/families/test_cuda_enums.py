"""The enumerations that Python and CUDA share, and the class that holds template arguments."""

import re

import pytest

from autotune import settings
from autotune.families.plan import Enumerator, Template
from autotune.families.shared import cuda_enums
from autotune.problem import ELEMENT_TYPES

SOURCES = settings.source_dir()
DECLARED = {
    match[1]: [word.strip() for word in re.sub(r"//.*", "", match[2]).split(",") if word.strip()]
    for path in sorted(SOURCES.rglob("*.cu*"))
    for match in re.finditer(r"enum class (\w+) \{(.*?)\};", path.read_text(), re.DOTALL)
}


def test_cuda_declares_the_enumerations_of_python() -> None:
    assert DECLARED.keys() == cuda_enums.ENUMERATIONS.keys()


@pytest.mark.parametrize("name", cuda_enums.ENUMERATIONS)
def test_enumerations_have_the_order_of_cuda(name: str) -> None:
    values = cuda_enums.ENUMERATIONS[name]
    assert [cuda_enums.enumerator(name, value).name for value in values] == DECLARED[name]
    assert [cuda_enums.enumerator(name, value).number for value in values] == [*range(len(values))]


def test_element_types_have_the_numbers_of_the_table() -> None:
    for element in ELEMENT_TYPES.values():
        assert cuda_enums.enumerator("ElementType", element.enumerator).number == element.number


@pytest.mark.parametrize(
    ("element", "type_"),
    [
        *(("F32", "float"), ("F16", "Half"), ("BF16", "BFloat"), ("E4M3", "E4M3")),
        *(("E5M2", "E5M2"), ("S8", "signed char"), ("S32", "int")),
    ],
)
def test_element_types_have_a_cuda_type(element: str, type_: str) -> None:
    text = (SOURCES / "include/common/number.cuh").read_text()
    assert re.search(rf"struct Element<ElementType::{element}> {{\s*using Type = {type_};", text)


def test_wgmma_has_a_part_of_the_reductions() -> None:
    assert {*cuda_enums.WGMMA_REDUCTION} < {*cuda_enums.REDUCTION}


def test_unknown_value_is_refused() -> None:
    with pytest.raises(ValueError, match=r"tuple\.index"):
        cuda_enums.enumerator("Store", "thrown")


def test_declaration_names_every_argument() -> None:
    arguments = (("BM", 128), ("ASYNC", True), ("STORE", Enumerator("Store", "TMA", 2)))
    template = Template("x.cu", "x", arguments, named=True)
    assert template.expression == "x<Params>"
    assert template.label == "x<BM=128, ASYNC=true, STORE=Store::TMA>"
    assert template.declaration == (
        "struct Params {\n"
        "    static constexpr int BM = 128;\n"
        "    static constexpr bool ASYNC = true;\n"
        "    static constexpr Store STORE = Store::TMA;\n"
        "};\n"
    )


def test_positional_arguments_are_integers() -> None:
    arguments = (("TYPE", Enumerator("ElementType", "BF16", 2)), ("TRANS_A", True))
    template = Template("verify.cu", "reference", arguments)
    assert (template.expression, template.declaration) == ("reference<2, 1>", "")


def test_no_macro_outlives_its_header() -> None:
    for path in SOURCES.rglob("*.cuh"):
        text = path.read_text()
        defined = re.findall(r"^#define (\w+)", text, re.MULTILINE)
        assert {*defined} == {*re.findall(r"^#undef (\w+)", text, re.MULTILINE)}, path
