"""The structs that kernels take by value: the CUDA sources declare what the plans pass."""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Iterator

import pytest

from autotune import settings
from autotune.cuda.launches import Resolver, layout, pack_arguments
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.plan import Argument, Enumerator, Launch, Struct, Template
from autotune.families.shared import cuda_enums
from autotune.families.shared.arguments import call_struct, divisor, words
from autotune.families.shared.arguments import struct as struct_of
from autotune.problem import ELEMENT_TYPES, Problem
from autotune.problem.call import OPERANDS, WORDS

SOURCES = settings.source_dir()
C_TYPES = {"long long": "i64", "int": "i32", "float": "f32"}
LAUNCHES = [
    registry.plan(Config.parse(config), Problem(512, 512, 512, compute)).main
    for compute, config in [
        ("f32", "gemv:rows=16,columns=4,depth=8,across=32,ways=4,split_k=8,stages=3"),
        (
            "f32",
            "simt:bm=64,bn=128,wm=32,wn=64,tm=8,tn=8,slices=1,bk=16,copy=async,stages=3,"
            "fragments=2,min_blocks=1,split_k=1,reduction=none,workers=0,chunks=1,pack=none,"
            "group=1,fence=0,order=columns",
        ),
        (
            "bf16",
            "mma:compute=bf16,swap=0,bm=128,bn=64,wm=32,wn=32,slices=1,bk=64,copy=async,pack=none,"
            "stages=3,split_k=1,promote=0,min_blocks=1,store=direct,group=1",
        ),
        (
            "bf16",
            "wgmma:swap=0,bm=128,bn=256,consumers=2,schedule=cooperative,min_blocks=1,"
            "source=shared,low=none,pack=needed,bk=64,promote=0,cluster=1x1,split_k=1,"
            "reduction=none,workers=0,store=staged,stages=3,group=1",
        ),
    ]
]


def declared(name: str) -> list[tuple[str, str]]:
    """The names and types of the members of a struct in the CUDA sources, in order."""
    texts = (path.read_text() for path in sorted(SOURCES.rglob("*.cu*")))
    matches = (re.search(rf"^struct {name} \{{\n(.*?)^\}};", text, re.M | re.S) for text in texts)
    (body,) = (match[1] for match in matches if match)
    members = re.findall(r"^    ([\w:<> ]+?\*?) ?(\w+(?:, \w+)*);", body, re.M)
    return [(each, _kind(type)) for type, names in members for each in names.split(", ")]


def _kind(type: str) -> str:
    return "pointer" if type.endswith("*") else C_TYPES.get(type, type)


def structs(launch: Launch) -> Iterator[Struct]:
    """The structs of a launch, and the structs in them."""
    pending = [argument.value for argument in launch.arguments]
    for value in pending:
        if isinstance(value, Struct):
            pending += [member.value for _, member in value.members]
            yield value


def _passed(value: Struct) -> list[tuple[str, str]]:
    return [
        (name, member.value.name if isinstance(member.value, Struct) else str(member.type))
        for name, member in value.members
    ]


@pytest.mark.parametrize("launch", LAUNCHES, ids=lambda launch: launch.template.kernel)
def test_structs_are_declared_as_they_are_passed(launch: Launch) -> None:
    found = {value.name: value for value in structs(launch)}
    assert "Call" in found
    assert {name: _passed(value) for name, value in found.items()} == {
        name: declared(name) for name in found
    }


def test_divisor_is_declared_as_it_is_passed() -> None:
    value = divisor(7).value
    assert isinstance(value, Struct)
    assert _passed(value) == declared("Divisor")


def test_call_has_every_operand_and_all_words_but_the_factors() -> None:
    value = call_struct().value
    assert isinstance(value, Struct)
    names = [name for name, _ in value.members]
    assert names[: len(OPERANDS)] == [operand.name for operand in OPERANDS]
    assert {*WORDS} - {*names} == {"alpha", "beta"}


def test_members_are_replaced_by_name() -> None:
    value = call_struct(a=Argument("pointer", "workspace"), lda=Argument("i64", 40)).value
    assert isinstance(value, Struct)
    assert [value[name].value for name in ("a", "lda", "b")] == ["workspace", 40, "b"]


def test_structs_are_packed_as_c_lays_them_out() -> None:
    schedule = struct_of(
        "Schedule", rows=Argument("i32", 3), tiles=divisor(5), batch=Argument("i32", 2)
    )
    arguments = (*words("alpha"), schedule, Argument("i32", 9))
    types = tuple(argument.parameter for argument in arguments)
    values = Resolver(arguments)({"alpha": 0.5}, lambda *_: b"")
    packed = pack_arguments(types, values)
    # alpha; rows, the divisor at the next multiple of 8, batch and the struct's end; the last one
    expected = struct.pack("<f4xi4xi4xqi4xi", 0.5, 3, *values[2:4], 2, 9)
    start = packed.pointers[0] or 0
    offsets = [(pointer or 0) - start for pointer in packed.pointers]
    assert (layout(types).parameters, offsets) == ((0, 8, 40), [0, 8, 40])
    assert ctypes.string_at(start, len(expected)) == expected


def test_parameters_of_four_bytes_are_packed_tightly() -> None:
    share = struct_of("GemvSchedule", share=Argument("i32", 1))
    assert layout((share.parameter, "i32")).parameters == (0, 4)
    assert layout((share.parameter,)).size == 4


# The enumerations that Python and CUDA share, and the class that holds template arguments


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
