"""cuBLASLt and cuBLAS called directly: the algorithms of the heuristic, and products.

They are the libraries that PyTorch calls too, from its wheels or from a CUDA toolkit. Constants,
structures and signatures follow `cublasLt.h` and `cublas_api.h` of CUDA 12 and 13.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Mapping
from ctypes import (
    POINTER,
    addressof,
    byref,
    c_float,
    c_int,
    c_int8,
    c_int64,
    c_longlong,
    c_size_t,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
    sizeof,
)
from functools import partial
from typing import Any, NamedTuple

from autotune.errors import MissingError, RunnerError
from autotune.families.plan import Algorithm, LibraryCall
from autotune.problem import Problem

MOST = 16
"""Algorithms that the heuristic is asked for."""
WORKSPACE = 32 * 2**20
"""Bytes of workspace that an algorithm may take: NVIDIA's recommendation for Hopper, and what the
exported library gives."""

DATA_TYPES = {"f32": 0, "f16": 2, "i8": 3, "i32": 10, "bf16": 14, "e4m3": 28, "e5m2": 29}
"""cudaDataType_t of the storage of an element."""
COMPUTE_32F, COMPUTE_32I, COMPUTE_32F_FAST_TF32 = 68, 72, 77
"""cublasComputeType_t: fp32 sums; int32 sums; fp32 operands rounded to tf32."""
RELU, BIAS, GELU = 2, 4, 32
"""cublasLtEpilogue_t: the bits of an activation and of the bias; 1 without any."""
SCALE_MODES = {"none": (0, 0), "tensor": (0, 0), "row": (3, 3), "block": (4, 5)}
"""cublasLtMatmulMatrixScale_t of A and of B: one number; one for each row or column; one for
each 128 elements, or block of 128 x 128."""
ALIGNMENT = 16
"""Alignment in bytes that the heuristic assumes of the addresses of all operands."""

SUCCESS = 0
_UNSERVED = (7, 15)  # CUBLAS_STATUS_INVALID_VALUE, CUBLAS_STATUS_NOT_SUPPORTED
_TRANSPOSED, _EPILOGUE, _BIAS, _FAST, _BIAS_TYPE = (3, 4), 7, 8, 25, 26
_SCALES, _SCALE_MODES = (17, 18), (31, 32)  # cublasLtMatmulDescAttributes_t
_BATCH, _STRIDE = 5, 6  # cublasLtMatrixLayoutAttribute_t
_MOST_WORKSPACE, _LEAST_ALIGNMENT = 1, (5, 6, 7, 8)  # cublasLtMatmulPreferenceAttributes_t
_ATTRIBUTES: tuple[Any, ...] = (
    *(c_int, c_uint32, c_int, c_uint32, c_uint32, c_uint32, c_uint32),
    *(c_uint16, c_uint16),
)
"""The C types of the attributes of `Algorithm`."""

_Algorithm = c_uint64 * 8  # cublasLtMatmulAlgo_t


class HeuristicResult(ctypes.Structure):
    """`cublasLtMatmulHeuristicResult_t`."""

    _fields_ = (
        ("algorithm", _Algorithm),
        ("workspace", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    )


_SET = c_void_p, c_int, c_void_p, c_size_t
_ALGORITHM_SET = POINTER(_Algorithm), c_int, c_void_p, c_size_t
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "Create": (POINTER(c_void_p),),
    "MatmulDescCreate": (POINTER(c_void_p), c_int, c_int),
    "MatmulDescSetAttribute": _SET,
    "MatmulDescDestroy": (c_void_p,),
    "MatrixLayoutCreate": (POINTER(c_void_p), c_int, c_uint64, c_uint64, c_int64),
    "MatrixLayoutSetAttribute": _SET,
    "MatrixLayoutDestroy": (c_void_p,),
    "MatmulPreferenceCreate": (POINTER(c_void_p),),
    "MatmulPreferenceSetAttribute": _SET,
    "MatmulPreferenceDestroy": (c_void_p,),
    "MatmulAlgoGetHeuristic": (*[c_void_p] * 7, c_int, POINTER(HeuristicResult), POINTER(c_int)),
    "MatmulAlgoInit": (c_void_p, *[c_int] * 7, POINTER(_Algorithm)),
    "MatmulAlgoConfigGetAttribute": (*_ALGORITHM_SET, POINTER(c_size_t)),
    "MatmulAlgoConfigSetAttribute": _ALGORITHM_SET,
    "MatmulAlgoCheck": (*[c_void_p] * 6, POINTER(_Algorithm), POINTER(HeuristicResult)),
    "Matmul": (*[c_void_p] * 14, c_size_t, c_void_p),
}


class LibraryProblem(NamedTuple):
    """A problem in the library's numbers, without its sizes.

    Attributes:
        compute: the cublasComputeType_t.
        factor: the cudaDataType_t of alpha and beta.
        operations: the cublasOperation_t of its first operand, B, and of its second, A.
        types: the cudaDataType_t of B, A and C.
        epilogue: the cublasLtEpilogue_t.
        bias: the cudaDataType_t of the bias.
        scales: the cublasLtMatmulMatrixScale_t of B and A; None without scales.
        fast: whether sums of fp8 products stay in tensor cores.
    """

    compute: int
    factor: int
    operations: tuple[int, int]
    types: tuple[int, int, int]
    epilogue: int
    bias: int
    scales: tuple[int, int] | None
    fast: bool

    @classmethod
    def of(cls, problem: Problem) -> LibraryProblem:
        """The numbers of a problem without a `fault`."""
        integer = problem.compute == "i8"
        tf32 = problem.precision.vendor == "tf32"
        activation = {"relu": RELU, "gelu_tanh": GELU}.get(problem.activation or "", 0)
        scale_a, scale_b = SCALE_MODES[problem.scale]
        a, b = (DATA_TYPES[name] for name in problem.operand_types)
        operation_a, operation_b = (int(letter == "t") for letter in problem.layout)
        return cls(
            COMPUTE_32I if integer else COMPUTE_32F_FAST_TF32 if tf32 else COMPUTE_32F,
            DATA_TYPES["i32" if integer else "f32"],
            (operation_b, operation_a),
            (b, a, DATA_TYPES[problem.output_type]),
            (activation | (BIAS if problem.has_bias else 0)) or 1,
            DATA_TYPES[problem.bias_element.name],
            None if problem.scale == "none" else (scale_b, scale_a),
            problem.accumulate == "fast",
        )


class Found(NamedTuple):
    """An algorithm that the heuristic gives for a problem, and its bytes of workspace."""

    algorithm: Algorithm
    workspace: int


class CublasLt:
    """libcublasLt with a handle on the GPU whose context was current when it was made.

    Attributes:
        version: the library's version, such as `13.0.0`.
    """

    def __init__(self, library: Any, *, handle: bool = True) -> None:
        """Makes the handle, which lives as long as the process.

        Args:
            library: the library.
            handle: whether to make one; without, descriptions can be made, and nothing runs.

        Raises:
            RunnerError: if the library refuses.
        """
        self.version = _version(library)
        self._functions = {name: library[f"cublasLt{name}"] for name in _SIGNATURES}
        for name, function in self._functions.items():
            function.argtypes = _SIGNATURES[name]
        self.handle = c_void_p()
        if handle:
            self.call("Create", byref(self.handle))

    @classmethod
    def load(cls) -> CublasLt:
        """The library that is loaded, else an installed one.

        Raises:
            MissingError: if there is none.
            RunnerError: if it refuses, as without a GPU.
        """
        return cls(ctypes.CDLL(library_path("cublasLt")))

    @property
    def matmul(self) -> Any:
        """`cublasLtMatmul` itself."""
        return self._functions["Matmul"]

    def call(self, name: str, *arguments: Any) -> None:
        """Calls `cublasLt<name>`.

        Raises:
            RunnerError: for a status other than success.
        """
        status = self._functions[name](*arguments)
        if status != SUCCESS:
            raise RunnerError(f"cublasLt{name} returned status {status}")

    def create(self, kind: str, *arguments: Any) -> c_void_p:
        """A new description, layout or preference, destroyed with the object."""
        made = c_void_p()
        self.call(f"{kind}Create", byref(made), *arguments)
        weakref.finalize(made, self._functions[f"{kind}Destroy"], made.value).atexit = False
        return made

    def set(self, kind: str, holder: c_void_p, attribute: int, value: Any) -> None:
        """Sets an attribute of a description, a layout or a preference to a C value."""
        self.call(f"{kind}SetAttribute", holder, attribute, byref(value), sizeof(value))

    def heuristic(self, problem: Problem, values: Mapping[str, float] | None = None) -> list[Found]:
        """The algorithms of the library's heuristic for a problem, the best expected first; none
        where it serves the problem by no algorithm.

        Args:
            problem: a problem that the family `cublaslt` takes.
            values: the pitches and strides of the operands, in elements; None without gaps.
        """
        product = Descriptors(self, problem, values or dense(problem))
        preference = self.create("MatmulPreference")
        self.set("MatmulPreference", preference, _MOST_WORKSPACE, c_uint64(WORKSPACE))
        for attribute in _LEAST_ALIGNMENT:
            self.set("MatmulPreference", preference, attribute, c_uint32(ALIGNMENT))
        results, count = (HeuristicResult * MOST)(), c_int()
        asked = self.handle, *product.described, preference, MOST, results, byref(count)
        status = self._functions["MatmulAlgoGetHeuristic"](*asked)
        if status in _UNSERVED:
            return []
        if status != SUCCESS:
            raise RunnerError(f"cublasLtMatmulAlgoGetHeuristic returned status {status}")
        good = (result for result in results[: count.value] if result.state == SUCCESS)
        listed = (Found(self.attributes(result.algorithm), result.workspace) for result in good)
        return [*dict.fromkeys(listed)]

    def attributes(self, made: Any) -> Algorithm:
        """The attributes of a `cublasLtMatmulAlgo_t`."""
        values = []
        for number, kind in enumerate(_ATTRIBUTES):
            value, written = kind(), c_size_t()
            asked = number, byref(value), sizeof(value), byref(written)
            self.call("MatmulAlgoConfigGetAttribute", byref(made), *asked)
            values.append(value.value)
        return Algorithm(*values)

    def bind(self, call: LibraryCall, values: Mapping[str, float]) -> BoundProduct:
        """A call of an algorithm on operands of the pitches and strides in `values`, in elements.

        Raises:
            RunnerError: if the library refuses the algorithm for them.
        """
        return BoundProduct(self, call, values)


class Arguments(NamedTuple):
    """The arguments of `cublasLtMatmul` but the last, the stream.

    Attributes:
        words: the arguments in memory, each in a word.
        kept: what they point to, and the product whose description they name.
    """

    words: ctypes.Array[c_void_p]
    kept: object

    @property
    def before_stream(self) -> tuple[int, ...]:
        """The arguments as `ctypes` takes them."""
        return tuple(word or 0 for word in self.words)


class Descriptors:
    """A problem as descriptors of the library.

    Attributes:
        described: the description, and the layouts of B, A, C and C.
    """

    def __init__(self, library: CublasLt, problem: Problem, values: Mapping[str, float]) -> None:
        told = LibraryProblem.of(problem)
        self._library, self._problem, self.told = library, problem, told
        self.description = library.create("MatmulDesc", told.compute, told.factor)
        for attribute, operation in zip(_TRANSPOSED, told.operations, strict=True):
            self.set(attribute, c_int(operation))
        self.set(_EPILOGUE, c_uint32(told.epilogue))
        if problem.has_bias:
            self.set(_BIAS_TYPE, c_int(told.bias))
        if told.fast:
            self.set(_FAST, c_int8(1))
        for attribute, mode in zip(_SCALE_MODES, told.scales or (0, 0), strict=True):
            if mode:
                self.set(attribute, c_int(mode))
        # The heuristic reads no operand, only how its address is aligned.
        self.point({"bias": ALIGNMENT, "scale_a": ALIGNMENT, "scale_b": ALIGNMENT})
        rows = dict(zip("abc", problem.stored_rows, strict=True))
        columns = dict(zip("abc", problem.leading_dimensions, strict=True))
        steps = {name: (values[f"ld{name}"], values[f"stride_{name}"]) for name in "abc"}
        layouts = [
            self._layout(kind, columns[name], rows[name], *steps[name])
            for name, kind in zip("bac", told.types, strict=True)
        ]
        self.described = (self.description, *layouts, layouts[-1])

    def set(self, attribute: int, value: Any) -> None:
        """Sets an attribute of the description."""
        self._library.set("MatmulDesc", self.description, attribute, value)

    def point(self, values: Mapping[str, float]) -> None:
        """Sets the addresses of the bias and the scales that the problem has."""
        if self._problem.has_bias:
            self.set(_BIAS, c_void_p(int(values["bias"])))
        if self.told.scales:
            for attribute, name in zip(_SCALES, ("scale_b", "scale_a"), strict=True):
                self.set(attribute, c_void_p(int(values[name])))

    def _layout(self, kind: int, rows: int, columns: int, pitch: float, stride: float) -> c_void_p:
        """A row-major matrix as the library sees it: its transpose, of `rows`, column-major."""
        library = self._library
        layout = library.create("MatrixLayout", kind, rows, columns, int(pitch))
        if self._problem.batch > 1:
            library.set("MatrixLayout", layout, _BATCH, c_int(self._problem.batch))
            library.set("MatrixLayout", layout, _STRIDE, c_int64(int(stride)))
        return layout


class BoundProduct:
    """A problem bound to an algorithm, on operands of given pitches and strides.

    For one thread at a time where the problem has a bias or scales, whose addresses the library
    keeps in its description.

    Attributes:
        workspace: bytes of workspace that it takes.
    """

    def __init__(self, library: CublasLt, call: LibraryCall, values: Mapping[str, float]) -> None:
        problem, algorithm = call
        self._library, self._product = library, Descriptors(library, problem, values)
        told, (b, a, c) = self._product.told, self._product.told.types
        self._algorithm, checked = _Algorithm(), HeuristicResult()
        made, kinds = byref(self._algorithm), (told.compute, told.factor, b, a, c, c)
        library.call("MatmulAlgoInit", library.handle, *kinds, algorithm.id, made)
        for number, (kind, value) in enumerate(zip(_ATTRIBUTES, algorithm, strict=True)):
            if number:  # the first is read-only
                typed = kind(value)
                library.call(
                    "MatmulAlgoConfigSetAttribute", made, number, byref(typed), sizeof(typed)
                )
        described = self._product.described
        library.call("MatmulAlgoCheck", library.handle, *described, made, byref(checked))
        self.workspace = int(checked.workspace)
        self._integer = told.compute == COMPUTE_32I
        self._pointed = problem.has_bias or told.scales is not None

    def arguments(self, values: Mapping[str, float], workspace: int) -> Arguments:
        """The arguments of `cublasLtMatmul` for operands of the bound pitches and strides.

        Args:
            values: the addresses of the operands and of the workspace, alpha and beta.
            workspace: bytes at the address of the workspace.
        """
        if self._pointed:
            self._product.point(values)
        of_b, of_a, of_c = (layout.value for layout in self._product.described[1:4])
        b, a, c, scratch = (int(values[name]) for name in ("b", "a", "c", "workspace"))
        alpha, beta = (self._factor(values[name]) for name in ("alpha", "beta"))
        words = (
            *(self._library.handle.value, self._product.description.value, addressof(alpha)),
            *(b, of_b, a, of_a, addressof(beta), c, of_c, c, of_c),
            *(addressof(self._algorithm), scratch, workspace),
        )
        return Arguments((c_void_p * len(words))(*words), (self, alpha, beta))

    def enqueue(self, values: Mapping[str, float], stream: int, workspace: int) -> None:
        """Enqueues the product on a stream of the handle's GPU.

        Args:
            values: as of `arguments`.
            stream: address of the CUstream.
            workspace: as of `arguments`.

        Raises:
            RunnerError: if the library refuses, as for addresses that are not aligned.
        """
        arguments = self.arguments(values, workspace)  # holds alpha and beta until they are read
        self._library.call("Matmul", *arguments.before_stream, stream)

    def _factor(self, value: float) -> c_int | c_float:
        """Alpha or beta in the type of the sums."""
        return c_int(int(value)) if self._integer else c_float(value)


DEFAULT_ALGORITHM = -1  # cublasGemmAlgo_t

_MATRIX = c_void_p, c_int, c_int, c_longlong  # address, type, leading dimension, stride
CUBLAS_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cublasCreate_v2": (POINTER(c_void_p),),
    "cublasSetStream_v2": (c_void_p, c_void_p),
    "cublasGemmStridedBatchedEx": (
        *(c_void_p, c_int, c_int, c_int, c_int, c_int),
        *(POINTER(c_float), *_MATRIX, *_MATRIX, POINTER(c_float), *_MATRIX),
        *(c_int, c_int, c_int),
    ),
}


class Cublas:
    """libcublas with a handle, which lives as long as the process."""

    def __init__(self, library: Any) -> None:
        """Makes a handle in the current context.

        Raises:
            RunnerError: if the library refuses.
        """
        self._library = library
        for name, signature in CUBLAS_SIGNATURES.items():
            getattr(library, name).argtypes = signature
        self._handle = c_void_p()
        self.call("cublasCreate_v2", byref(self._handle))

    @classmethod
    def load(cls) -> Cublas:
        """The installed library.

        Raises:
            MissingError: if there is none.
        """
        return cls(ctypes.CDLL(library_path("cublas")))

    def gemm(
        self, problem: Problem, values: Mapping[str, float], stream: int
    ) -> Callable[[], None]:
        """A run of a problem of 16 or 32 bits without an epilogue on a stream.

        Args:
            problem: the problem.
            values: the addresses, pitches and strides of the operands, in elements, alpha and beta.
            stream: address of the CUstream.
        """
        told = LibraryProblem.of(problem)
        b, a, c = (
            (int(values[name]), kind, int(values[f"ld{name}"]), int(values[f"stride_{name}"]))
            for name, kind in zip("bac", told.types, strict=True)
        )
        alpha, beta = (byref(c_float(values[name])) for name in ("alpha", "beta"))
        self.call("cublasSetStream_v2", self._handle, stream)
        return partial(
            self.call,
            "cublasGemmStridedBatchedEx",
            *(self._handle, *told.operations),
            *(problem.n, problem.m, problem.k),
            *(alpha, *b, *a, beta, *c),
            *(problem.batch, told.compute, DEFAULT_ALGORITHM),
        )

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a function.

        Raises:
            RunnerError: for a status other than success.
        """
        status = getattr(self._library, name)(*arguments)
        if status != SUCCESS:
            raise RunnerError(f"{name} failed with status {status}")


def dense(problem: Problem) -> dict[str, float]:
    """The pitches and strides of operands without gaps."""
    pitches = {f"ld{name}": ld for name, ld in zip("abc", problem.leading_dimensions, strict=True)}
    strides = {f"stride_{name}": step for name, step in zip("abc", problem.strides, strict=True)}
    return {**pitches, **strides}


def _version(library: Any) -> str:
    """A library's version, such as `13.0.0`."""
    library.cublasLtGetVersion.restype = c_size_t
    number = int(library.cublasLtGetVersion())
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def version() -> str:
    """The version of the library that is loaded, else of an installed one; empty if there is none.

    It takes no GPU, and loads the library.
    """
    try:
        return _version(ctypes.CDLL(library_path("cublasLt")))
    except (ImportError, OSError, MissingError):
        return ""


def library_path(name: str) -> str:
    """The path of `cublas` or `cublasLt`: the library that is loaded, else an installed one.

    Raises:
        MissingError: if there is none.
    """
    from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib

    try:
        path = load_nvidia_dynamic_lib(name).abs_path
    except DynamicLibNotFoundError as error:
        raise MissingError(f"no cuBLAS: {error}; install PyTorch or nvidia-cublas") from error
    if path is None:
        raise MissingError(f"lib{name} is loaded from an unknown place")
    return str(path)
