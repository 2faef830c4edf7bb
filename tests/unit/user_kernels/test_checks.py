"""Arguments checked against the signature that the compiler reports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.sample_user_kernels import arguments, kernel

from autotune.cuda import nvcc
from autotune.cuda.program import Program
from autotune.cuda.textures import Texture
from autotune.errors import UsageError
from autotune.records.kernel_record import CompilerName
from autotune.user_kernels.compilation import check_signature, compiling
from autotune.user_kernels.definition import define_kernel
from autotune.user_kernels.source import Compilation, unpacked

MANY = """
namespace my {
struct Pair { float first; int second; };
template <typename T, int N>
__global__ void many(T* __restrict__ out, const unsigned char* bytes, const void* any, Pair* pairs,
                     float4* vectors, const T scale, bool flag, unsigned long long size, Pair pair,
                     float2* complex) {
    out[0] = scale;
}
}
"""
TAKEN: list[Any] = [
    *(np.zeros(4, np.float32), np.zeros(4, np.float64), np.zeros(4, np.int16)),
    *(np.zeros(4, np.float32), np.zeros(8, np.float32), np.float32(1), np.bool_(True)),
    *(np.uint64(1), np.int64(0), np.zeros(2, np.complex64)),
]


def check(values: list[Any], contents: Any = None, **changes: Any) -> None:
    definition = kernel(**changes)
    config = next(definition.combinations())
    with unpacked(definition.source, definition.includes) as places:
        check_signature(definition, config, values, "sm_90", places, contents or {})


def check_many(values: list[Any], name: str = "my::many<float, N>") -> None:
    check(values, source=MANY, name=name, parameters={"N": (1,)})


def test_matching_arguments_are_accepted() -> None:
    check(arguments())


def test_pointers_to_structures_accept_any_array() -> None:
    check_many(TAKEN)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (0, np.zeros(4), r"argument 0 is an array of float64 \(8 bytes\); my::many takes a pointer "
         "to a floating-point number of 4 bytes there; give the NumPy type of that"),
        (0, np.zeros(4, np.int32), "argument 0 is an array of int32"),
        (0, np.zeros(4, np.float16), "argument 0 is an array of float16"),
        (0, np.int64(0), r"argument 0 is int64 \(8 bytes\); my::many takes a pointer"),
        (5, np.float64(1), "argument 5 is float64 .8 bytes.; my::many takes a floating-point "
         "number of 4 bytes"),
        (5, np.int32(1), "argument 5 is int32 .4 bytes.; my::many takes a floating-point number"),
        (5, np.zeros(1, np.float32), "argument 5 is an array of float32"),
        (6, np.int32(1), "takes a whole number of 1 bytes there"),
        (8, np.int32(1), "argument 8 is int32 .4 bytes.; my::many takes a value of 8 bytes"),
    ],
)  # fmt: skip
def test_wrong_type_is_refused_naming_both_types(place: int, value: Any, message: str) -> None:
    wrong = [*TAKEN]
    wrong[place] = value
    with pytest.raises(UsageError, match=message):
        check_many(wrong)


@pytest.mark.parametrize("count", [9, 11])
def test_wrong_number_of_arguments_is_refused(count: int) -> None:
    message = rf"my::many takes 10 arguments \(a pointer to a floating.*\), {count} are given"
    with pytest.raises(UsageError, match=message):
        check_many([*TAKEN, np.int32(1)][:count])


def test_types_are_those_of_the_instance() -> None:
    with pytest.raises(UsageError, match="takes a pointer to a floating-point number of 8 bytes"):
        check_many(TAKEN, name="my::many<double, N>")


VALUES = """
struct Point { char tag; double at; };
extern "C" __global__ void k(const Point* many, Point one, float3 vector, float2 number,
                             cudaTextureObject_t texture, void* any) {}
"""
POINT = np.dtype([("tag", "i1"), ("at", "f8")], align=True)
PACKED = np.dtype([("tag", "i1"), ("at", "f8")])
FLOAT3 = np.dtype([(axis, "f4") for axis in "xyz"])
GIVEN: list[Any] = [
    *(np.zeros(4, POINT), np.zeros((), POINT)[()], np.zeros((), FLOAT3)[()], np.complex64(1j)),
    *(Texture(np.zeros(4, np.float32)), np.zeros(4, PACKED)),
]


def check_values(values: list[Any], contents: Any = None, **changes: Any) -> None:
    source = "typedef unsigned long long cudaTextureObject_t;" + VALUES
    source = changes.pop("source", source)
    check(values, contents, source=source, name="k<>", parameters={}, **changes)


def test_structures_fit_by_their_size() -> None:
    check_values(GIVEN)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (0, np.zeros(4, PACKED), r"argument 0 is an array of structures \(9 bytes\); k takes a "
         r"pointer to a value of 16 bytes there; give .* numpy.dtype.fields, align=True\)"),
        (1, np.zeros((), PACKED)[()], r"argument 1 is structures \(9 bytes\).* value of 16 bytes"),
        (2, np.float32(1), r"argument 2 is float32 \(4 bytes\); k takes a value of 12 bytes"),
        (3, np.complex128(1), r"argument 3 is complex128 \(16 bytes\); .* value of 8 bytes"),
        (4, np.zeros(4, FLOAT3), "argument 4 is an array of structures .* a whole number of 8"),
        (5, GIVEN[4], r"argument 5 is a texture object \(8 bytes\); k takes a pointer there"),
    ],
)  # fmt: skip
def test_structure_of_another_size_is_refused(place: int, value: Any, message: str) -> None:
    wrong = [*GIVEN]
    wrong[place] = value
    with pytest.raises(UsageError, match=message):
        check_values(wrong)


def test_complex_number_is_no_float() -> None:
    source = 'extern "C" __global__ void k(double x) {}'
    with pytest.raises(UsageError, match=r"argument 0 is complex64 .* takes a floating-point"):
        check_values([np.complex64(1)], source=source)


CONSTANTS = """
namespace { __constant__ float weights[3][3]; }
namespace f { static __constant__ int4 vectors[2]; __constant__ double scale; }
__global__ void k() {}
"""


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("weights", np.zeros((3, 3), np.float32)),
        ("weights", np.zeros(4, np.float32)),
        ("f::vectors", np.zeros(8, np.int32)),
        ("f::scale", np.zeros((), np.float64)),
        ("misspelt", np.zeros(4)),
    ],
)
def test_contents_that_fit_their_variable_are_taken(name: str, content: Any) -> None:
    check_values([], {name: content}, source=CONSTANTS)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("weights", np.zeros(4), r"weights is an array of float64 \(8 bytes\); the variable "
         "holds a floating-point number of 4 bytes; give the NumPy type"),
        ("weights", np.zeros(10, np.float32), "weights is given 40 bytes, the variable has 36"),
        ("f::vectors", np.zeros(2, FLOAT3), r"structures \(12 bytes\); .* value of 16 .*align"),
        ("f::scale", np.zeros((), np.float32), "the variable holds a floating-point number of 8"),
    ],
)  # fmt: skip
def test_contents_that_misfit_their_variable_are_refused(
    name: str, content: Any, message: str
) -> None:
    other = {"f::scale": np.zeros((), np.float64), name: content}
    with pytest.raises(UsageError, match=message):
        check_values([], other, source=CONSTANTS)


def test_kernel_without_arguments_takes_none() -> None:
    nothing = "__global__ void nothing() {}"
    check([], source=nothing, name="nothing<>", parameters={})
    with pytest.raises(UsageError, match=r"takes 0 arguments \(\), 1 are given"):
        check([np.int32(1)], source=nothing, name="nothing<>", parameters={})


def test_kernel_that_does_not_compile_is_not_checked() -> None:
    check([np.int32(1)], source="this is no C++")


BODY = """
extern "C" __global__ void k(float* x) {
    __shared__ float s[TILE];
    s[threadIdx.x % TILE] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = s[0];
}
"""


def compiled(
    source: str | Path,
    *,
    macros: bool = True,
    options: Sequence[str] = (),
    compiler: CompilerName = "nvrtc",
    given: Sequence[str] = (),
    **changes: Any,
) -> Program:
    """The last configuration of a kernel, compiled with both checks."""
    definition: dict[str, Any] = {
        **{"constraints": None, "grid": 1, "block": 32, "shared": 0},
        **{"parameters": {"TILE": (128,)} if macros else {}, **changes},
        "compile": Compilation(defines=True, options=options, compiler=compiler),
    }
    kernel = define_kernel(source, definition.pop("name", "k"), **definition)
    *_, config = kernel.combinations()
    with compiling(kernel, given) as (compile, _):
        outcome = compile(kernel.template(config), "sm_80")
    assert isinstance(outcome, Program), outcome.log
    return outcome


# Macros

OVERRIDES = {
    "redefined": "#define TILE 64\n",
    "undefined first": "#undef TILE\n#define TILE 64\n",
    "without a warning": "#pragma nv_diag_suppress 47\n#define TILE 64\n",
    "for some values": "#if TILE > 64\n#undef TILE\n#define TILE 64\n#endif\n",
}
NVCC = pytest.mark.skipif(nvcc.version() is None, reason="nvcc is not installed")
COMPILERS = ["nvrtc", pytest.param("nvcc", marks=NVCC)]


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("lines", OVERRIDES.values(), ids=OVERRIDES)
def test_source_that_sets_a_tuned_macro_is_refused(lines: str, compiler: CompilerName) -> None:
    with pytest.raises(UsageError, match="k: the source sets TILE to 64, which is given as 128"):
        compiled(lines + BODY, compiler=compiler)


def test_suppressed_warnings_hide_no_override() -> None:
    with pytest.raises(UsageError, match="the source sets TILE to 64"):
        compiled("#define TILE 64\n" + BODY, options=["-w"])


def test_constant_in_place_of_a_macro_is_refused() -> None:
    with pytest.raises(UsageError, match="the source undefines TILE, which is given as 128"):
        compiled("#undef TILE\nconstexpr int TILE = 64;\n" + BODY)


def test_header_that_sets_a_tuned_macro_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sizes.cuh").write_text("#undef TILE\n#define TILE 64\n")
    (tmp_path / "k.cu").write_text('#include "sizes.cuh"\n' + BODY)
    with pytest.raises(UsageError, match="the source sets TILE to 64"):
        compiled(tmp_path / "k.cu")


def test_default_of_a_macro_leaves_its_values() -> None:
    assert compiled("#ifndef TILE\n#define TILE 64\n#endif\n" + BODY).shared == 4 * 128


@pytest.mark.parametrize("value", ["vec", "MODE", "COMMA", 0.5, "+".join(["1"] * 99)])
def test_value_of_any_kind_is_no_override(value: str | float) -> None:
    source = """
    typedef float vec;
    #define MODE COMMA
    #define COMMA 1, 2
    extern "C" __global__ void k(float* x) { x[0] = sizeof(TILE); }
    """
    assert compiled(source, parameters={"TILE": (value,)}).symbol == "k"


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("standard", ["c++11", "c++14", "c++17", "c++20"])
def test_macros_are_checked_in_every_standard(standard: str, compiler: CompilerName) -> None:
    options = [f"--std={standard}"]
    assert compiled(BODY, options=options, compiler=compiler).shared == 4 * 128
    with pytest.raises(UsageError, match="the source sets TILE to 64"):
        compiled("#define TILE 64\n" + BODY, options=options, compiler=compiler)


# Variables


def reading(declaration: str, expression: str) -> str:
    return f'{declaration}\nextern "C" __global__ void k(float* x, int i) {{ {expression}; }}\n'


@pytest.mark.parametrize(
    ("declaration", "expression", "variable"),
    [
        ("__constant__ float w[9];", "x[i] = w[i]", "__constant__ w"),
        ("static __constant__ float w;", "x[i] = w", "__constant__ w"),
        ("struct P { int a, b; }; __constant__ P p;", "x[i] = p.b", "__constant__ p"),
        ("namespace f { __constant__ float w[9]; }", "x[i] = f::w[i]", "__constant__ f::w"),
        (
            "template <int N> __constant__ float w[N];",
            "x[i] = w<8>[i]",
            "__constant__ w",
        ),
        (
            "__constant__ float a[2], b[2] = {1, 2};\n// __constant__ float a[2] = {1, 2};",
            "x[i] = a[i] + b[i]",
            "__constant__ a",
        ),
        (
            "__constant__ float w[2]; __constant__ const float* tables[1] = {w};",
            "x[i] = tables[i][i]",
            "__constant__ w",
        ),
        (
            "__constant__ float w[9]; __device__ __noinline__ float f(int i) { return w[i]; }",
            "x[i] = f(i)",
            "__constant__ w",
        ),
    ],
)
def test_unfilled_variable_is_refused_by_its_name(
    declaration: str, expression: str, variable: str
) -> None:
    with pytest.raises(UsageError, match=f"k reads {variable}, which nothing fills .*; give its"):
        compiled(reading(declaration, expression), macros=False)


@pytest.mark.parametrize(
    ("declaration", "expression"),
    [
        ("__constant__ float w[2] = {1, 2};", "x[i] = w[i]"),
        ("__constant__ float zeros[2] = {0, 0};", "x[i] = zeros[i]"),
        ("__constant__ float zero{};", "x[i] = zero"),
        ("__device__ int on = 0;", "if (on) x[i] = 0"),
        ("constexpr __constant__ float w[2] = {1, 2};", "x[i] = w[i]"),
        ("__constant__ float unread[9];", "x[i] = 1"),
        ("__constant__ float w[9]; __global__ void other(float* x) { *x = w[1]; }", "x[i] = 1"),
        ("__device__ int count;", "x[i] = atomicAdd(&count, 1)"),
        ("", "const double w[] = {1, 2, 3}; x[i] = w[i] + sin(double(x[i]))"),
    ],
)
def test_variable_that_is_filled_or_unread_is_allowed(declaration: str, expression: str) -> None:
    assert compiled(reading(declaration, expression), macros=False).symbol == "k"


@pytest.mark.parametrize(
    ("declaration", "expression", "name"),
    [
        ("__constant__ float w[9];", "x[i] = w[i]", "w"),
        ("static __constant__ float w;", "x[i] = w", "w"),
        ("extern __constant__ float w[9];", "x[i] = w[i]", "w"),
        ('extern "C" { __constant__ float w[9]; }', "x[i] = w[i]", "w"),
        ("namespace { __constant__ float w[9]; }", "x[i] = w[i]", "w"),
        ("namespace f { namespace { __constant__ float w; } }", "x[i] = f::w", "f::w"),
        ("template <int N> __constant__ float w[N];", "x[i] = w<8>[i]", "w"),
        ("static __constant__ float unread[9];", "x[i] = 1", "unread"),
    ],
)
def test_variable_that_the_caller_fills_is_allowed(
    declaration: str, expression: str, name: str
) -> None:
    source = reading(declaration, expression)
    assert compiled(source, macros=False, given=[name]).symbol == "k"
    if name != "unread":
        with pytest.raises(UsageError, match=f"__constant__ {name}, which nothing fills"):
            compiled(source, macros=False)


def test_one_filled_variable_leaves_the_other_refused() -> None:
    source = reading("__constant__ float v, w;", "x[i] = v + w")
    with pytest.raises(UsageError, match="__constant__ w, which nothing fills"):
        compiled(source, macros=False, given=["v"])


def test_misspelt_constant_lists_those_of_the_file() -> None:
    declarations = "__constant__ float weights[9]; static __constant__ int unread;"
    source = reading(declarations, "x[i] = weights[i]")
    with pytest.raises(UsageError, match="k has no __constant__ wieghts; it has unread, weights"):
        compiled(source, macros=False, given=["wieghts"])
